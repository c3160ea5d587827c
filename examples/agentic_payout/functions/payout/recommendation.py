"""The recommendations that a model may make, and the check of its answer, which is never trusted."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, Final

from aws_lambda_powertools.utilities.validation import SchemaValidationError, validate

from saga_runtime import Money

from .errors import ModelAnswerRefused


class Decision(StrEnum):
    """Decision about a payout."""

    PAY = "pay"
    HOLD = "hold"


ANSWER_SCHEMA: Final[dict[str, Any]] = {
    "type": "object",
    "required": ["decision", "amount", "reason"],
    "additionalProperties": False,
    "properties": {
        "decision": {"type": "string", "enum": [str(decision) for decision in Decision]},
        "amount": {"type": "integer", "minimum": 0, "description": "minor units; at most what was asked for"},
        "reason": {"type": "string", "minLength": 1, "maxLength": 500},
    },
}
"""JSON schema of an answer: sent to the model, and used to validate its answer."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Recommendation:
    """A recommendation that keeps to its bounds.

    Attributes:
        decision: pay, or hold for a person.
        amount: what to pay: above zero and at most what was asked for; zero if it is held.
        reason: the model's words. For people; nothing decides by them.
    """

    decision: Decision
    amount: Money
    reason: str

    @classmethod
    def of_answer(cls, answer: Any, *, asked: Money) -> Recommendation:
        """Check a model's answer.

        Raises:
            ModelAnswerRefused: if it does not fit the schema, or pays nothing, or more than was asked for.
        """
        try:
            # The annotation is dict; a model may send any value, and the schema validates it.
            validate(event=answer, schema=ANSWER_SCHEMA)
        except SchemaValidationError as error:
            raise ModelAnswerRefused(
                f"the model's answer is not a recommendation: {error.validation_message}"
            ) from None
        amount = answer["amount"]
        if type(amount) is not int:  # a JSON schema accepts 12.0 as an integer; an amount of money must be an int
            raise ModelAnswerRefused("the model's answer has an amount that is not a whole number of minor units")
        decision = Decision(answer["decision"])
        lowest, highest = (1, asked.minor_units) if decision is Decision.PAY else (0, 0)
        if not lowest <= amount <= highest:
            raise ModelAnswerRefused(
                f"the model recommends to {decision} {amount}, and may recommend {lowest} to {highest}"
            )
        return cls(decision=decision, amount=Money(amount, asked.currency), reason=answer["reason"])

    @classmethod
    def of_output(cls, output: Mapping[str, Any], *, asked: Money) -> Recommendation:
        """Read what the step ``Recommend`` recorded; it is checked again where money moves.

        Raises:
            ModelAnswerRefused: as ``of_answer``.
        """
        amount = output["amount"]
        recorded = {
            "decision": output["decision"],
            "amount": int(amount) if isinstance(amount, str) and amount.isdecimal() else amount,
            "reason": output["reason"],
        }
        return cls.of_answer(recorded, asked=asked)
