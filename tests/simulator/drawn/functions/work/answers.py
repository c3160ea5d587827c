"""Answers to tasks that wait in states of the user's own: late, twice, with a failure, or never."""

from __future__ import annotations

import json
import random
import time
import zlib
from typing import Any

import boto3
from botocore.exceptions import ClientError

_LOST = 0.1
_REFUSED = 6
"""One of so many steps that may be refused is."""


def handler(batch: dict[str, Any], _context: Any) -> None:
    """Answer each task, as far as it waits."""
    for record in batch["Records"]:
        message = json.loads(record["body"])
        if random.random() >= _LOST:
            time.sleep(random.random() ** 4 * 12)
            _answer(message["token"], message["key"], refusable=message["refusable"])


def _answer(token: str, key: str, *, refusable: bool) -> None:
    tasks = boto3.client("stepfunctions")
    try:
        if refusable and zlib.crc32(key.encode()) % _REFUSED == 0:
            tasks.send_task_failure(taskToken=token, error="SoldOut", cause="sold out")
        else:
            tasks.send_task_success(taskToken=token, output=json.dumps({"answered": key}))
    except ClientError as error:
        if error.response["Error"]["Code"] not in ("TaskTimedOut", "InvalidToken", "TaskDoesNotExist"):
            raise
