"""Invariants of the shop's table and the log: an audit of an example's own data after a test or a demo."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Final

from constructs_lib.testing.invariants import Invariant, Item
from saga_runtime.idempotency.identity import request_id_from, step_key_of
from saga_runtime.protocol import LogAttribute, StepStatus

_MOVING: Final = {"ReserveInventory": "reserved", "UpdateInventory": "sold"}
_ITEM: Final = "item"


def audit_shop(items: Iterable[Item], rows: Iterable[Item], opening: Mapping[str, int]) -> list[Invariant]:
    """Audit the shop's table against the saga log, after every order was driven to its end.

    Args:
        items: every item of the shop's table.
        rows: every row of the saga log.
        opening: how many of each there were in the beginning, free by the books, by SKU.
    """
    known, log = list(items), list(rows)
    return [_goods_add_up(known, opening), _movements_agree(known, log), _orders_agree(known, log)]


def _goods_add_up(items: Sequence[Item], opening: Mapping[str, int]) -> Invariant:
    moved: dict[str, dict[str, int]] = defaultdict(lambda: defaultdict(int))
    for item in items:
        if "kind" in item:
            moved[item["id"]["S"]][item["kind"]["S"]] += int(item["quantity"]["N"])
    violations = []
    goods = [item for item in items if item["entry"]["S"] == _ITEM]
    for item in goods:
        sku = item["id"]["S"].partition("#")[2]
        stock, reserved = int(item["stock"]["N"]), int(item["reserved"]["N"])
        by = moved[item["id"]["S"]]
        held = by["reserved"] - by["released"] - by["sold"]
        if (stock, reserved) != (opening[sku] - by["reserved"] + by["released"], held):
            violations.append(f"{sku} has {stock} free and {reserved} reserved; {dict(by)} moved of {opening[sku]}")
        if reserved:
            violations.append(f"{reserved} of {sku} are still reserved")
        if min(stock, reserved, int(item["on_shelf"]["N"])) < 0:
            violations.append(f"{sku} has less than nothing: {stock}, {reserved}, {item['on_shelf']['N']}")
    return Invariant(name="goods add up, and nothing stays reserved", checked=len(goods), violations=tuple(violations))


def _movements_agree(items: Sequence[Item], rows: Sequence[Item]) -> Invariant:
    expected = {movement for row in rows for movement in _movements_of(row)}
    found = {(item["entry"]["S"], item["kind"]["S"]) for item in items if "kind" in item}
    violations = [f"{key}: {kind} exists, and its row's status excludes it" for key, kind in sorted(found - expected)]
    violations += [
        f"{key}: {kind} is missing, and its row's status requires it" for key, kind in sorted(expected - found)
    ]
    return Invariant(name="log and goods agree", checked=len(expected | found), violations=tuple(violations))


def _movements_of(row: Item) -> Iterator[tuple[str, str]]:
    saga_id, step = row[LogAttribute.SAGA_ID]["S"], row[LogAttribute.STEP]["S"]
    status = StepStatus(row[LogAttribute.STATUS]["S"])
    if step in _MOVING and status in {StepStatus.DONE, StepStatus.COMPENSATED}:
        yield step_key_of(saga_id, step), _MOVING[step]
        if status is StepStatus.COMPENSATED:
            yield step_key_of(saga_id, step, undo=True), "released"


def _orders_agree(items: Sequence[Item], rows: Sequence[Item]) -> Invariant:
    done: dict[str, set[str]] = defaultdict(set)
    for row in rows:
        if row[LogAttribute.STATUS]["S"] == StepStatus.DONE:
            done[row[LogAttribute.STEP]["S"]].add(row[LogAttribute.SAGA_ID]["S"])
    violations = []
    checked = 0
    for entry, step in (("order", "UpdateInventory"), ("shipment", "CreateShipment")):
        found = {item["id"]["S"].partition("#")[2] for item in items if item["entry"]["S"] == entry}
        checked += len(found | done[step])
        violations += [f"{entry} {saga} and the row of {step} disagree" for saga in sorted(found ^ done[step])]
    requests = [request_id_from(saga_id) for saga_id in done["UpdateInventory"]]
    violations += [f"request {one} led to several orders" for one in sorted(set(requests)) if requests.count(one) > 1]
    return Invariant(name="one order per request, paid for and sent", checked=checked, violations=tuple(violations))
