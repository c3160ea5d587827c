"""An in-memory DynamoDB that evaluates the very expressions which the runtime produces. One call at a time."""

from __future__ import annotations

import copy
from collections.abc import Mapping, Sequence
from typing import Any

from botocore.exceptions import ClientError

from tests.unit.support import clauses
from tests.unit.support.expressions import Item, check_placeholders, holds, updated

KEYS: dict[str, tuple[str, ...]] = {
    "requests": ("id",),
    "log": ("saga_id", "step"),
    "ledger": ("pk", "sk"),
    "tokens": ("id",),
}
"""Primary key attributes by table."""


class MemoryDynamoDB:
    """The calls of ``boto3.client("dynamodb")`` that the protocol is made of."""

    def __init__(self) -> None:
        self.tables: dict[str, dict[tuple[str, ...], Item]] = {name: {} for name in KEYS}

    def item(self, table: str, *key: str) -> Item | None:
        """An item by its key's values."""
        found = self.tables[table].get(key)
        return None if found is None else _copied(found)

    def items(self, table: str) -> list[Item]:
        """All items."""
        return copy.deepcopy(list(self.tables[table].values()))

    def delete(self, table: str, *key: str) -> None:
        """Remove an item, as TTL does."""
        self.tables[table].pop(key, None)

    def get_item(self, *, TableName: str, Key: Mapping[str, Any], **_: Any) -> dict[str, Any]:  # noqa: N803  # AWS's names
        """GetItem; projections are not applied."""
        found = self.item(TableName, *_key_of(TableName, Key))
        return {} if found is None else {"Item": found}

    def batch_get_item(self, *, RequestItems: Mapping[str, Any]) -> dict[str, Any]:  # noqa: N803 - AWS's own names
        """BatchGetItem, in one answer."""
        found = {
            table: [item for key in asked["Keys"] if (item := self.item(table, *_key_of(table, key))) is not None]
            for table, asked in RequestItems.items()
        }
        return {"Responses": found}

    def query(self, **arguments: Any) -> dict[str, Any]:
        """Query of an index, in one page; items as the table has them."""
        names, values = arguments["ExpressionAttributeNames"], arguments["ExpressionAttributeValues"]
        condition = arguments["KeyConditionExpression"]
        indexed = [item for item in self.items(arguments["TableName"]) if set(names.values()) <= set(item)]
        return {"Items": [item for item in indexed if holds(condition, item, names, values)]}

    def put_item(self, **arguments: Any) -> dict[str, Any]:
        """PutItem."""
        refused = self._apply([{"Put": arguments}])
        return _answer("PutItem", arguments, refused)

    def update_item(self, **arguments: Any) -> dict[str, Any]:
        """UpdateItem."""
        refused = self._apply([{"Update": arguments}])
        return _answer("UpdateItem", arguments, refused)

    # AWS's own names.
    def transact_write_items(self, *, TransactItems: Sequence[Mapping[str, Any]]) -> dict[str, Any]:  # noqa: N803
        """TransactWriteItems: all or nothing."""
        refused = self._apply(TransactItems)
        if not any(refused):
            return {}
        response: Any = {
            "Error": {"Code": "TransactionCanceledException", "Message": "cancelled"},
            "CancellationReasons": [reason or {"Code": "None"} for reason in refused],
        }
        raise ClientError(response, "TransactWriteItems")

    def _find(self, kind: str, request: Mapping[str, Any]) -> Item | None:
        table = request["TableName"]
        return self.tables[table].get(_key_of(table, request["Item" if kind == "Put" else "Key"]))

    def _apply(self, entries: Sequence[Mapping[str, Any]]) -> list[dict[str, Any] | None]:
        after: list[tuple[str, tuple[str, ...], Item]] = []
        refused: list[dict[str, Any] | None] = []
        named: set[tuple[str, tuple[str, ...]]] = set()
        for entry in clauses.passing(entries, self._find):
            ((kind, arguments),) = entry.items()
            table = arguments["TableName"]
            key = _key_of(table, arguments["Item"] if kind == "Put" else arguments["Key"])
            assert (table, key) not in named, "a transaction names an item twice"
            named.add((table, key))
            before = self.tables[table].get(key)
            names = arguments.get("ExpressionAttributeNames", {})
            values = arguments.get("ExpressionAttributeValues", {})
            condition, update = arguments.get("ConditionExpression"), arguments.get("UpdateExpression")
            check_placeholders([condition, update], names, values)
            if holds(condition, before, names, values):
                refused.append(None)
            else:
                wants_item = arguments.get("ReturnValuesOnConditionCheckFailure") == "ALL_OLD"
                refused.append(
                    {"Code": "ConditionalCheckFailed"}
                    | ({"Item": _copied(before)} if wants_item and before is not None else {})
                )
            base = before or dict(arguments.get("Key", {}))
            if kind == "ConditionCheck":
                continue
            after.append((table, key, arguments["Item"] if kind == "Put" else updated(update, base, names, values)))
        if not any(refused):
            for table, key, item in after:
                self.tables[table][key] = _copied(item)
        return refused


def _copied(item: Mapping[str, Any]) -> Item:
    """Numbers and texts are all that is stored."""
    return {name: dict(value) for name, value in item.items()}


def _key_of(table: str, item: Mapping[str, Any]) -> tuple[str, ...]:
    return tuple(str(item[name]["S"]) for name in KEYS[table])


def _answer(operation: str, arguments: Mapping[str, Any], refused: list[dict[str, Any] | None]) -> dict[str, Any]:
    reason = refused[0]
    if reason is None:
        return {}
    response: Any = {"Error": {"Code": "ConditionalCheckFailedException", "Message": "refused"}}
    if "Item" in reason:
        response["Item"] = reason["Item"]
    raise ClientError(response, operation)
