"""A step that is a state of the user's own."""

from __future__ import annotations

from typing import Final

from constructs_lib.saga.asl.flow import Flow
from constructs_lib.saga.asl.plan import SagaPlan, State
from constructs_lib.saga.asl.tasks import Exits, direct_states
from constructs_lib.saga.graph.looks import Tone
from constructs_lib.saga.kinds import PlainStep

_BRACES: Final = (
    "M6 2.5c-2 0-2 1-2 2.5s0 2.5-1.8 3C4 8.5 4 9.5 4 11s0 2.5 2 2.5"
    "M10 2.5c2 0 2 1 2 2.5s0 2.5 1.8 3C12 8.5 12 9.5 12 11s0 2.5-2 2.5"
)


class Custom(PlainStep, name="custom"):
    """A state of the user's own."""

    icon = _BRACES
    words = "a state of your own"
    tone = Tone.OWN
    asks_first = True
    runs_task = False
    own_state = True

    def states(self, plan: SagaPlan, flow: Flow, index: int, exits: Exits) -> dict[str, State]:
        """The declared state."""
        return direct_states(plan, flow, index, exits)
