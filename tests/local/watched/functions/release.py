"""Gives a supplier free again whose import timed out, or was stopped."""

import json
import os
from typing import Any

import boto3
from botocore.exceptions import ClientError

LOCKS = boto3.resource("dynamodb").Table(os.environ["LOCKS"])


def handler(event: dict[str, Any], context: object) -> None:
    """Called until it returns; as often as it takes, with the same `id`."""
    supplier = json.loads(event["input"])["supplier"]
    print(f"{supplier} {event['status']} {event['attempt']} {event['id']}")
    try:
        LOCKS.delete_item(
            Key={"supplier": supplier},
            ConditionExpression="holder = :dead",
            ExpressionAttributeValues={":dead": event["execution_arn"]},
        )
    except ClientError as error:
        if error.response["Error"]["Code"] != "ConditionalCheckFailedException":
            raise  # it is called again
