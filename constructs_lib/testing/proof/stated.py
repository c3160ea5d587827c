"""Statements of a workload about its requests' results, and the audit of failed sagas in every stack with ledgers."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from typing import Final

from constructs_lib.testing.invariants import Invariant, Item
from constructs_lib.testing.simulator.workload import Result, Workload, Wrapped
from constructs_lib.testing.simulator.world import World
from saga_runtime.protocol import LedgerAttribute, RecordAttribute, RecordStatus

_CLEARING: Final = "clearing"
_UNDO: Final = "#undo"


class Stated(Wrapped):
    """A workload whose failed requests must leave every account as it was, and whose atomic steps only commit.

    Only the simulator hears the calls of atomic steps.

    Args:
        workload: states what its requests must have resulted in.

    Attributes:
        stated: how many things its statements were checked of.
    """

    def __init__(self, workload: Workload) -> None:
        super().__init__(workload)
        self.stated = 0

    def audit(self, world: World) -> Iterable[Invariant]:
        """Check the workload's invariants, and the accounts of failed sagas."""
        yield from super().audit(world)
        failed = [
            record[RecordAttribute.SAGA_ID]["S"]
            for table in world.parts.requests
            for record in world.records(table)
            if record[RecordAttribute.STATUS]["S"] == RecordStatus.FAILED
        ]
        if isinstance(world, World):
            yield Invariant(
                name="atomic steps write in their commits only",
                checked=world.atomic_calls,
                violations=tuple(f"{what}, {count} times" for what, count in world.uncommitted.items()),
            )
        if world.parts.ledgers:
            yield audit_failed(failed, [world.table(ledger) for ledger in world.parts.ledgers])

    def audit_results(self, world: World, results: Sequence[Result]) -> Iterable[Invariant]:
        """Check what the workload states, and count it."""
        found = list(super().audit_results(world, results))
        self.stated += sum(invariant.checked for invariant in found)
        return found


def audit_failed(failed: Iterable[str], ledgers: Iterable[Iterable[Item]]) -> Invariant:
    """Audit what failed sagas left in the accounts of ledgers.

    What must hold: an account's entries of one failed saga sum to zero, where what a compensation posted to a suspense
    account under the account's name is treated as returned.

    Args:
        failed: ids of the sagas.
        ledgers: every item of each ``LedgerTable``.
    """
    known = {*failed}
    violations = tuple(
        f"saga {saga_id} failed, and changed account {account} by {change:+} {unit}"
        for items in ledgers
        for saga_id, account, unit, change in _changes(known, items)
    )
    return Invariant(name="a failed saga leaves accounts as they were", checked=len(known), violations=violations)


def _changes(failed: set[str], items: Iterable[Item]) -> Iterator[tuple[str, str, str, int]]:
    """Saga, account, unit and sum of each change that a failed saga left in one ledger."""
    a = LedgerAttribute
    posted: dict[tuple[str, str, str], int] = defaultdict(int)
    suspended: dict[tuple[str, str, str], int] = defaultdict(int)
    for item in items:
        if item.get(a.KIND, {}).get("S") != "entry":
            continue
        saga_id, amount, unit = item[a.ENTRY_ID]["S"].partition("#")[0], int(item[a.AMOUNT]["N"]), item[a.CURRENCY]["S"]
        kind, owner, *_ = item[a.PK]["S"].split("#")
        if saga_id not in failed:
            continue
        if kind != _CLEARING:  # of an account, or of a shard that collects for it
            posted[saga_id, owner, unit] += amount
        elif amount > 0 and _UNDO in item[a.ENTRY_ID]["S"]:
            suspended[saga_id, item[a.COUNTERPARTY]["S"], unit] += amount
    for key, change in posted.items():
        if change and change + suspended[key]:
            yield *key, change
