"""Orders whose price is held until it is captured, and payouts of what merchants have collected."""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import Final

from aws_cdk import CfnOutput, Duration, Stack
from constructs import Construct

from constructs_lib import (
    CollectingAccounts,
    DirectFunction,
    DirectOperation,
    IdempotencyTable,
    LedgerTable,
    Operation,
    Provider,
    Run,
    SagaStateMachine,
    Step,
    StepFunction,
    TimeoutReconciler,
    TransactionApi,
)

CARRIER: Final = "https://carrier.example"
_GRACE: Final = Duration.minutes(2)
"""How late the carrier may act."""
_SCHEMA: Final = {"type": "object"}
_CODE: Final = Path(__file__).parent / "functions"


class HeldPaymentsStack(Stack):
    """``POST /orders`` holds, ships and captures; ``POST /payouts`` pays a merchant."""

    def __init__(self, scope: Construct, id: str, *, run: Run = Run.STANDARD) -> None:
        super().__init__(scope, id)
        self._definitions = tempfile.TemporaryDirectory(prefix="cdk-sagas-held-payments-")
        ledger = LedgerTable(
            self,
            "Ledger",
            holds=True,
            collecting=[CollectingAccounts(prefix="merchant:", unit="EUR", shards=2)],
        )
        environment = {"CARRIER": CARRIER, **ledger.environment}

        def function(name: str, handler: str) -> StepFunction:
            made = StepFunction(self, name, code=_CODE, handler=f"orders.{handler}", environment=environment)
            if handler in ("authorize", "release", "capture"):
                ledger.grant_post(made)
            return made

        provider = Provider(verify=True, verify_undo=True, grace=_GRACE)
        requests = IdempotencyTable(self, "Requests")
        refused = ["HoldClosed", "HoldExceeded"]
        saga = SagaStateMachine(
            self,
            "Order",
            requests=requests,
            run=run,
            definition_file=Path(self._definitions.name) / "order.json" if run is Run.INLINE else None,
            steps=[
                Step.atomic(
                    "Authorize",
                    fn=function("AuthorizeFunction", "authorize"),
                    compensate=function("ReleaseFunction", "release"),
                    refusals=["InsufficientFunds"],
                ),
                Step.external(
                    "Ship",
                    fn=function("ShipFunction", "ship"),
                    compensate=function("TakeBackFunction", "take_back"),
                    provider=provider,
                ),
                Step.atomic("Capture", fn=function("CaptureFunction", "capture"), pivot=True, refusals=refused),
            ],
            timeout=Duration.days(1),
        )
        TimeoutReconciler(self, "Reconciler", sagas=[saga])
        pay_out = DirectFunction(
            self, "PayOut", code=_CODE, handler="orders.pay_out", schema=_SCHEMA, environment=environment
        )
        ledger.grant_post(pay_out)
        operations: dict[str, Operation | DirectOperation] = {
            "orders": Operation(saga=saga, schema=_SCHEMA),
            "payouts": DirectOperation(fn=pay_out, requests=requests, previous=None),
        }
        TransactionApi(self, "Api", operations=operations, cloud_watch_role=False)
        CfnOutput(self, "LedgerTableName", value=ledger.table.table_name)
        CfnOutput(self, "LogTableName", value=saga.log.table.table_name)
