"""The same transfer with other settings of the gatekeeper: optional keys, 202 for duplicates, records due early."""

from __future__ import annotations

from pathlib import Path
from typing import Final

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
from examples.funds_transfer.stack import FUNCTIONS, TRANSFER_SCHEMA
from saga_runtime.protocol import InProgressResponse, KeyPolicy

BURST: Final = 4
DUE_AFTER_SECONDS: Final = 10


class TransferVariantStack(Stack):
    """One step, with every gatekeeper setting that the reference app leaves at its default."""

    def __init__(self, scope: Construct, id: str) -> None:
        super().__init__(scope, id)
        ledger = LedgerTable(self, "Ledger")
        requests = IdempotencyTable(self, "Requests", due_after=Duration.seconds(DUE_AFTER_SECONDS))
        function = StepFunction(
            self,
            "TransferFunction",
            code=Path(FUNCTIONS),
            handler="transfer.handler",
            environment=ledger.environment,
        )
        ledger.grant_post(function)
        saga = SagaStateMachine(
            self,
            "Transfer",
            requests=requests,
            steps=[Step.atomic("Transfer", fn=function, pivot=True)],
            http_status_by_error={"InsufficientFunds": 402},
        )
        operation = Operation(
            saga=saga,
            schema=TRANSFER_SCHEMA,
            key_policy=KeyPolicy.OPTIONAL,
            in_progress_response=InProgressResponse.ACCEPTED,
        )
        front_door = TransactionApi(self, "Api", operations={"transfers": operation}, snap_start=True)
        narrow = TransactionApi(
            self, "Narrow", operations={"transfers": saga}, rate_limit=1, burst_limit=BURST, cloud_watch_role=False
        )
        outputs = {
            "ApiId": front_door.api.rest_api_id,
            "ApiStage": front_door.api.deployment_stage.stage_name,
            "NarrowApiId": narrow.api.rest_api_id,
            "LedgerTableName": ledger.table.table_name,
            "RequestTableName": requests.table.table_name,
            "LogTableName": saga.log.table.table_name,
            "StateMachineArn": saga.state_machine.state_machine_arn,
        }
        for name, value in outputs.items():
            CfnOutput(self, name, value=value)
