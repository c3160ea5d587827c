"""Investigate jobs that no provider reported: ask the provider, read the order, and keep what was found."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Any, Final

from saga_runtime import (
    Begin,
    Commit,
    Invalid,
    StepCall,
    StepInDoubt,
    TransientError,
    atomic_step,
    event_saga,
    read_only_step,
)
from saga_runtime.idempotency.identity import provider_key_of
from saga_runtime.protocol import UNANSWERED_FIELD, UnansweredField

from .client import Client
from .shop import Shop

PLACES: Final = {
    "AuthorizePayment": ("the payment provider", "PAYMENTS_URL", "/payment_intents"),
    "Pick": ("the warehouse", "WAREHOUSE_URL", "/picks"),
}
"""Provider of each job, the variable that has its address, and where it lists its jobs."""


@event_saga
def begin(event: Mapping[str, Any]) -> Begin:
    """Begin the investigation of a job: one, however often its entry is sent."""
    entry = event.get(UNANSWERED_FIELD)
    if not isinstance(entry, Mapping) or entry[UnansweredField.STEP] not in PLACES:
        raise Invalid("the message must be the entry of an unanswered job of this saga; delete it")
    job, order, step = (
        str(entry[name]) for name in (UnansweredField.JOB_ID, UnansweredField.SAGA_ID, UnansweredField.STEP)
    )
    return Begin(key=job, request={"job": job, "order": order, "step": step})


@read_only_step
def ask(call: StepCall) -> dict[str, Any]:
    """Ask the provider for what it has under the job's key. Recorded: what operators read is what was found then."""
    job = call.request["job"]
    name, variable, path = PLACES[call.request["step"]]
    try:
        found, in_work = Client.from_env(name, variable).found(
            path, key=provider_key_of(job), reference=job, timeout=float(os.environ["ASK_SECONDS"])
        )
    except StepInDoubt as error:
        raise TransientError(error.message) from None
    jobs = [{"id": one["id"], "status": one["status"]} for one in found]
    return {"provider": name, "found": jobs, "in_work": in_work}


@read_only_step
def look(call: StepCall) -> dict[str, Any]:
    """Read the state of the order. Recorded, too."""
    return {"state": Shop.from_env().order_state(call.request["order"])}


@atomic_step
def keep(call: StepCall) -> Commit:
    """Keep what was found with the order; operators are informed next."""
    provider, order = call.outputs["AskProvider"], call.outputs["LookAtOrder"]
    finding = {"provider": provider, "state": order["state"]}
    return Commit(writes=[Shop.from_env().finding(call, finding)], output=finding)
