"""The callback step: what a dispatcher does about each row that it finds, and with each message of a batch."""

from __future__ import annotations

import json
import threading
from typing import Any

import pytest

from saga_runtime import (
    Accepted,
    Applied,
    CallbackCall,
    Declined,
    Failed,
    Invalid,
    ManualResolutionRequired,
    NotApplied,
    Pending,
    StepInDoubt,
    Succeeded,
    Unknown,
    callback_step,
)
from saga_runtime.callbacks.store import alias_id, read_token
from saga_runtime.errors import PermanentError, ProtocolMismatch
from saga_runtime.idempotency.identity import provider_key_of
from saga_runtime.payloads.claim_check import Outputs, Payloads
from saga_runtime.protocol import (
    MAX_OUTPUT_BYTES,
    MAX_OUTPUTS_BYTES,
    REFERENCE_FIELD,
    CallField,
    LogAttribute,
    Metric,
    RecordAttribute,
    StepStatus,
    TokenStatus,
    WaitField,
)
from saga_runtime.saga_log.rows import row_put
from saga_runtime.shared import aws
from saga_runtime.steps.step import Share
from tests.unit.support.gateway import GRACE_MS, IDEMPOTENT, LIFE_MS, REMAINING_MS, WINDOW_MS
from tests.unit.support.job_saga import JOB_ID, PARCEL, REFUSED, STEP
from tests.unit.support.samples import SAGA_ID
from tests.unit.support.warehouse import MAX_RECEIVES, TIMEOUT_SECONDS, Hourglass, Picking
from tests.unit.support.wire import SDK_ATTEMPTS, Action, Fault, Moment
from tests.unit.support.world import Context, World

KEY = provider_key_of(JOB_ID)
LOST = Fault(operation="warehouse:pick", action=Action.DROP, moment=Moment.AFTER, times=1)
NEVER_SENT = Fault(operation="warehouse:pick", action=Action.DROP, moment=Moment.BEFORE, times=1)


@pytest.fixture
def picking(world: World, monkeypatch: pytest.MonkeyPatch) -> Picking:
    """A warehouse that can be asked, and is not idempotent."""
    return Picking(world, monkeypatch)


def cut_off(picking: Picking, fault: Fault = LOST) -> None:
    """Let one delivery end without an answer of the warehouse; the message comes again."""
    picking.world.wire.plan(fault)
    assert not picking.dispatch()


def is_unknown(provider_id: str) -> bool:
    """Test whether an outcome is stored under an id that no job has."""
    row = read_token(alias_id(provider_id))
    return row is not None and row.status is TokenStatus.EARLY


def write(picking: Picking, status: StepStatus, **more: str) -> None:
    """Let the job's row be in a state."""
    extra = {LogAttribute(name): {"N" if value.isdigit() else "S": value} for name, value in more.items()}
    entry = row_put("log", SAGA_ID, STEP, status, picking.job_saga.holder("x").side, 1, 400, "somebody", extra)
    picking.job_saga.write(entry)


def test_a_job_is_recorded_then_waited_for_then_dispatched_then_accepted(picking: Picking, world: World) -> None:
    calls = world.calls_of(lambda: picking.dispatch() or pytest.fail("it comes again"))

    assert calls == ["PutItem", "PutItem", "GetItem", "warehouse:pick", "UpdateItem"]
    assert (picking.warehouse.begun, picking.status) == ([KEY], "INTENT")
    assert picking.row is not None
    assert picking.row.accepted_at == world.clock.ms
    assert picking.job_saga.token["status"] == TokenStatus.WAITING
    picking.check()


def test_the_function_receives_job_id_provider_key_and_timeout(picking: Picking) -> None:
    picking.dispatch()

    (call,) = picking.warehouse.seen
    assert isinstance(call, CallbackCall)
    assert (call.job_id, call.key, call.provider_key) == (JOB_ID, JOB_ID, KEY)
    assert 0 < call.timeout_seconds < REMAINING_MS / 1_000


def test_the_row_contains_the_dispatchers_deadline(picking: Picking, world: World) -> None:
    cut_off(picking)

    assert picking.row is not None
    assert (picking.row.deadline, picking.row.first_attempt_at) == (world.clock.ms + LIFE_MS, world.clock.ms)
    assert picking.row.accepted_at == 0


def test_the_warehouses_outcome_resumes_the_saga_with_the_output(picking: Picking) -> None:
    picking.dispatch()
    picking.calls_back()

    assert (picking.outcome(), picking.status) == (PARCEL, "DONE")
    picking.check()


def test_an_outcome_that_arrives_before_the_dispatch_ends_is_kept(picking: Picking) -> None:
    picking.warehouse.afterwards["pick"] = picking.calls_back

    assert picking.dispatch()

    assert (picking.outcome(), picking.status) == (PARCEL, "DONE")
    picking.check()


@pytest.mark.parametrize(
    ("status", "more", "told"),
    [
        (StepStatus.DONE, {"output": '{"parcel":"p-1"}'}, PARCEL),
        (StepStatus.RECORDED, {"output": '{"parcel":"p-1"}'}, PARCEL),
        (StepStatus.TOMBSTONE, {"output": '{"instead":"x"}'}, {"instead": "x"}),
        (StepStatus.REFUSED, {"error": "OutOfStock", "detail": "none left"}, "OutOfStock"),
        (StepStatus.TOMBSTONE, {}, "SagaFenced"),
        (StepStatus.COMPENSATING, {"deadline": "5", "first_attempt_at": "1"}, "SagaFenced"),
        (StepStatus.COMPENSATED, {"output": '{"parcel":"p-1"}'}, "SagaFenced"),
        (StepStatus.APPLIED_LATE, {"output": '{"parcel":"p-1"}'}, "SagaFenced"),
        (StepStatus.APPLIED_LATE, {"output": '{"parcel":"p-1"}', "substitute": '{"instead":"x"}'}, {"instead": "x"}),
        (StepStatus.COMPENSATED, {"output": '{"parcel":"p-1"}', "substitute": '{"instead":"x"}'}, {"instead": "x"}),
    ],
)
def test_an_outcome_in_the_row_is_delivered_without_a_query(
    picking: Picking, world: World, status: StepStatus, more: dict[str, str], told: object
) -> None:
    write(picking, status, **more)

    message = picking.send()
    calls = world.calls_of(lambda: picking.dispatch(message) or pytest.fail("it comes again"))

    assert picking.outcome() == told
    assert calls[:-1] == ["PutItem", "GetItem"]
    assert calls[-1].startswith("SendTask")
    assert picking.job_saga.token == {}


def test_a_refusal_is_delivered_with_the_detail_of_a_function_error(picking: Picking, world: World) -> None:
    write(picking, StepStatus.REFUSED, error="OutOfStock", detail="none left")

    message = picking.send()
    picking.dispatch(message)

    assert json.loads(world.tasks.woken[message.token]["cause"]) == {"errorMessage": "none left"}


def test_a_message_of_an_ended_attempt_is_dropped(picking: Picking) -> None:
    picking.dispatch()
    picking.calls_back()
    first = picking.sent[0]

    assert picking.dispatch(first)
    assert picking.warehouse.begun == [KEY]


def test_a_message_of_an_older_attempt_dispatches_nothing(picking: Picking) -> None:
    old = picking.send()
    new = picking.send_again()
    picking.dispatch(new)

    assert picking.dispatch(old)

    assert picking.warehouse.begun == [KEY]
    picking.calls_back()
    assert (picking.outcome(1), picking.outcome(2)) == (None, PARCEL)


def test_an_early_outcome_is_delivered_and_the_job_is_not_dispatched(picking: Picking) -> None:
    picking.calls_back()

    assert picking.dispatch()

    assert (picking.outcome(), picking.warehouse.begun) == (PARCEL, [])


# A delivery that was cut off


@pytest.mark.parametrize("fault", [LOST, NEVER_SENT])
def test_a_dispatcher_does_not_call_while_another_may_be_alive(picking: Picking, fault: Fault) -> None:
    cut_off(picking, fault)
    begun = list(picking.warehouse.begun)
    picking.passes(LIFE_MS - 1)

    assert not picking.dispatch(picking.sent[0])

    assert picking.warehouse.begun == begun
    assert len(picking.warehouse.seen) == 1


def test_a_warehouse_is_queried_only_when_no_request_is_in_transit(picking: Picking) -> None:
    cut_off(picking, NEVER_SENT)
    picking.passes(LIFE_MS + GRACE_MS - 1)

    assert not picking.dispatch(picking.sent[0])
    assert len(picking.warehouse.seen) == 1

    picking.passes(1)
    assert picking.dispatch(picking.sent[0])
    assert picking.warehouse.begun == [KEY]
    picking.check()


def test_a_job_in_progress_is_waited_for_and_recorded_as_accepted(picking: Picking, world: World) -> None:
    cut_off(picking, LOST)
    picking.pass_every_deadline()

    calls = world.calls_of(lambda: picking.dispatch(picking.sent[0]) or pytest.fail("it comes again"))

    assert calls == ["PutItem", "PutItem", "GetItem", "warehouse:find", "UpdateItem"]
    assert picking.row is not None
    assert picking.row.accepted_at == world.clock.ms
    assert picking.outcome() is None
    picking.check()


def test_a_job_that_was_done_meanwhile_wakes_the_saga(picking: Picking) -> None:
    cut_off(picking, LOST)
    picking.warehouse.finish()
    picking.pass_every_deadline()

    assert picking.dispatch(picking.sent[0])

    assert (picking.outcome(), picking.status) == (PARCEL, "DONE")
    picking.check()


def test_a_job_with_an_unknown_outcome_is_parked(picking: Picking) -> None:
    cut_off(picking, LOST)
    picking.pass_every_deadline()
    picking.warehouse.says = Unknown(reason="archived")

    assert picking.dispatch(picking.sent[0])

    assert (picking.outcome(), picking.status) == ("ManualResolutionRequired", "INTENT")


def test_an_idempotent_warehouse_is_handed_the_job_again(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    picking = Picking(world, monkeypatch, **IDEMPOTENT)
    cut_off(picking, LOST)
    picking.passes(LIFE_MS)

    assert picking.dispatch(picking.sent[0])

    assert picking.row is not None
    assert picking.row.accepted_at == world.clock.ms
    picking.check()


def test_an_expired_key_without_status_queries_needs_an_operator(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    picking = Picking(world, monkeypatch, **IDEMPOTENT)
    cut_off(picking, LOST)
    picking.passes(WINDOW_MS)

    assert picking.dispatch(picking.sent[0])

    assert (picking.outcome(), len(picking.warehouse.seen)) == ("ManualResolutionRequired", 1)


def test_two_dispatchers_that_replace_a_dead_attempt_do_not_both_call(picking: Picking) -> None:
    cut_off(picking, NEVER_SENT)
    picking.pass_every_deadline()

    def another() -> None:
        assert picking.dispatch(picking.sent[0])

    picking.warehouse.afterwards["find"] = another
    assert picking.dispatch(picking.sent[0])

    assert picking.warehouse.begun == [KEY]
    picking.check()


def test_an_outcome_that_arrives_during_a_query_is_delivered(picking: Picking) -> None:
    cut_off(picking, NEVER_SENT)
    picking.pass_every_deadline()
    picking.warehouse.says = NotApplied()
    picking.warehouse.meanwhile["find"] = picking.undo

    assert picking.dispatch(picking.sent[0])

    assert (picking.outcome(), picking.warehouse.begun) == ("SagaFenced", [])


def test_a_job_that_is_taken_over_was_not_accepted_yet(picking: Picking) -> None:
    picking.dispatch()
    message = picking.send_again()
    picking.pass_every_deadline()
    picking.warehouse.says = NotApplied()
    picking.warehouse.begun.clear()
    picking.world.wire.plan(LOST)

    assert not picking.dispatch(message)

    assert picking.row is not None
    assert picking.row.accepted_at == 0


# An answer that was lost


def test_a_duplicate_message_does_nothing(picking: Picking, world: World) -> None:
    picking.dispatch()
    picking.pass_every_deadline()

    calls = world.calls_of(lambda: picking.dispatch(picking.sent[0]) or pytest.fail("it comes again"))

    assert "warehouse:find" not in calls
    assert "warehouse:pick" not in calls
    picking.check()


def test_a_job_with_a_lost_callback_is_queried_when_the_saga_waits_again(picking: Picking) -> None:
    picking.dispatch()
    picking.warehouse.finish()
    picking.pass_every_deadline()

    assert picking.dispatch(picking.send_again())

    assert (picking.outcome(2), picking.status) == (PARCEL, "DONE")
    picking.check()


def test_a_job_in_progress_is_waited_for_again(picking: Picking) -> None:
    picking.dispatch()
    picking.pass_every_deadline()

    assert picking.dispatch(picking.send_again())
    picking.calls_back()

    assert picking.outcome(2) == PARCEL
    picking.check()


def test_an_interrupted_query_is_repeated_with_its_message(picking: Picking) -> None:
    picking.dispatch()
    picking.warehouse.finish()
    picking.pass_every_deadline()
    message = picking.send_again()
    picking.world.wire.plan(Fault(operation="warehouse:find", action=Action.DROP, times=1))
    assert not picking.dispatch(message)

    assert picking.dispatch(message)

    assert picking.outcome(2) == PARCEL


def test_a_job_past_its_deadline_fails_for_the_waiting_task(picking: Picking) -> None:
    picking.dispatch()
    picking.passes(TIMEOUT_SECONDS * 1_000 - 1)
    assert picking.dispatch(picking.send_again())
    assert picking.outcome(2) is None

    picking.passes(1)
    assert picking.dispatch(picking.send_again())

    assert (picking.outcome(3), picking.status) == ("JobStillPending", "INTENT")


def test_a_job_past_its_deadline_is_queried_before_it_fails(picking: Picking) -> None:
    picking.dispatch()
    picking.warehouse.finish()
    picking.passes(TIMEOUT_SECONDS * 1_000)

    assert picking.dispatch(picking.send_again())

    assert picking.outcome(2) == PARCEL


def test_an_unverifiable_job_is_waited_for_until_its_deadline(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    picking = Picking(world, monkeypatch, **IDEMPOTENT)
    picking.dispatch()
    picking.pass_every_deadline()
    assert picking.dispatch(picking.send_again())
    assert picking.outcome(2) is None

    picking.passes(TIMEOUT_SECONDS * 1_000)
    assert picking.dispatch(picking.send_again())

    assert picking.outcome(3) == "JobStillPending"
    assert picking.warehouse.begun == [KEY]


# Refusals


def test_a_refused_job_is_recorded_and_delivered_under_its_error_name(picking: Picking) -> None:
    picking.warehouse.refuses = "no such article"

    assert picking.dispatch()

    assert (picking.outcome(), picking.status) == ("Declined", "REFUSED")
    assert picking.row is not None
    assert (picking.row.error, picking.row.detail) == ("Declined", "no such article")
    picking.check()


def test_a_refusal_is_in_doubt_while_an_earlier_request_may_arrive(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    picking = Picking(world, monkeypatch, **IDEMPOTENT)
    cut_off(picking, LOST)
    picking.passes(LIFE_MS)
    picking.warehouse.refuses = "in use"

    assert not picking.dispatch(picking.sent[0])

    assert (picking.status, picking.outcome()) == ("INTENT", None)


def test_a_refusal_counts_once_nothing_can_be_on_its_way(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    picking = Picking(world, monkeypatch, **IDEMPOTENT)
    cut_off(picking, NEVER_SENT)
    picking.pass_every_deadline()
    picking.warehouse.refuses = "no such article"

    assert picking.dispatch(picking.sent[0])

    assert (picking.status, picking.outcome()) == ("REFUSED", "Declined")


def test_a_job_past_its_deadline_is_not_dispatched(picking: Picking) -> None:
    """Its dispatcher was delayed for all that time; the state machine does not know whose time it was."""
    picking.send()
    picking.passes(TIMEOUT_SECONDS * 1_000)

    assert picking.dispatch(picking.send_again())

    assert (picking.outcome(2), picking.warehouse.begun) == ("JobStillPending", [])
    picking.pass_every_deadline()
    picking.undo()
    assert picking.status == "TOMBSTONE"
    picking.check()


def test_a_job_of_a_saga_without_a_record_is_dispatched(picking: Picking, world: World) -> None:
    """The reason for which queues of jobs are purged before tables are restored."""
    message = picking.send()
    for record in world.items("requests"):
        aws.dynamodb().delete_item(TableName="requests", Key={RecordAttribute.ID: record[RecordAttribute.ID]})

    assert picking.dispatch(message)

    assert picking.warehouse.begun == [KEY]


def test_a_job_of_a_removed_step_is_not_dispatched(picking: Picking, world: World) -> None:
    """Renamed while its job was in the queue, the step is unknown to recoveries: none would fence or compensate it."""
    message = picking.send()
    picking.unserved(lambda: picking.deliver(message))

    assert (picking.status, picking.warehouse.begun) == (None, [])
    assert world.telemetry.counts[Metric.DISPATCH_FAILED] == 1

    assert picking.dispatch(message), "the step was put back"
    assert picking.warehouse.begun == [KEY]


@pytest.mark.parametrize("idempotent", [False, True])
def test_a_job_past_its_deadline_is_not_dispatched_again(
    world: World, monkeypatch: pytest.MonkeyPatch, idempotent: bool
) -> None:
    more: dict[str, Any] = {"window": WINDOW_MS // 1_000} if idempotent else {}
    picking = Picking(world, monkeypatch, **more)
    cut_off(picking, NEVER_SENT)
    picking.passes(TIMEOUT_SECONDS * 1_000)

    assert picking.dispatch(picking.send_again())

    assert (picking.outcome(2), picking.warehouse.begun) == ("JobStillPending", [])
    picking.check()


def test_a_refusal_of_a_name_of_ones_own_keeps_it(picking: Picking) -> None:
    class OutOfStock(PermanentError):
        pass

    picking.provider["refusals"] = ["OutOfStock"]
    picking.warehouse.meanwhile["pick"] = lambda: (_ for _ in ()).throw(OutOfStock("none left"))

    assert picking.dispatch()

    assert picking.outcome() == "OutOfStock"


def test_a_refused_query_does_not_refuse_the_job(picking: Picking) -> None:
    cut_off(picking, LOST)
    picking.pass_every_deadline()
    picking.warehouse.broken["find"] = Declined("query refused")

    assert not picking.dispatch(picking.sent[0])

    assert picking.status == "INTENT"


@pytest.mark.parametrize("error", [ConnectionError("reset"), ValueError("secret"), StepInDoubt("who knows")])
def test_any_other_exception_is_recorded_and_the_message_redelivered(
    picking: Picking, world: World, error: Exception
) -> None:
    picking.warehouse.broken["pick"] = error

    assert not picking.dispatch()

    token = picking.job_saga.token
    said = "StepInDoubt: who knows" if isinstance(error, StepInDoubt) else type(error).__name__
    assert (token["failed_dispatches"], token["dispatch_error"]) == ("1", said)
    assert world.telemetry.counts[Metric.DISPATCH_FAILED] == (0 if isinstance(error, StepInDoubt) else 1)
    picking.check()


def test_every_failure_of_a_last_delivery_is_counted(picking: Picking, world: World) -> None:
    cut_off(picking, LOST)
    counted = world.telemetry.counts[Metric.DISPATCH_FAILED]

    assert not picking.dispatch(picking.sent[0], receives=MAX_RECEIVES - 1)
    assert world.telemetry.counts[Metric.DISPATCH_FAILED] == counted

    assert not picking.dispatch(picking.sent[0], receives=MAX_RECEIVES)
    assert world.telemetry.counts[Metric.DISPATCH_FAILED] == counted + 1
    assert world.telemetry.events[-1][1]["job_id"] == JOB_ID


def test_that_a_failure_could_not_be_written_down_changes_nothing(picking: Picking, world: World) -> None:
    picking.warehouse.broken["pick"] = ConnectionError("reset")
    world.wire.plan(Fault(operation="UpdateItem", action=Action.THROTTLE, times=100))

    assert not picking.dispatch()


# Ids of the provider's own


def test_a_warehouse_may_speak_of_a_job_under_an_id_of_its_own(picking: Picking) -> None:
    picking.warehouse.own_id = "pick-77"
    picking.dispatch()

    picking.calls_back(job_id="pick-77")

    assert (picking.outcome(), picking.status) == (PARCEL, "DONE")


def test_an_outcome_under_an_unknown_id_is_adopted(picking: Picking) -> None:
    picking.warehouse.own_id = "pick-77"
    picking.warehouse.afterwards["pick"] = lambda: picking.calls_back(job_id="pick-77")

    assert picking.dispatch()

    assert (picking.outcome(), picking.status) == (PARCEL, "DONE")
    picking.check()


LARGE = {"label": "x" * 2_450}


@pytest.mark.parametrize(
    ("more", "most"),
    [
        ({}, MAX_OUTPUT_BYTES),
        (
            {CallField.OUTPUTS: {"Charge": {"pad": "x" * 98_000}}},
            MAX_OUTPUTS_BYTES - 98_000 - len('{"Charge": {"pad": ""}}'),
        ),
        ({CallField.OUTPUTS: {"Charge": {"pad": "x" * 98_300}}}, 2),
        ({CallField.SHARE: {"of": 40, "own": [], "left": 1}}, MAX_OUTPUTS_BYTES // 40 - len(f'"{STEP}":,')),
        ({CallField.SHARE: {"of": 40, "own": ["A"], "left": 1}, CallField.OUTPUTS: {"A": {"pad": "x" * 2_500}}}, 2),
    ],
)
def test_a_success_with_more_output_than_its_saga_has_room_for_is_refused(
    picking: Picking, more: dict[str, Any], most: int
) -> None:
    assert picking.dispatch(picking.send(**more))
    rows = picking.world.items("tokens")
    assert picking.job_saga.token["max_output"] == str(most)

    def labelled(size: int) -> dict[str, str]:
        """An output of so many bytes; of two in each character, if that is possible."""
        left = size - len('{"label":""}')
        return {"label": "x" * (left % 2) + "é" * (left // 2)} if left >= 0 else {"a": "b"} if size > 2 else {}

    for size in (most + 1, most + 100):
        with pytest.raises(Invalid, match=rf"{most} bytes,.* got \d+"):
            picking.calls_back(outcome=Succeeded(labelled(size)))
    assert picking.world.items("tokens") == rows

    picking.calls_back(outcome=Succeeded(labelled(most)))
    assert (picking.outcome(), picking.status) == (labelled(most), "DONE")


def test_a_refusal_and_a_late_effect_have_room(picking: Picking) -> None:
    full = {CallField.OUTPUTS: {"Charge": {"pad": "x" * 98_300}}}
    picking.dispatch(picking.send(**full))
    picking.calls_back(outcome=REFUSED)

    assert (picking.outcome(), picking.status) == ("OutOfStock", "REFUSED")
    picking.calls_back(outcome=Succeeded(LARGE))
    assert picking.status == "APPLIED_LATE"


def test_a_verdict_with_more_output_than_its_saga_has_room_for_decides_nothing(picking: Picking) -> None:
    message = picking.send(**{CallField.SHARE: {"of": 40, "own": [], "left": 1}})
    picking.world.wire.plan(LOST)
    assert not picking.dispatch(message)
    picking.pass_every_deadline()
    picking.warehouse.says = Applied(output=LARGE | PARCEL)

    assert not picking.dispatch(message)

    assert (picking.outcome(), picking.status) == (None, "INTENT")
    assert f"step {STEP} took effect, and its output cannot be kept" in picking.job_saga.token["dispatch_error"]
    picking.warehouse.says = Applied(output=PARCEL)
    assert picking.dispatch(message)
    assert (picking.outcome(), picking.status) == (PARCEL, "DONE")


def test_a_room_that_an_earlier_attempt_had_is_replaced(picking: Picking) -> None:
    """A release may have raised or lowered ``max_items``; rows of earlier releases have no room."""
    picking.dispatch(picking.send(**{CallField.SHARE: {"of": 40, "own": [], "left": 1}}))
    picking.dispatch(picking.send_again())

    assert picking.job_saga.token["max_output"] == str(MAX_OUTPUT_BYTES)


def test_a_row_of_an_earlier_release_has_the_room_of_one_output(picking: Picking) -> None:
    picking.dispatch()
    row = picking.world.items("tokens")[0]
    del row["max_output"]
    aws.dynamodb().put_item(TableName="tokens", Item=row)

    picking.calls_back(outcome=Succeeded(LARGE))

    assert (picking.outcome(), picking.status) == (LARGE, "DONE")


def test_outputs_that_travel_by_reference_are_not_read_for_the_room() -> None:
    raw = {"Charge": {REFERENCE_FIELD: f"{SAGA_ID}/{'0' * 64}"}}

    assert Share(of=4, key=STEP).most(Outputs(raw, Payloads(saga_id=SAGA_ID))) > 24_000


@pytest.mark.parametrize("outcome", [Succeeded(PARCEL), REFUSED])
def test_an_outcome_under_the_id_that_a_verdict_supplies_is_adopted(
    picking: Picking, outcome: Succeeded | Failed
) -> None:
    """The dispatch was cut off before the alias was stored. The verdict counts, whatever was reported."""
    cut_off(picking, LOST)
    picking.calls_back(job_id="pick-77", outcome=outcome)
    assert is_unknown("pick-77")
    picking.pass_every_deadline()
    picking.warehouse.says = Applied(output=PARCEL, job_id="pick-77")

    assert picking.dispatch(picking.sent[0])

    assert (picking.outcome(), picking.status) == (PARCEL, "DONE")
    assert not is_unknown("pick-77")
    assert ("conflict" in picking.job_saga.token) == (outcome is REFUSED)


def test_a_job_done_after_a_refusal_under_the_providers_id_is_a_late_effect(picking: Picking) -> None:
    picking.warehouse.own_id, picking.warehouse.refuses = "pick-77", "no pallets"
    assert picking.dispatch()
    assert (picking.outcome(), picking.status) == ("Declined", "REFUSED")

    picking.calls_back(job_id="pick-77")

    assert picking.status == "APPLIED_LATE"


def test_a_refusal_of_a_completed_job_is_ignored(picking: Picking) -> None:
    picking.warehouse.own_id, picking.warehouse.refuses = "pick-77", "no pallets"
    picking.warehouse.meanwhile["pick"] = lambda: picking.calls_back(job_id="pick-77")

    assert picking.dispatch()

    assert (picking.outcome(), picking.status) == (PARCEL, "DONE")


def test_a_blank_id_of_a_refusal_is_reported_with_the_remedy() -> None:
    with pytest.raises(ValueError, match="leave it out"):
        Declined("no pallets", job_id=" ")


@pytest.mark.parametrize("own_id", ["pick 77", "p" * 256])
def test_an_unstorable_id_is_not_a_refusal(picking: Picking, own_id: str) -> None:
    picking.warehouse.own_id = own_id

    assert not picking.dispatch()

    assert picking.status == "INTENT"
    assert "cannot be stored" in picking.job_saga.token["dispatch_error"]


def test_a_blank_id_is_reported_with_the_remedy() -> None:
    with pytest.raises(ValueError, match="leave it out"):
        Accepted(job_id=" ")


def test_an_invalid_result_is_in_doubt(picking: Picking, world: World) -> None:
    @callback_step(verify=lambda _: Pending())
    def pick(_: CallbackCall) -> Any:
        return {"job": "pick-77"}

    picking.pick = pick
    assert not picking.dispatch()

    assert "return Accepted" in picking.job_saga.token["dispatch_error"]
    assert picking.status == "INTENT"


def test_an_unstorable_output_is_not_a_refusal(picking: Picking, monkeypatch: pytest.MonkeyPatch) -> None:
    cut_off(picking, LOST)
    picking.pass_every_deadline()
    picking.warehouse.finish()
    monkeypatch.setitem(PARCEL, "weight", 1.5)

    assert not picking.dispatch(picking.sent[0])

    assert picking.status == "INTENT"
    assert "cannot be kept" in picking.job_saga.token["dispatch_error"]


@pytest.mark.parametrize("job", [True, False])
def test_a_message_with_a_known_outcome_and_no_task_unparks_the_saga(
    world: World, monkeypatch: pytest.MonkeyPatch, job: bool
) -> None:
    picking = Picking(world, monkeypatch, job=job)
    picking.dispatch()
    picking.calls_back()
    late = picking.send_again()
    world.tasks.time_out(late.token)
    picking.job_saga.change_record(parked_by=SAGA_ID, parked_reason='{"step": "Pick"}')

    assert picking.dispatch(late)

    assert RecordAttribute.PARKED_BY not in picking.job_saga.record()
    assert RecordAttribute.LATE_OUTCOME_AT in picking.job_saga.record()


def test_a_known_outcome_is_delivered_if_what_is_unknown_cannot_be_adopted(picking: Picking) -> None:
    """The saga's record is gone: it is unknown which saga the stored outcome is of."""
    picking.unserved(lambda: picking.calls_back("early"))
    write(picking, StepStatus.DONE, output=json.dumps(PARCEL))
    picking.job_saga.change_record(saga_id="another")

    assert picking.dispatch()

    assert picking.outcome() == PARCEL
    assert is_unknown(JOB_ID)


# Batches


def test_only_failed_messages_are_redelivered(picking: Picking) -> None:
    good = picking.send()
    other = json.dumps({**json.loads(picking.send().body), CallField.PROTOCOL: 99})

    assert picking.deliver("not JSON", good, other, "[1]", "null") == [0, 2, 3, 4]

    assert picking.warehouse.begun == [KEY]


def test_an_invalid_message_is_never_dropped_and_never_logged(picking: Picking, world: World) -> None:
    assert picking.deliver('{"token": "secret-token-9"', '{"token": "secret-token-9"}') == [0, 1]

    assert "secret-token" not in repr(world.telemetry.events)
    assert world.telemetry.counts[Metric.DISPATCH_FAILED] == 2


@pytest.mark.parametrize(
    ("name", "value"),
    [
        (CallField.TOKEN, " "),
        (CallField.TOKEN, 5),
        (CallField.REQUEST_TABLE, ""),
        (CallField.EXECUTION, None),
        (CallField.TASK, None),
        (CallField.WAIT, []),
        (CallField.WAIT, {WaitField.HEARTBEAT: 0, WaitField.TIMEOUT: 5}),
        (CallField.WAIT, {WaitField.HEARTBEAT: 5}),
        (CallField.TASK, {"started": "yesterday"}),
        (CallField.PROVIDER, {}),
        (CallField.ITEM_KEY, "a"),
        (CallField.SIDE, "beside"),
    ],
)
def test_a_message_that_lacks_something_is_not_begun(picking: Picking, name: CallField, value: object) -> None:
    assert not picking.dispatch(picking.send(**{name: value}))

    assert (picking.status, picking.warehouse.begun) == (None, [])


def items(picking: Picking, count: int) -> list[Any]:
    """Messages of so many items of a map."""
    return [picking.send(**{CallField.ITEM: '{"item":{}}', CallField.ITEM_KEY: f"i-{index}"}) for index in range(count)]


def test_each_message_of_a_batch_has_its_share_of_the_time(picking: Picking, world: World) -> None:
    assert picking.deliver(*items(picking, 4), context=Hourglass(20_000, world)) == []

    first, *_, last = picking.warehouse.seen
    assert first.timeout_seconds < 5_000 / 1_000
    assert last.timeout_seconds <= 20_000 / 1_000


def test_a_message_is_not_begun_when_others_have_used_up_its_time(picking: Picking, world: World) -> None:
    picking.warehouse.afterwards["pick"] = lambda: picking.passes(19_000)

    assert picking.deliver(*items(picking, 3), context=Hourglass(20_000, world)) == [1, 2]

    assert len(picking.warehouse.begun) == 1
    assert set(world.rows()) == {f"{SAGA_ID}#{STEP}[i-0]"}, "the others are untouched"


def test_a_deadline_is_when_the_invocation_is_dead_not_when_a_share_is_over(picking: Picking, world: World) -> None:
    picking.deliver(*items(picking, 2), context=Hourglass(20_000, world))

    deadlines = {int(item[LogAttribute.DEADLINE]["N"]) for item in world.items("log")}
    assert deadlines == {world.clock.ms + 20_000 + LIFE_MS - REMAINING_MS}


def test_records_of_something_else_fail_as_a_whole(picking: Picking) -> None:
    with pytest.raises(ProtocolMismatch, match="SQS"):
        picking.pick({"Records": [{"Sns": {}}]}, Context())


def test_an_empty_batch_is_not_a_failure(picking: Picking) -> None:
    assert picking.deliver() == []


def test_items_of_a_map_are_jobs_of_their_own(picking: Picking, world: World) -> None:
    picking.deliver(*items(picking, 2))

    assert [call.job_id for call in picking.warehouse.seen] == [f"{JOB_ID}[i-0]", f"{JOB_ID}[i-1]"]
    assert world.rows() == {f"{SAGA_ID}#{STEP}[i-{index}]": "INTENT" for index in range(2)}


def test_a_dispatch_ends_after_the_threads_that_it_started(picking: Picking) -> None:
    ended = threading.Event()

    @callback_step(verify=lambda _: Pending())
    def pick(_: CallbackCall) -> None:
        threading.Timer(0.05, ended.set).start()

    picking.pick = pick
    picking.dispatch()

    assert ended.is_set()


# Waits


@pytest.fixture
def waiting(world: World, monkeypatch: pytest.MonkeyPatch) -> Picking:
    """A step that waits for an event without a job."""
    return Picking(world, monkeypatch, job=False)


def test_a_wait_is_registered_and_announced_and_leaves_no_row(waiting: Picking, world: World) -> None:
    calls = world.calls_of(lambda: waiting.dispatch() or pytest.fail("it comes again"))

    assert calls == ["GetItem", "PutItem", "GetItem", "warehouse:pick"]
    assert waiting.row is None
    assert waiting.warehouse.seen[0].job_id == JOB_ID


def test_a_wait_ends_with_its_outcome(waiting: Picking) -> None:
    waiting.dispatch()
    waiting.calls_back()

    assert (waiting.outcome(), waiting.status) == (PARCEL, "RECORDED")
    assert waiting.dispatch(waiting.send())
    assert waiting.outcome(2) == PARCEL


def test_a_wait_that_was_refused_stays_refused(waiting: Picking) -> None:
    waiting.dispatch()
    waiting.calls_back(outcome=REFUSED)
    waiting.dispatch(waiting.send())

    assert (waiting.outcome(1), waiting.outcome(2)) == ("OutOfStock", "OutOfStock")


def test_a_wait_is_announced_to_each_attempt_at_least_once(waiting: Picking) -> None:
    waiting.dispatch()
    waiting.dispatch(waiting.send_again())
    waiting.dispatch(waiting.sent[0])

    assert len(waiting.warehouse.seen) == 2, "the older attempt waits no more"


def test_an_announcement_that_failed_is_made_again(waiting: Picking) -> None:
    waiting.warehouse.broken["pick"] = ConnectionError("no mail today")
    assert not waiting.dispatch()

    assert waiting.dispatch(waiting.sent[0])

    assert len(waiting.warehouse.seen) == 2


def test_a_wait_past_its_deadline_ends(waiting: Picking) -> None:
    waiting.dispatch()
    waiting.passes(TIMEOUT_SECONDS * 1_000)

    assert waiting.dispatch(waiting.send_again())

    assert waiting.outcome(2) == "WaitTimedOut"
    assert len(waiting.warehouse.seen) == 1


def test_an_announcement_may_return_the_providers_id(waiting: Picking) -> None:
    waiting.warehouse.own_id = "approval-5"
    waiting.dispatch()
    waiting.calls_back(job_id="approval-5")

    assert waiting.outcome() == PARCEL


def test_a_step_that_was_run_as_a_job_is_not_waited_for(waiting: Picking) -> None:
    write(waiting, StepStatus.INTENT, deadline="5", first_attempt_at="1")

    assert not waiting.dispatch()

    assert "recover the saga" not in str(waiting.job_saga.token)
    assert waiting.warehouse.seen == []


def test_a_wait_needs_no_function_and_a_job_does(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    from handlers.callback_dispatcher import handler

    waiting = Picking(world, monkeypatch, job=False)
    waiting.pick = handler
    assert waiting.dispatch()
    waiting.calls_back()
    assert waiting.outcome() == PARCEL

    waiting.job = True
    assert not waiting.dispatch(waiting.send())


# Questions of the state machine


def test_a_job_that_never_began_is_fenced_by_a_query(picking: Picking) -> None:
    assert picking.ask() == {}
    assert picking.status == "TOMBSTONE"


def test_a_query_returns_the_outcome_of_a_job(picking: Picking) -> None:
    picking.dispatch()
    picking.pass_every_deadline()
    with pytest.raises(StepInDoubt, match="not done"):
        picking.ask()

    picking.warehouse.finish()

    assert picking.ask() == PARCEL
    assert picking.status == "DONE"


def test_an_unverifiable_job_is_not_dispatched_again_to_learn_its_outcome(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    picking = Picking(world, monkeypatch, **IDEMPOTENT)
    cut_off(picking, NEVER_SENT)
    picking.pass_every_deadline()

    with pytest.raises(ManualResolutionRequired):
        picking.ask()
    with pytest.raises(ManualResolutionRequired):
        picking.undo()

    assert picking.warehouse.begun == []


def test_a_callback_step_is_not_called_to_act(picking: Picking) -> None:
    with pytest.raises(ProtocolMismatch, match="queue"):
        picking.pick(picking.event(), Context())


def test_a_missing_verify_is_reported_with_the_remedy(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    picking = Picking(world, monkeypatch, verified=False)

    assert not picking.dispatch()
    with pytest.raises(ProtocolMismatch, match=r"callback_step\(verify=...\)"):
        picking.ask()

    assert picking.status is None


@pytest.mark.parametrize("operation", ["PutItem", "UpdateItem"])
@pytest.mark.parametrize("times", [1, SDK_ATTEMPTS, 20])
def test_a_write_whose_response_is_lost_is_sent_again_and_recognized(
    picking: Picking, world: World, operation: str, times: int
) -> None:
    world.wire.plan(Fault(operation=operation, action=Action.DROP, moment=Moment.AFTER, times=times))

    picking.to_the_end(picking.send())
    picking.calls_back()

    assert picking.outcome() == PARCEL
    picking.check()


def test_a_handler_keeps_the_functions_name_and_documentation() -> None:
    @callback_step
    def pick(_: CallbackCall) -> None:
        """Pick it."""

    assert (pick.__name__, pick.__doc__) == ("pick", "Pick it.")
