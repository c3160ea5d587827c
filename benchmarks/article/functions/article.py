"""Put the key, start, write the execution's ARN."""

import json
import os
import time
import uuid
from typing import Any

import boto3

dynamodb = boto3.client("dynamodb")
step_functions = boto3.client("stepfunctions")
SEVEN_DAYS = 7 * 86_400


def handler(event: dict[str, Any], _context: Any) -> dict[str, Any]:
    """Answer a request."""
    key = next(value for name, value in event["headers"].items() if name.lower() == "idempotency-key")
    found = reserve(key)
    if found is not None:
        status = found["status"]["S"]
        return answer(200 if status == "COMPLETED" else 409, {"key": key, "status": status})
    table = os.environ["IDEMPOTENCY_TABLE"]
    try:
        started = step_functions.start_execution(
            stateMachineArn=os.environ["STATE_MACHINE_ARN"],
            name=str(uuid.uuid4()),
            input=json.dumps({"key": key, "request": json.loads(event["body"])}),
        )
        dynamodb.update_item(
            TableName=table,
            Key={"id": {"S": key}},
            UpdateExpression="SET executionArn = :arn",
            ExpressionAttributeValues={":arn": {"S": started["executionArn"]}},
        )
    except Exception:
        dynamodb.delete_item(TableName=table, Key={"id": {"S": key}})
        raise
    return answer(202, {"key": key, "executionArn": started["executionArn"]})


def reserve(key: str) -> dict[str, Any] | None:
    """Reserve a key; the item that has it already."""
    table = os.environ["IDEMPOTENCY_TABLE"]
    expiration = {"N": str(int(time.time()) + SEVEN_DAYS)}
    try:
        dynamodb.put_item(
            TableName=table,
            Item={"id": {"S": key}, "status": {"S": "IN_PROGRESS"}, "expiration": expiration},
            ConditionExpression="attribute_not_exists(id)",
        )
    except dynamodb.exceptions.ConditionalCheckFailedException:
        found: Any = dynamodb.get_item(TableName=table, Key={"id": {"S": key}}).get("Item")
        return dict(found)
    return None


def answer(status: int, body: dict[str, Any]) -> dict[str, Any]:
    """A response of the API."""
    return {"statusCode": status, "headers": {"Content-Type": "application/json"}, "body": json.dumps(body)}
