"""A group of steps that run for each item."""

from __future__ import annotations

from typing import Final

from constructs_lib.saga.cost.tally import Tally
from constructs_lib.saga.cost.usage import branch, times_of
from constructs_lib.saga.cost.ways import Passed
from constructs_lib.saga.description.description import StepDescription
from constructs_lib.saga.description.kind import GroupKind
from constructs_lib.saga.graph.looks import Tone

_STACK: Final = "M5 5h9v9H5zM2 11V2h9"


class Map(GroupKind, name="map"):
    """The same steps for each item."""

    icon = _STACK
    tone = Tone.GROUP
    at_once = True
    per_item = True
    refusals = ("BadItems",)

    def caption(self, step: StepDescription) -> str:
        """Number of its items."""
        return f"map, for each of at most {step.max_items} items" if step.max_items else "map, for each item"

    def count(self, tally: Tally, group: StepDescription, passed: Passed) -> None:
        """Every item enters every state of the map's steps."""
        tally.state(group.name, 2)
        milliseconds = branch(tally, group.branches[0], passed, times=times_of(group, tally.inputs))
        tally.milliseconds += 2 * tally.inputs.state_ms + milliseconds
