"""Failures of a fake provider, as data. Matching requests are counted: a failure depends on their order alone."""

from __future__ import annotations

import threading
from collections.abc import Iterable
from dataclasses import dataclass, fields, replace
from enum import StrEnum
from typing import Any, ClassVar, Final, Generic, Self, TypeVar

from constructs_lib.testing.fault_plan import Moment

ERROR: Final = "error"
DROP: Final = "drop"
HANG: Final = "hang"
KILL: Final = "kill"
SLOW: Final = "slow"
LATE: Final = "late"


@dataclass(frozen=True, slots=True, kw_only=True)
class Trouble:
    """A failure. A provider's own class declares its actions.

    Every provider has these: ``error`` (HTTP 500), ``drop`` (the connection is closed), ``hang`` (no answer until the
    caller gives up), ``kill`` (the caller's process is killed), each before or after the effect; ``slow`` (the request
    is in progress for ``seconds``).

    Attributes:
        on: name of an operation, or of something else that the provider does.
        action: the failure.
        moment: before or after the request took effect.
        containing: only requests with this text in key, address or body; all without it.
        nth: number of the first matching request that fails, counted from 1.
        times: number of matching requests in a row that fail; None for all that follow.
        seconds: duration, in the provider's time, of an action that has one.

    Raises:
        ValueError: for a trouble that cannot happen.
    """

    ACTION: ClassVar[type[StrEnum]] = StrEnum
    ON: ClassVar[type[str]] = str
    AFTER: ClassVar[frozenset[str]] = frozenset({ERROR, DROP, HANG, KILL})
    LASTING: ClassVar[tuple[str, ...]] = (SLOW,)
    LONGEST_SECONDS: ClassVar[int] = 86_400

    on: str
    action: str
    moment: str = Moment.BEFORE
    containing: str | None = None
    nth: int = 1
    times: int | None = 1
    seconds: float | None = None

    def __post_init__(self) -> None:
        object.__setattr__(self, "action", _member(self.ACTION, "action", self.action))
        object.__setattr__(self, "moment", _member(Moment, "moment", self.moment))
        if not _is_text(self.on):
            raise ValueError(f"on must be a name, got {self.on!r}")
        for name, value in (("nth", self.nth), ("times", self.times)):
            if type(value) is not int and not (name == "times" and value is None):
                raise ValueError(f"{name} must be an integer, got {value!r}")
        if self.moment is Moment.AFTER and self.action not in self.AFTER:
            raise ValueError(f"moment of {self.action} must be before, got after; leave it out")
        if (self.action in self.LASTING) != (self.seconds is not None):
            lasting = ", ".join(self.LASTING)
            raise ValueError(f"seconds belong to {lasting}, got action={self.action} seconds={self.seconds}")
        if self.seconds is not None and type(self.seconds) not in (int, float):
            raise ValueError(f"seconds must be a number, got {self.seconds!r}")
        if self.seconds is not None and not 0 < self.seconds <= self.LONGEST_SECONDS:
            raise ValueError(f"seconds must be above 0 and at most {self.LONGEST_SECONDS}, got {self.seconds}")
        if self.nth < 1 or (self.times is not None and self.times < 1):
            raise ValueError(f"nth and times count from 1, got nth={self.nth} times={self.times}")
        if self.containing is not None and not _is_text(self.containing):
            raise ValueError(f"containing must be some text, got {self.containing!r}; leave it out to match everything")

    def as_json(self) -> dict[str, Any]:
        """The trouble as it is sent to the provider."""
        return {field.name: getattr(self, field.name) for field in fields(self)}

    @classmethod
    def from_json(cls, document: dict[str, Any]) -> Self:
        """Read what ``as_json`` wrote.

        Raises:
            ValueError: if it is not a trouble.
        """
        unknown = sorted(set(document) - {field.name for field in fields(cls)})
        if unknown or not {"on", "action"} <= document.keys():
            raise ValueError(f"a trouble has on, action, and the fields of Trouble, got {sorted(document)}")
        return cls(**{**document, "on": cls.ON(document["on"])})


def _is_text(value: object) -> bool:
    return isinstance(value, str) and bool(value)


def _member(kind: type[StrEnum], name: str, value: object) -> StrEnum:
    if not isinstance(value, str) or value not in list(kind):
        raise ValueError(f"{name} must be one of {', '.join(kind)}, got {value!r}")
    return kind(value)


TroubleOf = TypeVar("TroubleOf", bound=Trouble)


@dataclass(frozen=True, slots=True, kw_only=True)
class TroubleReport(Generic[TroubleOf]):
    """Counts of a planned trouble.

    Attributes:
        trouble: the planned trouble.
        matched: requests that it counted, hit or not.
        fired: requests that it hit.
    """

    trouble: TroubleOf
    matched: int = 0
    fired: int = 0


class Plan(Generic[TroubleOf]):
    """Planned troubles, and the counts of each. Safe for use by many threads."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._reports: list[TroubleReport[TroubleOf]] = []

    def add(self, troubles: Iterable[TroubleOf]) -> None:
        """Plan more."""
        with self._lock:
            self._reports += [TroubleReport(trouble=trouble) for trouble in troubles]

    def clear(self) -> None:
        """Forget everything that is planned."""
        with self._lock:
            self._reports = []

    def reports(self) -> list[TroubleReport[TroubleOf]]:
        """Return the counts of each, in the order of planning."""
        with self._lock:
            return list(self._reports)

    def meet(self, name: str, text: str) -> TroubleOf | None:
        """Count one request, and return its trouble: of several, the one that was planned first."""
        found: TroubleOf | None = None
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
