"""Steps that count in a table, and a provider that counts, too; both return as many characters as the request asks."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Any

from saga_runtime import (
    Applied,
    Commit,
    ExternalCall,
    NotApplied,
    StepCall,
    Write,
    atomic_step,
    compensation,
    external_compensation,
    external_step,
)
from saga_runtime.idempotency.identity import canonical_json
from saga_runtime.shared import aws


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
def count(call: StepCall) -> Commit:
    """Count one up."""
    return Commit(writes=[_count(call, 1)])


@compensation
def uncount(call: StepCall, output: Any) -> Commit:
    """Count one down."""
    return Commit(writes=[_count(call, -1)])


@atomic_step
def show(call: StepCall) -> Commit:
    """Return the item as it arrived."""
    return Commit(writes=[_count(call, 1)], output={"item": canonical_json(call.item)})


def _book(call: ExternalCall) -> dict[str, Any]:
    return {"id": {"S": f"{call.request['counter']}/{call.step}@{call.provider_key}"}}


def _output(call: ExternalCall) -> dict[str, str]:
    return {"receipt": call.provider_key, "pad": "x" * call.request["pad"]}


def _is_written(call: ExternalCall) -> bool:
    table = os.environ["COUNTERS"]
    return "Item" in aws.dynamodb().get_item(TableName=table, Key=_book(call), ConsistentRead=True)


def _write(call: ExternalCall) -> None:
    aws.dynamodb().update_item(
        TableName=os.environ["COUNTERS"],
        Key=_book(call),
        UpdateExpression="ADD #n :one",
        ExpressionAttributeNames={"#n": "n"},
        ExpressionAttributeValues={":one": {"N": "1"}},
    )


def find(call: ExternalCall) -> Applied | NotApplied:
    """Read the provider's books."""
    return Applied(output=_output(call)) if _is_written(call) else NotApplied()


@external_step(verify=find)
def charge(call: ExternalCall) -> Mapping[str, Any]:
    """Write into the provider's books without checking whether the charge exists."""
    _write(call)
    return _output(call)


def find_refund(call: ExternalCall, output: Any) -> Applied | NotApplied:
    """Read the refund from the provider's books."""
    return Applied() if _is_written(call) else NotApplied()


@external_compensation(of=charge, verify_undo=find_refund)
def refund(call: ExternalCall, output: Any) -> None:
    """Write the refund into the provider's books."""
    if len(output["pad"]) != call.request["pad"]:
        raise RuntimeError("a compensation is given the output that its step had")
    _write(call)
