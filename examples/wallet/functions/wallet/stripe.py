"""Top-ups that are paid through Stripe: its events are applied once, and a refund waits for its payment."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any, Final

from saga_runtime import (
    Begin,
    Commit,
    DirectCall,
    NotYet,
    SagaError,
    Transitions,
    VersionedItem,
    WebhookEvent,
    event_operation,
)

from . import builders
from .errors import RefundExceeded
from .keys import ECOPAY, stripe_type
from .operations import bonus_of, cap, log, row, table

PAID: Final = "payment_intent.succeeded"
REFUNDED: Final = "charge.refunded"
TOP_UPS: Final = Transitions(table={"PAID": ["REFUNDED"], "REFUNDED": []}, initial="PAID")
"""A top-up is refunded once, in whole."""


def read(event: WebhookEvent) -> Begin | None:
    """Read Stripe's events of top-ups; those of other products in the same account are not of interest."""
    found = event.json
    if found["type"] not in (PAID, REFUNDED):
        return None
    data = found["data"]["object"]
    card = data.get("metadata", {}).get("wallet_card")
    if card is None:
        return None
    payment = data["id"] if found["type"] == PAID else data["payment_intent"]
    amount = data["amount"] if found["type"] == PAID else data["amount_refunded"]
    key = f"{payment}/paid" if found["type"] == PAID else f"{payment}/refunded/{amount}"
    request = {"type": found["type"], "payment": payment, "card": card, "amount": amount}
    return Begin(key=key, request=request, event_id=found["id"])


@event_operation(read)
def handler(call: DirectCall) -> Commit:
    """Charge the card, or take back what was refunded."""
    log(f"stripe {call.request['type']}", call.request)
    return _paid(call) if call.request["type"] == PAID else _refunded(call)


def _paid(call: DirectCall) -> Commit:
    body = call.request
    card, amount, now_ms = body["card"], body["amount"], call.now_ms
    bonus = bonus_of(amount)
    payment = TOP_UPS.create(_payment(body), {"amount": {"N": str(amount)}})
    writes = [
        *builders.active(table=table(), uuid=card),
        *builders.charge(table=table(), uuid=card, unit=ECOPAY, amount=amount, bonus=bonus, cap=cap(), now_ms=now_ms),
        *payment,
        *row(call, card, "stripe", ECOPAY.code, amount + bonus, body["payment"]),
    ]
    return Commit(writes=writes, output={"charged": amount, "bonus": bonus})


def _refunded(call: DirectCall) -> Commit:
    """Stripe reports the sum of all refunds of a charge. In whole, so the payment is taken back at once."""
    body = call.request
    card, amount, now_ms = body["card"], body["amount"], call.now_ms
    amount_paid = {"amount": {"N": str(amount)}}
    [refund] = TOP_UPS.move(_payment(body), "PAID", "REFUNDED", conditions=amount_paid)
    total = amount + bonus_of(amount)
    writes = [
        replace(refund, refusal=_not_refundable),
        *builders.deduct(table=table(), uuid=card, unit=ECOPAY, amount=total, now_ms=now_ms),
        *row(call, card, "stripe-refund", ECOPAY.code, -total, body["payment"]),
    ]
    return Commit(writes=writes, output={"taken_back": total})


def _payment(body: Mapping[str, Any]) -> VersionedItem:
    key = {"uuid": {"S": body["card"]}, "type": {"S": stripe_type(body["payment"])}}
    return VersionedItem(table=table(), key=key)


def _not_refundable(item: Mapping[str, Mapping[str, Any]] | None) -> SagaError:
    if item is None:
        return NotYet("the payment has not arrived yet")
    return RefundExceeded("a top-up is refunded in whole, and once")
