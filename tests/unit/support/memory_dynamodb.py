"""The fake DynamoDB as a client of boto3, without a wire between: for histories by the thousand. One call at a time."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from botocore.exceptions import ClientError

from constructs_lib.testing.simulator.errors import ServiceError
from tests.unit.support.dynamodb import Database
from tests.unit.support.world import TABLES

Item = dict[str, Any]


class MemoryDynamoDB:
    """The calls of ``boto3.client("dynamodb")`` that the protocol is made of.

    Attributes:
        database: the tables.
    """

    def __init__(self) -> None:
        self.database = Database(TABLES)

    def stored(self, table: str, *key: str) -> Item | None:
        """The item itself, as it is stored, by its key's values."""
        return self.database.dynamodb.table(table).get(key)

    def item(self, table: str, *key: str) -> Item | None:
        """A copy of an item."""
        found = self.stored(table, *key)
        return None if found is None else {name: dict(value) for name, value in found.items()}

    def items(self, table: str) -> list[Item]:
        """Copies of all items, in the order of keys."""
        return self.database.items(table)

    def delete(self, table: str, *key: str) -> None:
        """Remove an item, as TTL does."""
        self.database.dynamodb.table(table).put(key, None, 0)

    def get_item(self, **arguments: Any) -> dict[str, Any]:
        """GetItem."""
        return self._call("GetItem", arguments)

    def batch_get_item(self, **arguments: Any) -> dict[str, Any]:
        """BatchGetItem."""
        return self._call("BatchGetItem", arguments)

    def query(self, **arguments: Any) -> dict[str, Any]:
        """Query."""
        return self._call("Query", arguments)

    def put_item(self, **arguments: Any) -> dict[str, Any]:
        """PutItem."""
        return self._call("PutItem", arguments)

    def update_item(self, **arguments: Any) -> dict[str, Any]:
        """UpdateItem."""
        return self._call("UpdateItem", arguments)

    def transact_write_items(self, **arguments: Any) -> dict[str, Any]:
        """TransactWriteItems: all or nothing."""
        return self._call("TransactWriteItems", arguments)

    def _call(self, operation: str, arguments: Mapping[str, Any]) -> dict[str, Any]:
        try:
            return self.database.call(operation, arguments)
        except ServiceError as error:
            response: Any = {"Error": {"Code": error.code, "Message": error.message}, **error.members}
            raise ClientError(response, operation) from None
