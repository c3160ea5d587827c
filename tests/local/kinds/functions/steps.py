"""Steps of every kind. They count in a table without any condition of their own; the provider is a table, too."""

from __future__ import annotations

import os
import time
from collections.abc import Mapping
from typing import Any

from saga_runtime import (
    Applied,
    Commit,
    Declined,
    ExternalCall,
    NotApplied,
    StepCall,
    Write,
    atomic_step,
    compensation,
    external_compensation,
    external_step,
    read_only_step,
)
from saga_runtime.shared import aws


def _trouble(call: StepCall) -> None:
    """Fail as requested: ``{"Step": "decline"}``, ``{"Step[key]": "crash"}``, ``{"Step": "slow"}``."""
    name = call.step if call.item_key is None else f"{call.step}[{call.item_key}]"
    trouble = call.request.get(name)
    if trouble == "decline":
        raise Declined(f"{name} refuses")
    if trouble == "crash":
        raise RuntimeError(f"internal: {name}")
    if trouble == "slow":
        time.sleep(0.4)


def _count(call: StepCall, by: int) -> Write:
    name = call.step if call.item_key is None else f"{call.step}[{call.item_key}]"
    update = {
        "TableName": os.environ["COUNTERS"],
        "Key": {"id": {"S": f"{call.request['counter']}/{name}"}},
        "UpdateExpression": "ADD #n :by",
        "ExpressionAttributeNames": {"#n": "n"},
        "ExpressionAttributeValues": {":by": {"N": str(by)}},
    }
    return Write(action={"Update": update})


@atomic_step
def step(call: StepCall) -> Commit:
    """Count one up."""
    _trouble(call)
    seen = sorted(name for name, output in call.outputs.items() if output)
    return Commit(writes=[_count(call, 1)], output={"seen": seen, "item": call.item})


@compensation
def undo(call: StepCall, output: dict[str, Any]) -> Commit:
    """Count one down."""
    return Commit(writes=[_count(call, -1)])


@read_only_step
def quote(call: StepCall) -> Mapping[str, Any]:
    """Return a value that is different each time."""
    _trouble(call)
    return {"at": str(time.time_ns()), "parcels": [{"id": f"p{n}"} for n in range(call.request.get("parcels", 2))]}


def _books(call: ExternalCall) -> str:
    return f"{call.request['counter']}/{call.step}@{call.provider_key}"


def find(call: ExternalCall) -> Applied | NotApplied:
    """Read the provider's books."""
    found = aws.dynamodb().get_item(
        TableName=os.environ["COUNTERS"], Key={"id": {"S": _books(call)}}, ConsistentRead=True
    )
    return Applied(output={"receipt": call.provider_key}) if "Item" in found else NotApplied()


@external_step(verify=find)
def charge(call: ExternalCall) -> Mapping[str, Any]:
    """Write into the provider's books without checking whether the charge exists."""
    _trouble(call)
    _write_book(call)
    return {"receipt": call.provider_key}


def find_refund(call: ExternalCall, output: Any) -> Applied | NotApplied:
    """Read the refund from the provider's books."""
    return find(call)


@external_compensation(of=charge, verify_undo=find_refund)
def refund(call: ExternalCall, output: Any) -> None:
    """Write the refund into the provider's books."""
    _write_book(call)


def _write_book(call: ExternalCall) -> None:
    aws.dynamodb().update_item(
        TableName=os.environ["COUNTERS"],
        Key={"id": {"S": _books(call)}},
        UpdateExpression="ADD #n :one",
        ExpressionAttributeNames={"#n": "n"},
        ExpressionAttributeValues={":one": {"N": "1"}},
    )
