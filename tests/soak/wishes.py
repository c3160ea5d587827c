"""Requests of the clients: the n-th request of each example, drawn from a seed and from nothing else."""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, Final

from examples.agentic_payout.functions.payout.intent import Intent, intent_key, request_of
from examples.agentic_payout.functions.payout.stand_in import BABBLE, GREEDY
from saga_runtime import Money
from tests.local.cart_system import cart
from tests.local.order_system import order
from tests.local.transfer_system import CURRENCY, transfer
from tests.local.two_ledgers import PARTNER

ACCOUNTS: Final = tuple(f"a{number:02d}" for number in range(24))
"""In each of the two ledgers of the transfers."""
POOR: Final = "poor"
CLOSED: Final = "closed"
PAYERS: Final = tuple(f"payer-{number:02d}" for number in range(16))
PAYEES: Final = tuple(f"payee-{number:02d}" for number in range(16))
MOODS: Final = (GREEDY, BABBLE)
BROKE: Final = "broke"
AGENTS: Final = tuple(f"agent-{number:02d}" for number in range(16))
CAPPED: Final = "capped"
GOODS: Final = tuple(f"goods-{number:02d}" for number in range(32))
SOLD_OUT: Final = "sold-out"
BARE: Final = "bare-shelf"
"""Goods that the books have, and the shelf does not."""
UNKNOWN: Final = "nothing-of-the-kind"
DEAR: Final = "dear"
UNLISTED: Final = "unlisted-goods"
EMPTY: Final = "empty-shelf-goods"
TEMPTING: Final = "tempting"
TEMPTING_PRICE: Final = 1_259
"""No other amount ends like this: a payment of it that was declined may be authorized after all."""
DECLINED_CARD: Final = "card-declined"


class Example(StrEnum):
    """Examples with sagas."""

    TRANSFERS = "funds transfer"
    ORDERS = "order processing"
    PAYOUTS = "agentic payout"
    CARTS = "cart fulfilment"


class Manner(StrEnum):
    """Kinds of client behaviour."""

    PATIENT = "asks until it is accepted, waits, and asks for the answer"
    DOUBLED = "asks twice at the same moment, then waits"
    IMPATIENT = "asks again and again until the answer comes"
    GONE = "sends one request and never returns, whatever the response"


_MANNERS: Final = (Manner.PATIENT,) * 14 + (Manner.DOUBLED,) * 3 + (Manner.IMPATIENT,) + (Manner.GONE,) * 2


@dataclass(frozen=True, slots=True, kw_only=True)
class Wish:
    """One request, and how its client behaves.

    Attributes:
        example: its destination.
        name: unique.
        kind: its variant.
        key: the Idempotency-Key.
        body: the request's body.
        manner: how the client asks.
        decision: of a reviewed cart: the buttons that are pressed.
    """

    example: Example
    name: str
    kind: str
    key: str
    body: Mapping[str, Any]
    manner: Manner
    decision: Sequence[str] = ()


def wish(example: Example, seed: int, number: int) -> Wish:
    """The n-th request of an example."""
    draw = random.Random(f"{seed}/{example}/{number}")
    kind, make = draw.choices(_KINDS[example], weights=[weight for _, weight, _ in _KINDS[example]])[0][::2]
    name = f"{example.name.lower()}-{number}"
    manner = draw.choice(_MANNERS)
    if example is Example.PAYOUTS:
        return _payout(seed, number, name, kind, manner, draw)
    return Wish(
        example=example,
        name=name,
        kind=kind,
        key=name,
        body=make(draw, name),
        manner=manner,
        decision=_DECISIONS.get(kind, ()),
    )


def number_of(name: str) -> int:
    """The number of the request that has this name."""
    return int(name.rpartition("-")[2])


# --- Payouts: their keys follow from what is wanted


def _payout(seed: int, number: int, name: str, kind: str, manner: Manner, draw: random.Random) -> Wish:
    if kind == "paid once more" and number:
        # A client that does not know of the earlier request: another attempt at the same obligation.
        former = wish(Example.PAYOUTS, seed, number - 1)
        attempt = int(former.key.rpartition(":")[2]) + 1
        key = intent_key(Intent.of_request(former.body), attempt=attempt)
        return Wish(example=Example.PAYOUTS, name=name, kind=kind, key=key, body=former.body, manner=manner)
    payer, payee, agent, amount = draw.choice(PAYERS), draw.choice(PAYEES), draw.choice(AGENTS), draw.randint(1, 900)
    if kind == "refused by the model":
        payee = f"{draw.choice(MOODS)}-payee"
    elif kind == "without money":
        payer = BROKE
    elif kind == "over the cap":
        agent, amount = CAPPED, 100_000
    intent = Intent(
        payer=payer, payee=payee, amount=Money(amount, CURRENCY), purpose=f"invoice:{name}", period="2026-11"
    )
    return Wish(
        example=Example.PAYOUTS,
        name=name,
        kind=kind,
        key=intent_key(intent),
        body=request_of(intent, agent=agent),
        manner=manner,
    )


# --- The others: a kind, how many of a hundred, and the body


Make = Callable[[random.Random, str], Mapping[str, Any]]


def _of_one(draw: random.Random, sku: str | None = None, **more: Any) -> dict[str, object]:
    return order(sku or draw.choice(GOODS), card="card-1", quantity=draw.randint(1, 3), **more)


def _cart(draw: random.Random, name: str, sku: str | None = None, **more: Any) -> dict[str, object]:
    body = cart(sku or draw.choice(GOODS), quantity=draw.randint(1, 3), **more)
    return {**body, "customer": name}  # who decides about it knows the request by this


def _transfer(
    draw: random.Random, source: str | None = None, target: str | None = None, **more: object
) -> dict[str, object]:
    one, other = draw.sample(ACCOUNTS, 2)
    return transfer(source or one, target or other, draw.randint(1, 500), **more)


_KINDS: Final[Mapping[Example, Sequence[tuple[str, int, Make]]]] = {
    Example.TRANSFERS: (
        ("within one ledger", 40, lambda d, _: _transfer(d)),
        ("between two ledgers", 42, lambda d, _: _transfer(d, to_ledger=PARTNER)),
        ("to a closed account", 8, lambda d, _: _transfer(d, target=CLOSED, to_ledger=PARTNER)),
        ("without money", 6, lambda d, _: _transfer(d, source=POOR)),
        ("to an unknown account", 4, lambda d, _: _transfer(d, target="nobody")),
    ),
    Example.ORDERS: (
        ("one item", 62, lambda d, _: _of_one(d)),
        ("several items", 18, lambda d, _: order(*d.sample(GOODS, 3), card="card-1")),
        ("declined card", 7, lambda d, _: order(d.choice(GOODS), card=DECLINED_CARD)),
        ("bare shelf", 7, lambda d, _: _of_one(d, BARE)),
        ("out of stock", 4, lambda d, _: _of_one(d, SOLD_OUT)),
        ("unknown goods", 2, lambda d, _: _of_one(d, UNKNOWN)),
    ),
    Example.PAYOUTS: (
        ("paid", 76, lambda _d, _n: {}),
        ("refused by the model", 10, lambda _d, _n: {}),
        ("paid once more", 6, lambda _d, _n: {}),
        ("without money", 4, lambda _d, _n: {}),
        ("over the cap", 4, lambda _d, _n: {}),
    ),
    Example.CARTS: (
        ("delivered", 56, _cart),
        ("confirmed by the card's owner", 6, lambda d, n: _cart(d, n, card="card-3ds")),
        ("declined card", 6, lambda _, n: {**cart(TEMPTING, card=DECLINED_CARD), "customer": n}),
        ("blocked card", 4, lambda d, n: _cart(d, n, card="card-blocked")),
        ("no driver serves this address", 5, lambda d, n: _cart(d, n, address="nowhere 1")),
        ("warehouse does not know it", 4, lambda d, n: _cart(d, n, UNLISTED)),
        ("warehouse's shelf is empty", 5, lambda d, n: _cart(d, n, EMPTY)),
        ("out of stock", 4, lambda d, n: _cart(d, n, SOLD_OUT)),
        ("approved", 4, lambda d, n: _cart(d, n, DEAR)),
        ("rejected", 3, lambda d, n: _cart(d, n, DEAR)),
        ("approved and rejected", 3, lambda d, n: _cart(d, n, DEAR)),
    ),
}  # fmt: skip

_DECISIONS: Final = {
    "approved": ("approve", "approve"),
    "rejected": ("reject",),
    "approved and rejected": ("approve", "reject"),
}
