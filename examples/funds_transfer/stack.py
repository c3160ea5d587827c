"""Transfers between accounts of one ledger: the smallest whole system."""

from pathlib import Path

from aws_cdk import CfnOutput, Duration, Stack
from constructs import Construct

from constructs_lib import (
    IdempotencyTable,
    LedgerTable,
    Operation,
    SagaStateMachine,
    Step,
    StepFunction,
    TransactionApi,
)

FUNCTIONS = Path(__file__).parent / "functions"

TRANSFER_SCHEMA = {
    "type": "object",
    "required": ["from", "to", "amount", "currency"],
    "additionalProperties": False,
    "properties": {
        "from": {"type": "string", "minLength": 1, "maxLength": 64},
        "to": {"type": "string", "minLength": 1, "maxLength": 64},
        "amount": {"type": "integer", "minimum": 1, "description": "minor units, e.g. cents"},
        "currency": {"type": "string", "pattern": "^[A-Z]{3}$"},
    },
}


class FundsTransferStack(Stack):
    """``POST /transfers`` moves money once per Idempotency-Key; ``GET /transfers/{saga_id}`` tells."""

    def __init__(self, scope: Construct, id: str) -> None:
        super().__init__(scope, id, description="Transfers that happen at most once")
        ledger = LedgerTable(self, "Ledger")
        requests = IdempotencyTable(self, "Requests")
        transfer = StepFunction(
            self, "TransferFunction", code=FUNCTIONS, handler="transfer.handler", environment=ledger.environment
        )
        ledger.grant_transfer(transfer)
        saga = SagaStateMachine(
            self,
            "Transfer",
            requests=requests,
            steps=[Step.atomic("Transfer", fn=transfer, pivot=True)],
            timeout=Duration.minutes(15),
            failure_status={"InsufficientFunds": 402, "AccountUnknown": 404},
        )
        front_door = TransactionApi(
            self, "Api", operations={"transfers": Operation(saga=saga, schema=TRANSFER_SCHEMA)}, waf=True
        )
        CfnOutput(self, "ApiId", value=front_door.api.rest_api_id)
        CfnOutput(self, "ApiStage", value=front_door.api.deployment_stage.stage_name)
        CfnOutput(self, "LedgerTableName", value=ledger.table.table_name)
        CfnOutput(self, "RequestTableName", value=requests.table.table_name)
        CfnOutput(self, "LogTableName", value=saga.log.table.table_name)
        CfnOutput(self, "StateMachineArn", value=saga.state_machine.state_machine_arn)
