"""The wallet on local AWS: its faces over HTTP, Stripe's events, and a bank under faults."""

from __future__ import annotations

import random
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from itertools import product
from typing import Any

import pytest

from constructs_lib.testing import Every, Fault, Share
from constructs_lib.testing.fault_plan import Action, Moment
from saga_runtime.protocol import REPLAYED_HEADER

from .support import eventually
from .wallet_system import FUNCTIONS, STACK, WalletSystem, deployed

CARD, FRIEND, SHOP = "card-1", "card-2", "shop-1"
CALL = "dynamodb:TransactWriteItems"


@pytest.fixture(scope="module")
def running() -> Iterator[WalletSystem]:
    with deployed() as system:
        yield system


@pytest.fixture
def wallet(running: WalletSystem) -> WalletSystem:
    """The wallet: two cards and a shop; 600 on each card."""
    running.reset()
    for uuid in (CARD, FRIEND, SHOP):
        assert running.send("Admin", "cards", {"card": uuid}, key=f"open-{uuid}").status == 200
    for uuid in (CARD, FRIEND):
        assert running.send("Terminal", "top-ups", {"card": uuid, "amount": 500}, key=f"top-{uuid}").status == 200
    return running


def test_every_operation_returns_its_result_at_once(wallet: WalletSystem) -> None:
    pay = {"card": CARD, "merchant": SHOP, "amount": 100}
    paid = wallet.send("Terminal", "payments", pay, key="pay")
    refund = {"card": CARD, "merchant": SHOP, "payment": paid.json()["result"]["payment"], "amount": 40}
    refunded = wallet.send("Merchant", "refunds", refund, key="refund")
    transfer = {"card": CARD, "to": FRIEND, "amount": 10, "unit": "ECOPAY"}
    moved = wallet.send("Customer", "transfers", transfer, key="move")
    too_much = wallet.send("Terminal", "top-ups", {"card": CARD, "amount": 900}, key="too-much")

    assert (paid.status, refunded.status, moved.status, too_much.status) == (200, 200, 200, 400)
    assert too_much.json()["error"] == "CapExceeded"
    assert wallet.send("Terminal", "payments", pay, key="pay").headers[REPLAYED_HEADER.lower()] == "true"
    assert wallet.send("Customer", "payments", pay, key="pay").status == 409
    assert (wallet.balance(CARD), wallet.balance(FRIEND), wallet.balance(SHOP)) == (530, 610, 60)
    wallet.audit()


@pytest.mark.parametrize(("action", "moment"), list(product((Action.KILL, Action.DROP), Moment)))
def test_payment_that_dies_anywhere_is_made_once(wallet: WalletSystem, action: Action, moment: Moment) -> None:
    fault = Fault(function=f"{STACK}/Terminal/Payments/Function", call=CALL, action=action, moment=moment)
    wallet.aws.faults.plan(fault)

    answer = wallet.send("Terminal", "payments", {"card": CARD, "merchant": SHOP, "amount": 100}, key="pay")

    assert answer.status == 200
    assert (wallet.balance(CARD), wallet.balance(SHOP)) == (500, 100)
    wallet.audit()


def test_refund_of_stripe_that_overtakes_its_payment_is_applied_after_it(wallet: WalletSystem) -> None:
    metadata = {"wallet_card": CARD}
    paid = {"id": "pi_1", "amount": 100, "metadata": metadata}
    refunded = {"id": "ch_1", "payment_intent": "pi_1", "amount_refunded": 100, "metadata": metadata}

    assert wallet.event("charge.refunded", refunded, event_id="evt_1") == 202
    assert wallet.event("payment_intent.succeeded", paid, event_id="evt_2") == 200
    assert wallet.event("payment_intent.succeeded", paid, event_id="evt_3") == 200

    def settled() -> bool | None:
        return (
            True
            if any(i["type"]["S"] == "stripe#pi_1" and i["state"]["S"] == "REFUNDED" for i in wallet.items())
            else None
        )

    eventually(settled)
    assert wallet.balance(CARD) == 600
    wallet.audit()


def test_event_of_an_unknown_card_is_parked(wallet: WalletSystem) -> None:
    data = {"id": "pi_9", "amount": 100, "metadata": {"wallet_card": "nobody"}}

    assert wallet.event("payment_intent.succeeded", data, event_id="evt_9") == 202

    found = wallet.aws.client("sqs").receive_message(QueueUrl=wallet.outputs["ParkedQueueUrl"], WaitTimeSeconds=5)
    assert len(found["Messages"]) == 1


def test_bank_under_faults_loses_and_makes_no_money(wallet: WalletSystem) -> None:
    ways = product(FUNCTIONS, (Action.KILL, Action.DROP), Moment)
    for seed, (function, action, moment) in enumerate(ways):
        share = Share(0.0125, seed=seed)
        wallet.aws.faults.plan(Fault(function=function, call=CALL, action=action, moment=moment, on=share))

    refunded: list[int] = []
    payments: list[dict[str, Any]] = []
    """Refunds of the payments that were made."""

    def run(number: int) -> int:
        wish = random.Random(number)
        card, other = wish.sample([CARD, FRIEND], 2)
        refunds = [("Merchant", "refunds", wish.choice(payments))] * 2 if payments else []
        face, operation, body = wish.choice(
            [
                *refunds,
                ("Terminal", "payments", {"card": card, "merchant": SHOP, "amount": wish.randint(1, 90)}),
                ("Terminal", "top-ups", {"card": card, "amount": wish.randint(1, 200)}),
                ("Customer", "transfers", {"card": card, "to": other, "amount": wish.randint(1, 90), "unit": "ECOPAY"}),
            ]
        )
        first = wallet.send(face, operation, body, key=f"op-{number}")
        again = wallet.send(face, operation, body, key=f"op-{number}")
        assert (first.status, first.body) == (again.status, again.body)
        if operation == "payments" and first.status == 200:
            payment = first.json()["result"]["payment"]
            amount = wish.randint(1, body["amount"])
            payments.append({"card": body["card"], "merchant": SHOP, "payment": payment, "amount": amount})
        elif operation == "refunds" and first.status == 200:
            refunded.append(number)
        return first.status

    with ThreadPoolExecutor(max_workers=4) as pool:
        statuses = list(pool.map(run, range(60)))

    assert statuses.count(200) > 20
    assert set(statuses) <= {200, 400, 409}
    assert refunded
    wallet.audit()


def test_payment_while_the_database_refuses_is_not_promised(wallet: WalletSystem) -> None:
    fault = Fault(
        function=f"{STACK}/Terminal/Payments/Function", call=CALL, action="throttle", on=Every(), attempts="all"
    )
    wallet.aws.faults.plan(fault)
    user, url = wallet.users["Terminal"], f"{wallet.aws.api_url(wallet.outputs['TerminalApiId'], 'v1')}/payments"
    body = {"card": CARD, "merchant": SHOP, "amount": 100}

    answer = user.request("POST", url, headers={"Idempotency-Key": "k"}, body=body)

    assert answer.status >= 500
    wallet.aws.faults.clear()
    assert wallet.send("Terminal", "payments", body, key="k").status == 200
    assert wallet.balance(SHOP) == 100
