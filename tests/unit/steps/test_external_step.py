"""The external step over serialized DynamoDB and a gateway with books of its own."""

from __future__ import annotations

import threading
from contextlib import nullcontext
from typing import Any

import pytest

from saga_runtime import (
    Declined,
    ExternalCall,
    ManualResolutionRequired,
    Pending,
    SagaFenced,
    StepInDoubt,
    TransientError,
    Unknown,
    external_step,
)
from saga_runtime.errors import PermanentError, ProtocolMismatch
from saga_runtime.idempotency.identity import provider_key_of
from saga_runtime.protocol import CallField, Env, LogAttribute, Metric
from saga_runtime.shared import telemetry
from saga_runtime.steps import external_call
from saga_runtime.steps.external_call import refusal_named
from tests.unit.support.gateway import (
    ASKED,
    GRACE_MS,
    IDEMPOTENT,
    LIFE_MS,
    REMAINING_MS,
    STEP,
    WINDOW_MS,
    Shop,
)
from tests.unit.support.samples import SAGA_ID
from tests.unit.support.wire import SDK_ATTEMPTS, Action, Fault, Killed, Moment
from tests.unit.support.world import Context, World

KEY = provider_key_of(f"{SAGA_ID}#{STEP}")
CHARGED = {"payment": f"payment of {KEY}"}
LOST = Fault(operation="gateway:charge", action=Action.DROP, moment=Moment.AFTER, times=1)
NEVER_SENT = Fault(operation="gateway:charge", action=Action.DROP, moment=Moment.BEFORE, times=1)


@pytest.fixture
def shop(world: World) -> Shop:
    """A shop at a gateway that can be asked, and is not idempotent."""
    return Shop(world)


def cut_off(shop: Shop, fault: Fault = LOST) -> None:
    """Let one attempt end without an answer of the gateway."""
    shop.world.wire.plan(fault)
    with pytest.raises(ConnectionError):
        shop.run()


def test_a_step_is_recorded_then_called_then_its_outcome_is_recorded(shop: Shop, world: World) -> None:
    calls = world.calls_of(lambda: shop.run() == CHARGED or pytest.fail("another output"))

    assert calls == ["PutItem", "gateway:charge", "UpdateItem"]
    assert (shop.gateway.charged, shop.status) == ([KEY], "DONE")


def test_the_row_contains_attempt_deadline_and_side_of_the_pivot(shop: Shop, world: World) -> None:
    cut_off(shop)

    a, row = LogAttribute, shop.row
    assert row[a.STATUS] == "INTENT"
    assert row[a.ATTEMPT_ID] == shop.gateway.seen[0].attempt
    assert int(row[a.DEADLINE]) == world.clock.ms + LIFE_MS
    assert int(row[a.FIRST_ATTEMPT_AT]) == world.clock.ms
    assert row[a.SIDE] == "before"


def test_a_completed_step_returns_its_stored_output_without_a_call(shop: Shop, world: World) -> None:
    shop.run()

    calls = world.calls_of(lambda: shop.run() == CHARGED or pytest.fail("another output"))

    assert calls == ["PutItem"]
    assert world.telemetry.counts[Metric.STEP_REPLAYED] == 1


def test_a_clear_refusal_is_recorded_and_replayed_under_its_name_without_a_call(shop: Shop) -> None:
    class OverLimit(PermanentError):
        code = "OVER_LIMIT"

    shop.provider["refusals"] = ["OverLimit"]
    shop.gateway.broken["charge"] = OverLimit("over the day's limit")
    with pytest.raises(OverLimit):
        shop.run()

    with pytest.raises(OverLimit, match="over the day's limit") as again:
        shop.run()

    assert type(again.value).__name__ == "OverLimit"
    assert again.value.code == "OVER_LIMIT"
    assert (shop.status, shop.row[LogAttribute.ERROR]) == ("REFUSED", "OverLimit")
    assert len(shop.gateway.seen) == 1


def test_a_refusal_of_an_unknown_class_keeps_its_name() -> None:
    error = refusal_named("CardStolen", "the card was reported as stolen")

    assert (type(error).__name__, error.message) == ("CardStolen", "the card was reported as stolen")
    assert isinstance(error, PermanentError)


@pytest.mark.parametrize("error", [TimeoutError("no answer"), KeyError("id"), TransientError("busy"), StepInDoubt("?")])
def test_an_undeclared_error_leaves_the_outcome_open_and_is_raised(shop: Shop, error: Exception) -> None:
    shop.gateway.broken["charge"] = error

    with pytest.raises(type(error)):
        shop.run()

    assert shop.status == "INTENT"


@pytest.mark.parametrize("output", [None, {"amount": 1.5}, {"a": "x" * 40_000}])
def test_an_output_that_cannot_be_kept_does_not_turn_an_effect_into_a_refusal(world: World, output: Any) -> None:
    shop = Shop(world)
    handler = external_step(verify=shop.charge.verify)(lambda _: output)

    with pytest.raises(StepInDoubt, match="cannot be kept"):
        handler(shop.event(), Context())

    assert shop.status == "INTENT"


def test_no_call_begins_while_another_attempt_may_be_alive(shop: Shop) -> None:
    cut_off(shop)

    shop.passes(LIFE_MS - 1)
    with pytest.raises(StepInDoubt, match=r"^the outcome of step Charge is not known yet$"):
        shop.run()

    assert len(shop.gateway.charged) == 1


def test_after_deadline_and_grace_a_verified_effect_is_recorded(shop: Shop, world: World) -> None:
    cut_off(shop)
    shop.pass_every_deadline()

    calls = world.calls_of(lambda: shop.run() == CHARGED or pytest.fail("another output"))

    assert calls == ["PutItem", "gateway:find", "UpdateItem"]
    shop.check()
    assert shop.status == "DONE"


def test_after_deadline_and_grace_a_no_leads_to_a_further_call_under_a_later_deadline(shop: Shop, world: World) -> None:
    cut_off(shop, NEVER_SENT)
    shop.pass_every_deadline()

    calls = world.calls_of(shop.run)

    assert calls == ["PutItem", "gateway:find", "UpdateItem", "gateway:charge", "UpdateItem"]
    assert int(shop.row[LogAttribute.DEADLINE]) == world.clock.ms + LIFE_MS
    shop.check()


def test_within_the_grace_the_gateway_is_not_queried(shop: Shop, world: World) -> None:
    cut_off(shop, NEVER_SENT)
    shop.passes(LIFE_MS + GRACE_MS - 1)

    world.wire.forget()
    with pytest.raises(StepInDoubt):
        shop.run()

    assert world.wire.sent == ["PutItem"]


def test_with_a_valid_key_the_call_is_repeated_after_the_deadline(world: World) -> None:
    shop = Shop(world, **IDEMPOTENT)
    cut_off(shop)
    shop.passes(LIFE_MS)

    calls = world.calls_of(lambda: shop.run() == CHARGED or pytest.fail("another output"))

    assert calls == ["PutItem", "UpdateItem", "gateway:charge", "UpdateItem"]
    shop.check()


@pytest.mark.parametrize(("left_ms", "error"), [(0, None), (1, ManualResolutionRequired)])
def test_a_key_is_known_only_while_the_last_request_can_still_meet_it(
    world: World, left_ms: int, error: type[Exception] | None
) -> None:
    shop = Shop(world, **IDEMPOTENT)
    cut_off(shop)
    shop.passes(WINDOW_MS - LIFE_MS - GRACE_MS + left_ms)

    with nullcontext() if error is None else pytest.raises(error):
        shop.run()

    assert len(shop.gateway.seen) == (2 if error is None else 1)


def test_an_expired_key_is_verified_where_that_is_possible(world: World) -> None:
    shop = Shop(world, **{**IDEMPOTENT, "verify": True})
    cut_off(shop)
    shop.passes(WINDOW_MS)

    calls = world.calls_of(shop.run)

    assert calls == ["PutItem", "gateway:find", "UpdateItem"]


def test_a_refusal_within_the_grace_of_a_former_attempt_is_not_final(world: World) -> None:
    shop = Shop(world, **IDEMPOTENT)
    cut_off(shop, NEVER_SENT)
    shop.passes(LIFE_MS)
    shop.gateway.refuses = "no credit"

    with pytest.raises(StepInDoubt):
        shop.run()
    assert shop.status == "INTENT"
    shop.pass_every_deadline()
    with pytest.raises(Declined):
        shop.run()

    assert shop.status == "REFUSED"


@pytest.mark.parametrize(
    ("verdict", "error"), [(Pending(), StepInDoubt), (Unknown(reason="gone"), ManualResolutionRequired)]
)
def test_an_unknown_outcome_changes_nothing(
    shop: Shop, verdict: Any, error: type[Exception], monkeypatch: pytest.MonkeyPatch
) -> None:
    cut_off(shop)
    shop.pass_every_deadline()
    monkeypatch.setattr(shop.gateway, "find", lambda _: verdict)

    with pytest.raises(error):
        shop.run()

    assert (shop.status, len(shop.gateway.charged)) == ("INTENT", 1)


@pytest.mark.parametrize("answer", [None, True, {"verdict": "applied"}])
def test_an_invalid_verdict_changes_nothing(shop: Shop, answer: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    cut_off(shop)
    shop.pass_every_deadline()
    monkeypatch.setattr(shop.gateway, "find", lambda _: answer)

    with pytest.raises(StepInDoubt, match="return Applied"):
        shop.run()


def test_a_refused_query_does_not_refuse_the_step(shop: Shop) -> None:
    cut_off(shop)
    shop.pass_every_deadline()
    shop.gateway.broken["find"] = Declined("not your payment")

    with pytest.raises(StepInDoubt):
        shop.run()

    assert shop.status == "INTENT"


def test_a_fenced_step_makes_no_call(shop: Shop, world: World) -> None:
    shop.undo()

    with pytest.raises(SagaFenced):
        shop.run()

    assert shop.gateway.charged == []
    assert world.telemetry.counts[Metric.STEP_FENCED] == 1


def test_a_compensated_step_never_runs_again(shop: Shop) -> None:
    shop.run()
    shop.undo()

    with pytest.raises(SagaFenced):
        shop.run()

    shop.check()


def test_an_attempt_that_was_taken_over_leaves_the_row_to_its_successor(world: World) -> None:
    shop = Shop(world, **IDEMPOTENT)

    def later() -> None:
        shop.passes(LIFE_MS)
        world.wire.plan(LOST)
        with pytest.raises(ConnectionError):
            shop.run()

    shop.gateway.meanwhile["charge"] = later
    with pytest.raises(StepInDoubt):
        shop.run()

    assert shop.row[LogAttribute.ATTEMPT_ID] == shop.gateway.seen[-1].attempt
    assert shop.status == "INTENT"


def test_an_attempt_returns_the_outcome_of_its_successor(world: World) -> None:
    shop = Shop(world, **IDEMPOTENT)

    def later() -> None:
        shop.passes(LIFE_MS)
        shop.run()

    shop.gateway.meanwhile["charge"] = later

    assert shop.run() == CHARGED
    shop.check()


@pytest.mark.parametrize("operation", ["PutItem", "UpdateItem"])
@pytest.mark.parametrize("times", [1, 3, 20])
def test_a_write_whose_response_is_lost_is_sent_again_and_recognized(
    shop: Shop, world: World, operation: str, times: int
) -> None:
    world.wire.plan(Fault(operation=operation, action=Action.DROP, moment=Moment.AFTER, times=times))

    assert shop.run() == CHARGED
    shop.check()


def test_failing_writes_end_in_time(shop: Shop, world: World) -> None:
    world.wire.plan(Fault(operation="PutItem", action=Action.THROTTLE, times=10_000))

    with pytest.raises(TransientError):
        shop.run()

    assert shop.gateway.seen == []
    assert world.wire.sent.count("PutItem") == 8 * SDK_ATTEMPTS


# Queries of the outcome


def test_a_query_before_the_step_began_fences_it(shop: Shop) -> None:
    assert shop.ask() == {}
    assert shop.status == "TOMBSTONE"


def test_a_query_of_a_completed_step_returns_its_output(shop: Shop, world: World) -> None:
    shop.run()

    assert world.calls_of(lambda: shop.ask() == CHARGED or pytest.fail("another output")) == ["GetItem"]


def test_a_query_while_the_attempt_may_run_is_in_doubt(shop: Shop) -> None:
    cut_off(shop)
    shop.passes(LIFE_MS + GRACE_MS - 1)

    with pytest.raises(StepInDoubt):
        shop.ask()


@pytest.mark.parametrize(("fault", "output", "status"), [(LOST, CHARGED, "DONE"), (NEVER_SENT, {}, "TOMBSTONE")])
def test_a_later_query_records_the_gateways_outcome(shop: Shop, fault: Fault, output: Any, status: str) -> None:
    cut_off(shop, fault)
    shop.pass_every_deadline()

    assert shop.ask() == output
    assert shop.status == status
    shop.check()


def test_a_refusal_is_recorded_whatever_text_the_provider_gives(shop: Shop) -> None:
    """Half of a surrogate pair is what some providers leave of an emoji; DynamoDB has no such text.

    SQS refuses the other characters, in the notice of the saga's failure.
    """
    shop.gateway.refuses = "no credit \ud83d\uffff\x00"

    with pytest.raises(Declined, match=r"^no credit \?\?\?$"):
        shop.run()

    assert (shop.status, shop.row[LogAttribute.DETAIL]) == ("REFUSED", "no credit ???")
    shop.check()


@pytest.mark.parametrize(("fault", "refuses"), [(LOST, None), (NEVER_SENT, None), (NEVER_SENT, "no credit")])
def test_a_later_query_without_verify_repeats_the_call(world: World, fault: Fault, refuses: str | None) -> None:
    shop = Shop(world, **IDEMPOTENT)
    cut_off(shop, fault)
    shop.pass_every_deadline()
    shop.gateway.refuses = refuses

    assert shop.ask() == ({} if refuses else CHARGED)
    assert shop.status == ("REFUSED" if refuses else "DONE")
    shop.check()


def test_a_query_of_an_unknowable_outcome_needs_an_operator(world: World) -> None:
    shop = Shop(world, **IDEMPOTENT)
    cut_off(shop)
    shop.passes(WINDOW_MS)

    with pytest.raises(ManualResolutionRequired):
        shop.ask()


# Threads and time


def test_an_invocation_does_not_end_before_the_threads_that_it_started(shop: Shop) -> None:
    release, ended = threading.Event(), threading.Event()

    def linger() -> None:
        release.wait(5)
        threading.Timer(0.05, ended.set).start()

    def act(_: ExternalCall) -> dict[str, str]:
        threading.Thread(target=linger, daemon=True).start()
        threading.Timer(0.05, release.set).start()
        return {}

    external_step(verify=shop.charge.verify)(act)(shop.event(), Context())

    assert ended.is_set()


def test_a_thread_that_is_awaited_is_named(shop: Shop, monkeypatch: pytest.MonkeyPatch) -> None:
    named = threading.Event()
    told: dict[str, Any] = {}

    def log(name: str, **fields: Any) -> None:
        told[name] = fields
        named.set()

    def act(_: ExternalCall) -> dict[str, str]:
        threading.Thread(target=named.wait, args=(60,), name="error tracker", daemon=True).start()
        return {}

    monkeypatch.setattr(external_call, "_THREAD_SECONDS", 0.0)
    monkeypatch.setattr(telemetry, "event", log)

    external_step(verify=shop.charge.verify)(act)(shop.event(), Context())

    assert told["thread_awaited"] == {"threads": ["error tracker"]}


def test_a_client_has_less_time_than_the_invocation(shop: Shop) -> None:
    shop.run()

    assert 0 < shop.gateway.seen[0].timeout_seconds < REMAINING_MS / 1_000


def test_a_clients_timeout_is_in_real_seconds_at_any_clock_speed(shop: Shop, monkeypatch: pytest.MonkeyPatch) -> None:
    shop.run()
    monkeypatch.setenv(Env.CLOCK, "1700000000.0:20.0")

    shop.run(**{CallField.STEP: "Other"})

    usual, fast = (call.timeout_seconds for call in shop.gateway.seen)
    assert fast == pytest.approx(usual / 20)


# What does not fit together


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({CallField.PROVIDER: None}, "Step.external"),
        ({CallField.MODE: "guess"}, "mode="),
        ({CallField.SIDE: None}, "side"),
    ],
)
def test_a_call_that_no_saga_makes_is_refused_before_anything_is_written(
    shop: Shop, change: dict[str, Any], message: str
) -> None:
    with pytest.raises(ProtocolMismatch, match=message):
        shop.run(**change)

    assert shop.row == {}


@pytest.mark.parametrize(
    "change",
    [
        {"grace": -1},
        {"grace": True},
        {"clock_skew": "5"},
        {"window": 1.5},
        {"undo_window": None},
        {"verify": 1},
        {"verify_undo": None},
        {"verify": False},
    ],
)
def test_a_provider_that_no_saga_declares_is_refused(world: World, change: dict[str, Any]) -> None:
    shop = Shop(world, **{**ASKED, **change})

    with pytest.raises(ProtocolMismatch):
        shop.run()


def test_a_missing_verify_is_reported_with_the_remedy(shop: Shop) -> None:
    handler = external_step(shop.charge.function)

    with pytest.raises(ProtocolMismatch, match=r"external_step\(verify=...\)"):
        handler(shop.event(), Context())


def test_a_handler_keeps_the_functions_name_and_documentation() -> None:
    @external_step
    def charge(_: ExternalCall) -> dict[str, str]:
        """Charge the card."""
        return {}

    assert (charge.__name__, charge.__doc__) == ("charge", "Charge the card.")


def test_a_killed_attempt_leaves_its_intent(shop: Shop, world: World) -> None:
    world.wire.plan(Fault(operation="gateway:charge", action=Action.KILL, moment=Moment.AFTER, times=1))

    with pytest.raises(Killed):
        shop.run()

    assert shop.status == "INTENT"
    shop.check()
