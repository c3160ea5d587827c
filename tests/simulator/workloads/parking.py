"""Parked sagas of stacks whose every outcome can be determined automatically."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from constructs_lib.testing.invariants import Invariant
from constructs_lib.testing.simulator import World
from constructs_lib.testing.simulator.world import Parking

_PENDING: Final = "the provider is not done with step"
"""A job that is pending for longer than its compensation queries is a reason: its outcome unparks the saga."""


def audit_parking(world: World, *, legitimate: Callable[[Parking], bool] = lambda _: False) -> Invariant:
    """Check that a saga whose owner began after the last fault was not parked: each provider could be asked.

    Args:
        world: everything that exists.
        legitimate: whether a saga may have been parked without a fault.
    """
    violations = tuple(
        f"saga {saga_id} was parked without a fault: {parking}"
        for saga_id, parkings in world.parked_for.items()
        for parking in parkings
        if parking.undisturbed and not parking.detail.startswith(_PENDING) and not legitimate(parking)
    )
    return Invariant(name="without faults nothing is parked", checked=len(world.parked_for), violations=violations)
