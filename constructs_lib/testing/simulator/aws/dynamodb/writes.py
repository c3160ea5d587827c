"""PutItem, UpdateItem and DeleteItem, and the same as parts of a transaction: decided first, written afterwards."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from constructs_lib.testing.simulator.aws.dynamodb.parsing import Expression, condition_of, update_of
from constructs_lib.testing.simulator.aws.dynamodb.tables import Key, Table
from constructs_lib.testing.simulator.aws.dynamodb.trees import Condition, Typed, check_types
from constructs_lib.testing.simulator.aws.dynamodb.updates import Update
from constructs_lib.testing.simulator.aws.dynamodb.values import (
    MOST_ITEM_BYTES,
    Item,
    Value,
    copied,
    copied_item,
    item_size,
    stored_item,
)
from constructs_lib.testing.simulator.errors import ServiceError, invalid

NO_ITEM: Final[Item] = {}
_REFUSED: Final = "The conditional request failed"
_RETURNED: Final = {
    "PutItem": ("NONE", "ALL_OLD"),
    "DeleteItem": ("NONE", "ALL_OLD"),
    "UpdateItem": ("NONE", "ALL_OLD", "UPDATED_OLD", "ALL_NEW", "UPDATED_NEW"),
}


@dataclass(slots=True)
class Write:
    """Write of a request, parsed but not decided.

    Attributes:
        kind: ``Put``, ``Update``, ``Delete`` or ``ConditionCheck``.
        table: where.
        key: which item.
        names, values: by placeholder.
        condition: its condition's tree; None: it has none.
        item: of a put: the item.
        update: of an update: its tree.
        returns_old: whether a refusal returns the item as it is.
        source: the request.
    """

    kind: str
    table: Table
    key: Key
    names: Mapping[str, str]
    values: Mapping[str, Value]
    condition: Condition | None
    item: Item | None
    update: Update | None
    returns_old: bool
    source: Mapping[str, Any]

    def is_met(self) -> bool:
        """Test whether its condition is true of the item as it is now."""
        if self.condition is None:
            return True
        return self.condition.holds(self.table.get(self.key) or NO_ITEM, self.names, self.values)

    def result(self) -> Item | None:
        """The item as it will be; None: there will be none.

        Raises:
            ServiceError: if the update cannot be applied, or the item gets too large.
        """
        if self.kind == "Put":
            return self.item
        found = self.table.get(self.key)
        if self.kind == "ConditionCheck":
            return found
        if self.update is None:
            return None
        before = (
            found if found is not None else {name: dict(self.source["Key"][name]) for name in self.table.schema.names}
        )
        after = self.update.applied(before, self.names, self.values, self.table.schema.names)
        check_item(self.table, after)
        return after

    def refusal(self) -> dict[str, Any]:
        """Members of the answer to a request whose condition is not met."""
        found = self.table.get(self.key)
        return {"Item": copied_item(found)} if self.returns_old and found is not None else {}


def understood(kind: str, table: Table, source: Mapping[str, Any], change: Any = None) -> Write:
    """Read a request.

    Args:
        kind: ``Put``, ``Update``, ``Delete`` or ``ConditionCheck``.
        table: its table.
        source: the request.
        change: makes another condition of a condition; None: it stays.

    Raises:
        ServiceError: as DynamoDB refuses it before it reads an item.
    """
    names: Mapping[str, str] = source.get("ExpressionAttributeNames") or {}
    given = source.get("ExpressionAttributeValues")
    values = stored_item(given) if given else {}
    condition = expression = None
    typed: tuple[Typed, ...] = ()
    used: list[Expression] = []
    if (text := source.get("ConditionExpression")) is not None:
        parsed = condition_of(text)
        used.append(parsed)
        condition, typed = parsed.tree, parsed.typed
    elif kind == "ConditionCheck":
        raise invalid("The expression can not be empty;")
    item = None
    if kind == "Put":
        item = stored_item(source["Item"])
        check_item(table, item)
        key = table.schema.key_of(item, of_item=True)
    else:
        key = table.schema.key_of(stored_item(source["Key"]), of_item=False)
        if (update := source.get("UpdateExpression")) is not None:
            parsed = update_of(update)
            used.append(parsed)
            expression = parsed.tree
        elif kind == "Update":
            expression = Update(())
    check_placeholders(used, names, values)
    if condition is not None:
        check_types(typed, values)
        if change is not None:
            condition = change(table, source["ConditionExpression"], condition)
    old = source.get("ReturnValuesOnConditionCheckFailure", "NONE")
    if old not in ("NONE", "ALL_OLD"):
        raise invalid(f"Return values set to invalid value: {old}")
    return Write(kind, table, key, names, values, condition, item, expression, old == "ALL_OLD", source)


def check_placeholders(used: list[Expression], names: Mapping[str, str], values: Mapping[str, Any]) -> None:
    """Refuse placeholders that are undefined, and definitions that nothing uses.

    Raises:
        ServiceError: naming them.
    """
    known_names: frozenset[str] = frozenset()
    known_values = known_names
    for expression in used:
        known_names |= expression.names
        known_values |= expression.values
    if known_names == names.keys() and known_values == values.keys():
        return
    for expression in used:
        expression.check_given("Expression", names, values)
    for given, known, what in ((names, known_names, "Names"), (values, known_values, "Values")):
        if unused := sorted(given.keys() - known):
            raise invalid(
                f"Value provided in ExpressionAttribute{what} unused in expressions: keys: {{{', '.join(unused)}}}"
            )


def check_item(table: Table, item: Item) -> None:
    """Refuse an item that cannot be stored.

    Raises:
        ServiceError: with the reason.
    """
    if item_size(item) > MOST_ITEM_BYTES:
        raise invalid("Item size has exceeded the maximum allowed size")
    for index in table.indexes.values():
        index.schema.check_index_key(item, index.name)


def write(operation: str, understood_write: Write, now: int) -> dict[str, Any]:
    """Do what one request asks for, or refuse it.

    Raises:
        ServiceError: ConditionalCheckFailedException, TransactionConflictException, or what else is wrong.
    """
    asked = understood_write
    asked.table.check_free(asked.key)
    wanted = asked.source.get("ReturnValues", "NONE")
    if wanted not in _RETURNED[operation]:
        raise invalid(f"Return values set to invalid value: {wanted}")
    if not asked.is_met():
        raise ServiceError("ConditionalCheckFailedException", _REFUSED, members=asked.refusal())
    before = asked.table.get(asked.key)
    after = asked.result()
    asked.table.put(asked.key, after, now)
    return _returned(wanted, asked, before, after)


def _returned(wanted: str, asked: Write, before: Item | None, after: Item | None) -> dict[str, Any]:
    if wanted == "NONE":
        return {}
    item = before if wanted.endswith("OLD") else after
    if item is None:
        return {}
    if wanted.startswith("UPDATED") and asked.update is not None:
        touched = asked.update.top_level(asked.names)
        found = {name: copied(item[name]) for name in touched if name in item}
        return {"Attributes": found} if found else {}
    return {"Attributes": copied_item(item)}


def reason_of(asked: Write, *, held: bool) -> dict[str, Any]:
    """A transaction's reason for one of its items; ``{"Code": "None"}``: it was not the reason."""
    if held:
        return {"Code": "TransactionConflict", "Message": "Transaction is ongoing for the item"}
    if not asked.is_met():
        return {"Code": "ConditionalCheckFailed", "Message": _REFUSED, **asked.refusal()}
    try:
        asked.result()
    except ServiceError as error:
        return {"Code": "ValidationError", "Message": error.message}
    return {"Code": "None"}
