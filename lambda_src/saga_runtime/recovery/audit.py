"""Decisions of operators, kept with the saga that they are about: who, when, what, why. Pure: data in, data out.

A decision is appended to the record's list by the very update, or transaction, that carries it out: both are
written, or neither. Nothing changes or removes an entry; the list ends with the record.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from saga_runtime.idempotency.record import RequestRecord
from saga_runtime.protocol import DecisionField, RecordAttribute
from saga_runtime.shared.expressions import Arguments, update, when

MOST_REASON: Final = 1_000
"""Characters of a reason."""
SAME_SAGA: Final = "#saga_id = :saga_id"
"""The key still has the saga that was read: a forgotten key may be a newer request's."""
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
        entries = [entry["M"] for entry in item.get(RecordAttribute.DECISIONS, {}).get("L", [])]
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


def appended(audit: Audit, what: str, record: RequestRecord, now_ms: int) -> Appended:
    """Assignments and values of an update that appends a decision.

    Args:
        audit: its author and reason.
        what: the decision.
        record: as it was read.
        now_ms: the time.
    """
    f = DecisionField
    entry = {
        f.AT: {"N": str(now_ms)},
        f.WHO: {"S": audit.who},
        f.WHAT: {"S": what},
        f.WHY: {"S": audit.why},
        **({f.PARKED_REASON: {"S": parked}} if (parked := _parked_at(record)) else {}),
    }
    if audit.proposal is not None:
        entry |= {f.PROPOSAL: {"N": str(audit.proposal)}, f.PROPOSED_BY: {"S": audit.proposed_by}}
    values = {"no_decisions": {"L": []}, "decision": {"L": [{"M": entry}]}}
    return {RecordAttribute.DECISIONS: _APPEND}, values


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


def _parked_at(record: RequestRecord) -> str | None:
    """Step and error of a parked saga. Not its message: that is removed with the response, when it expires."""
    if record.parked_reason is None:
        return None
    told = json.loads(record.parked_reason)
    return ": ".join(str(told[name]) for name in ("step", "error") if told.get(name))
