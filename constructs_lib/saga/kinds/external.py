"""A step whose effect is at a provider."""

from __future__ import annotations

from typing import Final

from constructs_lib.saga.cost.tally import Purpose, Tally
from constructs_lib.saga.description.description import StepDescription
from constructs_lib.saga.description.kind import Mutation, PlainKind
from constructs_lib.saga.graph.looks import Tone

_GLOBE: Final = (
    "M8 1.5a6.5 6.5 0 1 0 0 13a6.5 6.5 0 0 0 0-13zM1.5 8h13"
    "M8 1.5c2 1.8 3 4 3 6.5s-1 4.7-3 6.5c-2-1.8-3-4-3-6.5s1-4.7 3-6.5z"
)


class External(PlainKind, name="external"):
    """The effect is at a provider outside."""

    icon = _GLOBE
    words = "external, at a provider"
    tone = Tone.OUTSIDE
    mutation = Mutation.OUTSIDE
    runs_function = True

    def count(self, tally: Tally, step: StepDescription, times: int) -> None:
        """INTENT before the provider is called, DONE after it."""
        tally.write(Purpose.LOG, step.name, 2 * tally.inputs.row_units * times)
