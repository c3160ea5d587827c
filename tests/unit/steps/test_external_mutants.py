"""Each condition of the external step, removed: what it protects against must then happen.

The conditions, as the mutants below have them:

* a row is written first only where there is none; a writer that is refused by its own row has written it;
* an attempt's deadline holds all of its time, and the clocks' difference;
* nobody calls before the former attempt's deadline; a takeover needs the attempt that was read, and a later deadline;
* a key counts as known only within the window; "it did not happen" counts only after the grace;
* DONE, FAILED and a tombstone over INTENT need INTENT, and the attempt that called, or was asked about;
* a refusal counts only when no former request can arrive; what is no refusal is never one; a refusal is replayed;
* a step that was buried or is being undone is fenced; a burial needs that there is no row;
* the same for the undo: DONE before UNDOING, its deadline, its takeover, its window, its grace, UNDOING before UNDONE;
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
from tests.unit.support.mutation import Mutant, mutate
from tests.unit.support.samples import NOW_MS
from tests.unit.support.wire import Action, Fault, Moment
from tests.unit.support.world import Context, World

pytestmark = pytest.mark.exhaustive

LOG = import_module("saga_runtime.saga_log.rows")
EXTERNAL_LOG = import_module("saga_runtime.saga_log.external_rows")
ROW_WRITE = import_module("saga_runtime.saga_log.row_write")
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


def a_buried_step_does_not_begin(world: World) -> None:
    """It comes after its compensation."""
    shop = Shop(world)
    shop.undo()
    quietly(shop.run)
    assert shop.gateway.charged == []
    shop.check()


def a_step_that_began_is_not_buried(world: World) -> None:
    """It began between the compensation's look and its write."""
    log = log_at(StepStatus.INTENT)
    assert not log.write(SECOND.bury(NOW_MS))


def a_step_whose_first_write_was_not_answered_goes_on(world: World) -> None:
    """It is refused by its own row."""
    shop = Shop(world)
    world.wire.plan(Fault(operation="PutItem", action=Action.DROP, moment=Moment.AFTER, times=1))
    shop.run()
    shop.check()


def a_fenced_step_stays_fenced(world: World) -> None:
    """It comes while it is being undone."""
    shop = Shop(world)
    shop.run()
    cut_off(shop, "refund")
    shop.everybody_dies()
    quietly(shop.run)
    assert len(shop.gateway.charged) == 1


def nobody_calls_beside_the_living(world: World) -> None:
    """The former attempt may still call, in its last millisecond."""
    shop = Shop(world, **IDEMPOTENT)
    cut_off(shop, moment=Moment.BEFORE)
    shop.passes(LIFE_MS - 1)
    quietly(shop.run)
    assert len(shop.gateway.seen) == 1


def nobody_calls_with_a_forgotten_key(world: World) -> None:
    """The gateway would take the money again."""
    shop = Shop(world, **IDEMPOTENT)
    cut_off(shop)
    shop.passes(WINDOW_MS)
    shop.gateway.idempotent = False
    quietly(shop.run)
    shop.check()


def a_request_does_not_arrive_after_the_window(world: World) -> None:
    """It was sent within, and travels."""
    shop = Shop(world, **IDEMPOTENT)
    cut_off(shop)
    shop.passes(WINDOW_MS - LIFE_MS - GRACE_MS + 1)
    quietly(shop.run)
    assert len(shop.gateway.seen) == 1


def a_no_within_the_grace_does_not_count(world: World) -> None:
    """The dead one's request arrives last."""
    shop = Shop(world)
    cut_off(shop, moment=Moment.BEFORE)
    shop.passes(LIFE_MS + GRACE_MS - 1)
    quietly(shop.run)
    shop.gateway.charge(shop.gateway.seen[0].provider_key)
    shop.check()


def a_burial_waits_for_the_grace(world: World) -> None:
    """The dead one's request arrives last."""
    shop = Shop(world)
    cut_off(shop, moment=Moment.BEFORE)
    shop.passes(LIFE_MS + GRACE_MS - 1)
    quietly(shop.undo)
    shop.gateway.charge(shop.gateway.seen[0].provider_key)
    shop.check()


def two_that_read_the_same_attempt_do_not_both_call(world: World) -> None:
    """The first took the row over, and was cut off in turn."""
    shop = Shop(world)
    cut_off(shop, moment=Moment.BEFORE)
    shop.everybody_dies()

    def sooner_dead() -> None:
        world.wire.plan(fault("charge", Moment.AFTER))
        quietly(lambda: shop.charge(shop.event(), Context(remaining_ms=REMAINING_MS // 3)))

    shop.gateway.afterwards["find"] = sooner_dead
    quietly(shop.run)
    shop.check()


def a_takeover_is_written_before_the_call(world: World) -> None:
    """Somebody who comes during the second call finds who calls, and waits."""
    shop = Shop(world, **IDEMPOTENT)
    cut_off(shop, moment=Moment.BEFORE)
    shop.passes(LIFE_MS)
    shop.gateway.meanwhile["charge"] = lambda: quietly(shop.run)
    quietly(shop.run)
    assert len(shop.gateway.seen) == 2


def deadlines_only_grow(world: World) -> None:
    """A slow clock's attempt would seem to be dead before it is."""
    log = log_at(StepStatus.INTENT)
    assert not log.write(dataclasses.replace(SECOND, deadline=FIRST.deadline - 1).take_over(HELD, NOW_MS))


def an_outcome_is_written_only_while_it_is_open(world: World) -> None:
    """A late refusal does not unsay what took effect."""
    log = log_at(StepStatus.DONE)
    assert not log.write(FIRST.failed("Declined", "no", NOW_MS))
    assert not log.write(FIRST.not_applied(HELD, NOW_MS))


def an_outcome_is_that_of_who_holds_the_row(world: World) -> None:
    """A refusal of an attempt that was taken over says nothing about its successor's call."""
    log = log_at(StepStatus.INTENT)
    assert log.write(SECOND.take_over(HELD, NOW_MS))
    assert not log.write(FIRST.failed("Declined", "no", NOW_MS))
    assert not log.write(FIRST.done("{}", NOW_MS))
    assert not log.write(dataclasses.replace(SECOND, attempt="third").not_applied(HELD, NOW_MS))


def a_verified_outcome_is_that_of_the_attempt_that_was_read(world: World) -> None:
    """Whoever verified is not the attempt that he asked about."""
    shop = Shop(world)
    cut_off(shop)
    shop.everybody_dies()
    shop.run()
    assert shop.status == "DONE"


def a_refusal_counts_only_when_no_other_request_travels(world: World) -> None:
    """The dead one's request arrives after the refusal of the living one's."""
    shop = Shop(world, **IDEMPOTENT)
    cut_off(shop, moment=Moment.BEFORE)
    shop.passes(LIFE_MS)
    shop.gateway.broken["charge"] = Declined("no credit")
    quietly(shop.run)
    shop.gateway.charge(shop.gateway.seen[0].provider_key)
    shop.check()


def a_refused_step_is_not_called_again(world: World) -> None:
    """The gateway would take the money now."""
    shop = Shop(world)
    shop.gateway.refuses = "no credit"
    quietly(shop.run)
    shop.gateway.refuses = None
    shop.everybody_dies()
    quietly(shop.run)
    assert shop.gateway.charged == []


def a_refusal_to_answer_refuses_nothing(world: World) -> None:
    """The charge stands."""
    shop = Shop(world)
    cut_off(shop)
    shop.everybody_dies()
    shop.gateway.broken["find"] = Declined("not yours")
    try:
        shop.run()
    except Declined as error:
        raise AssertionError("a saga would take this for a refused step") from error
    except SagaError:
        return


def two_compensations_do_not_both_undo(world: World) -> None:
    """Both saw that the step stands."""
    log = log_at(StepStatus.UNDOING)
    assert not log.write(SECOND.undoing(NOW_MS))


def nobody_undoes_beside_the_living(world: World) -> None:
    """The former attempt may still call."""
    shop = Shop(world)
    shop.run()
    cut_off(shop, "refund", Moment.BEFORE)
    shop.passes(LIFE_MS - 1)
    before = len(shop.gateway.seen)
    quietly(shop.undo)
    assert len(shop.gateway.seen) == before


def nobody_undoes_with_a_forgotten_key(world: World) -> None:
    """The gateway would give the money back again."""
    shop = Shop(world)
    shop.run()
    cut_off(shop, "refund")
    shop.passes(WINDOW_MS)
    shop.gateway.undo_idempotent = False
    quietly(shop.undo)
    shop.check()


def an_undo_that_did_not_happen_within_the_grace_may_yet_happen(world: World) -> None:
    """The dead one's request arrives last."""
    shop = Shop(world, **UNDO_ASKED)
    shop.run()
    cut_off(shop, "refund", Moment.BEFORE)
    shop.passes(LIFE_MS + GRACE_MS - 1)
    quietly(shop.undo)
    shop.gateway.refund(shop.gateway.seen[-1].provider_key, "payment of it")
    shop.check()


def an_undo_is_done_only_when_it_was_begun(world: World) -> None:
    """What stands is not declared undone."""
    log = log_at(StepStatus.DONE)
    assert not log.write(SECOND.undone(NOW_MS))


def an_undo_ends_with_its_threads(world: World) -> None:
    """Its thread would thaw in a later invocation."""
    _ends_with_threads(world, undo=True)


def a_step_ends_with_its_threads(world: World) -> None:
    """Its thread would thaw in a later invocation."""
    _ends_with_threads(world, undo=False)


class Lingering(threading.Thread):
    """A thread that ends once somebody waits for it, and not before."""

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


def mutant(name: str, owner: Any, target: str, old: str, new: str, kills: Any) -> Mutant:
    """A mutant."""
    return Mutant(name=name, owner=owner, target=target, old=old, new=new, kills=kills)


_FREE = "(attribute_not_exists(#saga_id) OR attribute_exists(#saga_id))"
_FOUND_OR_NOT = "(#status = :found OR attribute_exists(#status))"
_HELD_OR_NOT = "(#attempt = :held OR attribute_exists(#attempt))"
_FENCES = "Entry.FENCED if row.answer is None"

MUTANTS = [
    mutant("begin over any row", LOG, "NO_ROW", "attribute_not_exists(#saga_id)", _FREE, a_buried_step_does_not_begin),
    mutant("bury any row", LOG, "NO_ROW", "attribute_not_exists(#saga_id)", _FREE, a_step_that_began_is_not_buried),
    mutant(
        "do not know one's own row",
        ROW_WRITE,
        "_refused",
        "return Committed() if (row.status, row.attempt) == (status, attempt) else RowRefused(row=row)",
        "return RowRefused(row=row)",
        a_step_whose_first_write_was_not_answered_goes_on,
    ),
    mutant(
        "fence nobody",
        EXTERNAL_LOG,
        "entry_of",
        _FENCES,
        _FENCES.replace("FENCED", "CALL_AGAIN"),
        a_fenced_step_stays_fenced,
    ),
    mutant(
        "do not wait for the deadline",
        EXTERNAL_LOG,
        "entry_of",
        "if now_ms < row.deadline:",
        "if False:",
        nobody_calls_beside_the_living,
    ),
    mutant(
        "forget the time that is left",
        CALL,
        "_certainly_dead_at",
        " + remaining_ms +",
        " +",
        nobody_calls_beside_the_living,
    ),
    mutant(
        "forget that clocks differ",
        CALL,
        "_certainly_dead_at",
        "remaining_ms + margin_ms",
        "remaining_ms",
        nobody_calls_beside_the_living,
    ),
    mutant(
        "forget the window",
        EXTERNAL_LOG,
        "_known_until_answered",
        " and mine.deadline + provider.grace_ms <= row.first_attempt_at + window_ms",
        "",
        nobody_calls_with_a_forgotten_key,
    ),
    mutant(
        "forget that a request travels",
        EXTERNAL_LOG,
        "_known_until_answered",
        "mine.deadline + provider.grace_ms <=",
        "mine.deadline <=",
        a_request_does_not_arrive_after_the_window,
    ),
    mutant(
        "believe a no at once",
        EXTERNAL_LOG,
        "is_over",
        "row.deadline + provider.grace_ms",
        "row.deadline",
        a_no_within_the_grace_does_not_count,
    ),
    mutant(
        "bury without the grace",
        EXTERNAL_LOG,
        "_learn",
        "if not is_over(row, now_ms, provider):",
        "if now_ms < row.deadline:",
        a_burial_waits_for_the_grace,
    ),
    mutant(
        "take over from anybody",
        EXTERNAL_LOG,
        "TAKE_OVER",
        "#attempt = :held",
        _HELD_OR_NOT,
        two_that_read_the_same_attempt_do_not_both_call,
    ),
    mutant(
        "call without taking over",
        STEP,
        "_take_over",
        "result = write_row(invocation.holder.take_over(row, clock.now_ms()), remaining_ms=invocation.remaining_ms)",
        "result = Committed()",
        a_takeover_is_written_before_the_call,
    ),
    mutant(
        "shorten a deadline",
        EXTERNAL_LOG,
        "TAKE_OVER",
        "#deadline < :deadline",
        "(#deadline < :deadline OR attribute_exists(#deadline))",
        deadlines_only_grow,
    ),
    mutant(
        "write an outcome over an outcome",
        EXTERNAL_LOG,
        "HELD_BY",
        "#status = :found",
        _FOUND_OR_NOT,
        an_outcome_is_written_only_while_it_is_open,
    ),
    mutant(
        "write an outcome for somebody else",
        EXTERNAL_LOG,
        "HELD_BY",
        "#attempt = :held",
        _HELD_OR_NOT,
        an_outcome_is_that_of_who_holds_the_row,
    ),
    mutant(
        "write what was verified as one's own",
        STEP,
        "write_verified",
        ", held=row.attempt",
        "",
        a_verified_outcome_is_that_of_the_attempt_that_was_read,
    ),
    mutant(
        "believe any refusal",
        STEP,
        "call_provider",
        "if not nobody_else:",
        "if False:",
        a_refusal_counts_only_when_no_other_request_travels,
    ),
    mutant(
        "call again after a refusal",
        EXTERNAL_LOG,
        "entry_of",
        "return Entry.REFUSED",
        "return Entry.CALL_AGAIN",
        a_refused_step_is_not_called_again,
    ),
    mutant(
        "let a refusal to answer out",
        CALL,
        "verdict_of",
        "except PermanentError as error:",
        "except ZeroDivisionError as error:",
        a_refusal_to_answer_refuses_nothing,
    ),
    mutant(
        "begin an undo twice",
        EXTERNAL_LOG,
        "undoing",
        "StepStatus.UNDOING, STILL,",
        f'StepStatus.UNDOING, "{_FOUND_OR_NOT}",',
        two_compensations_do_not_both_undo,
    ),
    mutant(
        "undo without waiting for the deadline",
        EXTERNAL_LOG,
        "_undo_again",
        "if now_ms < row.deadline:",
        "if False:",
        nobody_undoes_beside_the_living,
    ),
    mutant(
        "forget the undo's window",
        EXTERNAL_LOG,
        "_known_until_answered",
        " and mine.deadline + provider.grace_ms <= row.first_attempt_at + window_ms",
        "",
        nobody_undoes_with_a_forgotten_key,
    ),
    mutant(
        "believe at once that an undo did not happen",
        UNDO,
        "_undo",
        "if not is_over(row, call.now_ms, invocation.provider):",
        "if False:",
        an_undo_that_did_not_happen_within_the_grace_may_yet_happen,
    ),
    mutant(
        "declare undone what stands",
        EXTERNAL_LOG,
        "undone",
        "StepStatus.UNDONE, STILL,",
        f'StepStatus.UNDONE, "{_FOUND_OR_NOT}",',
        an_undo_is_done_only_when_it_was_begun,
    ),
    mutant(
        "end before the step's threads",
        CALL,
        "to_the_end",
        "thread not in before]",
        "False]",
        a_step_ends_with_its_threads,
    ),
    mutant(
        "end before the undo's threads",
        CALL,
        "to_the_end",
        "thread not in before]",
        "False]",
        an_undo_ends_with_its_threads,
    ),
]


@pytest.mark.parametrize("mutant", MUTANTS, ids=lambda mutant: mutant.name)
def test_the_history_ends_well(world: World, mutant: Mutant) -> None:
    mutant.kills(world)


@pytest.mark.parametrize("mutant", MUTANTS, ids=lambda mutant: mutant.name)
def test_a_mutant_is_noticed(world: World, mutant: Mutant, monkeypatch: pytest.MonkeyPatch) -> None:
    mutate(monkeypatch, mutant)

    with pytest.raises(Exception, match=r".") as noticed:
        mutant.kills(world)

    assert not isinstance(noticed.value, NameError | SyntaxError | TypeError), "the mutant is not alive"
