"""Verdicts of a provider about the outcome of a call."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any


@dataclass(frozen=True, slots=True, kw_only=True)
class Applied:
    """It happened.

    Attributes:
        output: what the step would have returned. Of an undo that was asked for, nothing.
        job_id: of a job, the provider's own id, if it has one: what it reported under that id, while it was unknown,
            becomes the job's.
    """

    output: Mapping[str, Any] = field(default_factory=dict)
    job_id: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class NotApplied:
    """It did not happen: the provider knows of no such call, or refused it.

    Believed only when no request can still be on its way.
    """


@dataclass(frozen=True, slots=True, kw_only=True)
class Pending:
    """The provider has the call and is still processing it: verified again later.

    Attributes:
        job_id: of a job, the provider's own id, if it has one: the query may
            be the first to learn it.
    """

    job_id: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Unknown:
    """The provider can never report the outcome: operator action is required.

    Attributes:
        reason: why, for that person. Nothing that a client may not see.
    """

    reason: str = ""


Verdict = Applied | NotApplied | Pending | Unknown
"""Answer of ``verify``: the outcome of an earlier call, as the provider knows it."""
