"""Simulation of a user's stack: the page on the simulator shows this file."""

from __future__ import annotations

from random import Random
from typing import Any

from aws_cdk import App

from constructs_lib.testing.simulator import Intent, Workload, World, break_each_call, simulate
from examples.funds_transfer.stack import FundsTransferStack


def opened(account: str) -> dict[str, Any]:
    """An account of the funds transfer that has no entries yet."""
    from saga_runtime import LedgerBuilder, Money

    (write,) = LedgerBuilder(table="ledger").open_account(account_id=account, opening=Money(0, "EUR"), now_ms=1)
    item: dict[str, Any] = write.action["Put"]["Item"]
    return item


class Transfers(Workload):
    def prepare(self, world: World, random: Random) -> None:
        for account in ("alice", "bob"):
            world.db.put(world.output("LedgerTableName"), opened(account))

    def intent(self, number: int, random: Random) -> Intent:
        body = {"from": "alice", "to": "bob", "amount": random.choice((1, 50)), "currency": "EUR"}
        return Intent(operation="transfers", body=body)


def test_transfers_keep_their_promise() -> None:
    stack = FundsTransferStack(App(), "FundsTransfer")
    simulate(stack, Transfers(), sagas=100).require_kept()


def test_transfer_survives_a_fault_at_any_call() -> None:
    stack = FundsTransferStack(App(), "FundsTransfer")
    break_each_call(stack, Transfers()).require_kept()
