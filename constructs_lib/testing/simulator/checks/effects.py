"""Audits of effects: what failed sagas left in ledgers, and what a function changed outside of its commit."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import Final

from constructs_lib.testing.invariants import Invariant, Item
from saga_runtime import HoldState
from saga_runtime.protocol import LedgerAttribute, RecordAttribute, RecordStatus

_CLEARING: Final = "clearing"
_UNDO: Final = "#undo"
_NAMED_BY: Final = {"entry": LedgerAttribute.ENTRY_ID, "hold": LedgerAttribute.HOLD_ID}
"""Which attribute has the step key, by the kind of the item."""
_Place = tuple[str, str, str]
"""Saga, account or clearing account, and unit."""


def failed_in(records: Iterable[Item]) -> list[str]:
    """Ids of the failed sagas among request records."""
    a = RecordAttribute
    return [record[a.SAGA_ID]["S"] for record in records if record[a.STATUS]["S"] == RecordStatus.FAILED]


def audit_commits(calls: int, outside: Counter[str]) -> Invariant:
    """Audit effects of atomic steps and direct operations that were not part of their commits."""
    return Invariant(
        name="functions write in their commits only",
        checked=calls,
        violations=tuple(f"{what}, {count} times" for what, count in outside.items()),
    )


def audit_failed(failed: Iterable[str], ledgers: Iterable[Iterable[Item]]) -> Invariant:
    """Audit what failed sagas left in ledgers.

    What must hold: entries of one failed saga sum to zero, in each account and in each clearing account, and it holds
    nothing. What its compensation could not give back to an account, and posted to a suspense account under the
    account's name, is treated as returned.

    Args:
        failed: ids of the sagas.
        ledgers: every item of each ``LedgerTable``.
    """
    known = {*failed}
    violations = tuple(told for items in ledgers for told in _Left.of(known, items).told())
    return Invariant(name="a failed saga leaves accounts as they were", checked=len(known), violations=violations)


@dataclass(slots=True)
class _Left:
    """Sums of one ledger's entries and open holds of failed sagas.

    Attributes:
        accounts, clearing: of the entries of each.
        waiting: by the account that it is for, what a compensation posted to each clearing account alone.
        held: of the open holds.
    """

    accounts: dict[_Place, int] = field(default_factory=lambda: defaultdict(int))
    clearing: dict[_Place, int] = field(default_factory=lambda: defaultdict(int))
    waiting: dict[_Place, Counter[str]] = field(default_factory=lambda: defaultdict(Counter))
    held: dict[_Place, int] = field(default_factory=lambda: defaultdict(int))

    @classmethod
    def of(cls, failed: set[str], items: Iterable[Item]) -> _Left:
        """Add up a ledger."""
        a, left, suspended = LedgerAttribute, cls(), list[tuple[str, _Place, str, int]]()
        posted: set[tuple[str, str]] = set()
        for item in items:
            named_by = _NAMED_BY.get(item.get(a.KIND, {}).get("S", ""))
            entry_id = item[named_by]["S"] if named_by is not None else ""
            saga_id = entry_id.partition("#")[0]
            if saga_id not in failed:
                continue
            kind, owner, *_ = item[a.PK]["S"].split("#")
            amount, unit = int(item[a.AMOUNT]["N"]), item[a.CURRENCY]["S"]
            place = (saga_id, owner, unit)
            if named_by is a.HOLD_ID:
                left.held[place] += amount if item[a.STATE]["S"] == HoldState.OPEN else 0
            elif kind != _CLEARING:  # of an account, or of a shard that collects for it
                left.accounts[place] += amount
                posted.add((entry_id, owner))
            else:
                left.clearing[place] += amount
                if amount > 0 and _UNDO in entry_id:
                    suspended.append((entry_id, (saga_id, item[a.COUNTERPARTY]["S"], unit), owner, amount))
        for entry_id, place, owner, amount in suspended:
            if (entry_id, place[1]) not in posted:  # otherwise it is what was taken out of the account
                left.waiting[place][owner] += amount
        return left

    def told(self) -> Iterator[str]:
        """Yield a sentence for each change that was left."""
        for place, change in self.accounts.items():
            saga_id, account, unit = place
            waits = self.waiting.get(place, Counter())
            if change and change + waits.total() == 0:
                for owner, amount in waits.items():
                    self.clearing[saga_id, owner, unit] -= amount
            elif change:
                yield f"saga {saga_id} failed, and changed account {account} by {change:+} {unit}"
        for (saga_id, account, unit), change in self.clearing.items():
            if change:
                yield f"saga {saga_id} failed, and changed clearing account {account} by {change:+} {unit}"
        for (saga_id, account, unit), amount in self.held.items():
            if amount:
                yield f"saga {saga_id} failed, and holds {amount} {unit} of account {account}"
