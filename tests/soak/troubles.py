"""Troubles of external providers, drawn from a seed: the n-th request, job or event of a kind.

Webhooks are lost, duplicated, late, forged and contradicted; requests fail before and after they are applied, hang, and
kill their senders; jobs are refused, or left idle.
"""

from __future__ import annotations

import itertools
import random
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Final, TypeAlias, TypeVar

from examples import payment_gateway as gateway
from examples.cart_fulfilment import providers
from examples.cart_fulfilment.providers.carrier import Carrier
from examples.cart_fulfilment.providers.payments import AUTHORIZED, EXPIRED, Payments
from examples.cart_fulfilment.providers.warehouse import PICKED, REJECTED, Warehouse

from .wishes import DECLINED_CARD, TEMPTING_PRICE
from .world import World

Share: TypeAlias = tuple[float, str, str, float | None]
"""Of a hundred how many, what happens to them, when, and for how long."""
T = TypeVar("T")

#: Of 100 requests to a provider: what happens to how many.
_OF_REQUESTS: Final[Sequence[Share]] = (
    (0.6, "error", "before", None),
    (0.8, "error", "after", None),
    (0.6, "drop", "before", None),
    (0.8, "drop", "after", None),
    (0.3, "hang", "before", None),
    (0.4, "hang", "after", None),
    (0.4, "kill", "before", None),
    (0.5, "kill", "after", None),
    (0.6, "slow", "before", 5.0),
)
_OF_EVENTS: Final[Sequence[Share]] = (
    (6.0, "silent", "before", None),
    (6.0, "double", "before", None),
    (3.0, "late", "before", 30.0),
    (2.0, "wrong", "before", 40.0),
    (2.0, "forged", "before", None),
    (1.0, "unknown", "before", None),
)
_OF_REFUSALS: Final[Sequence[Share]] = (
    (6.0, "silent", "before", None),
    (6.0, "double", "before", None),
    (20.0, "wrong", "before", 40.0),
)
"""Of events with a refusal: the refused job is done afterwards, as a late effect."""
_OF_JOBS: Final[Sequence[Share]] = (
    (1.0, "refuse", "before", None),
    (1.5, "stall", "before", None),
    (3.0, "early", "before", None),
)
LONGEST_OF_PROVIDERS: Final = 60.0
"""In the emulator's time: so long after the last fault, nothing that a provider was made to do is still to come."""
_FAR: Final = {"often": 4_000, "seldom": 1_000}
"""As many requests or events of one kind are looked ahead."""
_READS: Final = frozenset({"error", "drop", "slow"})
"""What happens to a request that only asks."""
_ASKS: Final = frozenset({"find-payment", "find-pick", "find-label", "find-effects"})
_SELDOM: Final = frozenset({"refund", "cancel", "void", *_ASKS})


_AT_ONCE: Final = 200
"""Troubles that are sent to a provider in one request."""
_EVENTS: Final = {"payments": Payments.events, "warehouse": Warehouse.events, "carrier": Carrier.events}
_OPERATIONS: Final = {
    "payments": ("authorize", "capture", "cancel", "refund", "find-payment", "find-effects"),
    "warehouse": ("pick", "cancel", "find-pick", "find-effects"),
    "carrier": ("label", "void", "handover", "find-label", "find-effects"),
}
_REFUSALS: Final = frozenset({EXPIRED, REJECTED})
_USUAL, _SECOND_THOUGHTS = '0, "currency"', f'{TEMPTING_PRICE % 10}, "currency"'
_PICKED_AT_ONCE, _REJECTED_FIRST = '"why": null', '"why": "'
_ONLY: Final[Mapping[tuple[str, str], str]] = {
    (AUTHORIZED, "silent"): _USUAL,
    (AUTHORIZED, "wrong"): _USUAL,
    (EXPIRED, "wrong"): _SECOND_THOUGHTS,
    (PICKED, "silent"): _PICKED_AT_ONCE,
    (PICKED, "wrong"): _PICKED_AT_ONCE,
    (REJECTED, "wrong"): _REJECTED_FIRST,
}
"""A provider that changes its outcome does so once, and reports it. One that does a job twice under one key, or that
refuses, does it afterwards and reports nothing, cannot be detected by any client.
"""
_JOBS: Final = frozenset({"authorize", "pick", "handover"})
_MOMENTOUS: Final = frozenset({"error", "drop", "hang", "kill"})


def troubles_of(seed: int) -> dict[str, list[gateway.Trouble] | list[providers.Trouble]]:
    """Everything that is drawn, by who is troubled."""
    drawn: dict[str, list[gateway.Trouble] | list[providers.Trouble]] = {"gateway": list(_of_gateway(seed))}
    return drawn | {kind: list(_of_provider(seed, kind)) for kind in _OPERATIONS}


def plan(world: World, seed: int) -> None:
    """Have it happen."""
    # Cards that are declined are declined whatever else goes wrong.
    declined = gateway.Trouble(
        on=gateway.Operation.CHARGE, action=gateway.Action.DECLINE, containing=DECLINED_CARD, times=None
    )
    world.gateway.plan(declined)
    for ours in _some(_of_gateway(seed), _AT_ONCE):
        world.gateway.plan(*ours)
    for kind, provider in world.providers.items():
        for theirs in _some(_of_provider(seed, kind), _AT_ONCE):
            provider.plan(*theirs)


def happened(world: World) -> dict[str, dict[str, int]]:
    """Troubles that happened, by provider: requests, jobs and events."""
    found: dict[str, Counter[str]] = {"gateway": Counter()}
    for ours in world.gateway.report():
        if ours.trouble.action is not gateway.Action.DECLINE:
            found["gateway"][_told(ours.trouble.action, ours.trouble.moment)] += ours.fired
    for kind, provider in world.providers.items():
        counted = found.setdefault(kind, Counter())
        for theirs in provider.report():
            counted[_told(theirs.trouble.action, theirs.trouble.moment)] += theirs.fired
    return {kind: {name: count for name, count in sorted(counts.items()) if count} for kind, counts in found.items()}


def _told(action: str, moment: str) -> str:
    return f"{action} {moment}" if action in _MOMENTOUS else f"{action}"


def _of_gateway(seed: int) -> Iterator[gateway.Trouble]:
    for operation in gateway.Operation:
        far = _FAR["often" if operation is gateway.Operation.CHARGE else "seldom"]
        for nth, action, moment, seconds in _drawn(f"{seed}/gateway/{operation}", _OF_REQUESTS, far):
            if operation.acts or action in _READS:
                yield gateway.Trouble(
                    on=operation, action=gateway.Action(action), moment=gateway.Moment(moment), nth=nth, seconds=seconds
                )


def _of_provider(seed: int, kind: str) -> Iterator[providers.Trouble]:
    for name, shares in _asked_of(kind):
        far = _FAR["seldom" if name in _SELDOM else "often"]
        for nth, action, moment, seconds in _drawn(f"{seed}/{kind}/{name}", shares, far):
            if name not in _ASKS or action in _READS:
                yield providers.Trouble(
                    on=name,
                    action=providers.Action(action),
                    moment=providers.Moment(moment),
                    nth=nth,
                    seconds=seconds,
                    containing=_ONLY.get((name, action)),
                )


def _asked_of(kind: str) -> Iterator[tuple[str, Sequence[Share]]]:
    for event, opposite in _EVENTS[kind].items():
        shares = _OF_REFUSALS if event in _REFUSALS else _OF_EVENTS
        yield event, [one for one in shares if opposite or one[1] != "wrong"]
    for name in _OPERATIONS[kind]:
        # Parcels are handled by the warehouse, which is not a function: it is not restarted.
        requests = [one for one in _OF_REQUESTS if (name, one[1]) != ("handover", "kill")]
        yield name, [*requests, *(_OF_JOBS if name in _JOBS else ())]


def _drawn(seed: str, shares: Sequence[Share], far: int) -> Iterator[tuple[int, str, str, float | None]]:
    """Troubles of the n-th request or event, as far as there are any."""
    draw = random.Random(seed)
    for nth in range(1, far + 1):
        left = draw.random() * 100
        for share, action, moment, seconds in shares:
            left -= share
            if left < 0:
                yield nth, action, moment, seconds
                break


def _some(many: Iterable[T], size: int) -> Iterator[list[T]]:
    """Some at a time."""
    rest = iter(many)
    while some := list(itertools.islice(rest, size)):
        yield some
