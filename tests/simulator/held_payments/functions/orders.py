"""An order's price is held, its goods are shipped, and what was shipped is captured; merchants are paid out."""

from __future__ import annotations

import json
import os
import urllib.error
import urllib.request
from datetime import timedelta
from typing import Any

from saga_runtime import (
    Applied,
    Clearing,
    Commit,
    Declined,
    DirectCall,
    ExternalCall,
    Ledger,
    Money,
    NotApplied,
    StepCall,
    Verdict,
    atomic_step,
    compensation,
    direct_operation,
    external_compensation,
    external_step,
)

ledger = Ledger.from_env()


@atomic_step
def authorize(call: StepCall) -> Commit:
    amount, seconds = Money(call.request["price"], "EUR"), timedelta(seconds=call.request["held_for"])
    writes = ledger.authorize(call, account=call.request["customer"], amount=amount, expires_in=seconds)
    return Commit(writes=writes, output={"hold": call.key})


@compensation
def release(call: StepCall, output: Any) -> Commit:
    return Commit(writes=ledger.void(call, account=call.request["customer"], hold=output["hold"]))


@atomic_step
def capture(call: StepCall) -> Commit:
    hold, shipped = call.outputs["Authorize"]["hold"], Money(call.request["shipped"], "EUR")
    legs = [(call.request["merchant"], shipped - Money(1, "EUR")), (Clearing("fees"), Money(1, "EUR"))]
    return Commit(writes=ledger.capture(call, account=call.request["customer"], hold=hold, legs=legs))


def _send(call: ExternalCall, path: str, body: Any = None) -> Any:
    headers = {"Idempotency-Key": call.provider_key, "Content-Type": "application/json"}
    data = None if body is None else json.dumps(body).encode()
    request = urllib.request.Request(f"{os.environ['CARRIER']}{path}", data=data, headers=headers)
    with urllib.request.urlopen(request, timeout=call.timeout_seconds) as answer:
        return json.load(answer)


def _found(call: ExternalCall, path: str) -> Applied | NotApplied:
    found = _send(call, f"{path}?key={call.provider_key}")["found"]
    return Applied(output={"id": found[0]["id"]}) if found else NotApplied()


def find_shipment(call: ExternalCall) -> Verdict:
    return _found(call, "/shipments")


@external_step(verify=find_shipment)
def ship(call: ExternalCall) -> dict[str, str]:
    try:
        return {"id": _send(call, "/shipments", {"customer": call.request["customer"]})["id"]}
    except urllib.error.HTTPError as error:
        if error.code == 402:
            raise Declined("the carrier refused") from None
        raise


def find_return(call: ExternalCall, output: Any) -> Verdict:
    return _found(call, "/returns")


@external_compensation(of=ship, verify_undo=find_return)
def take_back(call: ExternalCall, output: Any) -> None:
    _send(call, "/returns", {"shipment": output["id"]})


@direct_operation
def pay_out(call: DirectCall) -> Commit:
    amount = Money(call.request["amount"], "EUR")
    writes = ledger.debit(call, account=call.request["merchant"], amount=amount, clearing="bank")
    return Commit(writes=writes, output={"paid": call.request["amount"]})
