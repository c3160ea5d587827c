"""A running saga is cancelled before its pivot: one write, one decision, and a recovery that the rows direct."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import partial
from typing import Any

import boto3
import pytest

from saga_runtime.idempotency.record import Met, what_was_met
from saga_runtime.protocol import OUTLIVE_EXPRESS_SECONDS, Direction, LogAttribute, RecordStatus, Side, StepStatus
from saga_runtime.recovery.cancel import FAILURE
from saga_runtime.saga_log.rows import done_put, log_key
from saga_runtime.shared import aws
from saga_runtime.shared.decisions import Decision
from tests.unit.support import settling
from tests.unit.support.executions import ExecutionStatus
from tests.unit.support.operated_saga import WHY, OperatedSaga, operated_saga_in
from tests.unit.support.reconciled import Watch
from tests.unit.support.samples import MACHINE_ARN, NOW_MS, REQUEST_ID, SAGA_ID, reservation_of
from tests.unit.support.wire import Action, Fault, Killed, Moment, before
from tests.unit.support.world import World

R1 = f"{SAGA_ID}-r1"
CANCEL = ("cancel",)
WRITES = ("UpdateItem", "StopExecution", "StartExecution")


@pytest.fixture
def operated(world: World, monkeypatch: pytest.MonkeyPatch, boto3_session: boto3.Session) -> Iterator[OperatedSaga]:
    """A running saga and its operator."""
    with operated_saga_in(world, monkeypatch, boto3_session) as made:
        yield made


def decisions(operated: OperatedSaga) -> list[tuple[str, str]]:
    (item,) = operated.world.items("requests")
    return [(decision.what, decision.why) for decision in Decision.all_of(item)]


def is_cancelled(operated: OperatedSaga) -> None:
    """The saga is stopped, a recovery owns it, and one decision is kept."""
    assert operated.world.executions.by_name[SAGA_ID].status is ExecutionStatus.ABORTED
    assert set(operated.world.executions.by_name) == {SAGA_ID, R1}
    assert operated.record.owner == R1
    assert operated.record.direction is None
    assert json.loads(operated.record.failure or "") == FAILURE
    assert decisions(operated) == [("cancelled", WHY)]


def directed(operated: OperatedSaga, direction: Direction) -> None:
    update: Any = settling.direct(request_id=REQUEST_ID, execution=SAGA_ID, direction=direction, now_ms=operated.now)
    aws.dynamodb().update_item(**update)


def settled(operated: OperatedSaga) -> None:
    update: Any = settling.settle(
        request_id=REQUEST_ID, execution=SAGA_ID, status=RecordStatus.COMPLETED, now_ms=operated.now
    )
    aws.dynamodb().update_item(**update)


def passed(operated: OperatedSaga) -> None:
    """The pivot is applied, and no direction is written."""
    done: Any = done_put(
        table="log",
        saga_id=SAGA_ID,
        step="Commit",
        side=Side.PIVOT,
        attempt="a",
        now_ms=operated.now,
        keep_days=1,
        output="{}",
    )
    aws.dynamodb().put_item(**done["Put"])


def died(operated: OperatedSaga) -> None:
    operated.world.executions.end(SAGA_ID, ExecutionStatus.FAILED)


def test_running_saga_is_stopped_and_recovered(operated: OperatedSaga) -> None:
    status, told = operated.run(*CANCEL)

    assert (status, told) == (
        0,
        f"saga {SAGA_ID} is cancelled; a recovery compensates it, or goes forward if its pivot is applied: {R1}\n",
    )
    is_cancelled(operated)


def test_repeated_cancellation_changes_nothing(operated: OperatedSaga) -> None:
    operated.run(*CANCEL)
    before = operated.state

    status, told = operated.run(*CANCEL)

    assert (status, operated.state) == (0, before)
    words = "its execution is being stopped, or a recovery runs; cdk-sagas inspect shows whether this was in time"
    assert told == f"saga {SAGA_ID} was cancelled; {words}\n"


def test_repeated_cancellation_starts_the_recovery_that_was_not_started(operated: OperatedSaga) -> None:
    """The command died between the takeover and the start; nothing reconciles the saga."""
    operated.world.wire.plan(Fault(operation="StartExecution", action=Action.KILL, times=1))
    with contextlib.suppress(Killed):
        operated.run(*CANCEL)
    assert R1 not in operated.world.executions.by_name

    status, told = operated.run(*CANCEL)

    assert (status, f"was cancelled; its owner had not been started; a recovery settles it: {R1}" in told) == (0, True)
    is_cancelled(operated)


def ended(operated: OperatedSaga, direction: Direction | None, status: RecordStatus | None) -> None:
    update: Any
    if direction is not None:
        update = settling.direct(request_id=REQUEST_ID, execution=R1, direction=direction, now_ms=operated.now)
        aws.dynamodb().update_item(**update)
    if status is not None:
        update = settling.settle(request_id=REQUEST_ID, execution=R1, status=status, now_ms=operated.now)
        aws.dynamodb().update_item(**update)


@pytest.mark.parametrize(
    ("direction", "status", "expected"),
    [
        (
            Direction.COMPENSATE,
            None,
            (0, "was cancelled; its execution is being stopped, or a recovery runs; cdk-sagas inspect shows"),
        ),
        (Direction.COMPENSATE, RecordStatus.FAILED, (0, "was cancelled; it has settled as FAILED, without remaining")),
        (Direction.FORWARD, None, (1, "was cancelled too late, behind its pivot; what it did is undone by")),
        (Direction.FORWARD, RecordStatus.COMPLETED, (1, "was cancelled too late, and is settled as COMPLETED; what")),
    ],
)
def test_repeated_cancellation_states_how_the_saga_continued(
    operated: OperatedSaga, direction: Direction, status: RecordStatus | None, expected: tuple[int, str]
) -> None:
    operated.run(*CANCEL)
    ended(operated, direction, status)
    before = operated.state

    exit_status, told = operated.run(*CANCEL)

    assert (exit_status, expected[1] in told) == (expected[0], True), told
    assert operated.state == before


def never_started(operated: OperatedSaga, *, express: bool = False) -> None:
    operated.world.executions.forget(SAGA_ID)
    if express:
        (item,) = operated.world.items("requests")
        start_input = {"S": replace(reservation_of(), express=True).start_input}
        aws.dynamodb().put_item(TableName="requests", Item={**item, "input": start_input})


def is_recovered_without_a_start(operated: OperatedSaga) -> None:
    """A recovery owns it, and is the only execution that it ever had."""
    assert set(operated.world.executions.by_name) == {R1}
    assert operated.record.owner == R1
    assert json.loads(operated.record.failure or "") == FAILURE


def test_saga_that_was_never_started_is_not_started(operated: OperatedSaga) -> None:
    never_started(operated)

    status, told = operated.run(*CANCEL)

    assert status == 0
    assert f"its owner had not been started; a recovery settles it: {R1}" in told
    is_recovered_without_a_start(operated)


@pytest.mark.parametrize("operation", ["DescribeExecution", "DescribeStateMachine", *WRITES])
@pytest.mark.parametrize("moment", [Moment.BEFORE, Moment.AFTER])
def test_no_duplicate_starts_a_cancelled_saga(operated: OperatedSaga, operation: str, moment: Moment) -> None:
    """The command has died at any moment after its mark."""
    never_started(operated)
    operated.world.wire.plan(Fault(operation=operation, action=Action.KILL, moment=moment, times=1))
    with contextlib.suppress(Killed):
        operated.run(*CANCEL)

    if operated.record.failure is None:
        return
    for later in (1, 60_000, 600_000):
        assert what_was_met(operated.record, reservation_of(now_ms=operated.now + later)) is Met.RUNNING
    assert what_was_met(operated.record, reservation_of()) is Met.RUNNING
    operated.run("recover")
    is_recovered_without_a_start(operated)


def test_cancelled_saga_is_recovered_when_no_express_execution_can_run(operated: OperatedSaga) -> None:
    never_started(operated, express=True)
    ends = NOW_MS + 1_000 * OUTLIVE_EXPRESS_SECONDS

    operated.world.clock.ms = ends - 2
    assert "an Express execution of it may run; a recovery follows" in operated.run(*CANCEL)[1]
    assert "an Express execution of it may run" in operated.run("recover")[1]
    assert operated.record.owner == SAGA_ID

    operated.world.clock.ms = ends
    operated.run("recover")
    is_recovered_without_a_start(operated)


def test_job_without_an_outcome_is_named(operated: OperatedSaga) -> None:
    a = LogAttribute
    row: Any = {**log_key(SAGA_ID, "Print"), a.SIDE: {"S": Side.BEFORE}, a.STATUS: {"S": StepStatus.INTENT}}
    aws.dynamodb().put_item(TableName="log", Item=row)
    aws.dynamodb().put_item(TableName="log", Item={**row, a.STEP: {"S": "Ship"}, a.ACCEPTED_AT: {"N": "1"}})

    status, told = operated.run(*CANCEL)

    assert (status, told.splitlines()[1].split(",")[0]) == (0, "Ship: accepted by the provider")
    assert told.endswith("compensated when the provider reports it, or parked until then\n")
    is_cancelled(operated)


def test_dead_saga_is_cancelled_and_recovered(operated: OperatedSaga) -> None:
    died(operated)

    assert operated.run(*CANCEL)[0] == 0

    assert operated.record.owner == R1
    assert decisions(operated) == [("cancelled", WHY)]


REFUSED: dict[str, tuple[Callable[[OperatedSaga], None], str]] = {
    "settled": (settled, "is settled as COMPLETED"),
    "forward": (partial(directed, direction=Direction.FORWARD), "only goes forward"),
    "compensates": (partial(directed, direction=Direction.COMPENSATE), "compensates already"),
    "parked": (partial(OperatedSaga.park, direction=None), "is parked"),
}


def test_saga_behind_its_pivot_is_not_interrupted(operated: OperatedSaga) -> None:
    passed(operated)

    status, told = operated.run(*CANCEL)

    assert (status, "only goes forward, behind its pivot" in told) == (1, True)
    assert decisions(operated) == []


def test_pivot_applied_meanwhile_is_left_to_the_recovery(operated: OperatedSaga) -> None:
    before(operated.world.wire, "UpdateItem", lambda: passed(operated))

    assert operated.run(*CANCEL)[0] == 0

    is_cancelled(operated)


@pytest.mark.parametrize("found", REFUSED)
@pytest.mark.parametrize("late", [False, True], ids=["before it is read", "after it was read"])
def test_saga_that_cannot_be_cancelled_is_left_alone(operated: OperatedSaga, found: str, late: bool) -> None:
    prepare, reason = REFUSED[found]
    if late:
        before(operated.world.wire, "UpdateItem", lambda: prepare(operated))
    else:
        prepare(operated)

    status, told = operated.run(*CANCEL)

    assert (status, told.count("\n")) == (1, 1)
    assert reason in told
    assert decisions(operated) == []
    assert set(operated.world.executions.by_name) == {SAGA_ID}
    assert operated.world.executions.by_name[SAGA_ID].status is not ExecutionStatus.ABORTED


def test_key_of_another_request_is_left_alone(operated: OperatedSaga) -> None:
    def reused() -> None:
        (item,) = operated.world.items("requests")
        other: Any = {"S": SAGA_ID[:-1] + "z"}
        aws.dynamodb().put_item(TableName="requests", Item={**item, "saga_id": other, "owner": other})

    before(operated.world.wire, "UpdateItem", reused)

    status, told = operated.run(*CANCEL)

    assert status == 1
    assert "is another request's by now" in told
    assert decisions(operated) == []


def test_two_operators_record_one_decision(operated: OperatedSaga) -> None:
    before(operated.world.wire, "UpdateItem", lambda: operated.run(*CANCEL, "--reason", "the other one's"))

    status, told = operated.run(*CANCEL)

    # The other one has come to the end: a recovery has the saga.
    assert (status, "was cancelled; " in told) == (0, True)
    assert decisions(operated) == [("cancelled", "the other one's")]
    assert set(operated.world.executions.by_name) == {SAGA_ID, R1}


@pytest.mark.parametrize("operation", WRITES)
@pytest.mark.parametrize("moment", [Moment.BEFORE, Moment.AFTER])
def test_command_that_died_is_repeated(operated: OperatedSaga, operation: str, moment: Moment) -> None:
    operated.world.wire.plan(Fault(operation=operation, action=Action.KILL, moment=moment, times=1))
    with contextlib.suppress(Killed):
        operated.run(*CANCEL)

    operated.run(*CANCEL)
    operated.run("recover")

    is_cancelled(operated)


@pytest.mark.parametrize("operation", WRITES)
def test_lost_answer_changes_nothing(operated: OperatedSaga, operation: str) -> None:
    operated.world.wire.plan(Fault(operation=operation, action=Action.DROP, moment=Moment.AFTER, times=1))

    operated.run(*CANCEL)
    operated.run("recover")

    is_cancelled(operated)


def test_right_to_stop_is_missing(operated: OperatedSaga) -> None:
    operated.hidden.add(MACHINE_ARN)

    status, told = operated.run(*CANCEL)

    assert (status, told.count("\n")) == (1, 1)
    assert "AccessDenied" in told
    assert operated.record.cancelled


@pytest.mark.parametrize("reason", ["", "  ", "WHY", "x" * 1_001])
def test_cancellation_without_a_reason_is_refused(operated: OperatedSaga, reason: str) -> None:
    state = operated.state

    assert operated.run(*CANCEL, "--reason", reason)[0] == 1

    assert operated.state == state


def test_inspect_shows_how_to_continue_a_cancellation(operated: OperatedSaga) -> None:
    operated.world.wire.plan(Fault(operation="StopExecution", action=Action.KILL, times=1))
    with contextlib.suppress(Killed):
        operated.run(*CANCEL)

    told = operated.run("inspect")[1]

    assert "An operator cancelled it, and its execution still runs" in told
    assert f"cdk-sagas cancel {SAGA_ID} --reason WHY" in told
    operated.run(*CANCEL)
    is_cancelled(operated)


# The reconciler, when the command has died.


@pytest.fixture
def marked(watch: Watch) -> Watch:
    """A cancelled saga whose command has died; its execution runs."""
    watch.operated.world.wire.plan(Fault(operation="DescribeExecution", action=Action.KILL, times=1))
    with contextlib.suppress(Killed):
        watch.operated.run(*CANCEL)
    assert watch.record.cancelled
    assert watch.record.due_at == watch.world.clock.ms
    return watch


def test_reconciler_stops_and_recovers(marked: Watch) -> None:
    marked.sweep()
    assert marked.world.executions.by_name[SAGA_ID].status is ExecutionStatus.ABORTED
    assert marked.record.due_at == marked.world.clock.ms + 60_000

    assert marked.ended(SAGA_ID) == []

    is_cancelled(marked.operated)


def test_reconciler_recovers_what_was_never_started(marked: Watch) -> None:
    never_started(marked.operated)

    marked.sweep()

    is_recovered_without_a_start(marked.operated)


def test_reconciler_waits_for_the_end_of_express(watch: Watch) -> None:
    never_started(watch.operated, express=True)
    watch.operated.run(*CANCEL)
    ends = NOW_MS + 1_000 * OUTLIVE_EXPRESS_SECONDS

    watch.sweep()
    assert (watch.record.owner, watch.record.due_at) == (SAGA_ID, ends)
    assert watch.ended(SAGA_ID) == []
    assert watch.executions == {}

    watch.world.clock.ms = ends
    watch.sweep()
    is_recovered_without_a_start(watch.operated)


def test_reconciler_stops_nothing_else(watch: Watch) -> None:
    watch.pass_time()

    calls = watch.world.calls_of(watch.sweep)

    assert "StopExecution" not in calls


@pytest.mark.parametrize("failure", ["[]", "7", "{}", '"SagaCancelled"', '{"error": "StepFailed"}'])
def test_another_failure_is_not_a_cancellation(watch: Watch, failure: str) -> None:
    watch.update(failure={"S": failure})
    watch.pass_time()

    assert not watch.record.cancelled
    assert "StopExecution" not in watch.world.calls_of(watch.sweep)


def test_unreadable_failure_is_reported(watch: Watch) -> None:
    watch.update(failure={"S": "not JSON"})
    watch.pass_time()

    assert watch.sweep()["failed"] == 1
    assert watch.world.executions.by_name[SAGA_ID].status is ExecutionStatus.RUNNING
