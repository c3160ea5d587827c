"""Debit and credit, each with the decorator, which has the marker: one table, a record per key and function."""

import os
from typing import Any

from aws_lambda_powertools.utilities.idempotency import DynamoDBPersistenceLayer, IdempotencyConfig, idempotent

from .steps import change_of, dynamodb

persistence = DynamoDBPersistenceLayer(table_name=os.environ["IDEMPOTENCY_TABLE"])
config = IdempotencyConfig(event_key_jmespath="key", raise_on_no_idempotency_key=True)


@idempotent(config=config, persistence_store=persistence)
def debit(event: dict[str, Any], _context: Any) -> dict[str, Any]:
    """Take the amount."""
    _change(event["request"]["from"], -int(event["request"]["amount"]))
    return {}


@idempotent(config=config, persistence_store=persistence)
def credit(event: dict[str, Any], _context: Any) -> dict[str, Any]:
    """Put the amount."""
    _change(event["request"]["to"], int(event["request"]["amount"]))
    return {}


def _change(account: str, amount: int) -> None:
    arguments: Any = change_of(os.environ["ACCOUNT_TABLE"], account, amount)
    dynamodb.update_item(**arguments)
