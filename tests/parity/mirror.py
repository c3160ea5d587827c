"""DynamoDB Local receives each request to a fake DynamoDB, too, and has to give the same response."""

from __future__ import annotations

import functools
import http.client
import itertools
import json
import os
import weakref
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from decimal import Decimal
from typing import Any, Final

from constructs_lib.testing.simulator.aws.dynamodb import DynamoDB, Later
from constructs_lib.testing.simulator.aws.dynamodb.tables import Key, Table
from constructs_lib.testing.simulator.aws.dynamodb.values import Item
from constructs_lib.testing.simulator.errors import ServiceError

from .differences import known

ENDPOINT: Final = "CDK_SAGAS_DYNAMODB_LOCAL"
"""Environment variable with the port of DynamoDB Local on this machine."""
_HEADERS: Final = {
    "Content-Type": "application/x-amz-json-1.0",
    # DynamoDB Local checks no signature, and has a database for each access key: one for this process.
    "Authorization": f"AWS4-HMAC-SHA256 Credential=parity{os.getpid()}/20260101/eu-central-1/dynamodb/aws4_request, "
    "SignedHeaders=host, Signature=0",
}
_SCHEMA: Final = ("KeySchema", "AttributeDefinitions", "GlobalSecondaryIndexes", "LocalSecondaryIndexes")
_OWN: Final = frozenset({"ResponseMetadata", "ConsumedCapacity", "Message", "message", "__type"})
"""Members that are not compared: words, and what a request costs."""


class Server:
    """DynamoDB Local: its tables, which are emptied and used again when their fake is gone.

    Args:
        port: where it listens.

    Attributes:
        compared: number of requests, by operation.
        left_out: number of requests that were not compared, by reason.
    """

    def __init__(self, port: int) -> None:
        self.compared: Counter[str] = Counter()
        self.left_out: Counter[str] = Counter()
        self._port = port
        self._connection = http.client.HTTPConnection("127.0.0.1", port, timeout=60)
        self._free: dict[str, list[str]] = defaultdict(list)
        self._numbers = itertools.count()

    def ask(self, operation: str, body: Mapping[str, Any]) -> tuple[str | None, dict[str, Any]]:
        """Send a request: the error's code, if it is refused, and the response."""
        self._connection.request(
            "POST", "/", json.dumps(body), {**_HEADERS, "X-Amz-Target": f"DynamoDB_20120810.{operation}"}
        )
        response = self._connection.getresponse()
        answer: dict[str, Any] = json.loads(response.read())
        return (None if response.status == 200 else str(answer["__type"]).rpartition("#")[2]), answer

    def report(self) -> list[str]:
        """Counts of what was compared, and of what was not."""
        operations = ", ".join(f"{count:,} {operation}" for operation, count in self.compared.most_common())
        return [
            f"DynamoDB Local: {self.compared.total():,} requests compared: {operations}",
            *(f"DynamoDB Local: {count:,} requests not compared: {reason}" for reason, count in self.left_out.items()),
        ]

    def take(self, request: Mapping[str, Any]) -> tuple[str, str]:
        """An empty table of a schema: the schema, and the table's name."""
        schema = json.dumps({name: request[name] for name in _SCHEMA if name in request}, sort_keys=True)
        if self._free[schema]:
            name = self._free[schema].pop()
            self._empty(schema, name)
            return schema, name
        name = f"table-{next(self._numbers)}"
        refused, answer = self.ask(
            "CreateTable", {**json.loads(schema), "TableName": name, "BillingMode": "PAY_PER_REQUEST"}
        )
        assert refused is None, answer
        return schema, name

    def give_back(self, schema: str, name: str) -> None:
        """Use a table again for the next fake that needs one."""
        self._free[schema].append(name)

    def _empty(self, schema: str, name: str) -> None:
        keys = [part["AttributeName"] for part in json.loads(schema)["KeySchema"]]
        while items := self.ask("Scan", {"TableName": name})[1]["Items"]:
            for item in items:
                self.ask("DeleteItem", {"TableName": name, "Key": {key: item[key] for key in keys}})


@functools.cache
def server() -> Server | None:
    """DynamoDB Local, if it runs."""
    return Server(int(os.environ[ENDPOINT])) if ENDPOINT in os.environ else None


def mirror_of(fake: DynamoDB) -> Mirror | None:
    """The tables of a fake in DynamoDB Local; None: it does not run."""
    local = server()
    return None if local is None else Mirror(fake, local)


class Mirror:
    """The tables of one fake DynamoDB, in DynamoDB Local.

    Args:
        fake: the fake.
        server: DynamoDB Local.
    """

    def __init__(self, fake: DynamoDB, server: Server) -> None:
        self._fake = fake
        self._server = server
        self._requests: dict[str, Mapping[str, Any]] = {}
        self._remote: dict[str, tuple[str, str]] = {}
        self._changed: dict[str, dict[Key, Item | None]] = defaultdict(dict)
        self._working = False
        weakref.finalize(self, _give_back, server, self._remote)

    def create(self, request: Mapping[str, Any]) -> None:
        """Know a table, which is created with its first request."""
        self._requests[request["TableName"]] = request
        self.listen(request["TableName"])

    def listen(self, name: str) -> None:
        """Hear of writes of the fake's table that no request makes."""
        table = self._fake.tables[name]
        table.listeners.append(self._heard)
        for item in table.every():
            self._changed[name][table.schema.key_of(item, of_item=True)] = item

    def renew(self, name: str) -> None:
        """Begin again with a table that the fake has replaced by another one."""
        self._drop(name)
        self.listen(name)

    def forget(self, name: str) -> None:
        """Compare nothing of a table any more: an index is gone, or all of it."""
        self._drop(name)
        self._requests.pop(name, None)

    def _drop(self, name: str) -> None:
        self._changed.pop(name, None)
        if name in self._remote:
            self._server.give_back(*self._remote.pop(name))

    def _heard(self, table: Table, key: Key, item: Item | None) -> None:
        if not self._working:
            self._changed[table.name][key] = item

    def compare(self, operation: str, body: Mapping[str, Any]) -> Any:
        """Send a request to both; the fake's response.

        Raises:
            ServiceError: as the fake refuses it.
            AssertionError: DynamoDB Local responds differently.
        """
        known_tables = {name for name in _tables(body) if name in self._fake.tables}
        if operation == "DescribeTable" or not self._requests.keys() >= known_tables:
            self._server.left_out["of tables, not of items"] += 1
            return self._asked(operation, body)
        for name in known_tables:
            self._write_changes(name)
        self._working = True
        try:
            theirs = self._server.ask(operation, self._renamed(body))
            refused: str | None = None
            error: ServiceError | None = None
            ours: Mapping[str, Any] = {}
            try:
                ours = self._asked(operation, body)
            except ServiceError as service_error:
                refused, ours, error = service_error.code, service_error.members, service_error
        finally:
            self._working = False
        reason = known(operation, body, (refused, ours), theirs)
        if reason is not None:
            self._server.left_out[reason] += 1
        else:
            self._server.compared[operation] += 1
            mine, local = _comparable(operation, body, refused, ours), _comparable(operation, body, *theirs)
            assert mine == self._named_back(local), (
                f"{operation} {json.dumps(body)}: the fake responded {mine}, DynamoDB Local {local}, {theirs[1]}"
            )
        if error is not None:
            raise error
        return ours

    def _asked(self, operation: str, body: Mapping[str, Any]) -> dict[str, Any]:
        answer = self._fake.call(operation, body)
        assert not isinstance(answer, Later)
        return answer

    def _write_changes(self, name: str) -> None:
        table, remote = self._fake.table(name), self._name(name)
        for key, item in self._changed.pop(table.name, {}).items():
            if item is not None:
                refused, answer = self._server.ask("PutItem", {"TableName": remote, "Item": item})
            else:
                found = {
                    attribute: {kind: value if kind == "S" else f"{value}"}
                    for attribute, kind, value in zip(table.schema.names, table.schema.kinds, key, strict=True)
                }
                refused, answer = self._server.ask("DeleteItem", {"TableName": remote, "Key": found})
            assert refused is None, answer

    def _name(self, name: str) -> str:
        if name not in self._fake.tables:
            return f"not-{name}"
        if name not in self._remote:
            self._remote[name] = self._server.take(self._requests[name])
        return self._remote[name][1]

    def _renamed(self, body: Mapping[str, Any]) -> dict[str, Any]:
        renamed: dict[str, Any] = {}
        for member, value in body.items():
            if member == "TableName":
                renamed[member] = self._name(value)
            elif member == "TransactItems":
                renamed[member] = [{kind: self._renamed(request) for kind, request in entry.items()} for entry in value]
            elif member == "RequestItems":
                renamed[member] = {self._name(name): asked for name, asked in value.items()}
            else:
                renamed[member] = value
        return renamed

    def _named_back(self, compared: Any) -> Any:
        text = json.dumps(compared)
        for name, (_, remote) in self._remote.items():
            text = text.replace(f'"{remote}"', json.dumps(name))
        return json.loads(text)


def _give_back(server: Server, remote: dict[str, tuple[str, str]]) -> None:
    for schema, name in remote.values():
        server.give_back(schema, name)


def _tables(body: Mapping[str, Any]) -> Iterable[str]:
    if "TableName" in body:
        yield str(body["TableName"])
    for entry in body.get("TransactItems", ()):
        yield from (str(request["TableName"]) for request in entry.values())
    yield from body.get("RequestItems", ())


def _comparable(operation: str, body: Mapping[str, Any], refused: str | None, answer: Mapping[str, Any]) -> Any:
    """A response in which what has no order has one, and words are left out."""
    members = {name: _sorted(value) for name, value in answer.items() if name not in _OWN and value not in ({}, [])}
    if "CancellationReasons" in members:
        members["CancellationReasons"] = [
            {name: value for name, value in reason.items() if name != "Message"}
            for reason in members["CancellationReasons"]
        ]
    unordered = operation == "Scan" or "IndexName" in body
    if unordered and isinstance(members.get("Items"), list):
        members["Items"] = _in_order(members["Items"])
    if "Responses" in members and isinstance(members["Responses"], dict):
        members["Responses"] = {name: _in_order(items) for name, items in members["Responses"].items() if items}
    return json.loads(json.dumps([refused, {name: value for name, value in members.items() if value}]))


def _in_order(items: Sequence[Any]) -> list[Any]:
    return sorted(items, key=lambda item: json.dumps(item, sort_keys=True))


def _sorted(value: Any) -> Any:
    """A value in which sets have an order, and numbers no zeros at their ends, which AWS removes."""
    match value:
        case {"N": str(number)} if len(value) == 1:
            return {"N": str(Decimal(number).normalize())}
        case {"NS": [*numbers]} if len(value) == 1:
            return {"NS": sorted(str(Decimal(number).normalize()) for number in numbers)}
        case {"SS": [*members]} | {"BS": [*members]} if len(value) == 1:
            return {name: sorted(members) for name in value}
    if isinstance(value, Mapping):
        return {name: _sorted(part) for name, part in sorted(value.items())}
    return [_sorted(part) for part in value] if isinstance(value, list | tuple) else value
