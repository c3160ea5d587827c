"""DynamoDB in memory, where no other emulator shows how it is: conflicts, tokens, refusals, indexes that are behind."""

from __future__ import annotations

from enum import StrEnum
from typing import Any

import pytest

from constructs_lib.testing.simulator.aws.dynamodb import (
    DynamoDB,
    Index,
    KeySchema,
    Later,
    Prompt,
    Table,
    clauses_of,
    without,
)
from constructs_lib.testing.simulator.aws.dynamodb.parsing import condition_of
from constructs_lib.testing.simulator.errors import NotSimulatedError, ServiceError


class _Slow(Prompt):
    """Transactions hold their items for a while; indexes are a second behind."""

    lag = 1_000_000

    def index_lag(self) -> int:
        return self.lag

    def commit_delay(self) -> int:
        return 5


class _Spread(Prompt):
    """Reads of several items read them at moments of a list, one after the other."""

    def __init__(self, *moments: int) -> None:
        self.moments = list(moments)

    def moment_between(self, sent: int, now: int) -> int:
        moment = self.moments.pop(0)
        assert sent <= moment <= now
        return moment


class _Clock:
    now = 10_000_000

    def __call__(self) -> int:
        return self.now


@pytest.fixture
def clock() -> _Clock:
    return _Clock()


@pytest.fixture
def db(clock: _Clock) -> DynamoDB:
    found = DynamoDB(clock)
    index = Index(name="due", schema=KeySchema(names=("shard", "due"), kinds=("S", "N")), projected=None)
    schema = KeySchema(names=("id",), kinds=("S",))
    found.tables["t"] = Table(name="t", arn="arn:t", schema=schema, indexes={"due": index})
    return found


def _key(name: str) -> dict[str, Any]:
    return {"id": {"S": name}}


def _put(name: str, **more: Any) -> dict[str, Any]:
    return {"Put": {"TableName": "t", "Item": _key(name), **more}}


def _codes(error: ServiceError) -> list[str]:
    return [reason["Code"] for reason in error.members["CancellationReasons"]]


def test_two_transactions_in_flight_on_one_item_conflict(db: DynamoDB) -> None:
    db.timing = _Slow()
    first = db.call("TransactWriteItems", {"TransactItems": [_put("a"), _put("b")]})
    assert isinstance(first, Later)
    with pytest.raises(ServiceError) as refused:
        db.call("TransactWriteItems", {"TransactItems": [_put("c"), _put("b")]})
    assert _codes(refused.value) == ["None", "TransactionConflict"]
    for operation, request in (
        ("PutItem", {"TableName": "t", "Item": _key("a")}),
        ("UpdateItem", {"TableName": "t", "Key": _key("a")}),
        ("DeleteItem", {"TableName": "t", "Key": _key("a")}),
    ):
        with pytest.raises(ServiceError, match="TransactionConflictException"):
            db.call(operation, request)
    with pytest.raises(ServiceError, match="TransactionCanceledException"):
        db.call("TransactGetItems", {"TransactItems": [{"Get": {"TableName": "t", "Key": _key("a")}}]})
    # What is read alone is read as it was.
    assert db.call("GetItem", {"TableName": "t", "Key": _key("a"), "ConsistentRead": True}) == {}
    first.finish()
    assert [item["id"]["S"] for item in db.items("t")] == ["a", "b"]
    db.call("PutItem", {"TableName": "t", "Item": _key("a")})


_READS: dict[str, tuple[str, dict[str, Any]]] = {
    "Query": (
        "rows",
        {
            "KeyConditionExpression": "saga = :saga",
            "ExpressionAttributeValues": {":saga": {"S": "s"}},
            "ConsistentRead": True,
        },
    ),
    "Scan": ("t", {"ConsistentRead": True}),
    "BatchGetItem": ("t", {}),
}


@pytest.mark.parametrize("operation", _READS)
def test_a_read_of_several_items_may_see_a_part_of_a_transaction(db: DynamoDB, clock: _Clock, operation: str) -> None:
    """Each item as it was committed, at some moment since the read was sent."""
    name, asked = _READS[operation]
    schema = KeySchema(names=("saga", "id"), kinds=("S", "S"))
    db.tables["rows"] = Table(name="rows", arn="arn:rows", schema=schema, indexes={})
    keys = [{**_key(one), **({"saga": {"S": "s"}} if name == "rows" else {})} for one in ("a", "b")]

    def write(number: str) -> None:
        puts = [{"Put": {"TableName": name, "Item": {**key, "n": {"N": number}}}} for key in keys]
        db.call("TransactWriteItems", {"TransactItems": puts})

    def seen(*moments: int, sent: int) -> list[str]:
        db.timing = _Spread(*moments)
        source = {"TableName": name, **asked}
        if operation == "BatchGetItem":
            source = {"RequestItems": {name: {"Keys": keys, "ConsistentRead": True}}}
        answer: Any = db.call(operation, source, sent)
        return [item["n"]["N"] for item in (answer["Items"] if "Items" in answer else answer["Responses"][name])]

    begun = clock.now
    write("1")
    clock.now += 10
    write("2")
    clock.now += 10

    assert seen(begun + 5, begun + 15, sent=begun + 5) == ["1", "2"]
    assert seen(begun + 15, begun + 5, sent=begun + 5) == ["2", "1"]
    assert seen(sent=begun + 10) == ["2", "2"]  # what was written before is seen


def test_a_token_commits_once(db: DynamoDB, clock: _Clock) -> None:
    update = {"TableName": "t", "Key": _key("a"), "UpdateExpression": "ADD n :one"}
    entries = [{"Update": {**update, "ExpressionAttributeValues": {":one": {"N": "1"}}}}]
    for _ in range(2):
        db.call("TransactWriteItems", {"TransactItems": entries, "ClientRequestToken": "token"})
    assert db.items("t")[0]["n"] == {"N": "1"}
    with pytest.raises(ServiceError, match="IdempotentParameterMismatchException"):
        db.call("TransactWriteItems", {"TransactItems": [_put("b")], "ClientRequestToken": "token"})
    clock.now += 11 * 60 * 1_000_000
    db.call("TransactWriteItems", {"TransactItems": entries, "ClientRequestToken": "token"})
    assert db.items("t")[0]["n"] == {"N": "2"}


def test_a_token_in_flight_is_in_progress(db: DynamoDB) -> None:
    db.timing = _Slow()
    request = {"TransactItems": [_put("a")], "ClientRequestToken": "token"}
    db.call("TransactWriteItems", request)
    with pytest.raises(ServiceError, match="TransactionInProgressException"):
        db.call("TransactWriteItems", request)


def test_a_refused_transaction_leaves_its_token_free(db: DynamoDB) -> None:
    request = {"TransactItems": [_put("a", ConditionExpression="attribute_exists(id)")], "ClientRequestToken": "token"}
    with pytest.raises(ServiceError, match="ConditionalCheckFailed"):
        db.call("TransactWriteItems", request)
    db.put("t", _key("a"))
    assert db.call("TransactWriteItems", request) == {}


def test_reasons_are_in_order_with_the_requested_items(db: DynamoDB) -> None:
    db.put("t", {**_key("a"), "x": {"S": "old"}})
    missing = {"ConditionExpression": "attribute_not_exists(id)"}
    entries = [
        _put("b"),
        _put("a", **missing, ReturnValuesOnConditionCheckFailure="ALL_OLD"),
        {"ConditionCheck": {"TableName": "t", "Key": _key("c"), "ConditionExpression": "attribute_exists(id)"}},
    ]
    with pytest.raises(ServiceError) as refused:
        db.call("TransactWriteItems", {"TransactItems": entries})
    assert _codes(refused.value) == ["None", "ConditionalCheckFailed", "ConditionalCheckFailed"]
    assert refused.value.members["CancellationReasons"][1]["Item"] == {**_key("a"), "x": {"S": "old"}}
    assert "Item" not in refused.value.members["CancellationReasons"][2]
    assert len(db.items("t")) == 1


@pytest.mark.parametrize(
    ("entries", "message"),
    [
        ([], "between 1 and 100"),
        ([_put(str(number)) for number in range(101)], "between 1 and 100"),
        ([_put("a"), {"Delete": {"TableName": "t", "Key": _key("a")}}], "multiple operations on one item"),
        ([{"Put": {"TableName": "t"}}], "needs Item"),
        ([{"ConditionCheck": {"TableName": "t", "Key": _key("a")}}], "needs ConditionExpression"),
    ],
)
def test_an_invalid_transaction_is_refused(db: DynamoDB, entries: list[Any], message: str) -> None:
    with pytest.raises(ServiceError, match=message):
        db.call("TransactWriteItems", {"TransactItems": entries})


@pytest.mark.parametrize(
    ("expression", "message"),
    [
        ("", "can not be empty"),
        ("a = ", "Syntax error"),
        ("a = :x AND", "Syntax error"),
        ("((a = :x))", "redundant parentheses"),
        ("status = :x", "reserved keyword"),
        ("a = a", "must be distinct"),
        ("attribute_exists(:x)", "requires a document path"),
        ("attribute_exists(a, b)", "Incorrect number of operands"),
        ("a = :y", "is not defined"),
        ("#a = :x", "is not defined"),
        ("begins_with(a, :n)", "Incorrect operand type"),
        ("a < :flag", "Incorrect operand type"),
        ("attribute_exists(a)", "unused in expressions"),
    ],
)
def test_an_invalid_condition_is_refused(db: DynamoDB, expression: str, message: str) -> None:
    values = {":x": {"S": "1"}, ":n": {"N": "1"}, ":flag": {"BOOL": True}}
    used = {name: value for name, value in values.items() if name in expression} or {":x": values[":x"]}
    request = {"TableName": "t", "Item": _key("a"), "ConditionExpression": expression}
    with pytest.raises(ServiceError, match=message):
        db.call("PutItem", {**request, "ExpressionAttributeValues": used})


class _Name(StrEnum):
    FIRST = "first"


def test_update_takes_names_of_an_enumeration(db: DynamoDB) -> None:
    names = {"#first": _Name.FIRST, "#second": "second"}
    update = {"UpdateExpression": "SET #first = :x, #second = :x", "ExpressionAttributeNames": names}
    db.call(
        "UpdateItem", {"TableName": "t", "Key": _key("a"), **update, "ExpressionAttributeValues": {":x": {"N": "1"}}}
    )

    (item,) = db.items("t")
    assert item == {**_key("a"), "first": {"N": "1"}, "second": {"N": "1"}}


@pytest.mark.parametrize(
    ("expression", "message"),
    [
        ("SET a = :x SET b = :x", "only be used once"),
        ("SET a = :x, a = :x", "overlap"),
        ("SET a = :x, a.b = :x", "overlap"),
        ("SET id = :x", "part of the key"),
        ("SET a = nothing_there, b = :x", "does not exist in the item"),
        ("SET a.b = :x", "invalid for update"),
        ("SET a = :x + :x", "incorrect data type"),
        ("ADD a :x", "Incorrect operand type"),
    ],
)
def test_an_invalid_update_is_refused(db: DynamoDB, expression: str, message: str) -> None:
    request = {"TableName": "t", "Key": _key("a"), "UpdateExpression": expression}
    with pytest.raises(ServiceError, match=message):
        db.call("UpdateItem", {**request, "ExpressionAttributeValues": {":x": {"S": "1"}}})


@pytest.mark.parametrize(
    ("value", "message"),
    [
        ({"N": "1" * 39}, "38 significant digits"),
        ({"N": "1e200"}, "overflow"),
        ({"N": "one"}, "cannot be converted"),
        ({"SS": []}, "may not be empty"),
        ({"SS": ["a", "a"]}, "duplicates"),
        ({"NULL": False}, "Null attribute"),
        ({"S": "a", "N": "1"}, "more than one datatypes"),
        ({"X": "a"}, "unknown datatype"),
        ({"S": "x" * 410_000}, "maximum allowed size"),
        ({"S": 1}, "must be a text"),
    ],
)
def test_an_invalid_value_is_refused(db: DynamoDB, value: dict[str, Any], message: str) -> None:
    with pytest.raises(ServiceError, match=message):
        db.call("PutItem", {"TableName": "t", "Item": {**_key("a"), "x": value}})


def test_an_index_key_has_its_type(db: DynamoDB) -> None:
    with pytest.raises(ServiceError, match="Type mismatch for Index Key due"):
        db.call("PutItem", {"TableName": "t", "Item": {**_key("a"), "due": {"S": "1"}}})


def test_an_index_is_behind(db: DynamoDB, clock: _Clock) -> None:
    db.timing = _Slow()
    db.put("t", {**_key("a"), "shard": {"S": "0"}, "due": {"N": "5"}})
    request = {
        "TableName": "t",
        "IndexName": "due",
        "KeyConditionExpression": "#s = :s",
        "ExpressionAttributeNames": {"#s": "shard"},
        "ExpressionAttributeValues": {":s": {"S": "0"}},
    }
    seen = []
    for _ in range(3):
        answer = db.call("Query", request)
        assert isinstance(answer, dict)
        seen.append(answer["Count"])
        clock.now += 600_000
    assert seen == [0, 0, 1]
    with pytest.raises(ServiceError, match="Consistent reads are not supported"):
        db.call("Query", {**request, "ConsistentRead": True})


def test_a_read_that_is_not_consistent_is_one_write_behind(db: DynamoDB, clock: _Clock) -> None:
    db.timing = _Slow()
    db.put("t", {**_key("a"), "x": {"S": "old"}})
    clock.now += 5_000_000
    db.put("t", {**_key("a"), "x": {"S": "new"}})
    request = {"TableName": "t", "Key": _key("a")}
    for consistent, expected in ((False, "old"), (True, "new")):
        answer = db.call("GetItem", {**request, "ConsistentRead": consistent})
        assert isinstance(answer, dict)
        assert answer["Item"]["x"]["S"] == expected


def test_updated_values_are_those_that_the_update_touched(db: DynamoDB) -> None:
    db.put("t", {**_key("a"), "x": {"N": "1"}, "y": {"N": "1"}})
    request = {
        "TableName": "t",
        "Key": _key("a"),
        "UpdateExpression": "SET x = x + :one REMOVE y",
        "ExpressionAttributeValues": {":one": {"N": "1"}},
    }
    assert db.call("UpdateItem", {**request, "ReturnValues": "UPDATED_NEW"}) == {"Attributes": {"x": {"N": "2"}}}


def test_pages_end_at_their_limit_and_continue_after_it(db: DynamoDB) -> None:
    for name in "abc":
        db.put("t", {**_key(name), "shard": {"S": "0"}, "due": {"N": "5"}})
    request: dict[str, Any] = {
        "TableName": "t",
        "IndexName": "due",
        "KeyConditionExpression": "#s = :s",
        "ExpressionAttributeNames": {"#s": "shard"},
        "ExpressionAttributeValues": {":s": {"S": "0"}},
        "Limit": 2,
    }
    first = db.call("Query", request)
    assert isinstance(first, dict)
    second = db.call("Query", {**request, "ExclusiveStartKey": first["LastEvaluatedKey"]})
    assert isinstance(second, dict)
    assert [item["id"]["S"] for item in (*first["Items"], *second["Items"])] == ["a", "b", "c"]
    assert "LastEvaluatedKey" not in second


def test_segments_of_a_scan_hold_each_item_once(db: DynamoDB) -> None:
    for name in "abcdefgh":
        db.put("t", _key(name))

    found = [db.call("Scan", {"TableName": "t", "Segment": segment, "TotalSegments": 3}) for segment in range(3)]

    names = [[item["id"]["S"] for item in page["Items"]] for page in found if isinstance(page, dict)]
    assert sorted(name for page in names for name in page) == list("abcdefgh")
    assert sum(map(bool, names)) > 1


def test_a_returned_item_is_a_copy(db: DynamoDB) -> None:
    db.put("t", {**_key("a"), "m": {"M": {"x": {"S": "1"}}}})
    answer = db.call("GetItem", {"TableName": "t", "Key": _key("a"), "ConsistentRead": True})
    assert isinstance(answer, dict)
    answer["Item"]["m"]["M"]["x"]["S"] = "changed"
    assert db.items("t")[0]["m"] == {"M": {"x": {"S": "1"}}}


def test_an_unsupported_request_is_reported(db: DynamoDB) -> None:
    with pytest.raises(NotSimulatedError, match="dynamodb:CreateBackup"):
        db.call("CreateBackup", {})
    with pytest.raises(NotSimulatedError, match="Expected"):
        db.call("PutItem", {"TableName": "t", "Item": _key("a"), "Expected": {}})


# --- Conditions as data


@pytest.mark.parametrize(
    ("text", "clauses", "left"),
    [
        ("a = :x", ["a = :x"], ["(always)"]),
        ("a = :x AND b = :x", ["a = :x", "b = :x"], ["b = :x", "a = :x"]),
        (
            "a = :x AND (b = :x OR attribute_not_exists(c))",
            ["a = :x", "b = :x OR attribute_not_exists(c)", "b = :x", "attribute_not_exists(c)"],
            ["b = :x OR attribute_not_exists(c)", "a = :x", "a = :x AND attribute_not_exists(c)", "a = :x AND b = :x"],
        ),
        ("NOT a BETWEEN :x AND :y", ["NOT a BETWEEN :x AND :y"], ["(always)"]),
    ],
)
def test_clauses_can_be_left_out_one_by_one(text: str, clauses: list[str], left: list[str]) -> None:
    tree = condition_of(text).tree
    found = list(clauses_of(tree))
    assert list(map(str, found)) == clauses
    assert [str(without(tree, clause)) for clause in found] == left


def test_a_condition_can_be_rewritten(db: DynamoDB) -> None:
    db.put("t", _key("a"))
    request = {"TableName": "t", "Item": _key("a"), "ConditionExpression": "attribute_not_exists(id)"}
    with pytest.raises(ServiceError, match="conditional request failed"):
        db.call("PutItem", request)
    db.rewrite = lambda _table, _text, tree: without(tree, tree)
    db.call("PutItem", request)


class _Busy(Prompt):
    """Leaves all keys of a batch but the first unprocessed."""

    def unprocessed(self) -> float:
        return 0.67


def _batch(db: DynamoDB, *names: str, **more: Any) -> Any:
    asked = {"Keys": [_key(name) for name in names], **more}
    return db.call("BatchGetItem", {"RequestItems": {"t": asked}})


def test_a_batch_returns_what_exists(db: DynamoDB) -> None:
    db.call("PutItem", _put("a")["Put"])

    assert _batch(db, "b", "a") == {"Responses": {"t": [_key("a")]}, "UnprocessedKeys": {}}


def test_a_batch_leaves_keys_unprocessed_as_they_were_asked_for(db: DynamoDB) -> None:
    for name in "abc":
        db.call("PutItem", _put(name)["Put"])
    db.timing = _Busy()

    answer = _batch(db, "a", "b", "c", ConsistentRead=True)

    assert answer["Responses"] == {"t": [_key("a")]}
    assert answer["UnprocessedKeys"] == {"t": {"Keys": [_key("b"), _key("c")], "ConsistentRead": True}}


def test_a_batch_returns_sixteen_megabytes_at_most(db: DynamoDB) -> None:
    names = [f"{number:02d}" for number in range(45)]
    for name in names:
        put = _put(name)["Put"]
        put["Item"]["text"] = {"S": "x" * 400_000}
        db.call("PutItem", put)

    answer = _batch(db, *names)

    assert len(answer["Responses"]["t"]) == 16 * 1024 * 1024 // 400_010
    left = answer["UnprocessedKeys"]["t"]["Keys"]
    assert [item["id"] for item in answer["Responses"]["t"]] + [key["id"] for key in left] == [
        {"S": name} for name in names
    ]


@pytest.mark.parametrize(
    ("names", "message"),
    [(("a", "b", "a"), "duplicates"), ([], "must be 1 to 100"), ([str(n) for n in range(101)], "must be 1 to 100")],
)
def test_a_batch_is_refused_as_a_whole(db: DynamoDB, names: tuple[str, ...], message: str) -> None:
    with pytest.raises(ServiceError, match=message):
        _batch(db, *names)


def test_a_table_whose_name_none_can_have_is_refused_as_that(db: DynamoDB) -> None:
    codes = {}
    for name in ("other", "a b", "t\x1b[2J", ""):
        with pytest.raises(ServiceError) as refused:
            db.call("GetItem", {"TableName": name, "Key": _key("a")})
        codes[name] = refused.value.code
    assert codes == {"other": "ResourceNotFoundException"} | dict.fromkeys(
        ("a b", "t\x1b[2J", ""), "ValidationException"
    )
