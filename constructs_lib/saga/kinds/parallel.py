"""A group of branches that run at once."""

from __future__ import annotations

from typing import Final

from constructs_lib.saga.asl.groups import branch_states, joined
from constructs_lib.saga.asl.plan import CompiledGroup, SagaPlan, State
from constructs_lib.saga.asl.states import reached_from
from constructs_lib.saga.cost.tally import Tally
from constructs_lib.saga.cost.usage import branch
from constructs_lib.saga.cost.ways import Passed
from constructs_lib.saga.description.description import StepDescription
from constructs_lib.saga.graph.looks import Tone
from constructs_lib.saga.kinds import GroupOfSteps
from saga_runtime.protocol import PhaseField

_FORK: Final = "M8 1.5v3M3 14.5v-6a4 4 0 0 1 4-4h2a4 4 0 0 1 4 4v6M8 4.5v10"


class Parallel(GroupOfSteps, name="parallel"):
    """Branches that run at once."""

    icon = _FORK
    tone = Tone.GROUP
    asks_first = True
    at_once = True

    def caption(self, step: StepDescription) -> str:
        """Number of its branches."""
        return f"parallel, {len(step.branches)} branches at once"

    def state(self, plan: SagaPlan, group: CompiledGroup, known: str) -> State:
        """A state with every branch."""
        branches = [branch_states(plan, group, number, known) for number in range(len(group.branches))]
        return {
            "Type": "Parallel",
            "Branches": [{"StartAt": start, "States": reached_from(start, states)} for start, states in branches],
            "Assign": {"phase": joined(plan, f"$merge([{{}}, $r.{PhaseField.OUTPUTS}])")},
        }

    def count(self, tally: Tally, group: StepDescription, passed: Passed) -> None:
        """Every branch's states, and the time of the longest branch."""
        tally.state(group.name, 2)
        longest = max(branch(tally, steps, passed, times=1) for steps in group.branches)
        tally.milliseconds += 2 * tally.inputs.state_ms + longest
