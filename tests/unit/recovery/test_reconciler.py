"""Interrupted sagas: found, started, taken over, left alone or parked; by any component, any number of times.

The conditions that the histories at the end need:

* a record is rescheduled only if it was not made due again since it was read;
* a settled record is cleared only if it was not made due again;
* a saga is parked only if it is not parked, and if no unknown callback has decided a step;
* a saga is parked only if it is still in progress, and has the same owner;
* a row is kept for longer only if it exists, and its expiration is unchanged;
* the operators are notified before the record is parked;
* a recovery that died is followed by the next one when its record is due, and not before.
"""

from __future__ import annotations

import contextlib
import json
import os
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from importlib import import_module
from itertools import pairwise, product
from typing import Any

import boto3
import pytest
from botocore.exceptions import ClientError

from handlers import reconciler as entry
from saga_runtime.callbacks.saga_writes import LATE_DAYS
from saga_runtime.errors import ProtocolMismatch
from saga_runtime.idempotency.record import RequestRecord
from saga_runtime.protocol import (
    Env,
    HoldAttribute,
    LogAttribute,
    Metric,
    ReconciledField,
    RecordAttribute,
    RecordStatus,
    Side,
    StepStatus,
    TokenAttribute,
)
from saga_runtime.recovery import sweep as sweeping
from saga_runtime.recovery.decisions import (
    LONGEST_LOOK_MS,
    LONGEST_PAUSE_MS,
    LOOK_MS,
    Decision,
    Found,
    Need,
    ParkedFor,
    decide,
    keeps_ahead_days,
    kept_until,
    look_again_after,
    operators_entry,
    pause_after,
    saga_of_execution,
)
from saga_runtime.recovery.hold import HOLD_KEY, KEPT_MS
from saga_runtime.recovery.late_effects import MOST_TRIES, LateFinding, late_name, undo_again
from saga_runtime.recovery.reconciler import Served, served_of
from saga_runtime.recovery.sweep import ATTEMPTS, SPARE_MS, Threads
from saga_runtime.recovery.takeover import CERTAIN_AFTER_MS, Finding, recovery_name
from saga_runtime.saga_log.rows import log_key
from saga_runtime.shared import aws, telemetry
from tests.unit.support import settling
from tests.unit.support.checked_stack import create_hold_table
from tests.unit.support.client import remove_response
from tests.unit.support.enumerated import require_all_run
from tests.unit.support.executions import ExecutionStatus
from tests.unit.support.operated_saga import OperatedSaga, operated_saga_in
from tests.unit.support.samples import DAY_MS, DUE_AFTER_MS, NOW_MS, REQUEST_ID, SAGA_ID
from tests.unit.support.wire import Action, Fault, Killed, Moment, before, body_of
from tests.unit.support.world import Context, World

pytestmark = pytest.mark.exhaustive

CARETAKER = import_module("saga_runtime.recovery.saga_reconciler")
RECONCILIATION = import_module("saga_runtime.recovery.decisions")
RECOVERY = import_module("saga_runtime.recovery.takeover")
RECONCILER = import_module("saga_runtime.recovery.reconciler")
LIMIT = 3
SHARDS, SHARD = 2, "01"
"""Of either index: every query takes its time here."""
R1, R2 = recovery_name(SAGA_ID, 1), recovery_name(SAGA_ID, 2)
A = RecordAttribute


@dataclass
class Watch:
    """One saga, and its reconciler."""

    operated: OperatedSaga
    queue: str

    @property
    def world(self) -> World:
        """The runtime's surroundings."""
        return self.operated.world

    @property
    def record(self) -> RequestRecord:
        """The saga's record."""
        return self.operated.record

    @property
    def item(self) -> dict[str, Any]:
        """The saga's record, as it is stored."""
        (item,) = self.world.items("requests")
        return {name: next(iter(value.values())) for name, value in item.items()}

    @property
    def executions(self) -> dict[str, str]:
        """Executions, and what they were started with."""
        return {name: execution.input for name, execution in self.world.executions.by_name.items()}

    @property
    def notified(self) -> list[dict[str, Any]]:
        """Messages of the operator queue since the last read."""
        messages = aws.sqs().receive_message(QueueUrl=self.queue, MaxNumberOfMessages=10).get("Messages", [])
        for message in messages:
            aws.sqs().delete_message(QueueUrl=self.queue, ReceiptHandle=message["ReceiptHandle"])
        return [json.loads(message["Body"]) for message in messages]

    def counted(self, metric: Metric) -> int:
        """Sum of a metric."""
        return self.world.telemetry.counts[metric]

    def pass_time(self, ms: int = DUE_AFTER_MS) -> None:
        """Let time pass."""
        self.world.clock.ms += ms

    def sweep(self, remaining_ms: int = 60_000) -> dict[str, Any]:
        """Run one sweep over everything that is due."""
        return entry.handler({}, Context(remaining_ms=remaining_ms))

    def ended(self, *names: str) -> list[str]:
        """Deliver status events; ids of those that have to come again."""
        bodies = [json.dumps({"detail": {"name": name, "status": "TIMED_OUT"}}) for name in names]
        return deliver(*bodies)

    def dies(self, name: str = SAGA_ID, status: ExecutionStatus = ExecutionStatus.FAILED) -> None:
        """Let an execution end."""
        self.world.executions.end(name, status)

    def update(self, **values: dict[str, str]) -> None:
        """Change attributes of the record."""
        aws.dynamodb().update_item(
            TableName="requests",
            Key={A.ID: {"S": REQUEST_ID}},
            UpdateExpression="SET " + ", ".join(f"#{name} = :{name}" for name in values),
            ExpressionAttributeNames={f"#{name}": name for name in values},
            ExpressionAttributeValues={f":{name}": value for name, value in values.items()},
        )

    def settle(self, *, due: bool = False) -> None:
        """Settle as the owner; optionally make the record due again."""
        owner = self.record.owner
        update: Any = settling.settle(
            request_id=REQUEST_ID, execution=owner, status=RecordStatus.FAILED, now_ms=self.world.clock.ms
        )
        aws.dynamodb().update_item(**update)
        if due:
            self.update(due_at={"N": str(self.world.clock.ms)}, due_shard={"S": SHARD})


def deliver(*bodies: str) -> list[str]:
    """Hand a batch to the handler; ids of the messages that have to come again."""
    records = [{"messageId": f"m{number}", "body": body} for number, body in enumerate(bodies)]
    answer = entry.handler({"Records": records}, Context())
    return [failure["itemIdentifier"] for failure in answer["batchItemFailures"]]


@pytest.fixture
def watch(world: World, monkeypatch: pytest.MonkeyPatch, boto3_session: boto3.Session) -> Iterator[Watch]:
    """A saga whose execution runs, and whose record is due in a minute."""
    queue = str(aws.sqs().create_queue(QueueName="operators")["QueueUrl"])
    f = ReconciledField
    told: dict[ReconciledField, Any] = {
        f.MACHINE: "Transfers",
        f.REQUESTS: "requests",
        f.SHARDS: SHARDS,
        f.LOG: "log",
        f.DAYS: 400,
        f.OPERATORS: queue,
        f.TOKENS: {"tokens": ["Pick"]},
    }
    monkeypatch.setenv(Env.RECONCILED, json.dumps([dict(told)]))
    monkeypatch.setenv(Env.RECOVERIES_LIMIT, str(LIMIT))
    monkeypatch.setenv(Env.LONGEST_LOOK, "900")
    monkeypatch.setattr(RECONCILER, "TOKEN_DUE_SHARDS", SHARDS)
    monkeypatch.setattr(sweeping, "WORKERS", 1)
    with operated_saga_in(world, monkeypatch, boto3_session, window=86_400) as operated:
        watch = Watch(operated, queue)
        watch.update(due_shard={"S": SHARD})
        world.wire.forget()
        yield watch


# What is decided.


def record_of(watch: Watch, **fields: Any) -> Found:
    return Found(record=replace(watch.record, **fields))


NOTHING, LATER = Decision(need=Need.NOTHING), Need.LOOK_LATER
DECISIONS: list[tuple[Finding, dict[str, Any], bool, Decision]] = [
    (Finding.SETTLED, {}, True, Decision(need=Need.CLEAR)),
    (Finding.SETTLED, {}, False, NOTHING),
    (Finding.PARKED, {}, True, Decision(need=LATER, after_ms=LONGEST_LOOK_MS)),
    (Finding.PARKED, {}, False, NOTHING),
    (Finding.RUNNING, {}, True, Decision(need=LATER, after_ms=LOOK_MS)),
    (Finding.RUNNING, {}, False, NOTHING),
    (Finding.RUNNING, {"created_at": NOW_MS - DAY_MS}, True, Decision(need=LATER, after_ms=LONGEST_LOOK_MS)),
    (Finding.NOT_STARTED, {}, True, Decision(need=Need.START)),
    (Finding.NOT_STARTED, {}, False, Decision(need=Need.START)),
    (Finding.NOT_STARTED, {"recoveries": LIMIT}, True, Decision(need=Need.START)),
    (Finding.NAME_EXPIRED, {}, True, Decision(need=Need.PARK, reason=ParkedFor.NAME_EXPIRED)),
    (Finding.OWNER_UNKNOWN, {}, True, Decision(need=Need.PARK, reason=ParkedFor.OWNER_UNKNOWN)),
    (Finding.OWNER_SUCCEEDED, {}, True, Decision(need=Need.PARK, reason=ParkedFor.OWNER_SUCCEEDED)),
    (Finding.OWNER_SUCCEEDED, {}, False, Decision(need=Need.PARK, reason=ParkedFor.OWNER_SUCCEEDED)),
    (Finding.ROWS_EXPIRED, {}, True, Decision(need=Need.PARK, reason=ParkedFor.ROWS_EXPIRED)),
    (Finding.DEAD, {}, True, Decision(need=Need.TAKE_OVER, after_ms=LOOK_MS)),
    (Finding.DEAD, {}, False, Decision(need=Need.TAKE_OVER, after_ms=LOOK_MS)),
    (Finding.DEAD, {"recoveries": 2}, True, Decision(need=Need.TAKE_OVER, after_ms=4 * LOOK_MS)),
    (Finding.DEAD, {"recoveries": 2}, False, NOTHING),
    (Finding.DEAD, {"recoveries": LIMIT}, True, Decision(need=Need.PARK, reason=ParkedFor.RECOVERIES_EXHAUSTED)),
    (Finding.DEAD, {"recoveries": LIMIT}, False, NOTHING),
]


@pytest.mark.parametrize(("finding", "fields", "due", "decision"), DECISIONS)
def test_the_action_follows_from_the_finding(
    watch: Watch, finding: Finding, fields: dict[str, Any], due: bool, decision: Decision
) -> None:
    found = record_of(watch, due_at=NOW_MS if due else NOW_MS + 1, **fields)

    assert decide(found, finding, now_ms=NOW_MS, limit=LIMIT) == decision


def test_every_finding_is_decided() -> None:
    assert {finding for finding, *_ in DECISIONS} == set(Finding)


def test_a_saga_that_a_callback_woke_is_taken_over_once_more_than_the_limit(watch: Watch) -> None:
    found = replace(record_of(watch, due_at=NOW_MS, recoveries=LIMIT), answered=True)

    assert decide(found, Finding.DEAD, now_ms=NOW_MS, limit=LIMIT).need is Need.TAKE_OVER


def test_pauses_double_up_to_an_hour_and_looks_grow_with_age() -> None:
    assert [pause_after(number) for number in (1, 2, 3, 7, 100)] == [60_000, 120_000, 240_000, 3_600_000, 3_600_000]
    assert LONGEST_PAUSE_MS == 3_600_000
    assert [look_again_after(age) for age in (0, 1_200_000, DAY_MS)] == [LOOK_MS, 120_000, LONGEST_LOOK_MS]
    with pytest.raises(ValueError, match="numbered from 1, got 0"):
        pause_after(0)


@pytest.mark.parametrize(
    ("name", "saga_id"),
    [
        (SAGA_ID, SAGA_ID),
        (R1, SAGA_ID),
        (late_name(SAGA_ID, 2), SAGA_ID),
        (f"{SAGA_ID}-1-0123456789abcdef", SAGA_ID),
        ("by-hand", None),
        ("8f14e45f-ceea-467f-a8d4-1f2b3c4d5e6f", None),
        ("nodash", None),
        ("", None),
    ],
)
def test_an_executions_name_contains_its_saga_id(name: str, saga_id: str | None) -> None:
    assert saga_of_execution(name) == saga_id


# What is found by looking.


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

    assert (watch.record.owner, watch.record.parked, set(watch.executions)) == (SAGA_ID, SAGA_ID, {SAGA_ID})


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
    while watch.record.parked is None:
        watch.sweep()
        watch.pass_time(10_000)

    assert [after - before for before, after in pairwise(began)] == [LOOK_MS, 2 * LOOK_MS]
    (told,) = watch.notified
    stuck = {"step": "", "error": "RecoveriesExhausted", "detail": told["stuck"]["detail"]}
    owner = recovery_name(SAGA_ID, LIMIT)
    assert told == {
        "saga_id": SAGA_ID,
        "request_id": REQUEST_ID,
        "execution": owner,
        "stuck": stuck,
        "failure": {},
    }
    assert (watch.record.parked, json.loads(watch.item[A.STUCK])) == (owner, stuck)
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

    assert (watch.executions, [told["stuck"]["error"] for told in watch.notified]) == ({}, ["ExecutionNameExpired"])
    assert watch.record.parked == SAGA_ID


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

    assert (watch.record.owner, watch.record.parked, set(watch.executions)) == (SAGA_ID, SAGA_ID, {SAGA_ID})
    assert [told["stuck"]["error"] for told in watch.notified] == [ParkedFor.OWNER_SUCCEEDED]
    assert (watch.counted(Metric.UNSETTLED), watch.counted(Metric.RECOVERIES)) == (1, 0)


def test_an_owner_that_succeeded_less_than_a_minute_ago_is_checked_again(watch: Watch) -> None:
    watch.dies(status=ExecutionStatus.SUCCEEDED)
    watch.pass_time()

    watch.sweep()

    assert (watch.record.parked, set(watch.executions)) == (None, {SAGA_ID})
    assert watch.record.due_at == watch.world.clock.ms + LOOK_MS


def test_a_settled_saga_with_a_restored_record_is_parked(watch: Watch) -> None:
    (reserved,) = watch.world.items("requests")
    watch.dies(status=ExecutionStatus.SUCCEEDED)
    watch.settle()
    aws.dynamodb().put_item(TableName="requests", Item=reserved)
    watch.pass_time(DAY_MS)

    watch.sweep()

    assert (watch.record.status, watch.record.parked) == (RecordStatus.IN_PROGRESS, SAGA_ID)
    assert set(watch.executions) == {SAGA_ID}


def test_a_callback_does_not_prevent_parking_after_the_owner_succeeded(watch: Watch) -> None:
    watch.dies(status=ExecutionStatus.SUCCEEDED)
    watch.update(answered_at={"N": str(watch.world.clock.ms)})
    watch.pass_time(DAY_MS)

    watch.sweep()

    assert watch.record.parked == SAGA_ID


def test_a_saga_that_settles_during_the_check_raises_no_alarm(watch: Watch) -> None:
    watch.pass_time()

    def settles() -> None:
        watch.settle()
        watch.dies(status=ExecutionStatus.SUCCEEDED)

    before(watch.world.wire, "DescribeExecution", settles)
    watch.sweep()

    assert (set(watch.executions), watch.counted(Metric.UNSETTLED)) == ({SAGA_ID}, 0)


# Late effects.


def late_job(watch: Watch, status: StepStatus = StepStatus.APPLIED_LATE, *, step: str = "Pick") -> None:
    """Record a late effect of a job of the saga."""
    t, now = TokenAttribute, str(watch.world.clock.ms)
    row: dict[str, Any] = {
        t.ID: {"S": f"{SAGA_ID}#{step}"},
        t.LOG_TABLE: {"S": "log"},
        t.APPLIED_LATE_AT: {"N": now},
        t.DUE_AT: {"N": now},
        t.DUE_SHARD: {"S": SHARD},
    }
    aws.dynamodb().put_item(TableName="tokens", Item=row)
    put_row(step, status)


def put_row(name: str, status: StepStatus, *, expiration: int = 1, output: str = "{}") -> None:
    a = LogAttribute
    item: Any = {
        **log_key(SAGA_ID, name),
        a.STATUS: {"S": status},
        a.SIDE: {"S": Side.BEFORE},
        a.UPDATED_AT: {"N": "1"},
        a.OUTPUT: {"S": output},
        a.EXPIRATION: {"N": str(expiration)},
    }
    aws.dynamodb().put_item(TableName="log", Item=item)


@pytest.mark.parametrize("settled", [False, True])
def test_late_effects_of_settled_sagas_are_compensated_too(watch: Watch, settled: bool) -> None:
    if settled:
        watch.settle()
    late_job(watch)
    before = watch.item

    assert (watch.sweep()["late"], watch.sweep()["late"]) == (1, 1)

    assert set(watch.executions) == {SAGA_ID, late_name(SAGA_ID, 1)}
    assert watch.item == before
    assert watch.counted(Metric.LATE_STANDS) == 0


def test_all_late_effects_of_a_saga_are_checked_together(watch: Watch) -> None:
    """Each of many items may be late: a sweep describes a saga's executions once, for the account's quota is small."""
    for item_key in "abc":
        late_job(watch, step=f"Pick[{item_key}]")

    for looked in (["DescribeExecution", "StartExecution"], ["DescribeExecution"]):
        calls = watch.world.calls_of(watch.sweep)
        assert [call for call in calls if call.endswith("Execution")] == looked
        assert calls.count("Query") == LOOKING + 2


def test_another_sagas_late_effects_are_checked_in_the_same_sweep(watch: Watch) -> None:
    late_job(watch)
    other = f"{'b' * 26}-1"
    aws.dynamodb().put_item(
        TableName="tokens",
        Item={
            TokenAttribute.ID: {"S": f"{other}#Pick"},
            TokenAttribute.LOG_TABLE: {"S": "log"},
            TokenAttribute.APPLIED_LATE_AT: {"N": "1"},
            TokenAttribute.DUE_AT: {"N": "1"},
            TokenAttribute.DUE_SHARD: {"S": SHARD},
        },
    )

    assert watch.sweep()["late"] == 2
    assert late_name(SAGA_ID, 1) in watch.executions
    assert watch.counted(Metric.LATE_STANDS) == 1


def test_an_effect_that_is_already_compensated_starts_nothing(watch: Watch) -> None:
    late_job(watch, StepStatus.UNDONE)

    assert watch.sweep()["late"] == 0
    assert set(watch.executions) == {SAGA_ID}


def test_no_execution_is_wasted_on_a_step_that_nothing_compensates(watch: Watch) -> None:
    late_job(watch, step="Announce")
    late_job(watch, StepStatus.UNDONE)

    assert watch.sweep()["late"] == 0
    assert set(watch.executions) == {SAGA_ID}


def test_a_late_effect_that_cannot_be_compensated_alarms(watch: Watch) -> None:
    late_job(watch)
    for number in range(1, 21):
        watch.sweep()
        watch.dies(late_name(SAGA_ID, number))

    watch.sweep()

    assert watch.counted(Metric.LATE_STANDS) == 1
    assert late_name(SAGA_ID, 21) not in watch.executions


def test_an_uncompensatable_late_effect_is_rescheduled_and_alarms(watch: Watch) -> None:
    test_a_late_effect_that_cannot_be_compensated_alarms(watch)

    assert "DescribeExecution" not in watch.world.calls_of(watch.sweep)
    assert watch.counted(Metric.LATE_STANDS) == 2

    watch.pass_time(LONGEST_LOOK_MS)
    watch.update(due_at={"N": str(watch.world.clock.ms + DAY_MS)})
    assert watch.world.calls_of(watch.sweep).count("DescribeExecution") == 1
    assert "DescribeExecution" not in watch.world.calls_of(watch.sweep)
    assert watch.counted(Metric.LATE_STANDS) == 4
    assert late_name(SAGA_ID, 21) not in watch.executions


def test_a_record_is_kept_until_its_late_effect_is_compensated(watch: Watch) -> None:
    watch.settle()
    late_job(watch)
    put_row("Pick", StepStatus.APPLIED_LATE, expiration=watch.world.clock.ms // 1_000 + 400 * 86_400)
    ends = set()
    for day in range(60):
        watch.sweep()
        ends.add(watch.record.response_expires_at)
        if day < MOST_TRIES:
            watch.dies(late_name(SAGA_ID, day + 1))
        with pytest.raises(ClientError, match="ConditionalCheckFailed"):
            remove_response(watch.world)
        watch.pass_time(DAY_MS)

    assert len(ends) < 60 / 3
    assert undo_again(watch.operated.recoverer, watch.record, "log").finding is LateFinding.STARTED

    put_row("Pick", StepStatus.UNDONE)
    watch.sweep()
    watch.pass_time(LATE_DAYS * DAY_MS)
    watch.sweep()
    remove_response(watch.world)
    assert watch.record.tombstone


def test_a_late_effect_of_a_saga_without_a_record_alarms(watch: Watch) -> None:
    late_job(watch)
    aws.dynamodb().delete_item(TableName="requests", Key={A.ID: {"S": REQUEST_ID}})

    assert watch.sweep()["late"] == 1
    assert watch.counted(Metric.LATE_STANDS) == 1


def test_a_late_effect_whose_key_was_reserved_again_alarms_only(
    watch: Watch,
) -> None:
    late_job(watch)
    other = f"{REQUEST_ID}-zzz"
    watch.update(saga_id={"S": other}, owner={"S": other})

    assert watch.sweep()["late"] == 1
    assert watch.counted(Metric.LATE_STANDS) == 1
    assert set(watch.executions) == {SAGA_ID}


# What must not be forgotten.


def test_expiring_rows_of_a_saga_in_flight_are_kept_for_longer(watch: Watch) -> None:
    day = 86_400
    now = NOW_MS // 1_000 + 380 * day
    put_row("Old", StepStatus.DONE, expiration=now + 190 * day)
    put_row("Young", StepStatus.DONE, expiration=now + 260 * day)
    watch.pass_time(380 * DAY_MS)

    watch.sweep()

    ends = {item[LogAttribute.STEP]["S"]: int(item[LogAttribute.EXPIRATION]["N"]) for item in watch.world.items("log")}
    assert ends == {"Old": now + 400 * day, "Young": now + 260 * day}


@pytest.mark.parametrize("days", [1, 2, 3, 7, 30, 400, 3_650])
def test_the_recorded_expiration_covers_every_later_row(days: int) -> None:
    now, ahead = NOW_MS // 1_000, keeps_ahead_days(days) * 86_400
    before, until = kept_until(NOW_MS, days)

    assert ahead >= 86_400
    assert now + ahead <= before <= now + days * 86_400, "a row that is written from now on expires later anyway"
    assert until >= before


def test_every_row_of_a_long_log_is_kept_for_longer(watch: Watch) -> None:
    """A megabyte is a page."""
    watch.pass_time(380 * DAY_MS)
    now = watch.world.clock.ms // 1_000
    names = [f"Large[{number}]" for number in range(4)]
    for name in names:
        put_row(name, StepStatus.DONE, expiration=now, output="x" * 390_000)

    watch.sweep()

    keys: list[Any] = [log_key(SAGA_ID, name) for name in names]
    rows = [aws.dynamodb().get_item(TableName="log", Key=key)["Item"] for key in keys]
    assert {row[LogAttribute.EXPIRATION]["N"] for row in rows} == {str(now + 400 * 86_400)}


def test_rows_of_a_young_saga_and_of_a_settled_one_are_left(watch: Watch) -> None:
    put_row("Old", StepStatus.DONE)
    watch.pass_time()
    calls = watch.world.calls_of(watch.sweep)
    watch.settle(due=True)
    watch.pass_time(380 * DAY_MS)
    watch.sweep()

    assert calls.count("Query") == LOOKING
    assert [item[LogAttribute.EXPIRATION]["N"] for item in watch.world.items("log")] == ["1"]


def the_log_is_kept_once_in_a_while(watch: Watch) -> None:
    watch.pass_time(380 * DAY_MS)
    now = watch.world.clock.ms // 1_000
    watch.sweep()
    assert watch.record.rows_until == now + 250 * 86_400

    watch.pass_time(LONGEST_LOOK_MS)
    assert watch.world.calls_of(watch.sweep).count("Query") == LOOKING
    assert watch.record.rows_until == now + 250 * 86_400


def test_the_rows_expiration_is_recorded_and_the_log_is_not_read_each_time(watch: Watch) -> None:
    the_log_is_kept_once_in_a_while(watch)


def kept_for_days(monkeypatch: pytest.MonkeyPatch, days: int) -> None:
    """Deploy another ``log_retention_days``."""
    (fields,) = json.loads(os.environ[Env.RECONCILED])
    monkeypatch.setenv(Env.RECONCILED, json.dumps([fields | {"days": days}]))


def ends_in_days(watch: Watch) -> list[int]:
    """When the rows end, in days from now."""
    now = watch.world.clock.ms // 1_000
    return [(int(item[LogAttribute.EXPIRATION]["N"]) - now) // 86_400 for item in watch.world.items("log")]


def days_pass(watch: Watch, days: int) -> None:
    """Let days pass, with a sweep on each; expired rows are deleted."""
    for _ in range(days):
        watch.pass_time(DAY_MS)
        watch.sweep()
        assert all(left > 0 for left in ends_in_days(watch)), "a row is gone, and its step could happen twice"


def more_days_are_deployed(watch: Watch, monkeypatch: pytest.MonkeyPatch, after: int) -> None:
    """Raise the retention while a saga is parked, as a message at synth requests."""
    kept_for_days(monkeypatch, 30)
    put_row("Old", StepStatus.DONE, expiration=NOW_MS // 1_000 + 30 * 86_400)
    watch.operated.park()
    days_pass(watch, after)
    kept_for_days(monkeypatch, 400)
    days_pass(watch, 60)


@pytest.mark.parametrize("after", [1, 14, 16, 29, 40])
def test_no_row_of_a_saga_in_flight_expires_after_a_longer_retention(
    watch: Watch, monkeypatch: pytest.MonkeyPatch, after: int
) -> None:
    more_days_are_deployed(watch, monkeypatch, after)


def test_the_record_contains_the_expiration_of_existing_rows(watch: Watch) -> None:
    end = NOW_MS // 1_000 + 300 * 86_400
    put_row("Old", StepStatus.DONE, expiration=end)
    put_row("Young", StepStatus.DONE, expiration=end + 86_400)
    watch.pass_time(20 * DAY_MS)
    watch.sweep()

    assert watch.record.rows_until == end


def test_the_record_contains_a_certain_expiration_despite_another_writer(watch: Watch) -> None:
    watch.pass_time(20 * DAY_MS)
    now = watch.world.clock.ms // 1_000
    put_row("Old", StepStatus.DONE, expiration=now + 86_400)
    by_somebody = now + 250 * 86_400
    before(watch.world.wire, "UpdateItem", lambda: put_row("Old", StepStatus.DONE, expiration=by_somebody), on=2)
    watch.sweep()

    assert watch.record.rows_until == by_somebody == kept_until(watch.world.clock.ms, 400)[0]


def test_a_row_that_is_kept_for_ever_is_left(watch: Watch) -> None:
    watch.pass_time(20 * DAY_MS)
    put_row("Old", StepStatus.DONE)
    key: Any = log_key(SAGA_ID, "Old")
    aws.dynamodb().update_item(TableName="log", Key=key, UpdateExpression="REMOVE expiration")

    assert (watch.sweep()["failed"], LogAttribute.EXPIRATION in watch.world.items("log")[0]) == (0, False)
    assert watch.record.rows_until is not None


def fewer_days_are_deployed(watch: Watch, monkeypatch: pytest.MonkeyPatch) -> None:
    put_row("Old", StepStatus.DONE, expiration=NOW_MS // 1_000 + 400 * 86_400)
    watch.operated.park()
    days_pass(watch, 20)
    assert watch.record.rows_until is not None
    kept_for_days(monkeypatch, 30)
    put_row("New", StepStatus.DONE, expiration=watch.world.clock.ms // 1_000 + 30 * 86_400)
    days_pass(watch, 60)


def test_no_row_of_a_saga_in_flight_expires_after_a_shorter_retention(
    watch: Watch, monkeypatch: pytest.MonkeyPatch
) -> None:
    fewer_days_are_deployed(watch, monkeypatch)


def test_a_saga_with_kept_rows_is_taken_over_at_any_age(watch: Watch) -> None:
    the_log_is_kept_once_in_a_while(watch)
    watch.dies()
    watch.pass_time(200 * DAY_MS)

    assert watch.sweep()["taken_over"] == 1


def test_a_saga_with_a_possibly_expired_log_is_never_run_again(watch: Watch) -> None:
    watch.dies()
    watch.pass_time(400 * DAY_MS)
    watch.sweep()
    assert set(watch.executions) == {SAGA_ID}
    assert (watch.record.parked, watch.record.rows_until) == (SAGA_ID, None)
    assert [entry["stuck"]["error"] for entry in watch.notified] == [ParkedFor.ROWS_EXPIRED]


def test_a_saga_with_a_possibly_expired_log_is_parked_once(watch: Watch) -> None:
    watch.update(answered_at={"N": "1"})
    test_a_saga_with_a_possibly_expired_log_is_never_run_again(watch)

    watch.pass_time(7_200_000)
    watch.sweep()
    assert (set(watch.executions), watch.notified) == ({SAGA_ID}, [])


@pytest.mark.parametrize("detail", ["\uffff", "\ud800", "Größe", "\x00", "\U0001f4b6"])
def test_operators_are_notified_of_reasons_with_any_characters(watch: Watch, detail: str) -> None:
    watch.update(failure={"S": json.dumps({"detail": detail})})
    exhausted(watch)

    assert watch.sweep()["parked"] == 1
    assert [entry["failure"] for entry in watch.notified] == [{"detail": detail}]


def test_an_entry_for_operators_is_valid_for_sqs(watch: Watch) -> None:
    found = replace(record_of(watch), failure=json.dumps({"detail": "\uffff \ud800"}))

    assert operators_entry(found, ParkedFor.RECOVERIES_EXHAUSTED).isascii()


def test_a_recovery_that_was_not_started_is_not_when_rows_may_be_gone(watch: Watch) -> None:
    watch.update(owner={"S": recovery_name(SAGA_ID, 1)}, recoveries={"N": "1"})
    watch.pass_time(400 * DAY_MS)
    watch.sweep()

    assert set(watch.executions) == {SAGA_ID}
    assert watch.record.parked == recovery_name(SAGA_ID, 1)


def test_rows_that_may_be_gone_are_not_recorded_as_kept(watch: Watch) -> None:
    watch.pass_time(400 * DAY_MS)
    watch.sweep()
    assert (watch.record.parked, watch.record.rows_until) == (None, None)


def test_the_saga_settles_while_its_rows_are_kept(watch: Watch) -> None:
    record = watch.record
    watch.settle()
    update = RECONCILIATION.rows_kept_update(record, 1)
    with contextlib.suppress(aws.dynamodb().exceptions.ConditionalCheckFailedException):
        aws.dynamodb().update_item(TableName="requests", **update)
    assert watch.record.rows_until is None


POISON: dict[str, dict[str, Any]] = {
    "no saga's": {A.SAGA_ID: None},
    "an attribute is missing": {A.INPUT: None},
    "an unknown status": {A.STATUS: {"S": "LOST"}},
    "an invalid number": {A.CREATED_AT: {"S": "yesterday"}},
    "a time of another type": {A.PARKED_AT: {"S": "yesterday"}, A.PARKED: {"S": SAGA_ID}},
    "no execution": {A.EXECUTION_ARN: {"S": "here"}},
}
"""Possible contents of a foreign record."""


# Status events.


def test_a_dead_owner_is_followed_at_once(watch: Watch) -> None:
    watch.dies()

    assert watch.ended(SAGA_ID) == []
    assert (watch.record.owner, set(watch.executions)) == (R1, {SAGA_ID, R1})


def test_an_event_that_is_delivered_five_times_starts_one_recovery(watch: Watch) -> None:
    watch.dies()

    assert watch.ended(*[SAGA_ID] * 5) == []
    assert set(watch.executions) == {SAGA_ID, R1}


def test_a_recovery_that_dies_waits_until_it_is_due(watch: Watch) -> None:
    watch.dies()
    watch.ended(SAGA_ID)
    watch.dies(R1)

    watch.ended(R1)
    assert set(watch.executions) == {SAGA_ID, R1}
    watch.pass_time()
    watch.ended(R1)
    assert set(watch.executions) == {SAGA_ID, R1, R2}


@pytest.mark.parametrize("name", [f"{SAGA_ID}-1-0123", late_name(SAGA_ID, 1), R1, f"{SAGA_ID}-r9"])
def test_executions_that_own_nothing_change_nothing_while_the_owner_runs(watch: Watch, name: str) -> None:
    before = watch.item

    assert watch.ended(name) == []
    assert (watch.item, set(watch.executions)) == (before, {SAGA_ID})


def test_unknown_executions_and_former_sagas_are_ignored(watch: Watch) -> None:
    before = watch.item
    former = f"{REQUEST_ID}-1"

    assert watch.ended("started-by-hand", former, f"{'a' * 26}-1") == []
    assert (watch.item, set(watch.executions)) == (before, {SAGA_ID})


def test_an_unreadable_message_is_redelivered_and_blocks_no_other(watch: Watch) -> None:
    watch.dies()
    good = json.dumps({"detail": {"name": SAGA_ID}})
    bad = [
        "no json",
        "",
        "[]",
        "null",
        '{"detail": {}}',
        '{"detail": null}',
        '{"detail": "x"}',
        '"text"',
        "[" * 200_000,
    ]

    assert deliver(*bad, good) == [f"m{number}" for number in range(len(bad))]
    assert R1 in watch.executions


@pytest.mark.parametrize("name", [None, 7, [], {}, "", "-", "a" * 300, "\ud800", f"{SAGA_ID}\n", SAGA_ID.upper()])
def test_an_event_with_a_name_that_no_saga_has_is_done_with(watch: Watch, name: object) -> None:
    watch.dies()

    assert deliver(json.dumps({"detail": {"name": name}})) == []
    assert set(watch.executions) == {SAGA_ID}


@pytest.mark.parametrize("kind", POISON)
def test_an_event_of_an_unreadable_record_is_redelivered_alone(watch: Watch, kind: str) -> None:
    (item,) = watch.world.items("requests")
    other = f"{'b' * 26}-1"
    broken = {**item, A.ID: {"S": "b" * 26}, A.SAGA_ID: {"S": other}, **POISON[kind]}
    stored: Any = {name: value for name, value in broken.items() if value is not None}
    aws.dynamodb().put_item(TableName="requests", Item=stored)
    watch.dies()

    assert watch.ended(other, SAGA_ID) == ["m0"]
    assert R1 in watch.executions


def test_an_event_with_failing_calls_is_redelivered(watch: Watch) -> None:
    watch.dies()
    watch.world.wire.plan(Fault(operation="DescribeExecution", action=Action.THROTTLE))

    assert watch.ended(SAGA_ID) == ["m0"]
    assert watch.ended(SAGA_ID) == []
    assert R1 in watch.executions


# Sagas whose record is gone.


def record_is_gone(watch: Watch) -> None:
    aws.dynamodb().delete_item(TableName="requests", Key={A.ID: {"S": REQUEST_ID}})


@pytest.mark.parametrize("name", [SAGA_ID, R1, recovery_name(SAGA_ID, 12)])
def test_a_failed_execution_without_a_record_is_reported(watch: Watch, name: str) -> None:
    record_is_gone(watch)

    assert watch.ended(name) == []
    assert watch.counted(Metric.RECORD_MISSING) == 1
    assert ("saga_without_record", {"saga_id": SAGA_ID, "execution": name}) in watch.world.telemetry.events
    assert (watch.world.items("requests"), set(watch.executions)) == ([], {SAGA_ID})


@pytest.mark.parametrize("name", [late_name(SAGA_ID, 1), f"{SAGA_ID}-1-0123", "started-by-hand"])
def test_executions_that_never_owned_a_saga_need_no_record(watch: Watch, name: str) -> None:
    record_is_gone(watch)

    assert watch.ended(name) == []
    assert watch.counted(Metric.RECORD_MISSING) == 0


def test_a_saga_whose_key_was_reserved_by_another_one_is_reported(watch: Watch) -> None:
    before = watch.item

    watch.ended(f"{REQUEST_ID}-1")

    assert (watch.counted(Metric.RECORD_MISSING), watch.item) == (1, before)


def test_a_settled_saga_has_its_record(watch: Watch) -> None:
    watch.settle()
    watch.dies()

    watch.ended(SAGA_ID)

    assert watch.counted(Metric.RECORD_MISSING) == 0


# Sagas of others, time, and trouble.


def test_a_saga_of_another_reconciler_is_left_alone(watch: Watch, monkeypatch: pytest.MonkeyPatch) -> None:
    (fields,) = json.loads(os.environ[Env.RECONCILED])
    monkeypatch.setenv(Env.RECONCILED, json.dumps([fields | {"machine": "Others"}]))
    watch.dies()
    watch.pass_time()
    before = watch.item

    assert watch.sweep()["foreign"] == 1
    watch.ended(SAGA_ID)
    assert (watch.item, set(watch.executions)) == (before, {SAGA_ID})


def test_its_settings_are_read_back() -> None:
    text = '[{"machine":"M","requests":"r","shards":4,"log":"l","days":30,"operators":"q","tokens":{"t":["A"]}}]'

    assert served_of(text) == (
        Served(machine="M", requests="r", shards=4, log="l", days=30, operators="q", tokens={"t": ("A",)}),
    )


def test_a_sweep_ends_before_its_function_does(watch: Watch) -> None:
    watch.dies()
    watch.pass_time()

    assert watch.sweep(remaining_ms=SPARE_MS - 1)["complete"] is False
    assert set(watch.executions) == {SAGA_ID}
    assert watch.world.telemetry.measured[Metric.LOOK_INCOMPLETE] == 1

    watch.sweep()

    assert watch.world.telemetry.measured[Metric.LOOK_INCOMPLETE] == 0


def test_age_of_the_oldest_overdue_saga_is_measured(watch: Watch) -> None:
    watch.pass_time(DUE_AFTER_MS + 90_000)

    assert watch.sweep()["overdue_seconds"] == 90
    assert watch.world.telemetry.measured[Metric.OLDEST_OVERDUE] == 90

    assert watch.sweep()["overdue_seconds"] == 0
    assert watch.world.telemetry.measured[Metric.OLDEST_OVERDUE] == 0


def test_overdue_saga_of_another_reconciler_is_not_measured(watch: Watch, monkeypatch: pytest.MonkeyPatch) -> None:
    (fields,) = json.loads(os.environ[Env.RECONCILED])
    monkeypatch.setenv(Env.RECONCILED, json.dumps([fields | {"machine": "Others"}]))
    watch.pass_time(DUE_AFTER_MS + 90_000)

    assert watch.sweep()["overdue_seconds"] == 0


def test_an_old_saga_is_checked_again_after_the_longest_interval(watch: Watch, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(Env.LONGEST_LOOK, "3600")
    watch.pass_time(DAY_MS)

    watch.sweep()

    assert watch.record.due_at == watch.world.clock.ms + 3_600_000


def test_the_first_shard_changes_every_minute(watch: Watch, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[tuple[str, int]] = []
    page = RECONCILER._due_items

    def noted(table: str, shard: int, *rest: Any) -> Any:
        asked.append((table, shard))
        return page(table, shard, *rest)

    monkeypatch.setattr(RECONCILER, "_due_items", noted)
    watch.sweep()
    first = asked[0]
    asked.clear()
    watch.pass_time(60_000)
    watch.sweep()

    assert asked[0] != first
    assert sorted(asked) == sorted([*product(["requests", "tokens"], range(SHARDS))])


@pytest.mark.parametrize("kind", POISON)
def test_an_unreadable_record_blocks_no_other_and_is_counted(watch: Watch, kind: str) -> None:
    (item,) = watch.world.items("requests")
    broken = {**item, A.ID: {"S": "broken"}, A.DUE_AT: {"N": "1"}, **POISON[kind]}
    stored: Any = {name: value for name, value in broken.items() if value is not None}
    aws.dynamodb().put_item(TableName="requests", Item=stored)
    watch.dies()
    watch.pass_time()

    done = watch.sweep()
    assert (done["failed"], done["broken"], done["taken_over"], R1 in watch.executions) == (1, 1, 1, True)
    assert watch.world.telemetry.measured[Metric.RECONCILE_FAILED] == 1
    events = watch.world.telemetry.events
    assert [fields["row_id"] for name, fields in events if name == "reconcile_failed"] == ["broken"]

    assert watch.sweep()["broken"] == 1
    aws.dynamodb().delete_item(TableName="requests", Key={A.ID: {"S": "broken"}})
    watch.sweep()
    assert watch.world.telemetry.measured[Metric.RECONCILE_FAILED] == 0


def test_a_transient_refusal_is_not_reported(watch: Watch) -> None:
    watch.pass_time()
    watch.world.wire.plan(Fault(operation="DescribeExecution", action=Action.THROTTLE, times=ATTEMPTS))

    done = watch.sweep()

    assert (done["failed"], done["broken"], done["slowed"]) == (1, 0, ATTEMPTS)
    assert watch.world.telemetry.measured[Metric.RECONCILE_FAILED] == 0


def test_throttling_backs_off_and_the_saga_is_recovered(watch: Watch) -> None:
    watch.dies()
    watch.pass_time()
    watch.world.wire.plan(Fault(operation="DescribeExecution", action=Action.THROTTLE, times=ATTEMPTS - 1))

    assert watch.sweep()["taken_over"] == 1
    assert len(watch.world.naps) == ATTEMPTS - 1


def test_a_saga_that_is_throttled_for_long_is_left_to_the_next_sweep(watch: Watch) -> None:
    watch.dies()
    watch.pass_time()
    watch.world.wire.plan(Fault(operation="DescribeExecution", action=Action.THROTTLE, times=ATTEMPTS))

    assert (watch.sweep()["failed"], watch.sweep()["taken_over"]) == (1, 1)


def test_a_recovery_with_a_throttled_start_is_started_in_the_same_sweep(watch: Watch) -> None:
    """It was taken over by then, and is not due any more."""
    interrupted(watch)
    watch.world.wire.plan(Fault(operation="StartExecution", action=Action.THROTTLE))

    assert watch.sweep()["started"] == 1
    assert R1 in watch.executions


@pytest.mark.parametrize("gone", [False, True])
def test_an_index_that_is_behind_costs_one_read(watch: Watch, monkeypatch: pytest.MonkeyPatch, gone: bool) -> None:
    watch.dies()
    if gone:
        record_is_gone(watch)
    stale = {A.ID: {"S": REQUEST_ID}, A.DUE_AT: {"N": str(NOW_MS)}}
    due_items = RECONCILER._due_items

    def behind(table: str, shard: int, *rest: Any) -> Any:
        items, start = due_items(table, shard, *rest)
        return ([stale] if (table, shard) == ("requests", int(SHARD)) else items), start

    monkeypatch.setattr(RECONCILER, "_due_items", behind)
    calls = watch.world.calls_of(watch.sweep)

    assert [call for call in calls if call != "Query"] == ["GetItem"]
    assert set(watch.executions) == {SAGA_ID}


@pytest.mark.parametrize("shards", [(1, 4), (4, 1)])
def test_every_shard_of_a_table_that_sagas_share_is_queried(
    watch: Watch, monkeypatch: pytest.MonkeyPatch, shards: tuple[int, int]
) -> None:
    (fields,) = json.loads(os.environ[Env.RECONCILED])
    served = [fields | {"machine": f"Saga{number}", "shards": count} for number, count in enumerate(shards)]
    monkeypatch.setenv(Env.RECONCILED, json.dumps(served))

    assert watch.world.calls_of(watch.sweep).count("Query") == max(shards) + SHARDS


def test_a_status_event_finds_its_saga_in_any_table(watch: Watch, monkeypatch: pytest.MonkeyPatch) -> None:
    (fields,) = json.loads(os.environ[Env.RECONCILED])
    other = fields | {"machine": "Others", "requests": "other-requests"}
    monkeypatch.setenv(Env.RECONCILED, json.dumps([other, fields]))
    read = CARETAKER.Caretaker.read

    def none_there(self: Any, table: str, request_id: str) -> Any:
        return None if table == "other-requests" else read(self, table, request_id)

    monkeypatch.setattr(CARETAKER.Caretaker, "read", none_there)
    watch.dies()

    assert watch.ended(SAGA_ID) == []
    assert (R1 in watch.executions, watch.counted(Metric.RECORD_MISSING)) == (True, 0)


def test_every_client_is_made_before_several_workers_want_it(watch: Watch, monkeypatch: pytest.MonkeyPatch) -> None:
    """Making one is not safe among threads."""
    made: list[str] = []

    def noting(name: str, make: Callable[[], Any]) -> Callable[[], Any]:
        def noted() -> Any:
            made.append(name)
            return make()

        return noted

    names = ["dynamodb", "step_functions_once", "sqs"]

    class Crew(Threads):
        def run(self, work: Callable[[], None], workers: int) -> None:
            assert made == names
            super().run(work, workers)

    reconciler = RECONCILER.Reconciler.from_env(lambda: 60_000)
    reconciler.crew = Crew()
    watch.pass_time()

    with monkeypatch.context() as for_now:
        for name in names:
            for_now.setattr(aws, name, noting(name, getattr(aws, name)))
        assert reconciler.sweep().looked_at == 1


def test_a_permanent_refusal_is_not_retried(watch: Watch, monkeypatch: pytest.MonkeyPatch) -> None:
    denied = ClientError({"Error": {"Code": "AccessDeniedException", "Message": "no"}}, "DescribeExecution")
    looks: list[int] = []

    def refuse(*_: Any) -> str:
        looks.append(1)
        raise denied

    monkeypatch.setattr("saga_runtime.recovery.takeover.Recoverer.owner", refuse)
    watch.pass_time()

    assert (watch.sweep()["failed"], len(looks)) == (1, 1)
    assert (
        "reconcile_failed",
        {"row_id": REQUEST_ID, "error": "ClientError", "code": "AccessDeniedException", "for_good": True},
    ) in (watch.world.telemetry.events)


# The switch under which it checks and measures, and changes nothing.

SWITCH = "hold"


@pytest.fixture
def switch(monkeypatch: pytest.MonkeyPatch, world: World) -> None:
    """A switch that is off."""
    create_hold_table()
    monkeypatch.setenv(Env.HOLD_TABLE, SWITCH)


def hold(watch: Watch) -> None:
    """Set the switch, as an operator does."""
    a = HoldAttribute
    item: Any = {**HOLD_KEY, a.SINCE: {"N": str(watch.world.clock.ms)}, a.REASON: {"S": "restore"}}
    aws.dynamodb().put_item(TableName=SWITCH, Item=item)


def release() -> None:
    """Reset it."""
    aws.dynamodb().delete_item(TableName=SWITCH, Key=HOLD_KEY)


HELD_SCENES = ["never started", "interrupted", "running", "exhausted", "history gone", "parked", "late", "unsettled"]


@pytest.mark.usefixtures("switch")
@pytest.mark.parametrize("scene", HELD_SCENES)
def test_held_reconciler_changes_nothing(watch: Watch, scene: str) -> None:
    prepare, _ = SCENES[scene]
    prepare(watch)
    hold(watch)
    state = watch.operated.state, watch.world.items("tokens")

    done = watch.sweep()
    calls = watch.world.calls_of(watch.sweep)

    assert (watch.operated.state, watch.world.items("tokens")) == state
    assert watch.notified == []
    assert not {"UpdateItem", "PutItem", "StartExecution", "SendMessage"}.intersection(calls)
    assert done["needed"] == (scene in ("never started", "interrupted", "exhausted", "history gone", "unsettled"))
    assert watch.counted(Metric.RECOVERIES) == 0


@pytest.mark.usefixtures("switch")
def test_held_reconciler_measures(watch: Watch) -> None:
    hold(watch)
    watch.pass_time(DUE_AFTER_MS + 30_000)

    watch.sweep()

    assert watch.world.telemetry.measured[Metric.HOLD_AGE] == 90
    assert watch.world.telemetry.measured[Metric.OLDEST_OVERDUE] == 30
    assert watch.world.telemetry.measured[Metric.RECONCILE_FAILED] == 0


@pytest.mark.usefixtures("switch")
def test_released_reconciler_processes_due_sagas(watch: Watch) -> None:
    interrupted(watch)
    hold(watch)
    watch.sweep()
    release()
    watch.pass_time(KEPT_MS)

    assert watch.sweep()["taken_over"] == 1
    assert watch.world.telemetry.measured[Metric.HOLD_AGE] == 0


@pytest.mark.usefixtures("switch")
def test_status_event_of_a_held_reconciler_is_left_to_a_later_sweep(watch: Watch) -> None:
    watch.dies()
    hold(watch)
    item = watch.item

    assert watch.ended(SAGA_ID) == []
    assert (watch.item, set(watch.executions)) == (item, {SAGA_ID})


@pytest.mark.usefixtures("switch")
def test_switch_is_read_strongly_and_at_most_every_ten_seconds(watch: Watch) -> None:
    read: list[bool] = []
    answer = aws.dynamodb().get_item

    def noted(**asked: Any) -> Any:
        if asked["TableName"] == SWITCH:
            read.append(asked["ConsistentRead"])
        return answer(**asked)

    with pytest.MonkeyPatch.context() as noting:
        noting.setattr(aws.dynamodb(), "get_item", noted)
        watch.ended(SAGA_ID)
        watch.ended(SAGA_ID)
        assert read == [True]

        watch.pass_time(KEPT_MS)
        watch.ended(SAGA_ID)

    assert read == [True, True]


def test_reconciler_that_cannot_read_its_switch_changes_nothing(watch: Watch, monkeypatch: pytest.MonkeyPatch) -> None:
    interrupted(watch)
    monkeypatch.setenv(Env.HOLD_TABLE, "gone")
    item = watch.item

    with pytest.raises(ClientError, match="ResourceNotFoundException"):
        watch.sweep()
    assert watch.ended(SAGA_ID) == ["m0"]

    assert (watch.item, set(watch.executions)) == (item, {SAGA_ID})


@pytest.mark.usefixtures("switch")
def test_hold_without_its_attributes_is_a_hold(watch: Watch) -> None:
    interrupted(watch)
    aws.dynamodb().put_item(TableName=SWITCH, Item=HOLD_KEY)

    assert watch.sweep()["needed"] == 1


@pytest.mark.usefixtures("switch")
def test_a_hold_that_is_set_during_a_sweep_stops_it(watch: Watch) -> None:
    interrupted(watch)

    def holds() -> None:
        hold(watch)
        watch.world.clock.ms += KEPT_MS

    before(watch.world.wire, "DescribeExecution", holds)

    assert watch.sweep()["needed"] == 1
    assert set(watch.executions) == {SAGA_ID}


# Two at once, and deaths at every call.


def never_started(watch: Watch) -> None:
    watch.world.executions.forget(SAGA_ID)
    watch.pass_time()


def interrupted(watch: Watch) -> None:
    watch.dies()
    watch.pass_time()


def running(watch: Watch) -> None:
    watch.pass_time()


def exhausted(watch: Watch) -> None:
    watch.update(recoveries={"N": str(LIMIT)})
    interrupted(watch)


def history_gone(watch: Watch) -> None:
    watch.world.executions.forget(SAGA_ID)
    watch.pass_time(89 * DAY_MS)


def parked(watch: Watch) -> None:
    watch.operated.park()
    watch.pass_time()


def settled(watch: Watch) -> None:
    watch.settle(due=True)


def late(watch: Watch) -> None:
    watch.settle()
    late_job(watch)


def unsettled(watch: Watch) -> None:
    watch.dies(status=ExecutionStatus.SUCCEEDED)
    watch.pass_time(2 * CERTAIN_AFTER_MS)


SCENES: dict[str, tuple[Callable[[Watch], None], tuple[str, ...]]] = {
    "never started": (never_started, ("GetItem", "DescribeExecution", "StartExecution")),
    "interrupted": (interrupted, ("GetItem", "DescribeExecution", "UpdateItem", "StartExecution")),
    "running": (running, ("GetItem", "DescribeExecution", "UpdateItem")),
    "exhausted": (exhausted, ("GetItem", "DescribeExecution", "SendMessage", "UpdateItem")),
    "history gone": (
        history_gone,
        ("GetItem", "DescribeExecution", "SendMessage", "UpdateItem", "Query", "UpdateItem"),
    ),
    "parked": (parked, ("GetItem", "UpdateItem")),
    "settled": (settled, ("GetItem", "UpdateItem")),
    "late": (late, ("GetItem", "GetItem", "Query", "Query", "DescribeExecution", "StartExecution")),
    "unsettled": (
        unsettled,
        ("GetItem", "DescribeExecution", "GetItem", "SendMessage", "UpdateItem"),
    ),
}
"""What each is, and the calls of a sweep that finds it, without those that look for what is due."""

DISTURBANCES = [
    (Action.KILL, Moment.BEFORE, 1),
    (Action.KILL, Moment.AFTER, 1),
    (Action.DROP, Moment.BEFORE, 3),
    (Action.DROP, Moment.AFTER, 1),
    (Action.DROP, Moment.AFTER, 3),
    (Action.THROTTLE, Moment.BEFORE, 3),
    (Action.THROTTLE, Moment.BEFORE, 3 * ATTEMPTS),
]
LOOKING = 2 * SHARDS


def _nth(calls: tuple[str, ...], index: int, scene: str) -> int:
    """Index of a call among its kind; late effects are found by the first query of the tokens, old sagas at once."""
    looks = {"late": SHARDS + 1, "history gone": 1} if calls[index] == "Query" else {}
    return calls[: index + 1].count(calls[index]) + looks.get(scene, 0)


MATRIX = [
    pytest.param(scene, call, _nth(calls, index, scene), disturbance, id=f"{scene}: {index} {call}: {disturbance}")
    for scene, (_, calls) in SCENES.items()
    for index, call in enumerate(calls)
    for disturbance in DISTURBANCES
] + [
    pytest.param(scene, "Query", 1, disturbance, id=f"{scene}: look: {disturbance}")
    for scene in SCENES
    for disturbance in DISTURBANCES
]
RAN: set[str] = set()


def end_of(watch: Watch) -> tuple[dict[str, Any], dict[str, str], bool]:
    """Final state without times, after two more sweeps."""
    for _ in range(2):
        watch.pass_time()
        watch.sweep()
    times = {A.DUE_AT, A.UPDATED_AT, A.PARKED_AT, A.EXPIRATION}
    item = {name: value for name, value in watch.item.items() if name not in times}
    return item, watch.executions, bool(watch.notified)


EXPECTED: dict[str, tuple[str, int, bool, set[str]]] = {
    "never started": (SAGA_ID, 0, False, {SAGA_ID}),
    "interrupted": (R1, 1, False, {SAGA_ID, R1}),
    "running": (SAGA_ID, 0, False, {SAGA_ID}),
    "exhausted": (SAGA_ID, LIMIT, True, {SAGA_ID}),
    "history gone": (SAGA_ID, 0, True, set()),
    "parked": (SAGA_ID, 0, False, {SAGA_ID}),
    "settled": (SAGA_ID, 0, False, {SAGA_ID}),
    "late": (SAGA_ID, 0, False, {SAGA_ID, late_name(SAGA_ID, 1)}),
    "unsettled": (SAGA_ID, 0, True, {SAGA_ID}),
}


def check_end(watch: Watch, scene: str) -> None:
    owner, recoveries, told, executions = EXPECTED[scene]
    item, started, was_told = end_of(watch)
    assert (item[A.OWNER], int(item.get(A.RECOVERIES, 0)), was_told, set(started)) == (
        owner,
        recoveries,
        told,
        executions,
    )
    assert (A.PARKED in item) == (told or scene == "parked")
    assert (A.DUE_SHARD in item) == (scene not in ("settled", "late"))


@pytest.mark.parametrize("scene", SCENES)
def test_every_call_is_enumerated(watch: Watch, scene: str) -> None:
    prepare, calls = SCENES[scene]
    prepare(watch)

    made = watch.world.calls_of(watch.sweep)

    assert made.count("Query") == LOOKING + calls.count("Query")
    assert [call for call in made if call != "Query"] == [call for call in calls if call != "Query"]
    check_end(watch, scene)


@pytest.mark.parametrize(("scene", "call", "on", "disturbance"), MATRIX)
def test_a_crash_at_any_call_does_not_change_the_end(
    watch: Watch,
    scene: str,
    call: str,
    on: int,
    disturbance: tuple[Action, Moment, int],
    request: pytest.FixtureRequest,
) -> None:
    action, moment, times = disturbance
    SCENES[scene][0](watch)
    watch.world.wire.plan(Fault(operation=call, action=action, moment=moment, on=on, times=times))
    try:
        watch.sweep()
    except Killed:
        assert action is Action.KILL

    assert watch.world.wire.fired, "the fault never struck"
    watch.world.wire.forget()
    check_end(watch, scene)
    RAN.add(request.node.name)


def test_as_many_were_run_as_were_enumerated(request: pytest.FixtureRequest) -> None:
    require_all_run(
        request,
        test_a_crash_at_any_call_does_not_change_the_end,
        RAN,
        enumerated=len(MATRIX),
        of="reconciler's crash matrix",
    )


@pytest.mark.parametrize(
    ("scene", "call", "on"),
    [
        pytest.param(scene, call, _nth(calls, index, scene), id=f"{scene}: {index} {call}")
        for scene, (_, calls) in SCENES.items()
        for index, call in enumerate(calls)
    ],
)
def test_two_concurrent_workers_do_the_work_of_one(watch: Watch, scene: str, call: str, on: int) -> None:
    SCENES[scene][0](watch)
    others: list[object] = []
    before(watch.world.wire, call, lambda: others.append((watch.sweep(), watch.ended(SAGA_ID))), on=on)

    watch.sweep()

    assert others, "the other one was never called"
    check_end(watch, scene)


@pytest.mark.parametrize("scene", SCENES)
def test_an_event_and_a_sweep_meet_anywhere(watch: Watch, scene: str) -> None:
    SCENES[scene][0](watch)
    watch.ended(SAGA_ID)
    watch.sweep()
    watch.ended(SAGA_ID, SAGA_ID)

    check_end(watch, scene)


@pytest.mark.parametrize("fails", [False, True])
def test_metrics_are_written_even_if_the_function_fails(
    watch: Watch, monkeypatch: pytest.MonkeyPatch, fails: bool
) -> None:
    written: list[str] = []
    monkeypatch.setattr(telemetry, "flush", lambda: written.append("all"))
    if fails:
        monkeypatch.delenv(Env.RECONCILED)

    with pytest.raises(KeyError) if fails else contextlib.nullcontext():
        watch.sweep()
    assert written == ["all"]


def test_a_stack_of_another_protocol_is_not_served(watch: Watch, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(Env.PROTOCOL, "999")
    interrupted(watch)

    with pytest.raises(ProtocolMismatch):
        watch.sweep()
    assert set(watch.executions) == {SAGA_ID}


# Another worker was faster.


def another_one_took_it_over_and_died(watch: Watch) -> None:
    watch.update(owner={"S": R1}, recoveries={"N": "1"})


def another_one_took_it_over_twice(watch: Watch) -> None:
    watch.update(owner={"S": R2}, recoveries={"N": "2"})


def another_one_took_it_over_and_it_settled(watch: Watch) -> None:
    watch.update(owner={"S": R1}, recoveries={"N": "1"})
    watch.settle()


def another_one_took_it_over_and_it_was_parked(watch: Watch) -> None:
    watch.update(owner={"S": R1}, recoveries={"N": "1"}, parked={"S": R1}, stuck={"S": "{}"})


@pytest.mark.parametrize(
    ("happens", "started"),
    [
        (another_one_took_it_over_and_died, {SAGA_ID, R1}),
        (another_one_took_it_over_twice, {SAGA_ID}),
        (another_one_took_it_over_and_it_settled, {SAGA_ID}),
        (another_one_took_it_over_and_it_was_parked, {SAGA_ID}),
        (record_is_gone, {SAGA_ID}),
    ],
)
def test_the_second_worker_starts_what_the_first_one_decided(
    watch: Watch, happens: Callable[[Watch], None], started: set[str]
) -> None:
    interrupted(watch)
    before(watch.world.wire, "UpdateItem", lambda: happens(watch))

    assert watch.sweep()["failed"] == 0
    assert set(watch.executions) == started
    assert watch.counted(Metric.RECOVERIES) == 0


@pytest.mark.parametrize("changed", [{"status": {"S": "COMPLETED"}}, {"owner": {"S": R1}}])
def test_a_record_that_changed_meanwhile_is_not_rescheduled(watch: Watch, changed: dict[str, dict[str, str]]) -> None:
    running(watch)
    due_at = watch.record.due_at
    before(watch.world.wire, "UpdateItem", lambda: watch.update(**changed))
    watch.sweep()

    assert watch.record.due_at == due_at


@pytest.mark.parametrize("changed", [{"status": {"S": "COMPLETED"}}, {"saga_id": {"S": f"{REQUEST_ID}-zzz"}}])
def test_a_record_with_a_new_saga_or_end_stays_due(watch: Watch, changed: dict[str, dict[str, str]]) -> None:
    settled(watch)
    before(watch.world.wire, "UpdateItem", lambda: watch.update(**changed))
    watch.sweep()

    assert (A.DUE_AT in watch.item, A.DUE_SHARD in watch.item) == (True, True)


def test_rows_of_a_saga_with_a_reserved_key_are_not_recorded_as_kept(watch: Watch) -> None:
    record = watch.record
    watch.update(saga_id={"S": f"{REQUEST_ID}-zzz"})

    with pytest.raises(aws.dynamodb().exceptions.ConditionalCheckFailedException):
        aws.dynamodb().update_item(TableName="requests", **RECONCILIATION.rows_kept_update(record, 1))


@pytest.mark.parametrize("scene", ["running", "interrupted", "settled", "exhausted"])
def test_a_write_error_is_not_mistaken_for_a_failed_condition(watch: Watch, scene: str) -> None:
    SCENES[scene][0](watch)
    watch.world.wire.plan(Fault(operation="UpdateItem", action=Action.THROTTLE, times=3 * ATTEMPTS))

    assert watch.sweep()["failed"] == 1


@pytest.mark.parametrize("scene", SCENES)
def test_every_write_is_based_on_a_consistent_read(watch: Watch, scene: str) -> None:
    SCENES[scene][0](watch)
    watch.pass_time(380 * DAY_MS)
    put_row("Old", StepStatus.DONE, expiration=watch.world.clock.ms // 1_000)
    asked: list[dict[str, Any]] = []
    send = watch.world.wire.send

    def noted(event_name: str, request: Any, deliver: Any) -> Any:
        if event_name.endswith((".GetItem", ".Query")):
            asked.append(body_of(request))
        return send(event_name, request, deliver)

    setattr(watch.world.wire, "send", noted)  # noqa: B010  # mypy knows it as a method
    watch.sweep()

    strong = [body.get("ConsistentRead", False) for body in asked if "IndexName" not in body]
    assert strong
    assert all(strong)


def test_a_job_without_a_late_effect_costs_one_read(watch: Watch) -> None:
    late_job(watch)
    aws.dynamodb().update_item(
        TableName="tokens",
        Key={TokenAttribute.ID: {"S": f"{SAGA_ID}#Pick"}},
        UpdateExpression="REMOVE applied_late_at",
    )

    calls = watch.world.calls_of(watch.sweep)

    assert [call for call in calls if call != "Query"] == ["GetItem"]
    assert calls.count("Query") == LOOKING


# Each condition is needed.


def test_a_record_that_is_made_due_meanwhile_stays_due(watch: Watch) -> None:
    """A callback decided a step during the check: the record must stay due."""
    running(watch)
    now = watch.world.clock.ms

    before(watch.world.wire, "UpdateItem", lambda: watch.update(due_at={"N": str(now - 1)}))
    watch.sweep()

    assert watch.record.due_at == now - 1


def test_a_settled_record_that_is_made_due_meanwhile_stays_due(watch: Watch) -> None:
    settled(watch)
    now = watch.world.clock.ms
    before(watch.world.wire, "UpdateItem", lambda: watch.update(due_at={"N": str(now - 1)}))
    watch.sweep()

    assert watch.record.due_at == now - 1


def test_a_callback_meanwhile_prevents_parking(watch: Watch) -> None:
    exhausted(watch)
    before(watch.world.wire, "SendMessage", lambda: watch.update(answered_at={"N": "1"}))
    watch.sweep()
    assert watch.record.parked is None

    watch.sweep()

    assert recovery_name(SAGA_ID, LIMIT + 1) in watch.executions
    assert A.ANSWERED_AT not in watch.item


def test_a_saga_parked_meanwhile_keeps_its_reason(watch: Watch) -> None:
    exhausted(watch)
    before(watch.world.wire, "SendMessage", watch.operated.park)
    watch.sweep()

    assert watch.item[A.STUCK] == "{}"


def test_a_saga_taken_over_meanwhile_is_not_parked(watch: Watch) -> None:
    """The owner that was read before is outdated."""
    exhausted(watch)
    owner = recovery_name(SAGA_ID, LIMIT + 1)
    before(watch.world.wire, "SendMessage", lambda: watch.update(owner={"S": owner}))
    watch.sweep()

    assert watch.record.parked is None


def test_a_saga_settled_meanwhile_is_not_parked(watch: Watch) -> None:
    exhausted(watch)
    before(watch.world.wire, "SendMessage", watch.settle)
    watch.sweep()

    assert watch.record.parked is None


def test_an_unrecoverable_saga_with_an_outcome_is_parked_again_once(watch: Watch) -> None:
    """Parked for so long that no execution can be described any more, and then answered: it is parked again, once."""
    history_gone(watch)
    watch.update(answered_at={"N": "1"})
    watch.sweep()
    assert (watch.record.parked, len(watch.notified)) == (SAGA_ID, 1)

    watch.pass_time(7_200_000)
    watch.sweep()
    assert (watch.executions, watch.notified) == ({}, [])


def test_an_old_saga_parked_meanwhile_keeps_its_reason(watch: Watch) -> None:
    history_gone(watch)
    before(watch.world.wire, "SendMessage", lambda: watch.update(parked={"S": SAGA_ID}, stuck={"S": "{}"}))
    watch.sweep()

    assert watch.item[A.STUCK] == "{}"


def test_an_old_saga_taken_over_meanwhile_is_not_parked(watch: Watch) -> None:
    history_gone(watch)
    before(watch.world.wire, "SendMessage", lambda: watch.update(owner={"S": R1}))
    watch.sweep()

    assert watch.record.parked is None


def test_an_old_saga_settled_meanwhile_is_not_parked(watch: Watch) -> None:
    history_gone(watch)
    before(watch.world.wire, "SendMessage", watch.settle)
    watch.sweep()

    assert watch.record.parked is None


def dies_after_notifying(watch: Watch) -> None:
    exhausted(watch)
    watch.world.wire.plan(Fault(operation="UpdateItem", action=Action.KILL, moment=Moment.AFTER, times=1))
    with pytest.raises(Killed):
        watch.sweep()

    assert (watch.record.parked, len(watch.notified)) == (SAGA_ID, 1)


def test_a_recovery_that_died_is_followed_when_its_record_is_due(watch: Watch) -> None:
    interrupted(watch)
    watch.sweep()
    watch.dies(R1)
    watch.ended(R1)

    assert R2 not in watch.executions


def test_a_row_deleted_meanwhile_is_not_created_again(watch: Watch) -> None:
    watch.pass_time(380 * DAY_MS)
    put_row("Old", StepStatus.DONE, expiration=watch.world.clock.ms // 1_000)
    key: Any = log_key(SAGA_ID, "Old")
    before(watch.world.wire, "UpdateItem", lambda: aws.dynamodb().delete_item(TableName="log", Key=key), on=2)
    watch.sweep()

    assert watch.world.items("log") == []


def test_a_row_kept_for_longer_meanwhile_is_not_shortened(watch: Watch) -> None:
    watch.pass_time(380 * DAY_MS)
    put_row("Old", StepStatus.DONE, expiration=watch.world.clock.ms // 1_000)
    for_long = watch.world.clock.ms // 1_000 + 800 * 86_400
    before(watch.world.wire, "UpdateItem", lambda: put_row("Old", StepStatus.DONE, expiration=for_long), on=2)
    watch.sweep()

    assert [item[LogAttribute.EXPIRATION]["N"] for item in watch.world.items("log")] == [str(for_long)]


def test_operators_are_notified_before_the_record_is_parked(watch: Watch) -> None:
    dies_after_notifying(watch)
