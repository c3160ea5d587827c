"""Decisions about a job after a report, and when a task begins to wait. Pure: data in, data out.

The saga log is authoritative: the waiting task receives the outcome in the log, not the provider's latest report. So a
saga never continues with a job that its compensation has fenced, and never abandons one that is applied.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Final

from saga_runtime.callbacks.rows import Outcome, TokenRow
from saga_runtime.protocol import ErrorName, Metric, StepStatus, TokenStatus
from saga_runtime.saga_log.rows import TOOK_EFFECT_AND_FELL, LogRow

CONTRADICTED: Final = "CallbackContradicted"
APPLIED_LATE: Final = "LateEffectRecorded"
OPERATOR_ERRORS: Final = frozenset({CONTRADICTED, APPLIED_LATE})
"""Errors of entries in the operators' queue that are about an outcome, and not about a parked saga."""


class Receipt(StrEnum):
    """Results of receiving a callback."""

    RECEIVED = "RECEIVED"
    """Stored; not yet delivered to the waiting task."""
    DELIVERED = "DELIVERED"
    """Stored, and delivered to the waiting task."""
    DUPLICATE = "DUPLICATE"
    """The outcome was known already."""
    EARLY = "EARLY"
    """Stored; delivered when a task waits."""
    UNDELIVERED = "UNDELIVERED"
    """Stored; no task waited any more."""
    APPLIED_LATE = "APPLIED_LATE"
    """A late effect: the job was treated as not applied, and has to be compensated."""
    CONFLICT = "CONFLICT"
    """It contradicts the kept outcome: stored separately, with an entry for operators."""
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
class Transition:
    """Effect of a report on a log row.

    Attributes:
        log: change of the row.
        contradicts: whether the report contradicts what counts: an entry for operators is stored with it.
    """

    log: LogChange
    contradicts: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Decision:
    """Writes of a receipt, and what it amounts to.

    Attributes:
        log: change of the log row.
        token: change of the token row.
        told: outcome to deliver, if the token row changes.
        contradicts: whether the outcome contradicts what counts.
        against: of a second outcome that contradicts the first one: the log row's status in between; None: none does.
        receipt: the result; None: that of the delivery.
        metrics: what is counted when it is written.
    """

    log: LogChange
    token: TokenChange
    told: Outcome
    contradicts: bool
    receipt: Receipt | None
    metrics: Sequence[Metric]
    against: StepStatus | None = None


_NOTHING: Final = Transition(log=LogChange.NONE)
_CONTRADICTED: Final = Transition(log=LogChange.NONE, contradicts=True)

OF_JOB: Final[Mapping[tuple[StepStatus | None, bool], Transition]] = {
    (None, True): Transition(log=LogChange.PUT_DONE),
    (None, False): Transition(log=LogChange.PUT_FAILED),
    (StepStatus.INTENT, True): Transition(log=LogChange.DONE),
    (StepStatus.INTENT, False): Transition(log=LogChange.FAILED),
    (StepStatus.DONE, True): _NOTHING,
    (StepStatus.DONE, False): _CONTRADICTED,
    (StepStatus.RECORDED, True): _NOTHING,
    (StepStatus.RECORDED, False): _CONTRADICTED,
    (StepStatus.REFUSED, True): Transition(log=LogChange.APPLIED_LATE, contradicts=True),
    (StepStatus.REFUSED, False): _NOTHING,
    (StepStatus.TOMBSTONE, True): Transition(log=LogChange.APPLIED_LATE),
    (StepStatus.TOMBSTONE, False): _NOTHING,
    (StepStatus.APPLIED_LATE, True): _NOTHING,
    (StepStatus.APPLIED_LATE, False): _CONTRADICTED,
    (StepStatus.COMPENSATING, True): _NOTHING,
    (StepStatus.COMPENSATING, False): _CONTRADICTED,
    (StepStatus.COMPENSATED, True): _NOTHING,
    (StepStatus.COMPENSATED, False): _NOTHING,
}
"""By the log row's status (None: no row), and whether the report is a success: what it does, of a provider's job."""

OF_WAIT: Final[Mapping[tuple[StepStatus | None, bool], Transition]] = {
    **OF_JOB,
    (None, True): Transition(log=LogChange.PUT_READ),
    (StepStatus.REFUSED, True): _CONTRADICTED,
    (StepStatus.TOMBSTONE, True): _NOTHING,
}
"""The same of a saga that only waits for an occurrence. A row that is in doubt is a job's, whatever the saga declares
by now."""

_BECOMES: Final[Mapping[LogChange, StepStatus]] = {
    LogChange.PUT_DONE: StepStatus.DONE,
    LogChange.PUT_READ: StepStatus.RECORDED,
    LogChange.PUT_FAILED: StepStatus.REFUSED,
    LogChange.DONE: StepStatus.DONE,
    LogChange.FAILED: StepStatus.REFUSED,
    LogChange.APPLIED_LATE: StepStatus.APPLIED_LATE,
}


def receipt_of(
    token: TokenRow | None, log: LogRow | None, outcome: Outcome, *, job: bool, refusal: Outcome | None = None
) -> Decision:
    """Decide how a report changes both rows.

    Args:
        token: the token row that was found.
        log: the log row that was found.
        outcome: the reported outcome.
        job: whether the provider works for the saga; otherwise the saga only waits for an occurrence.
        refusal: of an unknown job that was done: a refusal that was reported, too. After a success it changes no row.
    """
    transitions, found = OF_JOB if job else OF_WAIT, None if log is None else log.status
    transition = transitions[found, outcome.ok]
    if outcome.ok and log is not None and _is_by_hand(log):
        transition = _CONTRADICTED
    if transition.log in (LogChange.NONE, LogChange.APPLIED_LATE) and log is not None:
        told = answer_of(log) or _fenced(log)
    else:
        told = outcome
    if token is None:
        then = TokenChange.PUT_EARLY
    else:
        then = TokenChange.SETTLE if token.status is TokenStatus.WAITING else TokenChange.NONE
    receipt, metrics = _amounts_to(transition, then)
    against = None
    if refusal is not None and transitions[in_between := _BECOMES.get(transition.log, found), False].contradicts:
        against, metrics = in_between, (*metrics, Metric.CALLBACK_CONFLICT)
    return Decision(
        log=transition.log,
        token=then,
        told=told,
        contradicts=transition.contradicts,
        receipt=receipt,
        metrics=metrics,
        against=against,
    )


def _is_by_hand(log: LogRow) -> bool:
    """Test whether an operator recorded that a refused job was done: a success is another effect, or the same one."""
    return log.status is StepStatus.DONE and bool(log.error)


def _amounts_to(transition: Transition, token: TokenChange) -> tuple[Receipt | None, Sequence[Metric]]:
    conflict = (Metric.CALLBACK_CONFLICT,) if transition.contradicts else ()
    if transition.log is LogChange.APPLIED_LATE:
        return Receipt.APPLIED_LATE, (*conflict, Metric.CALLBACK_APPLIED_LATE)
    if transition.contradicts:
        return Receipt.CONFLICT, conflict
    if token is TokenChange.PUT_EARLY:
        return Receipt.EARLY, (Metric.CALLBACK_EARLY,)
    if transition.log is LogChange.NONE and token is TokenChange.NONE:
        return Receipt.DUPLICATE, (Metric.CALLBACK_DUPLICATE,)
    return None, ()


def notice_of(
    decision: Decision, log: LogRow | None, outcome: Outcome, *, recorded: bool, undo: bool
) -> tuple[str, str] | None:
    """Error and detail of the entry in the operators' queue; None: operators need not know.

    Args:
        decision: what is written.
        log: the log row that was found.
        outcome: the reported outcome.
        recorded: whether the saga's record exists.
        undo: whether the step is compensated.
    """
    status = None if log is None else log.status
    found = _reported(outcome, status)
    if decision.log is not LogChange.APPLIED_LATE:
        return contradiction_of(outcome, status) if decision.contradicts else None
    if not recorded:
        return APPLIED_LATE, f"{found}; the saga's record is gone, so it is not compensated automatically"
    if not undo:
        return APPLIED_LATE, f"{found}; nothing undoes this step"
    return (APPLIED_LATE, f"{found}; it is undone, unless its saga needs it") if decision.contradicts else None


def contradiction_of(outcome: Outcome, status: StepStatus | None) -> tuple[str, str]:
    """Error and detail of the entry about an outcome that contradicts a row of this status, and does not change it."""
    return CONTRADICTED, f"{_reported(outcome, status)}; the row stays"


def _reported(outcome: Outcome, status: StepStatus | None) -> str:
    reported = "that the job was done" if outcome.ok else f"that the job failed ({outcome.error})"
    by_hand = " by an operator, after a refusal" if outcome.ok and status is StepStatus.DONE else ""
    return f"the provider reported {reported} when its row was {status or 'not there'}{by_hand}"


def conflict_id_of(job_id: str, outcome: Outcome) -> str:
    """Id of an outcome that contradicts the kept one of its job: 16 hexadecimal digits."""
    return hashlib.sha256(f"{job_id} {outcome.encode()}".encode()).hexdigest()[:16]


def acknowledgement(job_id: str, conflict_id: str) -> str:
    """Text of the decision that acknowledges a conflicting outcome: its entry in the operators' queue is over then.

    Its parts cannot be those of another one: the id has a fixed length.
    """
    return f"job {job_id}: conflicting outcome {conflict_id} acknowledged"


def reported_id_of(outcome: Outcome, conflict: Outcome | None) -> str:
    """Id of what was reported of an unknown job, both outcomes if there are two: 16 hexadecimal digits."""
    said = json.dumps([outcome.encode(), conflict.encode() if conflict is not None else None])
    return hashlib.sha256(said.encode()).hexdigest()[:16]


def forgetting(job_id: str, reported_id: str) -> str:
    """Text of the decision that closes what was reported of an unknown job."""
    return f"unknown job {job_id}: outcome {reported_id} forgotten"


def answer_of(log: LogRow) -> Outcome | None:
    """Outcome of a job according to the log row alone; None: it is not decided yet."""
    if log.status is StepStatus.INTENT:
        return None
    if log.instead is not None:
        return Outcome.success(log.instead)
    passed_over = log.status is StepStatus.TOMBSTONE and log.output is not None
    if log.status in (StepStatus.DONE, StepStatus.RECORDED) or passed_over:
        return Outcome.success(log.output or "{}")
    # A delivered refusal is final, even if the job was done after all, and is or will be compensated.
    if log.status is StepStatus.REFUSED or (log.error and log.status in TOOK_EFFECT_AND_FELL):
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
        case TokenStatus.DELIVERING:
            return Entry.SEND_AGAIN
        case _:
            return Entry.TOLD
