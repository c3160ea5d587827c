"""DynamoDB behind the wire of unit tests: the simulator's, which is compared with moto in ``tests/simulator``."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from botocore.awsrequest import AWSPreparedRequest, AWSResponse

from constructs_lib.testing.simulator.aws.dynamodb.service import DynamoDB, Later
from constructs_lib.testing.simulator.aws.dynamodb.tables import Index, KeySchema, Table
from constructs_lib.testing.simulator.aws.dynamodb.values import Item, item_size
from constructs_lib.testing.simulator.errors import ServiceError
from tests.parity.mirror import mirror_of
from tests.unit.support import clauses
from tests.unit.support.wire import Answer, body_of, error_response

_ARN = "arn:aws:dynamodb:eu-central-1:123456789012:table/"
WRITES = {"PutItem": "Put", "UpdateItem": "Update", "DeleteItem": "Delete"}
Tables = dict[str, list[tuple[Any, Any]]]
"""Keys and items by table."""


class Database:
    """Every table of a test. A write is seen by every later read, and by every later query of an index.

    Args:
        tables: requests of CreateTable.

    Attributes:
        dynamodb: the tables.
    """

    def __init__(self, tables: Iterable[Mapping[str, Any]] = ()) -> None:
        self.dynamodb = DynamoDB(clock=lambda: 0)
        self._mirror = mirror_of(self.dynamodb)
        self._held: dict[str, tuple[Table, int, list[tuple[Any, Any]]]] = {}
        for request in tables:
            self.call("CreateTable", request)

    def answer(self, operation: str, request: AWSPreparedRequest) -> AWSResponse:
        """Answer a request."""
        try:
            return Answer(request, self.call(operation, body_of(request)))
        except ServiceError as error:
            return error_response(request, error.code, message=error.message, **error.members)

    def call(self, operation: str, body: Mapping[str, Any]) -> dict[str, Any]:
        """Do what a request asks for.

        Raises:
            ServiceError: as DynamoDB refuses it.
        """
        if operation == "CreateTable":
            self.dynamodb.tables[body["TableName"]] = _table(body)
            if self._mirror is not None:
                self._mirror.create(body)
            return {"TableDescription": {"TableName": body["TableName"]}}
        if operation == "DeleteTable":
            self._forget(self.dynamodb.tables.pop(self.dynamodb.table(body["TableName"]).name))
            return {}
        if operation == "UpdateTable":
            for update in body["GlobalSecondaryIndexUpdates"]:
                del self.dynamodb.table(body["TableName"]).indexes[update["Delete"]["IndexName"]]
            self._forget(self.dynamodb.table(body["TableName"]))
            return {}
        if operation in WRITES:
            (written,) = clauses.passing([{WRITES[operation]: body}], self._find)
            ((_, body),) = written.items()
        elif operation == "TransactWriteItems":
            body = {**body, "TransactItems": clauses.passing(body["TransactItems"], self._find)}
        asked = self.dynamodb.call if self._mirror is None else self._mirror.compare
        answer = asked(operation, body)
        assert not isinstance(answer, Later)
        if body.get("ReturnConsumedCapacity") == "TOTAL":
            answer["ConsumedCapacity"] = {"CapacityUnits": self._units(operation, body)}
        if operation == "DescribeTable":
            sizes = [item_size(item) for item in self.dynamodb.table(body["TableName"]).every()]
            answer["Table"] |= {"ItemCount": len(sizes), "TableSizeBytes": sum(sizes)}
        return answer

    def _forget(self, table: Table) -> None:
        if self._mirror is not None:
            self._mirror.forget(table.name)

    def _find(self, kind: str, request: Mapping[str, Any]) -> Item | None:
        table = self.dynamodb.table(request["TableName"])
        return table.get(table.schema.key_of(request["Item" if kind == "Put" else "Key"], of_item=kind == "Put"))

    def _units(self, operation: str, body: Mapping[str, Any]) -> float:
        """Read units of a scan that is not consistent: half a unit for each 4 KB of what it passes by."""
        assert operation == "Scan", f"units of {operation} are not counted here"
        kept = ("TableName", "IndexName", "Segment", "TotalSegments", "Limit", "ExclusiveStartKey")
        page: Any = self.dynamodb.call(operation, {name: body[name] for name in kept if name in body})
        return math.ceil(sum(map(item_size, page["Items"])) / 4_096) / 2

    def items(self, table: str) -> list[dict[str, Any]]:
        """All items of a table, seen without a call."""
        return self.dynamodb.items(table)

    def take(self) -> Tables:
        """Keys and items of every table."""
        return {name: self._held_by(table) for name, table in self.dynamodb.tables.items()}

    def _held_by(self, table: Table) -> list[tuple[Any, Any]]:
        """Keys and items: the same list until the next write."""
        known, writes, held = self._held.get(table.name, (None, 0, []))
        if known is not table or writes != table.writes:
            held = list(_stored(table))
            self._held[table.name] = table, table.writes, held
        return held

    def put_back(self, taken: Tables) -> None:
        """Hold again what was taken. Items are replaced, never changed."""
        for name, held in taken.items():
            before = self.dynamodb.tables[name]
            if self._held_by(before) is held:
                continue
            table = self.dynamodb.tables[name] = _empty(before)
            for key, item in held:
                table.put(key, item, 0)
            self._held[name] = table, table.writes, held
            if self._mirror is not None:
                self._mirror.renew(name)


def _stored(table: Table) -> Iterator[tuple[Any, Any]]:
    for item in table.every():
        yield table.schema.key_of(item, of_item=True), item


def _empty(table: Table) -> Table:
    indexes = {
        name: Index(name=name, schema=index.schema, projected=index.projected) for name, index in table.indexes.items()
    }
    return Table(name=table.name, arn=table.arn, schema=table.schema, indexes=indexes)


def _table(body: Mapping[str, Any]) -> Table:
    kinds = {said["AttributeName"]: said["AttributeType"] for said in body["AttributeDefinitions"]}

    def schema_of(keys: Any) -> KeySchema:
        names = tuple(key["AttributeName"] for key in keys)
        return KeySchema(names=names, kinds=tuple(kinds[name] for name in names))

    schema = schema_of(body["KeySchema"])
    indexes = {}
    for said in body.get("GlobalSecondaryIndexes", ()):
        key, projection = schema_of(said["KeySchema"]), said["Projection"]
        more = projection.get("NonKeyAttributes", ())
        projected = None if projection["ProjectionType"] == "ALL" else frozenset({*schema.names, *key.names, *more})
        indexes[said["IndexName"]] = Index(name=said["IndexName"], schema=key, projected=projected)
    return Table(name=body["TableName"], arn=f"{_ARN}{body['TableName']}", schema=schema, indexes=indexes)
