"""Failures of a provider that answers later, as data. No randomness: hits are counted."""

from __future__ import annotations

import threading
from collections.abc import Iterable
from dataclasses import dataclass, fields, replace
from enum import StrEnum
from typing import Any, Final, Self


class Moment(StrEnum):
    """When a request is hit: before it took effect, or after."""

    BEFORE = "before"
    AFTER = "after"


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
_LASTING: Final = frozenset({Action.SLOW, Action.LATE, Action.WRONG})
_AFTER: Final = frozenset({Action.ERROR, Action.DROP, Action.HANG, Action.KILL})


@dataclass(frozen=True, slots=True, kw_only=True)
class Trouble:
    """One thing that goes wrong.

    Example:
        >>> Trouble(on="payment_intent.amount_capturable_updated", action=Action.SILENT, containing="order-7").times
        1

    Attributes:
        on: name of an operation, or type of an event.
        action: what happens.
        moment: of a request: before or after it took effect.
        containing: only what contains this text (an order, a card); everything without it.
        nth: the first of those that is hit, counted from 1.
        times: how many in a row are hit; None for all that follow.
        seconds: for `slow`, `late` and `wrong`, in the provider's time.

    Raises:
        ValueError: for a trouble that cannot happen.
    """

    on: str
    action: Action
    moment: Moment = Moment.BEFORE
    containing: str | None = None
    nth: int = 1
    times: int | None = 1
    seconds: float | None = None

    def __post_init__(self) -> None:
        if self.moment is Moment.AFTER and self.action not in _AFTER:
            raise ValueError(f"{self.action} has no moment, got moment=after; leave it out")
        if (self.action in _LASTING) != (self.seconds is not None):
            raise ValueError(f"seconds belong to slow, late and wrong, got action={self.action} seconds={self.seconds}")
        if self.seconds is not None and not 0 < self.seconds <= 86_400:
            raise ValueError(f"seconds must be above 0 and at most 86400, got {self.seconds}")
        if self.nth < 1 or (self.times is not None and self.times < 1):
            raise ValueError(f"nth and times count from 1, got nth={self.nth} times={self.times}")
        if self.containing is not None and not self.containing:
            raise ValueError("containing must be some text, got ''; leave it out to match everything")

    def check(self, *, operations: Iterable[str], jobs: Iterable[str], events: Iterable[str]) -> None:
        """Refuse a trouble of something that a provider does not have.

        Raises:
            ValueError: naming what it has.
        """
        known = set(events) if self.action in OF_EVENTS else set(jobs if self.action in OF_JOBS else operations)
        if self.on not in known:
            raise ValueError(f"{self.action} happens to {', '.join(sorted(known))}, got on={self.on!r}")

    def as_json(self) -> dict[str, Any]:
        """The trouble as it is sent to a provider."""
        return {field.name: getattr(self, field.name) for field in fields(self)}

    @classmethod
    def from_json(cls, document: dict[str, Any]) -> Self:
        """Read what `as_json` wrote.

        Raises:
            ValueError: if it is not a trouble.
        """
        unknown = sorted(set(document) - {field.name for field in fields(cls)})
        if unknown or not {"on", "action"} <= document.keys():
            raise ValueError(f"a trouble has on, action, and the fields of Trouble, got {sorted(document)}")
        values = {**document, "action": Action(document["action"])}
        values["moment"] = Moment(values.get("moment", Moment.BEFORE))
        return cls(**values)


@dataclass(frozen=True, slots=True, kw_only=True)
class TroubleReport:
    """Counts of a planned trouble.

    Attributes:
        trouble: what was planned.
        matched: what it counted, hit or not.
        fired: what it hit.
    """

    trouble: Trouble
    matched: int = 0
    fired: int = 0


class Plan:
    """The troubles that are planned, and how often each of them happened. Safe for use by many threads."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._reports: list[TroubleReport] = []

    def add(self, troubles: Iterable[Trouble]) -> None:
        """Plan more."""
        with self._lock:
            self._reports += [TroubleReport(trouble=trouble) for trouble in troubles]

    def clear(self) -> None:
        """Forget everything that is planned."""
        with self._lock:
            self._reports = []

    def reports(self) -> list[TroubleReport]:
        """Return the counts of each, in the order of planning."""
        with self._lock:
            return list(self._reports)

    def meet(self, name: str, text: str) -> Trouble | None:
        """Count one request or event, and return what happens to it: of several, what was planned first."""
        found: Trouble | None = None
        with self._lock:
            for at, report in enumerate(self._reports):
                trouble = report.trouble
                if trouble.on != name or (trouble.containing or "") not in text:
                    continue
                number = report.matched + 1
                hit = number >= trouble.nth and (trouble.times is None or number < trouble.nth + trouble.times)
                fires = hit and found is None
                self._reports[at] = replace(report, matched=number, fired=report.fired + fires)
                found = trouble if fires else found
        return found
