"""A step that waits for an occurrence that is not work for the saga."""

from __future__ import annotations

from typing import Final

from constructs_lib.saga.asl.flow import Flow
from constructs_lib.saga.asl.plan import SagaPlan, State
from constructs_lib.saga.asl.tasks import Exits, waiting_states
from constructs_lib.saga.cost.tally import Purpose, Tally
from constructs_lib.saga.cost.work import wait_for_answer
from constructs_lib.saga.description.description import StepDescription
from constructs_lib.saga.graph.looks import Tone, within
from constructs_lib.saga.kinds import PlainStep

_HOURGLASS: Final = "M4 1.5h8M4 14.5h8M5 1.5c0 4 6 4.5 6 6.5s-6 2.5-6 6.5M11 1.5c0 4-6 4.5-6 6.5s6 2.5 6 6.5"


class Wait(PlainStep, name="wait"):
    """Something is awaited that is not work for the saga: a reviewer's decision, a parcel's scan."""

    icon = _HOURGLASS
    tone = Tone.QUIET
    runs_function = True

    def states(self, plan: SagaPlan, flow: Flow, index: int, exits: Exits) -> dict[str, State]:
        """A task that sends to the queue and waits for an outcome."""
        return waiting_states(plan, flow, index, exits)

    def caption(self, step: StepDescription) -> str:
        """Longest duration of the wait."""
        return within("waits", step)

    def count(self, tally: Tally, step: StepDescription, times: int) -> None:
        """Nothing is written before; the row is read, and whether an outcome has arrived before."""
        tally.read(Purpose.LOG, step.name, 2 * times)
        wait_for_answer(tally, step, times)
