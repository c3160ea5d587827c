"""The wallet example over serialized DynamoDB: its table, its faces, its provider, and the audit of its money."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any

import pytest

from constructs_lib.testing.invariants import assert_all_hold
from examples.wallet.audit import audit_wallet
from examples.wallet.functions.wallet import admin, customer, merchant, operations, stripe, terminal
from examples.wallet.stack import CAP, FAILURE_STATUS, RETRIES
from saga_runtime.http import direct_operation as direct
from saga_runtime.protocol import PROTOCOL_VERSION, Env, SchemeKind
from saga_runtime.shared import aws
from saga_runtime.webhooks import intake
from tests.unit.support.intake import delivered
from tests.unit.support.receiving import SECRET, open_reception, rest_event, sign_by, stripe_header
from tests.unit.support.samples import post
from tests.unit.support.wallet import DIRECT_ENV
from tests.unit.support.wire import Killed
from tests.unit.support.world import Context, World

CARD, FRIEND, SHOP = "card-1", "card-2", "shop-1"
HANDLERS: dict[str, Any] = {
    "customer/payments": customer.payments,
    "customer/transfers": customer.transfers,
    "terminal/payments": terminal.payments,
    "terminal/top-ups": terminal.top_ups,
    "merchant/refunds": merchant.refunds,
    "admin/cards": admin.cards,
    "admin/profiles": admin.profiles,
    "admin/issues": admin.issues,
    "admin/refunds": admin.refunds,
}
Item = dict[str, dict[str, Any]]


@dataclass
class Wallet:
    """The deployed wallet."""

    world: World
    kept: str
    parked: str

    def send(self, path: str, body: dict[str, Any], *, key: str = "key-1") -> dict[str, Any] | None:
        """Send a request through a face; the answer as the gateway gets it, None if the function died."""
        event = post(body, key=key, principal=f"AIDA{path.partition('/')[0].upper()}")
        try:
            answer: dict[str, Any] = HANDLERS[path](event, Context())
        except Killed:
            return None
        return answer

    def status(self, path: str, body: dict[str, Any], *, key: str = "key-1") -> int:
        """The status of an answer."""
        answer = self.send(path, body, key=key)
        assert answer is not None
        return int(answer["statusCode"])

    def result(self, path: str, body: dict[str, Any], *, key: str = "key-1") -> Any:
        """The result of an operation that must succeed."""
        answer = self.send(path, body, key=key)
        assert answer is not None
        document = json.loads(answer["body"])
        assert answer["statusCode"] == 200, document
        return document["result"]

    def event(self, kind: str, *, payment: str = "pi_1", amount: int = 100, card: str | None = CARD) -> int:
        """Send an event of Stripe, each with an id and a time of its own; the status."""
        self.world.clock.ms += 1_000
        metadata = {"wallet_card": card} if card is not None else {}
        data: dict[str, Any] = {"id": payment, "amount": amount, "metadata": metadata}
        if kind == stripe.REFUNDED:
            data = {"id": "ch_1", "payment_intent": payment, "amount_refunded": amount, "metadata": metadata}
        body = json.dumps({"id": f"evt-{self.world.clock.ms}", "type": kind, "data": {"object": data}}).encode()
        header = stripe_header(body, at=self.world.clock.ms // 1_000)
        return int(stripe.handler(rest_event(body, {"Stripe-Signature": header}), Context())["statusCode"])

    def work(self) -> None:
        """Let the intake handle its kept events once."""
        found: Any = aws.sqs().receive_message(QueueUrl=self.kept, MaxNumberOfMessages=10)
        for message in found.get("Messages", []):
            record = delivered(self.kept, message["Body"])
            if not stripe.handler({"Records": [record]}, Context())["batchItemFailures"]:
                aws.sqs().delete_message(QueueUrl=self.kept, ReceiptHandle=message["ReceiptHandle"])

    def items(self, uuid: str) -> dict[str, Item]:
        """A partition, by sort key."""
        return {item["type"]["S"]: item for item in self.world.items("wallet") if item["uuid"]["S"] == uuid}

    def balance(self, uuid: str, unit: str = "ECOPAY") -> int:
        """A balance; 0 without an item."""
        item = self.items(uuid).get(f"BALANCE#{unit}")
        return int(item["balance"]["N"]) if item else 0

    def audit(self) -> None:
        """Audit the table."""
        assert_all_hold(audit_wallet(self.world.items("wallet")))


def open_wallet(world: World, monkeypatch: pytest.MonkeyPatch, *, cards: bool = True) -> Wallet:
    """Deploy the wallet; with two cards and a shop, and 100 on the first card."""
    dynamodb: Any = aws.dynamodb()
    dynamodb.create_table(
        TableName="wallet",
        BillingMode="PAY_PER_REQUEST",
        AttributeDefinitions=[{"AttributeName": name, "AttributeType": "S"} for name in ("uuid", "type")],
        KeySchema=[{"AttributeName": "uuid", "KeyType": "HASH"}, {"AttributeName": "type", "KeyType": "RANGE"}],
    )
    reception = open_reception(world, monkeypatch)
    sign_by(monkeypatch, SchemeKind.STRIPE, reception.put_secret("stripe", SECRET))
    urls = [str(aws.sqs().create_queue(QueueName=name)["QueueUrl"]) for name in ("kept", "parked")]
    variables = {
        **DIRECT_ENV,
        Env.PROTOCOL: str(PROTOCOL_VERSION),
        Env.FAILURE_STATUS: json.dumps(FAILURE_STATUS),
        Env.KEPT_EVENTS: urls[0],
        Env.PARKED_EVENTS: urls[1],
        Env.CONFLICT_BACKOFF: RETRIES.to_json(),
        operations.TABLE: "wallet",
        operations.CAP: str(CAP),
    }
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    monkeypatch.delenv(Env.STATE_MACHINE_ARN)
    direct.settings.cache_clear()
    intake.settings.cache_clear()
    wallet = Wallet(world, kept=urls[0], parked=urls[1])
    if cards:
        for uuid in (CARD, FRIEND, SHOP):
            wallet.result("admin/cards", {"card": uuid}, key=f"open-{uuid}")
        wallet.result("terminal/top-ups", {"card": CARD, "amount": 100}, key="first-top-up")
    world.wire.forget()
    world.clock.ms += 1
    return wallet
