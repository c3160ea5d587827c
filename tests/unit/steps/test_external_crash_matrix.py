"""A crash or a lost answer before and after every call of an external step, to AWS and to its provider; then retries.

What is enumerated is what an undisturbed run sends. Each call is disturbed in each way; later invocations, after the
deadlines, drive the step to its outcome, and the compensation after it. The numbers are printed, and have to agree.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from itertools import product
from typing import Any

import pytest

from tests.unit.support.enumerated import require_all_run
from tests.unit.support.gateway import ASKED, IDEMPOTENT, LIFE_MS, UNDO_ASKED, UNDO_IDEMPOTENT, Shop
from tests.unit.support.wire import Action, Fault, Moment
from tests.unit.support.world import World

pytestmark = pytest.mark.exhaustive

PROVIDERS: dict[str, dict[str, Any]] = {
    "asked": {**ASKED, **UNDO_ASKED},
    "idempotent": {**IDEMPOTENT, **UNDO_IDEMPOTENT},
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Party:
    """A component that makes calls."""

    act: Callable[[Shop], Any]
    calls: dict[str, tuple[str, ...]]
    """By provider, in order; ``test_every_call_is_enumerated`` holds it against the party."""
    before: Callable[[Shop], object] = lambda _: None
    ends: tuple[str, ...]


def _cut_off(operation: str, moment: Moment) -> Callable[[Shop], None]:
    """An attempt that ended without its provider's answer, and is certainly dead."""

    def before(shop: Shop) -> None:
        shop.world.wire.plan(Fault(operation=operation, action=Action.DROP, moment=moment, times=1))
        if operation == "gateway:refund":
            shop.run()
        try:
            shop.undo() if operation == "gateway:refund" else shop.run()
        except ConnectionError:
            shop.pass_every_deadline()

    return before


def _refused(shop: Shop) -> None:
    shop.gateway.refuses = "no credit"


def _every(*calls: str) -> dict[str, tuple[str, ...]]:
    return dict.fromkeys(PROVIDERS, calls)


_VERIFY = ("PutItem", "gateway:find", "UpdateItem")
_UNDO = ("GetItem", "UpdateItem", "gateway:refund", "UpdateItem")
PARTIES: dict[str, Party] = {
    "step": Party(act=Shop.run, calls=_every("PutItem", "gateway:charge", "UpdateItem"), ends=("DONE",)),
    "refused step": Party(
        before=_refused,
        act=Shop.run,
        calls=_every("PutItem", "gateway:charge", "UpdateItem"),
        ends=("REFUSED",),
    ),
    "step after one that charged": Party(
        before=_cut_off("gateway:charge", Moment.AFTER),
        act=Shop.run,
        calls={
            **_every("PutItem", "UpdateItem", "gateway:charge", "UpdateItem"),
            "asked": _VERIFY,
        },
        ends=("DONE",),
    ),
    "step after one that did not": Party(
        before=_cut_off("gateway:charge", Moment.BEFORE),
        act=Shop.run,
        calls={
            **_every("PutItem", "UpdateItem", "gateway:charge", "UpdateItem"),
            "asked": ("PutItem", "gateway:find", "UpdateItem", "gateway:charge", "UpdateItem"),
        },
        ends=("DONE",),
    ),
    "compensation": Party(before=Shop.run, act=Shop.undo, calls=_every(*_UNDO), ends=("COMPENSATED",)),
    "burial": Party(act=Shop.undo, calls=_every("GetItem", "PutItem"), ends=("TOMBSTONE",)),
    "compensation after a step that charged": Party(
        before=_cut_off("gateway:charge", Moment.AFTER),
        act=Shop.undo,
        calls={
            **_every("GetItem", "gateway:find", "UpdateItem", *_UNDO),
            "idempotent": ("GetItem", "UpdateItem", "gateway:charge", "UpdateItem", *_UNDO),
        },
        ends=("COMPENSATED",),
    ),
    "compensation after a step that did not": Party(
        before=_cut_off("gateway:charge", Moment.BEFORE),
        act=Shop.undo,
        calls={
            **_every("GetItem", "gateway:find", "UpdateItem", "GetItem"),
            "idempotent": ("GetItem", "UpdateItem", "gateway:charge", "UpdateItem", *_UNDO),
        },
        ends=("TOMBSTONE", "COMPENSATED"),
    ),
    "compensation after one that refunded": Party(
        before=_cut_off("gateway:refund", Moment.AFTER),
        act=Shop.undo,
        calls={**_every(*_UNDO), "asked": ("GetItem", "gateway:find_refund", "UpdateItem")},
        ends=("COMPENSATED",),
    ),
    "compensation after one that did not": Party(
        before=_cut_off("gateway:refund", Moment.BEFORE),
        act=Shop.undo,
        calls={
            **_every(*_UNDO),
            "asked": ("GetItem", "gateway:find_refund", "UpdateItem", "gateway:refund", "UpdateItem"),
        },
        ends=("COMPENSATED",),
    ),
    "question before the step": Party(act=Shop.ask, calls=_every("GetItem", "PutItem", "GetItem"), ends=("TOMBSTONE",)),
    "question after a step that charged": Party(
        before=_cut_off("gateway:charge", Moment.AFTER),
        act=Shop.ask,
        calls={
            **_every("GetItem", "gateway:find", "UpdateItem", "GetItem"),
            "idempotent": ("GetItem", "UpdateItem", "gateway:charge", "UpdateItem", "GetItem"),
        },
        ends=("DONE",),
    ),
}
MOMENTS = list(product((Action.KILL, Action.DROP), Moment))


def _repeats(call: str, action: Action) -> int:
    """As often as SDK and runtime try together: healing within an invocation has tests of its own."""
    return 1 if action is Action.KILL or call.startswith("gateway:") else 24


def _calls(party: Party, provider: str) -> list[tuple[str, int]]:
    calls = party.calls[provider]
    return [(call, calls[: index + 1].count(call)) for index, call in enumerate(calls)]


MATRIX = [
    pytest.param(name, provider, call, nth, action, moment, times, id=f"{provider}, {name}: {fault} x{times}")
    for name, party in PARTIES.items()
    for provider in PROVIDERS
    for (call, nth), (action, moment) in product(_calls(party, provider), MOMENTS)
    for times in [_repeats(call, action)]
    for fault in [Fault(operation=call, action=action, moment=moment, on=nth)]
]
RAN: set[str] = set()


@pytest.mark.parametrize("provider", PROVIDERS)
@pytest.mark.parametrize("name", PARTIES)
def test_every_call_is_enumerated(world: World, name: str, provider: str) -> None:
    shop, party = Shop(world, **PROVIDERS[provider]), PARTIES[name]
    party.before(shop)
    world.wire.forget()

    shop.to_the_end(lambda: party.act(shop))

    assert tuple(world.wire.sent) == party.calls[provider]
    assert shop.status in party.ends
    shop.check()


@pytest.mark.parametrize(("name", "provider", "call", "nth", "action", "moment", "times"), MATRIX)
def test_books_and_log_agree_after_a_disturbance_and_retries(
    world: World,
    name: str,
    provider: str,
    call: str,
    nth: int,
    action: Action,
    moment: Moment,
    times: int,
    request: pytest.FixtureRequest,
) -> None:
    shop, party = Shop(world, **PROVIDERS[provider]), PARTIES[name]
    party.before(shop)
    world.wire.forget()
    world.wire.plan(Fault(operation=call, action=action, moment=moment, on=nth, times=times))

    shop.to_the_end(lambda: party.act(shop))

    assert world.wire.fired, "the fault never struck"
    assert shop.status in party.ends
    shop.check()
    world.wire.forget()
    shop.passes(LIFE_MS)
    shop.to_the_end(shop.undo)
    assert shop.status in {"COMPENSATED", "TOMBSTONE", "REFUSED"}, "an effect remains after the compensation"
    shop.check()
    RAN.add(request.node.name)


def test_as_many_were_run_as_were_enumerated(request: pytest.FixtureRequest) -> None:
    require_all_run(
        request,
        test_books_and_log_agree_after_a_disturbance_and_retries,
        RAN,
        enumerated=len(MATRIX),
        of="crash matrix of external steps",
    )
