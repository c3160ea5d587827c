"""Sweeps over interrupted sagas: found, started, taken over, left alone or parked."""

from __future__ import annotations

import json
from itertools import pairwise

import pytest

from saga_runtime.protocol import (
    Metric,
    RecordStatus,
)
from saga_runtime.recovery.decisions import (
    LONGEST_LOOK_MS,
    LOOK_MS,
    ParkedFor,
)
from saga_runtime.recovery.takeover import CERTAIN_AFTER_MS, recovery_name
from saga_runtime.shared import aws
from tests.unit.support.executions import ExecutionStatus
from tests.unit.support.reconciled import LIMIT, R1, A, Watch
from tests.unit.support.samples import DAY_MS, NOW_MS, REQUEST_ID, SAGA_ID
from tests.unit.support.wire import Action, Fault, Killed, before


def test_a_record_that_is_not_due_is_not_checked(watch: Watch) -> None:
    watch.dies()

    assert watch.sweep()["looked_at"] == 0
    assert set(watch.executions) == {SAGA_ID}


def test_a_running_saga_is_rescheduled_and_left_alone(watch: Watch) -> None:
    watch.pass_time()
    before = watch.item

    assert watch.sweep()["looked_at"] == 1

    due_at = watch.world.clock.ms + LOOK_MS
    assert watch.item == before | {A.DUE_AT: str(due_at)}
    assert (watch.sweep()["looked_at"], set(watch.executions)) == (0, {SAGA_ID})


def test_a_saga_that_was_never_started_is_started_with_its_stored_bytes(watch: Watch) -> None:
    sent = watch.executions[SAGA_ID]
    watch.world.executions.forget(SAGA_ID)
    watch.pass_time()
    before = watch.item

    assert watch.sweep()["started"] == 1

    assert (watch.executions, watch.item) == ({SAGA_ID: sent}, before)
    assert watch.counted(Metric.ORPHANS) == 1


def test_an_interrupted_saga_is_taken_over_by_one_recovery(watch: Watch) -> None:
    watch.dies()
    watch.pass_time()

    assert watch.sweep()["taken_over"] == 1

    assert watch.executions[R1] == watch.record.input
    assert (watch.record.owner, watch.record.recoveries) == (R1, 1)
    assert watch.record.due_at == watch.world.clock.ms + LOOK_MS
    assert (watch.counted(Metric.ORPHANS), watch.counted(Metric.RECOVERIES)) == (1, 1)
    assert watch.counted(Metric.UNSETTLED) == 0


def test_a_saga_that_its_owner_parks_meanwhile_is_not_taken_over(watch: Watch) -> None:
    watch.dies()
    watch.pass_time()
    before(watch.world.wire, "UpdateItem", watch.operated.park)

    assert watch.sweep()["taken_over"] == 0

    assert (watch.record.owner, watch.record.parked_by, set(watch.executions)) == (SAGA_ID, SAGA_ID, {SAGA_ID})


def test_a_recovery_that_was_not_started_is_started(watch: Watch) -> None:
    watch.dies()
    watch.world.wire.plan(Fault(operation="StartExecution", action=Action.KILL, times=1))
    watch.pass_time()
    with pytest.raises(Killed):
        watch.sweep()
    assert (watch.record.owner, set(watch.executions)) == (R1, {SAGA_ID})
    watch.pass_time()

    watch.sweep()

    assert watch.executions[R1] == watch.record.input


def test_dying_recoveries_follow_at_growing_intervals_until_parked(watch: Watch) -> None:
    watch.dies()
    began = []
    watch.pass_time()
    for number in range(1, LIMIT + 1):
        while recovery_name(SAGA_ID, number) not in watch.executions:
            watch.sweep()
            watch.pass_time(10_000)
        began.append(watch.world.clock.ms)
        watch.dies(recovery_name(SAGA_ID, number))
    while watch.record.parked_by is None:
        watch.sweep()
        watch.pass_time(10_000)

    assert [after - before for before, after in pairwise(began)] == [LOOK_MS, 2 * LOOK_MS]
    (told,) = watch.notified
    stuck = {"step": "", "error": "RecoveriesExhausted", "detail": told["parked_reason"]["detail"]}
    owner = recovery_name(SAGA_ID, LIMIT)
    assert told == {
        "saga_id": SAGA_ID,
        "request_id": REQUEST_ID,
        "execution": owner,
        "parked_reason": stuck,
        "failure": {},
    }
    assert (watch.record.parked_by, json.loads(watch.item[A.PARKED_REASON])) == (owner, stuck)
    assert int(watch.item[A.PARKED_AT]) > NOW_MS


def test_a_parked_saga_is_left_alone(watch: Watch) -> None:
    watch.operated.park()
    watch.pass_time(7_200_000)
    before = watch.item

    assert watch.sweep()["waiting"] == 1

    assert watch.item == before | {A.DUE_AT: str(watch.world.clock.ms + LONGEST_LOOK_MS)}
    assert (set(watch.executions), watch.notified) == ({SAGA_ID}, [])


def test_a_saga_with_an_expired_execution_is_parked_and_never_started(watch: Watch) -> None:
    watch.world.executions.forget(SAGA_ID)
    watch.pass_time(89 * DAY_MS)

    assert watch.sweep()["parked"] == 1

    assert (watch.executions, [told["parked_reason"]["error"] for told in watch.notified]) == (
        {},
        ["ExecutionNameExpired"],
    )
    assert watch.record.parked_by == SAGA_ID


def test_a_settled_saga_is_not_checked_again(watch: Watch) -> None:
    watch.settle(due=True)
    before = watch.item

    watch.sweep()

    assert watch.item == {name: value for name, value in before.items() if name not in (A.DUE_AT, A.DUE_SHARD)}
    assert watch.sweep()["looked_at"] == 0


def test_a_saga_with_a_succeeded_owner_is_parked_and_never_compensated(watch: Watch) -> None:
    watch.dies(status=ExecutionStatus.SUCCEEDED)
    watch.pass_time(CERTAIN_AFTER_MS + 2_000)

    assert watch.sweep()["parked"] == 1

    assert (watch.record.owner, watch.record.parked_by, set(watch.executions)) == (SAGA_ID, SAGA_ID, {SAGA_ID})
    assert [told["parked_reason"]["error"] for told in watch.notified] == [ParkedFor.OWNER_SUCCEEDED]
    assert (watch.counted(Metric.UNSETTLED), watch.counted(Metric.RECOVERIES)) == (1, 0)


def test_an_owner_that_succeeded_less_than_a_minute_ago_is_checked_again(watch: Watch) -> None:
    watch.dies(status=ExecutionStatus.SUCCEEDED)
    watch.pass_time()

    watch.sweep()

    assert (watch.record.parked_by, set(watch.executions)) == (None, {SAGA_ID})
    assert watch.record.due_at == watch.world.clock.ms + LOOK_MS


def test_a_settled_saga_with_a_restored_record_is_parked(watch: Watch) -> None:
    (reserved,) = watch.world.items("requests")
    watch.dies(status=ExecutionStatus.SUCCEEDED)
    watch.settle()
    aws.dynamodb().put_item(TableName="requests", Item=reserved)
    watch.pass_time(DAY_MS)

    watch.sweep()

    assert (watch.record.status, watch.record.parked_by) == (RecordStatus.IN_PROGRESS, SAGA_ID)
    assert set(watch.executions) == {SAGA_ID}


def test_a_callback_does_not_prevent_parking_after_the_owner_succeeded(watch: Watch) -> None:
    watch.dies(status=ExecutionStatus.SUCCEEDED)
    watch.update(late_outcome_at={"N": str(watch.world.clock.ms)})
    watch.pass_time(DAY_MS)

    watch.sweep()

    assert watch.record.parked_by == SAGA_ID


def test_a_saga_that_settles_during_the_check_raises_no_alarm(watch: Watch) -> None:
    watch.pass_time()

    def settles() -> None:
        watch.settle()
        watch.dies(status=ExecutionStatus.SUCCEEDED)

    before(watch.world.wire, "DescribeExecution", settles)
    watch.sweep()

    assert (set(watch.executions), watch.counted(Metric.UNSETTLED)) == ({SAGA_ID}, 0)
