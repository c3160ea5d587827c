"""The warehouse takes the goods off the shelf: a job that it works at for hours, and can be called off."""

from __future__ import annotations

import os
from typing import Any

from saga_runtime import (
    Applied,
    Callback,
    CallbackCall,
    ExternalCall,
    Failed,
    Heartbeat,
    NotApplied,
    Pending,
    PermanentError,
    Succeeded,
    Unknown,
    WebhookEvent,
    callback_step,
    external_compensation,
    webhook,
)
from saga_runtime.steps.verdict import Verdict

from .client import Client
from .shop import OutOfStock, lines_of

warehouse = Client.from_env("the warehouse", "WAREHOUSE_URL")
PICKS = "/picks"
OVER = frozenset({"rejected", "canceled"})


class PickRefused(PermanentError):
    """The warehouse does not pick this."""


def find(call: ExternalCall) -> Verdict:
    """Return the outcome of the pick under the step's key."""
    found, in_work = warehouse.found(PICKS, key=call.provider_key, reference=call.key, timeout=call.timeout_seconds)
    if len(found) > 1:
        return Unknown(reason=f"there are {len(found)} picks under one key")
    if not found:
        return Pending() if in_work else NotApplied()
    (pick,) = found
    if pick["status"] == "picked":
        return Applied(output={"pick": pick["id"], "parcel": pick["parcel"]})
    return NotApplied() if pick["status"] in OVER else Pending()


@callback_step(verify=find)
def pick(call: CallbackCall) -> None:
    """Ask for the goods. The warehouse knows the job by our id, and the time at which the saga stops waiting."""
    answer = warehouse.post(
        PICKS,
        key=call.provider_key,
        body={
            "reference": call.job_id,
            "lines": lines_of(call),
            "tracking": call.outputs["ShippingLabel"]["tracking"],
            "pick_within": int(os.environ["PICK_SECONDS"]),
        },
        timeout=call.timeout_seconds,
    )
    if answer.status == 422 and answer.code == "sku_unknown":
        raise PickRefused("the warehouse does not know these goods")
    if answer.status != 202:
        raise warehouse.in_doubt(answer)
    # Under a key that was used before this is the first answer: query the present status.
    found, _ = warehouse.found(PICKS, key=call.provider_key, reference=call.key, timeout=call.timeout_seconds)
    if found and found[0]["status"] == "rejected":
        raise _refusal(found[0].get("why"))


@webhook
def from_warehouse(event: WebhookEvent) -> Callback | None:
    """Convert the warehouse's event of a pick."""
    told = event.json
    pick = told["data"]
    outcome: Succeeded | Failed | Heartbeat
    match told["type"]:
        case "pick.completed":
            outcome = Succeeded({"pick": pick["pick"], "parcel": pick["parcel"]})
        case "pick.rejected":
            refusal = _refusal(pick["why"])
            outcome = Failed(type(refusal).__name__, refusal.message)
        case "pick.progress":
            outcome = Heartbeat()
        case _:
            return None
    return Callback(job_id=pick["reference"], event_id=event.headers["webhook-id"], outcome=outcome)


def find_cancel(call: ExternalCall, _picked: dict[str, Any]) -> Verdict:
    """Was it called off under the undo's key?"""
    return warehouse.has_done(key=call.provider_key, reference=call.key, timeout=call.timeout_seconds)


@external_compensation(of=pick, verify_undo=find_cancel)
def cancel(call: ExternalCall, picked: dict[str, Any]) -> None:
    """Have the goods put back onto their shelf."""
    answer = warehouse.post(
        f"{PICKS}/{picked['pick']}/cancel",
        key=call.provider_key,
        body={"reference": call.key},
        timeout=call.timeout_seconds,
    )
    if answer.status != 200:
        raise warehouse.in_doubt(answer)


def _refusal(why: str | None) -> PermanentError:
    if why == "shelf_empty":
        return OutOfStock("the shelf is empty")
    return PickRefused("the warehouse did not pick the goods in time")
