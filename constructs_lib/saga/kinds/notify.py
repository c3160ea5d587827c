"""A step that sends a message to a FIFO queue."""

from __future__ import annotations

from typing import Final

from constructs_lib.saga.cost.prices import Meter
from constructs_lib.saga.cost.tally import Purpose, Tally
from constructs_lib.saga.description.description import StepDescription
from constructs_lib.saga.graph.looks import Tone
from constructs_lib.saga.kinds import FunctionStep

_ENVELOPE: Final = "M1.5 3.5h13v9h-13zM1.5 4l6.5 5 6.5-5"


class Notify(FunctionStep, name="notify"):
    """A message to a FIFO queue, under the step key."""

    icon = _ENVELOPE
    words = "notification"
    tone = Tone.OUTGOING
    sends = True
    keyed_message = True

    def count(self, tally: Tally, step: StepDescription, times: int) -> None:
        """The row is read, the message sent, the row written."""
        tally.read(Purpose.LOG, step.name, times)
        self.count_effects(tally, step, times)
        tally.write(Purpose.LOG, step.name, tally.inputs.row_units * times)

    def count_effects(self, tally: Tally, step: StepDescription, times: int) -> None:
        """Its message."""
        tally.add(Meter.FIFO_REQUESTS, Purpose.EFFECTS, step.name, times)
