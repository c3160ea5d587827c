"""``cdk-sagas doctor`` with much to read: it leaves quotas to the sagas, holds few at once, and reads to the end."""

from __future__ import annotations

from collections import Counter
from importlib import import_module

import pytest

from saga_runtime.idempotency.record import reserve_put
from saga_runtime.protocol import NOTICE_PREFIX
from saga_runtime.recovery.running import ASKED_ONE_BY_ONE
from saga_runtime.shared import aws
from tests.unit.support.checked_stack import SHARD, CheckedStack
from tests.unit.support.doctor_scenes import SCENES
from tests.unit.support.executions import ExecutionStatus
from tests.unit.support.samples import MACHINE_ARN, reservation_of

RECORDS = import_module("constructs_lib.cli.doctor.records")
MANY = 3 * ASKED_ONE_BY_ONE


def run_many(stack: CheckedStack) -> str:
    """Let many sagas run, and one be dead: its id."""
    reservations = [reservation_of(key=f"many-{number}", now_ms=stack.world.clock.ms) for number in range(MANY)]
    for reservation in reservations:
        item = {**reserve_put(reservation)["Item"], "due_shard": {"S": SHARD}}
        aws.dynamodb().put_item(TableName="requests", Item=item)
        stack.world.executions.start(reservation.saga_id, reservation.start_input, MACHINE_ARN)
    dead = reservations[-1].saga_id
    stack.world.executions.end(dead, ExecutionStatus.FAILED)
    stack.world.wire.forget()
    return dead


@pytest.mark.parametrize("denied", [(), ("ListExecutions",)], ids=["may list", "may not list"])
def test_few_of_many_running_executions_are_described(stack: CheckedStack, denied: tuple[str, ...]) -> None:
    dead = run_many(stack)
    stack.denied |= {*denied}

    found = stack.finds()

    assert [(one["kind"], one["id"]) for one in found] == [("interrupted", dead)]
    calls = Counter(stack.world.wire.sent)
    if denied:
        assert calls["DescribeExecution"] > MANY
    else:
        assert calls["DescribeExecution"] <= ASKED_ONE_BY_ONE + 3
        assert calls["ListExecutions"] == 1


def test_few_records_are_held_at_once(stack: CheckedStack, monkeypatch: pytest.MonkeyPatch) -> None:
    run_many(stack)
    monkeypatch.setattr(RECORDS, "_AT_ONCE", 20)
    held: list[int] = []
    look = RECORDS.all_of

    def looked(act: object, items: list[object]) -> object:
        held.append(len(items))
        return look(act, items)

    monkeypatch.setattr(RECORDS, "all_of", looked)

    assert len(stack.finds()) == 1
    assert (sum(held), max(held)) == (MANY + 1, 20)


@pytest.mark.parametrize(
    "broken",
    [
        {"status": {"S": "OF_A_NEWER_RELEASE"}},
        {"status": {"S": "NOTICE"}},
        {"status": {"S": "NOTICE"}, "updated_at": {"N": "1"}, "queue_url": {"S": "q"}, "entry": {"S": "{}"}},
    ],
    ids=["newer", "incomplete", "without a reason"],
)
def test_a_notice_that_cannot_be_read_hides_nothing_else(
    stack: CheckedStack, broken: dict[str, dict[str, str]]
) -> None:
    SCENES["undelivered"].happens(stack)
    item = {"id": {"S": f"{NOTICE_PREFIX}x"}, "due_shard": {"S": SHARD}, "due_at": {"N": "1"}, **broken}
    aws.dynamodb().put_item(TableName="tokens", Item=item)

    assert sorted(kind for kind, _ in stack.kinds()) == ["outcome not delivered", "unreadable"]
