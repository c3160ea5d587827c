"""What a model may recommend, and the check that its answer is that. An answer is never trusted."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, Final

from aws_lambda_powertools.utilities.validation import SchemaValidationError, validate

from saga_runtime import Money

from .errors import ModelAnswerRefused


class Decision(StrEnum):
    """What to do about a payout."""

    PAY = "pay"
    HOLD = "hold"


ANSWER_SCHEMA: Final[dict[str, Any]] = {
    "type": "object",
    "required": ["decision", "amount", "reason"],
    "additionalProperties": False,
    "properties": {
        "decision": {"type": "string", "enum": [decision.value for decision in Decision]},
        "amount": {"type": "integer", "minimum": 0, "description": "minor units; at most what was asked for"},
        "reason": {"type": "string", "minLength": 1, "maxLength": 500},
    },
}
"""JSON schema of an answer: told to the model, and held against what it says."""


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
            # The annotation says dict; what a model sends may be anything, and the schema says what it must be.
            validate(event=answer, schema=ANSWER_SCHEMA)
        except SchemaValidationError as error:
            raise ModelAnswerRefused(f"the model's answer is no recommendation: {error.validation_message}") from None
        amount = answer["amount"]
        if type(amount) is not int:  # for a JSON schema 12.0 is an integer, and True is none: here neither is money
            raise ModelAnswerRefused("the model's answer names an amount that is no whole number of minor units")
        decision = Decision(answer["decision"])
        lowest, highest = (1, asked.minor_units) if decision is Decision.PAY else (0, 0)
        if not lowest <= amount <= highest:
            raise ModelAnswerRefused(
                f"the model recommends to {decision.value} {amount}, and may recommend {lowest} to {highest}"
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
