"""State of a job that waits for a reviewer: its decision, whether that was received, and its waiting task."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from saga_runtime.approvals.links import Claims, Decision
from saga_runtime.callbacks.rows import JobId, Outcome, TokenRow
from saga_runtime.callbacks.store import is_received, read_record, read_token, token_table
from saga_runtime.callbacks.writes import token_key, token_put
from saga_runtime.errors import TransientError
from saga_runtime.protocol import APPROVAL_PREFIX, RecordStatus, TokenAttribute, TokenStatus
from saga_runtime.shared import aws, clock
from saga_runtime.shared.backoff import PATIENT
from saga_runtime.shared.expressions import when
from saga_runtime.shared.writes import write

KEEP_DAYS: Final = 400
"""So long a decision can be looked up: as long as the saga log keeps its rows by default."""

_STILL: Final = "#decision = :found"


@dataclass(frozen=True, slots=True, kw_only=True)
class Standing:
    """State of a job, as read.

    Attributes:
        decision: the one that was made, if one was.
        received: whether it was received as a callback.
        waiting: the job's token row.
        in_progress: whether the job's saga is in progress.
    """

    decision: Decision | None
    received: bool
    waiting: TokenRow | None
    in_progress: bool

    @property
    def is_answered(self) -> bool:
        """True if the job has its outcome, from any source."""
        return self.waiting is not None and self.waiting.outcome is not None

    def has_room_for(self, decision: Decision) -> bool:
        """Test whether the saga has room for the decision's output, which has the note."""
        return self.waiting is None or self.waiting.has_room_for(Outcome.of(decision.outcome()))

    @property
    def is_lost(self) -> bool:
        """True if a decision was stored and not received: the process that stored it crashed."""
        return self.decision is not None and not self.received and self.waiting is not None and not self.is_answered

    @property
    def is_open_anew(self) -> bool:
        """True if a decision took effect and the job waits again: an operator has taken it back."""
        return self.decision is not None and self.received and self.waiting is not None and not self.is_answered

    @property
    def is_unheard(self) -> bool:
        """True if no task waited for what was decided, when it was delivered."""
        return self.waiting is not None and self.waiting.status is TokenStatus.UNDELIVERED

    def is_of(self, decision: Decision) -> bool:
        """Test whether the job's outcome, if it has one, is that of a decision, and from no other source."""
        row = self.waiting
        return row is None or row.outcome is None or row.event_id == decision.callback(row.id).event_id

    def closes_at(self, claims: Claims) -> int:
        """Until when a link can decide, epoch milliseconds: until it expires, and no longer than the step waits."""
        expires = claims.expires * 1_000
        return min(expires, self.waiting.time_is_up_at) if self.waiting is not None else expires

    def is_open(self, claims: Claims, now_ms: int) -> bool:
        """Test whether a state machine still waits for the decision."""
        return self.in_progress and now_ms < self.closes_at(claims)


def read_standing(job_id: str) -> Standing:
    """Read the state of a job.

    The token row comes after the event: an event that was received before has its outcome in it.
    """
    found = aws.dynamodb().get_item(TableName=token_table(), Key=_key(job_id), ConsistentRead=True)
    decision = _decision_in(found["Item"]) if "Item" in found else None
    received = decision is not None and is_received(decision.callback(job_id), ok=decision.approved)
    waiting, job = read_token(job_id), JobId.parse(job_id)
    record = read_record(waiting.request_table, job.saga_id) if waiting is not None and job is not None else None
    return Standing(
        decision=decision,
        received=received,
        waiting=waiting,
        in_progress=record is not None and record.status is RecordStatus.IN_PROGRESS,
    )


def write_decision(job_id: str, decision: Decision, *, instead_of: Decision | None) -> Decision:
    """Store a decision, if none exists, or only the one that was reset.

    Returns:
        The decision that counts: this one, or an earlier one.

    Raises:
        TransientError: it is unknown which one counts; retry.
    """
    a = TokenAttribute
    more = {a.JOB_ID: {"S": job_id}, a.DECISION: {"S": decision.encode()}}
    entry: Any = token_put(token_table(), _id(job_id), TokenStatus.DECIDED, clock.now_ms(), KEEP_DAYS, more)
    if instead_of is not None:
        entry["Put"] |= when(_STILL, found={"S": instead_of.encode()})
    refused = write(entry, retry=PATIENT)
    if refused is None:
        return decision
    if refused.item is None:
        raise TransientError("the decision on this job changed while it was read")
    return _decision_in(refused.item)


def _id(job_id: str) -> str:
    return f"{APPROVAL_PREFIX}{job_id}"


def _key(job_id: str) -> dict[str, dict[str, str]]:
    return token_key(_id(job_id))


def _decision_in(item: Mapping[str, Any]) -> Decision:
    return Decision.decode(item[TokenAttribute.DECISION]["S"])
