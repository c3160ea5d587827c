"""Debit and credit, each once per key: a marker and the balance in one transaction."""

import os
from typing import Any

import boto3

dynamodb = boto3.client("dynamodb")


def debit(event: dict[str, Any], _context: Any) -> dict[str, Any]:
    """Take the amount."""
    _post(event["key"], "debit", event["request"]["from"], -int(event["request"]["amount"]))
    return {}


def credit(event: dict[str, Any], _context: Any) -> dict[str, Any]:
    """Put the amount."""
    _post(event["key"], "credit", event["request"]["to"], int(event["request"]["amount"]))
    return {}


def change_of(table: str, account: str, amount: int) -> dict[str, Any]:
    """The change of one balance."""
    return {
        "TableName": table,
        "Key": {"id": {"S": account}},
        "UpdateExpression": "ADD balance :amount",
        "ConditionExpression": "attribute_exists(id) AND balance >= :least",
        "ExpressionAttributeValues": {":amount": {"N": str(amount)}, ":least": {"N": str(max(0, -amount))}},
    }


def _post(key: str, step: str, account: str, amount: int) -> None:
    table = os.environ["ACCOUNT_TABLE"]
    marker: Any = {
        "TableName": table,
        "Item": {"id": {"S": f"done#{key}#{step}"}},
        "ConditionExpression": "attribute_not_exists(id)",
    }
    change: Any = change_of(table, account, amount)
    dynamodb.transact_write_items(TransactItems=[{"Put": marker}, {"Update": change}])
