"""The compensation of an external step: the row decides, and what is not known is found out first."""

from __future__ import annotations

import threading
from importlib import import_module
from typing import Any

import pytest

from saga_runtime import (
    ExternalCall,
    ManualResolutionRequired,
    NotApplied,
    Pending,
    StepCall,
    StepInDoubt,
    Unknown,
    Verdict,
    callback_step,
    external_compensation,
    external_step,
)
from saga_runtime.errors import Invalid, ProtocolMismatch
from saga_runtime.idempotency.identity import provider_key_of, step_key_of
from saga_runtime.protocol import CallField, LogAttribute
from saga_runtime.saga_log.rows import LogRow
from saga_runtime.steps.atomic import read_row
from saga_runtime.steps.atomic_compensation import CompensationRefused
from tests.unit.support.gateway import (
    GRACE_MS,
    IDEMPOTENT,
    LIFE_MS,
    STEP,
    UNDO_ASKED,
    UNDO_NEITHER,
    WINDOW_MS,
    Shop,
)
from tests.unit.support.samples import SAGA_ID
from tests.unit.support.transfers import give_back
from tests.unit.support.wire import Action, Fault, Moment
from tests.unit.support.world import Context, World

LOST = Fault(operation="gateway:charge", action=Action.DROP, moment=Moment.AFTER, times=1)
NEVER_SENT = Fault(operation="gateway:charge", action=Action.DROP, moment=Moment.BEFORE, times=1)
UNDO_LOST = Fault(operation="gateway:refund", action=Action.DROP, moment=Moment.AFTER, times=1)
UNDO_NEVER_SENT = Fault(operation="gateway:refund", action=Action.DROP, moment=Moment.BEFORE, times=1)


@pytest.fixture
def shop(world: World) -> Shop:
    """A shop at a gateway that can be asked about charges, and knows the keys of refunds."""
    return Shop(world)


def cut_off(shop: Shop, fault: Fault) -> None:
    """Let one attempt of the step, or of its undo, end without an answer of the gateway."""
    shop.world.wire.plan(fault)
    invoke = shop.undo if "refund" in fault.operation else shop.run
    with pytest.raises(ConnectionError):
        invoke()


def test_a_compensation_is_recorded_then_called_then_recorded_as_done(shop: Shop, world: World) -> None:
    shop.run()

    calls = world.calls_of(shop.undo)

    assert calls == ["GetItem", "UpdateItem", "gateway:refund", "UpdateItem"]
    assert shop.status == "COMPENSATED"
    shop.check()


def test_a_compensation_has_a_key_of_its_own(shop: Shop) -> None:
    shop.run()
    shop.undo()

    undo_key = step_key_of(SAGA_ID, STEP, undo=True)
    assert shop.gateway.refunded == [provider_key_of(undo_key)]
    assert shop.gateway.seen[-1].key == undo_key


def test_a_step_that_never_began_is_fenced(shop: Shop, world: World) -> None:
    assert world.calls_of(shop.undo) == ["GetItem", "PutItem"]
    assert shop.status == "TOMBSTONE"


@pytest.mark.parametrize("state", ["TOMBSTONE", "COMPENSATED", "REFUSED"])
def test_without_an_applied_effect_nothing_is_compensated(shop: Shop, world: World, state: str) -> None:
    shop.gateway.refuses = "no credit" if state == "REFUSED" else None
    if state != "TOMBSTONE":
        shop.to_the_end(shop.run)
    if state != "REFUSED":
        shop.undo()

    assert world.calls_of(shop.undo) == ["GetItem"]
    assert shop.status == state


def test_a_step_that_may_be_in_progress_is_waited_for(shop: Shop) -> None:
    cut_off(shop, LOST)
    shop.passes(LIFE_MS + GRACE_MS - 1)

    with pytest.raises(StepInDoubt):
        shop.undo()

    assert (shop.status, shop.gateway.refunded) == ("INTENT", [])


@pytest.mark.parametrize(("fault", "status"), [(LOST, "COMPENSATED"), (NEVER_SENT, "TOMBSTONE")])
def test_the_effect_is_verified_under_the_steps_own_key(shop: Shop, fault: Fault, status: str) -> None:
    cut_off(shop, fault)
    shop.pass_every_deadline()

    shop.undo()

    assert shop.status == status
    shop.check()


@pytest.mark.parametrize(
    ("fault", "refuses", "status"),
    [(LOST, None, "COMPENSATED"), (NEVER_SENT, None, "COMPENSATED"), (NEVER_SENT, "no credit", "REFUSED")],
)
def test_without_status_queries_the_call_is_repeated_to_learn_the_effect(
    world: World, fault: Fault, refuses: str | None, status: str
) -> None:
    shop = Shop(world, **IDEMPOTENT)
    cut_off(shop, fault)
    shop.pass_every_deadline()
    shop.gateway.refuses = refuses

    shop.undo()

    assert shop.status == status
    shop.check()


def test_two_concurrent_compensations_compensate_once(world: World) -> None:
    shop = Shop(world, **IDEMPOTENT)
    cut_off(shop, LOST)
    shop.pass_every_deadline()

    def another() -> None:
        shop.pass_every_deadline()
        shop.undo()

    shop.gateway.meanwhile["charge"] = another
    shop.undo()

    shop.check()
    assert shop.status == "COMPENSATED"


def test_an_unknowable_outcome_is_parked(world: World) -> None:
    shop = Shop(world, **IDEMPOTENT)
    cut_off(shop, LOST)
    shop.passes(WINDOW_MS)

    with pytest.raises(ManualResolutionRequired):
        shop.undo()


def test_no_compensation_runs_while_another_may_be_alive(shop: Shop) -> None:
    shop.run()
    cut_off(shop, UNDO_NEVER_SENT)
    shop.passes(LIFE_MS - 1)

    with pytest.raises(StepInDoubt, match=r"^the outcome of the compensation of step Charge is not known yet$"):
        shop.undo()

    assert shop.status == "COMPENSATING"


def test_a_compensation_with_a_known_key_is_taken_over_and_repeated(shop: Shop, world: World) -> None:
    shop.run()
    cut_off(shop, UNDO_LOST)
    shop.passes(LIFE_MS)

    calls = world.calls_of(shop.undo)

    assert calls == ["GetItem", "UpdateItem", "gateway:refund", "UpdateItem"]
    assert int(shop.row[LogAttribute.DEADLINE]) == world.clock.ms + LIFE_MS
    shop.check()


def test_a_compensations_key_window_begins_with_the_first_call(shop: Shop) -> None:
    shop.run()
    shop.passes(10 * WINDOW_MS)
    cut_off(shop, UNDO_LOST)
    shop.passes(WINDOW_MS - LIFE_MS - GRACE_MS)

    shop.undo()

    shop.check()
    assert shop.status == "COMPENSATED"


def test_an_unverifiable_compensation_with_an_expired_key_is_parked(shop: Shop) -> None:
    shop.run()
    cut_off(shop, UNDO_LOST)
    shop.passes(WINDOW_MS - LIFE_MS - GRACE_MS + 1)

    with pytest.raises(ManualResolutionRequired):
        shop.undo()


def test_a_compensation_with_an_unknowable_outcome_is_parked(world: World) -> None:
    shop = Shop(world, **UNDO_NEITHER)
    shop.run()
    cut_off(shop, UNDO_LOST)
    shop.pass_every_deadline()

    with pytest.raises(ManualResolutionRequired):
        shop.undo()

    assert len(shop.gateway.refunded) == 1


def test_a_verified_compensation_is_accepted_at_once_when_applied(world: World) -> None:
    shop = Shop(world, **UNDO_ASKED)
    shop.run()
    cut_off(shop, UNDO_LOST)
    shop.passes(LIFE_MS)

    calls = world.calls_of(shop.undo)

    assert calls == ["GetItem", "gateway:find_refund", "UpdateItem"]
    shop.check()
    assert shop.status == "COMPENSATED"


def test_a_compensation_not_applied_is_repeated_only_after_the_grace(world: World) -> None:
    shop = Shop(world, **UNDO_ASKED)
    shop.run()
    cut_off(shop, UNDO_NEVER_SENT)
    shop.passes(LIFE_MS + GRACE_MS - 1)

    with pytest.raises(StepInDoubt):
        shop.undo()
    shop.passes(1)
    shop.undo()

    shop.check()
    assert shop.status == "COMPENSATED"


def test_a_compensation_with_an_unknown_outcome_is_parked(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    shop = Shop(world, **UNDO_ASKED)
    shop.run()
    cut_off(shop, UNDO_LOST)
    shop.pass_every_deadline()
    monkeypatch.setattr(shop.gateway, "find_refund", lambda _: Unknown(reason="archived"))

    with pytest.raises(ManualResolutionRequired, match="archived"):
        shop.undo()


def test_a_refused_compensation_is_retried_and_never_a_refused_step(shop: Shop) -> None:
    shop.run()
    shop.gateway.broken["refund"] = Invalid("account closed")

    with pytest.raises(CompensationRefused, match="account closed") as refused:
        shop.undo()

    assert refused.value.retryable
    assert shop.status == "COMPENSATING"


@pytest.mark.parametrize("operation", ["PutItem", "UpdateItem"])
@pytest.mark.parametrize("times", [1, 3, 20])
def test_a_write_whose_response_is_lost_is_sent_again_and_recognized(
    shop: Shop, world: World, operation: str, times: int
) -> None:
    if operation == "UpdateItem":
        shop.run()
    world.wire.plan(Fault(operation=operation, action=Action.DROP, moment=Moment.AFTER, times=times))

    shop.undo()

    shop.check()
    assert shop.status == ("TOMBSTONE" if operation == "PutItem" else "COMPENSATED")


def test_a_step_that_begins_while_it_is_being_fenced_is_compensated(
    shop: Shop, monkeypatch: pytest.MonkeyPatch
) -> None:
    module = import_module("saga_runtime.steps.external_compensation")
    reads = [shop.run, lambda: None]

    def read(call: StepCall) -> LogRow | None:
        found = read_row(call)
        reads.pop(0)()
        return found

    monkeypatch.setattr(module, "read_row", read)

    shop.undo()

    shop.check()
    assert shop.status == "COMPENSATED"


def test_a_compensation_does_not_end_before_the_threads_that_it_started(shop: Shop) -> None:
    ended = threading.Event()

    @external_compensation(of=shop.charge)
    def refund(_call: ExternalCall, _: Any) -> None:
        threading.Timer(0.05, ended.set).start()

    shop.run()
    refund(shop.event(), Context())

    assert ended.is_set()


def test_a_missing_function_is_reported_with_the_remedy(world: World) -> None:
    shop = Shop(world, **UNDO_ASKED)

    @external_compensation(of=shop.charge)
    def refund(_call: ExternalCall, _: Any) -> None:
        raise AssertionError

    with pytest.raises(ProtocolMismatch, match="verify_undo="):
        refund(shop.event(), Context())


def test_an_external_compensation_is_that_of_an_external_step() -> None:
    with pytest.raises(TypeError, match="decorate it with external_step"):
        external_compensation(of=give_back)  # type: ignore[arg-type]


def test_the_compensation_of_an_atomic_step_leaves_an_external_steps_row_alone(shop: Shop) -> None:
    cut_off(shop, LOST)

    with pytest.raises(ProtocolMismatch, match="external"):
        give_back(shop.event(), Context())

    assert shop.status == "INTENT"


def test_items_of_a_map_have_rows_and_keys_of_their_own(shop: Shop, world: World) -> None:
    for sku in ("a-1", "b-2"):
        shop.run(**{CallField.ITEM: f'{{"item":{{"sku":"{sku}"}}}}', CallField.ITEM_KEY: sku})
    shop.undo(**{CallField.ITEM: '{"item":{"sku":"a-1"}}', CallField.ITEM_KEY: "a-1"})

    assert world.rows() == {f"{SAGA_ID}#{STEP}[a-1]": "COMPENSATED", f"{SAGA_ID}#{STEP}[b-2]": "DONE"}
    assert shop.gateway.charged == [provider_key_of(f"{SAGA_ID}#{STEP}[{sku}]") for sku in ("a-1", "b-2")]
    assert shop.gateway.refunded == [provider_key_of(f"{SAGA_ID}#{STEP}[a-1]#undo")]
    assert [call.item for call in shop.gateway.seen] == [{"sku": "a-1"}, {"sku": "b-2"}, {"sku": "a-1"}]


def test_a_provider_needs_its_whole_declaration(shop: Shop) -> None:
    del shop.provider["undo_window"]

    with pytest.raises(ProtocolMismatch):
        shop.undo()


async def _awaited(*_: Any) -> None:
    raise AssertionError("it was awaited")


def _iterated(*_: Any) -> Any:
    yield AssertionError("it was iterated")


@pytest.mark.parametrize("function", [_awaited, _iterated])
def test_a_function_that_does_nothing_when_it_is_called_is_refused(shop: Shop, function: Any) -> None:
    with pytest.raises(TypeError, match="must do its work when it is called"):
        external_compensation(of=shop.charge)(function)
    with pytest.raises(TypeError, match="must do its work when it is called"):
        external_compensation(of=shop.charge, verify_undo=function)(lambda *_: None)
    decorators: tuple[Any, ...] = (external_step, callback_step)
    for decorator in decorators:
        with pytest.raises(TypeError, match="must do its work when it is called"):
            decorator(function)
        with pytest.raises(TypeError, match="must do its work when it is called"):
            decorator(verify=function)(lambda _: {})


@pytest.mark.parametrize("function", [_awaited, _iterated])
def test_a_compensation_that_returns_what_has_not_run_is_in_doubt(shop: Shop, function: Any) -> None:
    shop.run()

    @external_compensation(of=shop.charge)
    def refund(*given: Any) -> Any:
        return function(*given)

    shop.refund = refund
    with pytest.raises(StepInDoubt, match="has not run"):
        shop.undo()
    assert shop.status == "COMPENSATING"


@pytest.mark.parametrize("verdict", [NotApplied(), Pending(), Unknown(reason="no books")])
def test_a_compensation_that_returns_that_it_was_not_applied_is_in_doubt(shop: Shop, verdict: Verdict) -> None:
    shop.run()
    shop.refund = external_compensation(of=shop.charge)(lambda *_: verdict)

    with pytest.raises(StepInDoubt, match=f"returned {type(verdict).__name__}"):
        shop.undo()
    assert shop.status == "COMPENSATING"


def test_what_a_query_changes_in_its_input_is_not_in_the_compensations(shop: Shop) -> None:
    shop.run()
    seen: list[Any] = []

    def find(call: ExternalCall, output: dict[str, str]) -> Verdict:
        output.clear()
        call.request.clear()
        return NotApplied()

    @external_compensation(of=shop.charge, verify_undo=find)
    def refund(call: ExternalCall, output: dict[str, str]) -> None:
        seen.append((dict(call.request), dict(output)))
        if len(seen) == 1:
            raise ConnectionError("lost")

    shop.provider |= UNDO_ASKED
    shop.refund = refund
    with pytest.raises(ConnectionError):
        shop.undo()
    shop.pass_every_deadline()
    shop.undo()

    assert seen[0] == seen[1]
    assert seen[0][1]
