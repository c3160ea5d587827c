"""Notices to the customers: the messages in the queue."""

from __future__ import annotations

import json
from typing import Any

from constructs_lib.testing import LocalAws


def drain(aws: LocalAws, queue_url: str) -> list[dict[str, Any]]:
    """Take every message out of a queue, and return their bodies."""
    sqs = aws.client("sqs")
    bodies: list[dict[str, Any]] = []
    while messages := sqs.receive_message(QueueUrl=queue_url, MaxNumberOfMessages=10).get("Messages"):
        bodies += [json.loads(message["Body"]) for message in messages]
        sqs.delete_message_batch(
            QueueUrl=queue_url,
            Entries=[{"Id": str(n), "ReceiptHandle": m["ReceiptHandle"]} for n, m in enumerate(messages)],
        )
    return bodies
