"""Failures of a provider that answers later, as data. No randomness: hits are counted."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from enum import StrEnum
from typing import ClassVar, Final

from constructs_lib.testing.fault_plan import Moment
from constructs_lib.testing.providers import troubles
from constructs_lib.testing.providers.troubles import TroubleReport


class Action(StrEnum):
    """Effect of a trouble on a request, on the job that it starts, or on an event.

    Attributes:
        ERROR: HTTP 500, which at `after` hides that the request took effect.
        DROP: the connection is closed without an answer.
        HANG: no answer ever comes; it ends when the caller gives up.
        KILL: the process that sent the request dies at once (SIGKILL).
        SLOW: the request waits for `seconds`, while the provider reports it as in progress. Only at `before`.
        REFUSE: the job is taken on, and refused when it is decided.
        STALL: the job is accepted, and never worked at. The end that the request sets still holds.
        EARLY: the job is done and its event is delivered before the request is answered.
        SILENT: the event is never sent. The books have the effect, for a query.
        DOUBLE: the event is sent twice, at the same moment.
        LATE: the event is sent `seconds` later.
        WRONG: `seconds` after the event comes another one with the opposite; what was refused is done after all.
        FORGED: the event carries a signature with another secret until it is refused.
        UNKNOWN: with the event comes another one, about a job that no client requested.
    """

    ERROR = "error"
    DROP = "drop"
    HANG = "hang"
    KILL = "kill"
    SLOW = "slow"
    REFUSE = "refuse"
    STALL = "stall"
    EARLY = "early"
    SILENT = "silent"
    DOUBLE = "double"
    LATE = "late"
    WRONG = "wrong"
    FORGED = "forged"
    UNKNOWN = "unknown"


OF_EVENTS: Final = frozenset({Action.SILENT, Action.DOUBLE, Action.LATE, Action.WRONG, Action.FORGED, Action.UNKNOWN})
OF_JOBS: Final = frozenset({Action.REFUSE, Action.STALL, Action.EARLY})


@dataclass(frozen=True, slots=True, kw_only=True)
class Trouble(troubles.Trouble):
    """A failure of an operation, of the job that it starts, or of an event: ``on`` is an operation or an event's type.

    Example:
        >>> Trouble(on="payment_intent.amount_capturable_updated", action=Action.SILENT, containing="order-7").times
        1
    """

    ACTION: ClassVar[type[StrEnum]] = Action
    LASTING: ClassVar[tuple[str, ...]] = (Action.SLOW, Action.LATE, Action.WRONG)

    def check(self, *, operations: Iterable[str], jobs: Iterable[str], events: Iterable[str]) -> None:
        """Refuse a trouble of something that a provider does not have.

        Raises:
            ValueError: naming what it has.
        """
        known = set(events) if self.action in OF_EVENTS else set(jobs if self.action in OF_JOBS else operations)
        if self.on not in known:
            raise ValueError(f"{self.action} happens to {', '.join(sorted(known))}, got on={self.on!r}")


Plan = troubles.Plan[Trouble]

__all__ = ["OF_EVENTS", "OF_JOBS", "Action", "Moment", "Plan", "Trouble", "TroubleReport"]
