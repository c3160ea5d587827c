"""Decisions of operators: who, when, what, why. Pure: data in, data out.

A list is kept with what it is about. A saga's ends with its record (``recovery.audit``); of what has no end, as a
switch or a phase, the newest are kept (``grown``).
"""

from __future__ import annotations

import unicodedata
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from saga_runtime.protocol import DecisionField, RecordAttribute

MOST_REASON: Final = 1_000
"""Characters of a reason."""
MOST_DECISIONS: Final = 50
"""Of what has no end: an item of DynamoDB holds 400 KB."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Audit:
    """Author of decisions, and their reason.

    Attributes:
        who: ARN of the caller.
        why: 1 to 1,000 printable characters in one line that are not all blank.
        proposal: number of the proposal that the caller confirms; None: the caller decides alone.
        proposed_by: ARN of who proposed it.

    Raises:
        ValueError: one of them is blank, or the reason is too long or not printable.
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
        ValueError: if it is blank, too long, or has characters that move a terminal's cursor or turn its text: a second
            operator must read what is proposed.
    """
    if not why.strip() or len(why) > MOST_REASON:
        raise ValueError(
            f"a reason must be 1 to {MOST_REASON} characters that are not all blank, got {len(why)}; write one sentence"
        )
    unprintable = next((char for char in why if not char.isprintable() and unicodedata.category(char) != "Zs"), None)
    if unprintable is not None:
        raise ValueError(f"a reason must be printable, got {unprintable!r}; write one sentence in one line")


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

    @property
    def entry(self) -> dict[str, Any]:
        """The decision as it is stored."""
        f = DecisionField
        members: dict[str, Any] = {f.AT: {"N": str(self.at_ms)}}
        texts = {
            f.WHO: self.who,
            f.WHAT: self.what,
            f.WHY: self.why,
            f.PARKED_REASON: self.parked_reason,
            f.PROPOSED_BY: self.proposed_by,
        }
        members |= {name: {"S": text} for name, text in texts.items() if text}
        return {"M": members | ({f.PROPOSAL: {"N": str(self.proposal)}} if self.proposal is not None else {})}


def decided(audit: Audit, what: str, now_ms: int, *, parked_reason: str | None = None) -> Decision:
    """A decision that is made now.

    Args:
        audit: its author and reason.
        what: the decision.
        now_ms: the time.
        parked_reason: step and error for which its saga is parked; None: it is not, or there is no saga.
    """
    return Decision(
        at_ms=now_ms,
        who=audit.who,
        what=what,
        why=audit.why,
        parked_reason=parked_reason,
        proposal=audit.proposal,
        proposed_by=audit.proposed_by or None,
    )


def grown(earlier: Sequence[Decision], new: Decision) -> tuple[Decision, ...]:
    """The list of what has no end, with a new decision: the newest."""
    return (*earlier, new)[-MOST_DECISIONS:]


def stored(decisions: Sequence[Decision]) -> dict[str, list[Any]]:
    """A list as it is stored."""
    return {"L": [one.entry for one in decisions]}
