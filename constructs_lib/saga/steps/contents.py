"""A step's facts with what its states are made of, as plain data."""

from __future__ import annotations

from dataclasses import dataclass

from constructs_lib.saga.description.description import StepFacts
from constructs_lib.saga.steps.direct import DirectCall, DirectTransaction


@dataclass(frozen=True, slots=True, kw_only=True)
class StepContents(StepFacts):
    """A step's facts and contents: texts of its declaration that costs and drawings do not read.

    Attributes:
        message: JSONata expression of a notification's body; None for the default document.
        direct: a call straight from the state machine.
        transaction: a DynamoDB transaction straight from the state machine.
    """

    message: str | None = None
    direct: DirectCall | None = None
    transaction: DirectTransaction | None = None

    @property
    def compensated(self) -> bool:
        """True if it has a compensation."""
        undone_directly = self.transaction is not None and bool(self.transaction.compensate)
        return self.compensation is not None or undone_directly
