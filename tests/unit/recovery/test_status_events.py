"""Status events of executions: the sagas that they lead to, and those whose record is gone."""

from __future__ import annotations

import json
from typing import Any

import pytest

from saga_runtime.protocol import (
    Metric,
)
from saga_runtime.recovery.late_effects import late_name
from saga_runtime.recovery.takeover import recovery_name
from saga_runtime.shared import aws
from tests.unit.support.reconciled import POISON, R1, R2, A, Watch, deliver, record_is_gone
from tests.unit.support.samples import REQUEST_ID, SAGA_ID
from tests.unit.support.wire import Action, Fault

pytestmark = pytest.mark.exhaustive


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


@pytest.mark.parametrize("name", [SAGA_ID, R1, recovery_name(SAGA_ID, 12)])
def test_a_failed_execution_without_a_record_is_reported(watch: Watch, name: str) -> None:
    record_is_gone(watch)

    assert watch.ended(name) == []
    assert watch.counted(Metric.RECORD_MISSING) == 1
    assert ("request_record_missing", {"saga_id": SAGA_ID, "execution": name}) in watch.world.telemetry.events
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
