"""Transfers in the simulator: random faults in virtual time, without ports and processes."""

from random import Random

from aws_cdk import App
from stack import FirstSagaStack

from constructs_lib.testing.simulator import Intent, Workload, World, break_each_call, simulate
from saga_runtime import LedgerBuilder, Money


class Transfers(Workload):
    """Clients who send money from alice to bob, sometimes more than there is."""

    def prepare(self, world: World, random: Random) -> None:
        """Open the accounts."""
        table = world.output("LedgerTableName")
        for account in ("alice", "bob"):
            builder = LedgerBuilder(table=table)
            for write in builder.open_account(account_id=account, opening=Money(1_000, "EUR"), now_ms=1):
                world.db.put(table, write.action["Put"]["Item"])

    def intent(self, number: int, random: Random) -> Intent:
        """Return one request."""
        amount = random.choice((1, 50, 5_000))
        return Intent(operation="transfers", body={"from": "alice", "to": "bob", "amount": amount, "currency": "EUR"})


def test_random_faults_break_no_transfer() -> None:
    simulate(FirstSagaStack(App(), "FirstSaga"), Transfers(), sagas=50).require_kept()


def test_a_fault_at_any_call_breaks_no_transfer() -> None:
    break_each_call(FirstSagaStack(App(), "FirstSaga"), Transfers()).require_kept()
