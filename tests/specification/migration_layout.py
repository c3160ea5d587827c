"""Model: deployments with two layouts meet one customer while its items move, and come back.

The second layout names an attribute that the first one leaves in the old item. Deployments of either live on; their
workers and operators act at any moment. Each move is one transaction, which ``migration.py`` takes apart.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from enum import StrEnum
from typing import Final

from tests.specification.checker import Move
from tests.specification.conditions import Because, Condition, Conditional
from tests.specification.states import replace

STORE: Final = "lambda_src/saga_runtime/migration/store.py"


class LayoutCondition(Condition):
    """Conditions of a layout."""

    LAYOUT_IS_KEPT = Because(
        "a deployment with another layout does not read the phase, so it moves no item",
        STORE,
        "if phase.number != LEGACY and phase.layout != self.layout.fingerprint:",
    )


class LayoutPromise(StrEnum):
    """Promises that must never be broken."""

    ATTRIBUTE_LOST = "ATTRIBUTE_LOST"


C, P = LayoutCondition, LayoutPromise
ATTRIBUTES: Final = {1: frozenset("a"), 2: frozenset("ab")}
TARGETS: Final = ("OLD", "OLD", "DUAL", "NEW", "GONE")
"""Target of each phase, as in ``migration.py``."""


@dataclass(frozen=True, slots=True)
class World:
    """Everything.

    Attributes:
        old, new: attributes that the items hold.
        mark: the concern's place.
        phase: the phase item, and the layout in it; 0: none.
    """

    old: frozenset[str] = frozenset("ab")
    new: frozenset[str] = frozenset()
    mark: str = "OLD"
    phase: int = 0
    layout: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class LayoutModel(Conditional):
    """The model.

    Attributes:
        top: the last phase.
    """

    top: int = 4

    def initial(self) -> World:
        """Nothing has moved."""
        return World()

    def at_rest(self, world: World) -> bool:
        """Operators may stop in every phase."""
        return True

    def broken(self, world: World) -> Iterator[str]:
        """Each attribute is in one item."""
        if world.old | world.new != frozenset("ab"):
            yield P.ATTRIBUTE_LOST

    def moves(self, world: World) -> Iterator[Move[World]]:
        """A worker, or an operator, of either deployment."""
        for layout in ATTRIBUTES:
            if world.phase and world.layout != layout and self.holds(C.LAYOUT_IS_KEPT):
                continue
            yield from self._phases(world, layout)
            yield from _worker(world, layout)

    def _phases(self, world: World, layout: int) -> Iterator[Move[World]]:
        for to in (world.phase - 1, world.phase + 1):
            if 0 <= to <= self.top and (to or world.mark == "OLD"):
                yield Move(f"an operator of layout {layout} goes to {to}", replace(world, phase=to, layout=layout))


def _worker(world: World, layout: int) -> Iterator[Move[World]]:
    named, target = ATTRIBUTES[layout], TARGETS[world.phase]
    match world.mark, target:
        case "OLD", "DUAL" | "NEW" | "GONE":
            does, after = "copies", replace(world, mark="DUAL", new=named & world.old)
        case "DUAL", "NEW" | "GONE":
            does, after = "seals", replace(world, mark="NEW")
        case "DUAL", "OLD":
            does, after = "retreats", replace(world, mark="OLD", new=frozenset())
        case "NEW", "OLD" | "DUAL":
            back = (world.old - named) | (world.new & named)
            does, after = "unseals", replace(world, mark="DUAL", old=back)
        case "NEW", "GONE":
            does, after = "contracts", replace(world, old=world.old - named)
        case _:
            return
    if after != world:
        yield Move(f"a worker of layout {layout} {does}", after)
