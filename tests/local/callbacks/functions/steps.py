"""Steps around a warehouse whose books are a table: what a test writes there is what the warehouse thinks of a job."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Any

from saga_runtime import (
    Accepted,
    Applied,
    CallbackCall,
    Commit,
    Declined,
    ExternalCall,
    NotApplied,
    Pending,
    StepCall,
    Unknown,
    Verdict,
    Write,
    atomic_step,
    callback_step,
    compensation,
    external_compensation,
)
from saga_runtime.shared import aws

_BOOKS = os.environ["BOOKS"]


def _job(key: str) -> Mapping[str, Any] | None:
    found = aws.dynamodb().get_item(TableName=_BOOKS, Key={"id": {"S": key}}, ConsistentRead=True)
    return found.get("Item")


def find(call: CallbackCall) -> Verdict:
    """Ask the warehouse."""
    job = _job(call.job_id)
    if job is None:
        return NotApplied()
    match job["state"]["S"]:
        case "picked":
            return Applied(output={"parcel": job["id"]["S"]})
        case "refused":
            return NotApplied()
        case "lost":
            return Unknown(reason="the warehouse has lost its papers")
        case _:
            return Pending()


@callback_step(verify=find)
def hand_over(call: CallbackCall) -> Accepted | None:
    """Submit a job to the warehouse and count the submission: there must be only one."""
    if call.request.get("declined"):
        raise Declined("the warehouse does not know the article")
    if call.request.get("breaks"):
        raise RuntimeError("no connection")
    aws.dynamodb().update_item(
        TableName=_BOOKS,
        Key={"id": {"S": call.job_id}},
        UpdateExpression="SET #state = if_not_exists(#state, :given) ADD handed_over :one",
        ExpressionAttributeNames={"#state": "state"},
        ExpressionAttributeValues={":given": {"S": "given"}, ":one": {"N": "1"}},
    )
    own = call.request.get("own_id")
    return Accepted(job_id=own) if own else None


def find_cancelled(call: ExternalCall, output: Any) -> Verdict:
    """Ask the warehouse whether it was cancelled."""
    job = _job(call.key.removesuffix("#undo"))
    return Applied() if job is not None and "cancelled" in job else NotApplied()


@external_compensation(of=hand_over, verify_undo=find_cancelled)
def cancel(call: ExternalCall, output: Any) -> None:
    """Cancel a pick; every cancellation is counted, too."""
    aws.dynamodb().update_item(
        TableName=_BOOKS,
        Key={"id": {"S": call.key.removesuffix("#undo")}},
        UpdateExpression="ADD cancelled :one",
        ExpressionAttributeValues={":one": {"N": "1"}},
    )


def _mark(call: StepCall) -> Commit:
    put = {"TableName": _BOOKS, "Item": {"id": {"S": call.key}, "state": {"S": "done"}}}
    return Commit(writes=[Write(action={"Put": put})], output={"by": call.step})


@atomic_step
def reserve(call: StepCall) -> Commit:
    """Reserve the article."""
    return _mark(call)


@compensation
def release(call: StepCall, output: Any) -> Commit:
    """Release it."""
    return _mark(call)


@atomic_step
def commit(call: StepCall) -> Commit:
    """From here on, only forward."""
    if call.request.get("fails"):
        raise Declined("nothing may be committed")
    return _mark(call)
