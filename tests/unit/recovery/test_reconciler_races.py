"""Changes by another writer between a reconciler's read and its write.

The conditions that these histories need:

* a record is rescheduled only if it was not made due again since it was read;
* a settled record is cleared only if it was not made due again;
* a saga is parked only if it is not parked, and if no unknown callback has decided a step;
* a saga is parked only if it is still in progress, and has the same owner;
* a row is kept for longer only if it exists, and its expiration is unchanged;
* the operators are notified before the record is parked;
* a recovery that died is followed by the next one when its record is due, and not before.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from saga_runtime.protocol import (
    LogAttribute,
    Metric,
    StepStatus,
    TokenAttribute,
)
from saga_runtime.recovery.sweep import ATTEMPTS
from saga_runtime.recovery.takeover import recovery_name
from saga_runtime.saga_log.rows import log_key
from saga_runtime.shared import aws
from tests.unit.support.reconciled import (
    LIMIT,
    LOOKING,
    R1,
    R2,
    RECONCILIATION,
    SCENES,
    A,
    Watch,
    exhausted,
    history_gone,
    interrupted,
    late_job,
    put_row,
    record_is_gone,
    running,
    settled,
)
from tests.unit.support.samples import DAY_MS, REQUEST_ID, SAGA_ID
from tests.unit.support.wire import Action, Fault, Killed, Moment, before, body_of

pytestmark = pytest.mark.exhaustive


def another_one_took_it_over_and_died(watch: Watch) -> None:
    watch.update(owner={"S": R1}, recoveries={"N": "1"})


def another_one_took_it_over_twice(watch: Watch) -> None:
    watch.update(owner={"S": R2}, recoveries={"N": "2"})


def another_one_took_it_over_and_it_settled(watch: Watch) -> None:
    watch.update(owner={"S": R1}, recoveries={"N": "1"})
    watch.settle()


def another_one_took_it_over_and_it_was_parked(watch: Watch) -> None:
    watch.update(owner={"S": R1}, recoveries={"N": "1"}, parked_by={"S": R1}, parked_reason={"S": "{}"})


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
    before(watch.world.wire, "SendMessage", lambda: watch.update(late_outcome_at={"N": "1"}))
    watch.sweep()
    assert watch.record.parked_by is None

    watch.sweep()

    assert recovery_name(SAGA_ID, LIMIT + 1) in watch.executions
    assert A.LATE_OUTCOME_AT not in watch.item


def test_a_saga_parked_meanwhile_keeps_its_reason(watch: Watch) -> None:
    exhausted(watch)
    before(watch.world.wire, "SendMessage", watch.operated.park)
    watch.sweep()

    assert watch.item[A.PARKED_REASON] == "{}"


def test_a_saga_taken_over_meanwhile_is_not_parked(watch: Watch) -> None:
    """The owner that was read before is outdated."""
    exhausted(watch)
    owner = recovery_name(SAGA_ID, LIMIT + 1)
    before(watch.world.wire, "SendMessage", lambda: watch.update(owner={"S": owner}))
    watch.sweep()

    assert watch.record.parked_by is None


def test_a_saga_settled_meanwhile_is_not_parked(watch: Watch) -> None:
    exhausted(watch)
    before(watch.world.wire, "SendMessage", watch.settle)
    watch.sweep()

    assert watch.record.parked_by is None


def test_an_unrecoverable_saga_with_an_outcome_is_parked_again_once(watch: Watch) -> None:
    """Parked for so long that no execution can be described any more, and then answered: it is parked again, once."""
    history_gone(watch)
    watch.update(late_outcome_at={"N": "1"})
    watch.sweep()
    assert (watch.record.parked_by, len(watch.notified)) == (SAGA_ID, 1)

    watch.pass_time(7_200_000)
    watch.sweep()
    assert (watch.executions, watch.notified) == ({}, [])


def test_an_old_saga_parked_meanwhile_keeps_its_reason(watch: Watch) -> None:
    history_gone(watch)
    before(watch.world.wire, "SendMessage", lambda: watch.update(parked_by={"S": SAGA_ID}, parked_reason={"S": "{}"}))
    watch.sweep()

    assert watch.item[A.PARKED_REASON] == "{}"


def test_an_old_saga_taken_over_meanwhile_is_not_parked(watch: Watch) -> None:
    history_gone(watch)
    before(watch.world.wire, "SendMessage", lambda: watch.update(owner={"S": R1}))
    watch.sweep()

    assert watch.record.parked_by is None


def test_an_old_saga_settled_meanwhile_is_not_parked(watch: Watch) -> None:
    history_gone(watch)
    before(watch.world.wire, "SendMessage", watch.settle)
    watch.sweep()

    assert watch.record.parked_by is None


def dies_after_notifying(watch: Watch) -> None:
    exhausted(watch)
    watch.world.wire.plan(Fault(operation="UpdateItem", action=Action.KILL, moment=Moment.AFTER, times=1))
    with pytest.raises(Killed):
        watch.sweep()

    assert (watch.record.parked_by, len(watch.notified)) == (SAGA_ID, 1)


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
