"""A step whose function commits its effect together with its row."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from constructs_lib.saga.cost.tally import Tally
from constructs_lib.saga.cost.work import write_items, write_transaction
from constructs_lib.saga.description.description import StepDescription
from constructs_lib.saga.description.kind import Mutation
from constructs_lib.saga.graph.looks import Tone
from constructs_lib.saga.kinds import FunctionStep

if TYPE_CHECKING:
    from collections.abc import Iterator

    from constructs_lib.saga.steps.kind import FunctionGrant
    from constructs_lib.saga.steps.step import Step
    from constructs_lib.tables.saga_log import SagaLog

_CYLINDER: Final = (
    "M3 4c0-1.1 2.2-2 5-2s5 .9 5 2-2.2 2-5 2-5-.9-5-2zM3 4v8c0 1.1 2.2 2 5 2s5-.9 5-2V4M3 8c0 1.1 2.2 2 5 2s5-.9 5-2"
)


class Atomic(FunctionStep, name="atomic"):
    """The effect is in DynamoDB, and is committed together with the saga log row."""

    icon = _CYLINDER
    words = "atomic, in DynamoDB"
    tone = Tone.LOCAL
    mutation = Mutation.BY_FUNCTION

    def grants(self, step: Step, log: SagaLog) -> Iterator[FunctionGrant]:
        """Commit its row, and that of its compensation."""
        if step.fn is not None:
            yield log.grant_commit, step.fn
        yield from super().grants(step, log)

    def count(self, tally: Tally, step: StepDescription, times: int) -> None:
        """One transaction."""
        write_transaction(tally, step, times)

    def count_effects(self, tally: Tally, step: StepDescription, times: int) -> None:
        """Its items."""
        write_items(tally, step, times)
