"""``cdk-sagas doctor`` never reports a running saga as stuck, whenever the saga moves between two reads.

The conditions that the histories at the end need:

* an owner's end is used only if a second read returns the same record and the same end;
* a row is left behind only if it is unchanged after its record was read;
* a record is made due only if it is still in progress, has the same owner, and was not made due since.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import boto3
import pytest

from saga_runtime.protocol import RecordStatus, StepStatus
from saga_runtime.recovery.takeover import recovery_name
from saga_runtime.shared import aws
from tests.unit.support.checked_stack import CheckedStack, checked_stack_in
from tests.unit.support.executions import ExecutionStatus
from tests.unit.support.samples import SAGA_ID
from tests.unit.support.wire import before
from tests.unit.support.world import World

pytestmark = pytest.mark.proof

R1 = recovery_name(SAGA_ID, 1)


@pytest.fixture
def stack(world: World, monkeypatch: pytest.MonkeyPatch, boto3_session: boto3.Session) -> Iterator[CheckedStack]:
    """A stack with a saga that runs; nothing is wrong."""
    with checked_stack_in(world, monkeypatch, boto3_session) as stack:
        yield stack


# What moves between the reads.


def reserved(stack: CheckedStack) -> None:
    stack.world.executions.forget(SAGA_ID)
    stack.pass_time()


def starts(stack: CheckedStack) -> None:
    stack.world.executions.start(SAGA_ID, stack.operated.record.input)


def asked(stack: CheckedStack) -> None:
    stack.job_saga.register()
    stack.put_row("Charge", StepStatus.INTENT)


def completes(stack: CheckedStack) -> None:
    stack.job_saga.reports("event-1")
    stack.put_row("Charge", StepStatus.DONE)
    stack.settle(RecordStatus.COMPLETED)
    stack.dies(status=ExecutionStatus.SUCCEEDED)


def parks(stack: CheckedStack) -> None:
    stack.operated.park()


def is_taken_over(stack: CheckedStack) -> None:
    stack.dies()
    stack.update(owner={"S": R1}, recoveries={"N": "1"}, due_at={"N": str(stack.world.clock.ms + 60_000)})
    stack.world.executions.start(R1, stack.operated.record.input)


def was_settling(stack: CheckedStack) -> None:
    asked(stack)
    stack.job_saga.reports("event-1")
    stack.put_row("Charge", StepStatus.DONE)


def settles(stack: CheckedStack) -> None:
    stack.settle(RecordStatus.COMPLETED)
    stack.dies(status=ExecutionStatus.SUCCEEDED)


MOVES: dict[str, tuple[Callable[[CheckedStack], None], Callable[[CheckedStack], None], set[str]]] = {
    "is answered and completes": (asked, completes, set()),
    "completes": (was_settling, settles, set()),
    "is started": (reserved, starts, {"not started"}),
    "is parked": (asked, parks, {"parked"}),
    "is interrupted and taken over": (asked, is_taken_over, set()),
}
"""A saga's state, its next move, and the valid findings: those before the move, or those after it."""


@pytest.mark.parametrize("move", MOVES)
def test_a_saga_that_moves_between_two_reads_is_never_a_finding(stack: CheckedStack, move: str) -> None:
    """It moves before each call of a full check."""
    prepare, happens, may = MOVES[move]
    dynamodb: Any = aws.dynamodb()
    tables = {table: dynamodb.scan(TableName=table)["Items"] for table in ("requests", "log", "tokens")}
    clock = stack.world.clock.ms
    place, calls, seen = 0, 1, set[str]()
    while place < calls:
        place += 1
        put_back(stack, tables, clock)
        prepare(stack)
        found, calls = looks_while(stack, place, lambda: happens(stack))
        assert found <= may, f"before call {place} of {calls}"
        seen |= found

    assert calls > 30
    assert seen == may


def looks_while(stack: CheckedStack, place: int, happens: Callable[[], None]) -> tuple[set[str], int]:
    """Run a full check with an action before one of its calls: the findings, and the number of calls."""
    send, made = stack.world.wire.send, [0]

    def counted(event_name: str, request: Any, deliver: Any) -> Any:
        made[0] += 1
        if made[0] == place:
            happens()
        return send(event_name, request, deliver)

    setattr(stack.world.wire, "send", counted)  # noqa: B010  # mypy knows it as a method
    try:
        return {one["kind"] for one in stack.finds("--full-scan")}, made[0]
    finally:
        setattr(stack.world.wire, "send", send)  # noqa: B010 - mypy refuses to assign to a method


def put_back(stack: CheckedStack, tables: dict[str, Any], clock: int) -> None:
    """Everything as it was."""
    keys = {"requests": ("id",), "log": ("saga_id", "step"), "tokens": ("id",)}
    for table, names in keys.items():
        for item in stack.world.items(table):
            aws.dynamodb().delete_item(TableName=table, Key={name: item[name] for name in names})
        for item in tables[table]:
            aws.dynamodb().put_item(TableName=table, Item=item)
    stack.world.clock.ms = clock
    stack.world.executions.by_name.clear()
    stack.world.executions.start(SAGA_ID, stack.operated.record.input)
    stack.world.tasks.waiting.clear()
    stack.world.tasks.ended.clear()
    stack.job_saga.attempts.clear()


# Each condition is needed.


def test_a_saga_that_is_parked_during_the_check_is_reported_once(stack: CheckedStack) -> None:
    """Read as in progress; then parked by its owner, whose execution ends before it is described."""
    before(stack.world.wire, "DescribeExecution", stack.operated.park)

    assert [one["kind"] for one in stack.finds()] == ["parked"]


def test_a_row_closed_after_its_record_was_read_is_not_a_finding(stack: CheckedStack) -> None:
    """Read open; then closed, and its saga settled, before its record is read."""
    stack.put_row("Charge", StepStatus.INTENT)

    def completes() -> None:
        stack.put_row("Charge", StepStatus.DONE)
        settles(stack)

    scans = [0]
    send = stack.world.wire.send

    def disturbed(event_name: str, request: Any, deliver: Any) -> Any:
        answer = send(event_name, request, deliver)
        if event_name.endswith(".Scan"):
            scans[0] += 1
            if '"log"' in str(request.body):
                completes()
        return answer

    setattr(stack.world.wire, "send", disturbed)  # noqa: B010  # mypy knows it as a method
    assert stack.finds("--full-scan") == []


def test_a_token_that_is_delivered_after_its_read_is_not_a_finding(stack: CheckedStack) -> None:
    """Read as waiting; then delivered, and its saga settled, before its record is read."""
    stack.job_saga.register()
    before(stack.world.wire, "GetItem", lambda: completes_by_token(stack), on=2)  # the first is of the switch

    assert stack.finds() == []


def completes_by_token(stack: CheckedStack) -> None:
    stack.job_saga.reports("event-1")
    settles(stack)


def made_due(stack: CheckedStack, meanwhile: Callable[[CheckedStack], None]) -> dict[str, str]:
    """Something happens before the write that makes a record due; the record after it."""
    stack.remove("due_at", "due_shard")
    left: list[dict[str, str]] = []

    def happens() -> None:
        meanwhile(stack)
        left.append(stack.item)

    before(stack.world.wire, "UpdateItem", happens)
    (finding,) = [one for one in stack.finds("--full-scan", "--repair") if one["kind"] == "missing from index"]

    assert finding["repaired"] == "done by another process"
    assert stack.item == left[0]
    return stack.item


def test_due_again(stack: CheckedStack) -> None:
    made_due(stack, lambda stack: stack.update(due_at={"N": "1"}))


def test_in_its_shard_again(stack: CheckedStack) -> None:
    made_due(stack, lambda stack: stack.update(due_shard={"S": "00"}))


def test_settled_meanwhile(stack: CheckedStack) -> None:
    assert "due_at" not in made_due(stack, lambda stack: stack.settle())


def test_owned_by_another(stack: CheckedStack) -> None:
    made_due(stack, lambda stack: stack.update(owner={"S": R1}))
