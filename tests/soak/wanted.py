"""What must have come of what was asked for: by the requests and by how they ended, and by nothing else.

Audits hold the books against the saga log. If log and books were wrong alike, nobody would see it; here they are held
against what clients asked for. No row is read, and no key is known: what a completed request moves is in its body, and
one that was not completed moves nothing.
"""

from __future__ import annotations

import json
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from constructs_lib.testing.invariants import Invariant
from examples.agentic_payout.functions.payout.intent import Intent
from saga_runtime.idempotency.identity import request_id_of
from saga_runtime.idempotency.record import RequestRecord
from saga_runtime.protocol import RecordStatus
from tests.local.two_ledgers import MAIN

from .load import Told
from .wishes import (
    BARE,
    BROKE,
    CAPPED,
    CLOSED,
    DECLINED_CARD,
    MOODS,
    POOR,
    SOLD_OUT,
    UNKNOWN,
    UNLISTED,
    Example,
    Wish,
)

NOBODY: Final = "nobody"
CAP: Final = 1_000
_BLOCKED_CARD: Final = "card-blocked"
_NOWHERE: Final = "nowhere"
_BAD_NEWS: Final = frozenset({"FAILED", "DECLINED", "OUT_OF_STOCK"})
_ORDINARY: Final = frozenset({"within one ledger", "between two ledgers", "one item", "several items"})
"""Nobody has a reason to say no to these."""

Account = tuple[str, str]
"""Ledger and name."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Came:
    """What came of one request.

    Attributes:
        wish: what was asked for.
        saga_id: of its saga.
        completed: whether it was done; None: nobody knows yet.
        status: of the stored answer; None: there is none yet.
        body: of the stored answer, likewise.
    """

    wish: Wish
    saga_id: str
    completed: bool | None
    status: int | None = None
    body: str | None = None


def came_of(told: Sequence[Told], records: Sequence[RequestRecord]) -> list[Came]:
    """What came of the requests that have a record."""
    return [
        Came(
            wish=one.wish,
            saga_id=record.saga_id,
            completed=_completed(record),
            status=record.http_status,
            body=record.body,
        )
        for one, record in _pairs(told, records)
    ]


def _pairs(told: Sequence[Told], records: Sequence[RequestRecord]) -> Iterator[tuple[Told, RequestRecord]]:
    known = {record.request_id: record for record in records}
    scopes = {record.scope for record in records}
    for one in told:
        for scope in scopes:
            record = known.get(request_id_of(scope, one.wish.key))
            if record is not None:
                yield one, record


def _completed(record: RequestRecord) -> bool | None:
    return None if not record.settled else record.status is RecordStatus.COMPLETED


# --- Requests, sagas and clients


def sagas_were_asked_for(told: Sequence[Told], records: Sequence[RequestRecord]) -> Invariant:
    """One saga for each request that somebody was told to have one, and none that nobody asked for."""
    pairs = list(_pairs(told, records))
    sagas = {one.wish.name: record.saga_id for one, record in pairs}
    violations = [
        f"{one.wish.name} was told saga {one.saga_id}, and its record says {sagas.get(one.wish.name)}"
        for one in told
        if one.saga_id is not None and one.saga_id != sagas.get(one.wish.name)
    ]
    asked_for = {record.request_id for _, record in pairs}
    violations += [f"nobody asked for saga {r.saga_id}" for r in records if r.request_id not in asked_for]
    return Invariant(name="each saga was asked for, once", checked=len(told), violations=tuple(violations))


def clients_were_told_the_truth(told: Sequence[Told], came: Sequence[Came]) -> Invariant:
    """What clients were told is what stands in the record, and good news is told of what was done alone."""
    by_name = {one.wish.name: one for one in came}
    violations, checked = [], 0
    for one in told:
        if one.refused is not None:
            violations.append(f"{one.wish.name} was turned away: {one.refused}")
        if one.answer is None:
            continue
        checked += 1
        found, status = by_name.get(one.wish.name), one.answer[0]
        if found is None or found.status != status or found.completed != (status < 400):
            violations.append(f"{one.wish.name} was answered {status}, and its saga is {found}")
    return Invariant(name="clients were told what is true", checked=checked, violations=tuple(violations))


def everybody_was_told(came: Sequence[Came], notices: Iterable[Mapping[str, Any]]) -> Invariant:
    """Of each saga that ended somebody was told, at least once, and nothing but how it ended."""
    told: dict[str, set[bool]] = defaultdict(set)
    for notice in notices:
        told[str(notice.get("saga_id") or notice.get("order"))].add(notice.get("status") not in _BAD_NEWS)
    ended = [one for one in came if one.completed is not None]
    violations = [
        f"of {one.wish.name} ({one.saga_id}), which is {'' if one.completed else 'not '}completed, was told "
        f"{sorted(told[one.saga_id]) or 'nothing'}"
        for one in ended
        if told[one.saga_id] != {one.completed}
    ]
    return Invariant(name="of each saga was told how it ended", checked=len(ended), violations=tuple(violations))


def ends_are_possible(came: Sequence[Came], refused: Iterable[str]) -> Invariant:
    """What cannot be done was not done; nobody said no to what is ordinary; what is owed once was paid once.

    Args:
        came: what came of the requests.
        refused: sagas that ended because somebody said no.
    """
    no = set(refused)
    violations = [
        f"{one.wish.name} ({one.wish.kind}) cannot be done, and saga {one.saga_id} is completed"
        for one in came
        if one.completed and is_impossible(one.wish)
    ]
    violations += [
        f"{one.wish.name} ({one.wish.kind}) was refused: {one.saga_id}"
        for one in came
        if one.saga_id in no and one.wish.kind in _ORDINARY
    ]
    paid = Counter(
        Intent.of_request(one.wish.body).obligation
        for one in came
        if one.completed and one.wish.example is Example.PAYOUTS
    )
    violations += [f"obligation {what} was paid {times} times" for what, times in paid.items() if times > 1]
    return Invariant(name="each saga ended as its request can end", checked=len(came), violations=tuple(violations))


def is_impossible(wish: Wish) -> bool:
    """True if a request cannot be done, whatever else happens."""
    body = wish.body
    skus = {str(line["sku"]) for line in body.get("items", ())}
    match wish.example:
        case Example.TRANSFERS:
            return body["from"] == POOR or body["to"] in {CLOSED, NOBODY}
        case Example.ORDERS:
            return body["card"] == DECLINED_CARD or bool(skus & {BARE, SOLD_OUT, UNKNOWN})
        case Example.PAYOUTS:
            intent = Intent.of_request(body)
            over = body["agent"] == CAPPED and intent.amount.minor_units > CAP
            return over or intent.payer == BROKE or intent.payee.startswith(MOODS)
        case _:
            nobody_can = body["card"] == _BLOCKED_CARD or str(body["address"]).startswith(_NOWHERE)
            return nobody_can or bool(skus & {SOLD_OUT, UNLISTED}) or wish.kind == "rejected"


# --- Money and goods


def balances_follow(came: Sequence[Came], opening: Mapping[Account, int], balances: Mapping[Account, int]) -> Invariant:
    """Each account holds what it was opened with, and what completed requests moved."""
    expected = Counter(opening)
    for one in came:
        if one.completed:
            source, target, amount = _movement(one)
            expected[source] -= amount
            expected[target] += amount
    return _equal("balances follow from what was asked for", expected, balances, _left_out(came, _accounts))


def stocks_follow(came: Sequence[Came], opening: Mapping[str, int], stocks: Mapping[str, int]) -> Invariant:
    """Of all goods there are as many as there were, less those of completed requests."""
    expected = Counter(opening)
    for one in came:
        if one.completed:
            expected.subtract(_quantities(one))
    return _equal("goods follow from what was asked for", expected, stocks, _left_out(came, _quantities))


def each_has(name: str, came: Sequence[Came], found: Mapping[str, int], of_one: Mapping[str, int]) -> Invariant:
    """Each completed saga has what its request is to have, and nothing stands of the others.

    Args:
        name: what it is about.
        came: what came of the requests.
        found: by saga, what stands; also of sagas that nobody asked for.
        of_one: by saga, what is to stand if it is completed.
    """
    expected = {one.saga_id: of_one[one.saga_id] for one in came if one.completed}
    undecided = {one.saga_id for one in came if one.completed is None}
    return _equal(name, expected, found, undecided)


def prices_of(came: Sequence[Came], prices: Mapping[str, int], price: int) -> dict[str, int]:
    """By saga, what its goods cost. Those that have no price of their own cost the usual one."""
    return {
        one.saga_id: sum(prices.get(sku, price) * number for sku, number in _quantities(one).items()) for one in came
    }


def _equal(name: str, expected: Mapping[Any, int], found: Mapping[Any, int], left_out: Iterable[Any]) -> Invariant:
    skipped = set(left_out)
    keys = sorted((expected.keys() | found.keys()) - skipped)
    violations = tuple(
        f"{key}: {found.get(key, 0)}, and {expected.get(key, 0)} follows from what was asked for"
        for key in keys
        if found.get(key, 0) != expected.get(key, 0)
    )
    return Invariant(name=name, checked=len(keys), violations=violations)


def _left_out(came: Sequence[Came], touched: Callable[[Came], Iterable[Any]]) -> set[Any]:
    """What a request may have touched of which nobody knows yet what became of it."""
    return {what for one in came if one.completed is None for what in touched(one)}


def _movement(one: Came) -> tuple[Account, Account, int]:
    return *_accounts(one), _amount(one)


def _accounts(one: Came) -> tuple[Account, Account]:
    body = one.wish.body
    if one.wish.example is Example.PAYOUTS:
        intent = Intent.of_request(body)
        return (MAIN, intent.payer), (MAIN, intent.payee)
    return (MAIN, body["from"]), (body.get("to_ledger", MAIN), body["to"])


def _amount(one: Came) -> int:
    if one.wish.example is not Example.PAYOUTS:
        return int(one.wish.body["amount"])
    # A model recommends as much, or less: how much it was, the client was told.
    paid, asked = int(json.loads(one.body or "{}")["result"]["amount"]), Intent.of_request(one.wish.body).amount
    return min(max(paid, 1), asked.minor_units)


def _quantities(one: Came) -> Counter[str]:
    found: Counter[str] = Counter()
    for line in one.wish.body["items"]:
        found[str(line["sku"])] += int(line["quantity"])
    return found
