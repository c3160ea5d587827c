"""Invariants over clients' requests: read from ledgers, shops, providers, and the responses."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Final

from constructs_lib.testing.invariants import Invariant
from saga_runtime import account_key
from saga_runtime.idempotency.record import RequestRecord
from saga_runtime.protocol import LedgerAttribute
from tests.local import cart_system, order_system
from tests.local.cart_system import CartSystem
from tests.local.order_system import OrderSystem
from tests.local.two_ledgers import MAIN, PARTNER, TwoLedgers

from .load import Told
from .wanted import (
    Account,
    Came,
    balances_follow,
    came_of,
    clients_were_told_the_truth,
    each_has,
    ends_are_possible,
    everybody_was_told,
    prices_of,
    sagas_were_asked_for,
    stocks_follow,
)
from .wishes import (
    ACCOUNTS,
    BARE,
    BROKE,
    CLOSED,
    DEAR,
    EMPTY,
    GOODS,
    MOODS,
    PAYEES,
    PAYERS,
    POOR,
    SOLD_OUT,
    TEMPTING,
    TEMPTING_PRICE,
    UNLISTED,
    Example,
)
from .world import DEAR_PRICE, PLENTY, World

_SAGA_ID: Final = re.compile("[a-z2-7]{26}-[0-9a-z]{1,13}")
_PRICES: Final = {DEAR: DEAR_PRICE, TEMPTING: TEMPTING_PRICE}
_OPENING: Final[Mapping[Example, Mapping[Account, int]]] = {
    Example.TRANSFERS: {
        **{(MAIN, name): PLENTY for name in ACCOUNTS},
        **{(PARTNER, name): 0 for name in (*ACCOUNTS, CLOSED)},
        (MAIN, POOR): 0,
    },
    Example.PAYOUTS: {
        **{(MAIN, name): PLENTY for name in PAYERS},
        **{(MAIN, name): 0 for name in (BROKE, *PAYEES, *(f"{mood}-payee" for mood in MOODS))},
    },
}
_STOCK: Final[Mapping[Example, Mapping[str, int]]] = {
    Example.ORDERS: {**dict.fromkeys((*GOODS, BARE), PLENTY), SOLD_OUT: 0},
    Example.CARTS: {**dict.fromkeys((*GOODS, UNLISTED, EMPTY, DEAR, TEMPTING), PLENTY), SOLD_OUT: 0},
}


def promised(world: World, example: Example, told: Sequence[Told], refused: Iterable[str]) -> list[Invariant]:
    """Invariants of one example, by its requests and how they ended.

    Args:
        world: the deployed examples.
        example: the example.
        told: clients' requests and responses.
        refused: sagas that ended with a refusal.
    """
    system = world.systems[example]
    records = [RequestRecord.from_item(item) for item in system.records()]
    came = came_of(told, records)
    return [
        sagas_were_asked_for(told, records),
        clients_were_told_the_truth(told, came),
        ends_are_possible(came, refused),
        everybody_was_told(came, system.messages()),
        *_BOOKS[example](system, came),
    ]


def _transfers(system: TwoLedgers, came: Sequence[Came]) -> Iterator[Invariant]:
    yield _balances(system, Example.TRANSFERS, came)


def _payouts(system: TwoLedgers, came: Sequence[Came]) -> Iterator[Invariant]:
    yield _balances(system, Example.PAYOUTS, came)


def _balances(system: TwoLedgers, example: Example, came: Sequence[Came]) -> Invariant:
    opening = _OPENING[example]
    return balances_follow(came, opening, {account: _balance(system, *account) for account in opening})


def _balance(system: TwoLedgers, ledger: str, name: str) -> int:
    found = system.aws.client("dynamodb").get_item(
        TableName=system.ledger_table(ledger), Key=account_key(name), ConsistentRead=True
    )
    return int(found["Item"][LedgerAttribute.BALANCE]["N"]) if "Item" in found else 0


def _orders(system: TwoLedgers, came: Sequence[Came]) -> Iterator[Invariant]:
    assert isinstance(system, OrderSystem)
    yield stocks_follow(came, _STOCK[Example.ORDERS], _stocks(system.shop()))
    taken: Counter[str] = Counter()
    books = system.gateway.books()
    for charge in books.charges:
        taken[charge.reference] += charge.amount if charge.succeeded else 0
    for refund in books.refunds:
        taken[refund.reference] -= refund.amount
    prices = prices_of(came, {}, order_system.PRICE)
    yield each_has("what is ordered is paid for, and nothing else", came, taken, prices)
    shipments = Counter(item["id"]["S"].partition("#")[2] for item in system.shop() if item["entry"]["S"] == "shipment")
    yield each_has("what is ordered is sent once", came, shipments, _one_each(came))


def _carts(system: TwoLedgers, came: Sequence[Came]) -> Iterator[Invariant]:
    assert isinstance(system, CartSystem)
    yield stocks_follow(came, _STOCK[Example.CARTS], _stocks(system.shop()))
    prices = prices_of(came, _PRICES, cart_system.PRICE)
    for name, kind, done, undone, wanted in (
        ("what is ordered is paid for, and nothing else", "payments", "captured", "refunded", prices),
        ("what is ordered is picked once", "warehouse", "picked", "put_back", None),
        ("what is ordered has one label", "carrier", "labelled", "voided", None),
    ):
        found: Counter[str] = Counter()
        for effect in system.providers[kind].effects():
            if effect.kind in {done, undone}:
                much = 1 if wanted is None else effect.amount
                found[_saga_of(effect.reference)] += much if effect.kind == done else -much
        yield each_has(name, came, found, _one_each(came) if wanted is None else wanted)


_BOOKS: Final[Mapping[Example, Callable[[TwoLedgers, Sequence[Came]], Iterator[Invariant]]]] = {
    Example.TRANSFERS: _transfers,
    Example.ORDERS: _orders,
    Example.PAYOUTS: _payouts,
    Example.CARTS: _carts,
}


def _one_each(came: Sequence[Came]) -> dict[str, int]:
    return {one.saga_id: 1 for one in came}


def _stocks(shop: Iterable[Mapping[str, Mapping[str, str]]]) -> dict[str, int]:
    return {item["id"]["S"].partition("#")[2]: int(item["stock"]["N"]) for item in shop if item["entry"]["S"] == "item"}


def _saga_of(reference: str) -> str:
    found = _SAGA_ID.search(reference)
    return reference if found is None else found[0]
