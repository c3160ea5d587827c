"""Steps at a provider without idempotency keys or status queries: only its own books show the outcome."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from http.client import HTTPConnection
from typing import Any
from urllib.parse import urlsplit

from saga_runtime import (
    Commit,
    ExternalCall,
    PermanentError,
    StepCall,
    Unknown,
    Verdict,
    atomic_step,
    external_compensation,
    external_step,
)

_AMOUNTS = {"Charge": 1000, "Deliver": 300}


class Refused(PermanentError):
    """The pivot is refused."""


def find(call: ExternalCall) -> Verdict:
    """Ask, in vain."""
    return Unknown(reason="the provider does not report it")


@external_step(verify=find)
def charge(call: ExternalCall) -> Mapping[str, Any]:
    """Take money, once."""
    body = {
        "amount": _AMOUNTS[call.step],
        "currency": "EUR",
        "card": "card",
        "reference": f"{call.request['order']}-{call.step}",
    }
    return {"charge": _post("/charges", call, body)["id"]}


def find_refund(call: ExternalCall, output: Any) -> Verdict:
    """Ask, in vain."""
    return Unknown(reason="the provider does not report it")


@external_compensation(of=charge, verify_undo=find_refund)
def refund(call: ExternalCall, output: Any) -> None:
    """Give it back, once."""
    body = {
        "charge": output["charge"],
        "amount": _AMOUNTS[call.step],
        "reference": f"{call.request['order']}-{call.step}-undo",
    }
    _post("/refunds", call, body)


@atomic_step
def commit(call: StepCall) -> Commit:
    """Commit a row without an effect, or refuse as requested."""
    if call.request.get("refuse"):
        raise Refused("refused as requested")
    return Commit()


def _post(path: str, call: ExternalCall, body: Mapping[str, Any]) -> Mapping[str, Any]:
    connection = HTTPConnection(urlsplit(os.environ["GATEWAY"]).netloc, timeout=call.timeout_seconds)
    try:
        connection.request(
            "POST",
            path,
            body=json.dumps(body),
            headers={"Idempotency-Key": call.provider_key, "Content-Type": "application/json"},
        )
        answer = connection.getresponse()
        document: Mapping[str, Any] = json.loads(answer.read())
    finally:
        connection.close()
    if answer.status != 201:
        raise ConnectionError(f"the provider answered {answer.status}")
    return document
