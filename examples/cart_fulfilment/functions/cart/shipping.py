"""The carrier: a label before the goods are picked, and the scan by which its driver takes the parcel."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from functools import lru_cache
from typing import Any

import boto3

from saga_runtime import (
    Applied,
    Callback,
    CallbackCall,
    ExternalCall,
    Failed,
    NotApplied,
    Pending,
    PermanentError,
    Succeeded,
    TransientError,
    Unknown,
    WebhookEvent,
    callback_step,
    event_receiver,
    external_compensation,
    external_step,
    webhook,
)
from saga_runtime.idempotency.identity import provider_key_of, step_key_of
from saga_runtime.shared import aws
from saga_runtime.steps.verdict import Verdict

from .client import Client

carrier = Client.from_env("the carrier", "CARRIER_URL")
LABELS = "/labels"
LABEL_STEP = "ShippingLabel"
SCAN_STEP = "PickupScan"
SCANS = {"in_transit": "parcel.picked_up", "lost": "parcel.lost"}
EVENT_SOURCE = "shop.parcels"
EVENT_TYPE = "Parcel scanned"


class AddressUnknown(PermanentError):
    """The carrier does not deliver there."""


def find(call: ExternalCall) -> Verdict:
    """Was a label made under the step's key?"""
    found, in_work = carrier.found(LABELS, key=call.provider_key, reference=call.key, timeout=call.timeout_seconds)
    if len(found) > 1:
        return Unknown(reason=f"there are {len(found)} labels under one key")
    if found:
        return Applied(output=_label(found[0]))
    return Pending() if in_work else NotApplied()


@external_step(verify=find)
def label(call: ExternalCall) -> dict[str, Any]:
    """Have a label made. The carrier reports scans of its parcel under the id of the step that waits for them."""
    answer = carrier.post(
        LABELS,
        key=call.provider_key,
        body={"reference": step_key_of(call.saga_id, SCAN_STEP), "address": call.request["address"]},
        timeout=call.timeout_seconds,
    )
    if answer.status == 201:
        return _label(answer.document)
    if answer.status == 422 and answer.code == "address_unknown":
        raise AddressUnknown("the carrier does not deliver to this address")
    raise carrier.in_doubt(answer)


def find_void(call: ExternalCall, _labelled: dict[str, Any]) -> Verdict:
    """Was it voided under the undo's key?"""
    return carrier.has_done(key=call.provider_key, reference=call.key, timeout=call.timeout_seconds)


@external_compensation(of=label, verify_undo=find_void)
def void(call: ExternalCall, labelled: dict[str, Any]) -> None:
    """Void the label. The label of a parcel that is on its way cannot be voided: an operator must decide."""
    answer = carrier.post(
        f"{LABELS}/{labelled['label']}/void",
        key=call.provider_key,
        body={"reference": call.key},
        timeout=call.timeout_seconds,
    )
    if answer.status != 200:
        raise carrier.in_doubt(answer)


@webhook
def publish_scan(event: WebhookEvent) -> None:
    """Publish the carrier's scan: other systems, too, need to know where a parcel is.

    A scan that could not be published is an error, so that the carrier sends it again. One that is published twice is
    one event to a subscriber that deduplicates by the carrier's id.
    """
    _publish(event.json)


@callback_step
def look(call: CallbackCall) -> None:
    """Look where the parcel is: now, and again whenever nothing was heard for long. A lost scan is published, too."""
    labelled = call.outputs["ShippingLabel"]
    key = provider_key_of(step_key_of(call.saga_id, LABEL_STEP))
    found, _ = carrier.found(LABELS, key=key, reference=call.job_id, timeout=call.timeout_seconds)
    if found and found[0]["status"] in SCANS:
        scan = {"event": f"seen-{labelled['label']}", "tracking": labelled["tracking"], "reference": call.job_id}
        _publish({**scan, "type": SCANS[found[0]["status"]], "place": "unknown"})


@event_receiver
def from_carrier(event: Mapping[str, Any]) -> Callback | None:
    """A scan, as it comes from the event bus."""
    scan = event["detail"]
    match scan["type"]:
        case "parcel.picked_up":
            outcome: Succeeded | Failed = Succeeded({"tracking": scan["tracking"], "place": scan["place"]})
        case "parcel.lost":
            outcome = Failed("ParcelLost", "the carrier has lost the parcel")
        case _:
            return None
    return Callback(job_id=scan["reference"], event_id=scan["event"], outcome=outcome)


def _publish(scan: Mapping[str, Any]) -> None:
    entry = {
        "EventBusName": os.environ["EVENT_BUS_NAME"],
        "Source": EVENT_SOURCE,
        "DetailType": EVENT_TYPE,
        "Detail": json.dumps(scan),
    }
    if _events().put_events(Entries=[entry])["FailedEntryCount"]:
        raise TransientError("the scan was not published")


@lru_cache(maxsize=1)
def _events() -> Any:
    return boto3.client("events", config=aws.CONFIG)


def _label(made: Mapping[str, Any]) -> dict[str, Any]:
    return {"label": made["id"], "tracking": made["tracking"]}
