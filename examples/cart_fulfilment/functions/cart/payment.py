"""The payment: an amount is held on a card, which its owner may have to confirm; taken, given back, or released."""

from __future__ import annotations

import os
from typing import Any

from saga_runtime import (
    Accepted,
    Applied,
    Callback,
    CallbackCall,
    Declined,
    ExternalCall,
    Failed,
    NotApplied,
    Pending,
    Succeeded,
    Unknown,
    WebhookEvent,
    callback_step,
    external_compensation,
    external_step,
    webhook,
)
from saga_runtime.steps.verdict import Verdict

from .client import Client

provider = Client.from_env("the payment provider", "PAYMENTS_URL")
INTENTS = "/payment_intents"
HELD = frozenset({"requires_capture", "succeeded"})
CANCELED = "canceled"


def find(call: ExternalCall) -> Verdict:
    """Return the outcome of the payment under the step's key."""
    found, in_work = provider.found(INTENTS, key=call.provider_key, reference=call.key, timeout=call.timeout_seconds)
    if len(found) > 1:
        return Unknown(reason=f"there are {len(found)} payments under one key")
    if not found:
        return Pending() if in_work else NotApplied()
    (payment,) = found
    if payment["status"] in HELD:
        return Applied(output=_held(payment))
    return NotApplied() if payment["status"] == CANCELED else Pending()


@callback_step(verify=find)
def authorize(call: CallbackCall) -> Accepted:
    """Ask for the amount to be held. The webhook reports the outcome: a card's owner may take minutes.

    The request contains the time at which the saga stops waiting. So there is an end, even if its event is lost:
    afterwards the payment cannot succeed, and a query gets a clear answer.
    """
    price = call.outputs["PriceCart"]
    answer = provider.post(
        INTENTS,
        key=call.provider_key,
        body={
            "amount": int(price["amount"]),
            "currency": price["currency"],
            "card": call.request["card"],
            "reference": call.job_id,
            "expires_in": int(os.environ["AUTHORIZE_SECONDS"]),
        },
        timeout=call.timeout_seconds,
    )
    if answer.status == 402:
        raise Declined("the payment was declined")
    if answer.status != 202:
        raise provider.in_doubt(answer)
    # Under a key that was used before this is the first answer: query the present status.
    found, _ = provider.found(INTENTS, key=call.provider_key, reference=call.key, timeout=call.timeout_seconds)
    if found and found[0]["status"] == CANCELED:
        declined = found[0].get("why") == "card_declined"
        raise Declined(_why(declined=declined), job_id=answer.document["id"])
    return Accepted(job_id=answer.document["id"])


@webhook
def from_provider(event: WebhookEvent) -> Callback | None:
    """Convert the provider's event of a payment, which it identifies by an id of its own.

    Another application's payments come here, too, if it shares the account: they do not have our reference. And a card
    that was declined (``payment_intent.payment_failed``) is not the end: the owner may pay with another one, until the
    payment is canceled.
    """
    told = event.json
    payment = told["data"]["object"]
    if "reference" not in payment.get("metadata", {}):
        return None
    match told["type"]:
        case "payment_intent.amount_capturable_updated":
            outcome: Succeeded | Failed = Succeeded(_held(payment))
        case "payment_intent.canceled":
            outcome = Failed(Declined.__name__, _why(declined=payment["last_payment_error"] is not None))
        case _:
            return None
    return Callback(job_id=payment["id"], event_id=told["id"], outcome=outcome)


def find_void(call: ExternalCall, _held_payment: dict[str, Any]) -> Verdict:
    """Was it released under the undo's key?"""
    return provider.has_done(key=call.provider_key, reference=call.key, timeout=call.timeout_seconds)


@external_compensation(of=authorize, verify_undo=find_void)
def void(call: ExternalCall, held: dict[str, Any]) -> None:
    """Release the amount held. It runs after `refund`: a payment is closed when none of it is kept."""
    answer = provider.post(
        f"{INTENTS}/{held['payment']}/cancel",
        key=call.provider_key,
        body={"reference": call.key},
        timeout=call.timeout_seconds,
    )
    if answer.status != 200:
        raise provider.in_doubt(answer)


def find_capture(call: ExternalCall) -> Verdict:
    """Was the money taken under the step's key?"""
    verdict = provider.has_done(key=call.provider_key, reference=call.key, timeout=call.timeout_seconds)
    return Applied(output=_captured(call)) if isinstance(verdict, Applied) else verdict


@external_step(verify=find_capture)
def capture(call: ExternalCall) -> dict[str, Any]:
    """Take what is held."""
    held = call.outputs["AuthorizePayment"]
    answer = provider.post(
        f"{INTENTS}/{held['payment']}/capture",
        key=call.provider_key,
        body={"amount": int(held["amount"]), "reference": call.key},
        timeout=call.timeout_seconds,
    )
    if answer.status == 200:
        return _captured(call)
    if answer.status == 402:
        raise Declined("the payment could not be taken")
    raise provider.in_doubt(answer)


def find_refund(call: ExternalCall, _taken: dict[str, Any]) -> Verdict:
    """Was the money given back under the undo's key?"""
    return provider.has_done(key=call.provider_key, reference=call.key, timeout=call.timeout_seconds)


@external_compensation(of=capture, verify_undo=find_refund)
def refund(call: ExternalCall, taken: dict[str, Any]) -> None:
    """Give back what was taken. Never refused on business grounds: whatever is answered instead, a person looks."""
    answer = provider.post(
        "/refunds",
        key=call.provider_key,
        body={"payment_intent": taken["payment"], "amount": int(taken["amount"]), "reference": call.key},
        timeout=call.timeout_seconds,
    )
    if answer.status != 201:
        raise provider.in_doubt(answer)


def _held(payment: dict[str, Any]) -> dict[str, Any]:
    return {"payment": payment["id"], "amount": str(payment["amount"]), "currency": payment["currency"]}


def _captured(call: ExternalCall) -> dict[str, Any]:
    held = call.outputs["AuthorizePayment"]
    return {"payment": held["payment"], "amount": held["amount"], "currency": held["currency"]}


def _why(*, declined: bool) -> str:
    return "the payment was declined" if declined else "the payment was not confirmed in time"
