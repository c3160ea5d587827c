"""A group of steps that run for each item."""

from __future__ import annotations

from typing import Final

from constructs_lib.saga.asl.groups import branch_states, joined
from constructs_lib.saga.asl.items import items_of
from constructs_lib.saga.asl.plan import CompiledGroup, SagaPlan, State
from constructs_lib.saga.asl.states import reached_from
from constructs_lib.saga.cost.tally import Tally
from constructs_lib.saga.cost.usage import branch, times_of
from constructs_lib.saga.cost.ways import Passed
from constructs_lib.saga.description.description import StepDescription
from constructs_lib.saga.graph.looks import Tone
from constructs_lib.saga.kinds import GroupOfSteps
from constructs_lib.saga.steps.jsonata import expression

_STACK: Final = "M5 5h9v9H5zM2 11V2h9"


class Map(GroupOfSteps, name="map"):
    """The same steps for each item."""

    icon = _STACK
    tone = Tone.GROUP
    at_once = True
    per_item = True
    refusals = ("InvalidMapItems",)

    def caption(self, step: StepDescription) -> str:
        """Number of its items."""
        return f"map, for each of at most {step.max_items} items" if step.max_items else "map, for each item"

    def state(self, plan: SagaPlan, group: CompiledGroup, known: str) -> State:
        """A state with the steps of one item; outputs are by the item's key."""
        start, states = branch_states(plan, group, 0, known)
        by_key = "".join(
            f'"{step.name}": $merge([{{}}, $r[$exists(outputs.{step.name})].{{key: outputs.{step.name}}}]), '
            for step in group.leaves
        ).rstrip(", ")
        return {
            "Type": "Map",
            "Items": expression(items_of(group, known, strict=True)),
            "MaxConcurrency": group.max_concurrency,
            "ItemProcessor": {
                "ProcessorConfig": {"Mode": "INLINE"},
                "StartAt": start,
                "States": reached_from(start, states),
            },
            "Assign": {"phase": joined(plan, f"{{{by_key}}}")},
        }

    def count(self, tally: Tally, group: StepDescription, passed: Passed) -> None:
        """Every item enters every state of the map's steps."""
        tally.state(group.name, 2)
        milliseconds = branch(tally, group.branches[0], passed, times=times_of(group, tally.inputs))
        tally.milliseconds += 2 * tally.inputs.state_ms + milliseconds
