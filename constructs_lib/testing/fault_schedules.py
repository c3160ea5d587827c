"""Schedules: of the matching calls a fault hits the first, the n-th, every one, or a share drawn from a seed."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from typing import Any, Final, TypeAlias


@dataclass(frozen=True, slots=True, kw_only=True)
class Occurrence:
    """One logical call, as a schedule sees it.

    Attributes:
        number: how many calls have matched the fault so far, this one included.
        caller: the function, or `states:` and the state machine.
        call: service and operation.
        caller_number: how many of the matching calls were this caller's and this operation's, this one included.
    """

    number: int
    caller: str
    call: str
    caller_number: int


@dataclass(frozen=True, slots=True)
class First:
    """The first call, or the first few.

    Attributes:
        times: how many calls, from the first on.
    """

    times: int = 1

    def __post_init__(self) -> None:
        _require_positive("times", self.times, "the first call is First()")

    def selects(self, occurrence: Occurrence) -> bool:
        """Test whether the fault hits this call."""
        return occurrence.number <= self.times


@dataclass(frozen=True, slots=True)
class Nth:
    """The n-th call and no other.

    Attributes:
        n: 1 for the first call.
    """

    n: int

    def __post_init__(self) -> None:
        _require_positive("n", self.n, "the first call is Nth(1)")

    def selects(self, occurrence: Occurrence) -> bool:
        """Test whether the fault hits this call."""
        return occurrence.number == self.n


@dataclass(frozen=True, slots=True)
class Every:
    """Every call."""

    def selects(self, occurrence: Occurrence) -> bool:  # noqa: ARG002 - all schedules have one signature
        """Test whether the fault hits this call."""
        return True


@dataclass(frozen=True, slots=True)
class Share:
    """A share of the calls, drawn from a seed.

    Whether a call is hit depends on the seed, its caller, its operation and how many such calls that caller has made,
    and on nothing else: the n-th call of a function is hit or spared alike in every run, whatever ran in between.

    Attributes:
        probability: above 0, at most 1.
        seed: any integer.
    """

    probability: float
    seed: int

    def __post_init__(self) -> None:
        _require_share(self.probability)
        _require_seed(self.seed)

    def selects(self, occurrence: Occurrence) -> bool:
        """Test whether the fault hits this call."""
        key = f"{self.seed}\n{occurrence.caller}\n{occurrence.call}\n{occurrence.caller_number}"
        drawn = int.from_bytes(hashlib.sha256(key.encode()).digest()[:8], "big") / 2**64
        return drawn < self.probability


Schedule: TypeAlias = First | Nth | Every | Share
_SCHEDULES: Final[dict[str, type[Schedule]]] = {"First": First, "Nth": Nth, "Every": Every, "Share": Share}


def require_schedule(value: object) -> None:
    """Refuse what is not a schedule.

    Raises:
        ValueError: If it is not a schedule.
    """
    if not isinstance(value, First | Nth | Every | Share):
        raise ValueError(f"on must be First(), Nth(n), Every() or Share(probability, seed), got {value!r}")


def schedule_to_wire(schedule: Schedule) -> dict[str, Any]:
    """Return the schedule as JSON, for the emulator."""
    values = {name: getattr(schedule, name) for name in schedule.__dataclass_fields__}
    return {"kind": type(schedule).__name__, **values}


def schedule_from_wire(wire: dict[str, Any]) -> Schedule:
    """Return the schedule that `schedule_to_wire` wrote.

    Raises:
        ValueError: If the value is not a schedule.
    """
    values = dict(wire)
    kind = _SCHEDULES.get(values.pop("kind", ""))
    if kind is None:
        raise ValueError(f"on must be one of {', '.join(_SCHEDULES)}, got {wire!r}")
    return kind(**values)


def _require_positive(name: str, value: object, remedy: str) -> None:
    if isinstance(value, bool) or not isinstance(value, int) or value < 1:
        raise ValueError(f"{name} must be a whole number from 1 on, got {value!r}; {remedy}")


def _require_share(value: object) -> None:
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 < value <= 1:
        raise ValueError(
            f"probability must be above 0 and at most 1, got {value!r}; "
            "leave the fault out for none, use Every() for all"
        )


def _require_seed(value: object) -> None:
    if isinstance(value, bool) or not isinstance(value, int):
        raise ValueError(f"seed must be an integer, got {value!r}; a run is repeated by its seed")
