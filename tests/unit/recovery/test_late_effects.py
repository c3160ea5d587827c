"""Late effects that a sweep finds: compensated by an execution, or reported."""

from __future__ import annotations

import pytest
from botocore.exceptions import ClientError

from saga_runtime.callbacks.saga_writes import LATE_DAYS
from saga_runtime.protocol import (
    LogAttribute,
    Metric,
    StepStatus,
    TokenAttribute,
)
from saga_runtime.recovery.decisions import (
    LONGEST_LOOK_MS,
)
from saga_runtime.recovery.late_effects import MOST_TRIES, LateFinding, late_name, undo_again
from saga_runtime.saga_log.rows import KEEP_DAYS, log_key
from saga_runtime.shared import aws
from tests.unit.recovery.test_retention_traces import pass_days
from tests.unit.support.client import remove_response
from tests.unit.support.executions import ExecutionStatus
from tests.unit.support.reconciled import LOOKING, SHARD, A, Watch, late_job, put_row
from tests.unit.support.samples import DAY_MS, NOW_MS, REQUEST_ID, SAGA_ID
from tests.unit.support.wire import before

pytestmark = pytest.mark.exhaustive


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
    late_job(watch, StepStatus.COMPENSATED)

    assert watch.sweep()["late"] == 0
    assert set(watch.executions) == {SAGA_ID}


def test_no_execution_is_wasted_on_a_step_that_nothing_compensates(watch: Watch) -> None:
    late_job(watch, step="Announce")
    late_job(watch, StepStatus.COMPENSATED)

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
    assert undo_again(watch.operated.recoverer, watch.record, "log", NOW_MS).finding is LateFinding.STARTED

    put_row("Pick", StepStatus.COMPENSATED)
    watch.sweep()
    watch.pass_time(LATE_DAYS * DAY_MS)
    watch.sweep()
    remove_response(watch.world)
    assert watch.record.tombstone


def test_rows_of_a_saga_are_kept_until_its_late_effect_is_compensated(watch: Watch) -> None:
    """An undo reads what other steps returned, too."""
    watch.settle()
    late_job(watch)
    for name in ("Pick", "Quote"):
        put_row(name, StepStatus.APPLIED_LATE if name == "Pick" else StepStatus.DONE, expiration=end_in(watch, 2))
    for number in range(1, MOST_TRIES + 1):
        watch.sweep()
        watch.dies(late_name(SAGA_ID, number))

    for _ in range(60):
        pass_days(watch.world, 7, expire=("log",))
        before_ = watch.counted(Metric.LATE_STANDS)
        assert watch.sweep()["late"] == 1
        assert watch.counted(Metric.LATE_STANDS) == before_ + 1
    assert rows_of(watch) == {"Pick", "Quote"}
    assert undo_again(watch.operated.recoverer, watch.record, "log", NOW_MS).finding is LateFinding.STARTED

    put_row("Pick", StepStatus.COMPENSATED, expiration=end_in(watch, 2))
    assert watch.sweep()["late"] == 0
    pass_days(watch.world, KEEP_DAYS, expire=("log",))
    assert rows_of(watch) == set()


def end_in(watch: Watch, days: int) -> int:
    return watch.world.clock.ms // 1_000 + days * 86_400


def rows_of(watch: Watch) -> set[str]:
    return {item[LogAttribute.STEP]["S"] for item in watch.world.items("log")}


@pytest.mark.parametrize("happens", ["is extended", "is deleted"])
def test_a_row_that_changes_before_it_is_extended_is_left(watch: Watch, happens: str) -> None:
    watch.settle()
    late_job(watch)
    put_row("Pick", StepStatus.APPLIED_LATE, expiration=end_in(watch, 2))
    key: dict[str, dict[str, str]] = log_key(SAGA_ID, "Pick")

    def meanwhile() -> None:
        if happens == "is deleted":
            aws.dynamodb().delete_item(TableName="log", Key=key)
        else:
            put_row("Pick", StepStatus.APPLIED_LATE, expiration=end_in(watch, 2 * KEEP_DAYS))

    before(watch.world.wire, "UpdateItem", meanwhile)
    watch.sweep()

    ends = [int(item[LogAttribute.EXPIRATION]["N"]) for item in watch.world.items("log")]
    assert ends == ([] if happens == "is deleted" else [end_in(watch, 2 * KEEP_DAYS)])


def test_a_late_effect_whose_row_is_gone_alarms(watch: Watch) -> None:
    watch.settle()
    late_job(watch)
    aws.dynamodb().delete_item(TableName="log", Key=log_key(SAGA_ID, "Pick"))

    assert (watch.sweep()["late"], watch.counted(Metric.LATE_STANDS)) == (1, 1)
    assert set(watch.executions) == {SAGA_ID}


def test_next_to_a_row_that_is_gone_others_are_compensated(watch: Watch) -> None:
    watch.settle()
    late_job(watch)
    late_job(watch, step="Pick[b]")
    aws.dynamodb().delete_item(TableName="log", Key=log_key(SAGA_ID, "Pick"))

    watch.sweep()
    assert late_name(SAGA_ID, 1) in watch.executions
    put_row("Pick[b]", StepStatus.COMPENSATED)
    watch.dies(late_name(SAGA_ID, 1), ExecutionStatus.SUCCEEDED)

    assert (watch.sweep()["late"], watch.counted(Metric.LATE_STANDS)) == (1, 1)


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
