"""``cdk-sagas doctor`` checks everything that it can, and reports what is refused, missing, throttled or broken."""

from __future__ import annotations

import json
from collections.abc import Iterator
from importlib import import_module
from types import SimpleNamespace
from typing import Any

import boto3
import pytest
from botocore.exceptions import ClientError
from botocore.retries.bucket import TokenBucket

from constructs_lib.cli.shared.reads import refusal_of
from saga_runtime.idempotency.record import reserve_put
from saga_runtime.protocol import DUE_INDEX, RecordAttribute
from saga_runtime.shared import aws
from tests.unit.support.checked_stack import COMMAND, READS, SHARD, CheckedStack, checked_stack_in
from tests.unit.support.doctor_scenes import SCENES, keeps, parked, send, undelivered, watches, words_of
from tests.unit.support.samples import NOW_MS, reservation_of
from tests.unit.support.sleeps import replace_sleep
from tests.unit.support.wire import Action, Fault
from tests.unit.support.world import World

BATCHES = import_module("constructs_lib.cli.shared.reads")


@pytest.fixture
def stack(world: World, monkeypatch: pytest.MonkeyPatch, boto3_session: boto3.Session) -> Iterator[CheckedStack]:
    """A stack with a saga that runs; nothing is wrong."""
    with checked_stack_in(world, monkeypatch, boto3_session) as stack:
        yield stack


# A refusal blocks no other check.

TOLD: dict[str, tuple[str, ...]] = {
    "BatchGetItem": ("dead letters", "not checked"),
    "DescribeExecution": ("dead letters", "not checked", "outcome not delivered", "parked"),
    "DescribeRule": ("dead letters", "not checked", "outcome not delivered", "parked"),
    "DescribeStateMachine": ("dead letters", "not checked", "outcome not delivered", "parked"),
    "DescribeTable": ("dead letters", "outcome not delivered", "parked"),
    "GetEventSourceMapping": ("dead letters", "not checked", "outcome not delivered", "parked"),
    "GetFunctionConcurrency": ("dead letters", "not checked", "outcome not delivered", "parked"),
    "GetItem": ("dead letters", "not checked", "outcome not delivered", "parked"),
    "GetQueueAttributes": ("not checked", "outcome not delivered", "parked"),
    "ListExecutions": ("dead letters", "not checked", "outcome not delivered", "parked"),
    "Query": ("dead letters", "not checked", "outcome not delivered"),
    "Scan": ("dead letters", "not checked", "outcome not delivered", "parked"),
}
"""What is found of a parked saga, an answer and a dead letter, whatever may not be called."""


def many_things(stack: CheckedStack) -> None:
    """Several that are wrong, one of another saga: it has died."""
    undelivered(stack)
    parked(stack)
    send(stack, "jobs-dead")
    other = reservation_of(key="another")
    put: Any = reserve_put(other)
    put["Item"][RecordAttribute.DUE_SHARD] = {"S": SHARD}
    aws.dynamodb().put_item(**put, TableName="requests")
    stack.world.executions.start(other.saga_id, "{}")
    stack.dies(other.saga_id)


@pytest.mark.parametrize("operation", sorted(TOLD))
def test_a_refused_call_blocks_no_other_check(stack: CheckedStack, operation: str) -> None:
    many_things(stack)
    stack.denied.add(operation)

    found = {one["kind"]: one for one in stack.finds("--full-scan") if one["kind"] != "interrupted"}

    assert tuple(sorted(found)) == TOLD[operation]
    refused = [one["what"].partition(";")[0] for one in found.values() if one["kind"] == "not checked"]
    assert refused == ([] if operation == "DescribeTable" else [f"not allowed: {operation}"])


@pytest.mark.parametrize(
    ("operation", "says"), [("Query", "in flight: not known"), ("Scan", "at least 2 sagas, 1 parked")]
)
def test_money_in_flight_is_a_lower_bound_after_an_incomplete_check(
    stack: CheckedStack, operation: str, says: str
) -> None:
    many_things(stack)
    stack.denied.add(operation)

    assert says in stack.run("--full-scan")[1]
    assert json.loads(stack.run("--full-scan", "--json")[1])["in_flight"]["complete"] is False


def test_every_call_of_a_check_may_be_refused() -> None:
    of_running = {"DescribeStateMachineForExecution", "GetExecutionHistory"}
    assert TOLD.keys() == READS - {"DescribeStacks", *of_running}


def test_a_missing_table_blocks_no_other_check(stack: CheckedStack) -> None:
    many_things(stack)
    for table, kinds in (
        ("tokens", {"not checked", "dead letters", "parked", "interrupted"}),
        ("log", {"not checked", "dead letters", "parked", "interrupted"}),
        ("requests", {"not checked", "dead letters"}),
    ):
        aws.dynamodb().delete_table(TableName=table)

        found = {one["kind"]: one for one in stack.finds("--full-scan")}

        assert found.keys() == kinds
        assert found["not checked"]["what"].startswith("is of the stack, and is not there any more")
        assert f"table {table}" in f"{found['not checked']['id']}, {found['not checked']['what']}"


def test_a_missing_index_blocks_no_other_check(stack: CheckedStack) -> None:
    many_things(stack)
    gone: Any = [{"Delete": {"IndexName": DUE_INDEX}}]
    aws.dynamodb().update_table(TableName="tokens", GlobalSecondaryIndexUpdates=gone)

    found = {one["kind"]: one for one in stack.finds()}

    assert found.keys() == {"not checked", "dead letters", "parked", "interrupted"}
    assert found["not checked"]["id"] == "table tokens"


def test_a_query_of_a_table_without_its_index_is_one_refusal_of_many() -> None:
    said: Any = {"Code": "ValidationException", "Message": "The table does not have\nthe specified index: due"}

    refusal = refusal_of(ClientError({"Error": said}, "Query"))

    assert refusal is not None
    assert refusal.found == "Query is refused: The table does not have the specified index: due"


@pytest.mark.parametrize("code", ["KmsAccessDeniedException", "KMSAccessDeniedException", "KmsAccessDenied"])
def test_a_key_that_may_not_be_used_is_a_right_that_is_missing(code: str) -> None:
    refusal = refusal_of(ClientError({"Error": {"Code": code}}, "DescribeStateMachine"))

    assert refusal is not None
    assert refusal.found == "not allowed: DescribeStateMachine"


def test_a_key_that_is_switched_off_is_one_refusal_of_many() -> None:
    said: Any = {"Code": "KmsInvalidStateException", "Message": "disabled"}

    refusal = refusal_of(ClientError({"Error": said}, "DescribeExecution"))

    assert refusal is not None
    assert refusal.found == "DescribeExecution is refused: KmsInvalidStateException: disabled"


@pytest.mark.parametrize("code", ["ExpiredToken", "ExpiredTokenException", "UnrecognizedClientException", "Other"])
def test_a_refusal_of_all_calls_ends_the_check(code: str) -> None:
    assert refusal_of(ClientError({"Error": {"Code": code}}, "Query")) is None


def test_throttled_calls_are_retried(stack: CheckedStack, monkeypatch: pytest.MonkeyPatch) -> None:
    """More often than a function does, whose time runs."""
    stack.dies()
    asks_without_pause(monkeypatch)
    stack.world.wire.plan(Fault(operation="DescribeExecution", action=Action.THROTTLE, times=9))

    assert stack.kinds() == [("interrupted", "soon")]


def test_permanent_throttling_is_reported_and_blocks_no_other_check(
    stack: CheckedStack, monkeypatch: pytest.MonkeyPatch
) -> None:
    many_things(stack)
    asks_without_pause(monkeypatch)
    stack.world.wire.plan(Fault(operation="DescribeExecution", action=Action.THROTTLE, times=1_000))

    found = {one["kind"]: one for one in stack.finds()}

    assert found.keys() == {"not checked", "outcome not delivered", "dead letters", "parked"}
    assert found["not checked"]["what"] == "refused repeatedly: DescribeExecution, ThrottlingException"


def asks_without_pause(monkeypatch: pytest.MonkeyPatch) -> None:
    """With clients of its own, which remember that they were throttled, and wait for nothing."""
    session = boto3.Session(aws_access_key_id="a", aws_secret_access_key="b", region_name="eu-central-1")
    monkeypatch.setattr(COMMAND, "session_of", lambda _: session)
    replace_sleep(monkeypatch, lambda _: None)
    monkeypatch.setattr(TokenBucket, "acquire", lambda *_, **__: True)


def test_unprocessed_keys_are_retried_at_growing_intervals(monkeypatch: pytest.MonkeyPatch) -> None:
    naps: list[float] = []
    monkeypatch.setattr(BATCHES, "time", SimpleNamespace(sleep=naps.append))
    monkeypatch.setattr(BATCHES, "random", SimpleNamespace(random=lambda: 1.0))
    answered = [0, 0, 2, 1]

    def batch_get_item(**asked: Any) -> Any:
        keys = asked["RequestItems"]["table"]["Keys"]
        count = answered.pop(0)
        return {"Responses": {"table": keys[:count]}, "UnprocessedKeys": {"table": {"Keys": keys[count:]}}}

    client: Any = SimpleNamespace(batch_get_item=batch_get_item)
    keys = [{"id": {"S": str(number)}} for number in range(3)]

    assert list(BATCHES.read_all(client, "table", keys)) == keys
    assert naps == [0.2, 0.4, 0.1]


BROKEN: dict[str, tuple[str, dict[str, Any]]] = {
    "a row of tokens without a time": ("tokens", {"id": {"S": "x"}, "status": {"S": "WAITING"}}),
    "a row of tokens with a name for a time": (
        "tokens",
        {"id": {"S": "x"}, "status": {"S": "WAITING"}, "updated_at": {"N": "1"}, "expected_at": {"S": "soon"}},
    ),
    "a record with a text for a time": ("requests", {"id": {"S": "x"}, "saga_id": {"S": "x"}, "parked_at": {"S": "y"}}),
    "a record of which nothing is right": ("requests", {"id": {"S": "x"}, "saga_id": {"N": "1"}}),
}


@pytest.mark.parametrize("item", BROKEN)
@pytest.mark.parametrize("words", [(), ("--full-scan",)])
def test_an_unreadable_item_blocks_no_other_check(stack: CheckedStack, item: str, words: tuple[str, ...]) -> None:
    many_things(stack)
    table, values = BROKEN[item]
    broken: Any = {**values, "due_at": {"N": "1"}, "due_shard": {"S": SHARD}}
    aws.dynamodb().put_item(TableName=table, Item=broken)

    found = {one["kind"]: one for one in stack.finds(*words)}

    assert found.keys() == {"unreadable", "interrupted", "outcome not delivered", "dead letters", "parked"}
    assert found["unreadable"]["what"].startswith(f"an item of table {table} that cannot be read: ")


@pytest.mark.parametrize("broken", ["amount", "parked_at", "failure"])
def test_a_record_with_something_else_in_an_attribute_ends_no_look(stack: CheckedStack, broken: str) -> None:
    stack.update(amount={"N": "5"}, currency={"S": "EUR"})
    wrong: Any = {broken: {"BOOL": True}}
    stack.update(**wrong)

    assert stack.kinds() == ([] if broken == "amount" else [("unreadable", "operator")])


def test_an_end_that_cannot_be_read_keeps_no_other_from_being_found(stack: CheckedStack) -> None:
    watches(stack)
    keeps(stack, attempt={"N": "2"}, error={"S": "Unhandled"})
    item: Any = {"id": {"S": "x"}, "due_at": {"N": str(NOW_MS)}, "due_shard": {"S": "00"}}
    aws.dynamodb().put_item(TableName="watch", Item=item)

    assert stack.kinds() == [("unreadable", "operator"), ("failure not notified", "soon")]


# What it moves.


@pytest.mark.parametrize("scene", ["interrupted", "parked", "late", "row in doubt", "orphaned wait"])
def test_each_finding_about_a_saga_states_its_amount(stack: CheckedStack, scene: str) -> None:
    stack.update(amount={"N": "123456"}, currency={"S": "EUR"})
    SCENES[scene].happens(stack)

    (finding,) = stack.finds(*words_of(SCENES[scene]))

    assert (finding["amount"], finding["currency"]) == (123456, "EUR")
    assert "it moves EUR 123,456, in minor units\n" in stack.run(*words_of(SCENES[scene]))[1]
