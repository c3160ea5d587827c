"""A job that a forward-only saga needs, and that its provider did after it had refused: nothing undoes it unasked."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import pytest

from saga_runtime.protocol import Direction, Metric, RecordStatus, Side, StepStatus
from saga_runtime.recovery.late_effects import late_name
from saga_runtime.recovery.resolution import CannotResolve, DeclaredStep, Statement
from saga_runtime.recovery.resolver import Resolver
from saga_runtime.recovery.takeover import Recoverer
from saga_runtime.saga_log.rows import log_key
from saga_runtime.shared import aws
from tests.unit.support.gateway import GRACE_MS
from tests.unit.support.job_saga import REFUSED, STEP
from tests.unit.support.operated_saga import AUDIT
from tests.unit.support.reconciled import Watch, late_job, put_row
from tests.unit.support.samples import NOW_MS, REQUEST_ID, SAGA_ID
from tests.unit.support.warehouse import Picking
from tests.unit.support.wire import before
from tests.unit.support.world import World

DECLARED = DeclaredStep(side=Side.AFTER, external=True, grace_ms=GRACE_MS, log_days=400)
BY_HAND = '{"parcel":"by hand"}'


@pytest.mark.parametrize(
    ("direction", "side", "undone"),
    [
        (None, Side.BEFORE, True),
        (None, Side.AFTER, False),
        (Direction.FORWARD, Side.BEFORE, False),
        (Direction.FORWARD, Side.AFTER, False),
        (Direction.COMPENSATE, Side.AFTER, True),
    ],
)
def test_late_effect_of_a_saga_in_progress_is_left_if_it_may_need_it(
    watch: Watch, direction: Direction | None, side: Side, undone: bool
) -> None:
    parked: dict[str, Any] = {"parked_by": {"S": SAGA_ID}, "parked_at": {"N": str(NOW_MS)}}
    watch.update(**parked, parked_reason={"S": json.dumps({"step": "Pick", "error": "OutOfStock"})})
    if direction is not None:
        watch.update(direction={"S": direction})
    late_job(watch)
    aws.dynamodb().update_item(
        TableName="log",
        Key=log_key(SAGA_ID, "Pick"),
        UpdateExpression="SET side = :side",
        ExpressionAttributeValues={":side": {"S": side}},
    )

    watch.sweep()

    assert (late_name(SAGA_ID, 1) in watch.executions) is undone
    assert watch.counted(Metric.LATE_STANDS) == 0


@pytest.mark.parametrize(
    ("side", "status", "direction", "undone"),
    [
        (Side.PIVOT, StepStatus.DONE, None, False),
        (Side.AFTER, StepStatus.INTENT, None, False),
        (Side.BEFORE, StepStatus.DONE, None, True),
        (Side.PIVOT, StepStatus.TOMBSTONE, None, True),
        (Side.PIVOT, StepStatus.DONE, Direction.COMPENSATE, True),
    ],
)
def test_late_effect_before_a_pivot_is_left_if_the_saga_only_goes_forward(
    watch: Watch, side: Side, status: StepStatus, direction: Direction | None, undone: bool
) -> None:
    """A row of a step between two pivots names the one ahead only."""
    if direction is not None:
        watch.update(direction={"S": direction})
    late_job(watch)
    put_row("Capture", status, side=side)

    watch.sweep()

    assert (late_name(SAGA_ID, 1) in watch.executions) is undone


def test_late_effect_of_a_saga_that_went_forward_is_undone_when_it_has_settled(watch: Watch) -> None:
    watch.update(direction={"S": Direction.FORWARD})
    late_job(watch)
    watch.settle()

    watch.sweep()

    assert late_name(SAGA_ID, 1) in watch.executions


@pytest.fixture
def refused(world: World, monkeypatch: pytest.MonkeyPatch) -> Picking:
    """A job behind the pivot that its provider refused; its saga is parked."""
    picking = Picking(world, monkeypatch)
    picking.dispatch()
    picking.calls_back("refused", REFUSED)
    picking.job_saga.change_record(parked_by=SAGA_ID, parked_at=NOW_MS, direction=Direction.FORWARD)
    return picking


def resolve(picking: Picking, statement: Statement, declared: DeclaredStep = DECLARED) -> StepStatus | None:
    recoverer = Recoverer(table="requests", dynamodb=aws.dynamodb(), step_functions=aws.step_functions())
    record = recoverer.read(REQUEST_ID)
    assert record is not None
    resolver = Resolver(recoverer=recoverer, log_table="log", audit=AUDIT, log_days=400, ways="")
    return resolver.resolve(record, STEP, declared, statement, picking.world.clock.ms).to


def test_saga_continues_with_what_its_provider_reported(refused: Picking) -> None:
    refused.calls_back("done")
    log = refused.job_saga.log
    assert log is not None

    assert resolve(refused, Statement(applied=True, output=log.output)) is StepStatus.DONE

    assert refused.job_saga.log is not None
    assert refused.job_saga.log.output == log.output


def test_by_hand_is_refused_when_the_provider_has_done_it_too(refused: Picking) -> None:
    refused.calls_back("done")

    with pytest.raises(CannotResolve, match="two effects"):
        resolve(refused, Statement(applied=True, output=BY_HAND))

    assert refused.status == StepStatus.APPLIED_LATE


@pytest.mark.parametrize("output", [BY_HAND, None])
def test_nothing_is_decided_about_a_row_that_changes_meanwhile(refused: Picking, output: str | None) -> None:
    before(refused.world.wire, "TransactWriteItems", lambda: refused.calls_back("done"))

    with pytest.raises(CannotResolve, match="two effects" if output else "changed while this was written"):
        resolve(refused, Statement(applied=True, output=output))

    assert refused.status == StepStatus.APPLIED_LATE


def test_an_effect_that_the_saga_needs_is_not_recorded_as_undone(refused: Picking) -> None:
    refused.calls_back("done")

    with pytest.raises(CannotResolve, match="only goes forward"):
        resolve(refused, Statement(applied=True, undo=True))

    assert refused.status == StepStatus.APPLIED_LATE


def test_what_the_saga_has_skipped_is_recorded_as_undone(refused: Picking) -> None:
    skipped = replace(DECLARED, skipped_by=frozenset({REFUSED.error}))
    refused.calls_back("done")

    with pytest.raises(CannotResolve, match="whether its undo happened"):
        resolve(refused, Statement(applied=True), skipped)
    assert resolve(refused, Statement(applied=True, undo=True), skipped) is StepStatus.COMPENSATED


def test_what_a_settled_saga_does_not_need_is_recorded_as_undone(refused: Picking) -> None:
    refused.calls_back("done")
    refused.job_saga.change_record(status=RecordStatus.COMPLETED)

    assert resolve(refused, Statement(applied=True, undo=True)) is StepStatus.COMPENSATED


# -- a pending job that an operator did by hand -----------------------------------------------------------------------


@pytest.fixture
def pending(world: World, monkeypatch: pytest.MonkeyPatch) -> Picking:
    """A job behind the pivot whose outcome its provider has not reported; its saga is parked."""
    picking = Picking(world, monkeypatch)
    picking.dispatch()
    picking.job_saga.change_record(parked_by=SAGA_ID, parked_at=NOW_MS, direction=Direction.FORWARD)
    world.clock.ms += 3_600_000
    return picking


def attempt_of(picking: Picking) -> str:
    log = picking.job_saga.log
    assert log is not None
    return log.attempt


def output_of(picking: Picking) -> str | None:
    log = picking.job_saga.log
    assert log is not None
    return log.output


@pytest.mark.parametrize("equal", [False, True], ids=["without an output", "with an equal output"])
def test_by_hand_is_refused_when_the_provider_has_reported_a_pending_job(pending: Picking, equal: bool) -> None:
    seen = attempt_of(pending)
    pending.calls_back("done")

    with pytest.raises(CannotResolve, match=f"you saw attempt {seen}.*two effects"):
        resolve(pending, Statement(applied=True, output=output_of(pending) if equal else None, attempt=seen))


def test_by_hand_is_refused_when_the_provider_reports_while_it_is_written(pending: Picking) -> None:
    before(pending.world.wire, "TransactWriteItems", lambda: pending.calls_back("done"))

    with pytest.raises(CannotResolve, match="changed while this was written"):
        resolve(pending, Statement(applied=True))


def test_an_answer_may_be_repeated_with_the_attempt_that_was_seen(pending: Picking) -> None:
    statement = Statement(applied=True, output=BY_HAND, attempt=attempt_of(pending))

    assert [resolve(pending, statement) for _ in range(2)] == [StepStatus.DONE] * 2
    assert output_of(pending) == BY_HAND


def test_that_a_job_was_not_done_may_be_stated_of_a_refusal_that_another_attempt_wrote(refused: Picking) -> None:
    refused.job_saga.change_record(direction=Direction.COMPENSATE)

    assert resolve(refused, Statement(applied=False, attempt="another")) is StepStatus.REFUSED


def test_by_hand_is_refused_when_the_provider_has_reported_a_job_without_a_row(pending: Picking) -> None:
    pending.calls_back("done")

    with pytest.raises(CannotResolve, match="has a row by now, and you saw none"):
        resolve(pending, Statement(applied=True, output=output_of(pending), rowless=True))
