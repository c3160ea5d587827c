"""Rows of sagas in flight are kept for longer; sagas with expired ones are never run again."""

from __future__ import annotations

import contextlib
import json
import os
from dataclasses import replace
from functools import partial
from typing import Any, NoReturn

import pytest
from botocore.exceptions import ClientError

from saga_runtime.protocol import (
    LEAST_LOG_DAYS,
    Env,
    LogAttribute,
    StepStatus,
)
from saga_runtime.recovery import saga_reconciler
from saga_runtime.recovery.decisions import (
    LONGEST_LOOK_MS,
    ParkedFor,
    keeps_ahead_days,
    kept_until,
    operators_entry,
)
from saga_runtime.recovery.saga_reconciler import Caretaker, served_of
from saga_runtime.recovery.takeover import Recoverer, recovery_name
from saga_runtime.saga_log.rows import log_key
from saga_runtime.shared import aws
from tests.unit.recovery.test_reconciler_hold import SWITCH, hold, release
from tests.unit.support.checked_stack import create_hold_table
from tests.unit.support.reconciled import LOOKING, RECONCILIATION, Watch, exhausted, put_row, record_of
from tests.unit.support.samples import DAY_MS, NOW_MS, SAGA_ID
from tests.unit.support.wire import before

pytestmark = pytest.mark.exhaustive


def test_expiring_rows_of_a_saga_in_flight_are_kept_for_longer(watch: Watch) -> None:
    day = 86_400
    now = NOW_MS // 1_000 + 380 * day
    put_row("Old", StepStatus.DONE, expiration=now + 190 * day)
    put_row("Young", StepStatus.DONE, expiration=now + 260 * day)
    watch.pass_time(380 * DAY_MS)

    watch.sweep()

    ends = {item[LogAttribute.STEP]["S"]: int(item[LogAttribute.EXPIRATION]["N"]) for item in watch.world.items("log")}
    assert ends == {"Old": now + 400 * day, "Young": now + 260 * day}


@pytest.mark.parametrize("days", [30, 31, 45, 60, 100, 400, 3_650])
def test_rows_are_read_again_before_they_come_near_their_end(days: int) -> None:
    now, ahead, unread = NOW_MS // 1_000, keeps_ahead_days(days) * 86_400, LEAST_LOG_DAYS * 86_400 // 2
    before, until = kept_until(NOW_MS, days)

    assert now + ahead + unread <= before <= now + days * 86_400, "a row that is written from now on expires later"
    assert now + LEAST_LOG_DAYS * 86_400 <= before <= until


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
    assert watch.record.log_expires_at == now + LEAST_LOG_DAYS * 86_400

    watch.pass_time(LONGEST_LOOK_MS)
    assert watch.world.calls_of(watch.sweep).count("Query") == LOOKING
    assert watch.record.log_expires_at == now + LEAST_LOG_DAYS * 86_400


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


def test_an_execution_that_keeps_rows_for_less_is_noticed_while_they_exist(
    watch: Watch, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One that began before ``log_retention_days`` was raised, and writes after the record was read."""
    kept_for_days(monkeypatch, 100)
    put_row("Old", StepStatus.DONE, expiration=NOW_MS // 1_000 + 100 * 86_400)
    days_pass(watch, 10)
    kept_for_days(monkeypatch, 400)
    days_pass(watch, 10)
    assert watch.record.log_expires_at is not None

    put_row("New", StepStatus.DONE, expiration=watch.world.clock.ms // 1_000 + 30 * 86_400)
    watch.operated.park()
    days_pass(watch, 120)

    assert min(ends_in_days(watch)) >= 200


def test_a_claim_for_longer_than_is_certain_is_read_again(watch: Watch) -> None:
    put_row("Old", StepStatus.DONE, expiration=NOW_MS // 1_000 + 400 * 86_400)
    watch.update(log_expires_at={"N": str(NOW_MS // 1_000 + 400 * 86_400)})
    watch.pass_time()
    watch.sweep()

    assert watch.record.log_expires_at == watch.world.clock.ms // 1_000 + LEAST_LOG_DAYS * 86_400


@pytest.mark.parametrize("held", [SAGA_ID, None])
def test_rows_of_a_held_saga_are_kept(watch: Watch, monkeypatch: pytest.MonkeyPatch, held: str | None) -> None:
    create_hold_table()
    monkeypatch.setenv(Env.HOLD_TABLE, SWITCH)
    kept_for_days(monkeypatch, 60)
    put_row("Old", StepStatus.DONE, expiration=NOW_MS // 1_000 + 60 * 86_400)
    watch.dies()
    hold(watch, held)
    days_pass(watch, 70)
    release(held)
    watch.pass_time(DAY_MS)

    assert watch.sweep()["taken_over"] == 1


def test_rows_in_a_log_that_is_not_known_are_not_read(watch: Watch) -> None:
    """A doctor may know a saga by its record alone."""
    (saga,) = served_of(os.environ[Env.RECONCILED])
    caretaker = Caretaker(served=[saga], limit=3)
    watch.pass_time(20 * DAY_MS)
    found = caretaker.read("requests", watch.record.request_id)
    assert found is not None
    seen = caretaker.look(saga, found, watch.world.clock.ms)
    assert seen is not None

    for log, calls in (("", []), ("log", ["Query", "UpdateItem"])):
        there = replace(seen, saga=replace(saga, log=log))
        assert watch.world.calls_of(partial(caretaker.keep_rows, there)) == calls


def test_rows_are_kept_while_what_a_saga_needs_is_refused(watch: Watch, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_given: object) -> NoReturn:
        raise ClientError({"Error": {"Code": "KmsAccessDeniedException", "Message": "disabled"}}, "StartExecution")

    kept_for_days(monkeypatch, 60)
    put_row("Old", StepStatus.DONE, expiration=NOW_MS // 1_000 + 60 * 86_400)
    watch.dies()
    with monkeypatch.context() as patch:
        patch.setattr(Recoverer, "start", refuse)
        days_pass(watch, 70)
    watch.pass_time(DAY_MS)
    watch.sweep()

    assert recovery_name(SAGA_ID, 1) in watch.executions


def test_a_saga_is_taken_over_although_its_rows_cannot_be_read(watch: Watch, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_given: object) -> NoReturn:
        raise ClientError({"Error": {"Code": "AccessDeniedException", "Message": "no rights"}}, "Query")

    watch.dies()
    watch.pass_time(20 * DAY_MS)
    monkeypatch.setattr(saga_reconciler, "_keep_rows", refuse)

    assert watch.sweep()["failed"] == 1
    assert recovery_name(SAGA_ID, 1) in watch.executions


def test_the_record_contains_a_certain_expiration_despite_another_writer(watch: Watch) -> None:
    watch.pass_time(20 * DAY_MS)
    now = watch.world.clock.ms // 1_000
    put_row("Old", StepStatus.DONE, expiration=now + 86_400)
    by_somebody = now + 215 * 86_400
    before(watch.world.wire, "UpdateItem", lambda: put_row("Old", StepStatus.DONE, expiration=by_somebody), on=2)
    watch.sweep()

    assert by_somebody == kept_until(watch.world.clock.ms, 400)[0]
    assert watch.record.log_expires_at == now + LEAST_LOG_DAYS * 86_400


def test_a_row_that_is_kept_for_ever_is_left(watch: Watch) -> None:
    watch.pass_time(20 * DAY_MS)
    put_row("Old", StepStatus.DONE)
    key: Any = log_key(SAGA_ID, "Old")
    aws.dynamodb().update_item(TableName="log", Key=key, UpdateExpression="REMOVE expiration")

    assert (watch.sweep()["failed"], LogAttribute.EXPIRATION in watch.world.items("log")[0]) == (0, False)
    assert watch.record.log_expires_at is not None


def fewer_days_are_deployed(watch: Watch, monkeypatch: pytest.MonkeyPatch) -> None:
    put_row("Old", StepStatus.DONE, expiration=NOW_MS // 1_000 + 400 * 86_400)
    watch.operated.park()
    days_pass(watch, 20)
    assert watch.record.log_expires_at is not None
    kept_for_days(monkeypatch, 30)
    put_row("New", StepStatus.DONE, expiration=watch.world.clock.ms // 1_000 + 30 * 86_400)
    days_pass(watch, 60)


def test_no_row_of_a_saga_in_flight_expires_after_a_shorter_retention(
    watch: Watch, monkeypatch: pytest.MonkeyPatch
) -> None:
    fewer_days_are_deployed(watch, monkeypatch)


def test_a_saga_with_kept_rows_is_taken_over_at_any_age(watch: Watch) -> None:
    the_log_is_kept_once_in_a_while(watch)
    days_pass(watch, 200)
    watch.dies()
    watch.pass_time(15 * DAY_MS - LONGEST_LOOK_MS)

    assert watch.sweep()["taken_over"] == 1


def test_a_saga_whose_rows_were_not_read_for_long_is_never_run_again(watch: Watch) -> None:
    the_log_is_kept_once_in_a_while(watch)
    watch.dies()
    watch.pass_time(LEAST_LOG_DAYS * DAY_MS)
    watch.sweep()

    assert set(watch.executions) == {SAGA_ID}
    assert [entry["parked_reason"]["error"] for entry in watch.notified] == [ParkedFor.ROWS_EXPIRED]


def test_a_saga_with_a_possibly_expired_log_is_never_run_again(watch: Watch) -> None:
    watch.dies()
    watch.pass_time(400 * DAY_MS)
    watch.sweep()
    assert set(watch.executions) == {SAGA_ID}
    assert (watch.record.parked_by, watch.record.log_expires_at) == (SAGA_ID, None)
    assert [entry["parked_reason"]["error"] for entry in watch.notified] == [ParkedFor.ROWS_EXPIRED]


def test_a_saga_with_a_possibly_expired_log_is_parked_once(watch: Watch) -> None:
    watch.update(late_outcome_at={"N": "1"})
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
    found = record_of(watch, failure=json.dumps({"detail": "\uffff \ud800"}))

    assert operators_entry(found, ParkedFor.RECOVERIES_EXHAUSTED).isascii()


def test_a_recovery_that_was_not_started_is_not_when_rows_may_be_gone(watch: Watch) -> None:
    watch.update(owner={"S": recovery_name(SAGA_ID, 1)}, recoveries={"N": "1"})
    watch.pass_time(400 * DAY_MS)
    watch.sweep()

    assert set(watch.executions) == {SAGA_ID}
    assert watch.record.parked_by == recovery_name(SAGA_ID, 1)


def test_rows_that_may_be_gone_are_not_recorded_as_kept(watch: Watch) -> None:
    watch.pass_time(400 * DAY_MS)
    watch.sweep()
    assert (watch.record.parked_by, watch.record.log_expires_at) == (None, None)


def test_the_saga_settles_while_its_rows_are_kept(watch: Watch) -> None:
    record = watch.record
    watch.settle()
    update = RECONCILIATION.rows_kept_update(record, 1)
    with contextlib.suppress(aws.dynamodb().exceptions.ConditionalCheckFailedException):
        aws.dynamodb().update_item(TableName="requests", **update)
    assert watch.record.log_expires_at is None
