"""A step whose effect is at a provider."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from constructs_lib.saga.cost.tally import Purpose, Tally
from constructs_lib.saga.description.description import StepDescription
from constructs_lib.saga.description.kind import Mutation
from constructs_lib.saga.graph.looks import Tone
from constructs_lib.saga.kinds import FunctionStep

if TYPE_CHECKING:
    from collections.abc import Iterator

    from constructs_lib.saga.steps.kind import FunctionGrant
    from constructs_lib.saga.steps.step import Step
    from constructs_lib.tables.saga_log import SagaLog

_GLOBE: Final = (
    "M8 1.5a6.5 6.5 0 1 0 0 13a6.5 6.5 0 0 0 0-13zM1.5 8h13"
    "M8 1.5c2 1.8 3 4 3 6.5s-1 4.7-3 6.5c-2-1.8-3-4-3-6.5s1-4.7 3-6.5z"
)


class External(FunctionStep, name="external"):
    """The effect is at a provider outside."""

    icon = _GLOBE
    words = "external, at a provider"
    tone = Tone.OUTSIDE
    mutation = Mutation.OUTSIDE

    def grants(self, step: Step, log: SagaLog) -> Iterator[FunctionGrant]:
        """Write a row before its call and one after it, and those of its compensation."""
        if step.fn is not None:
            yield log.grant_external, step.fn
        yield from super().grants(step, log)

    def count(self, tally: Tally, step: StepDescription, times: int) -> None:
        """INTENT before the provider is called, DONE after it."""
        tally.write(Purpose.LOG, step.name, 2 * tally.inputs.row_units * times)
