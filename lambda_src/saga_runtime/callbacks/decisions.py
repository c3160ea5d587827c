"""Decisions about a job after a report, and when a task begins to wait. Pure: data in, data out.

The saga log is authoritative: the waiting task receives the outcome in the log, not the provider's latest report. So a
saga never continues with a job that its compensation has fenced, and never abandons one that is applied.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from saga_runtime.callbacks.rows import Outcome, TokenRow
from saga_runtime.protocol import ErrorName, StepStatus, TokenStatus
from saga_runtime.saga_log.rows import TOOK_EFFECT_AND_FELL, LogRow


class Receipt(StrEnum):
    """Results of receiving a callback."""

    RECEIVED = "RECEIVED"
    """Stored; not yet delivered to the waiting task."""
    SETTLED = "SETTLED"
    """Stored, and delivered to the waiting task."""
    DUPLICATE = "DUPLICATE"
    """The outcome was known already."""
    EARLY = "EARLY"
    """Stored; delivered when a task waits."""
    LATE = "LATE"
    """Stored; no task waited any more."""
    APPLIED_LATE = "APPLIED_LATE"
    """A late effect: the job was treated as not applied, and has to be compensated."""
    CONFLICT = "CONFLICT"
    """It contradicts the kept outcome: stored separately, and operators were notified."""
    UNKNOWN = "UNKNOWN"
    """The job is unknown: stored under its id."""
    HEARTBEAT = "HEARTBEAT"
    """The task keeps waiting."""


class LogChange(StrEnum):
    """Changes of the saga log's row by a receipt."""

    NONE = "NONE"
    PUT_DONE = "PUT_DONE"
    PUT_READ = "PUT_READ"
    PUT_FAILED = "PUT_FAILED"
    DONE = "DONE"
    FAILED = "FAILED"
    APPLIED_LATE = "APPLIED_LATE"


class TokenChange(StrEnum):
    """Changes of the token row's status by a receipt."""

    NONE = "NONE"
    PUT_EARLY = "PUT_EARLY"
    SETTLE = "SETTLE"


@dataclass(frozen=True, slots=True, kw_only=True)
class Decision:
    """Writes of a receipt.

    Attributes:
        log: change of the log row.
        token: change of the token row.
        told: outcome to deliver, if the token row changes.
        contradicts: whether the outcome contradicts what counts.
    """

    log: LogChange
    token: TokenChange
    told: Outcome
    contradicts: bool

    @property
    def changes_nothing(self) -> bool:
        """True if the outcome was known, and is on its way."""
        return self.log is LogChange.NONE and self.token is TokenChange.NONE and not self.contradicts


def receipt_of(token: TokenRow | None, log: LogRow | None, outcome: Outcome, *, job: bool) -> Decision:
    """Decide how a report changes both rows.

    Args:
        token: the token row that was found.
        log: the log row that was found.
        outcome: the reported outcome.
        job: whether the provider works for the saga; otherwise the saga only waits for an occurrence. A row
            that is in doubt, or was compensated, is a job's, whatever the saga declares by now.
    """
    change = _of_job(log, outcome) if job or _is_job(log) else _of_wait(log, outcome)
    if change in (LogChange.NONE, LogChange.APPLIED_LATE) and log is not None:
        told = answer_of(log) or _fenced(log)
    else:
        told = outcome
    if token is None:
        then = TokenChange.PUT_EARLY
    else:
        then = TokenChange.SETTLE if token.status is TokenStatus.WAITING else TokenChange.NONE
    return Decision(log=change, token=then, told=told, contradicts=_contradicts(log, outcome))


def _is_job(log: LogRow | None) -> bool:
    return log is not None and log.status in (StepStatus.INTENT, StepStatus.DONE, StepStatus.APPLIED_LATE)


def _of_job(log: LogRow | None, outcome: Outcome) -> LogChange:
    if log is None:
        return LogChange.PUT_DONE if outcome.ok else LogChange.PUT_FAILED
    if log.status is StepStatus.INTENT:
        return LogChange.DONE if outcome.ok else LogChange.FAILED
    if outcome.ok and log.status in (StepStatus.TOMBSTONE, StepStatus.FAILED):
        return LogChange.APPLIED_LATE
    return LogChange.NONE


def _of_wait(log: LogRow | None, outcome: Outcome) -> LogChange:
    if log is not None:
        return LogChange.NONE
    return LogChange.PUT_READ if outcome.ok else LogChange.PUT_FAILED


def _contradicts(log: LogRow | None, outcome: Outcome) -> bool:
    if log is None:
        return False
    if outcome.ok:
        return log.status is StepStatus.FAILED
    return log.status in (StepStatus.DONE, StepStatus.READ, StepStatus.UNDOING, StepStatus.APPLIED_LATE)


def answer_of(log: LogRow) -> Outcome | None:
    """Outcome of a job according to the log row alone; None: it is not decided yet."""
    if log.status is StepStatus.INTENT:
        return None
    if log.instead is not None:
        return Outcome.success(log.instead)
    passed_over = log.status is StepStatus.TOMBSTONE and log.output is not None
    if log.status in (StepStatus.DONE, StepStatus.READ) or passed_over:
        return Outcome.success(log.output or "{}")
    # A delivered refusal is final, even if the job was done after all, and is or will be compensated.
    if log.status is StepStatus.FAILED or (log.error and log.status in TOOK_EFFECT_AND_FELL):
        return Outcome.failure(log.error or ErrorName.PERMANENT, log.detail or "refused")
    return _fenced(log)


def _fenced(log: LogRow) -> Outcome:
    return Outcome.failure(ErrorName.FENCED, f"step {log.step} of saga {log.saga_id} was compensated")


class Registration(StrEnum):
    """Results of registering a token."""

    NEW = "NEW"
    """The first one of its job."""
    NEWER = "NEWER"
    """It replaced one of an older attempt."""
    SAME = "SAME"
    """It is registered already: the message was redelivered."""
    OLD = "OLD"
    """A newer attempt's token is registered: no task waits with this one."""
    ANSWERED = "ANSWERED"
    """The outcome was known, and was delivered with this token."""


class Entry(StrEnum):
    """Actions of a registration on the existing row."""

    REPLACE = "REPLACE"
    """An older attempt's token: put this one into its place."""
    ANSWER = "ANSWER"
    """The outcome is known, and was delivered to an older attempt or to none: deliver it to this one."""
    SEND_AGAIN = "SEND_AGAIN"
    """The outcome is being delivered to this attempt."""
    TOLD = "TOLD"
    """It was delivered to this attempt, or this one did not wait any more."""
    SAME = "SAME"
    OLD = "OLD"


def entry_of(row: TokenRow, order: str) -> Entry:
    """Decide a registration's action from the existing row.

    Attempts are compared by their order, which is strict: the state's entry alone does not distinguish a retry from the
    attempt before it, and of two that came in either order the newer one must remain.
    """
    if row.order > order:
        return Entry.OLD
    if row.order < order:
        return Entry.REPLACE if row.status is TokenStatus.WAITING else Entry.ANSWER
    match row.status:
        case TokenStatus.WAITING:
            return Entry.SAME
        case TokenStatus.SETTLING:
            return Entry.SEND_AGAIN
        case _:
            return Entry.TOLD
