"""What becomes of a job when something is said of it, and when somebody begins to wait. Pure: data in, data out.

The saga log decides what counts; whoever waits is told what the log says, not what the provider said last. So a saga
never goes on with a job that its compensation has buried, and never gives up one that stands.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from saga_runtime.callbacks.rows import Outcome, TokenRow
from saga_runtime.protocol import ErrorName, StepStatus, TokenStatus
from saga_runtime.saga_log.rows import TOOK_EFFECT_AND_FELL, LogRow


class Receipt(StrEnum):
    """What was done with a callback."""

    RECEIVED = "RECEIVED"
    """Written down; whoever waits has not been told yet, and will be."""
    SETTLED = "SETTLED"
    """Written down, and told to whoever waited."""
    DUPLICATE = "DUPLICATE"
    """It said what was known."""
    EARLY = "EARLY"
    """Written down; whoever will wait is told at once."""
    LATE = "LATE"
    """Written down; nobody waited any more."""
    APPLIED_LATE = "APPLIED_LATE"
    """The job counted as not done, and was done: it has to be undone."""
    CONFLICT = "CONFLICT"
    """It contradicts what counts: written down beside it, and operators were told."""
    UNKNOWN = "UNKNOWN"
    """Nobody has heard of such a job: written down under its id."""
    HEARTBEAT = "HEARTBEAT"
    """Whoever waits waits on."""


class LogChange(StrEnum):
    """What a receipt makes of the saga log's row."""

    NONE = "NONE"
    PUT_DONE = "PUT_DONE"
    PUT_READ = "PUT_READ"
    PUT_FAILED = "PUT_FAILED"
    DONE = "DONE"
    FAILED = "FAILED"
    APPLIED_LATE = "APPLIED_LATE"


class TokenChange(StrEnum):
    """What a receipt makes of the token row's status."""

    NONE = "NONE"
    PUT_EARLY = "PUT_EARLY"
    SETTLE = "SETTLE"


@dataclass(frozen=True, slots=True, kw_only=True)
class Decision:
    """What a receipt writes.

    Attributes:
        log: what becomes of the log row.
        token: what becomes of the token row.
        told: what whoever waits is to be told, if anything becomes of the token row.
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
    """Decide what a provider's word makes of both rows.

    Args:
        token: the token row that was found.
        log: the log row that was found.
        outcome: what the provider says.
        job: whether the provider works for the saga; otherwise the saga only waits for something to happen. A row
            that is in doubt, or that was undone, is one of a job, whatever the saga says by now.
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
    """What whoever waits for a job is told by the log row alone; None: it is not decided yet."""
    if log.status is StepStatus.INTENT:
        return None
    if log.instead is not None:
        return Outcome.success(log.instead)
    passed_over = log.status is StepStatus.TOMBSTONE and log.output is not None
    if log.status in (StepStatus.DONE, StepStatus.READ) or passed_over:
        return Outcome.success(log.output or "{}")
    # A refusal that was told stays one, even if the job was done after all, and was or will be undone.
    if log.status is StepStatus.FAILED or (log.error and log.status in TOOK_EFFECT_AND_FELL):
        return Outcome.failure(log.error or ErrorName.PERMANENT.value, log.detail or "refused")
    return _fenced(log)


def _fenced(log: LogRow) -> Outcome:
    return Outcome.failure(ErrorName.FENCED.value, f"step {log.step} of saga {log.saga_id} was compensated")


class Registration(StrEnum):
    """What became of a token that was registered."""

    NEW = "NEW"
    """The first one of its job."""
    NEWER = "NEWER"
    """It replaced one of an older attempt."""
    SAME = "SAME"
    """It stands already: the message came again."""
    OLD = "OLD"
    """One of a newer attempt stands: nobody waits with this one."""
    ANSWERED = "ANSWERED"
    """The answer was known, and was told to whoever waits with this one."""


class Entry(StrEnum):
    """What a registration does about the row that it found."""

    REPLACE = "REPLACE"
    """An older attempt's token: put this one into its place."""
    ANSWER = "ANSWER"
    """The answer is known, and an older attempt was told it, or nobody: tell it to this one."""
    SEND_AGAIN = "SEND_AGAIN"
    """The answer is being told to this one."""
    TOLD = "TOLD"
    """It was told to this one, or this one did not wait any more."""
    SAME = "SAME"
    OLD = "OLD"


def entry_of(row: TokenRow, order: str) -> Entry:
    """Decide a registration's way from the row that stands there.

    Attempts are told apart by their order, which is strict: the state's entry alone does not tell a retry from the
    attempt before it, and of two that came in either order the newer one must stand.
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
