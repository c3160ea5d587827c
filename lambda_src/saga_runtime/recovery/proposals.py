"""Decisions that one operator proposes and another one confirms. Pure: data in, data out.

::

    propose    ONE conditional update of the record: the proposal, and a decision that states it
    confirm    by another principal, before it expires, if record and row are as when it was proposed, and
               no later proposal is about the same step:
               the row, and the decision with both names, in one transaction; then the saga is resumed

Nothing changes a proposal. That it was executed is in the list of decisions, by its number.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

from saga_runtime.idempotency.record import RequestRecord
from saga_runtime.protocol import ProposalField, RecordAttribute, RecordStatus, SecondPerson, StepStatus
from saga_runtime.recovery.audit import AS_READ, MOST_BEFORE_PROPOSALS, appended
from saga_runtime.recovery.resolution import CannotResolve, Statement
from saga_runtime.saga_log.rows import LogRow
from saga_runtime.shared.decisions import Audit, Decision
from saga_runtime.shared.expressions import Arguments, update, when

MOST_BYTES: Final = 100_000
"""Of all open proposals in one record: an item of DynamoDB holds 400 KB, and has the request, too."""
_FEDERATED: Final = ":federated-user/"
_NOT_SHOWN: Final = re.compile("[^ -~]")
"""Of a JSON document only its texts have such characters, and there they may be escaped."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Caller:
    """A caller, as AWS knows it.

    Attributes:
        arn: its ARN.
        user_id: its unique id; of a role's session ``ROLE:SESSION``.
    """

    arn: str
    user_id: str


def principal_of(user_id: str, second: SecondPerson) -> str:
    """The part of a caller's unique id by which two people are distinguished.

    The name of a session is a person's name: a person who may use two roles has it in both.
    """
    role, _, session = user_id.partition(":")
    return session if session and second is SecondPerson.OTHER_SESSION else role


@dataclass(frozen=True, slots=True, kw_only=True)
class Proposal:
    """A decision that waits for a second operator.

    Attributes:
        number: place, from 1, of the decision that states it. Decisions stay when proposals are removed.
        at_ms: when it was proposed; epoch milliseconds.
        who: ARN of the proposer.
        user_id: its unique id.
        why: its reason.
        expires_at: epoch milliseconds.
        step: sort key of the row; None: to resume the saga.
        statement: the answer; None likewise. Its attempt, or that there is no row, is what the proposer saw.
        row_status: of the row that the proposer saw; None: there was none.
        status, owner, parked_at: of the record that the proposer saw.
        log_days: as of ``Resolver.resume``.
    """

    number: int
    at_ms: int
    who: str
    user_id: str
    why: str
    expires_at: int
    step: str | None
    statement: Statement | None
    row_status: StepStatus | None
    status: RecordStatus
    owner: str
    parked_at: int | None
    log_days: int | None = None

    @property
    def parked(self) -> bool:
        """True if the record was parked."""
        return self.parked_at is not None

    @property
    def what(self) -> str:
        """The decision in a few words. What a terminal would not show of an output is escaped, as JSON has it."""
        if self.statement is None:
            return self.stated
        if self.statement.output is None:
            return self.stated
        return f"{self.stated}, output {_NOT_SHOWN.sub(_escaped, self.statement.output)}"

    @property
    def digest(self) -> str:
        """Hash of everything that is stored: what a confirmer saw is what is executed."""
        return hashlib.sha256(json.dumps(self.stored, sort_keys=True).encode()).hexdigest()

    @property
    def stated(self) -> str:
        """The same without the output, which may be private: decisions are kept for longer than proposals."""
        if self.statement is not None:
            return f"{self.step}: {self.statement.text}"
        return (
            "resume" if self.log_days is None else f"resume: rows of its log were always kept for {self.log_days} days"
        )

    @property
    def without_output(self) -> Proposal:
        """The proposal when it is closed: its output is in the row, or was never written."""
        statement = replace(self.statement, output=None) if self.statement is not None else None
        return replace(self, statement=statement)

    def is_decided(self, decisions: Iterable[Decision]) -> bool:
        """Test whether it was confirmed, and its answer or its resumption was written."""
        return any(one.proposal == self.number for one in decisions)

    def is_of(self, record: RequestRecord) -> bool:
        """Test whether a record is as the proposer saw it."""
        seen = (record.status, record.owner, record.parked_at if record.parked_by is not None else None)
        return seen == (self.status, self.owner, self.parked_at)

    def replaced_by(self, proposals: Iterable[Proposal]) -> Proposal | None:
        """The latest of those proposals about the same step that follow this one; None: this one is the latest."""
        later = [one for one in proposals if one.step == self.step and one.number > self.number]
        return max(later, key=lambda one: one.number, default=None)

    def is_open(
        self, record: RequestRecord, proposals: Iterable[Proposal], decisions: Iterable[Decision], now_ms: int
    ) -> bool:
        """Test whether it can still be confirmed, as far as the record and its proposals show."""
        current = now_ms < self.expires_at and self.is_of(record) and self.replaced_by(proposals) is None
        return current and not self.is_decided(decisions)

    def repeats(self, other: Proposal) -> bool:
        """Test whether it is the same proposal of the same principal, about the same state, for the same reason."""
        return _content(self) == _content(other)

    @classmethod
    def all_of(cls, item: Mapping[str, Any]) -> list[Proposal]:
        """The proposals in a stored record, the earliest first."""
        return [cls._from(entry["M"]) for entry in item.get(RecordAttribute.PROPOSALS, {}).get("L", [])]

    @classmethod
    def _from(cls, entry: Mapping[str, Any]) -> Proposal:
        f = ProposalField
        statement = None
        if f.STEP in entry:
            statement = Statement(
                applied=entry[f.APPLIED]["BOOL"],
                undo=entry[f.COMPENSATION]["BOOL"],
                output=entry[f.OUTPUT]["S"] if f.OUTPUT in entry else None,
                attempt=entry[f.ROW_ATTEMPT]["S"] if f.ROW_ATTEMPT in entry else None,
                rowless=f.ROW_STATUS not in entry,
            )
        return cls(
            number=int(entry[f.NUMBER]["N"]),
            at_ms=int(entry[f.AT]["N"]),
            who=entry[f.WHO]["S"],
            user_id=entry[f.USER_ID]["S"],
            why=entry[f.WHY]["S"],
            expires_at=int(entry[f.EXPIRES_AT]["N"]),
            step=entry[f.STEP]["S"] if f.STEP in entry else None,
            statement=statement,
            row_status=StepStatus(entry[f.ROW_STATUS]["S"]) if f.ROW_STATUS in entry else None,
            status=RecordStatus(entry[f.STATUS]["S"]),
            owner=entry[f.OWNER]["S"],
            parked_at=int(entry[f.PARKED_AT]["N"]) if f.PARKED_AT in entry else None,
            log_days=int(entry[f.LOG_DAYS]["N"]) if f.LOG_DAYS in entry else None,
        )

    @property
    def stored(self) -> dict[str, Any]:
        """The entry of the record's list."""
        f, statement = ProposalField, self.statement
        entry: dict[str, Any] = {
            f.NUMBER: {"N": str(self.number)},
            f.AT: {"N": str(self.at_ms)},
            f.WHO: {"S": self.who},
            f.USER_ID: {"S": self.user_id},
            f.WHY: {"S": self.why},
            f.EXPIRES_AT: {"N": str(self.expires_at)},
            f.STATUS: {"S": self.status},
            f.OWNER: {"S": self.owner},
        }
        if self.parked_at is not None:
            entry[f.PARKED_AT] = {"N": str(self.parked_at)}
        if self.log_days is not None:
            entry[f.LOG_DAYS] = {"N": str(self.log_days)}
        if statement is None or self.step is None:
            return entry
        entry |= {
            f.STEP: {"S": self.step},
            f.APPLIED: {"BOOL": statement.applied},
            f.COMPENSATION: {"BOOL": statement.undo},
        }
        if statement.output is not None:
            entry[f.OUTPUT] = {"S": statement.output}
        if self.row_status is not None and statement.attempt is not None:
            entry |= {f.ROW_STATUS: {"S": self.row_status}, f.ROW_ATTEMPT: {"S": statement.attempt}}
        return entry


def _escaped(character: re.Match[str]) -> str:
    return json.dumps(character[0])[1:-1]


def _content(proposal: Proposal) -> dict[str, Any]:
    varying = (ProposalField.NUMBER, ProposalField.AT, ProposalField.EXPIRES_AT, ProposalField.WHO)
    return {name: value for name, value in proposal.stored.items() if name not in varying}


def require_principal(caller: Caller) -> None:
    """Refuse a caller that may name itself as it likes.

    Raises:
        CannotResolve: for the session of a federated user, whose name its IAM user chooses.
    """
    if _FEDERATED in caller.arn:
        raise CannotResolve(
            f"the caller must be an IAM user or a role where a second operator is required, got {caller.arn}: an IAM "
            "user gives such sessions any name"
        )


def require_other(what: str, who: str, user_id: str, caller: Caller, second: SecondPerson) -> None:
    """Refuse the proposer's principal.

    Args:
        what: the proposal, in words.
        who: ARN of its proposer.
        user_id: the proposer's unique id.
        caller: who confirms.
        second: by what two people are distinguished.

    Raises:
        CannotResolve: naming both.
    """
    if principal_of(caller.user_id, second) == principal_of(user_id, second):
        kinds = {
            SecondPerson.OTHER_ROLE: "IAM user or role",
            SecondPerson.OTHER_SESSION: "user or name of a role's session",
        }
        raise CannotResolve(
            f"{what} must be confirmed by another {kinds[second]} than its proposer's, {who}, got {caller.arn}"
        )


def require_confirmable(
    proposal: Proposal,
    proposals: Iterable[Proposal],
    record: RequestRecord,
    caller: Caller,
    second: SecondPerson,
    now_ms: int,
) -> None:
    """Refuse a confirmation of what is not executed yet.

    Args:
        proposal: what is to be confirmed.
        proposals: all of the record.
        record: as it was read.
        caller: who confirms.
        second: by what two people are distinguished.
        now_ms: the time.

    Raises:
        CannotResolve: by the same principal, after its time, of a saga that changed since, or where a later proposal is
            about the same step.
    """
    require_other(f"proposal {proposal.number}", proposal.who, proposal.user_id, caller, second)
    if now_ms >= proposal.expires_at:
        ago = (now_ms - proposal.expires_at) // 1_000
        raise CannotResolve(f"proposal {proposal.number} expired {ago} s ago; inspect the saga, and propose it again")
    if not proposal.is_of(record):
        raise CannotResolve(f"saga {record.saga_id} changed since proposal {proposal.number}; inspect it")
    later = proposal.replaced_by(proposals)
    if later is not None:
        raise CannotResolve(
            f"proposal {proposal.number} must be the latest about the same step, got {later.number} by {later.who}: "
            f"{later.what}; confirm that one, or propose this again"
        )


def require_row(proposal: Proposal, row: LogRow | None) -> None:
    """Refuse a row that is not as it was when the answer about it was proposed.

    Raises:
        CannotResolve: naming its state.
    """
    statement = proposal.statement
    seen = (proposal.row_status, statement.attempt if statement is not None else None)
    if seen != ((row.status, row.attempt) if row is not None else (None, None)):
        now = f"{row.status} of attempt {row.attempt}" if row is not None else "without a row"
        raise CannotResolve(
            f"{proposal.step} is {now}, and changed since proposal {proposal.number}; inspect the saga, and propose "
            "what is true now"
        )


def as_proposed(record: RequestRecord, proposal: Proposal) -> Arguments:
    """Arguments of the condition that a record is as when it was proposed."""
    then = {"was_parked_at": {"N": str(proposal.parked_at)}} if proposal.parked else {}
    parked = "attribute_exists(#parked_by) AND #parked_at = :was_parked_at"
    return when(
        f"{AS_READ} AND {parked if proposal.parked else 'attribute_not_exists(#parked_by)'}",
        saga_id={"S": record.saga_id},
        was_status={"S": proposal.status},
        was_owner={"S": proposal.owner},
        **then,
    )


def proposal_update(proposal: Proposal, earlier: Sequence[Proposal], record: RequestRecord, audit: Audit) -> Arguments:
    """Arguments of the ONE conditional update that adds a proposal, and appends a decision that states it.

    On condition that the record is as the proposer saw it, and has no further decision, so no further proposal.

    Args:
        proposal: the new one.
        earlier: those that the record keeps.
        record: as it was read.
        audit: the proposer, and the reason.
    """
    a = RecordAttribute
    before = proposal.number - 1
    numbered = f"size(#{a.DECISIONS}) = :count" if before else f"attribute_not_exists(#{a.DECISIONS})"
    as_read = as_proposed(record, proposal)
    values = {name.removeprefix(":"): value for name, value in as_read["ExpressionAttributeValues"].items()}
    if before:
        values["count"] = {"N": str(before)}
    noted, more = appended(
        audit, f"proposed {proposal.number}: {proposal.stated}", record, proposal.at_ms, most=MOST_BEFORE_PROPOSALS
    )
    change = update(
        when(f"{as_read['ConditionExpression']} AND {numbered}", **values),
        {a.PROPOSALS: ":proposals", **noted},
        values={"proposals": {"L": [{"M": one.stored} for one in (*earlier, proposal)]}, **more},
    )
    return {"Key": {a.ID: {"S": record.request_id}}, **change}


def require_room(proposals: Iterable[Proposal], proposal: Proposal) -> None:
    """Refuse a proposal that the record has no room for.

    Raises:
        CannotResolve: naming the size.
    """
    size = sum(len(json.dumps(one.stored)) for one in (*proposals, proposal))
    if size > MOST_BYTES:
        raise CannotResolve(
            f"open proposals of a saga must have at most {MOST_BYTES} bytes, got {size}; shorten output or reason"
        )
