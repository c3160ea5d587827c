"""The model behind a small interface: Bedrock in AWS, a simulated one locally, chosen by the environment."""

from __future__ import annotations

import os
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, Final, Protocol

from .prompt import Prompt

BEDROCK_MODEL: Final = "PAYOUT_BEDROCK_MODEL"
STAND_IN_BOOKS: Final = "PAYOUT_STAND_IN_BOOKS"


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """A model's answer as it came: not checked, not trusted.

    Attributes:
        content: its answer; a JSON value if it used the tool, else its text.
        version: which model answered.
        call_id: the provider's id of the call, to find it in the provider's logs and on its bill.
    """

    content: Any
    version: str
    call_id: str


class Model(Protocol):
    """Something that answers differently each time, is slow, and costs money per call."""

    def ask(self, prompt: Prompt) -> Answer:
        """Ask once: one call, no retry inside.

        Raises:
            ModelUnavailable: if there is no answer. The call may have been paid for.
        """


@lru_cache(maxsize=1)
def model_from_env() -> Model:
    """The model that the function was deployed with.

    Raises:
        RuntimeError: if none, or more than one, is in the environment.
    """
    from .bedrock import BedrockModel
    from .stand_in import StandInModel

    bedrock, books = os.environ.get(BEDROCK_MODEL, ""), os.environ.get(STAND_IN_BOOKS, "")
    if bool(bedrock) == bool(books):
        raise RuntimeError(
            f"exactly one of {BEDROCK_MODEL} and {STAND_IN_BOOKS} must be set, got {bedrock!r} and {books!r}; "
            "deploy the function with one of them"
        )
    return BedrockModel(bedrock) if bedrock else StandInModel(books)
