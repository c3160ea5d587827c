"""Debit, credit, and the last word."""

import json
import os
from typing import Any

import boto3

dynamodb = boto3.client("dynamodb")


def debit(event: dict[str, Any], _context: Any) -> dict[str, Any]:
    """Take the amount, once per key."""
    request = event["request"]
    _post(event["key"], "debit", request["from"], -int(request["amount"]))
    return event


def credit(event: dict[str, Any], _context: Any) -> dict[str, Any]:
    """Put the amount, once per key."""
    request = event["request"]
    _post(event["key"], "credit", request["to"], int(request["amount"]))
    return event


def complete(event: dict[str, Any], _context: Any) -> dict[str, Any]:
    """Write the answer."""
    dynamodb.update_item(
        TableName=os.environ["IDEMPOTENCY_TABLE"],
        Key={"id": {"S": event["key"]}},
        UpdateExpression="SET #status = :completed, #response = :response",
        ExpressionAttributeNames={"#status": "status", "#response": "response"},
        ExpressionAttributeValues={":completed": {"S": "COMPLETED"}, ":response": {"S": json.dumps(event)}},
    )
    return event


def _post(key: str, step: str, account: str, amount: int) -> None:
    table = os.environ["ACCOUNT_TABLE"]
    dynamodb.transact_write_items(
        TransactItems=[
            {
                "Put": {
                    "TableName": table,
                    "Item": {"id": {"S": f"done#{key}#{step}"}},
                    "ConditionExpression": "attribute_not_exists(id)",
                }
            },
            {
                "Update": {
                    "TableName": table,
                    "Key": {"id": {"S": account}},
                    "UpdateExpression": "ADD balance :amount",
                    "ConditionExpression": "attribute_exists(id) AND balance >= :least",
                    "ExpressionAttributeValues": {
                        ":amount": {"N": str(amount)},
                        ":least": {"N": str(max(0, -amount))},
                    },
                }
            },
        ]
    )
