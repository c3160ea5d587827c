"""Charge the customer's card, and refund the charge. After a call that was cut off, ask the gateway for the outcome."""

from __future__ import annotations

from typing import Any

from aws_lambda_powertools.metrics import MetricUnit, single_metric

from saga_runtime import (
    Applied,
    Declined,
    ExternalCall,
    NotApplied,
    Pending,
    StepInDoubt,
    Unknown,
    external_compensation,
    external_step,
)
from saga_runtime.steps.verdict import Verdict

from .gateway import Answer, Gateway

gateway = Gateway.from_env()


def find(call: ExternalCall) -> Verdict:
    """Return the outcome of the charge under the step's key."""
    answer = gateway.find("/charges", key=call.provider_key, reference=call.saga_id, timeout=call.timeout_seconds)
    charges = [charge for charge in _found(answer) if charge["status"] == "succeeded"]
    if len(charges) > 1:
        return Unknown(reason=f"there are {len(charges)} charges under one key")
    if charges:
        return Applied(output=_output(charges[0]))
    return Pending() if answer.document["in_work"] else NotApplied()


@external_step(verify=find)
def charge(call: ExternalCall) -> dict[str, Any]:
    """Charge what was quoted. Only a clear refusal is one; a key in use, or an error, is in doubt."""
    quote = call.outputs["ValidateInventory"]
    answer = gateway.post(
        "/charges",
        key=call.provider_key,
        body={
            "amount": int(quote["amount"]),
            "currency": quote["currency"],
            "card": call.request["card"],
            "reference": call.saga_id,
        },
        timeout=call.timeout_seconds,
    )
    if answer.status == 201:
        return _output(answer.document)
    if answer.status == 402:
        _count("PaymentDeclined")
        raise Declined("the payment was declined")
    raise StepInDoubt(f"the payment gateway answered {answer.status} {answer.code}")


def find_refund(call: ExternalCall, _charged: dict[str, Any]) -> Verdict:
    """Return the outcome of the refund under the compensation's key."""
    answer = gateway.find("/refunds", key=call.provider_key, reference=call.saga_id, timeout=call.timeout_seconds)
    if _found(answer):
        return Applied()
    return Pending() if answer.document["in_work"] else NotApplied()


@external_compensation(of=charge, verify_undo=find_refund)
def refund(call: ExternalCall, charged: dict[str, Any]) -> None:
    """Give back what was charged, under a key of the undo's own."""
    answer = gateway.post(
        "/refunds",
        key=call.provider_key,
        body={"charge": charged["charge"], "amount": int(charged["amount"]), "reference": call.saga_id},
        timeout=call.timeout_seconds,
    )
    if answer.status != 201:
        # A refund is never refused on business grounds: in doubt, checked again, then parked for an operator.
        raise StepInDoubt(f"the payment gateway answered {answer.status} {answer.code}")


def _found(answer: Answer) -> list[dict[str, Any]]:
    if answer.status != 200:
        raise StepInDoubt(f"the payment gateway answered {answer.status} {answer.code}")
    found: list[dict[str, Any]] = answer.document["found"]
    return found


def _output(charged: dict[str, Any]) -> dict[str, Any]:
    return {"charge": charged["id"], "amount": str(charged["amount"]), "currency": charged["currency"]}


def _count(metric: str) -> None:
    # On its own: Powertools' Metrics is one per process, and the saga's runtime counts with it, too.
    with single_metric(name=metric, unit=MetricUnit.Count, value=1, namespace="Shop"):
        pass
