"""Updates of a request record, as state machine and recovery make them; ``test_record_updates`` holds them to that."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from saga_runtime import record
from saga_runtime.protocol import RecordAttribute, RecordStatus

RETENTION_SECONDS = 7 * 86_400


def settle(*, request_id: str, execution: str, status: RecordStatus, now_ms: int, body: str = "{}") -> dict[str, Any]:
    """The final answer: status, body, retention; nobody has to look at the record again."""
    a = RecordAttribute
    return _owned(
        request_id,
        execution,
        "SET #status = :settled, #http_status = :http_status, #body = :body, #updated_at = :now, "
        "#expiration = :expiration REMOVE #due_at, #due_shard",
        (a.HTTP_STATUS, a.BODY, a.UPDATED_AT, a.EXPIRATION, a.DUE_AT, a.DUE_SHARD),
        {
            ":settled": {"S": status.value},
            ":http_status": {"N": "200" if status is RecordStatus.COMPLETED else "422"},
            ":body": {"S": body},
            ":now": {"N": str(now_ms)},
            ":expiration": {"N": str(now_ms // 1000 + RETENTION_SECONDS)},
        },
    )


def park(*, request_id: str, execution: str, now_ms: int) -> dict[str, Any]:
    """Leave the saga to a person."""
    a = RecordAttribute
    return _owned(
        request_id,
        execution,
        "SET #parked = :execution, #parked_at = :now, #updated_at = :now",
        (a.PARKED, a.PARKED_AT, a.UPDATED_AT),
        {":execution": {"S": execution}, ":now": {"N": str(now_ms)}},
    )


def take_over(*, request_id: str, owner: str, successor: str, now_ms: int, due_at: int) -> dict[str, Any]:
    """Make a further execution the owner."""
    a = RecordAttribute
    return _owned(
        request_id,
        owner,
        "SET #owner = :successor, #due_at = :due_at, #updated_at = :now",
        (a.DUE_AT, a.UPDATED_AT),
        {":successor": {"S": successor}, ":due_at": {"N": str(due_at)}, ":now": {"N": str(now_ms)}},
    )


def look_later(*, request_id: str, owner: str, now_ms: int, due_at: int) -> dict[str, Any]:
    """Move the time on at which somebody looks again."""
    a = RecordAttribute
    return _owned(
        request_id,
        owner,
        "SET #due_at = :due_at, #updated_at = :now",
        (a.DUE_AT, a.UPDATED_AT),
        {":due_at": {"N": str(due_at)}, ":now": {"N": str(now_ms)}},
    )


def _owned(
    request_id: str, owner: str, update: str, names: tuple[RecordAttribute, ...], values: Mapping[str, Any]
) -> dict[str, Any]:
    used: dict[str, Any] = {"#id": RecordAttribute.ID.value, "#status": RecordAttribute.STATUS.value} | {
        "#owner": RecordAttribute.OWNER.value
    }
    owned = {":in_progress": {"S": RecordStatus.IN_PROGRESS.value}, ":owner": {"S": owner}}
    text = f"{update} {record.OWNED}"
    return {
        "TableName": "requests",
        "Key": {RecordAttribute.ID.value: {"S": request_id}},
        "UpdateExpression": update,
        "ConditionExpression": record.OWNED,
        # A mutant's condition needs fewer placeholders, and DynamoDB refuses those that nothing uses.
        "ExpressionAttributeNames": {
            key: name for key, name in (used | {f"#{n.value}": n.value for n in names}).items() if key in text
        },
        "ExpressionAttributeValues": {key: value for key, value in {**owned, **values}.items() if key in text},
    }
