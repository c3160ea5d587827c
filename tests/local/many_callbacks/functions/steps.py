"""A warehouse whose books count the submissions of each job."""

from __future__ import annotations

import os

from saga_runtime import Accepted, CallbackCall, NotApplied, Pending, Verdict, callback_step
from saga_runtime.shared import aws

_BOOKS = os.environ["BOOKS"]


def find(call: CallbackCall) -> Verdict:
    """Ask the warehouse: it works on what it was handed."""
    found = aws.dynamodb().get_item(TableName=_BOOKS, Key={"id": {"S": call.job_id}}, ConsistentRead=True)
    return Pending() if "Item" in found else NotApplied()


@callback_step(verify=find)
def hand_over(call: CallbackCall) -> Accepted | None:
    """Submit a job to the warehouse, which uses a job id of its own if the order asks for it."""
    aws.dynamodb().update_item(
        TableName=_BOOKS,
        Key={"id": {"S": call.job_id}},
        UpdateExpression="ADD handed_over :one",
        ExpressionAttributeValues={":one": {"N": "1"}},
    )
    own = call.request.get("own_id")
    return Accepted(job_id=own) if own else None
