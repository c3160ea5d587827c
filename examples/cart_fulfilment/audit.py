"""Invariants of the shop's table and the log: an audit of an example's own data after a test or a demo."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, Final

from constructs_lib.testing.invariants import Invariant, Item
from saga_runtime.idempotency.identity import request_id_from, step_key_of
from saga_runtime.protocol import LogAttribute, StepStatus

_SELLING: Final = "CommitOrder"
_STATUSES: Final = {StepStatus.DONE: "PAID", StepStatus.COMPENSATED: "CANCELED"}


def audit_shop(items: Iterable[Item], rows: Iterable[Item], opening: Mapping[str, int]) -> list[Invariant]:
    """Audit the shop's table against the saga log, after every cart was driven to its end.

    Args:
        items: every item of the shop's table.
        rows: every row of the saga log.
        opening: how many of each there were in the beginning, by SKU.
    """
    known, log = list(items), list(rows)
    return [
        _goods_add_up(known, opening),
        _movements_agree(known, log),
        _orders_agree(known, log),
        _nobody_holds(known),
    ]


def audit_events(
    items: Iterable[Item], waiting: Iterable[Item], events: Iterable[tuple[str, Mapping[str, Any]]]
) -> Invariant:
    """Audit the events of orders: each order is reported as placed, and each canceled one as cancelled, under one id.

    Args:
        items: every item of the shop's table.
        waiting: every row of the outbox.
        events: type and detail of all events that were published, repetitions included.
    """
    orders = {i["id"]["S"].partition("#")[2]: i["state"]["S"] for i in items if i["entry"]["S"] == "order"}
    expected = {("OrderPlaced", order) for order in orders}
    expected |= {("OrderCancelled", order) for order, state in orders.items() if state == "CANCELED"}
    ids: dict[tuple[str, str], set[str]] = defaultdict(set)
    for type_, detail in events:
        ids[type_, detail["order"]].add(detail["event_id"])
    violations = [
        f"{type_} of {order} was published, and did not happen" for type_, order in sorted(set(ids) - expected)
    ]
    violations += [f"{type_} of {order} was not published" for type_, order in sorted(expected - set(ids))]
    violations += [
        f"{kind} of {order} has several ids" for (kind, order), found in sorted(ids.items()) if len(found) > 1
    ]
    violations += [f"event {row['id']['S']} waits to be published" for row in waiting]
    return Invariant(name="orders are reported", checked=len(expected), violations=tuple(violations))


def _goods_add_up(items: Sequence[Item], opening: Mapping[str, int]) -> Invariant:
    moved: dict[str, int] = defaultdict(int)
    for item in items:
        if "kind" in item:
            sign = -1 if item["kind"]["S"] == "sold" else 1
            moved[item["id"]["S"]] += sign * int(item["quantity"]["N"])
    violations = []
    goods = [item for item in items if item["entry"]["S"] == "item"]
    for item in goods:
        sku, stock = item["id"]["S"].partition("#")[2], int(item["stock"]["N"])
        if stock != opening[sku] + moved[item["id"]["S"]] or stock < 0:
            violations.append(f"{sku}: {stock} of {opening[sku]} are left, and {moved[item['id']['S']]} moved")
    return Invariant(name="goods add up", checked=len(goods), violations=tuple(violations))


def _movements_agree(items: Sequence[Item], rows: Sequence[Item]) -> Invariant:
    expected = {movement for row in rows for movement in _movements_of(row)}
    found = {(item["entry"]["S"], item["kind"]["S"]) for item in items if "kind" in item}
    violations = [f"{key}: {kind} exists, and its row's status excludes it" for key, kind in sorted(found - expected)]
    violations += [
        f"{key}: {kind} is missing, and its row's status requires it" for key, kind in sorted(expected - found)
    ]
    return Invariant(name="log and goods agree", checked=len(expected | found), violations=tuple(violations))


def _movements_of(row: Item) -> Iterator[tuple[str, str]]:
    saga_id, status = row[LogAttribute.SAGA_ID]["S"], StepStatus(row[LogAttribute.STATUS]["S"])
    if row[LogAttribute.STEP]["S"] == _SELLING and status in _STATUSES:
        yield step_key_of(saga_id, _SELLING), "sold"
        if status is StepStatus.COMPENSATED:
            yield step_key_of(saga_id, _SELLING, undo=True), "put back"


def _orders_agree(items: Sequence[Item], rows: Sequence[Item]) -> Invariant:
    statuses = {
        (row[LogAttribute.SAGA_ID]["S"], row[LogAttribute.STEP]["S"]): StepStatus(row[LogAttribute.STATUS]["S"])
        for row in rows
    }
    expected = {}
    for (saga, step), status in statuses.items():
        if step == _SELLING and status in _STATUSES:
            shipped = statuses.get((saga, "ShipOrder")) is StepStatus.DONE
            expected[saga] = "SHIPPED" if shipped else _STATUSES[status]
    found = {i["id"]["S"].partition("#")[2]: i["state"]["S"] for i in items if i["entry"]["S"] == "order"}
    violations = [
        f"order {saga} is {found.get(saga)}, and its rows require {expected.get(saga)}"
        for saga in sorted(found | expected)
        if found.get(saga) != expected.get(saga)
    ]
    violations += _coupons_differ(items)
    standing = [request_id_from(saga) for saga, status in found.items() if status != "CANCELED"]
    violations += [f"request {one} led to several orders" for one in sorted(set(standing)) if standing.count(one) > 1]
    return Invariant(name="one order per request", checked=len(found | expected), violations=tuple(violations))


def _coupons_differ(items: Sequence[Item]) -> list[str]:
    """A coupon is redeemed by one order that was not canceled, and used up when that is shipped."""
    state_of = {"PAID": "REDEEMED", "SHIPPED": "USED"}
    coupons = {i["id"]["S"].partition("#")[2]: i["state"]["S"] for i in items if i["entry"]["S"] == "coupon"}
    expected = dict.fromkeys(coupons, "ISSUED")
    violations = []
    for order in items:
        code = order.get("coupon", {}).get("S")
        if code is not None and order["state"]["S"] in state_of:
            if expected[code] != "ISSUED":
                violations.append(f"coupon {code} was redeemed by several orders")
            expected[code] = state_of[order["state"]["S"]]
    violations += [
        f"coupon {code} is {coupons[code]}, and its order requires {state}"
        for code, state in sorted(expected.items())
        if coupons[code] != state
    ]
    return violations


def _nobody_holds(items: Sequence[Item]) -> Invariant:
    held = [item for item in items if item["entry"]["S"].startswith("hold#")]
    violations = tuple(f"{item['id']['S']} is held by {item['entry']['S']}" for item in held)
    return Invariant(name="no cart holds anything", checked=len(items), violations=violations)
