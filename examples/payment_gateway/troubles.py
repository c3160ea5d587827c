"""Failures of a provider, as data: which request, which failure, before or after it took effect.

There is no randomness here: which request is hit depends on the order of the requests that match, and on nothing else.
"""

from __future__ import annotations

import threading
from collections.abc import Iterable
from dataclasses import dataclass, fields, replace
from enum import StrEnum
from typing import Any, Final, Self


class Operation(StrEnum):
    """Operations of the gateway."""

    CHARGE = "charge"
    REFUND = "refund"
    FIND_CHARGE = "find-charge"
    FIND_REFUND = "find-refund"

    @property
    def moves_money(self) -> bool:
        """True if the operation has an effect."""
        return self in {Operation.CHARGE, Operation.REFUND}


class Moment(StrEnum):
    """When it happens: before the request took effect, or after."""

    BEFORE = "before"
    AFTER = "after"


class Action(StrEnum):
    """Effect of a trouble on a request.

    Attributes:
        DECLINE: the charge is refused, clearly (402). Only at `before`, only for charges.
        ERROR: HTTP 500, which at `after` hides that the request took effect.
        DROP: the connection is closed without an answer.
        HANG: no answer ever comes; it ends when the caller gives up.
        KILL: the process that sent the request dies at once (SIGKILL).
        SLOW: the request waits for `seconds`, while the gateway reports it as in progress. Only at `before`.
        LATE: the request travels for `seconds` before the gateway knows of it, whether its sender lives or not. Only
            at `before`.
    """

    DECLINE = "decline"
    ERROR = "error"
    DROP = "drop"
    HANG = "hang"
    KILL = "kill"
    SLOW = "slow"
    LATE = "late"


_LASTING: Final = (Action.SLOW, Action.LATE)
_BEFORE_ONLY: Final = (Action.DECLINE, *_LASTING)


@dataclass(frozen=True, slots=True, kw_only=True)
class Trouble:
    """One thing that goes wrong.

    Example:
        >>> Trouble(on=Operation.CHARGE, action=Action.HANG, moment=Moment.AFTER, containing="order-7").times
        1

    Attributes:
        on: which operation.
        action: what happens.
        moment: before or after the request took effect.
        containing: only requests whose key, address or body contains this text (an order, a card); all without it.
        nth: the first of the matching requests that is hit, counted from 1.
        times: how many matching requests in a row are hit; None for all that follow.
        seconds: for `slow` and `late`, in the gateway's time.

    Raises:
        ValueError: for a trouble that cannot happen.
    """

    on: Operation
    action: Action
    moment: Moment = Moment.BEFORE
    containing: str | None = None
    nth: int = 1
    times: int | None = 1
    seconds: float | None = None

    def __post_init__(self) -> None:
        if self.action in _BEFORE_ONLY and self.moment is Moment.AFTER:
            raise ValueError(f"{self.action} happens before a request takes effect, got moment=after; leave it out")
        if self.action is Action.DECLINE and self.on is not Operation.CHARGE:
            raise ValueError(f"only a charge can be declined, got on={self.on}; use error")
        if (self.action in _LASTING) != (self.seconds is not None):
            raise ValueError(f"seconds belong to slow and late, got action={self.action} seconds={self.seconds}")
        if self.seconds is not None and not 0 < self.seconds <= 3600:
            raise ValueError(f"seconds must be above 0 and at most 3600, got {self.seconds}")
        if self.nth < 1 or (self.times is not None and self.times < 1):
            raise ValueError(f"nth and times count from 1, got nth={self.nth} times={self.times}")
        if self.containing is not None and not self.containing:
            raise ValueError("containing must be some text, got ''; leave it out to match every request")

    def as_json(self) -> dict[str, Any]:
        """The trouble as it is sent to the gateway."""
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
        values = dict(document)
        values["on"], values["action"] = Operation(values["on"]), Action(values["action"])
        values["moment"] = Moment(values.get("moment", Moment.BEFORE))
        return cls(**values)


@dataclass(frozen=True, slots=True, kw_only=True)
class TroubleReport:
    """Counts of a planned trouble.

    Attributes:
        trouble: what was planned.
        matched: requests that it counted, hit or not.
        fired: requests that it hit.
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

    def meet(self, operation: Operation, text: str) -> Trouble | None:
        """Count one request, and return what happens to it: of several, what was planned first."""
        found: Trouble | None = None
        with self._lock:
            for at, report in enumerate(self._reports):
                trouble = report.trouble
                if trouble.on is not operation or (trouble.containing or "") not in text:
                    continue
                number = report.matched + 1
                hit = number >= trouble.nth and (trouble.times is None or number < trouble.nth + trouble.times)
                fires = hit and found is None
                self._reports[at] = replace(report, matched=number, fired=report.fired + fires)
                found = trouble if fires else found
        return found
