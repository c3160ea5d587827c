"""The API's function: stores what it gets and starts the state machine."""

import json
import os
import time
from pathlib import Path
from typing import Any

import boto3

_dynamodb = boto3.client("dynamodb")
_states = boto3.client("stepfunctions")


def handler(event: dict[str, Any], context: object) -> Any:
    print("front got", event["path"])
    if event["path"] == "/open":
        headers = {"Content-Type": "text/html; charset=utf-8", "X-Frame-Options": "DENY"}
        return {"statusCode": 200, "headers": headers, "body": json.dumps(event)}
    body = json.loads(event["body"] or "{}")
    match body.get("answer"):
        case "raise":
            raise ValueError("as requested")
        case "no-status":
            return {"body": "x"}
        case "object-body":
            return {"statusCode": 200, "body": {}}
        case "a-list":
            return [1]
    if "began" in body:
        Path(body["began"]).touch()
    if "sleep" in body:
        time.sleep(body["sleep"])
    if event["path"] == "/things":
        _dynamodb.put_item(TableName=os.environ["TABLE"], Item={"id": {"S": body["id"]}})
        _states.start_execution(stateMachineArn=os.environ["MACHINE"], name=body["id"], input=json.dumps(body))
    answer = {"identity": event["requestContext"]["identity"], "environment": dict(os.environ)}
    return {"statusCode": 202, "headers": {"x-own": "yes"}, "body": json.dumps(answer)}
