"""A step that puts an event for downstream systems."""

from __future__ import annotations

from typing import Final

from constructs_lib.saga.cost.prices import Meter
from constructs_lib.saga.cost.tally import Purpose, Tally
from constructs_lib.saga.description.description import StepDescription
from constructs_lib.saga.graph.looks import Tone
from constructs_lib.saga.kinds import DirectStep

_BROADCAST: Final = (
    "M8 7a1 1 0 1 0 0 2a1 1 0 0 0 0-2zM5.2 10.8a4 4 0 0 1 0-5.6M10.8 5.2a4 4 0 0 1 0 5.6"
    "M3 13a7 7 0 0 1 0-10M13 3a7 7 0 0 1 0 10"
)


class Event(DirectStep, name="event"):
    """An event for downstream systems."""

    icon = _BROADCAST
    words = "event"
    tone = Tone.OUTGOING
    asks_first = True
    sends = True

    def count(self, tally: Tally, step: StepDescription, times: int) -> None:
        """The event."""
        self.count_effects(tally, step, times)

    def count_effects(self, tally: Tally, step: StepDescription, times: int) -> None:
        """The event."""
        tally.add(Meter.EVENTS, Purpose.EFFECTS, step.name, times)
