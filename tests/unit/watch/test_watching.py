"""Hand-written state machines: failures are found and notified despite crashes, duplicates and redrives."""

from __future__ import annotations

import json
import random
from collections.abc import Iterator
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

import pytest

from saga_runtime.protocol import WATCH_DUE_SHARDS, FailedStatus, FailureEventField, Metric, WatchAttribute, WatchStatus
from saga_runtime.shared import aws
from saga_runtime.watch.decisions import (
    FIRST_MS,
    LIST_MS,
    OVERLAP_MS,
    PAUSE_MS,
    QUEUED_MS,
    WHOLE_MS,
    Execution,
    Need,
    decide,
    pause_after,
)
from saga_runtime.watch.rows import EndRow, Watched, end_id, list_id, watched_of
from saga_runtime.watch.sweep import SWEEP_MS
from saga_runtime.watch.watcher import BACKOFF, SPARE_MS
from tests.unit.support.samples import DAY_MS, NOW_MS
from tests.unit.support.watched import ATTEMPTS, FUNCTION, GRACE_MS, LEASE_MS, MACHINE, Watch, watch_in
from tests.unit.support.wire import Action, Fault, Moment, before
from tests.unit.support.world import Context, World

A = WatchAttribute


@pytest.fixture
def watch(world: World, monkeypatch: pytest.MonkeyPatch) -> Iterator[Watch]:
    """A machine without executions, watched."""
    with watch_in(world, monkeypatch) as made:
        yield made


# What is decided.

WATCHED = Watched(
    machine=MACHINE,
    function=FUNCTION,
    ends=frozenset({FailedStatus.TIMED_OUT}),
    grace_ms=GRACE_MS,
    lease_ms=LEASE_MS,
    attempts=ATTEMPTS,
)
ROW = EndRow(id=end_id("e", 1), status=WatchStatus.PENDING, end=FailedStatus.TIMED_OUT, stopped_at=NOW_MS)


def execution(status: str, redrives: int = 1) -> Execution:
    return Execution(arn="e", status=status, redrives=redrives, started_at=0, stopped_at=NOW_MS)


DECISIONS: list[tuple[Execution | None, dict[str, Any], int, Need]] = [
    (execution("TIMED_OUT"), {}, 0, Need.TELL),
    (execution("TIMED_OUT"), {"attempt": ATTEMPTS - 1}, 0, Need.TELL),
    (execution("TIMED_OUT"), {"attempt": ATTEMPTS}, 0, Need.STUCK),
    (execution("FAILED"), {}, 0, Need.OVER),
    (execution("SUCCEEDED"), {}, 0, Need.OVER),
    (execution("SUCCEEDED", 2), {"attempt": ATTEMPTS}, 0, Need.OVER),
    (execution("RUNNING", 2), {"attempt": ATTEMPTS}, 0, Need.LATER),
    (execution("PENDING_REDRIVE"), {}, 0, Need.LATER),
    (execution("TIMED_OUT", 2), {"attempt": ATTEMPTS}, 0, Need.FOLLOW),
    (execution("FAILED", 2), {}, 0, Need.FOLLOW),
    (execution("TIMED_OUT", 0), {"attempt": ATTEMPTS}, 0, Need.LATER),
    (replace(execution("TIMED_OUT"), started_at=NOW_MS), {}, DAY_MS, Need.TELL),
    (replace(execution("TIMED_OUT"), started_at=NOW_MS + 1), {}, DAY_MS - 1, Need.LATER),
    (replace(execution("TIMED_OUT"), started_at=NOW_MS + 1), {}, DAY_MS, Need.STUCK),
    (replace(execution("RUNNING", 2), started_at=NOW_MS + 1), {}, DAY_MS, Need.STUCK),
    (None, {}, DAY_MS - 1, Need.LATER),
    (None, {}, DAY_MS, Need.STUCK),
]


@pytest.mark.parametrize(("found", "fields", "later_ms", "need"), DECISIONS)
def test_the_action_follows_from_the_executions_status(
    found: Execution | None, fields: dict[str, Any], later_ms: int, need: Need
) -> None:
    assert decide(replace(ROW, **fields), found, WATCHED, NOW_MS + later_ms) is need


def test_every_need_arises() -> None:
    assert {need for *_, need in DECISIONS} == set(Need)


def test_pauses_double_up_to_a_quarter_of_an_hour() -> None:
    assert [pause_after(n) for n in (1, 2, 3, 5, 1_000)] == [60_000, 120_000, 240_000, 900_000, 900_000]
    with pytest.raises(ValueError, match="numbered from 1, got 0"):
        pause_after(0)


def test_its_settings_are_read_back() -> None:
    settings = {
        "machine": MACHINE,
        "function": FUNCTION,
        "ends": ["TIMED_OUT"],
        "grace": 900,
        "lease": 90,
        "attempts": 3,
    }

    assert watched_of(json.dumps([settings])) == (WATCHED,)


def test_a_time_of_step_functions_is_read_to_the_millisecond() -> None:
    moment = datetime(2026, 11, 21, 10, 0, 0, 123_000, tzinfo=UTC)
    said = {"executionArn": "e", "status": "RUNNING", "startDate": moment}

    assert Execution.of(said) == Execution(
        arn="e", status="RUNNING", redrives=0, started_at=int(moment.timestamp()) * 1_000 + 123, stopped_at=0
    )


# Findings and notifications.


def notified(watch: Watch) -> list[tuple[int, str]]:
    """Notified ends, with their times."""
    return [(call.at, call.event[FailureEventField.ID]) for call in watch.calls]


def test_a_timed_out_execution_is_listed_and_notified_after_the_grace(watch: Watch) -> None:
    run = watch.starts(input='{"order": 7.50}')
    watch.pass_time(60_000)
    watch.ends()

    watch.sweep()
    watch.pass_time(GRACE_MS - 1)
    watch.sweep()
    assert (watch.work(), watch.calls) == (0, [])
    watch.pass_time(1)
    watch.sweep()
    watch.work()

    (call,) = watch.calls
    assert call.event == {
        "id": f"{run.arn}#0",
        "execution_arn": run.arn,
        "name": "run",
        "state_machine_arn": MACHINE,
        "status": "TIMED_OUT",
        "error": None,
        "cause": None,
        "input": '{"order": 7.50}',
        "started_at": NOW_MS,
        "stopped_at": NOW_MS + 60_000,
        "redrive_count": 0,
        "attempt": 1,
    }
    assert set(call.event) == set(FailureEventField)
    assert watch.row().status is WatchStatus.NOTIFIED
    assert (watch.counted(Metric.BAD_ENDS), watch.counted(Metric.BAD_ENDS_TOLD)) == (1, 1)


def test_a_stopped_execution_is_notified_with_its_error_and_cause(watch: Watch) -> None:
    watch.ends(status="ABORTED")
    watch.proceed(3)

    (call,) = watch.calls
    assert (call.event["status"], call.event["error"], call.event["cause"]) == ("ABORTED", "E", "C")


def test_a_notified_end_is_kept_longer_than_it_is_listed_and_not_due(watch: Watch) -> None:
    run = watch.ends()
    watch.proceed(3)
    item = watch.items[run.id]

    kept = int(item[A.EXPIRATION]["N"]) * 1_000 - run.stopped
    assert kept > 100 * DAY_MS
    assert not {A.DUE_AT, A.DUE_SHARD, A.NOT_BEFORE} & {*item}


@pytest.mark.parametrize("earlier", [[], ["Broken"] * ATTEMPTS], ids=["notified", "left to an operator"])
def test_an_execution_with_a_reused_name_is_notified(watch: Watch, earlier: list[str]) -> None:
    """Names are free again 90 days after an execution's end, while the row of that end still exists."""
    watch.answers = list(earlier)
    first = watch.ends()
    watch.proceed()
    calls = len(watch.calls)
    del watch.machine.runs["run"]
    watch.pass_time(91 * DAY_MS)
    second = watch.starts()
    watch.pass_time(60_000)
    watch.ends()
    watch.proceed(3)

    assert second.id == first.id in watch.rows
    assert (len(watch.calls), watch.calls[-1].event["started_at"]) == (calls + 1, second.started)
    assert watch.row() == replace(watch.row(), status=WatchStatus.NOTIFIED, stopped_at=second.stopped, attempt=1)


def test_running_succeeded_and_unselected_executions_are_left_alone(watch: Watch) -> None:
    watch.starts("runs")
    watch.ends("good", "SUCCEEDED")
    watch.ends("failed", "FAILED")
    assert watch.event("runs", "good", "failed") == []
    watch.proceed(3)

    assert (watch.calls, watch.rows) == ([], {})


def test_failures_are_notified_if_selected(watch: Watch) -> None:
    watch.watches(ends=["FAILED"])
    watch.ends("failed", "FAILED")
    watch.ends("slow")
    watch.proceed(3)

    assert [call.event["name"] for call in watch.calls] == ["failed"]


def test_a_status_event_notifies_at_once_and_five_of_them_only_once(watch: Watch) -> None:
    run = watch.ends()

    assert watch.event(*["run"] * 5) == []

    assert set(watch.rows) == {run.id}
    assert watch.row().not_before == run.stopped + GRACE_MS
    watch.proceed(4)
    assert watch.event("run") == []
    watch.proceed(2)
    assert len(watch.calls) == 1


def test_without_a_grace_an_end_is_notified_when_it_is_found(watch: Watch) -> None:
    watch.watches(grace=0)
    run = watch.ends()
    watch.event("run")
    watch.sweep()
    watch.work()

    assert notified(watch) == [(run.stopped, run.id)]


def test_a_response_without_a_time_does_not_end_the_grace(watch: Watch) -> None:
    watch.ends().stopped = 0
    watch.event("run")
    watch.event("run")

    row = watch.row()
    assert (row.stopped_at, row.not_before) == (watch.now, watch.now + GRACE_MS)
    assert watch.counted(Metric.BAD_ENDS) == 1


def test_an_event_that_is_ahead_of_step_functions_changes_nothing(watch: Watch) -> None:
    watch.starts()

    assert watch.event("run") == []
    assert watch.rows == {}
    watch.ends()
    watch.proceed(3)
    assert len(watch.calls) == 1


def test_events_of_unknown_machines_and_executions_are_ignored(watch: Watch) -> None:
    other = json.dumps({"detail": {"stateMachineArn": f"{MACHINE}OfSomebodyElse", "name": "run"}})

    assert watch.deliver(other) == []
    assert watch.deliver(json.dumps({"detail": {"stateMachineArn": MACHINE, "name": "gone"}})) == []
    assert (watch.rows, [name for name, _ in watch.world.telemetry.events]) == ({}, ["unknown_execution"] * 2)


def test_an_unreadable_message_is_redelivered_and_blocks_no_other(watch: Watch) -> None:
    watch.ends()
    good = json.dumps({"detail": {"stateMachineArn": MACHINE, "name": "run"}})
    bad = json.dumps({"detail": {"stateMachineArn": "no arn", "name": "run"}})

    failed = watch.deliver("no json", "[]", "{}", '{"detail": {}}', bad, good)

    assert failed == ["m0", "m1", "m2", "m3", "m4"]
    assert len(watch.rows) == 1


# Functions that fail.


def test_a_function_that_fails_is_called_again_ever_later_under_the_same_id(watch: Watch) -> None:
    watch.watches(attempts=10)
    run = watch.ends()
    watch.answers = ["Broken", "TooManyRequestsException"]
    watch.sweep()
    watch.pass_time(GRACE_MS)
    for _ in range(60):
        watch.sweep()
        watch.work()
        watch.pass_time(10_000)

    began = run.stopped + GRACE_MS
    assert notified(watch) == [(began, run.id), (began + PAUSE_MS, run.id), (began + 3 * PAUSE_MS, run.id)]
    assert [call.event["attempt"] for call in watch.calls] == [1, 2, 3]
    assert watch.row().status is WatchStatus.NOTIFIED
    failures = [fields for name, fields in watch.world.telemetry.events if name == "notification_failed"]
    assert [fields["error"] for fields in failures] == ["Broken", "TooManyRequestsException"]


def test_only_the_name_of_a_functions_error_is_kept(watch: Watch) -> None:
    watch.ends()
    watch.answers = ["Broken"]
    watch.sweep()
    watch.pass_time(GRACE_MS)
    watch.sweep()
    watch.work()

    assert watch.row().error == "Broken"
    assert "secret" not in str(watch.items) + str(watch.world.telemetry.events)


def test_a_function_of_which_nothing_is_heard_is_not_called_again_while_it_may_be_at_it(watch: Watch) -> None:
    run = watch.ends()
    watch.world.wire.plan(Fault(operation="Invoke", action=Action.DROP, moment=Moment.AFTER, times=1))
    watch.sweep()
    watch.pass_time(GRACE_MS)
    for _ in range(30):
        watch.sweep()
        watch.work()
        watch.pass_time(10_000)

    began = run.stopped + GRACE_MS
    assert notified(watch) == [(began, run.id), (began + LEASE_MS, run.id)]


@pytest.mark.parametrize(("status", "waits"), [(429, PAUSE_MS), (404, PAUSE_MS), (500, LEASE_MS), (503, LEASE_MS)])
def test_a_call_that_failed_on_lambdas_side_may_have_begun_and_a_refused_one_has_not(
    watch: Watch, status: int, waits: int
) -> None:
    watch.ends()
    watch.sweep()
    watch.pass_time(GRACE_MS)
    watch.sweep()
    watch.answers = [str(status)]
    watch.work()

    row = watch.row()
    assert (row.status, row.not_before - watch.now) == (WatchStatus.PENDING, waits)


def test_a_notification_is_recorded_despite_a_throttled_table(watch: Watch) -> None:
    watch.ends()
    watch.sweep()
    watch.pass_time(GRACE_MS)
    watch.sweep()
    throttled = Fault(operation="UpdateItem", action=Action.THROTTLE, times=4)
    watch.meanwhile = [lambda: watch.world.wire.plan(throttled)]
    watch.work()

    assert (len(watch.calls), watch.row().status) == (1, WatchStatus.NOTIFIED)
    assert watch.counted(Metric.BAD_ENDS_TOLD) == 1


def test_a_permanently_failing_function_is_dead_lettered_and_redrivable(watch: Watch) -> None:
    run = watch.ends()
    watch.answers = ["Broken"] * ATTEMPTS
    watch.proceed()

    (letter,) = watch.letters
    assert letter == {
        "execution": {"id": run.id, "execution_status": "TIMED_OUT", "attempt": ATTEMPTS, "error": "Broken"}
    }
    assert (watch.row().status, len(watch.calls)) == (WatchStatus.DEAD_LETTERED, ATTEMPTS)
    assert A.EXPIRATION not in watch.items[run.id]
    assert watch.counted(Metric.BAD_ENDS_STUCK) == 1

    assert watch.deliver(json.dumps(letter)) == []
    watch.proceed(2)

    assert (watch.row().status, watch.calls[-1].event["attempt"]) == (WatchStatus.NOTIFIED, 1)


def test_how_long_an_end_has_been_overdue_is_measured(watch: Watch) -> None:
    watch.ends()
    watch.sweep()
    assert watch.world.telemetry.measured[Metric.OLDEST_BAD_END] == 0
    watch.pass_time(GRACE_MS + 3_600_000)
    watch.sweep()

    assert watch.world.telemetry.measured[Metric.OLDEST_BAD_END] == 3_600


def test_an_incomplete_sweep_reports_no_age(watch: Watch) -> None:
    for number in range(9):
        watch.ends(f"run{number}")
    watch.sweep()
    watch.pass_time(GRACE_MS + LIST_MS)
    watch.world.telemetry.measured.clear()
    context = Context(remaining_ms=120_000)
    before(watch.world.wire, "SendMessage", lambda: setattr(context, "remaining_ms", 0), on=3)

    looked = watch.sweep(context)

    assert (looked["queued"], looked["complete"]) == (3, False)
    assert Metric.OLDEST_BAD_END not in watch.world.telemetry.measured  # silence is alarming


def test_a_redriven_end_is_not_overdue(watch: Watch) -> None:
    """It runs for as long as it may: a year."""
    watch.ends()
    watch.sweep()
    watch.redrives()
    watch.proceed(2)
    watch.pass_time(DAY_MS)
    looked = watch.sweep()

    assert (looked["queued"], watch.world.telemetry.measured[Metric.OLDEST_BAD_END]) == (1, 0)


def test_everything_that_is_due_is_processed_on_any_number_of_pages(watch: Watch) -> None:
    watch.monkeypatch.setattr("saga_runtime.watch.rows.WATCH_DUE_SHARDS", 1)
    for number in range(5):
        watch.ends(f"run{number}")
    watch.sweep()
    watch.pass_time(GRACE_MS)
    events = aws.dynamodb().meta.events
    query = "provide-client-params.dynamodb.Query"
    events.register(query, lambda params, **_: params.update(Limit=2), unique_id="pages")
    looked = watch.sweep()
    events.unregister(query, unique_id="pages")

    assert looked["queued"] == 5


def test_a_complete_sweep_reports_so_despite_long_lists(watch: Watch) -> None:
    watch.ends()
    watch.sweep()
    watch.pass_time(GRACE_MS + LIST_MS)
    context = Context(remaining_ms=120_000)
    watch.machine.listed = lambda: setattr(context, "remaining_ms", 0)

    assert watch.sweep(context)["complete"] is False
    assert watch.world.telemetry.measured[Metric.OLDEST_BAD_END] == LIST_MS // 1_000


@pytest.mark.parametrize("minutes", [1, 4, 60])
def test_no_shard_is_always_the_first_one_however_rare_looks_are(watch: Watch, minutes: int) -> None:
    random.seed(1)
    first: set[str] = set()
    client: Any = aws.dynamodb()
    for _ in range(40):
        shards: list[str] = []
        client.meta.events.register(
            "provide-client-params.dynamodb.Query",
            lambda params, seen=shards, **_: seen.append(params["ExpressionAttributeValues"][":shard"]["S"]),
            unique_id="shards",
        )
        watch.sweep()
        client.meta.events.unregister("provide-client-params.dynamodb.Query", unique_id="shards")
        assert sorted(shards) == [f"{number:02d}" for number in range(WATCH_DUE_SHARDS)]
        first.add(shards[0])
        watch.pass_time(minutes * 60_000)

    assert len(first) == WATCH_DUE_SHARDS


# Redriven by a person.


def test_a_redrive_within_the_grace_that_succeeds_is_not_notified(watch: Watch) -> None:
    run = watch.ends()
    watch.sweep()
    watch.redrives()
    watch.proceed(2)
    assert watch.rows[end_id(run.arn, 0)].redriven
    assert watch.world.telemetry.measured[Metric.OLDEST_BAD_END] == 0
    watch.ends(status="SUCCEEDED")
    watch.proceed(3)

    assert (watch.calls, watch.rows[end_id(run.arn, 0)].status) == ([], WatchStatus.SUPERSEDED)


def test_a_second_failure_after_a_redrive_is_notified_after_its_own_grace(
    watch: Watch,
) -> None:
    watch.ends()
    watch.sweep()
    run = watch.redrives()
    watch.proceed(2)
    watch.ends()
    ended = watch.now
    watch.proceed(4)

    (call,) = watch.calls
    assert (call.event["id"], call.event["redrive_count"]) == (end_id(run.arn, 1), 1)
    assert call.at >= ended + GRACE_MS
    assert [row.status for row in watch.rows.values()] == [WatchStatus.SUPERSEDED, WatchStatus.NOTIFIED]


def test_a_failure_after_a_redrive_is_kept_by_its_first_finder(watch: Watch) -> None:
    run = watch.ends()
    watch.sweep()
    watch.redrives()
    watch.ends()
    watch.monkeypatch.setattr("saga_runtime.watch.sweep.Sweep._read_list", lambda *_: None)
    watch.proceed(3)

    assert watch.rows[end_id(run.arn, 0)].status is WatchStatus.SUPERSEDED
    assert [call.event[FailureEventField.ID] for call in watch.calls] == [end_id(run.arn, 1)]


def test_an_end_after_a_redrive_is_notified_in_addition_to_the_first(watch: Watch) -> None:
    watch.ends()
    watch.proceed(3)
    watch.redrives()
    watch.ends()
    watch.proceed(3)

    assert [call.event["redrive_count"] for call in watch.calls] == [0, 1]


def test_a_stale_response_is_requested_again_soon_and_is_not_a_redrive(watch: Watch) -> None:
    run = watch.ends()
    watch.sweep()
    watch.pass_time(GRACE_MS)
    run.status = "RUNNING"
    watch.deliver(json.dumps({"due": run.id}))
    assert (watch.row().redriven, watch.row().not_before) == (False, watch.now + PAUSE_MS)
    run.status = "TIMED_OUT"
    watch.pass_time(PAUSE_MS)
    watch.deliver(json.dumps({"due": run.id}))

    assert len(watch.calls) == 1


def test_an_unknown_execution_needs_an_operator_after_a_day(watch: Watch) -> None:
    watch.ends()
    watch.sweep()
    watch.machine.runs.clear()
    watch.pass_time(GRACE_MS)
    watch.proceed(2)
    assert watch.letters == []
    watch.pass_time(DAY_MS)
    watch.proceed(1)

    assert (len(watch.letters), watch.calls) == (1, [])


# Lists.


def test_ends_before_the_first_sweep_are_notified_for_about_an_hour(watch: Watch) -> None:
    watch.ends("new", ago_ms=FIRST_MS)
    watch.ends("old", ago_ms=FIRST_MS + OVERLAP_MS + 1)
    watch.proceed(3)

    assert [call.event["name"] for call in watch.calls] == ["new"]


def test_lists_are_read_every_five_minutes(watch: Watch) -> None:
    watch.sweep()
    watch.pass_time(LIST_MS - 1)
    assert "ListExecutions" not in watch.world.calls_of(watch.sweep)
    watch.pass_time(1)
    assert watch.world.calls_of(watch.sweep).count("ListExecutions") == 2


def test_an_execution_that_was_started_long_ago_is_found_when_it_ends(watch: Watch) -> None:
    watch.sweep()
    watch.pass_time(LIST_MS)
    for number in range(25):
        watch.ends(f"fast{number}", ago_ms=10 * 60_000)
    watch.starts("slow", ago_ms=80 * DAY_MS)
    watch.ends("slow")
    watch.sweep()

    assert watch.row("slow").end is FailedStatus.TIMED_OUT


def test_a_list_is_read_until_a_whole_page_is_older_than_what_is_known(watch: Watch) -> None:
    watch.sweep()
    for number in range(40):
        watch.ends(f"old{number}", ago_ms=DAY_MS)
    watch.pass_time(LIST_MS)
    watch.ends("new")
    watch.machine.page = 5

    assert (watch.sweep()["listed"], len(watch.rows)) == (10, 1)


def test_a_list_is_read_back_to_the_last_sweep(watch: Watch) -> None:
    watch.sweep()
    watch.pass_time(30 * DAY_MS)
    watch.machine.page = 1
    for days in range(30):
        watch.ends(f"run{days}", ago_ms=days * DAY_MS)
    watch.sweep()

    assert len(watch.rows) == 30


def test_a_delayed_or_unordered_list_is_read_to_its_end_once_a_day(watch: Watch) -> None:
    watch.machine.order = lambda run: run.started
    watch.machine.page = 5
    watch.sweep()
    watch.pass_time(LIST_MS)
    for number in range(20):
        watch.ends(f"fast{number}", ago_ms=FIRST_MS + DAY_MS)
    watch.starts("slow", ago_ms=80 * DAY_MS)
    watch.ends("slow")
    watch.sweep()
    assert watch.rows == {}
    for _ in range(2):
        watch.pass_time(WHOLE_MS)
        watch.sweep()

    assert {row.execution_arn for row in watch.rows.values()} == {watch.machine.runs["slow"].arn}
    assert watch.list_of().verified_until == watch.now


def test_a_list_that_is_too_long_for_a_sweep_is_read_on_by_the_next_one(watch: Watch) -> None:
    for number in range(25):
        watch.ends(f"run{number:02d}")
    watch.machine.page = 10
    context = Context()
    watch.machine.listed = lambda: setattr(context, "remaining_ms", 0)

    looks = []
    for _ in range(4):
        context.remaining_ms = 120_000
        looks.append(watch.sweep(context))

    assert [look["complete"] for look in looks] == [False, False, False, True]
    assert [look["found"] for look in looks] == [0, 10, 10, 5]  # no execution was stopped


def test_an_empty_page_does_not_end_a_list(watch: Watch) -> None:
    watch.sweep()
    watch.pass_time(LIST_MS)
    run = watch.ends()
    watch.machine.begins_empty = True
    watch.sweep()

    assert run.id in watch.rows


def test_an_expired_list_token_restarts_the_list(watch: Watch) -> None:
    for number in range(25):
        watch.ends(f"run{number:02d}")
    watch.machine.page = 10
    watch.machine.tokens_expire = True
    watch.sweep()
    assert (len(watch.rows), watch.list_of().page_token) == (10, None)
    watch.machine.tokens_expire = False
    watch.sweep()

    assert len(watch.rows) == 25


# Time, and trouble.


def test_a_sweep_ends_before_the_next_one_begins_however_long_its_function_lives(watch: Watch) -> None:
    watch.ends()

    assert watch.sweep(Context(remaining_ms=900_000))["complete"] is True
    assert watch.sweep(Context(remaining_ms=SPARE_MS - 1))["complete"] is False
    watch.pass_time(LIST_MS)
    long = Context(remaining_ms=900_000)
    watch.machine.listed = lambda: setattr(long, "remaining_ms", 900_000 - SWEEP_MS + SPARE_MS - 1)
    assert watch.sweep(long)["complete"] is False
    assert SWEEP_MS < 60_000


def test_a_queued_message_is_sent_again_only_after_a_while(watch: Watch) -> None:
    watch.ends()
    watch.sweep()
    watch.pass_time(GRACE_MS)

    assert [watch.sweep()["queued"] for _ in range(2)] == [1, 0]
    watch.pass_time(QUEUED_MS)
    assert watch.sweep()["queued"] == 1
    assert watch.work() == 2
    assert len(watch.calls) == 1


def test_ends_of_a_machine_that_is_not_watched_any_more_are_left_alone(watch: Watch) -> None:
    watch.ends()
    watch.sweep()
    watch.watches(machine=f"{MACHINE}OfSomebodyElse")
    watch.pass_time(GRACE_MS)
    kept = watch.row()

    watch.monkeypatch.setattr("saga_runtime.watch.sweep.Sweep._read_list", lambda *_: None)
    assert (watch.sweep()["foreign"], watch.work()) == (1, 0)
    watch.deliver(json.dumps({"due": kept.id}))
    assert watch.row() == replace(kept, due_at=watch.now + QUEUED_MS)


@pytest.mark.parametrize("operation", ["ListExecutions", "DescribeExecution", "SendMessage", "PutItem"])
def test_throttling_backs_off(watch: Watch, operation: str) -> None:
    watch.ends()
    watch.world.wire.plan(Fault(operation=operation, action=Action.THROTTLE, times=6))
    watch.proceed(3)

    assert len(watch.calls) == 1
    assert watch.world.naps


def test_a_row_that_cannot_be_read_blocks_no_other(watch: Watch) -> None:
    for name in ("one", "two", "three"):
        watch.ends(name)
    watch.sweep()
    watch.pass_time(GRACE_MS)
    broken = watch.row("two").id
    aws.dynamodb().put_item(TableName="watch", Item={**watch.items[broken], A.STATUS: {"M": {}}})

    looked = watch.sweep()

    assert (looked["queued"], looked["failed"], looked["complete"]) == (2, 1, True)
    one, two = watch.machine.runs["one"].id, json.dumps({"due": broken})
    assert watch.deliver(two, json.dumps({"due": one})) == ["m0"]
    assert len(watch.calls) == 1


def test_a_list_row_that_cannot_be_read_blocks_no_due_end_and_no_other_list(watch: Watch) -> None:
    watch.sweep()
    broken = list_id(MACHINE, FailedStatus.TIMED_OUT)
    aws.dynamodb().put_item(TableName="watch", Item={A.ID: {"S": broken}})
    watch.pass_time(LIST_MS)
    watch.ends(status="ABORTED")

    looked = watch.sweep()

    assert (looked["found"], looked["failed"]) == (1, 1)


def test_a_failing_list_blocks_no_other(watch: Watch) -> None:
    watch.ends("run", "TIMED_OUT")
    fault = Fault(operation="ListExecutions", action=Action.THROTTLE, times=3 * BACKOFF.attempts)
    watch.world.wire.plan(fault)

    looked = watch.sweep()

    assert (looked["failed"], looked["found"]) == (1, 1)
    assert Metric.OLDEST_BAD_END not in watch.world.telemetry.measured  # silence is alarming
