"""Short histories of the external step, each of which needs one of its conditions to succeed.

The conditions:

* a first row is written only where none exists; a writer that is refused by its own row has written it;
* an attempt's deadline includes all of its time, and the clock skew;
* no call begins before the former attempt's deadline; a takeover needs the attempt that was read, and a later deadline;
* a key is known only within the window; "not applied" is accepted only after the grace;
* DONE, FAILED and a tombstone over INTENT need INTENT, and the attempt that called, or was verified;
* a refusal is final only when no former request can arrive; other errors are never refusals; a refusal is replayed;
* a step that was fenced or is being compensated is fenced; a tombstone needs that there is no row;
* the same for the compensation: DONE before COMPENSATING, its deadline, takeover, window, grace, and
  COMPENSATING before COMPENSATED;
* an invocation ends after its threads.
"""

from __future__ import annotations

import dataclasses
import threading
from importlib import import_module
from typing import Any

import pytest

from saga_runtime import Declined, ExternalCall, external_compensation, external_step
from saga_runtime.errors import SagaError
from saga_runtime.protocol import StepStatus
from tests.unit.saga_log.test_external_decisions import FIRST, HELD, SECOND, log_at
from tests.unit.support.gateway import GRACE_MS, IDEMPOTENT, LIFE_MS, REMAINING_MS, UNDO_ASKED, WINDOW_MS, Shop
from tests.unit.support.samples import NOW_MS
from tests.unit.support.wire import Action, Fault, Moment
from tests.unit.support.world import Context, World

pytestmark = pytest.mark.exhaustive

LOG = import_module("saga_runtime.saga_log.rows")
CALL = import_module("saga_runtime.steps.external_call")
STEP = import_module("saga_runtime.steps.external")
UNDO = import_module("saga_runtime.steps.external_compensation")


def fault(kind: str, moment: Moment) -> Fault:
    """The gateway's answer does not arrive."""
    return Fault(operation=f"gateway:{kind}", action=Action.DROP, moment=moment, times=1)


def cut_off(shop: Shop, kind: str = "charge", moment: Moment = Moment.AFTER) -> None:
    """An attempt without an answer of the gateway."""
    shop.world.wire.plan(fault(kind, moment))
    quietly(shop.run if kind == "charge" else shop.undo)


def quietly(invoke: Any) -> None:
    """Invoke once, whatever comes out."""
    try:
        invoke()
    except (SagaError, ConnectionError):
        return


def test_a_fenced_step_does_not_begin(world: World) -> None:
    """It arrives after its compensation."""
    shop = Shop(world)
    shop.undo()
    quietly(shop.run)
    assert shop.gateway.charged == []
    shop.check()


def test_a_step_that_began_is_not_fenced(world: World) -> None:
    """It began between the compensation's read and its write."""
    log = log_at(StepStatus.INTENT)
    assert not log.write(SECOND.bury(NOW_MS))


def test_a_step_continues_after_a_lost_response_to_its_first_write(world: World) -> None:
    """It is refused by its own row."""
    shop = Shop(world)
    world.wire.plan(Fault(operation="PutItem", action=Action.DROP, moment=Moment.AFTER, times=1))
    shop.run()
    shop.check()


def test_a_fenced_step_stays_fenced(world: World) -> None:
    """It comes while it is being undone."""
    shop = Shop(world)
    shop.run()
    cut_off(shop, "refund")
    shop.pass_every_deadline()
    quietly(shop.run)
    assert len(shop.gateway.charged) == 1


def test_no_call_begins_while_a_former_attempt_is_alive(world: World) -> None:
    """The former attempt may still call, in its last millisecond."""
    shop = Shop(world, **IDEMPOTENT)
    cut_off(shop, moment=Moment.BEFORE)
    shop.passes(LIFE_MS - 1)
    quietly(shop.run)
    assert len(shop.gateway.seen) == 1


def test_no_call_uses_an_expired_key(world: World) -> None:
    """The gateway would charge again."""
    shop = Shop(world, **IDEMPOTENT)
    cut_off(shop)
    shop.passes(WINDOW_MS)
    shop.gateway.idempotent = False
    quietly(shop.run)
    shop.check()


def test_a_request_does_not_arrive_after_the_window(world: World) -> None:
    """It was sent within, and travels."""
    shop = Shop(world, **IDEMPOTENT)
    cut_off(shop)
    shop.passes(WINDOW_MS - LIFE_MS - GRACE_MS + 1)
    quietly(shop.run)
    assert len(shop.gateway.seen) == 1


def test_a_no_within_the_grace_does_not_count(world: World) -> None:
    """The dead one's request arrives last."""
    shop = Shop(world)
    cut_off(shop, moment=Moment.BEFORE)
    shop.passes(LIFE_MS + GRACE_MS - 1)
    quietly(shop.run)
    shop.gateway.charge(shop.gateway.seen[0].provider_key)
    shop.check()


def test_a_burial_waits_for_the_grace(world: World) -> None:
    """The dead one's request arrives last."""
    shop = Shop(world)
    cut_off(shop, moment=Moment.BEFORE)
    shop.passes(LIFE_MS + GRACE_MS - 1)
    quietly(shop.undo)
    shop.gateway.charge(shop.gateway.seen[0].provider_key)
    shop.check()


def test_two_that_read_the_same_attempt_do_not_both_call(world: World) -> None:
    """The first took the row over, and was cut off in turn."""
    shop = Shop(world)
    cut_off(shop, moment=Moment.BEFORE)
    shop.pass_every_deadline()

    def sooner_dead() -> None:
        world.wire.plan(fault("charge", Moment.AFTER))
        quietly(lambda: shop.charge(shop.event(), Context(remaining_ms=REMAINING_MS // 3)))

    shop.gateway.afterwards["find"] = sooner_dead
    quietly(shop.run)
    shop.check()


def test_a_takeover_is_written_before_the_call(world: World) -> None:
    """An attempt that arrives during the second call finds the caller, and waits."""
    shop = Shop(world, **IDEMPOTENT)
    cut_off(shop, moment=Moment.BEFORE)
    shop.passes(LIFE_MS)
    shop.gateway.meanwhile["charge"] = lambda: quietly(shop.run)
    quietly(shop.run)
    assert len(shop.gateway.seen) == 2


def test_deadlines_only_grow(world: World) -> None:
    """A slow clock's attempt would seem to be dead before it is."""
    log = log_at(StepStatus.INTENT)
    assert not log.write(dataclasses.replace(SECOND, deadline=FIRST.deadline - 1).take_over(HELD, NOW_MS))


def test_an_outcome_is_written_only_while_it_is_open(world: World) -> None:
    """A late refusal does not unsay what took effect."""
    log = log_at(StepStatus.DONE)
    assert not log.write(FIRST.failed("Declined", "no", NOW_MS))
    assert not log.write(FIRST.not_applied(HELD, NOW_MS))


def test_only_the_holder_of_the_row_records_an_outcome(world: World) -> None:
    """A refusal of an attempt that was taken over is irrelevant for its successor's call."""
    log = log_at(StepStatus.INTENT)
    assert log.write(SECOND.take_over(HELD, NOW_MS))
    assert not log.write(FIRST.failed("Declined", "no", NOW_MS))
    assert not log.write(FIRST.done("{}", NOW_MS))
    assert not log.write(dataclasses.replace(SECOND, attempt="third").not_applied(HELD, NOW_MS))


def test_a_verified_outcome_belongs_to_the_attempt_that_was_read(world: World) -> None:
    """The verifying attempt is not the attempt that it queries."""
    shop = Shop(world)
    cut_off(shop)
    shop.pass_every_deadline()
    shop.run()
    assert shop.status == "DONE"


def test_a_refusal_counts_only_when_no_other_request_travels(world: World) -> None:
    """The dead one's request arrives after the refusal of the living one's."""
    shop = Shop(world, **IDEMPOTENT)
    cut_off(shop, moment=Moment.BEFORE)
    shop.passes(LIFE_MS)
    shop.gateway.broken["charge"] = Declined("no credit")
    quietly(shop.run)
    shop.gateway.charge(shop.gateway.seen[0].provider_key)
    shop.check()


def test_a_refused_step_is_not_called_again(world: World) -> None:
    """The gateway would take the money now."""
    shop = Shop(world)
    shop.gateway.refuses = "no credit"
    quietly(shop.run)
    shop.gateway.refuses = None
    shop.pass_every_deadline()
    quietly(shop.run)
    assert shop.gateway.charged == []


def test_a_refused_query_does_not_refuse_the_step(world: World) -> None:
    """The charge exists."""
    shop = Shop(world)
    cut_off(shop)
    shop.pass_every_deadline()
    shop.gateway.broken["find"] = Declined("not yours")
    try:
        shop.run()
    except Declined as error:
        raise AssertionError("a saga would take this for a refused step") from error
    except SagaError:
        return


def test_two_compensations_do_not_both_compensate(world: World) -> None:
    """Both read that the step is applied."""
    log = log_at(StepStatus.COMPENSATING)
    assert not log.write(SECOND.undoing(NOW_MS))


def test_no_compensation_begins_while_a_former_attempt_is_alive(world: World) -> None:
    """The former attempt may still call."""
    shop = Shop(world)
    shop.run()
    cut_off(shop, "refund", Moment.BEFORE)
    shop.passes(LIFE_MS - 1)
    before = len(shop.gateway.seen)
    quietly(shop.undo)
    assert len(shop.gateway.seen) == before


def test_no_compensation_uses_an_expired_key(world: World) -> None:
    """The gateway would refund again."""
    shop = Shop(world)
    shop.run()
    cut_off(shop, "refund")
    shop.passes(WINDOW_MS)
    shop.gateway.undo_idempotent = False
    quietly(shop.undo)
    shop.check()


def test_a_compensation_not_applied_within_the_grace_may_yet_be(world: World) -> None:
    """The dead one's request arrives last."""
    shop = Shop(world, **UNDO_ASKED)
    shop.run()
    cut_off(shop, "refund", Moment.BEFORE)
    shop.passes(LIFE_MS + GRACE_MS - 1)
    quietly(shop.undo)
    shop.gateway.refund(shop.gateway.seen[-1].provider_key, "payment of it")
    shop.check()


def test_a_compensation_is_done_only_after_it_began(world: World) -> None:
    """An applied effect is not declared compensated."""
    log = log_at(StepStatus.DONE)
    assert not log.write(SECOND.undone(NOW_MS))


def test_a_compensation_ends_with_its_threads(world: World) -> None:
    """Its thread would thaw in a later invocation."""
    _ends_with_threads(world, undo=True)


def test_a_step_ends_with_its_threads(world: World) -> None:
    """Its thread would thaw in a later invocation."""
    _ends_with_threads(world, undo=False)


class Lingering(threading.Thread):
    """A thread that ends once it is joined, and not before."""

    def __init__(self) -> None:
        super().__init__(daemon=True)
        self.awaited = threading.Event()

    def run(self) -> None:
        """Linger."""
        self.awaited.wait(60)

    def join(self, timeout: float | None = None) -> None:
        """Wait for it."""
        self.awaited.set()
        super().join(timeout)


def _ends_with_threads(world: World, *, undo: bool) -> None:
    shop = Shop(world)
    thread = Lingering()

    def act(_: ExternalCall) -> dict[str, str]:
        thread.start()
        return {}

    def refund(_: ExternalCall, __: Any) -> None:
        thread.start()

    if undo:
        shop.run()
        external_compensation(of=shop.charge)(refund)(shop.event(), Context())
    else:
        external_step(verify=shop.charge.verify)(act)(shop.event(), Context())
    try:
        assert not thread.is_alive()
    finally:
        thread.join()
