"""A step whose provider works for the saga, and reports the outcome later."""

from __future__ import annotations

from typing import Final

from constructs_lib.saga.asl.flow import Flow
from constructs_lib.saga.asl.plan import SagaPlan, State
from constructs_lib.saga.asl.tasks import Exits, waiting_states
from constructs_lib.saga.cost.tally import Purpose, Tally
from constructs_lib.saga.cost.work import wait_for_answer
from constructs_lib.saga.description.description import StepDescription
from constructs_lib.saga.description.kind import Mutation
from constructs_lib.saga.graph.looks import Tone, within
from constructs_lib.saga.kinds import PlainStep

_RETURN: Final = "M14 3v4a3 3 0 0 1-3 3H3M6.5 6.5L3 10l3.5 3.5"


class Callback(PlainStep, name="callback"):
    """A provider outside works for the saga, and answers later."""

    icon = _RETURN
    tone = Tone.OUTSIDE
    mutation = Mutation.OUTSIDE
    runs_function = True

    def states(self, plan: SagaPlan, flow: Flow, index: int, exits: Exits) -> dict[str, State]:
        """A task that sends to the queue and waits for an outcome."""
        return waiting_states(plan, flow, index, exits)

    def caption(self, step: StepDescription) -> str:
        """Longest duration of the wait."""
        return within("callback", step)

    def count(self, tally: Tally, step: StepDescription, times: int) -> None:
        """A job is sent to the queue, is dispatched, and its outcome arrives by a webhook."""
        # INTENT before the provider is called, and that it took the job on; has an answer come before?
        tally.read(Purpose.LOG, step.name, times)
        tally.write(Purpose.LOG, step.name, 2 * tally.inputs.row_units * times)
        wait_for_answer(tally, step, times)
