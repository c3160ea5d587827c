"""Statements of a workload about its requests' results."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from constructs_lib.testing.invariants import Invariant
from constructs_lib.testing.simulator.workload import Result, Workload, Wrapped
from constructs_lib.testing.simulator.world import World


class Stated(Wrapped):
    """A workload whose statements are counted.

    Args:
        workload: states what its requests must have resulted in.

    Attributes:
        stated: how many things its statements were checked of.
    """

    def __init__(self, workload: Workload) -> None:
        super().__init__(workload)
        self.stated = 0

    def audit_results(self, world: World, results: Sequence[Result]) -> Iterable[Invariant]:
        """Check what the workload states, and count it."""
        found = list(super().audit_results(world, results))
        self.stated += sum(invariant.checked for invariant in found)
        return found
