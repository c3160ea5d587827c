"""Progress of a migration: the phase, jobs, and their passes. Pure."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import Any, Final

from saga_runtime.migration.layout import LEGACY
from saga_runtime.protocol import MigrationAttribute, PassField
from saga_runtime.shared.decisions import Decision

_A: Final = MigrationAttribute


@dataclass(frozen=True, slots=True, kw_only=True)
class Phase:
    """The phase item.

    Attributes:
        number: the phase.
        changed_at_ms: when it changed last; 0: never.
        changes: how often it changed: the same number may come again, and is another time then.
        layout: ``Layout.fingerprint`` of the deployment that changed it.
        decisions: its newest changes, the earliest first: who, when, what, why.
    """

    number: int = LEGACY
    changed_at_ms: int = 0
    changes: int = 0
    layout: str = ""
    decisions: tuple[Decision, ...] = ()


class Job(StrEnum):
    """Task of a pass."""

    BACKFILL = "backfill"
    """Moves each concern of each customer to the phase's target."""
    VERIFY = "verify"
    """Compares both items of each concern that is in both, and moves nothing."""


class Reason(StrEnum):
    """Reason why a concern of a customer is left, or is an example."""

    DIFFERENT = "DIFFERENT"
    """Both items should hold the same values, and do not."""
    BUSY = "BUSY"
    """Other transactions, or throttles, were in the way at each try; the next pass tries again."""
    RACED = "RACED"
    """A condition was not met: another run, or a writer, was faster. Tried again at once."""
    KEY_TAKEN = "KEY_TAKEN"
    """Another item has the new item's key, or the key of a row's copy: something else, or a row of the same id."""
    UNEXPECTED = "UNEXPECTED"
    """The marks of both items contradict each other: something outside the writers wrote one of them."""
    REFUSED = "REFUSED"
    """AWS refuses the write itself: an item would be too large, or an attribute has a type that an index refuses."""
    UNREADABLE = "UNREADABLE"
    """A row of a history lacks what its copy's key is made of, or has it in another type, or too long."""
    OTHER_ATTRIBUTES = "OTHER_ATTRIBUTES"
    """The old item has an attribute of no concern, so it is not deleted."""


MOST_EXAMPLES: Final = 10


@dataclass(frozen=True, slots=True, kw_only=True)
class Example:
    """A customer's concern that differs, or that is left.

    Attributes:
        customer: its key.
        concern: its name, or the sort key of a row of a history; empty: all concerns.
        reason: why.
    """

    customer: str
    concern: str
    reason: Reason

    def __str__(self) -> str:
        return f"{self.customer}{f' {self.concern}' if self.concern else ''} ({self.reason})"


@dataclass(frozen=True, slots=True, kw_only=True)
class Pass:
    """A complete pass of a segment.

    Attributes:
        phase: its phase, from its begin to its end.
        changes: ``Phase.changes``, likewise.
        began_at_ms, ended_at_ms: epoch milliseconds.
        seen: customers.
        moved: moves that took effect, and copies of rows.
        left: concerns of customers that could not be moved, or compared, and rows that could not be copied.
        compared: concerns of customers that were compared.
        different: those whose items differ.
        clean_since_ms: of a comparison, begin of the first of the passes of this phase that found no difference, up to
            this one. Of a backfill, since when everything of this phase has moved: the end of the last pass that
            moved something. None: this one found a difference, or left something.
    """

    phase: int
    changes: int
    began_at_ms: int
    ended_at_ms: int
    seen: int
    moved: int
    left: int
    compared: int
    different: int
    clean_since_ms: int | None

    def to_json(self) -> str:
        """The pass as text."""
        f = PassField
        told = {
            f.PHASE: self.phase,
            f.CHANGES: self.changes,
            f.BEGAN_AT: self.began_at_ms,
            f.ENDED_AT: self.ended_at_ms,
            f.SEEN: self.seen,
            f.MOVED: self.moved,
            f.LEFT: self.left,
            f.COMPARED: self.compared,
            f.DIFFERENT: self.different,
            f.CLEAN_SINCE: self.clean_since_ms,
        }
        return json.dumps(told, separators=(",", ":"))

    @classmethod
    def from_json(cls, text: str) -> Pass:
        """Read what ``to_json`` wrote."""
        f, told = PassField, json.loads(text)
        return cls(
            phase=told[f.PHASE],
            changes=told[f.CHANGES],
            began_at_ms=told[f.BEGAN_AT],
            ended_at_ms=told[f.ENDED_AT],
            seen=told[f.SEEN],
            moved=told[f.MOVED],
            left=told[f.LEFT],
            compared=told[f.COMPARED],
            different=told[f.DIFFERENT],
            clean_since_ms=told[f.CLEAN_SINCE],
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Progress:
    """Progress of one job in one segment.

    Attributes:
        version: number of pages of all passes.
        phase: phase of the pass in progress.
        changes: ``Phase.changes`` of that.
        began_at_ms: when it began; 0: none ever did.
        cursor: key behind which its next page begins; None: at the start.
        seen, moved, left, compared, different: so far, as in a ``Pass``.
        examples: the first concerns that differ, then the first that are left.
        last: the last complete pass.
    """

    version: int = 0
    phase: int = 0
    changes: int = 0
    began_at_ms: int = 0
    cursor: Mapping[str, Any] | None = None
    seen: int = 0
    moved: int = 0
    left: int = 0
    compared: int = 0
    different: int = 0
    examples: tuple[Example, ...] = ()
    last: Pass | None = None

    def with_examples(self, found: Sequence[Example]) -> Progress:
        """The same with further examples, up to ``MOST_EXAMPLES``: differences before all others."""
        ordered = sorted((*self.examples, *found), key=lambda one: one.reason is not Reason.DIFFERENT)
        return replace(self, examples=tuple(ordered[:MOST_EXAMPLES]))

    @classmethod
    def from_item(cls, item: Mapping[str, Any] | None) -> Progress:
        """Read an item; an absent one is a job that never ran."""
        if item is None:
            return cls()
        numbers = {
            field: int(item[name]["N"])
            for field, name in (
                ("version", _A.VERSION),
                ("phase", _A.PHASE),
                ("changes", _A.CHANGES),
                ("began_at_ms", _A.BEGAN_AT),
                ("seen", _A.SEEN),
                ("moved", _A.MOVED),
                ("left", _A.LEFT),
                ("compared", _A.COMPARED),
                ("different", _A.DIFFERENT),
            )
        }
        return cls(
            **numbers,
            cursor=json.loads(item[_A.CURSOR]["S"]) if _A.CURSOR in item else None,
            examples=tuple(
                Example(customer=customer, concern=concern, reason=Reason(reason))
                for customer, concern, reason in json.loads(item[_A.EXAMPLES]["S"])
            ),
            last=Pass.from_json(item[_A.LAST]["S"]) if _A.LAST in item else None,
        )

    def attributes(self) -> dict[str, Any]:
        """The item without its key."""
        numbers = {
            _A.VERSION: self.version,
            _A.PHASE: self.phase,
            _A.CHANGES: self.changes,
            _A.BEGAN_AT: self.began_at_ms,
            _A.SEEN: self.seen,
            _A.MOVED: self.moved,
            _A.LEFT: self.left,
            _A.COMPARED: self.compared,
            _A.DIFFERENT: self.different,
        }
        item: dict[str, Any] = {name: {"N": str(value)} for name, value in numbers.items()}
        item[_A.EXAMPLES] = {"S": json.dumps([[one.customer, one.concern, one.reason] for one in self.examples])}
        if self.cursor is not None:
            item[_A.CURSOR] = {"S": json.dumps(self.cursor)}
        if self.last is not None:
            item[_A.LAST] = {"S": self.last.to_json()}
        return item
