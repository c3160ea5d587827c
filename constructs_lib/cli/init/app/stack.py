"""One operation, one saga, one step."""

from pathlib import Path

from aws_cdk import CfnOutput, Stack
from constructs import Construct

from constructs_lib import (
    IdempotencyTable,
    LedgerTable,
    Operation,
    SagaStateMachine,
    Step,
    StepFunction,
    TimeoutReconciler,
    TransactionApi,
)

FUNCTIONS = Path(__file__).parent / "functions"

SCHEMA = {
    "type": "object",
    "required": ["from", "to", "amount", "currency"],
    "additionalProperties": False,
    "properties": {
        "from": {"type": "string"},
        "to": {"type": "string"},
        "amount": {"type": "integer", "minimum": 1},
        "currency": {"type": "string", "pattern": "^[A-Z]{3}$"},
    },
}


class FirstSagaStack(Stack):
    """``POST /transfers`` moves money once per Idempotency-Key."""

    def __init__(self, scope: Construct, id: str) -> None:
        super().__init__(scope, id)
        ledger = LedgerTable(self, "Ledger")
        requests = IdempotencyTable(self, "Requests")

        transfer = StepFunction(
            self, "TransferFunction", code=FUNCTIONS, handler="transfer.handler", environment=ledger.environment
        )
        ledger.grant_post(transfer)

        saga = SagaStateMachine(self, "Transfer", requests=requests, steps=[Step.atomic("Transfer", fn=transfer)])
        TimeoutReconciler(self, "Reconciler", sagas=[saga])
        front_door = TransactionApi(self, "Api", operations={"transfers": Operation(saga=saga, schema=SCHEMA)})

        CfnOutput(self, "ApiId", value=front_door.api.rest_api_id)
        CfnOutput(self, "LedgerTableName", value=ledger.table.table_name)
