"""Sweeps among other reconcilers, and under refusals, throttles, lagging indexes and unreadable records."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from itertools import product
from typing import Any

import pytest
from botocore.exceptions import ClientError

from saga_runtime.protocol import (
    Env,
    Metric,
)
from saga_runtime.recovery.reconciler import Served, served_of
from saga_runtime.recovery.sweep import ATTEMPTS, SPARE_MS, Threads
from saga_runtime.shared import aws
from tests.unit.support.reconciled import (
    CARETAKER,
    POISON,
    R1,
    RECONCILER,
    SHARD,
    SHARDS,
    A,
    Watch,
    interrupted,
    record_is_gone,
)
from tests.unit.support.samples import DAY_MS, DUE_AFTER_MS, NOW_MS, REQUEST_ID, SAGA_ID
from tests.unit.support.wire import Action, Fault

pytestmark = pytest.mark.exhaustive


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
