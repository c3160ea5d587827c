"""A small explicit-state model checker: breadth first, so that every trace that it finds is a shortest one.

A model says which state it begins in, which moves a state allows, which promises a state breaks, and where a run may
come to rest. The checker visits every state that can be reached and answers two questions:

* safety: is there a state, or a move, that breaks a promise?
* liveness: is there a state from which no rest can be reached any more, even if nothing else goes wrong?
"""

from __future__ import annotations

from collections import deque
from collections.abc import Hashable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Generic, Protocol, TypeVar

State = TypeVar("State", bound=Hashable)

STATES_AT_MOST = 2_000_000


@dataclass(frozen=True, slots=True)
class Move(Generic[State]):
    """One thing that may happen next.

    Attributes:
        label: what happens, in words.
        state: the state after it.
        fault: whether something goes wrong. A rest must be reachable without further faults.
        breaks: the promise that the move itself breaks, if it does.
    """

    label: str
    state: State
    fault: bool = False
    breaks: str | None = None


class Model(Protocol[State]):
    """What the checker needs to know."""

    def initial(self) -> State:
        """Where every run begins."""
        ...

    def moves(self, state: State) -> Iterator[Move[State]]:
        """Everything that may happen next."""
        ...

    def broken(self, state: State) -> Iterable[str]:
        """Names of the promises that this state breaks."""
        ...

    def at_rest(self, state: State) -> bool:
        """Whether a run may stay here for ever."""
        ...


Trace = tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Verdict:
    """What was found.

    Attributes:
        states: how many states were visited.
        violations: shortest trace by the name of the broken promise.
        stuck: shortest trace to a state from which no rest can be reached; None if there is none, or if it was not
            asked because the search stopped at a violation.
    """

    states: int
    violations: Mapping[str, Trace]
    stuck: Trace | None

    @property
    def clean(self) -> bool:
        """Whether nothing was found."""
        return not self.violations and self.stuck is None

    def __str__(self) -> str:
        found = {**self.violations, **({"STUCK": self.stuck} if self.stuck is not None else {})}
        lines = [f"{self.states} states, {len(found)} findings"]
        for name, trace in found.items():
            lines += [f"{name}, after {len(trace)} moves:", *(f"  {n:2}. {label}" for n, label in enumerate(trace, 1))]
        return "\n".join(lines)


class TooManyStates(Exception):
    """The search was given up: the configuration is larger than the limit, or it has no end."""


class _Search(Generic[State]):
    """Every state reached so far, how it was reached, and what leads there without a fault."""

    def __init__(self, limit: int) -> None:
        self.limit = limit
        self.number: dict[State, int] = {}
        self.came_from: list[tuple[int, str]] = []
        self.harmless_ways_to: list[list[int]] = []

    def reach(self, state: State, origin: int, label: str) -> tuple[int, bool]:
        """The state's number, and whether it is new."""
        known = self.number.get(state)
        if known is not None:
            return known, False
        new = len(self.number)
        if new >= self.limit:
            raise TooManyStates(f"more than {self.limit} states; make the configuration smaller")
        self.number[state] = new
        self.came_from.append((origin, label))
        self.harmless_ways_to.append([])
        return new, True

    def trace(self, number: int, last: str | None = None) -> Trace:
        """The moves that lead to a state, and one more."""
        labels = [last] if last is not None else []
        while number > 0:
            number, label = self.came_from[number]
            labels.append(label)
        return tuple(reversed(labels))


def check(model: Model[State], *, until: str | None = None, limit: int = STATES_AT_MOST) -> Verdict:
    """Visit every reachable state.

    Args:
        model: the model.
        until: stop as soon as this promise is broken; whether anything gets stuck is not asked then.
        limit: how many states to visit at most.

    Raises:
        TooManyStates: if there are more.
    """
    search = _Search[State](limit)
    violations: dict[str, Trace] = {}
    first = model.initial()
    search.reach(first, 0, "")
    ahead: deque[State] = deque([first])
    for promise in model.broken(first):
        violations[promise] = ()
    while ahead and (until is None or until not in violations):
        state = ahead.popleft()
        here = search.number[state]
        for move in model.moves(state):
            if move.breaks is not None and move.breaks not in violations:
                violations[move.breaks] = search.trace(here, move.label)
            there, new = search.reach(move.state, here, move.label)
            if not move.fault:
                search.harmless_ways_to[there].append(here)
            if new:
                ahead.append(move.state)
                for promise in model.broken(move.state):
                    violations.setdefault(promise, search.trace(there))
    stopped = until is not None and until in violations
    return Verdict(
        states=len(search.number), violations=violations, stuck=None if stopped else _stuck(model, search)
    )


def _stuck(model: Model[State], search: _Search[State]) -> Trace | None:
    """Walk back from every rest along harmless moves: whatever is not met cannot come to rest."""
    can_rest = bytearray(len(search.number))
    ahead = [number for state, number in search.number.items() if model.at_rest(state)]
    for number in ahead:
        can_rest[number] = 1
    while ahead:
        for origin in search.harmless_ways_to[ahead.pop()]:
            if not can_rest[origin]:
                can_rest[origin] = 1
                ahead.append(origin)
    lost = can_rest.find(0)
    return search.trace(lost) if lost >= 0 else None
