"""Saga log rows, and the decisions about those of atomic steps. Pure: data in, data out.

::

    (no row) --step--> DONE --compensation--> COMPENSATED
    (no row) --compensation--> TOMBSTONE        a step that comes later finds it, and stops
    (no row) --skipped--> TOMBSTONE with an output            a step that comes later returns that output
    TOMBSTONE, REFUSED --a provider did it after all--> APPLIED_LATE --compensation--> COMPENSATED

The row and the step's effect are written in ONE transaction: neither exists without the other. Rows of external steps
have a life of their own: ``external_rows``.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, Final

from saga_runtime.protocol import LogAttribute, Side, StepStatus
from saga_runtime.shared.expressions import RETURNS_ITEM, update, when

NO_ROW: Final = "attribute_not_exists(#saga_id)"
STILL_DONE: Final = "#status = :done"
"""Still in force as it was found: ``DONE``, or ``APPLIED_LATE``."""
SAME_END: Final = "#expiration = :ends"
"""It exists, and was not extended since it was read."""
UNDER_WAY: Final = (StepStatus.INTENT, StepStatus.COMPENSATING)
"""A provider is being called, or was; the row's deadline shows which."""

TOOK_EFFECT_AND_FELL: Final = (StepStatus.APPLIED_LATE, StepStatus.COMPENSATING, StepStatus.COMPENSATED)
"""The step took effect, and that is undone, or will be."""
STANDS: Final = (StepStatus.DONE, StepStatus.APPLIED_LATE)
"""The step is applied, and its compensation has not begun."""

KEEP_DAYS: Final = 60
"""A row that something still needs is kept for so long from now, again and again: when half of it is left."""
_SECOND_MS: Final = 1000
_DAY_SECONDS: Final = 86_400


@dataclass(frozen=True, slots=True, kw_only=True)
class LogRow:
    """A saga log row, read back.

    Attributes:
        step: the sort key: the step's name, with the item's key in a map.
        attempt: who wrote the row last.
        deadline: of an external step: epoch milliseconds at which that attempt is certainly dead. It only grows.
        first_attempt_at: of an external step: when the provider may have been asked first; of its undo, while undoing.
        error, detail: of a step that was refused: the error's name and its message.
        accepted_at: of a job: epoch milliseconds at which its provider accepted it; 0: unknown.
        instead: substitute output of a skipped step that was applied late.
        expiration: epoch seconds at which the row expires; 0: never.
    """

    saga_id: str
    step: str
    status: StepStatus
    output: str | None
    updated_at: int
    attempt: str = ""
    deadline: int = 0
    first_attempt_at: int = 0
    error: str = ""
    detail: str = ""
    accepted_at: int = 0
    instead: str | None = None
    expiration: int = 0

    @property
    def answer(self) -> str | None:
        """Output of a step that finds this row; None: the row has none.

        A saga that continued without a step continues without it, whatever happens to the step afterwards.
        """
        if self.status is StepStatus.DONE:
            return self.output or "{}"
        if self.status is StepStatus.TOMBSTONE:
            return self.output
        return self.instead if self.status in TOOK_EFFECT_AND_FELL else None

    @classmethod
    def from_item(cls, item: Mapping[str, Mapping[str, Any]]) -> LogRow:
        """Read an item.

        Raises:
            ValueError: if the item is not a log row, or one of an attempt with an unknown end.
        """
        a = LogAttribute
        try:
            row = cls(
                saga_id=item[a.SAGA_ID]["S"],
                step=item[a.STEP]["S"],
                status=StepStatus(item[a.STATUS]["S"]),
                output=item[a.OUTPUT]["S"] if a.OUTPUT in item else None,
                updated_at=int(item[a.UPDATED_AT]["N"]),
                attempt=item[a.ATTEMPT_ID]["S"] if a.ATTEMPT_ID in item else "",
                deadline=int(item[a.DEADLINE]["N"]) if a.DEADLINE in item else 0,
                first_attempt_at=int(item[a.FIRST_ATTEMPT_AT]["N"]) if a.FIRST_ATTEMPT_AT in item else 0,
                error=item[a.ERROR]["S"] if a.ERROR in item else "",
                detail=item[a.DETAIL]["S"] if a.DETAIL in item else "",
                accepted_at=int(item[a.ACCEPTED_AT]["N"]) if a.ACCEPTED_AT in item else 0,
                instead=item[a.SUBSTITUTE]["S"] if a.SUBSTITUTE in item else None,
                expiration=int(item[a.EXPIRATION]["N"]) if a.EXPIRATION in item else 0,
            )
        except KeyError as error:
            raise ValueError(f"not a saga log row: attribute {error} is missing") from error
        if row.status in UNDER_WAY and not (row.attempt and row.deadline and row.first_attempt_at):
            # Without them the row would look like one of an attempt that died long ago.
            raise ValueError(
                f"a row that is {row.status} needs attempt, deadline and first_attempt_at; none may be empty"
            )
        return row


def log_key(saga_id: str, row_name: str) -> dict[str, dict[str, str]]:
    """Primary key of a row; its name is the step's, with the item's key in a map (``identity.row_name_of``)."""
    return {LogAttribute.SAGA_ID: {"S": saga_id}, LogAttribute.STEP: {"S": row_name}}


def done_put(
    *, table: str, saga_id: str, step: str, side: Side, attempt: str, output: str, now_ms: int, keep_days: int
) -> Any:
    """The row of a step that took effect, as one entry of the transaction that makes it take effect."""
    extra = {LogAttribute.OUTPUT: {"S": output}}
    return row_put(table, saga_id, step, StepStatus.DONE, side, now_ms, keep_days, attempt, extra)


def tombstone_put(*, table: str, saga_id: str, step: str, side: Side, attempt: str, now_ms: int, keep_days: int) -> Any:
    """The row of a step that must never take effect, because it was compensated before it ran."""
    return row_put(table, saga_id, step, StepStatus.TOMBSTONE, side, now_ms, keep_days, attempt, {})


def undone_update(
    *, table: str, saga_id: str, step: str, attempt: str, now_ms: int, found: StepStatus = StepStatus.DONE
) -> Any:
    """The row of a step that is undone, as one entry of the transaction that undoes it.

    On condition that the row is still as it was found: ``DONE``, or ``APPLIED_LATE``.
    """
    a = LogAttribute
    sets: dict[LogAttribute, Any] = {
        a.STATUS: {"S": StepStatus.COMPENSATED},
        a.ATTEMPT_ID: {"S": attempt},
        a.UPDATED_AT: {"N": str(now_ms)},
    }
    change = update(when(STILL_DONE, done={"S": found}) | RETURNS_ITEM, sets)
    return {"Update": {"TableName": table, "Key": log_key(saga_id, step), **change}}


def row_put(
    table: str,
    saga_id: str,
    step: str,
    status: StepStatus,
    side: Side,
    now_ms: int,
    keep_days: int,
    attempt: str,
    extra: Mapping[LogAttribute, Mapping[str, str]],
) -> Any:
    """A row's first write, on condition that it does not exist."""
    a = LogAttribute
    item: dict[str, Mapping[str, str]] = {
        **log_key(saga_id, step),
        a.STATUS: {"S": status},
        a.SIDE: {"S": side},
        a.ATTEMPT_ID: {"S": attempt},
        a.CREATED_AT: {"N": str(now_ms)},
        a.UPDATED_AT: {"N": str(now_ms)},
        a.EXPIRATION: {"N": str(now_ms // _SECOND_MS + keep_days * _DAY_SECONDS)},
    }
    item |= extra.items()
    return {"Put": {"TableName": table, "Item": item, **when(NO_ROW), **RETURNS_ITEM}}


def longer_end(expiration: int, now_ms: int) -> int | None:
    """When a row that is still needed is to expire, epoch seconds; None: it is kept for long enough.

    Args:
        expiration: when it expires, epoch seconds; 0: never.
        now_ms: the time.
    """
    now, days = now_ms // _SECOND_MS, KEEP_DAYS * _DAY_SECONDS
    return now + days if 0 < expiration < now + days // 2 else None


def kept_update(table: str, saga_id: str, step: str, expiration: int, until: int) -> Any:
    """Keep a row for longer; on condition that it exists, and was not extended meanwhile."""
    sets: dict[LogAttribute, Any] = {LogAttribute.EXPIRATION: {"N": str(until)}}
    change = update(when(SAME_END, ends={"N": str(expiration)}), sets)
    return {"Update": {"TableName": table, "Key": log_key(saga_id, step), **change}}


class StepEntry(StrEnum):
    """Actions of a step on the existing row."""

    RUN = "RUN"
    REPLAY = "REPLAY"
    FENCED = "FENCED"


def entry_of(row: LogRow | None) -> StepEntry:
    """Decide a step's way from its row."""
    if row is None:
        return StepEntry.RUN
    return StepEntry.REPLAY if row.answer is not None else StepEntry.FENCED


class UndoEntry(StrEnum):
    """Actions of a compensation on the existing row."""

    BURY = "BURY"
    """No row: write a tombstone."""
    UNDO = "UNDO"
    NOTHING = "NOTHING"
    FOREIGN = "FOREIGN"
    """The row is one of an external step."""


def undo_entry_of(row: LogRow | None) -> UndoEntry:
    """Decide a compensation's action from the step's row. Whatever its state, running a compensation is safe."""
    if row is None:
        return UndoEntry.BURY
    if row.status in UNDER_WAY:
        return UndoEntry.FOREIGN
    return UndoEntry.UNDO if row.status in STANDS else UndoEntry.NOTHING


def is_late(row: LogRow | None) -> bool:
    """Test whether a compensation of late effects (``CallMode.LATE``) has to process the row.

    A compensation that was begun is continued: it may be that of a late effect. Everything else belongs to
    the saga's own compensation, if any; no tombstone is written.
    """
    return row is not None and row.status in (StepStatus.APPLIED_LATE, StepStatus.COMPENSATING)
