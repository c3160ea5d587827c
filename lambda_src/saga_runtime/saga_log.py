"""Decisions about saga log rows of atomic steps. Pure: data in, data out.

::

    (no row) --step--> DONE --compensation--> UNDONE
    (no row) --compensation--> TOMBSTONE        a step that comes later finds it, and stops
    (no row) --passed over--> TOMBSTONE with an output        a step that comes later answers with that output

The row and the step's effect are written in ONE transaction: neither exists without the other.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, Final

from saga_runtime.protocol import LogAttribute, StepStatus

NO_ROW: Final = "attribute_not_exists(#saga_id)"
STILL_DONE: Final = "#status = :done"

_SECOND_MS: Final = 1000
_DAY_SECONDS: Final = 86_400


@dataclass(frozen=True, slots=True, kw_only=True)
class LogRow:
    """A saga log row, read back."""

    saga_id: str
    step: str
    status: StepStatus
    output: str | None
    updated_at: int

    @classmethod
    def from_item(cls, item: Mapping[str, Mapping[str, Any]]) -> LogRow:
        """Read an item.

        Raises:
            ValueError: if the item is not a log row.
        """
        a = LogAttribute
        try:
            return cls(
                saga_id=item[a.SAGA_ID]["S"],
                step=item[a.STEP]["S"],
                status=StepStatus(item[a.STATUS]["S"]),
                output=item[a.OUTPUT]["S"] if a.OUTPUT in item else None,
                updated_at=int(item[a.UPDATED_AT]["N"]),
            )
        except KeyError as error:
            raise ValueError(f"not a saga log row: attribute {error} is missing") from error


def log_key(saga_id: str, step: str) -> dict[str, dict[str, str]]:
    """Primary key of a row."""
    return {LogAttribute.SAGA_ID.value: {"S": saga_id}, LogAttribute.STEP.value: {"S": step}}


def done_put(*, table: str, saga_id: str, step: str, attempt: str, output: str, now_ms: int, keep_days: int) -> Any:
    """The row of a step that took effect, as one entry of the transaction that makes it take effect."""
    return _new_row(table, saga_id, step, StepStatus.DONE, now_ms, keep_days, attempt=attempt, output=output)


def tombstone_put(*, table: str, saga_id: str, step: str, attempt: str, now_ms: int, keep_days: int) -> Any:
    """The row of a step that must never take effect, because it was compensated before it ran."""
    return _new_row(table, saga_id, step, StepStatus.TOMBSTONE, now_ms, keep_days, attempt=attempt, output=None)


def undone_update(*, table: str, saga_id: str, step: str, attempt: str, now_ms: int) -> Any:
    """The row of a step that is undone, as one entry of the transaction that undoes it."""
    a = LogAttribute
    return {
        "Update": {
            "TableName": table,
            "Key": log_key(saga_id, step),
            "UpdateExpression": "SET #status = :undone, #attempt = :attempt, #updated_at = :now",
            "ConditionExpression": STILL_DONE,
            "ExpressionAttributeNames": {
                "#status": a.STATUS.value,
                "#attempt": a.ATTEMPT.value,
                "#updated_at": a.UPDATED_AT.value,
            },
            "ExpressionAttributeValues": {
                ":undone": {"S": StepStatus.UNDONE.value},
                ":done": {"S": StepStatus.DONE.value},
                ":attempt": {"S": attempt},
                ":now": {"N": str(now_ms)},
            },
            "ReturnValuesOnConditionCheckFailure": "ALL_OLD",
        }
    }


def _new_row(
    table: str,
    saga_id: str,
    step: str,
    status: StepStatus,
    now_ms: int,
    keep_days: int,
    *,
    attempt: str,
    output: str | None,
) -> Any:
    a = LogAttribute
    item = {
        **log_key(saga_id, step),
        a.STATUS.value: {"S": status.value},
        a.ATTEMPT.value: {"S": attempt},
        a.CREATED_AT.value: {"N": str(now_ms)},
        a.UPDATED_AT.value: {"N": str(now_ms)},
        a.EXPIRATION.value: {"N": str(now_ms // _SECOND_MS + keep_days * _DAY_SECONDS)},
    }
    if output is not None:
        item[a.OUTPUT.value] = {"S": output}
    return {
        "Put": {
            "TableName": table,
            "Item": item,
            "ConditionExpression": NO_ROW,
            "ExpressionAttributeNames": {"#saga_id": a.SAGA_ID.value},
            "ReturnValuesOnConditionCheckFailure": "ALL_OLD",
        }
    }


class StepEntry(StrEnum):
    """What a step does about the row that it found."""

    RUN = "RUN"
    REPLAY = "REPLAY"
    FENCED = "FENCED"


def entry_of(row: LogRow | None) -> StepEntry:
    """Decide a step's way from its row."""
    if row is None:
        return StepEntry.RUN
    passed_over = row.status is StepStatus.TOMBSTONE and row.output is not None
    return StepEntry.REPLAY if row.status is StepStatus.DONE or passed_over else StepEntry.FENCED


class UndoEntry(StrEnum):
    """What a compensation does about the row that it found."""

    BURY = "BURY"
    """No row: write a tombstone."""
    UNDO = "UNDO"
    NOTHING = "NOTHING"


def undo_entry_of(row: LogRow | None) -> UndoEntry:
    """Decide a compensation's way from the step's row. Whatever the row says, running a compensation is safe."""
    if row is None:
        return UndoEntry.BURY
    return UndoEntry.UNDO if row.status is StepStatus.DONE else UndoEntry.NOTHING
