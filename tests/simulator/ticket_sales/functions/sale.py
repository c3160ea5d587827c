"""Functions of a ticket's sale: a payment provider, and a venue that reports later by a webhook."""

from __future__ import annotations

import json
import os
import urllib.error
import urllib.request
from typing import Any

from saga_runtime import (
    Applied,
    Callback,
    CallbackCall,
    Commit,
    Declined,
    ExternalCall,
    NotApplied,
    StepCall,
    Succeeded,
    Verdict,
    WebhookEvent,
    Write,
    atomic_step,
    callback_step,
    external_compensation,
    external_step,
    webhook,
)


def _send(call: ExternalCall, url: str, body: Any = None) -> Any:
    headers = {"Idempotency-Key": call.provider_key, "Content-Type": "application/json"}
    data = None if body is None else json.dumps(body).encode()
    request = urllib.request.Request(url, data=data, headers=headers)
    with urllib.request.urlopen(request, timeout=call.timeout_seconds) as answer:
        return json.load(answer)


def _found(call: ExternalCall, url: str) -> Applied | NotApplied:
    found = _send(call, f"{url}?key={call.provider_key}")["found"]
    return Applied(output={"id": found[0]["id"]}) if found else NotApplied()


def _post(call: ExternalCall, url: str, body: Any) -> dict[str, str]:
    try:
        return {"id": _send(call, url, body)["id"]}
    except urllib.error.HTTPError as error:
        if error.code == 402:
            raise Declined("the provider refused") from None
        raise


def find_charge(call: ExternalCall) -> Verdict:
    return _found(call, f"{os.environ['GATEWAY']}/charges")


@external_step(verify=find_charge)
def charge(call: ExternalCall) -> dict[str, str]:
    return _post(call, f"{os.environ['GATEWAY']}/charges", {"amount": call.request["amount"]})


def find_refund(call: ExternalCall, output: Any) -> Verdict:
    return _found(call, f"{os.environ['GATEWAY']}/refunds")


@external_compensation(of=charge, verify_undo=find_refund)
def refund(call: ExternalCall, output: Any) -> None:
    _send(call, f"{os.environ['GATEWAY']}/refunds", {"charge": output["id"], "amount": call.request["amount"]})


def find_ticket(call: CallbackCall) -> Verdict:
    return _found(call, f"{os.environ['VENUE']}/tickets")


@callback_step(verify=find_ticket)
def order(call: CallbackCall) -> None:
    _post(call, f"{os.environ['VENUE']}/tickets", {"reference": call.job_id, "show": call.request["show"]})


def find_return(call: ExternalCall, output: Any) -> Verdict:
    return _found(call, f"{os.environ['VENUE']}/returns")


@external_compensation(of=order, verify_undo=find_return)
def give_back(call: ExternalCall, output: Any) -> None:
    _send(call, f"{os.environ['VENUE']}/returns", {"ticket": output["id"]})


@webhook
def reported(event: WebhookEvent) -> Callback:
    body = event.json
    return Callback(job_id=body["reference"], event_id=body["id"], outcome=Succeeded({"id": body["ticket"]}))


@atomic_step
def count(call: StepCall) -> Commit:
    sold = {
        "Update": {
            "TableName": os.environ["SHOWS"],
            "Key": {"show": {"S": call.request["show"]}},
            "UpdateExpression": "ADD sold :one",
            "ExpressionAttributeValues": {":one": {"N": "1"}},
        }
    }
    return Commit(writes=[Write(action=sold)])
