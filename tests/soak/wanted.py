"""Expected results of the requests: by the requests and by how they ended, and by nothing else.

Audits compare the books with the saga log. If log and books had the same error, they would not detect it; here they are
compared with clients' requests. No row is read, and no key is known: the amount that a completed request moves is in
its body, and one that was not completed moves nothing.
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
"""Ordinary requests, which must not be refused."""

Account = tuple[str, str]
"""Ledger and name."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Came:
    """Result of one request.

    Attributes:
        wish: the request.
        saga_id: of its saga.
        completed: whether it was done; None: unknown yet.
        status: of the stored response; None before.
        body: of the stored response, likewise.
    """

    wish: Wish
    saga_id: str
    completed: bool | None
    status: int | None = None
    body: str | None = None


def came_of(told: Sequence[Told], records: Sequence[RequestRecord]) -> list[Came]:
    """Results of the requests that have a record."""
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
    """One saga for each request that was accepted, and none without a request."""
    pairs = list(_pairs(told, records))
    sagas = {one.wish.name: record.saga_id for one, record in pairs}
    violations = [
        f"{one.wish.name} was answered with saga {one.saga_id}, and its record has {sagas.get(one.wish.name)}"
        for one in told
        if one.saga_id is not None and one.saga_id != sagas.get(one.wish.name)
    ]
    asked_for = {record.request_id for _, record in pairs}
    violations += [f"there is no request for saga {r.saga_id}" for r in records if r.request_id not in asked_for]
    return Invariant(name="each saga was asked for, once", checked=len(told), violations=tuple(violations))


def clients_were_told_the_truth(told: Sequence[Told], came: Sequence[Came]) -> Invariant:
    """Responses to clients agree with the record, and only a completed saga is reported as completed."""
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
    return Invariant(name="responses to clients are true", checked=checked, violations=tuple(violations))


def everybody_was_told(came: Sequence[Came], notices: Iterable[Mapping[str, Any]]) -> Invariant:
    """Each ended saga was notified at least once, with its outcome alone."""
    told: dict[str, set[bool]] = defaultdict(set)
    for notice in notices:
        told[str(notice.get("saga_id") or notice.get("order"))].add(notice.get("status") not in _BAD_NEWS)
    ended = [one for one in came if one.completed is not None]
    violations = [
        f"of {one.wish.name} ({one.saga_id}), which is {'' if one.completed else 'not '}completed, the notices are "
        f"{sorted(told[one.saga_id]) or 'nothing'}"
        for one in ended
        if told[one.saga_id] != {one.completed}
    ]
    return Invariant(name="each saga's outcome was notified", checked=len(ended), violations=tuple(violations))


def ends_are_possible(came: Sequence[Came], refused: Iterable[str]) -> Invariant:
    """Impossible requests were not done; ordinary ones were not refused; each obligation was paid once.

    Args:
        came: results of the requests.
        refused: sagas that ended with a refusal.
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
    """Stocks of all goods are the initial ones, less those of completed requests."""
    expected = Counter(opening)
    for one in came:
        if one.completed:
            expected.subtract(_quantities(one))
    return _equal("goods follow from what was asked for", expected, stocks, _left_out(came, _quantities))


def each_has(name: str, came: Sequence[Came], found: Mapping[str, int], of_one: Mapping[str, int]) -> Invariant:
    """Each completed saga has the effects of its request, and the others have none.

    Args:
        name: of the invariant.
        came: results of the requests.
        found: effects by saga; also of sagas without a request.
        of_one: expected effects by saga, if it is completed.
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
    """Subjects that a request with an unknown outcome may have changed."""
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
    # A model recommends the requested amount, or less: the client received the amount.
    paid, asked = int(json.loads(one.body or "{}")["result"]["amount"]), Intent.of_request(one.wish.body).amount
    return min(max(paid, 1), asked.minor_units)


def _quantities(one: Came) -> Counter[str]:
    found: Counter[str] = Counter()
    for line in one.wish.body["items"]:
        found[str(line["sku"])] += int(line["quantity"])
    return found
