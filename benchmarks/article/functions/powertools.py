"""Start once for a key: the decorator keeps the response."""

import json
import os
import uuid
from typing import Any

import boto3
from aws_lambda_powertools.utilities.idempotency import DynamoDBPersistenceLayer, IdempotencyConfig, idempotent

step_functions = boto3.client("stepfunctions")
persistence = DynamoDBPersistenceLayer(table_name=os.environ["IDEMPOTENCY_TABLE"])
config = IdempotencyConfig(event_key_jmespath='headers."Idempotency-Key"', raise_on_no_idempotency_key=True)


@idempotent(config=config, persistence_store=persistence)
def handler(event: dict[str, Any], _context: Any) -> dict[str, Any]:
    """Answer a request."""
    key = event["headers"]["Idempotency-Key"]
    started = step_functions.start_execution(
        stateMachineArn=os.environ["STATE_MACHINE_ARN"],
        name=str(uuid.uuid4()),
        input=json.dumps({"key": key, "request": json.loads(event["body"])}),
    )
    body = json.dumps({"key": key, "executionArn": started["executionArn"]})
    return {"statusCode": 202, "headers": {"Content-Type": "application/json"}, "body": body}
