"""The payment with Powertools' ``@idempotent`` around its transaction: what a user writes without this library."""

from __future__ import annotations

import json
import os
from typing import Any

from aws_lambda_powertools.utilities.idempotency import DynamoDBPersistenceLayer, IdempotencyConfig, idempotent

from benchmarks.direct_writes import writes

persistence = DynamoDBPersistenceLayer(table_name=os.environ["CDK_SAGAS_REQUEST_TABLE"])
config = IdempotencyConfig(event_key_jmespath='headers."Idempotency-Key"', raise_on_no_idempotency_key=True)


@idempotent(config=config, persistence_store=persistence)
def handler(event: dict[str, Any], _context: Any) -> dict[str, Any]:
    """Pay, and answer; the decorator does the rest."""
    entries: Any = writes(json.loads(event["body"]))
    persistence.client.transact_write_items(TransactItems=entries)
    return {"statusCode": 200, "headers": {"Content-Type": "application/json"}, "body": '{"paid": 100}'}
