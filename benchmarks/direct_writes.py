"""The writes of one payment, for both sides of a comparison."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any


def writes(body: Mapping[str, Any]) -> list[dict[str, Any]]:
    """A debit, a credit, and a row of history for each."""
    amount = int(body["amount"])
    return [
        *(_balance(card, delta) for card, delta in ((body["from"], -amount), (body["to"], amount))),
        *(_row(card, delta) for card, delta in ((body["from"], -amount), (body["to"], amount))),
    ]


def _balance(card: str, delta: int) -> dict[str, Any]:
    update: dict[str, Any] = {
        "TableName": "wallet",
        "Key": {"uuid": {"S": card}, "type": {"S": "BALANCE#ECOPAY"}},
        "UpdateExpression": "ADD balance :delta",
        "ConditionExpression": "attribute_exists(balance) AND balance >= :least",
        "ExpressionAttributeValues": {":delta": {"N": str(delta)}, ":least": {"N": str(max(0, -delta))}},
    }
    return {"Update": update}


def _row(card: str, delta: int) -> dict[str, Any]:
    item = {"uuid": {"S": card}, "type": {"S": "history#1"}, "amount": {"N": str(delta)}}
    return {"Put": {"TableName": "wallet", "Item": item, "ConditionExpression": "attribute_not_exists(balance)"}}
