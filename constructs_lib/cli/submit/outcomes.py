"""Outcomes of a submitted request, and which answer means which."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, Final

from saga_runtime.http.response import Problem
from saga_runtime.protocol import PROBLEM_TYPES, REPLAYED_HEADER


class Outcome(StrEnum):
    """Outcome of a line."""

    NEW = "new"
    """It was recorded by this run."""
    REPLAYED = "replayed"
    """It was completed before; the stored response came."""
    IN_PROGRESS = "in progress"
    """An earlier request under its key is being processed."""
    REFUSED = "refused"
    """It is settled with an error, and has no effect."""
    EXPIRED = "expired"
    """It was settled long ago, and the response is no longer stored."""
    OTHER_BODY = "other body"
    """Its key belongs to another request."""
    NOT_ACCEPTED = "not accepted"
    """This attempt recorded nothing."""
    UNKNOWN = "unknown"
    """No answer was clear. Submit the line again: under the same key, nothing is repeated."""


ACCEPTED: Final = frozenset({Outcome.NEW, Outcome.REPLAYED, Outcome.IN_PROGRESS})
"""Outcomes that need no attention."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """An HTTP answer.

    Attributes:
        status: status code.
        headers: names in lower case.
        text: the body.
    """

    status: int
    headers: Mapping[str, str]
    text: str

    @property
    def replayed(self) -> bool:
        """True for a stored response."""
        return self.headers.get(REPLAYED_HEADER.lower(), "").lower() == "true"

    @property
    def problem(self) -> str:
        """Code of the problem document; empty for another body.

        A ``type`` is the code after a fixed beginning, or after the API's ``docs_url``, which ends with ``/``, ``#`` or
        ``=``: characters that no code has.
        """
        document = self.document
        kind = document.get("type") if isinstance(document, dict) else None
        return re.split(r"[/#=]", kind.removeprefix(PROBLEM_TYPES))[-1] if isinstance(kind, str) else ""

    @property
    def document(self) -> Any:
        """The body, read as JSON; its text if it is not JSON."""
        try:
            return json.loads(self.text)
        except ValueError:
            return self.text

    @property
    def retry_after(self) -> float | None:
        """Seconds that the server asks a client to wait."""
        wanted = self.headers.get("retry-after", "")
        return float(wanted) if wanted.isdigit() else None


def outcome_of(answer: Answer) -> Outcome | None:
    """The outcome that an answer to a first attempt means; None if it means nothing, and the request is sent again."""
    if answer.replayed:
        return Outcome.REPLAYED if answer.status < 400 else Outcome.REFUSED
    if answer.status in {200, 201, 202}:
        return Outcome.NEW
    match answer.status, answer.problem:
        case 409, Problem.IN_PROGRESS:
            return Outcome.IN_PROGRESS
        case 410, Problem.KEY_EXPIRED:
            return Outcome.EXPIRED
        case 422, Problem.KEY_REUSED:
            return Outcome.OTHER_BODY
        case 507, _:
            return Outcome.EXPIRED
        case _, "saga-refused" | "saga-failed":
            return Outcome.REFUSED
        case 429, _:
            return None
    if 300 <= answer.status < 500:
        return Outcome.NOT_ACCEPTED
    return None
