"""Compensation of late effects: found in the log, started under a derived name."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Iterator
from typing import Any

import boto3
import pytest
from botocore.exceptions import ClientError

from saga_runtime.protocol import LogAttribute, RecordAttribute, RecordStatus, Side, StartField, StepStatus
from saga_runtime.recovery.late_effects import (
    MOST_TRIES,
    LateFinding,
    LateUndo,
    give_up_update,
    late_name,
    undo_again,
    undo_late,
)
from saga_runtime.saga_log.rows import log_key
from saga_runtime.shared import aws
from tests.unit.support.executions import ExecutionStatus
from tests.unit.support.operated_saga import OperatedSaga, operated_saga_in
from tests.unit.support.samples import DAY_MS, NOW_MS, RECOVERY_MACHINE_ARN, REQUEST_ID, SAGA_ID
from tests.unit.support.wire import Action, Fault, Killed, Moment
from tests.unit.support.world import World

L1, L2 = late_name(SAGA_ID, 1), late_name(SAGA_ID, 2)


@pytest.fixture
def operated(world: World, monkeypatch: pytest.MonkeyPatch, boto3_session: boto3.Session) -> Iterator[OperatedSaga]:
    with operated_saga_in(world, monkeypatch, boto3_session, window=86_400) as at:
        yield at


def has_row(status: StepStatus, row: str = "Pick", output: str = "{}") -> None:
    """Write a log row; its attempt ended long ago."""
    numbers = {name: {"N": "1"} for name in (LogAttribute.UPDATED_AT, LogAttribute.FIRST_ATTEMPT_AT)}
    text = {
        LogAttribute.STATUS: status,
        LogAttribute.SIDE: Side.BEFORE,
        LogAttribute.OUTPUT: output,
    }
    item: Any = {
        **log_key(SAGA_ID, row),
        **{name: {"S": value} for name, value in text.items()},
        **numbers,
        LogAttribute.ATTEMPT_ID: {"S": "a"},
        LogAttribute.DEADLINE: {"N": "1"},
    }
    aws.dynamodb().put_item(TableName="log", Item=item)


def settle() -> None:
    a = RecordAttribute
    aws.dynamodb().update_item(
        TableName="requests",
        Key={a.ID: {"S": REQUEST_ID}},
        UpdateExpression="SET #status = :failed",
        ExpressionAttributeNames={"#status": a.STATUS},
        ExpressionAttributeValues={":failed": {"S": RecordStatus.FAILED}},
    )


def look(operated: OperatedSaga) -> LateUndo:
    return undo_late(operated.recoverer, operated.record, "log", NOW_MS)


@pytest.mark.parametrize("status", [s for s in StepStatus if s is not StepStatus.APPLIED_LATE])
def test_a_running_saga_without_late_effects_is_left_alone(operated: OperatedSaga, status: StepStatus) -> None:
    has_row(status)

    assert look(operated) == LateUndo(finding=LateFinding.NOTHING)
    assert set(operated.world.executions.by_name) == {SAGA_ID}


@pytest.mark.parametrize("settled", [False, True])
def test_a_late_effect_is_compensated_by_a_dedicated_execution(operated: OperatedSaga, settled: bool) -> None:
    has_row(StepStatus.APPLIED_LATE)
    if settled:
        settle()
    before = operated.record

    assert look(operated) == LateUndo(finding=LateFinding.STARTED, rows=("Pick",), execution=L1)

    started = operated.world.executions.by_name[L1]
    sent = json.loads(started.input)
    assert started.machine == before.recovery_machine_arn
    assert sent == json.loads(before.input) | {StartField.LATE: True}
    assert operated.record == before


def test_looking_twice_starts_one_execution(operated: OperatedSaga) -> None:
    has_row(StepStatus.APPLIED_LATE)
    look(operated)

    assert look(operated) == LateUndo(finding=LateFinding.RUNNING, rows=("Pick",), execution=L1)
    assert set(operated.world.executions.by_name) == {SAGA_ID, L1}


def test_one_that_is_about_to_be_redriven_is_not_followed(
    operated: OperatedSaga, monkeypatch: pytest.MonkeyPatch
) -> None:
    has_row(StepStatus.APPLIED_LATE)
    look(operated)
    monkeypatch.setattr("saga_runtime.recovery.late_effects._status", lambda *_: "PENDING_REDRIVE")

    assert look(operated) == LateUndo(finding=LateFinding.RUNNING, rows=("Pick",), execution=L1)


def test_one_that_died_is_followed_by_the_next(operated: OperatedSaga) -> None:
    has_row(StepStatus.APPLIED_LATE)
    look(operated)
    operated.world.executions.end(L1, ExecutionStatus.FAILED)

    assert look(operated) == LateUndo(finding=LateFinding.STARTED, rows=("Pick",), execution=L2)


def test_an_interrupted_compensation_of_a_settled_saga_is_recovered(operated: OperatedSaga) -> None:
    has_row(StepStatus.COMPENSATING)
    settle()

    assert look(operated).finding is LateFinding.STARTED


def test_a_compensated_late_effect_is_not_checked_again(operated: OperatedSaga) -> None:
    has_row(StepStatus.COMPENSATED)
    settle()

    assert look(operated) == LateUndo(finding=LateFinding.NOTHING)


def test_many_that_died_are_an_operators_business(operated: OperatedSaga) -> None:
    has_row(StepStatus.APPLIED_LATE)
    for number in range(1, MOST_TRIES + 1):
        assert look(operated).execution == late_name(SAGA_ID, number)
        operated.world.executions.end(late_name(SAGA_ID, number), ExecutionStatus.FAILED)

    assert look(operated) == LateUndo(finding=LateFinding.EXHAUSTED, rows=("Pick",), tried=MOST_TRIES)


# Exhausted attempts.

NEXT = late_name(SAGA_ID, MOST_TRIES + 1)


def exhausted(operated: OperatedSaga) -> None:
    """Let as many executions die as are allowed."""
    has_row(StepStatus.APPLIED_LATE)
    for number in range(1, MOST_TRIES + 1):
        look(operated)
        operated.world.executions.end(late_name(SAGA_ID, number), ExecutionStatus.FAILED)


def again(operated: OperatedSaga) -> LateUndo:
    return undo_again(operated.recoverer, operated.record, "log", NOW_MS)


def test_an_operator_starts_the_next_one_once_the_cause_is_gone(operated: OperatedSaga) -> None:
    exhausted(operated)

    assert again(operated) == LateUndo(finding=LateFinding.STARTED, rows=("Pick",), execution=NEXT)

    assert operated.world.executions.by_name[NEXT].machine == RECOVERY_MACHINE_ARN
    assert look(operated) == LateUndo(finding=LateFinding.RUNNING, rows=("Pick",), execution=NEXT)


def test_exhausted_compensations_are_not_described_again(operated: OperatedSaga) -> None:
    exhausted(operated)
    again(operated)

    assert operated.world.calls_of(lambda: look(operated)).count("DescribeExecution") == 1


def test_after_another_try_as_many_more_are_made(operated: OperatedSaga) -> None:
    exhausted(operated)
    again(operated)
    for number in range(MOST_TRIES + 1, 2 * MOST_TRIES + 1):
        assert look(operated).execution == late_name(SAGA_ID, number)
        operated.world.executions.end(late_name(SAGA_ID, number), ExecutionStatus.FAILED)

    assert look(operated) == LateUndo(finding=LateFinding.EXHAUSTED, rows=("Pick",), tried=2 * MOST_TRIES)
    assert again(operated).execution == late_name(SAGA_ID, 2 * MOST_TRIES + 1)


@pytest.mark.parametrize("died", [False, True])
def test_another_try_starts_nothing_where_it_is_being_compensated(operated: OperatedSaga, died: bool) -> None:
    has_row(StepStatus.APPLIED_LATE)
    look(operated)
    if died:
        operated.world.executions.end(L1, ExecutionStatus.FAILED)

    found = again(operated)

    assert found.execution == (L2 if died else L1)
    assert operated.record.late_tried is None


@pytest.mark.exhaustive
@pytest.mark.parametrize(
    ("action", "moment"),
    [(Action.KILL, Moment.BEFORE), (Action.KILL, Moment.AFTER), (Action.DROP, Moment.AFTER)],
)
@pytest.mark.parametrize("operation", ["Query", "UpdateItem", "StartExecution"])
def test_another_attempt_that_dies_at_any_call_is_finished_by_a_retry(
    operated: OperatedSaga, operation: str, action: Action, moment: Moment
) -> None:
    exhausted(operated)
    operated.world.wire.plan(Fault(operation=operation, action=action, moment=moment, times=1))
    with contextlib.suppress(Killed):
        again(operated)
    operated.world.wire.forget()

    again(operated)

    assert NEXT in operated.world.executions.by_name
    assert late_name(SAGA_ID, MOST_TRIES + 2) not in operated.world.executions.by_name


def test_a_further_attempt_that_died_before_its_start_stays_exhausted(operated: OperatedSaga) -> None:
    exhausted(operated)
    operated.world.wire.plan(Fault(operation="StartExecution", action=Action.KILL, moment=Moment.BEFORE, times=1))
    with pytest.raises(Killed):
        again(operated)

    assert look(operated) == LateUndo(finding=LateFinding.EXHAUSTED, rows=("Pick",), tried=MOST_TRIES)
    assert NEXT not in operated.world.executions.by_name


@pytest.mark.parametrize("changes", ["another saga", "a later try"])
def test_a_concurrent_note_is_not_overwritten(operated: OperatedSaga, changes: str) -> None:
    update: Any = give_up_update(operated.record, MOST_TRIES, at_ms=1)
    aws.dynamodb().update_item(TableName="requests", **update)
    assert (operated.record.late_tried, operated.record.late_at) == (MOST_TRIES, 1)
    later: Any = give_up_update(operated.record, MOST_TRIES + 1, at_ms=None)
    if changes == "a later try":
        aws.dynamodb().update_item(TableName="requests", **later)
        assert (operated.record.late_tried, operated.record.late_at) == (MOST_TRIES + 1, None)
    else:
        update["ExpressionAttributeValues"][":saga_id"] = {"S": "another"}

    with pytest.raises(ClientError, match="ConditionalCheckFailed"):
        aws.dynamodb().update_item(TableName="requests", **update)


def remove_request() -> None:
    """Make a tombstone of the record, as a reconciler does."""
    settle()
    a = RecordAttribute
    aws.dynamodb().update_item(
        TableName="requests",
        Key={a.ID: {"S": REQUEST_ID}},
        UpdateExpression="REMOVE #input, #response",
        ExpressionAttributeNames={"#input": a.INPUT, "#response": a.RESPONSE},
    )


def test_late_effect_of_a_tombstone_is_an_operators_business(operated: OperatedSaga) -> None:
    has_row(StepStatus.APPLIED_LATE)
    remove_request()

    assert look(operated) == LateUndo(finding=LateFinding.EXHAUSTED, rows=("Pick",))
    assert set(operated.world.executions.by_name) == {SAGA_ID}


def test_late_compensation_that_outlives_the_request_is_running(operated: OperatedSaga) -> None:
    has_row(StepStatus.APPLIED_LATE)
    look(operated)
    remove_request()

    assert look(operated) == LateUndo(finding=LateFinding.RUNNING, rows=("Pick",), execution=L1)
    operated.world.executions.end(L1, ExecutionStatus.FAILED)
    assert look(operated) == LateUndo(finding=LateFinding.EXHAUSTED, rows=("Pick",), tried=1)
    assert again(operated) == LateUndo(finding=LateFinding.EXHAUSTED, rows=("Pick",), tried=1)
    assert set(operated.world.executions.by_name) == {SAGA_ID, L1}


def late_one_after_the_other(operated: OperatedSaga, jobs: int) -> list[str | None]:
    """Jobs take effect when the one before is undone: whom they are undone by."""
    found = []
    for number in range(1, jobs + 1):
        has_row(StepStatus.APPLIED_LATE, f"Pick[{number}]")
        found.append(look(operated).execution)
        has_row(StepStatus.COMPENSATED, f"Pick[{number}]")
        operated.world.executions.end(late_name(SAGA_ID, number), ExecutionStatus.SUCCEEDED)
    return found


def test_each_of_several_late_effects_is_compensated(operated: OperatedSaga) -> None:
    jobs = 2 * MOST_TRIES + 1

    assert late_one_after_the_other(operated, jobs) == [late_name(SAGA_ID, number) for number in range(1, jobs + 1)]


def test_only_those_that_died_count(operated: OperatedSaga) -> None:
    late_one_after_the_other(operated, 3)
    has_row(StepStatus.APPLIED_LATE)
    for number in range(4, MOST_TRIES + 4):
        assert look(operated).execution == late_name(SAGA_ID, number)
        operated.world.executions.end(late_name(SAGA_ID, number), ExecutionStatus.FAILED)

    assert look(operated) == LateUndo(finding=LateFinding.EXHAUSTED, rows=("Pick",), tried=MOST_TRIES + 3)


def test_other_compensations_do_not_raise_the_number_of_attempts(operated: OperatedSaga) -> None:
    for number in range(5):
        has_row(StepStatus.COMPENSATED, f"Other[{number}]")
    has_row(StepStatus.APPLIED_LATE)
    for number in range(1, MOST_TRIES + 1):
        assert look(operated).execution == late_name(SAGA_ID, number)
        operated.world.executions.end(late_name(SAGA_ID, number), ExecutionStatus.FAILED)

    assert look(operated).finding is LateFinding.EXHAUSTED


def test_executions_without_an_effect_are_not_started_forever(operated: OperatedSaga) -> None:
    has_row(StepStatus.APPLIED_LATE)
    has_row(StepStatus.COMPENSATED, "Other")
    for number in range(1, MOST_TRIES + 2):
        assert look(operated).execution == late_name(SAGA_ID, number)
        operated.world.executions.end(late_name(SAGA_ID, number), ExecutionStatus.SUCCEEDED)

    assert look(operated).finding is LateFinding.EXHAUSTED


def test_every_row_of_a_long_log_is_checked(operated: OperatedSaga) -> None:
    """A page is one megabyte."""
    for number in range(4):
        has_row(StepStatus.APPLIED_LATE, f"Pick[{number}]", output="x" * 390_000)

    assert look(operated).rows == tuple(f"Pick[{number}]" for number in range(4))


def has_job(operated: OperatedSaga) -> None:
    """Let the saga's definition have a step that is a job."""
    operated.saga["steps"].append({"name": "Pick", "side": "before", "external": True, "grace": 0, "jobs": True})


def test_the_command_retries_only_with_its_option(operated: OperatedSaga) -> None:
    exhausted(operated)
    settle()
    has_job(operated)

    status, said = operated.run("recover")
    assert (status, "once the cause is fixed, use --again" in said, NEXT in operated.world.executions.by_name) == (
        1,
        True,
        False,
    )
    status, said = operated.run("recover", "--again")
    assert (status, f"compensating it by {NEXT}" in said, NEXT in operated.world.executions.by_name) == (0, True, True)


def test_the_command_compensates_late_effects_of_a_settled_saga(operated: OperatedSaga) -> None:
    has_row(StepStatus.APPLIED_LATE)
    settle()
    has_job(operated)

    status, said = operated.run("recover")

    assert (status, said.splitlines()) == (
        0,
        [f"saga {SAGA_ID} is settled: nothing to do", f"Pick applied late: compensating it by {L1}"],
    )


def test_the_command_reports_that_a_tombstone_needs_an_operator(operated: OperatedSaga) -> None:
    has_row(StepStatus.APPLIED_LATE)
    remove_request()
    has_job(operated)

    status, said = operated.run("recover")

    assert (status, said.splitlines()) == (
        1,
        [
            f"saga {SAGA_ID} is settled: nothing to do",
            "Pick applied late: its request was removed, and it is not compensated: operator action required",
        ],
    )


def test_an_operator_records_that_a_tombstones_late_effect_is_compensated(operated: OperatedSaga) -> None:
    has_row(StepStatus.APPLIED_LATE)
    remove_request()
    has_job(operated)

    operated.resolves("Pick", "--compensation", "--applied")

    assert look(operated) == LateUndo(finding=LateFinding.NOTHING)


def test_what_was_done_about_a_late_effect_of_an_old_saga_is_recorded(operated: OperatedSaga) -> None:
    """Nothing is run for it, so it does not matter that other rows may have expired."""
    has_row(StepStatus.APPLIED_LATE, "Charge")
    operated.world.clock.ms += 401 * DAY_MS
    answer = ("Charge", "--compensation", "--applied")
    assert "for which its rows are kept" in operated.is_refused(*answer)
    settle()

    operated.resolves(*answer)

    assert look(operated) == LateUndo(finding=LateFinding.NOTHING)
    assert "is settled" in operated.is_refused("Debit", "--compensation", "--applied"), "without a row nothing is known"


def test_the_command_does_not_query_the_log_of_a_saga_without_jobs(operated: OperatedSaga) -> None:
    has_row(StepStatus.APPLIED_LATE)
    settle()

    assert operated.run("recover") == (0, f"saga {SAGA_ID} is settled: nothing to do\n")


def test_executions_are_numbered_from_one() -> None:
    with pytest.raises(ValueError, match="numbered from 1, got 0"):
        late_name(SAGA_ID, 0)
