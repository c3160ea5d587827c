"""Progress of a saga, from its log."""

from __future__ import annotations

from typing import Any

from saga_runtime.protocol import LogAttribute
from saga_runtime.shared import aws


def steps_of(log_table: str, saga_id: str) -> list[dict[str, Any]]:
    """The saga's log, in the order in which rows last changed. Outputs stay in the log: they may hold internals."""
    a = LogAttribute
    rows: list[dict[str, Any]] = []
    pages = (
        aws.dynamodb()
        .get_paginator("query")
        .paginate(
            TableName=log_table,
            ConsistentRead=True,
            KeyConditionExpression="#saga_id = :saga_id",
            ProjectionExpression="#step,#status,#updated_at",
            ExpressionAttributeNames={f"#{x}": x for x in (a.SAGA_ID, a.STEP, a.STATUS, a.UPDATED_AT)},
            ExpressionAttributeValues={":saga_id": {"S": saga_id}},
        )
    )
    for page in pages:
        for item in page["Items"]:
            at = int(item[a.UPDATED_AT]["N"])
            rows.append({"step": item[a.STEP]["S"], "status": item[a.STATUS]["S"], "at_ms": at})
    return sorted(rows, key=lambda row: (row["at_ms"], row["step"]))
