"""Errors of simulated services, and of the simulator itself for what it does not simulate."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any, Final

_REFUSED: Final = 400


class ServiceError(Exception):
    """An error as a service answers it.

    Attributes:
        code: the error's code, as ``ClientError.response["Error"]["Code"]`` holds it.
        message: its message.
        status: HTTP status.
        members: further members of the response, such as ``CancellationReasons`` or ``Item``.
    """

    def __init__(
        self, code: str, message: str = "", *, status: int = _REFUSED, members: Mapping[str, Any] | None = None
    ) -> None:
        super().__init__(f"{code}: {message}")
        self.code = code
        self.message = message
        self.status = status
        self.members = dict(members or {})


class NotSimulatedError(NotImplementedError):
    """The run needs something that the simulator does not have; it never guesses.

    It ends the run, also if a function that meets it handles every exception.
    """


def json_of(text: str | bytes) -> Any:
    """Parse JSON as AWS does: ``NaN`` and ``Infinity``, which Python takes, are not JSON.

    Raises:
        ValueError: if it is not JSON.
    """
    return json.loads(text, parse_constant=_no_number)


def _no_number(name: str) -> Any:
    raise ValueError(f"{name} is not JSON")


def invalid(message: str) -> ServiceError:
    """A ``ValidationException``."""
    return ServiceError("ValidationException", message)
