"""Simulation of a user's stack: the page on the simulator shows this file."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from pathlib import Path
from random import Random

import pytest
from aws_cdk import App

from constructs_lib import Run
from constructs_lib.testing.invariants import Invariant
from constructs_lib.testing.proof import Proof
from constructs_lib.testing.simulator import (
    Intent,
    Result,
    Workload,
    World,
    break_each_call,
    simulate,
    unused_grants,
)
from examples.funds_transfer.stack import FundsTransferStack
from saga_runtime import LedgerBuilder, Money

from .begun.stack import BegunTransferStack

pytestmark = pytest.mark.proof


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


class Ordered(Transfers):
    def prepare(self, world: World, random: Random) -> None:
        super().prepare(world, random)
        for number in (1, 2, 2):
            transfer = {"from": "alice", "to": "bob", "amount": number, "currency": "EUR"}
            message = {"id": "one", "key": f"order-{number}", "transfer": transfer}
            sent = {"QueueUrl": world.output("QueueUrl"), "MessageBody": json.dumps(message)}
            world.call("sqs", "SendMessage", sent)

    def audit(self, world: World) -> Iterable[Invariant]:
        found = [one["operation"]["S"] for one in world.records(world.output("RequestTableName"))]
        begun = found.count("ordered")
        told = () if begun == 2 else (f"{begun} sagas were begun",)
        yield Invariant(name="two orders begin two sagas", checked=begun, violations=told)


def test_transfers_that_messages_begin_keep_their_promise() -> None:
    stack = BegunTransferStack(App(), "FundsTransfer", run=Run.STANDARD)
    simulate(stack, Ordered(), sagas=100).require_kept()


def test_transfer_survives_a_fault_at_any_call() -> None:
    stack = FundsTransferStack(App(), "FundsTransfer")
    break_each_call(stack, Transfers()).require_kept()


def test_transfer_may_do_what_it_does_and_nothing_else() -> None:
    unused = unused_grants(FundsTransferStack(App(), "FundsTransfer"), Transfers())
    assert [grant for grant in unused if "TransferFunction" in grant.role] == []


def test_transfers_are_proven(tmp_path: Path) -> None:
    with Proof(FundsTransferStack(App(), "FundsTransfer"), Transfers(), report=tmp_path) as proof:
        proof.survives_crashes()
        proof.duplicates_are_one()
        proof.retry_completes()
        proof.concurrent_duplicates_are_one()


def balances_of(world: World) -> dict[str, int]:
    """Balance of each account."""
    accounts = [item for item in world.table(world.output("LedgerTableName")) if item["pk"]["S"].startswith("account#")]
    return {
        item["pk"]["S"].removeprefix("account#"): int(item["balance"]["N"]) for item in accounts if "balance" in item
    }


class Booked(Transfers):
    def audit_results(self, world: World, results: Sequence[Result]) -> Iterable[Invariant]:
        requests = {(one.intent.user, one.key): one for one in results}.values()
        moved = sum(one.intent.body["amount"] for one in requests if one.completed)
        found, wanted = balances_of(world), {"alice": 1_000 - moved, "bob": 1_000 + moved}
        told = () if found == wanted else (f"the books are {found}, and completed transfers demand {wanted}",)
        yield Invariant(name="the books have every transfer", checked=len(results), violations=told)


def test_transfers_result_in_what_was_requested() -> None:
    with Proof(FundsTransferStack(App(), "FundsTransfer"), Booked()) as proof:
        proof.survives_random_faults(requests=50)
