"""A late effect is compensated once, by the first component that finds it."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from importlib import import_module
from typing import Any

import pytest

from saga_runtime import Commit, SagaFenced, StepCall, StepInDoubt, atomic_step, compensation, read_only_step
from saga_runtime.callbacks import Receipt
from saga_runtime.callbacks.decisions import contradiction_of
from saga_runtime.callbacks.rows import Outcome
from saga_runtime.errors import ProtocolMismatch
from saga_runtime.idempotency.identity import provider_key_of
from saga_runtime.protocol import OUTPUT_FIELD, CallField, CallMode, Direction, Env, RecordStatus, Side, StepStatus
from saga_runtime.recovery.resolution import CannotResolve, Change, DeclaredStep, Statement, Subject, decide, row_write
from saga_runtime.recovery.resolver import Resolver
from saga_runtime.recovery.takeover import Recoverer
from saga_runtime.saga_log.external_rows import Entry, UndoEntry, entry_of, undo_entry_of
from saga_runtime.saga_log.provider import ProviderSettings
from saga_runtime.saga_log.rows import LogRow, StepEntry, is_late
from saga_runtime.saga_log.rows import UndoEntry as AtomicUndoEntry
from saga_runtime.saga_log.rows import entry_of as atomic_entry_of
from saga_runtime.saga_log.rows import undo_entry_of as atomic_undo_entry_of
from saga_runtime.shared import aws
from saga_runtime.steps.atomic import read_row
from tests.unit.support.gateway import GRACE_MS, LIFE_MS
from tests.unit.support.job_saga import JOB_ID, PARCEL, REFUSED, STEP, notified, operators_queue, served
from tests.unit.support.operated_saga import AUDIT
from tests.unit.support.samples import NOW_MS, REQUEST_ID, SAGA_ID
from tests.unit.support.transfers import give_back
from tests.unit.support.warehouse import Picking
from tests.unit.support.wire import Action, Fault, Moment
from tests.unit.support.world import Context, World

INSTEAD = '{"parcel":"none"}'


@pytest.fixture
def picking(world: World, monkeypatch: pytest.MonkeyPatch) -> Picking:
    """A warehouse that can be asked, and whose undo is idempotent."""
    return Picking(world, monkeypatch)


def late(picking: Picking) -> None:
    """A job that the saga fenced, and that the warehouse did afterwards."""
    picking.dispatch()
    picking.pass_every_deadline()
    picking.job_saga.compensate()
    picking.calls_back("late")
    assert picking.status == "APPLIED_LATE"


def row(status: StepStatus, **more: Any) -> LogRow:
    """A row in a state."""
    under_way = {"attempt": "a", "deadline": 5, "first_attempt_at": 1}
    return LogRow(saga_id=SAGA_ID, step=STEP, status=status, output="{}", updated_at=1, **{**under_way, **more})


# Decisions


@pytest.mark.parametrize("status", [StepStatus.APPLIED_LATE, StepStatus.COMPENSATING, StepStatus.COMPENSATED])
@pytest.mark.parametrize("instead", [None, INSTEAD])
def test_a_step_with_a_compensated_effect_is_fenced_unless_it_was_skipped(
    picking: Picking, status: StepStatus, instead: str | None
) -> None:
    found = row(status, instead=instead)
    provider = ProviderSettings.from_event(picking.event())

    wanted = (Entry.FENCED, StepEntry.FENCED) if instead is None else (Entry.REPLAY, StepEntry.REPLAY)
    mine = picking.job_saga.holder("mine")
    assert (entry_of(found, mine=mine, now_ms=9, provider=provider), atomic_entry_of(found)) == wanted
    assert found.answer == instead


@pytest.mark.parametrize("status", StepStatus)
def test_only_late_effects_and_begun_compensations_are_compensated_late(status: StepStatus) -> None:
    assert is_late(row(status)) == (status in {StepStatus.APPLIED_LATE, StepStatus.COMPENSATING})


def test_late_compensation_writes_no_tombstone() -> None:
    assert not is_late(None)


def test_a_late_effect_is_compensated_like_an_applied_one(picking: Picking) -> None:
    found, provider = row(StepStatus.APPLIED_LATE), ProviderSettings.from_event(picking.event())

    undo = undo_entry_of(found, mine=picking.job_saga.holder("mine"), now_ms=9, provider=provider)

    assert (undo, atomic_undo_entry_of(found)) == (UndoEntry.UNDO, AtomicUndoEntry.UNDO)


def test_an_accepted_job_is_not_repeated_to_learn_its_outcome(picking: Picking) -> None:
    mine = picking.job_saga.holder("mine")
    asked = ProviderSettings.from_event(picking.event())
    known = replace(asked, verify=False, window=10**12)
    found = row(StepStatus.INTENT, accepted_at=0)

    def entry(found: LogRow, provider: ProviderSettings) -> UndoEntry:
        return undo_entry_of(found, mine=mine, now_ms=10**9, provider=provider)

    assert entry(found, known) is UndoEntry.REPEAT
    accepted = replace(found, accepted_at=3)
    assert (entry(accepted, known), entry(accepted, asked)) == (UndoEntry.UNDECIDED, UndoEntry.VERIFY)


# Compensations


def test_a_late_effect_is_compensated_by_the_ordinary_compensation(picking: Picking) -> None:
    late(picking)

    picking.undo()

    assert (picking.status, picking.warehouse.cancelled) == ("COMPENSATED", [provider_key_of(f"{JOB_ID}#undo")])
    picking.check()


def test_a_late_effect_is_compensated_by_a_dedicated_execution(picking: Picking) -> None:
    late(picking)

    picking.undo(late=True)
    picking.undo(late=True)

    assert picking.status == "COMPENSATED"
    picking.check()


def test_a_jobs_compensation_receives_its_id_and_a_key_of_its_own(picking: Picking) -> None:
    late(picking)
    picking.undo(late=True)

    call = picking.warehouse.seen[-1]
    assert (call.job_id, call.key) == (JOB_ID, f"{JOB_ID}#undo")


@pytest.mark.parametrize("status", ["none", "INTENT", "DONE", "TOMBSTONE", "COMPENSATED"])
def test_a_late_compensation_leaves_everything_else_alone(picking: Picking, world: World, status: str) -> None:
    if status in {"INTENT", "DONE", "COMPENSATED"}:
        picking.dispatch()
    if status in {"DONE", "COMPENSATED"}:
        picking.calls_back()
    if status in {"TOMBSTONE", "COMPENSATED"}:
        picking.undo()
    picking.pass_every_deadline()
    before = world.items("log")

    calls = world.calls_of(lambda: picking.undo(late=True))

    assert calls == ["GetItem"]
    assert world.items("log") == before
    picking.check()


def test_an_interrupted_compensation_is_finished_late(picking: Picking, world: World) -> None:
    late(picking)
    world.wire.plan(Fault(operation="warehouse:cancel", action=Action.DROP, moment=Moment.AFTER, times=1))
    with pytest.raises(ConnectionError):
        picking.undo(late=True)
    with pytest.raises(StepInDoubt):
        picking.undo(late=True)
    picking.passes(LIFE_MS)

    picking.undo(late=True)

    assert picking.status == "COMPENSATED"
    picking.check()


def test_two_concurrent_late_compensations_compensate_once(picking: Picking) -> None:
    late(picking)

    def another() -> None:
        with pytest.raises(StepInDoubt):
            picking.undo()

    picking.warehouse.meanwhile["cancel"] = another
    picking.undo(late=True)

    assert picking.status == "COMPENSATED"
    picking.check()


def test_an_effect_that_becomes_late_during_the_check_is_read_again(
    picking: Picking, monkeypatch: pytest.MonkeyPatch
) -> None:
    picking.dispatch()
    picking.calls_back()
    stands = picking.row
    assert stands is not None
    picking.undo()
    looks: list[Callable[[], LogRow | None]] = [lambda: replace(stands, status=StepStatus.APPLIED_LATE)]

    def read(call: StepCall) -> LogRow | None:
        return looks.pop()() if looks else read_row(call)

    monkeypatch.setattr(import_module("saga_runtime.steps.external_compensation"), "read_row", read)

    picking.undo(late=True)

    assert picking.status == "COMPENSATED"
    picking.check()


def test_an_accepted_job_is_queried_before_it_is_compensated(picking: Picking) -> None:
    picking.dispatch()
    picking.pass_every_deadline()

    with pytest.raises(StepInDoubt, match="not done"):
        picking.undo()
    picking.warehouse.finish()
    picking.undo()

    assert picking.status == "COMPENSATED"
    picking.check()


@pytest.mark.parametrize("handler", ["external", "atomic"])
def test_a_compensation_is_called_for_nothing_else(picking: Picking, handler: str) -> None:
    event = picking.event(**{CallField.MODE: CallMode.VERIFY})

    with pytest.raises(ProtocolMismatch, match="late"):
        (picking.cancel if handler == "external" else give_back)(event, Context())


def test_an_atomic_step_compensates_a_late_effect_in_one_write(picking: Picking, world: World) -> None:
    late(picking)
    seen: list[Any] = []

    @compensation
    def pay_back(_: StepCall, output: Any) -> Commit:
        seen.append(output)
        return Commit()

    event = picking.event(**{CallField.MODE: CallMode.LATE})
    calls = world.calls_of(lambda: pay_back(event, Context()))
    pay_back(event, Context())

    assert (seen, picking.status) == ([PARCEL], "COMPENSATED")
    assert calls == ["GetItem", "UpdateItem"]


def test_a_late_atomic_compensation_writes_no_tombstone(picking: Picking, world: World) -> None:
    give_back(picking.event(**{CallField.MODE: CallMode.LATE}), Context())

    assert world.items("log") == []


# A saga that continued without the step


def passed_over(picking: Picking) -> None:
    """A job that the saga skipped, and that the warehouse did afterwards."""
    picking.warehouse.pick(provider_key_of(JOB_ID))
    picking.job_saga.write(picking.job_saga.holder("owner").bury(1))
    aws.dynamodb().update_item(
        TableName="log",
        Key={"saga_id": {"S": SAGA_ID}, "step": {"S": STEP}},
        UpdateExpression="SET #output = :output",
        ExpressionAttributeNames={"#output": "output"},
        ExpressionAttributeValues={":output": {"S": INSTEAD}},
    )
    picking.calls_back("late")


@pytest.mark.parametrize("undo", ["nothing", "begun", "over"])
def test_a_saga_that_skipped_a_step_continues_without_it(picking: Picking, world: World, undo: str) -> None:
    passed_over(picking)
    assert picking.status == "APPLIED_LATE"
    if undo == "begun":
        world.wire.plan(Fault(operation="warehouse:cancel", action=Action.DROP, times=1))
        with pytest.raises(ConnectionError):
            picking.undo(late=True)
    if undo == "over":
        picking.undo(late=True)

    assert picking.dispatch()
    assert picking.outcome() == {"parcel": "none"}

    @atomic_step
    def atomic(_: StepCall) -> Commit:
        raise AssertionError

    @read_only_step
    def read_only(_: StepCall) -> dict[str, str]:
        raise AssertionError

    recorded = picking.event(**{CallField.RECORD: True})
    assert read_only(recorded, Context())[OUTPUT_FIELD] == {"parcel": "none"}
    assert atomic(picking.event(), Context())[OUTPUT_FIELD] == {"parcel": "none"}
    assert atomic_step(lambda _: Commit())(picking.event(), Context())[OUTPUT_FIELD] == {"parcel": "none"}


def test_a_late_effect_of_a_step_that_was_not_skipped_fences_it(picking: Picking) -> None:
    late(picking)

    assert picking.dispatch(picking.send_again())
    assert picking.outcome(2) == "SagaFenced"
    with pytest.raises(SagaFenced):
        atomic_step(lambda _: Commit())(picking.event(), Context())


def test_a_late_effect_after_a_refusal_is_compensated(picking: Picking) -> None:
    picking.dispatch()
    picking.calls_back("refused", REFUSED)
    picking.calls_back("done")
    assert picking.status == "APPLIED_LATE"

    picking.undo(late=True)

    assert picking.status == "COMPENSATED"
    picking.check()


# A person


DECLARED = DeclaredStep(side=Side.BEFORE, external=True, grace_ms=GRACE_MS, log_days=400)
APPLIED = Statement(applied=True)
COMPENSATED = Statement(applied=True, undo=True)
NOT_UNDONE = Statement(applied=False, undo=True)


@pytest.fixture
def says(picking: Picking) -> Callable[[Statement], Change]:
    """An operator's finding about the job."""

    def say(statement: Statement) -> Change:
        recoverer = Recoverer(table="requests", dynamodb=aws.dynamodb(), step_functions=aws.step_functions())
        record = recoverer.read(REQUEST_ID)
        assert record is not None
        resolver = Resolver(recoverer=recoverer, log_table="log", audit=AUDIT, log_days=400, ways="")
        return resolver.resolve(record, STEP, DECLARED, statement, picking.world.clock.ms)

    return say


Says = Callable[[Statement], Change]


def settle(picking: Picking, status: RecordStatus = RecordStatus.FAILED) -> None:
    """Let the saga end."""
    picking.job_saga.change_record(status=status, http_status=422, body="{}")


def park(picking: Picking, direction: Direction = Direction.COMPENSATE) -> None:
    """Let the saga wait for a person."""
    picking.job_saga.change_record(parked_by=SAGA_ID, parked_at=NOW_MS, direction=direction)


@pytest.mark.parametrize("state", ["settled", "parked", "running"])
def test_a_late_effect_that_was_compensated_by_hand_is_recorded(picking: Picking, says: Says, state: str) -> None:
    late(picking)
    if state != "running":
        settle(picking) if state == "settled" else park(picking)

    assert says(COMPENSATED) == Change(to=StepStatus.COMPENSATED, written=True)
    assert picking.status == "COMPENSATED"
    assert says(COMPENSATED).written is False


def test_a_refused_job_that_was_compensated_by_hand_keeps_its_refusal() -> None:
    found = row(StepStatus.APPLIED_LATE, error="OutOfStock", detail="none left")
    subject = Subject(name=STEP, row=found, side=None, declared=DECLARED, direction=Direction.COMPENSATE)
    change = decide(subject, COMPENSATED, NOW_MS)

    write = row_write(subject, change, table="log", saga_id=SAGA_ID, attempt="b", now_ms=NOW_MS)

    assert "REMOVE" not in write["Update"]["UpdateExpression"]


def test_a_saga_that_only_goes_forward_continues_with_what_its_provider_had_refused(
    picking: Picking, says: Says
) -> None:
    """Fenced, it could never settle: nothing but the effect that is there is left to do."""
    picking.dispatch()
    picking.calls_back("refused", REFUSED)
    park(picking, Direction.FORWARD)
    picking.calls_back("done")
    assert picking.status == "APPLIED_LATE"

    assert says(APPLIED).to is StepStatus.DONE
    assert says(APPLIED).written is False
    picking.dispatch(picking.send_again())
    assert json.loads(picking.world.tasks.woken[picking.sent[-1].token]["output"]) == {OUTPUT_FIELD: PARCEL}
    assert picking.calls_back("done-again") is Receipt.DUPLICATE
    picking.undo(late=True)
    assert picking.status == "DONE"
    picking.check()


def test_a_success_besides_what_was_done_by_hand_is_reported(
    picking: Picking, says: Says, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The provider had refused the job; if it does it after all, there are two effects, and operators must know."""
    operators = operators_queue()
    monkeypatch.setenv(Env.CALLBACKS, json.dumps([served(operators=operators)]))
    picking.dispatch()
    picking.calls_back("refused", REFUSED)
    park(picking, Direction.FORWARD)
    says(APPLIED)

    assert picking.calls_back("done") is Receipt.CONFLICT
    assert picking.calls_back("done") is Receipt.DUPLICATE
    assert picking.status == "DONE"
    (entry,) = notified(operators)
    assert "was done when its row was DONE by an operator, after a refusal" in entry["parked_reason"]["detail"]
    refusal = Outcome.of(REFUSED)
    assert contradiction_of(refusal, StepStatus.DONE)[1].endswith("when its row was DONE; the row stays")


@pytest.mark.parametrize("refused", ["compensates", "skipped", "other conditions", "substitute"])
def test_what_a_saga_continued_without_stays_a_late_effect(refused: str) -> None:
    declared = replace(DECLARED, side=Side.AFTER, skipped_by=frozenset({"OutOfStock"} if refused == "skipped" else ()))
    found = row(StepStatus.APPLIED_LATE, error="OutOfStock", instead=INSTEAD if refused == "substitute" else None)
    subject = Subject(
        name=STEP,
        row=found,
        side=Side.AFTER,
        declared=declared,
        direction=Direction.COMPENSATE if refused == "compensates" else Direction.FORWARD,
        same_ways=refused != "other conditions",
    )

    with pytest.raises(CannotResolve):
        decide(subject, APPLIED, 2**60)


def test_what_was_applied_after_a_refusal_is_never_not_applied() -> None:
    found = row(StepStatus.APPLIED_LATE, error="OutOfStock")
    subject = Subject(name=STEP, row=found, side=Side.AFTER, declared=DECLARED, direction=Direction.FORWARD)

    with pytest.raises(CannotResolve, match="Pick happened, and is APPLIED_LATE"):
        decide(subject, Statement(applied=False), 2**60)


def test_an_ended_saga_accepts_no_other_finding(picking: Picking, says: Says) -> None:
    late(picking)
    settle(picking)

    for statement in (APPLIED, Statement(applied=False)):
        with pytest.raises(CannotResolve, match="settled"):
            says(statement)
    assert says(NOT_UNDONE) == Change(to=StepStatus.APPLIED_LATE, written=False)
    assert picking.status == "APPLIED_LATE"


def test_an_applied_effect_of_an_ended_saga_is_kept(picking: Picking, says: Says) -> None:
    picking.dispatch()
    picking.calls_back()
    settle(picking, RecordStatus.COMPLETED)

    with pytest.raises(CannotResolve, match="settled"):
        says(COMPENSATED)


def test_a_late_effect_cannot_be_reported_as_applied(picking: Picking, says: Says) -> None:
    late(picking)
    park(picking)

    with pytest.raises(CannotResolve, match="--compensation"):
        says(APPLIED)


@pytest.mark.parametrize("ended", [True, False])
def test_a_late_compensation_that_failed_is_retried(picking: Picking, world: World, says: Says, ended: bool) -> None:
    late(picking) if ended else passed_over(picking)
    world.wire.plan(Fault(operation="warehouse:cancel", action=Action.DROP, times=1))
    with pytest.raises(ConnectionError):
        picking.undo(late=True)
    settle(picking) if ended else park(picking)
    with pytest.raises(CannotResolve, match="still"):
        says(NOT_UNDONE)
    picking.pass_every_deadline()

    assert says(NOT_UNDONE).to is StepStatus.APPLIED_LATE

    picking.undo(late=True)
    picking.check()
    assert picking.status == "COMPENSATED"


@pytest.mark.parametrize(("applied", "status"), [(True, "DONE"), (False, "TOMBSTONE")])
def test_a_job_in_doubt_is_decided_as_any_step_is(picking: Picking, says: Says, applied: bool, status: str) -> None:
    picking.dispatch()
    park(picking)
    picking.pass_every_deadline()

    says(Statement(applied=applied, output='{"parcel":"p-1"}' if applied else None))

    assert picking.status == status


def test_a_job_resolved_as_not_applied_is_compensated_if_done_later(picking: Picking, says: Says) -> None:
    picking.dispatch()
    park(picking)
    picking.pass_every_deadline()
    says(Statement(applied=False))

    picking.calls_back("late")

    assert picking.status == "APPLIED_LATE"
