"""Simulation of a user's stack: the page on the simulator shows this file."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path
from random import Random

from aws_cdk import App

from constructs_lib.testing.invariants import Invariant
from constructs_lib.testing.proof import Proof
from constructs_lib.testing.simulator import Intent, Result, Workload, World, break_each_call, simulate
from examples.funds_transfer.stack import FundsTransferStack
from saga_runtime import LedgerBuilder, Money


class Transfers(Workload):
    def prepare(self, world: World, random: Random) -> None:
        builder = LedgerBuilder(table=world.output("LedgerTableName"))
        for account in ("alice", "bob"):
            writes = builder.open_account(account_id=account, opening=Money(1_000, "EUR"), now_ms=1)
            world.call("dynamodb", "TransactWriteItems", {"TransactItems": [write.action for write in writes]})

    def intent(self, number: int, random: Random) -> Intent:
        body = {"from": "alice", "to": "bob", "amount": random.choice((1, 50)), "currency": "EUR"}
        return Intent(operation="transfers", body=body)


def test_transfers_keep_their_promise() -> None:
    stack = FundsTransferStack(App(), "FundsTransfer")
    simulate(stack, Transfers(), sagas=100).require_kept()


def test_transfer_survives_a_fault_at_any_call() -> None:
    stack = FundsTransferStack(App(), "FundsTransfer")
    break_each_call(stack, Transfers()).require_kept()


def test_transfers_are_proven(tmp_path: Path) -> None:
    with Proof(FundsTransferStack(App(), "FundsTransfer"), Transfers(), report=tmp_path) as proof:
        proof.survives_crashes()
        proof.duplicates_are_one()
        proof.retry_completes()
        proof.concurrent_duplicates_are_one()


def balance_of(world: World, account: str) -> int:
    """Balance of an account."""
    keys = {item["pk"]["S"]: item for item in world.table(world.output("LedgerTableName")) if "balance" in item}
    return int(keys[f"account#{account}"]["balance"]["N"])


class Booked(Transfers):
    def audit_results(self, world: World, results: Sequence[Result]) -> Iterable[Invariant]:
        moved = sum(one.intent.body["amount"] for one in results if one.completed)
        found = balance_of(world, "bob")
        told = () if found == 1_000 + moved else (f"bob has {found}, had 1000, and completed transfers demand {moved}",)
        yield Invariant(name="bob has every transfer", checked=len(results), violations=told)


def test_transfers_result_in_what_was_requested() -> None:
    with Proof(FundsTransferStack(App(), "FundsTransfer"), Booked()) as proof:
        proof.survives_random_faults(requests=50)
