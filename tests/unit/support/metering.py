"""Meter of AWS calls: which, how many bytes they send, and the units of DynamoDB that they use."""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from itertools import groupby
from typing import Any

from botocore.awsrequest import AWSResponse

from constructs_lib.testing.simulator.aws.dynamodb.tables import Index, Table
from constructs_lib.testing.simulator.aws.dynamodb.values import Item, item_size, stored_item
from tests.unit.support.dynamodb import WRITES
from tests.unit.support.world import World

_READS = frozenset({"GetItem", "BatchGetItem", "Query", "Scan"})


@dataclass(slots=True)
class Spent:
    """Calls, and what they use.

    Attributes:
        calls: operations, in order.
        sent: bytes of their bodies.
        writes, reads: units of DynamoDB.
    """

    calls: list[str] = field(default_factory=list)
    sent: int = 0
    writes: int = 0
    reads: float = 0.0

    @property
    def row(self) -> tuple[str, str, str, str]:
        """Cells of a table: calls, kilobytes, write and read units."""
        runs = [(name, len(list(same))) for name, same in groupby(self.calls)]
        calls = ", ".join(f"`{name}`" if number == 1 else f"{number} `{name}`" for name, number in runs)
        return f"{len(self.calls)}: {calls}", f"{self.sent / 1_000:.1f}", str(self.writes), f"{self.reads:g}"


def metered(world: World, act: Callable[[], object]) -> Spent:
    """Meter what something uses.

    Units are those of https://docs.aws.amazon.com/amazondynamodb/latest/developerguide/read-write-operations.html. A
    write is billed by the larger of the item before and after, also if it is refused, and twice in a transaction; an
    entry of an index if it changes.
    """
    spent, send = Spent(), world.wire.send

    def observed(event_name: str, request: Any, deliver: Callable[[], AWSResponse | None]) -> AWSResponse | None:
        operation = event_name.rpartition(".")[2]
        spent.calls.append(operation)
        spent.sent += len(request.body or b"")
        if ".dynamodb." not in event_name:
            return send(event_name, request, deliver)
        body = json.loads(request.body)
        targets = list(_targets(world, operation, body))
        before = [table.get(key) for table, key, _ in targets]
        answer = send(event_name, request, deliver)
        for (table, key, factor), old in zip(targets, before, strict=True):
            spent.writes += _written(table, old, table.get(key), factor)
        if operation in _READS and answer is not None:
            spent.reads += _read(operation, body, json.loads(answer.content))
        return answer

    with_meter: Any = world.wire
    with_meter.send = observed
    try:
        act()
    finally:
        del with_meter.send
    return spent


def _targets(world: World, operation: str, body: Mapping[str, Any]) -> Iterator[tuple[Table, Any, int]]:
    entries = body["TransactItems"] if operation == "TransactWriteItems" else []
    if operation in WRITES:
        entries = [{WRITES[operation]: body}]
    for entry in entries:
        ((kind, request),) = entry.items()
        table = world.database.dynamodb.table(request["TableName"])
        given = stored_item(request["Item" if kind == "Put" else "Key"])
        yield table, table.schema.key_of(given, of_item=kind == "Put"), 1 if operation in WRITES else 2


def _written(table: Table, old: Item | None, new: Item | None, factor: int) -> int:
    largest = max(item_size(item) for item in (old or {}, new or {}))
    indexes = sum(_moved(_entry(table, index, old), _entry(table, index, new)) for index in table.indexes.values())
    return factor * _units(largest, 1_024) + indexes


def _entry(table: Table, index: Index, item: Item | None) -> tuple[Any, Item] | None:
    if item is None or not all(name in item for name in index.schema.names):
        return None
    kept = item if index.projected is None else {name: item[name] for name in index.projected if name in item}
    return [item[name] for name in index.schema.names], kept


def _moved(old: tuple[Any, Item] | None, new: tuple[Any, Item] | None) -> int:
    if old == new:
        return 0
    if old is not None and new is not None and old[0] == new[0]:
        return _units(max(item_size(old[1]), item_size(new[1])), 1_024)
    return sum(_units(item_size(entry[1]), 1_024) for entry in (old, new) if entry is not None)


def _read(operation: str, body: Mapping[str, Any], answer: Mapping[str, Any]) -> float:
    if operation == "GetItem":
        return _strong(answer.get("Item", {})) / (1 if body.get("ConsistentRead") else 2)
    if operation == "BatchGetItem":
        asked = sum(len(each["Keys"]) for each in body["RequestItems"].values())
        found = [item for items in answer["Responses"].values() for item in items]
        return sum(map(_strong, found)) + asked - len(found)
    passed = _units(sum(item_size(stored_item(item)) for item in answer["Items"]), 4_096)
    return passed / (1 if body.get("ConsistentRead") else 2)


def _strong(item: Mapping[str, Any]) -> int:
    return _units(item_size(stored_item(item)), 4_096)


def _units(size: int, unit: int) -> int:
    return max(1, math.ceil(size / unit))
