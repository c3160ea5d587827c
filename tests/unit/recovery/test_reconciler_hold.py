"""The switch under which a reconciler checks and measures, and changes nothing."""

from __future__ import annotations

from typing import Any

import pytest
from botocore.exceptions import ClientError

from handlers import reconciler as entry
from saga_runtime.callbacks.saga_writes import LATE_DAYS
from saga_runtime.protocol import Env, HoldAttribute, Look, LookField, Metric, RecordAttribute
from saga_runtime.recovery.hold import HOLD_KEY, KEPT_MS, hold_key
from saga_runtime.recovery.late_effects import late_name
from saga_runtime.shared import aws
from tests.unit.support.checked_stack import create_hold_table
from tests.unit.support.reconciled import SCENES, Watch, interrupted, late_job
from tests.unit.support.samples import DAY_MS, DUE_AFTER_MS, SAGA_ID
from tests.unit.support.wire import before
from tests.unit.support.world import Context, World

pytestmark = pytest.mark.exhaustive

SWITCH = "hold"


@pytest.fixture
def switch(monkeypatch: pytest.MonkeyPatch, world: World) -> None:
    """A switch that is off."""
    create_hold_table()
    monkeypatch.setenv(Env.HOLD_TABLE, SWITCH)


def hold(watch: Watch, saga_id: str | None = None) -> None:
    """Set the switch, as an operator does."""
    a = HoldAttribute
    item: Any = {**hold_key(saga_id), a.SINCE: {"N": str(watch.world.clock.ms)}, a.REASON: {"S": "restore"}}
    aws.dynamodb().put_item(TableName=SWITCH, Item=item)


def release(saga_id: str | None = None) -> None:
    """Reset it."""
    aws.dynamodb().delete_item(TableName=SWITCH, Key=hold_key(saga_id))


def _state(watch: Watch) -> tuple[Any, ...]:
    """Everything that is stored, except until when the rows of an old saga are kept."""
    records, log, executions = watch.operated.state
    kept = [{name: value for name, value in item.items() if name != RecordAttribute.LOG_EXPIRES_AT} for item in records]
    return kept, log, executions, watch.world.items("tokens")


HELD_SCENES = ["never started", "interrupted", "running", "exhausted", "history gone", "parked", "late", "unsettled"]


@pytest.mark.usefixtures("switch")
@pytest.mark.parametrize("scene", HELD_SCENES)
def test_held_reconciler_changes_nothing(watch: Watch, scene: str) -> None:
    prepare, _ = SCENES[scene]
    prepare(watch)
    hold(watch)
    state = _state(watch)

    done = watch.sweep()
    calls = watch.world.calls_of(watch.sweep)

    assert _state(watch) == state
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


# One saga


@pytest.mark.usefixtures("switch")
@pytest.mark.parametrize("scene", ["never started", "interrupted", "exhausted", "history gone", "late", "unsettled"])
def test_held_saga_is_left_alone(watch: Watch, scene: str) -> None:
    SCENES[scene][0](watch)
    hold(watch, SAGA_ID)
    state = _state(watch)

    watch.sweep()
    assert watch.ended(SAGA_ID) == []

    assert _state(watch) == state
    assert watch.notified == []
    assert watch.world.telemetry.measured[Metric.HOLD_AGE] == 0

    release(SAGA_ID)
    watch.sweep()
    assert _state(watch) != state


@pytest.mark.usefixtures("switch")
def test_held_saga_keeps_what_its_late_effect_is_compensated_with(watch: Watch) -> None:
    SCENES["late"][0](watch)
    hold(watch, SAGA_ID)
    for day in range(1, 31):
        watch.pass_time(DAY_MS)
        watch.sweep()
        entry.handler({LookField.LOOK: Look.IN_FLIGHT}, Context(remaining_ms=60_000))
        assert watch.counted(Metric.LATE_STANDS) == day
    assert set(watch.executions) == {SAGA_ID}
    assert watch.record.input

    release(SAGA_ID)
    watch.sweep()

    assert set(watch.executions) == {SAGA_ID, f"{SAGA_ID}-l1"}


@pytest.mark.usefixtures("switch")
def test_hold_of_another_saga_holds_nothing(watch: Watch) -> None:
    interrupted(watch)
    hold(watch, "another")

    assert watch.sweep()["taken_over"] == 1


@pytest.mark.usefixtures("switch")
def test_hold_of_a_saga_is_read_before_each_action_only(watch: Watch) -> None:
    watch.pass_time()
    assert "UpdateItem" in (calls := watch.world.calls_of(watch.sweep))
    assert calls.count("GetItem") == 2  # the switch of all, and the record

    watch.dies()
    hold(watch, SAGA_ID)
    assert watch.ended(SAGA_ID) == []
    release(SAGA_ID)
    assert watch.ended(SAGA_ID) == []

    assert watch.record.recoveries == 1


@pytest.mark.usefixtures("switch")
def test_a_late_effect_is_compensated_after_a_long_hold(watch: Watch) -> None:
    """Whichever comes first afterwards: the check, or the removal of expired responses."""
    watch.settle()
    watch.update(response_shard={"S": "00"})
    late_job(watch)
    hold(watch)
    for _ in range(2 * LATE_DAYS):
        watch.pass_time(DAY_MS)
        watch.sweep()
    release()
    watch.pass_time(KEPT_MS)

    entry.handler({LookField.LOOK: Look.IN_FLIGHT}, Context(remaining_ms=60_000))
    watch.sweep()

    assert not watch.record.tombstone
    assert late_name(SAGA_ID, 1) in watch.executions
