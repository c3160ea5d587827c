"""The smallest gatekeeper with Powertools' ``@idempotent``: same table, same key, no saga."""

from __future__ import annotations

import os
from typing import Any

from aws_lambda_powertools.utilities.idempotency import DynamoDBPersistenceLayer, IdempotencyConfig, idempotent

persistence = DynamoDBPersistenceLayer(table_name=os.environ["CDK_SAGAS_REQUEST_TABLE"])
config = IdempotencyConfig(event_key_jmespath='headers."Idempotency-Key"', raise_on_no_idempotency_key=True)


@idempotent(config=config, persistence_store=persistence)
def handler(event: dict[str, Any], _context: Any) -> dict[str, Any]:
    """Answer; the decorator does the rest."""
    return {"statusCode": 202, "headers": {"Content-Type": "application/json"}, "body": event["body"]}
