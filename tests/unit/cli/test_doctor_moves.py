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
from tests.unit.support.clinic import Clinic, before, clinic_in
from tests.unit.support.executions import ExecutionStatus
from tests.unit.support.samples import SAGA_ID
from tests.unit.support.world import World

pytestmark = pytest.mark.exhaustive

R1 = recovery_name(SAGA_ID, 1)


@pytest.fixture
def clinic(world: World, monkeypatch: pytest.MonkeyPatch, boto3_session: boto3.Session) -> Iterator[Clinic]:
    """A stack with a saga that runs; nothing is wrong."""
    with clinic_in(world, monkeypatch, boto3_session) as clinic:
        yield clinic


# What moves between the reads.


def reserved(clinic: Clinic) -> None:
    clinic.world.executions.forget(SAGA_ID)
    clinic.pass_time()


def starts(clinic: Clinic) -> None:
    clinic.world.executions.start(SAGA_ID, clinic.desk.record.input)


def asked(clinic: Clinic) -> None:
    clinic.depot.register()
    clinic.put_row("Charge", StepStatus.INTENT)


def completes(clinic: Clinic) -> None:
    clinic.depot.says("event-1")
    clinic.put_row("Charge", StepStatus.DONE)
    clinic.settle(RecordStatus.COMPLETED)
    clinic.dies(status=ExecutionStatus.SUCCEEDED)


def parks(clinic: Clinic) -> None:
    clinic.desk.park()


def is_taken_over(clinic: Clinic) -> None:
    clinic.dies()
    clinic.update(owner={"S": R1}, recoveries={"N": "1"}, due_at={"N": str(clinic.world.clock.ms + 60_000)})
    clinic.world.executions.start(R1, clinic.desk.record.input)


def was_settling(clinic: Clinic) -> None:
    asked(clinic)
    clinic.depot.says("event-1")
    clinic.put_row("Charge", StepStatus.DONE)


def settles(clinic: Clinic) -> None:
    clinic.settle(RecordStatus.COMPLETED)
    clinic.dies(status=ExecutionStatus.SUCCEEDED)


MOVES: dict[str, tuple[Callable[[Clinic], None], Callable[[Clinic], None], set[str]]] = {
    "is answered and completes": (asked, completes, set()),
    "completes": (was_settling, settles, set()),
    "is started": (reserved, starts, {"not started"}),
    "is parked": (asked, parks, {"parked"}),
    "is interrupted and taken over": (asked, is_taken_over, set()),
}
"""A saga's state, its next move, and the valid findings: those before the move, or those after it."""


@pytest.mark.parametrize("move", MOVES)
def test_a_saga_that_moves_between_two_reads_is_never_a_finding(clinic: Clinic, move: str) -> None:
    """It moves before each call of a full check."""
    prepare, happens, may = MOVES[move]
    dynamodb: Any = aws.dynamodb()
    tables = {table: dynamodb.scan(TableName=table)["Items"] for table in ("requests", "log", "tokens")}
    clock = clinic.world.clock.ms
    place, calls, seen = 0, 1, set[str]()
    while place < calls:
        place += 1
        put_back(clinic, tables, clock)
        prepare(clinic)
        found, calls = looks_while(clinic, place, lambda: happens(clinic))
        assert found <= may, f"before call {place} of {calls}"
        seen |= found

    assert calls > 30
    assert seen == may


def looks_while(clinic: Clinic, place: int, happens: Callable[[], None]) -> tuple[set[str], int]:
    """Run a full check with an action before one of its calls: the findings, and the number of calls."""
    send, made = clinic.world.wire.send, [0]

    def counted(event_name: str, request: Any, deliver: Any) -> Any:
        made[0] += 1
        if made[0] == place:
            happens()
        return send(event_name, request, deliver)

    setattr(clinic.world.wire, "send", counted)  # noqa: B010  # mypy knows it as a method
    try:
        return {one["kind"] for one in clinic.finds("--deep")}, made[0]
    finally:
        setattr(clinic.world.wire, "send", send)  # noqa: B010 - mypy refuses to assign to a method


def put_back(clinic: Clinic, tables: dict[str, Any], clock: int) -> None:
    """Everything as it was."""
    keys = {"requests": ("id",), "log": ("saga_id", "step"), "tokens": ("id",)}
    for table, names in keys.items():
        for item in clinic.world.items(table):
            aws.dynamodb().delete_item(TableName=table, Key={name: item[name] for name in names})
        for item in tables[table]:
            aws.dynamodb().put_item(TableName=table, Item=item)
    clinic.world.clock.ms = clock
    clinic.world.executions.by_name.clear()
    clinic.world.executions.start(SAGA_ID, clinic.desk.record.input)
    clinic.world.tasks.waiting.clear()
    clinic.world.tasks.ended.clear()
    clinic.depot.attempts.clear()


# Each condition is needed.


def test_a_saga_that_is_parked_during_the_check_is_reported_once(clinic: Clinic) -> None:
    """Read as in progress; then parked by its owner, whose execution ends before it is described."""
    before(clinic.world.wire, "DescribeExecution", clinic.desk.park)

    assert [one["kind"] for one in clinic.finds()] == ["parked"]


def test_a_row_closed_after_its_record_was_read_is_not_a_finding(clinic: Clinic) -> None:
    """Read open; then closed, and its saga settled, before its record is read."""
    clinic.put_row("Charge", StepStatus.INTENT)

    def completes() -> None:
        clinic.put_row("Charge", StepStatus.DONE)
        settles(clinic)

    scans = [0]
    send = clinic.world.wire.send

    def disturbed(event_name: str, request: Any, deliver: Any) -> Any:
        answer = send(event_name, request, deliver)
        if event_name.endswith(".Scan"):
            scans[0] += 1
            if '"log"' in str(request.body):
                completes()
        return answer

    setattr(clinic.world.wire, "send", disturbed)  # noqa: B010  # mypy knows it as a method
    assert clinic.finds("--deep") == []


def test_a_token_that_is_delivered_after_its_read_is_not_a_finding(clinic: Clinic) -> None:
    """Read as waiting; then delivered, and its saga settled, before its record is read."""
    clinic.depot.register()
    before(clinic.world.wire, "GetItem", lambda: completes_by_token(clinic), on=2)  # the first is of the switch

    assert clinic.finds() == []


def completes_by_token(clinic: Clinic) -> None:
    clinic.depot.says("event-1")
    settles(clinic)


def made_due(clinic: Clinic, meanwhile: Callable[[Clinic], None]) -> dict[str, str]:
    """Something happens before the write that makes a record due; the record after it."""
    clinic.remove("due_at", "due_shard")
    left: list[dict[str, str]] = []

    def happens() -> None:
        meanwhile(clinic)
        left.append(clinic.item)

    before(clinic.world.wire, "UpdateItem", happens)
    (finding,) = [one for one in clinic.finds("--deep", "--repair") if one["kind"] == "never found again"]

    assert finding["repaired"] == "done by another process"
    assert clinic.item == left[0]
    return clinic.item


def test_due_again(clinic: Clinic) -> None:
    made_due(clinic, lambda clinic: clinic.update(due_at={"N": "1"}))


def test_in_its_shard_again(clinic: Clinic) -> None:
    made_due(clinic, lambda clinic: clinic.update(due_shard={"S": "00"}))


def test_settled_meanwhile(clinic: Clinic) -> None:
    assert "due_at" not in made_due(clinic, lambda clinic: clinic.settle())


def test_owned_by_another(clinic: Clinic) -> None:
    made_due(clinic, lambda clinic: clinic.update(owner={"S": R1}))
