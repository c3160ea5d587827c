"""A step that only reads."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from constructs_lib.saga.cost.tally import Purpose, Tally
from constructs_lib.saga.description.description import StepDescription
from constructs_lib.saga.graph.looks import Tone
from constructs_lib.saga.kinds import FunctionStep

if TYPE_CHECKING:
    from collections.abc import Iterator

    from constructs_lib.saga.steps.kind import FunctionGrant
    from constructs_lib.saga.steps.step import Step
    from constructs_lib.tables.saga_log import SagaLog

_EYE: Final = "M1 8s2.5-4.5 7-4.5S15 8 15 8s-2.5 4.5-7 4.5S1 8 1 8zM8 6a2 2 0 1 0 0 4a2 2 0 0 0 0-4z"


class ReadOnly(FunctionStep, name="read-only"):
    """Nothing happens; an answer is read."""

    icon = _EYE
    tone = Tone.QUIET
    keeps_answer = True

    def caption(self, step: StepDescription) -> str:
        """Caption by what is recorded."""
        return "read-only" if step.recorded else "read-only, not recorded"

    def grants(self, step: Step, log: SagaLog) -> Iterator[FunctionGrant]:
        """Keep its answer: one that is not kept touches no row."""
        if step.fn is not None and step.recorded:
            yield log.grant_commit, step.fn
        yield from super().grants(step, log)

    def count(self, tally: Tally, step: StepDescription, times: int) -> None:
        """The row is read and written, if there is one."""
        if step.recorded:
            tally.read(Purpose.LOG, step.name, times)
            tally.write(Purpose.LOG, step.name, tally.inputs.row_units * times)
