"""GetItem, BatchGetItem, Query and Scan."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import pairwise
from typing import Any, Final
from zlib import crc32

from constructs_lib.testing.simulator.aws.dynamodb.parsing import Expression, condition_of, projection_of
from constructs_lib.testing.simulator.aws.dynamodb.tables import Index, Key, KeySchema, Moments, Table
from constructs_lib.testing.simulator.aws.dynamodb.trees import (
    AllOf,
    Between,
    Comparison,
    Condition,
    Function,
    Operand,
    Path,
    check_types,
)
from constructs_lib.testing.simulator.aws.dynamodb.values import (
    Item,
    Value,
    copied,
    copied_item,
    item_size,
    number,
    stored_item,
)
from constructs_lib.testing.simulator.aws.dynamodb.writes import check_placeholders
from constructs_lib.testing.simulator.errors import NotSimulatedError, invalid

MOST_PAGE_BYTES: Final = 1_048_576


def projected(item: Item, source: Mapping[str, Any], projection: Expression | None) -> Item:
    """Project an item as a request asks."""
    if projection is None:
        return copied_item(item)
    names: Mapping[str, str] = source.get("ExpressionAttributeNames") or {}
    found: Item = {}
    for path in projection.tree:
        value = path.find(item, names, {})
        if value is not None:
            _place(found, path.resolved(names), copied(value))
    return found


def _place(found: Item, place: tuple[str | int, ...], value: dict[str, Any]) -> None:
    """Put a value at its place, with the maps and lists around it and no other member."""
    holder: Any = found
    for part, following in pairwise(place):
        shell: dict[str, Any] = {"L": []} if isinstance(following, int) else {"M": {}}
        if isinstance(part, int):
            holder.append(shell)
            held = shell
        else:
            held = holder.setdefault(part, shell)
        holder = held["L"] if isinstance(following, int) else held["M"]
    if isinstance(place[-1], int):
        holder.append(value)
    else:
        holder[place[-1]] = value


def get_item(table: Table, source: Mapping[str, Any], horizon: int, moments: Moments | None = None) -> dict[str, Any]:
    """An item, as a reader sees it who knows writes until a moment; one of several is read at a moment of its own."""
    projection = _projection(source)
    check_placeholders([projection] if projection else [], source.get("ExpressionAttributeNames") or {}, {})
    key = table.schema.key_of(stored_item(source["Key"]), of_item=False)
    if source.get("ConsistentRead"):
        item = table.get(key) if moments is None else table.get_at(key, moments)
    else:
        item = table.get_as_of(key, horizon)
    return {} if item is None else {"Item": projected(item, source, projection)}


def _projection(source: Mapping[str, Any]) -> Expression | None:
    text = source.get("ProjectionExpression")
    if text is None:
        return None
    projection = projection_of(text)
    names: Mapping[str, str] = source.get("ExpressionAttributeNames") or {}
    projection.check_given("ProjectionExpression", names, {})
    places = [path.resolved(names) for path in projection.tree]
    for at, place in enumerate(places):
        for other in places[:at]:
            if place[: len(other)] == other or other[: len(place)] == place:
                raise invalid(
                    "Invalid ProjectionExpression: Two document paths overlap with each other; must remove or rewrite "
                    f"one of these paths; path one: {list(other)}, path two: {list(place)}"
                )
    return projection


@dataclass(frozen=True, slots=True)
class _Range:
    """Selection of a key condition, with placeholders for its values."""

    partition: Operand
    sort: Condition | None


def query(
    table: Table, source: Mapping[str, Any], horizon: int, most: int = 0, moments: Moments | None = None
) -> dict[str, Any]:
    """Items of one partition.

    Args:
        table: its table.
        source: the request.
        horizon: an index, and a read that is not consistent, know writes until this moment.
        most: items of a page; 0: as many as fit.
        moments: at which a consistent read reads its items; None: at one, now.

    Raises:
        ServiceError: as DynamoDB refuses it.
    """
    index = _index(table, source)
    schema = index.schema if index is not None else table.schema
    names: Mapping[str, str] = source.get("ExpressionAttributeNames") or {}
    values = stored_item(source.get("ExpressionAttributeValues") or {})
    text = source.get("KeyConditionExpression")
    if source.get("Limit", 1) < 1:
        raise invalid("Limit must be greater than or equal to 1")
    if text is None:
        raise invalid("Either the KeyConditions or KeyConditionExpression parameter must be specified in the request.")
    condition = condition_of(text, "KeyConditionExpression")
    filtered, projection = _filter(source), _projection(source)
    check_placeholders([part for part in (condition, filtered, projection) if part is not None], names, values)
    check_types(condition.typed, values)
    of_key = [name for name in (filtered.attributes if filtered else ()) if names.get(name, name) in schema.names]
    if of_key:
        raise invalid(
            f"Filter Expression can only contain non-primary key attributes: Primary key attribute: {of_key[0]}"
        )
    wanted = _range_of(text, tuple(names.items()), schema)
    partition = _operand(wanted.partition, schema.kinds[0], names, values)
    found: Sequence[tuple[Key, Item]]
    if index is not None:
        if source.get("ConsistentRead"):
            raise invalid("Consistent reads are not supported on global secondary indexes")
        index.known_at(horizon)
        found = index.partition(partition)
    else:
        found = table.partition(partition)
        if not source.get("ConsistentRead"):
            if table.written > horizon:
                found = table.partition_as_of(partition, horizon)
        elif moments is not None and table.written > moments.begun:
            seen = ((key, table.get_at(key, moments)) for key, _ in found)
            found = [(key, item) for key, item in seen if item is not None]
    if not found:
        return {"Count": 0, "ScannedCount": 0, **({} if source.get("Select") == "COUNT" else {"Items": []})}
    if wanted.sort is not None:
        sort_name, sort_kind = schema.names[1], schema.kinds[1]
        selects = _sort_condition(wanted.sort, sort_kind, names, values)
        found = [(key, item) for key, item in found if selects(_plain(item[sort_name], sort_kind))]
    if source.get("ScanIndexForward") is False:
        found = list(reversed(found))
    return _page(table, schema, [item for _, item in found], source, filtered, projection, values, most)


def scan(
    table: Table, source: Mapping[str, Any], horizon: int, most: int = 0, moments: Moments | None = None
) -> dict[str, Any]:
    """Every item, page by page; arguments as of ``query``."""
    index = _index(table, source)
    schema = index.schema if index is not None else table.schema
    names: Mapping[str, str] = source.get("ExpressionAttributeNames") or {}
    values = stored_item(source.get("ExpressionAttributeValues") or {})
    filtered, projection = _filter(source), _projection(source)
    check_placeholders([part for part in (filtered, projection) if part is not None], names, values)
    if index is not None:
        index.known_at(horizon)
    items: Iterable[Item] = index.every() if index is not None else table.every()
    if index is None and not source.get("ConsistentRead"):
        if table.written > horizon:
            items = table.every_as_of(horizon)
    elif index is None and moments is not None and table.written > moments.begun:
        keys = [table.schema.key_of(item, of_item=True) for item in items]
        items = [item for key in keys if (item := table.get_at(key, moments)) is not None]
    if (segment := _segment(source)) is not None:
        items = (item for item in items if segment(item[schema.names[0]]))
    return _page(table, schema, list(items), source, filtered, projection, values, most)


def _segment(source: Mapping[str, Any]) -> Callable[[Value], bool] | None:
    """Test whether a partition belongs to the segment of a parallel scan; None: the scan is not parallel.

    A partition is in one segment as a whole, and in the same one at each scan. Source: the API reference of Scan.
    """
    segment, total = source.get("Segment"), source.get("TotalSegments")
    if segment is None and total is None:
        return None
    if segment is None or total is None:
        raise invalid("Both Segment and TotalSegments must be given for a parallel scan")
    if not 0 <= segment < total:
        raise invalid(f"The Segment parameter is zero-based and must be less than TotalSegments: {segment}, {total}")
    return lambda partition: crc32(repr(partition).encode()) % int(total) == segment


def _index(table: Table, source: Mapping[str, Any]) -> Index | None:
    name = source.get("IndexName")
    if name is None:
        return None
    if name not in table.indexes:
        raise invalid(f"The table does not have the specified index: {name}")
    if table.indexes[name].local:
        raise NotSimulatedError(f"{name} of {table.name} is a local secondary index, which is not simulated")
    return table.indexes[name]


def _filter(source: Mapping[str, Any]) -> Expression | None:
    text = source.get("FilterExpression")
    return None if text is None else condition_of(text, "FilterExpression")


def _page(
    table: Table,
    schema: KeySchema,
    items: list[Item],
    source: Mapping[str, Any],
    filtered: Expression | None,
    projection: Expression | None,
    values: Mapping[str, Value],
    most: int,
) -> dict[str, Any]:
    """Items from the start that was given, up to the limits of a page; the filter counts after them."""
    names: Mapping[str, str] = source.get("ExpressionAttributeNames") or {}
    if filtered is not None:
        check_types(filtered.typed, values)
    of_key = tuple(dict.fromkeys((*schema.names, *table.schema.names)))
    start = source.get("ExclusiveStartKey")
    if start:
        items = _behind(items, stored_item(start), of_key, source)
    limit = source.get("Limit")
    if limit is not None and limit < 1:
        raise invalid("1 validation error detected: Value at 'limit' must be greater than or equal to 1")
    if most:
        limit = min(limit or most, most)
    page: list[Item] = []
    size = 0
    last: Item | None = None
    for item in items:
        if limit is not None and len(page) == limit:
            break
        page.append(item)
        size += item_size(item)
        if size > MOST_PAGE_BYTES:
            break
    # DynamoDB does not look whether there is more behind a page that is full.
    if page and (len(page) < len(items) or len(page) == limit or size > MOST_PAGE_BYTES):
        last = {name: copied(page[-1][name]) for name in of_key}
    seen = [item for item in page if filtered is None or filtered.tree.holds(item, names, values)]
    answer: dict[str, Any] = {"Count": len(seen), "ScannedCount": len(page)}
    if source.get("Select") != "COUNT":
        answer["Items"] = [projected(item, source, projection) for item in seen]
    if last is not None:
        answer["LastEvaluatedKey"] = last
    return answer


def _behind(items: list[Item], start: Item, of_key: tuple[str, ...], source: Mapping[str, Any]) -> list[Item]:
    """Items behind a start, which need not be there any more."""
    if set(start) != set(of_key):
        raise invalid("The provided starting key is invalid")
    for at, item in enumerate(items):
        if all(item.get(name) == start[name] for name in of_key):
            return items[at + 1 :]
    # It was removed, or has moved, since: continue from its place.
    backward = source.get("ScanIndexForward") is False

    def place(item: Mapping[str, Value]) -> list[Any]:
        return [_plain(item[name], next(iter(item[name]))) for name in of_key]

    there = place(start)
    return [item for item in items if (place(item) < there if backward else place(item) > there)]


@lru_cache(maxsize=1024)
def _range_of(text: str, given: tuple[tuple[str, str], ...], schema: KeySchema) -> _Range:
    tree, names = condition_of(text, "KeyConditionExpression").tree, dict(given)
    parts = tree.parts if isinstance(tree, AllOf) else (tree,)
    if len(parts) > 2:
        raise invalid("Conditions can be of length 1 or 2 only")
    partition: Operand | None = None
    sort: Condition | None = None
    for part in parts:
        path = _key_path(part)
        name = str(path.resolved(names)[0])
        if name == schema.names[0]:
            if not isinstance(part, Comparison) or part.operator != "=":
                raise invalid("Query key condition not supported")
            partition = part.right
        elif len(schema.names) > 1 and name == schema.names[1]:
            sort = part
        else:
            raise invalid(f"Query condition missed key schema element: {schema.names[0]}")
    if partition is None:
        raise invalid(f"Query condition missed key schema element: {schema.names[0]}")
    return _Range(partition, sort)


def _key_path(part: Condition) -> Path:
    operand = (
        part.left
        if isinstance(part, Comparison)
        else part.operand
        if isinstance(part, Between)
        else part.operands[0]
        if isinstance(part, Function) and part.name == "begins_with"
        else None
    )
    if not isinstance(operand, Path):
        raise invalid("Invalid operator used in KeyConditionExpression")
    return operand


def _operand(operand: Any, kind: str, names: Mapping[str, str], values: Mapping[str, Value]) -> Any:
    value = operand.find({}, names, values)
    if value is None or kind not in value:
        raise invalid("One or more parameter values were invalid: Condition parameter type does not match schema type")
    return _plain(value, kind)


def _plain(value: Value, kind: str) -> Any:
    return number(value[kind]) if kind == "N" else value[kind]


def _sort_condition(
    part: Condition, kind: str, names: Mapping[str, str], values: Mapping[str, Value]
) -> Callable[[Any], bool]:
    if isinstance(part, Between):
        low, high = (_operand(end, kind, names, values) for end in (part.low, part.high))
        return lambda sort: bool(low <= sort <= high)
    if isinstance(part, Function):
        prefix = _operand(part.operands[1], kind, names, values)
        return lambda sort: bool(sort.startswith(prefix))
    if not isinstance(part, Comparison) or part.operator == "<>":
        raise invalid("Unsupported operator on KeyCondition: OperatorType: <>")
    bound, operator = _operand(part.right, kind, names, values), part.operator
    return {
        "=": lambda sort: bool(sort == bound),
        "<": lambda sort: bool(sort < bound),
        "<=": lambda sort: bool(sort <= bound),
        ">": lambda sort: bool(sort > bound),
        ">=": lambda sort: bool(sort >= bound),
    }[operator]
