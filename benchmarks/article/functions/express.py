"""Put the key, run an Express execution to its end, write the result."""

import json
import os
from typing import Any

from .article import answer, dynamodb, reserve, step_functions


def handler(event: dict[str, Any], _context: Any) -> dict[str, Any]:
    """Answer a request with its result."""
    key = next(value for name, value in event["headers"].items() if name.lower() == "idempotency-key")
    found = reserve(key)
    if found is not None:
        done = "result" in found
        return answer(200 if done else 409, json.loads(found["result"]["S"]) if done else {"key": key})
    request = json.loads(event["body"])
    ended = step_functions.start_sync_execution(
        stateMachineArn=os.environ["STATE_MACHINE_ARN"], input=json.dumps({"key": key, "request": request})
    )
    if ended["status"] != "SUCCEEDED":
        return answer(500, {"key": key, "error": ended.get("error")})
    dynamodb.update_item(
        TableName=os.environ["IDEMPOTENCY_TABLE"],
        Key={"id": {"S": key}},
        UpdateExpression="SET #status = :completed, #result = :result",
        ExpressionAttributeNames={"#status": "status", "#result": "result"},
        ExpressionAttributeValues={":completed": {"S": "COMPLETED"}, ":result": {"S": json.dumps(request)}},
    )
    return answer(200, request)
