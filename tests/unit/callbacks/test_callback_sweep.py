"""Unanswered jobs: their dead-letter queue receives one entry with what an investigator needs, and no token.

The conditions that the histories at the end need:

* the entry is sent before the row records it: a sweeper that dies in between sends it again;
* only a job that its saga has abandoned is reported, and no wait without a job;
* the row records the entry under the condition that it still waits: a newer attempt, or an outcome, is kept.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass, replace
from importlib import import_module
from typing import Any

import pytest

from saga_runtime.callbacks import Receipt, record_dispatch_error, register
from saga_runtime.callbacks.step import callback_step
from saga_runtime.callbacks.store import read_token
from saga_runtime.callbacks.sweeper import Swept, sweep
from saga_runtime.callbacks.unanswered import is_unanswered_entry
from saga_runtime.protocol import (
    UNANSWERED_FIELD,
    Env,
    Metric,
    RecordStatus,
    StepStatus,
    TokenAttribute,
    UnansweredField,
)
from saga_runtime.shared import aws
from tests.unit.support.job_saga import HEARTBEAT_SECONDS, JOB_ID, STEP, JobSaga, entries_of
from tests.unit.support.samples import NOW_MS, SAGA_ID
from tests.unit.support.warehouse import Picking
from tests.unit.support.wire import Action, Fault, Killed, Moment
from tests.unit.support.world import Context, World

SWEEP = import_module("saga_runtime.callbacks.sweeper")
WRITES = import_module("saga_runtime.callbacks.writes")
DUE_MS = HEARTBEAT_SECONDS * 1_000


@dataclass
class Silence:
    """A job that its provider never answers."""

    job_saga: JobSaga
    url: str

    def dispatch(self) -> None:
        """Register an attempt, whose dispatcher stores the dead-letter queue."""
        attempt = self.job_saga.enter()
        self.job_saga.write(self.job_saga.holder("dispatch").intent(self.job_saga.world.clock.ms))
        register(replace(self.job_saga.waiting(attempt), dead_letters=self.url))

    def abandon(self) -> None:
        """Compensate the saga: no task waits, and the job is fenced."""
        self.job_saga.time_out()
        self.job_saga.compensate()
        self.job_saga.world.clock.ms += DUE_MS

    def sweep(self) -> Swept:
        """One sweep."""
        return sweep(remaining_ms=lambda: 60_000)

    @property
    def entries(self) -> list[dict[str, Any]]:
        """Entries of the queue since the last read."""
        return [entry[UNANSWERED_FIELD] for entry in entries_of(self.url)]

    @property
    def row(self) -> dict[str, str]:
        """The token row."""
        return self.job_saga.token


@pytest.fixture
def silence(world: World, monkeypatch: pytest.MonkeyPatch) -> Silence:
    """A provider that does not report."""
    url = str(aws.sqs().create_queue(QueueName="dead")["QueueUrl"])
    silence = Silence(JobSaga.open(world, monkeypatch), url)
    silence.dispatch()
    return silence


def test_an_abandoned_job_is_reported_once_with_its_details(silence: Silence) -> None:
    record_dispatch_error(JOB_ID, "ConnectionError")
    silence.abandon()

    assert (silence.sweep().unanswered, silence.sweep().unanswered) == (1, 0)

    (entry,) = silence.entries
    assert entry == {
        "job_id": JOB_ID,
        "saga_id": SAGA_ID,
        "step": STEP,
        "execution": SAGA_ID,
        "found_at": NOW_MS + DUE_MS,
        "waiting_since": NOW_MS,
        "expected_at": NOW_MS + DUE_MS,
        "heartbeat_at": 0,
        "failed_dispatches": 1,
        "dispatch_error": "ConnectionError",
        "log_status": "TOMBSTONE",
        "first_attempt_at": NOW_MS,
        "accepted_at": 0,
        "record_status": "IN_PROGRESS",
        "log_table": "log",
        "request_table": "requests",
    }
    assert entry.keys() == set(UnansweredField)
    assert (silence.row["status"], silence.row["reported_unanswered_at"]) == ("WAITING", str(NOW_MS + DUE_MS))
    assert {TokenAttribute.DUE_AT, TokenAttribute.DUE_SHARD}.isdisjoint(silence.row)
    assert silence.job_saga.world.telemetry.counts[Metric.CALLBACK_UNANSWERED] == 1


def test_an_entry_and_its_log_events_contain_no_token(silence: Silence) -> None:
    silence.abandon()
    silence.sweep()

    assert "token-1" in json.dumps(silence.row)
    assert "token-1" not in json.dumps(silence.entries) + repr(silence.job_saga.world.telemetry.events)


def test_a_job_of_a_settled_or_deleted_saga_is_reported(silence: Silence) -> None:
    silence.job_saga.change_record(status=RecordStatus.FAILED)
    silence.job_saga.world.clock.ms += DUE_MS

    assert silence.sweep().unanswered == 1
    (entry,) = silence.entries
    assert (entry["log_status"], entry["record_status"]) == ("INTENT", "FAILED")


def test_a_job_whose_saga_still_waits_is_not_reported(silence: Silence) -> None:
    silence.job_saga.world.clock.ms += DUE_MS

    assert (silence.sweep().waiting, silence.entries) == (1, [])


def test_a_wait_without_a_job_is_not_reported(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    job_saga = JobSaga.open(world, monkeypatch, job=False)
    job_saga.register()
    job_saga.change_record(status=RecordStatus.FAILED)
    job_saga.world.clock.ms += DUE_MS

    assert sweep(remaining_ms=lambda: 60_000).unanswered == 0
    assert {TokenAttribute.DUE_AT, TokenAttribute.REPORTED_UNANSWERED_AT}.isdisjoint(job_saga.token)


@pytest.mark.parametrize("operation", ["SendMessage", "UpdateItem"])
@pytest.mark.parametrize("moment", [Moment.BEFORE, Moment.AFTER])
@pytest.mark.parametrize("action", [Action.KILL, Action.DROP])
def test_a_sweeper_that_dies_or_gets_no_response_reports_at_least_once(
    silence: Silence, operation: str, moment: Moment, action: Action
) -> None:
    silence.abandon()
    silence.job_saga.world.wire.plan(Fault(operation=operation, action=action, moment=moment, times=1))
    try:
        silence.sweep()
    except Killed:
        assert action is Action.KILL
    silence.sweep()

    assert 1 <= len(silence.entries) <= 2
    assert TokenAttribute.REPORTED_UNANSWERED_AT in silence.row
    assert silence.sweep().unanswered == 0
    assert silence.entries == []


def test_a_failed_send_is_retried_by_the_next_sweep(silence: Silence) -> None:
    silence.abandon()
    silence.job_saga.world.wire.plan(Fault(operation="SendMessage", action=Action.DROP, moment=Moment.BEFORE, times=3))

    assert silence.sweep().failed == 1
    assert TokenAttribute.REPORTED_UNANSWERED_AT not in silence.row
    assert silence.sweep().unanswered == 1


def test_a_queue_that_is_gone_keeps_no_sweep_busy(silence: Silence) -> None:
    silence.abandon()
    aws.sqs().delete_queue(QueueUrl=silence.url)

    assert (silence.sweep().failed, TokenAttribute.DUE_AT in silence.row) == (0, False)
    assert "operators_queue_missing" in repr(silence.job_saga.world.telemetry.events)


def test_two_sweepers_report_at_most_twice(silence: Silence, monkeypatch: pytest.MonkeyPatch) -> None:
    silence.abandon()
    _between(monkeypatch, silence.sweep)
    silence.sweep()

    assert len(silence.entries) == 2
    assert silence.sweep().unanswered == 0


def test_an_outcome_after_the_entry_is_delivered(silence: Silence) -> None:
    silence.abandon()
    silence.sweep()

    assert silence.job_saga.reports("e1") is Receipt.APPLIED_LATE
    assert (silence.row["status"], silence.job_saga.log and silence.job_saga.log.status) == (
        "UNDELIVERED",
        StepStatus.APPLIED_LATE,
    )
    assert silence.sweep().late == 1


def test_an_outcome_that_arrives_during_the_report_is_kept(silence: Silence, monkeypatch: pytest.MonkeyPatch) -> None:
    silence.abandon()
    _between(monkeypatch, lambda: silence.job_saga.reports("e1"))
    silence.sweep()

    assert silence.row["status"] == "UNDELIVERED"
    assert TokenAttribute.REPORTED_UNANSWERED_AT not in silence.row
    assert TokenAttribute.DUE_AT in silence.row


def test_a_heartbeat_after_the_entry_causes_no_second_entry(silence: Silence) -> None:
    silence.abandon()
    silence.sweep()
    row = read_token(JOB_ID)
    assert row is not None
    aws.dynamodb().update_item(**WRITES.heartbeat_update("tokens", row, silence.job_saga.world.clock.ms)["Update"])
    silence.job_saga.world.clock.ms += DUE_MS

    assert (silence.sweep().unanswered, TokenAttribute.DUE_AT in silence.row) == (0, False)


def test_a_newer_unanswered_attempt_is_reported_again(silence: Silence) -> None:
    silence.abandon()
    silence.sweep()
    assert len(silence.entries) == 1
    register(replace(silence.job_saga.waiting(silence.job_saga.enter()), dead_letters=silence.url))
    assert TokenAttribute.REPORTED_UNANSWERED_AT not in silence.row
    silence.job_saga.world.clock.ms += DUE_MS

    assert silence.sweep().unanswered == 1


def test_the_dispatcher_stores_the_queue_for_jobs_alone(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(Env.DEAD_LETTERS, "https://sqs.example/dead")
    picking = Picking(world, monkeypatch)
    assert picking.dispatch()

    assert picking.job_saga.token["dead_letter_queue_url"] == "https://sqs.example/dead"


def test_the_dispatcher_stores_no_queue_for_waits(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(Env.DEAD_LETTERS, "https://sqs.example/dead")
    picking = Picking(world, monkeypatch, job=False)
    assert picking.dispatch()

    assert TokenAttribute.DEAD_LETTER_QUEUE_URL not in picking.job_saga.token


def test_an_entry_that_is_moved_to_the_queue_of_jobs_is_dropped(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    picking = Picking(world, monkeypatch)
    entry = json.dumps({UNANSWERED_FIELD: {"job_id": JOB_ID}})

    assert picking.deliver(entry, picking.send()) == []
    assert "unanswered_entry_dropped" in repr(world.telemetry.events)
    assert (len(picking.warehouse.begun), picking.deliver('{"unanswered": 1, "token": "t"}')) == (1, [0])


def test_a_step_that_only_waits_drops_entries_too(world: World) -> None:
    handler = callback_step(lambda _: None)
    record = {
        "messageId": "m-1",
        "body": json.dumps({UNANSWERED_FIELD: {}}),
        "attributes": {"ApproximateReceiveCount": "1"},
    }

    assert handler({"Records": [record]}, Context(remaining_ms=9_000)) == {"batchItemFailures": []}


@pytest.mark.parametrize("body", [None, "", "[]", "{}", "unanswered", '{"unanswered":{},"saga_id":"s"}', "[" * 100_000])
def test_nothing_else_is_an_entry(body: object) -> None:
    assert not is_unanswered_entry(body)


def _between(monkeypatch: pytest.MonkeyPatch, act: Callable[[], object]) -> None:
    """Run an action once between the sweeper's read and its send."""
    send, pending = SWEEP.send_entry, [act]

    def after_act(*arguments: Any) -> None:
        if pending:
            pending.pop()()
        send(*arguments)

    monkeypatch.setattr(SWEEP, "send_entry", after_act)


def test_an_entry_is_sent_at_least_once(silence: Silence) -> None:
    silence.abandon()
    silence.job_saga.world.wire.plan(Fault(operation="SendMessage", action=Action.KILL, moment=Moment.BEFORE, times=1))
    with pytest.raises(Killed):
        silence.sweep()
    assert silence.sweep().unanswered == 1
