"""The changes that make moto quick do not affect its responses, and no test affects the next one."""

from __future__ import annotations

from typing import Any

import boto3
import pytest
from botocore.exceptions import ClientError
from botocore.retries import quota
from moto import mock_aws

from saga_runtime.shared import aws
from tests.unit.support.quick_moto import OneClientOfEach, without_detours
from tests.unit.support.wire import Action, Fault
from tests.unit.support.world import World, create_tables

VALUES: dict[str, Any] = {
    "text": {"S": "a"},
    "nothing": {"S": ""},
    "number": {"N": "1.50"},
    "bytes": {"B": b"\x00\xff"},
    "texts": {"SS": ["a", "b"]},
    "numbers": {"NS": ["1", "2"]},
    "many bytes": {"BS": [b"\x00", b"\x01"]},
    "map": {"M": {"S": {"N": "1"}, "inner": {"M": {"list": {"L": []}}}}},
    "list": {"L": [{"S": "a"}, {"M": {"B": {"B": b"b"}}}, {"NULL": True}]},
    "null": {"NULL": True},
    "yes": {"BOOL": True},
    "no": {"BOOL": False},
}
CREATION = {"TableId", "CreationDateTime", "LatestStreamArn"}


def answers() -> list[Any]:
    """Responses to every kind of call that the tests make."""
    client: Any = aws.dynamodb()
    told: list[Any] = []
    for number in ("1", "2"):
        item = {**VALUES, "id": {"S": number}, "due_shard": {"S": "s"}, "due_at": {"N": number}}
        told.append(client.put_item(TableName="requests", Item=item, ReturnValues="ALL_OLD"))
    key = {"id": {"S": "1"}}
    update = {"Key": key, "TableName": "requests", "ExpressionAttributeValues": {":a": {"S": "a"}}}
    told += [
        client.get_item(TableName="requests", Key=key, ConsistentRead=True),
        client.get_item(TableName="requests", Key={"id": {"S": "none"}}),
        client.batch_get_item(RequestItems={"requests": {"Keys": [key]}}),
        client.scan(TableName="requests"),
        client.scan(TableName="requests", Select="COUNT", ReturnConsumedCapacity="TOTAL"),
        client.query(
            TableName="requests",
            IndexName="due",
            KeyConditionExpression="due_shard = :a",
            ExpressionAttributeValues={":a": {"S": "s"}},
            Limit=1,
        ),
        client.update_item(**update, UpdateExpression="SET sent = :a", ReturnValues="ALL_NEW"),
        client.transact_get_items(TransactItems=[{"Get": {"TableName": "requests", "Key": key}}]),
    ]
    refused = {**update, "ConditionExpression": "sent <> :a", "UpdateExpression": "SET sent = :a"}
    returned = {"ReturnValuesOnConditionCheckFailure": "ALL_OLD"}
    for call, request in (
        (client.update_item, {**refused, **returned}),
        (client.transact_write_items, {"TransactItems": [{"Update": {**refused, **returned}}]}),
        (client.get_item, {"TableName": "none", "Key": key}),
    ):
        with pytest.raises(ClientError) as error:
            call(**request)
        told.append(error.value.response)
    queue = aws.sqs().create_queue(QueueName="q")["QueueUrl"]
    aws.sqs().send_message(QueueUrl=queue, MessageBody="a")
    told.append([message["Body"] for message in aws.sqs().receive_message(QueueUrl=queue)["Messages"]])
    return [_without_request(answer) for answer in told]


def _without_request(answer: Any) -> Any:
    if not isinstance(answer, dict):
        return answer
    return {name: what for name, what in answer.items() if name != "ResponseMetadata"}


@pytest.fixture
def plain(monkeypatch: pytest.MonkeyPatch) -> Any:
    """moto as it comes, with tables that the API created and a session of its own."""
    with mock_aws(), aws.clients_of(boto3.Session("unit", "unit", region_name="eu-central-1")):
        create_tables()
        yield


def test_responses_are_the_same_without_detours(plain: None) -> None:
    del plain
    thorough = answers()
    for number in ("1", "2"):
        aws.dynamodb().delete_item(TableName="requests", Key={"id": {"S": number}})
    aws.sqs().delete_queue(QueueUrl=aws.sqs().get_queue_url(QueueName="q")["QueueUrl"])

    with without_detours():
        assert answers() == thorough
    assert len(thorough) == 14


def test_an_answer_of_the_fake_is_the_one_that_boto3_parses(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(VALUES, "bytes", {"S": "the wire's JSON has no bytes"})
    for name in ("many bytes", "list"):
        monkeypatch.delitem(VALUES, name)
    quick = answers()
    for number in ("1", "2"):
        aws.dynamodb().delete_item(TableName="requests", Key={"id": {"S": number}})
    asked = set(world.wire.sent)
    for operation in asked:  # calls that a fault may strike take the whole way
        world.wire.plan(Fault(operation=operation, action=Action.KILL, on=1_000))

    assert all(map(world.wire.disturbs, asked))
    assert answers() == quick


def test_a_client_is_made_once_for_the_same_options(clients: OneClientOfEach) -> None:
    one = clients.client("sqs", config=aws.CONFIG)

    assert clients.client("sqs", config=aws.CONFIG.merge(aws.CONFIG)) is one
    assert clients.client("sqs") is not one
    assert clients.client("sqs", region_name="us-east-1") is not clients.client("sqs")


def test_a_client_may_try_again_as_often_as_a_new_one() -> None:
    made = OneClientOfEach(boto3.Session("unit", "unit", region_name="eu-central-1"))
    made.client("sqs", config=aws.CONFIG)
    (used,) = made._quotas
    used.acquire(quota.RetryQuota.INITIAL_CAPACITY)

    made.rest()

    assert used.available_capacity == quota.RetryQuota.INITIAL_CAPACITY
