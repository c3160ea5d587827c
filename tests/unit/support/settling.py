"""Updates of a request record, as the state machines make them; ``test_record_updates`` holds them to that."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from saga_runtime.idempotency import record
from saga_runtime.idempotency.record import RequestRecord
from saga_runtime.protocol import FIRST_SHARD, Direction, RecordAttribute, RecordStatus
from saga_runtime.recovery import takeover as recovery
from tests.unit.support.samples import DUE_AFTER_MS

REPLAY_SECONDS = 7 * 86_400
REMEMBER_SECONDS = 400 * 86_400
NO_OTHER_DIRECTION = "(attribute_not_exists(#direction) OR #direction = :direction)"


def settle(*, request_id: str, execution: str, status: RecordStatus, now_ms: int, body: str = "{}") -> dict[str, Any]:
    """The settled response: status, body, and expirations; the reconciler need not check the record again."""
    a = RecordAttribute
    return _owned(
        request_id,
        execution,
        "SET #status = :settled, #http_status = :http_status, #response = :body, #updated_at = :now, "
        "#expiration = :expiration, #response_expires_at = :response_expires_at, "
        "#response_shard = if_not_exists(#due_shard, :shard) REMOVE #due_at, #due_shard",
        (
            a.HTTP_STATUS,
            a.RESPONSE,
            a.UPDATED_AT,
            a.EXPIRATION,
            a.RESPONSE_EXPIRES_AT,
            a.DUE_AT,
            a.DUE_SHARD,
            a.RESPONSE_SHARD,
        ),
        {
            ":settled": {"S": status},
            ":http_status": {"N": "200" if status is RecordStatus.COMPLETED else "422"},
            ":body": {"S": body},
            ":now": {"N": str(now_ms)},
            ":expiration": {"N": str(now_ms // 1000 + REMEMBER_SECONDS)},
            ":response_expires_at": {"N": str(now_ms // 1000 + REPLAY_SECONDS)},
            ":shard": {"S": FIRST_SHARD},
        },
    )


def park(*, request_id: str, execution: str, now_ms: int, waits: bool = False) -> dict[str, Any]:
    """Leave the saga to a person; of a saga that waits for callbacks, unless one has come meanwhile."""
    a = RecordAttribute
    return _owned(
        request_id,
        execution,
        "SET #parked_by = :owner, #parked_at = :now, #parked_reason = :parked_reason, #updated_at = :now",
        (a.PARKED_BY, a.PARKED_AT, a.PARKED_REASON, a.UPDATED_AT, *([a.LATE_OUTCOME_AT] if waits else [])),
        {":now": {"N": str(now_ms)}, ":parked_reason": {"S": "{}"}},
        also="attribute_not_exists(#late_outcome_at)" if waits else "",
    )


def direct(*, request_id: str, execution: str, direction: Direction, now_ms: int) -> dict[str, Any]:
    """Write the direction, once."""
    a = RecordAttribute
    update = "SET #direction = :direction, #updated_at = :now"
    values: dict[str, Any] = {":direction": {"S": direction}, ":now": {"N": str(now_ms)}}
    names = [a.DIRECTION, a.UPDATED_AT]
    if direction is Direction.COMPENSATE:
        update += ", #failure = if_not_exists(#failure, :failure)"
        names.append(a.FAILURE)
        values[":failure"] = {"S": "{}"}
    return _owned(request_id, execution, update, names, values, also=NO_OTHER_DIRECTION)


def note_definition(*, request_id: str, execution: str, definition: str, now_ms: int) -> dict[str, Any]:
    """Record the definition under which the saga continues."""
    a = RecordAttribute
    update = "SET #definition = :definition, #updated_at = :now"
    values = {":definition": {"S": definition}, ":now": {"N": str(now_ms)}}
    return _owned(request_id, execution, update, (a.DEFINITION, a.UPDATED_AT), values)


def take_over(found: RequestRecord, now_ms: int) -> dict[str, Any]:
    """Make a further execution the owner."""
    return {"TableName": "requests", **recovery.take_over_update(found, now_ms, DUE_AFTER_MS)}


def _owned(
    request_id: str,
    owner: str,
    update: str,
    names: tuple[RecordAttribute, ...] | list[RecordAttribute],
    values: Mapping[str, Any],
    *,
    also: str | None = None,
) -> dict[str, Any]:
    condition = f"{record.OWNED} AND {also}" if also else record.OWNED
    used = {**record.OWNED_NAMES, **{f"#{name}": name for name in names}}
    owned = {":in_progress": {"S": RecordStatus.IN_PROGRESS}, ":owner": {"S": owner}}
    return with_used_placeholders(
        {
            "TableName": "requests",
            "Key": {RecordAttribute.ID: {"S": request_id}},
            "UpdateExpression": update,
            "ConditionExpression": condition,
            "ExpressionAttributeNames": used,
            "ExpressionAttributeValues": {**owned, **values},
        }
    )


def with_used_placeholders(arguments: dict[str, Any]) -> dict[str, Any]:
    """The arguments without placeholders that nothing uses: DynamoDB refuses those."""
    text = f"{arguments.get('UpdateExpression', '')} {arguments.get('ConditionExpression', '')} "
    used = {word.strip(",()") for word in text.replace("(", " ").split()}
    return {
        name: {key: value for key, value in part.items() if key in used}
        if name in {"ExpressionAttributeNames", "ExpressionAttributeValues"}
        else part
        for name, part in arguments.items()
    }
