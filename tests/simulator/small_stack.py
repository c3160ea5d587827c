"""A stack with one saga of one step, behind an API that the caller adds, and transfers for it."""

from __future__ import annotations

from pathlib import Path
from random import Random
from typing import TYPE_CHECKING, Any, Final

from constructs_lib.testing.simulator import Intent, Workload, World
from saga_runtime import LedgerBuilder, Money

if TYPE_CHECKING:
    from constructs_lib import SagaStateMachine

FUNCTIONS: Final = Path(__file__).parents[2] / "constructs_lib" / "cli" / "init" / "app" / "functions"


class Transfers(Workload):
    """Transfers from alice to bob, of which some are of more than there is."""

    def prepare(self, world: World, random: Random) -> None:
        builder = LedgerBuilder(table=world.output("LedgerTableName"))
        for account in ("alice", "bob"):
            writes = builder.open_account(account_id=account, opening=Money(1_000, "EUR"), now_ms=1)
            world.call("dynamodb", "TransactWriteItems", {"TransactItems": [write.action for write in writes]})

    def intent(self, number: int, random: Random) -> Intent:
        amount = random.choice((1, 50, 5_000))
        return Intent(operation="transfers", body={"from": "alice", "to": "bob", "amount": amount, "currency": "EUR"})


def add_saga(stack: Any) -> SagaStateMachine:
    """Add the saga, its ledger and its reconciler to a stack."""
    from aws_cdk import CfnOutput

    from constructs_lib import IdempotencyTable, LedgerTable, SagaStateMachine, Step, StepFunction, TimeoutReconciler

    ledger, requests = LedgerTable(stack, "Ledger"), IdempotencyTable(stack, "Requests")
    transfer = StepFunction(
        stack, "TransferFunction", code=FUNCTIONS, handler="transfer.handler", environment=ledger.environment
    )
    ledger.grant_post(transfer)
    saga = SagaStateMachine(stack, "Transfer", requests=requests, steps=[Step.atomic("Transfer", fn=transfer)])
    TimeoutReconciler(stack, "Reconciler", sagas=[saga])
    CfnOutput(stack, "LedgerTableName", value=ledger.table.table_name)
    return saga
