"""A queue's consumer: of each event once, however often it comes."""

from __future__ import annotations

import json
import os
import random
from typing import Any

from saga_runtime import Commit, VersionedItem, Write, commit_once

TABLE = os.environ["CONSUMED_TABLE"]


def handler(batch: dict[str, Any], _context: Any) -> None:
    """Count each event, together with the marker of its id."""
    for record in batch["Records"]:
        _consume(json.loads(record["body"])["detail"]["event_id"])


def _consume(event_id: str) -> None:
    count = {
        "TableName": TABLE,
        "Key": {"id": {"S": event_id}},
        "UpdateExpression": "ADD times :one",
        "ExpressionAttributeValues": {":one": {"N": "1"}},
    }

    def plan() -> Commit:
        if random.random() < 0.05:
            raise KeyError("a mistake")
        return Commit(writes=[Write(action={"Update": count})], output={"of": event_id})

    marker = VersionedItem(table=TABLE, key={"id": {"S": f"marker {event_id}"}})
    outcome = commit_once(plan, marker=marker, request={"event": event_id})
    if outcome.output != {"of": event_id}:
        raise AssertionError(f"{event_id} was consumed as {outcome.output}")
