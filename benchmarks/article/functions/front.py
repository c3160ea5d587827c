"""Look the key up, reserve it, start."""

import json
import os
import time
from typing import Any

import boto3

dynamodb = boto3.client("dynamodb")
step_functions = boto3.client("stepfunctions")


def handler(event: dict[str, Any], _context: Any) -> dict[str, Any]:
    """Answer a request."""
    key = next(value for name, value in event["headers"].items() if name.lower() == "idempotency-key")
    table = os.environ["IDEMPOTENCY_TABLE"]
    found = dynamodb.get_item(TableName=table, Key={"id": {"S": key}}, ConsistentRead=True).get("Item")
    if found is not None:
        status = found["status"]["S"]
        return _answer(200 if status == "COMPLETED" else 409, {"status": status})
    try:
        dynamodb.put_item(
            TableName=table,
            Item={
                "id": {"S": key},
                "status": {"S": "IN_PROGRESS"},
                "expiration": {"N": str(int(time.time()) + 86_400)},
            },
            ConditionExpression="attribute_not_exists(id)",
        )
    except dynamodb.exceptions.ConditionalCheckFailedException:
        return _answer(409, {"status": "IN_PROGRESS"})
    step_functions.start_execution(
        stateMachineArn=os.environ["STATE_MACHINE_ARN"],
        input=json.dumps({"key": key, "request": json.loads(event["body"])}),
    )
    return _answer(202, {"status": "IN_PROGRESS"})


def _answer(status: int, body: dict[str, Any]) -> dict[str, Any]:
    return {"statusCode": status, "headers": {"Content-Type": "application/json"}, "body": json.dumps(body)}
