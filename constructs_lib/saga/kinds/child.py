"""A group of steps in a Standard state machine of its own."""

from __future__ import annotations

from typing import Final

from constructs_lib.saga.cost.tally import Tally
from constructs_lib.saga.cost.usage import branch
from constructs_lib.saga.cost.ways import Passed
from constructs_lib.saga.description.description import StepDescription
from constructs_lib.saga.description.kind import GroupKind, Machine
from constructs_lib.saga.graph.looks import Tone, at_most

_NESTED: Final = "M2 2h12v12H2zM5.5 5.5h5v5h-5z"


class Child(GroupKind, name="child"):
    """Steps in a Standard state machine with a history of its own."""

    icon = _NESTED
    tone = Tone.GROUP
    machine = Machine.STANDARD

    def caption(self, step: StepDescription) -> str:
        """Longest duration of the phase."""
        return at_most("Standard child", step)

    def count(self, tally: Tally, group: StepDescription, passed: Passed) -> None:
        """A task that runs it, and a choice for its outcome; its steps are transitions of its own."""
        tally.state(group.name, 2)
        milliseconds = branch(tally, group.branches[0], passed, times=1, machine=True)
        tally.milliseconds += 2 * tally.inputs.state_ms + milliseconds
