"""The simulator's DynamoDB compared with moto: the same random requests to both, and the same responses.

Known errors and omissions of moto are not drawn: ``docs/explanation/simulation.md`` lists them.
"""

from __future__ import annotations

from collections.abc import Iterator
from random import Random
from typing import Any, Final

import boto3
import pytest
from botocore.exceptions import ClientError
from moto import mock_aws

from constructs_lib.testing.simulator.aws.dynamodb import DynamoDB, Index, KeySchema, Table
from constructs_lib.testing.simulator.errors import ServiceError

HASHES: Final = ("p", "q")
RANGES: Final = ("1", "2", "3")
ATTRIBUTES: Final = ("a", "b", "n", "m", "tags", "list", "shard", "due")
RUNS: Final = 8
REQUESTS: Final = 60


TABLE: Final[dict[str, Any]] = {
    "TableName": "t",
    "BillingMode": "PAY_PER_REQUEST",
    "KeySchema": [{"AttributeName": "h", "KeyType": "HASH"}, {"AttributeName": "r", "KeyType": "RANGE"}],
    "AttributeDefinitions": [
        {"AttributeName": "h", "AttributeType": "S"},
        {"AttributeName": "r", "AttributeType": "N"},
        {"AttributeName": "shard", "AttributeType": "S"},
        {"AttributeName": "due", "AttributeType": "N"},
    ],
    "GlobalSecondaryIndexes": [
        {
            "IndexName": "due",
            "KeySchema": [
                {"AttributeName": "shard", "KeyType": "HASH"},
                {"AttributeName": "due", "KeyType": "RANGE"},
            ],
            "Projection": {"ProjectionType": "ALL"},
        }
    ],
}
"""The table of the requests, as it is created."""


class Requests:
    """Draws requests.

    Attributes:
        returns: what an update returns.
        conditions: kinds of conditions.
    """

    returns: tuple[str, ...] = ("NONE", "ALL_OLD", "ALL_NEW")
    conditions: tuple[str, ...] = (
        "=",
        "<>",
        "<",
        "exists",
        "missing",
        "between",
        "in",
        "begins",
        "contains",
        "type",
    )

    def __init__(self, seed: int) -> None:
        self._random = Random(seed)
        self._one = self._random.choice

    def request(self) -> tuple[str, dict[str, Any]]:
        """An operation and its parameters."""
        kind = self._one(("put", "put", "update", "update", "update", "delete", "get", "query", "transact", "transact"))
        match kind:
            case "put":
                return "PutItem", self._with_condition({"TableName": "t", "Item": self._item()}, ("NONE", "ALL_OLD"))
            case "delete":
                return "DeleteItem", self._with_condition({"TableName": "t", "Key": self._key()}, ("NONE", "ALL_OLD"))
            case "update":
                return "UpdateItem", self._with_condition(self._update(), self.returns)
            case "get":
                return "GetItem", {"TableName": "t", "Key": self._key(), "ConsistentRead": True, **self._projection()}
            case "query":
                return "Query", self._query()
        return "TransactWriteItems", {"TransactItems": self._entries()}

    def _key(self) -> dict[str, Any]:
        return {"h": {"S": self._one(HASHES)}, "r": {"N": self._one(RANGES)}}

    def _item(self) -> dict[str, Any]:
        item = self._key()
        for name in ATTRIBUTES:
            if self._random.random() < 0.6:
                item[name] = self._value(name)
        return item

    def _value(self, name: str) -> dict[str, Any]:
        match name:
            case "n" | "due":
                return {"N": self._one(("0", "1", "-3", "2.5", "10", "100"))}
            case "m":
                return {"M": {"x": {"S": self._one("uv")}, "y": {"N": self._one("12")}}}
            case "tags":
                return {"SS": self._one((["x"], ["x", "y"], ["y", "z"]))}
            case "list":
                return {"L": [{"S": self._one("uv")}, {"N": "1"}]}
        return {"S": self._one(("u", "v", "uv"))}

    def _with_condition(self, request: dict[str, Any], returns: tuple[str, ...]) -> dict[str, Any]:
        if self._random.random() < 0.7:
            names = request.setdefault("ExpressionAttributeNames", {})
            values = request.setdefault("ExpressionAttributeValues", {})
            request["ConditionExpression"] = self._condition(names, values, depth=2)
            for member in ("ExpressionAttributeNames", "ExpressionAttributeValues"):
                if not request[member]:
                    del request[member]
            request["ReturnValuesOnConditionCheckFailure"] = self._one(("NONE", "ALL_OLD"))
        if returns:
            request["ReturnValues"] = self._one(returns)
        return request

    def _condition(self, names: dict[str, str], values: dict[str, Any], depth: int) -> str:
        if depth and self._random.random() < 0.5:
            left, right = (self._condition(names, values, depth - 1) for _ in range(2))
            return f"({left}) {self._one(('AND', 'OR'))} ({right})"
        if depth and self._random.random() < 0.2:
            return f"NOT ({self._condition(names, values, 0)})"
        name = self._one(("a", "b", "n", "tags", "due", "h"))
        path = self._named(name, names)
        match self._one(self.conditions):
            case "size":
                return f"size({path}) {self._one(('>', '<', '='))} {self._valued({'N': '2'}, values)}"
            case "exists":
                return f"attribute_exists({path})"
            case "missing":
                return f"attribute_not_exists({path})"
            case "between" if name in ("n", "due"):
                low, high = self._valued({"N": "0"}, values), self._valued({"N": "10"}, values)
                return f"{path} BETWEEN {low} AND {high}"
            case "in":
                return f"{path} IN ({self._valued(self._value(name), values)}, {self._valued({'S': 'u'}, values)})"
            case "begins":
                return f"begins_with({path}, {self._valued({'S': 'u'}, values)})"
            case "contains":
                return f"contains({path}, {self._valued({'S': 'x'}, values)})"
            case "type":
                return f"attribute_type({path}, {self._valued({'S': self._one(('S', 'N', 'SS'))}, values)})"
            case "<" if name != "tags":
                return f"{path} < {self._valued(self._value(name), values)}"
            case "<>":
                return f"{path} <> {self._valued(self._value(name), values)}"
        return f"{path} = {self._valued(self._value(name), values)}"

    def _named(self, name: str, names: dict[str, str]) -> str:
        names[f"#{name}"] = name
        return f"#{name}"

    def _valued(self, value: dict[str, Any], values: dict[str, Any]) -> str:
        placeholder = f":v{len(values)}"
        values[placeholder] = value
        return placeholder

    def _update(self) -> dict[str, Any]:
        names: dict[str, str] = {}
        values: dict[str, Any] = {}
        sections: dict[str, list[str]] = {}
        for name in self._random.sample(ATTRIBUTES, self._random.choice((1, 2, 3))):
            path = self._named(name, names)
            match self._one(("set", "remove", "add", "missing", "copy")):
                case "remove":
                    sections.setdefault("REMOVE", []).append(path)
                case "add" if name in ("n", "due"):
                    sections.setdefault("ADD", []).append(f"{path} {self._valued({'N': '2'}, values)}")
                case "add" if name == "tags":
                    sections.setdefault("ADD", []).append(f"{path} {self._valued({'SS': ['z']}, values)}")
                case "missing":
                    text = f"{path} = if_not_exists({path}, {self._valued(self._value(name), values)})"
                    sections.setdefault("SET", []).append(text)
                case _:
                    sections.setdefault("SET", []).append(f"{path} = {self._valued(self._value(name), values)}")
        text = " ".join(f"{section} {', '.join(actions)}" for section, actions in sections.items())
        request = {"TableName": "t", "Key": self._key(), "UpdateExpression": text, "ExpressionAttributeNames": names}
        return request | ({"ExpressionAttributeValues": values} if values else {})

    def _projection(self) -> dict[str, Any]:
        if self._random.random() < 0.5:
            return {}
        names: dict[str, str] = {}
        paths = [self._named(name, names) for name in self._random.sample(("h", "a", "n", "m", "list"), 2)]
        return {"ProjectionExpression": ", ".join(paths), "ExpressionAttributeNames": names}

    def _query(self) -> dict[str, Any]:
        request: dict[str, Any] = {"TableName": "t"}
        if self._random.random() < 0.4:
            request["IndexName"] = "due"
            request["KeyConditionExpression"] = "#s = :s AND #d <= :d"
            request["ExpressionAttributeNames"] = {"#s": "shard", "#d": "due"}
            request["ExpressionAttributeValues"] = {":s": {"S": self._one(("u", "v"))}, ":d": {"N": "10"}}
        else:
            request["ConsistentRead"] = True
            request["KeyConditionExpression"] = f"h = :h AND r {self._one(('=', '<=', '>', '>='))} :r"
            request["ExpressionAttributeValues"] = {":h": {"S": self._one(HASHES)}, ":r": {"N": self._one(RANGES)}}
        if self._random.random() < 0.3:
            request["FilterExpression"] = "attribute_exists(a)"
        if self._random.random() < 0.3:
            request["ScanIndexForward"] = False
        if self._random.random() < 0.3:
            request["Select"] = "COUNT"
        return request

    def _entries(self) -> list[dict[str, Any]]:
        entries: list[dict[str, Any]] = []
        keys = set()
        for _ in range(self._random.choice((1, 2, 3))):
            kind = self._one(("Put", "Update", "Delete", "ConditionCheck"))
            if kind == "Put":
                request: dict[str, Any] = {"TableName": "t", "Item": self._item()}
            elif kind == "Update":
                request = self._update()
            else:
                request = {"TableName": "t", "Key": self._key()}
            held = request.get("Item") or request["Key"]
            if (key := (held["h"]["S"], held["r"]["N"])) in keys:
                continue
            keys.add(key)
            request = self._with_condition(request, ())
            if kind == "ConditionCheck" and "ConditionExpression" not in request:
                request["ConditionExpression"] = "attribute_exists(h)"
            entries.append({kind: request})
        return entries


@pytest.fixture
def client() -> Iterator[Any]:
    with mock_aws():
        found: Any = boto3.client("dynamodb", region_name="us-east-1")
        found.create_table(**TABLE)
        yield found


def _ours() -> DynamoDB:
    index = Index(name="due", schema=KeySchema(names=("shard", "due"), kinds=("S", "N")), projected=None)
    schema = KeySchema(names=("h", "r"), kinds=("S", "N"))
    db = DynamoDB(lambda: 1)
    db.tables["t"] = Table(name="t", arn="arn:t", schema=schema, indexes={"due": index})
    return db


def _asked_ours(db: DynamoDB, operation: str, request: dict[str, Any]) -> Any:
    try:
        return _comparable(db.call(operation, request))
    except ServiceError as error:
        return _error(error.code, error.members)


def _asked_theirs(client: Any, operation: str, request: dict[str, Any]) -> Any:
    try:
        answer = client._make_api_call(operation, request)
    except ClientError as error:
        return _error(error.response["Error"]["Code"], error.response)
    return _comparable({name: value for name, value in answer.items() if name != "ResponseMetadata"})


def _error(code: str, members: Any) -> Any:
    reasons = [(reason.get("Code"), _sorted(reason.get("Item"))) for reason in members.get("CancellationReasons", ())]
    return ("error", code, reasons, _sorted(members.get("Item")))


def _comparable(answer: Any) -> Any:
    members = {name: value for name, value in answer.items() if name != "ConsumedCapacity" and value != {}}
    if "Items" in members:
        members["Items"] = [_sorted(item) for item in members["Items"]]
    for name in ("Item", "Attributes"):
        if name in members:
            members[name] = _sorted(members[name])
    return members


def _sorted(value: Any) -> Any:
    """A value in which sets have an order."""
    if isinstance(value, dict):
        return {name: sorted(part) if name in ("SS", "NS") else _sorted(part) for name, part in sorted(value.items())}
    return [_sorted(part) for part in value] if isinstance(value, list) else value


@pytest.mark.parametrize("seed", range(RUNS))
def test_same_requests_have_the_same_responses(seed: int, client: Any) -> None:
    drawn, db = Requests(seed), _ours()
    for _ in range(REQUESTS):
        operation, request = drawn.request()
        ours = _asked_ours(db, operation, request)
        assert ours == _asked_theirs(client, operation, request), (operation, request)
    theirs = sorted(map(_sorted, client.scan(TableName="t")["Items"]), key=repr)
    assert sorted(map(_sorted, db.items("t")), key=repr) == theirs
