"""Decisions of operators, kept with what they are about: who, when, what, why. Pure: data in, data out.

A decision is appended to the list of a saga's record by the very update, or transaction, that carries it out: both are
written, or neither. Nothing changes or removes an entry; the list ends with the record, and a full one takes no more.
What a start of an execution decides is appended right before it, by an update of its own.

Lists of what has no end (a switch, a phase, a job) keep the newest entries: ``grown``.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from saga_runtime.idempotency.record import RequestRecord
from saga_runtime.protocol import DecisionField, RecordAttribute
from saga_runtime.shared.expressions import Arguments, update, when

MOST_REASON: Final = 1_000
"""Characters of a reason."""
MOST_DECISIONS: Final = 100
"""In one list: an item of DynamoDB holds 400 KB, and a saga that could not be written any more could not be settled."""
SAME_SAGA: Final = "#saga_id = :saga_id"
"""The key still has the saga that was read: a forgotten key may be a newer request's."""
AS_READ: Final = f"{SAME_SAGA} AND #status = :was_status AND #owner = :was_owner"
"""And it is in the state, and has the owner, that were read."""
_NO_LIST: Final = f"attribute_not_exists(#{RecordAttribute.DECISIONS})"
Appended = tuple[Mapping[Any, str], Mapping[str, Any]]
"""What an update assigns in addition, and the values of it."""
NOTHING: Final[Appended] = ({}, {})
_APPEND: Final = f"list_append(if_not_exists(#{RecordAttribute.DECISIONS}, :no_decisions), :decision)"


@dataclass(frozen=True, slots=True, kw_only=True)
class Audit:
    """Author of decisions, and their reason.

    Attributes:
        who: ARN of the caller.
        why: 1 to 1,000 characters that are not all blank.
        proposal: number of the proposal that the caller confirms; None: the caller decides alone.
        proposed_by: ARN of who proposed it.

    Raises:
        ValueError: one of them is blank, or the reason is too long.
    """

    who: str
    why: str
    proposal: int | None = None
    proposed_by: str = ""

    def __post_init__(self) -> None:
        if not self.who.strip():
            raise ValueError("who must name the caller, got blank text; use credentials that have an identity")
        require_reason(self.why)


def require_reason(why: str) -> None:
    """Require a reason.

    Raises:
        ValueError: if it is blank or too long.
    """
    if not why.strip() or len(why) > MOST_REASON:
        raise ValueError(
            f"a reason must be 1 to {MOST_REASON} characters that are not all blank, got {len(why)}; write one sentence"
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Decision:
    """One decision about a saga.

    Attributes:
        at_ms: when, epoch milliseconds.
        who: ARN of the caller.
        what: the decision, in a few words.
        why: the reason that the caller gave.
        parked_reason: step and error for which the saga was parked then; None if it was not parked.
        proposal: number of the proposal that ``who`` confirmed; None: ``who`` decided alone.
        proposed_by: ARN of who proposed it; None likewise.
    """

    at_ms: int
    who: str
    what: str
    why: str
    parked_reason: str | None
    proposal: int | None = None
    proposed_by: str | None = None

    @classmethod
    def all_of(cls, item: Mapping[str, Any]) -> list[Decision]:
        """The decisions in a stored record, the earliest first."""
        f = DecisionField
        entries = [entry["M"] for entry in _stored(item)]
        return [
            cls(
                at_ms=int(entry[f.AT]["N"]),
                who=entry[f.WHO]["S"],
                what=entry[f.WHAT]["S"],
                why=entry[f.WHY]["S"],
                parked_reason=entry[f.PARKED_REASON]["S"] if f.PARKED_REASON in entry else None,
                proposal=int(entry[f.PROPOSAL]["N"]) if f.PROPOSAL in entry else None,
                proposed_by=entry[f.PROPOSED_BY]["S"] if f.PROPOSED_BY in entry else None,
            )
            for entry in entries
        ]


def appended(audit: Audit, what: str, record: RequestRecord, now_ms: int, *before: Mapping[str, Any]) -> Appended:
    """Assignments and values of an update that appends a decision.

    Args:
        audit: its author and reason.
        what: the decision.
        record: as it was read.
        now_ms: the time.
        before: entries that are appended before it, from ``entry_of``.

    Raises:
        ValueError: if the record's list is full.
    """
    if record.decisions + len(before) >= MOST_DECISIONS:
        raise ValueError(
            f"the record of saga {record.saga_id} must have less than {MOST_DECISIONS} decisions, got "
            f"{record.decisions}; find out why it was decided about so often, and let its reconciler continue it"
        )
    entry = entry_of(audit, what, now_ms, parked_reason=_parked_at(record))
    values = {"no_decisions": {"L": []}, "decision": {"L": [*before, entry]}}
    return {RecordAttribute.DECISIONS: _APPEND}, values


def entry_of(audit: Audit, what: str, now_ms: int, *, parked_reason: str | None = None) -> dict[str, Any]:
    """The entry of a decision.

    Args:
        audit: its author and reason.
        what: the decision.
        now_ms: the time.
        parked_reason: step and error for which its saga is parked; None: it is not, or there is no saga.
    """
    f = DecisionField
    entry = {f.AT: {"N": str(now_ms)}, f.WHO: {"S": audit.who}, f.WHAT: {"S": what}, f.WHY: {"S": audit.why}}
    if parked_reason:
        entry[f.PARKED_REASON] = {"S": parked_reason}
    if audit.proposal is not None:
        entry[f.PROPOSAL] = {"N": str(audit.proposal)}
    if audit.proposed_by:
        entry[f.PROPOSED_BY] = {"S": audit.proposed_by}
    return {"M": entry}


def grown(item: Mapping[str, Any], audit: Audit, what: str, now_ms: int) -> dict[str, Sequence[Any]]:
    """The list of an item that is written whole, on condition that it is as it was read: the newest entries.

    Args:
        item: as it was read.
        audit: author and reason of the decision.
        what: the decision.
        now_ms: the time.
    """
    return {"L": [*_stored(item), entry_of(audit, what, now_ms)][-MOST_DECISIONS:]}


def list_as_read(record: RequestRecord) -> Arguments:
    """Arguments of the condition that a record is its saga's, in the state, with the owner and the decisions as read.

    So an update that is sent again because its answer was lost appends nothing twice.
    """
    count = record.decisions
    as_read = f"size(#{RecordAttribute.DECISIONS}) = :count" if count else _NO_LIST
    return when(
        f"{AS_READ} AND {as_read}",
        saga_id={"S": record.saga_id},
        was_status={"S": record.status},
        was_owner={"S": record.owner},
        **({"count": {"N": str(count)}} if count else {}),
    )


def decision_update(
    audit: Audit, what: str, record: RequestRecord, now_ms: int, condition: Arguments | None = None
) -> Arguments:
    """Arguments of an update that appends a decision, and changes nothing else.

    Args:
        audit: its author and reason.
        what: the decision.
        record: as it was read.
        now_ms: the time.
        condition: arguments of it, from ``when``; the saga is the same, by default.
    """
    sets, values = appended(audit, what, record, now_ms)
    condition = condition or when(SAME_SAGA, saga_id={"S": record.saga_id})
    return {"Key": {RecordAttribute.ID: {"S": record.request_id}}, **update(condition, sets, values=values)}


def _stored(item: Mapping[str, Any]) -> list[Any]:
    return list(item.get(RecordAttribute.DECISIONS, {}).get("L", []))


def _parked_at(record: RequestRecord) -> str | None:
    """Step and error of a parked saga. Not its message: that is removed with the response, when it expires."""
    if record.parked_reason is None:
        return None
    told = json.loads(record.parked_reason)
    return ": ".join(str(told[name]) for name in ("step", "error") if told.get(name))
