"""Limits and refusals of DynamoDB: the fake refuses what DynamoDB Local refuses, by the same code."""

from __future__ import annotations

from contextlib import suppress
from typing import Any, Final

import pytest

from constructs_lib.testing.simulator.errors import ServiceError
from tests.parity.mirror import server
from tests.simulator.test_dynamodb_differential import TABLE
from tests.unit.support.dynamodb import Database

Request = tuple[str, dict[str, Any]]
KB: Final = 1_024


def key(number: int = 1, partition: str = "p") -> dict[str, Any]:
    return {"h": {"S": partition}, "r": {"N": str(number)}}


def put(number: int = 1, **attributes: Any) -> dict[str, Any]:
    return {"TableName": "t", "Item": {**key(number), **attributes}}


def transaction(*entries: dict[str, Any], **more: Any) -> Request:
    return "TransactWriteItems", {"TransactItems": list(entries), **more}


def update(text: str, number: int = 1, **values: Any) -> Request:
    request: dict[str, Any] = {"TableName": "t", "Key": key(number), "UpdateExpression": text}
    if values:
        request["ExpressionAttributeValues"] = {f":{name}": value for name, value in values.items()}
    return "UpdateItem", request


def batch(count: int, *, twice: bool = False) -> Request:
    keys = [key(number) for number in range(count)] + ([key(0)] if twice else [])
    return "BatchGetItem", {"RequestItems": {"t": {"Keys": keys, "ConsistentRead": True}}}


def nested(depth: int) -> dict[str, Any]:
    value: dict[str, Any] = {"S": "x"}
    for _ in range(depth):
        value = {"M": {"m": value}}
    return value


def condition(text: str, **values: Any) -> Request:
    request = put(a={"S": "u"}) | {"ConditionExpression": text}
    if values:
        request["ExpressionAttributeValues"] = {f":{name}": value for name, value in values.items()}
    return "PutItem", request


ITEM_BYTES: Final = 400 * KB
OVERHEAD: Final = len("hpr") + 2 + len("a")
"""Bytes of an item's key and of the name of its attribute: the number takes two."""

CASES: Final[dict[str, list[Request]]] = {
    "item of 400 KB": [("PutItem", put(a={"S": "x" * (ITEM_BYTES - OVERHEAD)}))],
    "item above 400 KB": [("PutItem", put(a={"S": "x" * (ITEM_BYTES - OVERHEAD + 1)}))],
    "item that an update makes too large": [
        ("PutItem", put(a={"S": "x" * 300_000})),
        update("SET b = :b", b={"S": "x" * 150_000}),
        ("GetItem", {"TableName": "t", "Key": key(), "ConsistentRead": True}),
    ],
    "transaction of 100": [transaction(*({"Put": put(number)} for number in range(100)))],
    "transaction of 101": [transaction(*({"Put": put(number)} for number in range(101)))],
    "transaction of none": [transaction()],
    "transaction of 4 MB and more": [transaction(*({"Put": put(n, a={"S": "x" * 390_000})} for n in range(11)))],
    "transaction with one item twice": [transaction({"Put": put()}, {"Delete": {"TableName": "t", "Key": key()}})],
    "transaction, two conditions fail": [
        ("PutItem", put(a={"S": "u"})),
        transaction(
            {"Put": put(2)},
            {
                "Put": {
                    **put(),
                    "ConditionExpression": "attribute_not_exists(h)",
                    "ReturnValuesOnConditionCheckFailure": "ALL_OLD",
                }
            },
            {"ConditionCheck": {"TableName": "t", "Key": key(3), "ConditionExpression": "attribute_exists(h)"}},
        ),
        ("GetItem", {"TableName": "t", "Key": key(2), "ConsistentRead": True}),
    ],
    "transaction, the same token again": [
        transaction({"Put": put(a={"S": "u"})}, ClientRequestToken="one"),
        ("DeleteItem", {"TableName": "t", "Key": key()}),
        transaction({"Put": put(a={"S": "u"})}, ClientRequestToken="one"),
        ("GetItem", {"TableName": "t", "Key": key(), "ConsistentRead": True}),
    ],
    "transaction, the token of another": [
        transaction({"Put": put(a={"S": "u"})}, ClientRequestToken="two"),
        transaction({"Put": put(a={"S": "v"})}, ClientRequestToken="two"),
    ],
    "transaction, an update of another type": [
        ("PutItem", put(a={"S": "u"})),
        transaction({"Update": update("ADD a :one", one={"N": "1"})[1]}, {"Put": put(2)}),
        ("GetItem", {"TableName": "t", "Key": key(2), "ConsistentRead": True}),
    ],
    "transaction, an item that becomes too large": [
        transaction({"Put": put(a={"S": "x" * (ITEM_BYTES + 1)})}, {"Put": put(2)}),
    ],
    "transaction, an unknown table": [transaction({"Put": {"TableName": "none", "Item": key()}})],
    "transaction, a reserved word": [transaction({"Update": update("SET status = :s", s={"S": "x"})[1]})],
    "batch of 100": [("PutItem", put(3)), batch(100)],
    "batch of 101": [batch(101)],
    "batch of none": [batch(0)],
    "batch with one key twice": [batch(2, twice=True)],
    "batch with another key": [("BatchGetItem", {"RequestItems": {"t": {"Keys": [{"h": {"S": "p"}}]}}})],
    "partition key of 2,048 bytes": [("PutItem", {"TableName": "t", "Item": key(partition="p" * 2_048)})],
    "partition key above 2,048 bytes": [("PutItem", {"TableName": "t", "Item": key(partition="p" * 2_049)})],
    "empty partition key": [("PutItem", {"TableName": "t", "Item": key(partition="")})],
    "empty text": [("PutItem", put(a={"S": ""}))],
    "empty set": [("PutItem", put(a={"SS": []}))],
    "set with a member twice": [("PutItem", put(a={"SS": ["x", "x"]}))],
    "key of another type": [("PutItem", {"TableName": "t", "Item": {"h": {"S": "p"}, "r": {"S": "1"}}})],
    "key without its sort key": [("GetItem", {"TableName": "t", "Key": {"h": {"S": "p"}}})],
    "key of an index that is of another type": [("PutItem", put(due={"S": "soon"}))],
    "empty key of an index": [("PutItem", put(shard={"S": ""}))],
    "number of 38 digits": [("PutItem", put(a={"N": "1" * 38}))],
    "number of 39 digits": [("PutItem", put(a={"N": "1" * 39}))],
    "number that is not one": [("PutItem", put(a={"N": "one"}))],
    "number with an exponent": [
        ("PutItem", put(a={"N": "12e3"})),
        ("GetItem", {"TableName": "t", "Key": key(), "ConsistentRead": True}),
    ],
    "number with zeros": [
        ("PutItem", put(a={"N": "0012.3400"})),
        ("GetItem", {"TableName": "t", "Key": key(), "ConsistentRead": True}),
    ],
    "numbers that are equal": [
        ("PutItem", put(a={"N": "1.0"})),
        ("PutItem", {**condition("a = :a", a={"N": "1"})[1]}),
    ],
    "number too large": [("PutItem", put(a={"N": "1e126"}))],
    "nested 31 deep": [("PutItem", put(a=nested(31)))],
    "nested 33 deep": [("PutItem", put(a=nested(33)))],
    "condition of 4,096 bytes": [condition(" OR ".join(["attribute_exists(h)"] * 178))],
    "condition above 4,096 bytes": [condition(" OR ".join(["attribute_exists(h)"] * 180))],
    "condition of 300 operators": [condition(" OR ".join(["a = b"] * 150))],
    "condition of 301 operators": [condition(" OR ".join(["a = b"] * 151))],
    "condition of 300 operators, with functions": [condition(" OR ".join(["size(a) = b"] * 100))],
    "condition of 302 operators, with functions": [condition(" OR ".join(["size(a) = b"] * 101))],
    "condition of 301 operators, with NOT": [condition(" OR ".join(["NOT a = b"] * 101))],
    "update of 300 attributes": [update(f"SET {', '.join(f'a{n} = :a' for n in range(300))}", a={"S": "u"})],
    "update of 301 attributes": [update(f"SET {', '.join(f'a{n} = :a' for n in range(301))}", a={"S": "u"})],
    "update of 151 sums": [update(f"SET {', '.join(f'a{n} = :a + :a' for n in range(151))}", a={"N": "1"})],
    "update that removes 301": [update(f"REMOVE {', '.join(f'a{n}' for n in range(301))}")],
    "update above 4,096 bytes": [update(f"REMOVE {', '.join(f'attribute{n}' for n in range(350))}")],
    "names that overlap in a projection": [
        ("PutItem", put(a=nested(2))),
        ("GetItem", {"TableName": "t", "Key": key(), "ProjectionExpression": "a.m, a"}),
    ],
    "condition with an unused value": [condition("attribute_exists(h)", a={"S": "x"})],
    "condition without its value": [condition("a = :a")],
    "condition of two types": [("PutItem", put(a={"S": "u"})), condition("a < :a", a={"N": "1"})],
    "condition on a part that is missing": [condition("a.b = :a", a={"S": "x"})],
    "condition with a reserved word": [condition("attribute_exists(status)")],
    "condition with an unknown function": [condition("attribute_present(h)")],
    "condition with brackets that are not needed": [condition("((attribute_not_exists(h)))")],
    "condition with IN of 100": [
        condition(f"a IN ({', '.join(f':v{n}' for n in range(100))})", **{f"v{n}": {"S": str(n)} for n in range(100)})
    ],
    "condition with IN of 101": [
        condition(f"a IN ({', '.join(f':v{n}' for n in range(101))})", **{f"v{n}": {"S": str(n)} for n in range(101)})
    ],
    "condition with BETWEEN the wrong way": [condition("a BETWEEN :b AND :a", a={"S": "a"}, b={"S": "b"})],
    "update of the key": [update("SET r = :r", r={"N": "2"})],
    "update of one path twice": [update("SET a = :a, a = :b", a={"S": "x"}, b={"S": "y"})],
    "update of a path and of a part of it": [update("SET a = :a, a.b = :b", a={"S": "x"}, b={"S": "y"})],
    "update of a part that is missing": [update("SET a.b = :b", b={"S": "y"})],
    "update that adds a text": [update("ADD a :a", a={"S": "x"})],
    "update that adds to a text": [("PutItem", put(a={"S": "u"})), update("ADD a :a", a={"N": "1"})],
    "update by an attribute that is missing": [update("SET a = b + :a", a={"N": "1"})],
    "update that removes what is missing": [update("REMOVE a")],
    "update of the last of a set": [("PutItem", put(a={"SS": ["x"]})), update("DELETE a :a", a={"SS": ["x"]})],
    "update of a list behind its end": [
        ("PutItem", put(a={"L": [{"S": "u"}]})),
        update("SET a[5] = :a", a={"S": "v"}),
        ("GetItem", {"TableName": "t", "Key": key(), "ConsistentRead": True}),
    ],
    "update without an expression": [("UpdateItem", {"TableName": "t", "Key": key()})],
    "update with an empty expression": [update("")],
    "query without its partition key": [
        (
            "Query",
            {
                "TableName": "t",
                "KeyConditionExpression": "r = :r",
                "ExpressionAttributeValues": {":r": {"N": "1"}},
            },
        )
    ],
    "query whose filter reads the key": [
        (
            "Query",
            {
                "TableName": "t",
                "KeyConditionExpression": "h = :h",
                "FilterExpression": "r > :r",
                "ExpressionAttributeValues": {":h": {"S": "p"}, ":r": {"N": "1"}},
            },
        )
    ],
    "consistent query of an index": [
        (
            "Query",
            {
                "TableName": "t",
                "IndexName": "due",
                "ConsistentRead": True,
                "KeyConditionExpression": "shard = :s",
                "ExpressionAttributeValues": {":s": {"S": "p"}},
            },
        )
    ],
    "query in two pages": [
        *(("PutItem", put(number)) for number in range(3)),
        *(
            (
                "Query",
                {
                    "TableName": "t",
                    "ConsistentRead": True,
                    "Limit": 2,
                    "KeyConditionExpression": "h = :h",
                    "ExpressionAttributeValues": {":h": {"S": "p"}},
                    **start,
                },
            )
            for start in ({}, {"ExclusiveStartKey": key(1)}, {"ExclusiveStartKey": key(2)})
        ),
    ],
    "query of more than 1 MB": [
        *(("PutItem", put(number, a={"S": "x" * 300_000})) for number in range(5)),
        (
            "Query",
            {
                "TableName": "t",
                "ConsistentRead": True,
                "KeyConditionExpression": "h = :h",
                "ExpressionAttributeValues": {":h": {"S": "p"}},
                "ProjectionExpression": "r",
            },
        ),
    ],
    "limit of none": [
        (
            "Query",
            {
                "TableName": "t",
                "Limit": 0,
                "KeyConditionExpression": "h = :h",
                "ExpressionAttributeValues": {":h": {"S": "p"}},
            },
        )
    ],
    "projection of a name that is not given": [
        ("GetItem", {"TableName": "t", "Key": key(), "ProjectionExpression": "#a"})
    ],
    "projection of one path twice": [("GetItem", {"TableName": "t", "Key": key(), "ProjectionExpression": "a, a"})],
    "unknown table": [("GetItem", {"TableName": "none", "Key": key()})],
}


@pytest.mark.parametrize("case", CASES)
def test_fake_responds_as_dynamodb_local(case: str) -> None:
    assert server() is not None, "run `make parity`, which runs DynamoDB Local"
    database = Database([TABLE])

    for operation, request in CASES[case]:
        with suppress(ServiceError):  # both refuse it
            database.call(operation, request)
