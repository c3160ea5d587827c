"""An intake that a user writes: a provider's payments and refunds, applied to the ledger."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any

import pytest

from saga_runtime import (
    Begin,
    Commit,
    DirectCall,
    Ledger,
    Money,
    NotYet,
    PermanentError,
    WebhookEvent,
    Write,
    event_operation,
)
from saga_runtime.idempotency.record import RequestRecord
from saga_runtime.protocol import PROTOCOL_VERSION, Env, SchemeKind
from saga_runtime.shared import aws
from saga_runtime.webhooks import intake
from tests.unit.support.receiving import SECRET, open_reception, rest_event, sign_by, stripe_header
from tests.unit.support.samples import NOW_MS
from tests.unit.support.settling import REMEMBER_SECONDS, REPLAY_SECONDS
from tests.unit.support.wire import Killed
from tests.unit.support.world import Context, World

LEDGER = Ledger("ledger")


class AlreadyRefunded(PermanentError):
    """The payment was refunded."""

    code = "ALREADY_REFUNDED"


def from_stripe(event: WebhookEvent) -> Begin | None:
    """Read what happened to a payment; the events of other products are not of interest."""
    found = event.json
    kind = {"payment_intent.succeeded": "paid", "charge.refunded": "refunded"}.get(found["type"])
    if kind is None:
        return None
    data = found["data"]["object"]
    request = {"kind": kind, "payment": data["payment"], "customer": data["customer"], "amount": data["amount"]}
    return Begin(key=f"{data['payment']}/{kind}", request=request, event_id=found["id"])


@event_operation(from_stripe)
def handler(call: DirectCall) -> Commit:
    """Credit the customer, or take a refund back. A refund needs its payment."""
    body = call.request
    key = {"saga_id": {"S": body["payment"]}, "step": {"S": "payment"}}
    amount = Money(body["amount"], "EUR")
    if body["kind"] == "paid":
        put = {"TableName": "log", "Item": {**key, "state": {"S": "PAID"}}, "ConditionExpression": _ABSENT}
        writes = LEDGER.transfer(call, source="bank", target=body["customer"], amount=amount)
        return Commit(writes=[*writes, Write(action={"Put": put})], output={"credited": body["amount"]})
    found = aws.dynamodb().get_item(TableName="log", Key=key, ConsistentRead=True).get("Item")
    if found is None:
        raise NotYet("the payment has not arrived yet")
    if found["state"]["S"] != "PAID":
        raise AlreadyRefunded("the payment is refunded")
    update = {
        "TableName": "log",
        "Key": key,
        "UpdateExpression": "SET #state = :refunded",
        "ConditionExpression": "#state = :paid",
        "ExpressionAttributeNames": {"#state": "state"},
        "ExpressionAttributeValues": {":paid": {"S": "PAID"}, ":refunded": {"S": "REFUNDED"}},
    }
    writes = LEDGER.transfer(call, source=body["customer"], target="bank", amount=amount)
    return Commit(writes=[*writes, Write(action={"Update": update})], output={"refunded": body["amount"]})


_ABSENT = "attribute_not_exists(saga_id)"


def stripe_event(
    kind: str = "payment_intent.succeeded",
    *,
    event_id: str = "evt_1",
    payment: str = "pi_1",
    customer: str = "bob",
    amount: int = 200,
) -> dict[str, Any]:
    """An event as the provider sends it."""
    data = {"payment": payment, "customer": customer, "amount": amount}
    return {"id": event_id, "type": kind, "created": 1_700_000_000, "data": {"object": data}}


PAID = stripe_event()
PAID_AGAIN = stripe_event(event_id="evt_2")
"""Another event of the same payment."""
REFUNDED = stripe_event("charge.refunded", event_id="evt_3")


@dataclass
class Provider:
    """The provider, and the queues of kept and of parked events."""

    world: World
    kept: str
    parked: str

    def post(self, event: dict[str, Any]) -> int | None:
        """Send an event; the response's status, None if the function died."""
        body = json.dumps(event).encode()
        header = stripe_header(body, at=self.world.clock.ms // 1_000)
        try:
            answer = handler(rest_event(body, {"Stripe-Signature": header}), Context())
        except Killed:
            return None
        return int(answer["statusCode"])

    def work(self, queue: str | None = None) -> int:
        """Deliver every message of a queue once, as Lambda does; how many were deleted."""
        url = queue or self.kept
        done = 0
        for message in self.messages(url):
            record = delivered(url, message["Body"], id=message["MessageId"])
            try:
                failed = handler({"Records": [record]}, Context())["batchItemFailures"]
            except Killed:
                continue
            if not failed:
                aws.sqs().delete_message(QueueUrl=url, ReceiptHandle=message["ReceiptHandle"])
                done += 1
        return done

    def redrive(self) -> None:
        """Move every parked event into the queue of kept events, as an operator does."""
        for message in self.messages(self.parked):
            aws.sqs().send_message(QueueUrl=self.kept, MessageBody=message["Body"])
            aws.sqs().delete_message(QueueUrl=self.parked, ReceiptHandle=message["ReceiptHandle"])

    def messages(self, queue: str) -> list[dict[str, Any]]:
        """Receive all messages of a queue; they stay visible."""
        found: list[dict[str, Any]] = []
        while True:
            more: Any = aws.sqs().receive_message(
                QueueUrl=queue, MaxNumberOfMessages=10, VisibilityTimeout=60, MessageAttributeNames=["All"]
            )
            if not more.get("Messages"):
                break
            found += more["Messages"]
        for message in found:
            aws.sqs().change_message_visibility(
                QueueUrl=queue, ReceiptHandle=message["ReceiptHandle"], VisibilityTimeout=0
            )
        return found

    def records(self) -> list[RequestRecord]:
        """The request records."""
        return [RequestRecord.from_item(item) for item in self.world.items("requests")]

    @property
    def credited(self) -> int:
        """The customer's balance."""
        balances = self.world.balances()
        assert sum(balances.values()) == 1_000
        return balances.get("bob", 0)


def delivered(queue: str, body: str, *, id: str = "m", group: str | None = None) -> dict[str, Any]:
    """A message of a queue, as Lambda gives it to a function."""
    account, name = queue.split("/")[-2:]
    return {
        "messageId": id,
        "body": body,
        "attributes": {} if group is None else {"MessageGroupId": group},
        "eventSource": "aws:sqs",
        "eventSourceARN": f"arn:aws:sqs:eu-central-1:{account}:{name}",
    }


def open_intake(world: World, monkeypatch: pytest.MonkeyPatch) -> Provider:
    """Deploy the intake; the bank has money, and bob an account."""
    reception = open_reception(world, monkeypatch)
    sign_by(monkeypatch, SchemeKind.STRIPE, reception.put_secret("stripe", SECRET))
    urls = [str(aws.sqs().create_queue(QueueName=name)["QueueUrl"]) for name in ("kept", "parked")]
    variables = {
        Env.PROTOCOL: str(PROTOCOL_VERSION),
        Env.OPERATION: "stripe",
        Env.REQUEST_TABLE: "requests",
        Env.DUE_SHARDS: "16",
        Env.REPLAY_SECONDS: str(REPLAY_SECONDS),
        Env.REMEMBER_SECONDS: str(REMEMBER_SECONDS),
        Env.KEPT_EVENTS: urls[0],
        Env.PARKED_EVENTS: urls[1],
    }
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    monkeypatch.delenv(Env.STATE_MACHINE_ARN)
    intake.settings.cache_clear()
    world.open_accounts(bank=1_000)
    assert world.clock.ms == NOW_MS
    return Provider(world, kept=urls[0], parked=urls[1])
