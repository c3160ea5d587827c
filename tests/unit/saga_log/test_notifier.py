"""Notifications over serialized DynamoDB and SQS: sent under the step key, and not again once the log is written."""

from __future__ import annotations

import json
from typing import Any

import pytest

from handlers import notifier
from saga_runtime.errors import ProtocolMismatch, SagaFenced
from saga_runtime.protocol import OUTPUT_FIELD, CallField, Side
from saga_runtime.saga_log.rows import tombstone_put
from saga_runtime.shared import aws
from tests.unit.support.samples import REQUEST_ID, SAGA_ID, step_event
from tests.unit.support.transfers import settle_by
from tests.unit.support.wire import Action, Fault, Killed, Moment
from tests.unit.support.world import Context, World


@pytest.fixture
def queue_url(world: World) -> str:
    """A FIFO queue."""
    url: str = aws.sqs().create_queue(QueueName="told.fifo", Attributes={"FifoQueue": "true"})["QueueUrl"]
    world.wire.forget()
    return url


def notify(queue_url: Any, message: Any = '{"paid":"2.00"}') -> Any:
    """Invoke the notifier once; its output."""
    event = {**step_event(step="Receipt"), CallField.QUEUE_URL: queue_url, CallField.MESSAGE: message}
    return notifier.handler(event, Context())[OUTPUT_FIELD]


def received(queue_url: str) -> list[dict[str, Any]]:
    """All messages in the queue."""
    answer: Any = aws.sqs().receive_message(QueueUrl=queue_url, MaxNumberOfMessages=10, AttributeNames=["All"])
    return list(answer.get("Messages", []))


def test_a_notification_is_sent_in_the_order_of_its_request_under_its_step_key(world: World, queue_url: str) -> None:
    calls = world.calls_of(lambda: notify(queue_url))

    (message,) = received(queue_url)
    assert calls == ["GetItem", "SendMessage", "PutItem"]
    assert json.loads(message["Body"]) == {"paid": "2.00"}
    assert message["Attributes"]["MessageGroupId"] == REQUEST_ID
    assert message["Attributes"]["MessageDeduplicationId"] == f"{SAGA_ID}#Receipt"
    assert world.rows() == {f"{SAGA_ID}#Receipt": "DONE"}


def test_characters_that_a_queue_refuses_keep_no_notification(world: World, queue_url: str) -> None:
    """A client's text may hold them: its saga, behind the pivot, could never end."""
    notify(queue_url, "\ufffe\uffff\x00\x1f\tGr\u00f6\u00dfe\n\U0001f4b6")

    (message,) = received(queue_url)
    assert message["Body"] == "????\tGr\u00f6\u00dfe\n\U0001f4b6"
    assert world.rows() == {f"{SAGA_ID}#Receipt": "DONE"}


def test_a_recorded_notification_is_not_sent_again_however_late(world: World, queue_url: str) -> None:
    first = notify(queue_url)
    world.clock.ms += 86_400_000

    calls = world.calls_of(lambda: notify(queue_url) == first or pytest.fail("another output"))

    assert calls == ["GetItem"]


@pytest.mark.parametrize("call", ["GetItem", "SendMessage", "PutItem"])
@pytest.mark.parametrize("action", [Action.KILL, Action.DROP])
@pytest.mark.parametrize("moment", list(Moment))
def test_a_disturbed_notification_is_sent_once_when_it_is_repeated_soon(
    world: World, queue_url: str, call: str, action: Action, moment: Moment
) -> None:
    world.wire.plan(Fault(operation=call, action=action, moment=moment, times=1 if action is Action.KILL else 3))

    settle_by(notify, queue_url)

    assert world.wire.fired
    assert len(received(queue_url)) == 1
    assert list(world.rows().values()) == ["DONE"]


def test_a_row_is_never_written_before_its_message_was_sent(world: World, queue_url: str) -> None:
    world.wire.plan(Fault(operation="SendMessage", action=Action.KILL, times=1))

    with pytest.raises(Killed):
        notify(queue_url)

    assert world.rows() == {}


def test_a_fenced_notification_is_not_sent(world: World, queue_url: str) -> None:
    row = tombstone_put(
        table="log", saga_id=SAGA_ID, step="Receipt", side=Side.AFTER, attempt="a", now_ms=1, keep_days=400
    )
    aws.dynamodb().transact_write_items(TransactItems=[row])

    with pytest.raises(SagaFenced):
        notify(queue_url)

    assert received(queue_url) == []


@pytest.mark.parametrize(("queue", "message"), [(None, "x"), ("", "x"), ("q", None), ("q", ""), ("q", {"a": 1})])
def test_a_notification_without_a_queue_or_a_message_is_refused(world: World, queue: Any, message: Any) -> None:
    with pytest.raises(ProtocolMismatch):
        notify(queue, message)

    assert world.wire.sent == []
