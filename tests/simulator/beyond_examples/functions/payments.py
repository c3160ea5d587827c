"""A provider's functions behind a step host, as another team may write them: a table is the provider's books."""

from __future__ import annotations

import os
from typing import Any

import boto3

PAYMENTS = boto3.resource("dynamodb").Table(os.environ["PAYMENTS"])


def apply(event: dict[str, Any], context: object) -> dict[str, Any]:
    """Charge."""
    PAYMENTS.put_item(Item={"id": event["key"]})
    return {"output": {"payment": event["key"]}}


def undo(event: dict[str, Any], context: object) -> dict[str, Any]:
    """Refund."""
    PAYMENTS.put_item(Item={"id": event["key"]})
    return {"output": {}}


def verify(event: dict[str, Any], context: object) -> dict[str, Any]:
    """Look up a charge, or a refund."""
    if "Item" in PAYMENTS.get_item(Key={"id": event["key"]}, ConsistentRead=True):
        return {"verdict": "applied", "output": {"payment": event["key"]}}
    return {"verdict": "not_applied"}
