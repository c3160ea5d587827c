"""Short histories of the dispatcher and of late compensation, each of which needs one condition to succeed."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from importlib import import_module

import pytest

from saga_runtime import NotApplied
from saga_runtime.callbacks import settle
from saga_runtime.protocol import CallField, RecordStatus, StepStatus
from saga_runtime.recovery.resolution import CannotResolve, Statement
from saga_runtime.recovery.resolver import Resolver
from saga_runtime.recovery.takeover import Recoverer
from saga_runtime.saga_log.external_rows import UndoEntry, undo_entry_of
from saga_runtime.saga_log.provider import ProviderSettings
from saga_runtime.saga_log.rows import LogRow
from saga_runtime.shared import aws
from tests.unit.support.gateway import IDEMPOTENT, LIFE_MS
from tests.unit.support.job_saga import JOB_ID, PARCEL, STEP
from tests.unit.support.operated_saga import AUDIT
from tests.unit.support.samples import REQUEST_ID, SAGA_ID
from tests.unit.support.warehouse import TIMEOUT_SECONDS, Hourglass, Picking
from tests.unit.support.wire import Action, Fault, Killed, Moment
from tests.unit.support.world import World

pytestmark = pytest.mark.exhaustive

Open = Callable[..., Picking]
"""Makes a warehouse; ``job=False``: something to wait for."""

CALL = import_module("saga_runtime.callbacks.message")


def lose(picking: Picking, moment: Moment = Moment.AFTER, call: str = "pick") -> None:
    """Let the next call of a kind be cut off."""
    picking.world.wire.plan(Fault(operation=f"warehouse:{call}", action=Action.DROP, moment=moment, times=1))


def asked(picking: Picking) -> int:
    """Number of queries at the warehouse."""
    return picking.world.wire.sent.count("warehouse:find")


# Histories


def test_a_duplicate_message_makes_no_query(make: Open) -> None:
    picking = make()
    picking.dispatch()
    picking.pass_every_deadline()

    assert picking.dispatch(picking.sent[0])
    assert (asked(picking), len(picking.warehouse.begun)) == (0, 1)


def test_an_interrupted_query_is_repeated(make: Open) -> None:
    picking = make()
    picking.dispatch()
    picking.warehouse.finish()
    picking.pass_every_deadline()
    message = picking.send_again()
    lose(picking, call="find")
    assert not picking.dispatch(message)

    assert picking.dispatch(message)
    assert picking.outcome(2) == PARCEL


def test_a_no_counts_only_when_no_request_travels(make: Open) -> None:
    picking = make()
    picking.dispatch()
    picking.passes(1_000)
    picking.warehouse.says = NotApplied()

    assert not picking.dispatch(picking.send_again())
    picking.check()


def test_an_outcome_in_the_row_is_delivered_at_once(make: Open) -> None:
    picking = make()
    somebody = picking.job_saga.holder("somebody")
    picking.job_saga.write(somebody.intent(1))
    picking.job_saga.write(somebody.done('{"parcel":"p-1"}', 1))

    assert picking.dispatch()
    assert picking.outcome() == PARCEL


def test_an_outcome_that_arrives_during_a_query_is_delivered(make: Open) -> None:
    picking = make()
    lose(picking, Moment.BEFORE)
    picking.dispatch()
    picking.pass_every_deadline()
    picking.warehouse.meanwhile["find"] = picking.undo

    assert picking.dispatch(picking.sent[0])
    assert picking.outcome() == "SagaFenced"


def test_an_older_message_does_nothing(make: Open) -> None:
    picking = make()
    old = picking.send()
    assert picking.dispatch(picking.send_again())
    picking.pass_every_deadline()

    assert picking.dispatch(old)
    assert asked(picking) == 0


def test_a_job_with_an_early_outcome_is_not_dispatched(make: Open) -> None:
    picking = make()
    picking.unserved(picking.calls_back)

    assert picking.dispatch()
    assert (picking.warehouse.begun, picking.outcome()) == ([], PARCEL)


def test_a_job_is_waited_for_before_it_is_dispatched(make: Open) -> None:
    picking = make()
    picking.warehouse.meanwhile["pick"] = lambda: (
        picking.job_saga.token["status"] == "WAITING" or pytest.fail("not yet")
    )

    assert picking.dispatch()


def test_two_dispatchers_that_replace_a_dead_attempt_do_not_both_call(make: Open) -> None:
    picking = make()
    lose(picking, Moment.BEFORE)
    picking.dispatch()
    picking.pass_every_deadline()
    picking.warehouse.afterwards["find"] = lambda: picking.dispatch(picking.sent[0])

    assert picking.dispatch(picking.sent[0])
    picking.check()


def test_a_refusal_counts_only_when_no_other_request_travels(make: Open) -> None:
    picking = make(**IDEMPOTENT)
    lose(picking)
    picking.dispatch()
    picking.passes(LIFE_MS)
    picking.warehouse.refuses = "in use"

    assert not picking.dispatch(picking.sent[0])
    picking.check()


def test_a_job_that_is_dispatched_again_is_not_accepted_yet(make: Open) -> None:
    picking = make()
    picking.dispatch()
    message = picking.send_again()
    picking.pass_every_deadline()
    picking.warehouse.says = NotApplied()
    lose(picking)
    assert not picking.dispatch(message)

    assert picking.row is not None
    assert picking.row.accepted_at == 0


def test_an_accepted_job_is_recorded_as_accepted(make: Open) -> None:
    picking = make(**IDEMPOTENT)
    picking.dispatch()
    picking.pass_every_deadline()
    picking.warehouse.refuses = "it was picked, and will not be picked again"

    assert picking.dispatch(picking.sent[0])
    assert picking.status == "INTENT"


def test_a_job_past_its_deadline_fails(make: Open) -> None:
    picking = make()
    picking.dispatch()
    picking.passes(TIMEOUT_SECONDS * 1_000)

    assert picking.dispatch(picking.send_again())
    assert picking.outcome(2) == "JobStillPending"


def test_a_timeout_that_was_not_delivered_is_delivered_later(make: Open) -> None:
    picking = make()
    picking.dispatch()
    picking.passes(TIMEOUT_SECONDS * 1_000)
    picking.world.wire.plan(Fault(operation="SendTaskFailure", action=Action.KILL, times=1))
    message = picking.send_again()
    with pytest.raises(Killed):
        picking.dispatch(message)

    assert picking.dispatch(message)
    assert picking.outcome(2) == "JobStillPending"


def test_an_id_of_the_warehouses_own_leads_to_the_job(make: Open) -> None:
    picking = make()
    picking.warehouse.own_id = "pick-77"
    picking.dispatch()

    picking.calls_back(job_id="pick-77")
    assert picking.outcome() == PARCEL


def test_a_refusal_under_the_providers_id_is_found(make: Open) -> None:
    picking = make()
    picking.warehouse.own_id, picking.warehouse.refuses = "pick-77", "no pallets"
    picking.dispatch()

    picking.calls_back(job_id="pick-77")
    assert picking.status == "APPLIED_LATE"


def test_a_completed_job_is_delivered_after_a_query(make: Open) -> None:
    picking = make()
    lose(picking)
    picking.dispatch()
    picking.warehouse.finish()
    picking.pass_every_deadline()

    assert picking.dispatch(picking.sent[0])
    settle(JOB_ID)
    assert (picking.outcome(), picking.status) == (PARCEL, "DONE")


def test_a_message_is_not_begun_when_its_time_was_used_up(make: Open) -> None:
    picking = make()
    picking.warehouse.afterwards["pick"] = lambda: picking.passes(19_000)
    items = [picking.send(**{CallField.ITEM: '{"item":{}}', CallField.ITEM_KEY: key}) for key in ("a", "b")]

    assert picking.deliver(*items, context=Hourglass(20_000, picking.world)) == [1]


def test_a_deadline_is_the_invocations(make: Open) -> None:
    picking = make()
    picking.dispatch(picking.send(**{CallField.ITEM: '{"item":{}}', CallField.ITEM_KEY: "a"}))
    items = [picking.send(**{CallField.ITEM: '{"item":{}}', CallField.ITEM_KEY: key}) for key in ("b", "c")]
    picking.deliver(*items)

    assert {int(item["deadline"]["N"]) for item in picking.world.items("log")} == {picking.world.clock.ms + LIFE_MS}


def test_an_invalid_message_is_redelivered(make: Open) -> None:
    assert make().deliver("hello") == [0]


def test_the_detail_of_a_foreign_error_is_not_stored(make: Open) -> None:
    picking = make()
    picking.warehouse.broken["pick"] = ValueError("secret-token-1")
    picking.dispatch()

    picking.check()


def test_an_older_wait_is_not_announced(make: Open) -> None:
    waiting = make(job=False)
    old = waiting.send()
    waiting.dispatch(waiting.send_again())
    waiting.dispatch(old)

    assert len(waiting.warehouse.seen) == 1


def test_a_wait_past_its_deadline_ends(make: Open) -> None:
    waiting = make(job=False)
    waiting.dispatch()
    waiting.passes(TIMEOUT_SECONDS * 1_000)
    waiting.dispatch(waiting.send_again())

    assert waiting.outcome(2) == "WaitTimedOut"


def test_a_job_is_not_repeated_to_learn_its_outcome(make: Open) -> None:
    picking = make(**IDEMPOTENT)
    lose(picking, Moment.BEFORE)
    picking.dispatch()
    picking.pass_every_deadline()

    assert type(picking.decided(picking.undo)).__name__ == "ManualResolutionRequired"
    assert picking.warehouse.begun == []


def test_an_accepted_job_is_not_repeated_to_learn_its_outcome(make: Open) -> None:
    picking = make()
    provider = replace(ProviderSettings.from_event(picking.event()), verify=False, window=10**12)
    row = LogRow(
        saga_id=SAGA_ID,
        step=STEP,
        status=StepStatus.INTENT,
        output=None,
        updated_at=1,
        attempt="a",
        deadline=2,
        first_attempt_at=1,
        accepted_at=1,
    )

    entry = undo_entry_of(row, mine=picking.job_saga.holder("b"), now_ms=10**9, provider=provider)
    assert entry is UndoEntry.UNDECIDED


# Late effects


def late(picking: Picking) -> None:
    """The saga gave the job up, and the warehouse did it after all."""
    picking.dispatch()
    picking.pass_every_deadline()
    picking.job_saga.compensate()
    picking.calls_back()


def test_a_late_effect_is_compensated(make: Open) -> None:
    picking = make()
    late(picking)
    picking.undo(late=True)

    assert picking.status == "COMPENSATED"
    picking.check()


def test_an_effect_that_is_needed_is_not_compensated_late(make: Open) -> None:
    picking = make()
    picking.dispatch()
    picking.calls_back()
    picking.undo(late=True)

    assert picking.status == "DONE"


def test_late_compensation_writes_no_tombstone(make: Open) -> None:
    picking = make()
    picking.undo(late=True)

    assert picking.status is None


def say(picking: Picking, statement: Statement) -> StepStatus | None:
    """Record an operator's finding about the job."""
    recoverer = Recoverer(table="requests", dynamodb=aws.dynamodb(), step_functions=aws.step_functions())
    record = recoverer.read(REQUEST_ID)
    assert record is not None
    resolver = Resolver(recoverer=recoverer, log_table="log", audit=AUDIT, log_days=400)
    return resolver.resolve(record, STEP, None, statement, picking.world.clock.ms).to


def settle_saga(picking: Picking) -> None:
    """Let the saga end."""
    picking.job_saga.change_record(status=RecordStatus.FAILED, http_status=422, body="{}")


def test_an_ended_saga_reports_only_what_is_left_to_compensate(make: Open) -> None:
    picking = make()
    picking.dispatch()
    picking.calls_back()
    settle_saga(picking)

    with pytest.raises(CannotResolve, match="settled"):
        say(picking, Statement(applied=True, undo=True))


def test_a_late_compensation_that_failed_is_retried(make: Open) -> None:
    picking = make()
    late(picking)
    lose(picking, Moment.BEFORE, "cancel")
    with pytest.raises(ConnectionError):
        picking.undo(late=True)
    settle_saga(picking)
    picking.passes(24 * 3_600_000)
    say(picking, Statement(applied=False, undo=True))
    picking.undo(late=True)

    assert picking.status == "COMPENSATED"


def test_a_late_effect_of_a_running_saga_may_be_compensated_by_hand(make: Open) -> None:
    picking = make()
    late(picking)

    assert say(picking, Statement(applied=True, undo=True)) is StepStatus.COMPENSATED


@pytest.fixture
def make(world: World, monkeypatch: pytest.MonkeyPatch) -> Open:
    """Makes the warehouse that a history needs."""
    return lambda **more: Picking(world, monkeypatch, **more)
