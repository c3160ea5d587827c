"""Rows of external steps, and the decisions about them. Pure: data in, data out.

::

    (no row) -> INTENT -> DONE -> COMPENSATING -> COMPENSATED
                INTENT -> REFUSED          the provider definitely refused, and no request can still arrive
                INTENT -> TOMBSTONE        the provider has nothing, and no request can still arrive
    INTENT, COMPENSATING -> the same, under a later attempt and a later deadline: taken over
    TOMBSTONE, REFUSED -> APPLIED_LATE -> COMPENSATING     a job's provider applied it after all: it is compensated

A *job* is a step whose provider reports later. When its dispatch returned, the row records that (``accepted_at``):
from then on no request decides its outcome, so a passed deadline means nothing, and only the provider's report
does.

A provider's effect and its row cannot be one transaction. So the row states *before* the call that there may be one,
by which attempt, and until when. No attempt calls without holding the row; a takeover waits until the former holder is
certainly dead; and "it did not happen" counts only when no request of the dead can still be on its way.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, Final

from saga_runtime.protocol import LogAttribute, Side, StepStatus
from saga_runtime.saga_log.provider import ProviderSettings
from saga_runtime.saga_log.rows import LogRow, log_key, row_put, tombstone_put
from saga_runtime.shared.expressions import RETURNS_ITEM, update, when

HELD_BY: Final = "#status = :found AND #attempt_id = :held"
"""Still in the state, and still held by the attempt, that the writer read, verified, or is itself."""
TAKE_OVER: Final = "#status = :found AND #attempt_id = :held AND #deadline < :deadline"
"""Deadlines only grow: the last one is later than those of all attempts before it."""
STILL: Final = "#status = :found"

MAX_DETAIL: Final = 1_000
"""A refusal's message is kept up to this many characters."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Holder:
    """An attempt, and the row that it works on.

    Attributes:
        deadline: epoch milliseconds at which this attempt is certainly dead.
    """

    table: str
    saga_id: str
    row_name: str
    side: Side
    attempt: str
    deadline: int
    keep_days: int

    def intent(self, now_ms: int) -> Any:
        """Record that the provider may be called; on condition that it was not."""
        a = LogAttribute
        times = {a.DEADLINE: {"N": str(self.deadline)}, a.FIRST_ATTEMPT_AT: {"N": str(now_ms)}}
        return row_put(
            self.table,
            self.saga_id,
            self.row_name,
            StepStatus.INTENT,
            self.side,
            now_ms,
            self.keep_days,
            self.attempt,
            times,
        )

    def bury(self, now_ms: int) -> Any:
        """Record that the step must never be applied; on condition that it was never begun."""
        return tombstone_put(
            table=self.table,
            saga_id=self.saga_id,
            step=self.row_name,
            side=self.side,
            attempt=self.attempt,
            now_ms=now_ms,
            keep_days=self.keep_days,
        )

    def take_over(self, found: LogRow, now_ms: int) -> Any:
        """Take over the row, INTENT or COMPENSATING; on condition that the attempt that was read still holds it.

        A job that is dispatched again was not accepted yet.
        """
        a = LogAttribute
        sets = {a.DEADLINE: {"N": str(self.deadline)}}
        removes = (a.ACCEPTED_AT,) if found.accepted_at else ()
        return self._update(found.status, found.status, TAKE_OVER, now_ms, sets, removes, held=found.attempt)

    def done(self, output: str, now_ms: int, *, held: str | None = None) -> Any:
        """Record that the step was applied; on condition that it is in doubt, and its holder then still holds it.

        ``held`` is the attempt that was verified; without it, one's own.
        """
        sets = {LogAttribute.OUTPUT: {"S": output}}
        return self._update(StepStatus.INTENT, StepStatus.DONE, HELD_BY, now_ms, sets, held=held or self.attempt)

    def failed(self, error: str, detail: str, now_ms: int) -> Any:
        """Record that the provider refused; on condition that one's own attempt still holds the row."""
        sets = {LogAttribute.ERROR: {"S": error}, LogAttribute.DETAIL: {"S": detail[:MAX_DETAIL]}}
        return self._update(StepStatus.INTENT, StepStatus.REFUSED, HELD_BY, now_ms, sets, held=self.attempt)

    def not_applied(self, found: LogRow, now_ms: int) -> Any:
        """Record that the step was not and will never be applied; on condition that it was not taken over meanwhile."""
        return self._update(StepStatus.INTENT, StepStatus.TOMBSTONE, HELD_BY, now_ms, {}, held=found.attempt)

    def accepted(self, now_ms: int, *, held: str | None = None) -> Any:
        """Record that the provider accepted the job; on condition that it is in doubt, under the same holder.

        ``held`` is the attempt that was verified; without it, one's own.
        """
        sets = {LogAttribute.ACCEPTED_AT: {"N": str(now_ms)}}
        return self._update(StepStatus.INTENT, StepStatus.INTENT, HELD_BY, now_ms, sets, held=held or self.attempt)

    def undoing(self, now_ms: int, *, found: StepStatus = StepStatus.DONE) -> Any:
        """Record that the provider may be called to compensate; on condition that the row is as found, or late."""
        a = LogAttribute
        sets = {a.DEADLINE: {"N": str(self.deadline)}, a.FIRST_ATTEMPT_AT: {"N": str(now_ms)}}
        return self._update(found, StepStatus.COMPENSATING, STILL, now_ms, sets)

    def undone(self, now_ms: int) -> Any:
        """Record that the step is compensated; on condition that it is being compensated, by any attempt."""
        return self._update(StepStatus.COMPENSATING, StepStatus.COMPENSATED, STILL, now_ms, {})

    def _update(
        self,
        found: StepStatus,
        wanted: StepStatus,
        condition: str,
        now_ms: int,
        sets: dict[LogAttribute, dict[str, str]],
        removes: Sequence[LogAttribute] = (),
        *,
        held: str | None = None,
    ) -> Any:
        a = LogAttribute
        new: dict[LogAttribute, Any] = {
            a.STATUS: {"S": wanted},
            a.ATTEMPT_ID: {"S": self.attempt},
            a.UPDATED_AT: {"N": str(now_ms)},
            **sets,
        }
        values = {} if held is None else {"held": {"S": held}}
        change = update(when(condition, found={"S": found}, **values) | RETURNS_ITEM, new, removes=removes)
        return {"Update": {"TableName": self.table, "Key": log_key(self.saga_id, self.row_name), **change}}


class Entry(StrEnum):
    """Actions of an external step on the existing row."""

    CLAIM = "CLAIM"
    """No row: write INTENT, then call."""
    REPLAY = "REPLAY"
    REFUSED = "REFUSED"
    """The provider refused before: the same again, without asking."""
    FENCED = "FENCED"
    WAIT = "WAIT"
    """Another attempt may still be calling, or a request may still arrive."""
    CALL_AGAIN = "CALL_AGAIN"
    """Take the row over, and call: the provider knows the key."""
    VERIFY = "VERIFY"
    """Query the provider for the outcome of the call."""
    UNDECIDED = "UNDECIDED"
    """The outcome cannot be determined."""
    FOREIGN = "FOREIGN"
    """Not a row of a step that acts."""


def entry_of(row: LogRow | None, *, mine: Holder, now_ms: int, provider: ProviderSettings) -> Entry:
    """Decide a step's way from its row."""
    if row is None:
        return Entry.CLAIM
    match row.status:
        case StepStatus.DONE:
            return Entry.REPLAY
        case StepStatus.REFUSED:
            return Entry.REFUSED
        case StepStatus.TOMBSTONE | StepStatus.COMPENSATING | StepStatus.COMPENSATED | StepStatus.APPLIED_LATE:
            return Entry.FENCED if row.answer is None else Entry.REPLAY
        case StepStatus.RECORDED:
            return Entry.FOREIGN
        case StepStatus.INTENT:
            pass
    if now_ms < row.deadline:
        return Entry.WAIT
    if _known_until_answered(row, mine, provider.window_ms, provider):
        return Entry.CALL_AGAIN
    if not provider.verify:
        return Entry.UNDECIDED
    return Entry.VERIFY if is_over(row, now_ms, provider) else Entry.WAIT


class UndoEntry(StrEnum):
    """Actions of a compensation of an external step, or of a verification, on the existing row."""

    BURY = "BURY"
    """No row: write a tombstone."""
    NOTHING = "NOTHING"
    UNDO = "UNDO"
    """Write COMPENSATING, then undo."""
    WAIT = "WAIT"
    VERIFY = "VERIFY"
    """Query the provider for the outcome of the step."""
    REPEAT = "REPEAT"
    """Take the step over, and call again to learn its outcome."""
    UNDO_AGAIN = "UNDO_AGAIN"
    """Take the undo over, and undo again: the provider knows the key."""
    VERIFY_UNDO = "VERIFY_UNDO"
    """Query the provider for the outcome of the compensation."""
    UNDECIDED = "UNDECIDED"


def undo_entry_of(row: LogRow | None, *, mine: Holder, now_ms: int, provider: ProviderSettings) -> UndoEntry:
    """Decide a compensation's action from the step's row. Whatever its state, running a compensation is safe."""
    if row is None:
        return UndoEntry.BURY
    match row.status:
        case StepStatus.DONE | StepStatus.APPLIED_LATE:
            return UndoEntry.UNDO
        case StepStatus.INTENT:
            return _learn(row, mine, now_ms, provider)
        case StepStatus.COMPENSATING:
            return _undo_again(row, mine, now_ms, provider)
        case StepStatus.REFUSED | StepStatus.TOMBSTONE | StepStatus.COMPENSATED | StepStatus.RECORDED:
            return UndoEntry.NOTHING


def _learn(row: LogRow, mine: Holder, now_ms: int, provider: ProviderSettings) -> UndoEntry:
    """Querying comes before repeating, which may apply the step only to compensate it.

    Both wait for the grace, so that the result counts. Repeating an accepted job would yield nothing.
    """
    if not is_over(row, now_ms, provider):
        return UndoEntry.WAIT
    if provider.verify:
        return UndoEntry.VERIFY
    known = not row.accepted_at and _known_until_answered(row, mine, provider.window_ms, provider)
    return UndoEntry.REPEAT if known else UndoEntry.UNDECIDED


def _undo_again(row: LogRow, mine: Holder, now_ms: int, provider: ProviderSettings) -> UndoEntry:
    if now_ms < row.deadline:
        return UndoEntry.WAIT
    if _known_until_answered(row, mine, provider.undo_window_ms, provider):
        return UndoEntry.UNDO_AGAIN
    return UndoEntry.VERIFY_UNDO if provider.verify_undo else UndoEntry.UNDECIDED


def is_over(row: LogRow, now_ms: int, provider: ProviderSettings) -> bool:
    """Test whether no request of any attempt at this row can still be on its way: only then does a "no" count."""
    return now_ms >= row.deadline + provider.grace_ms


def _known_until_answered(row: LogRow, mine: Holder, window_ms: int, provider: ProviderSettings) -> bool:
    """Test whether the provider still knows the key when the last request of this attempt can arrive."""
    return window_ms > 0 and mine.deadline + provider.grace_ms <= row.first_attempt_at + window_ms
