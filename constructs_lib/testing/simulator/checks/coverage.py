"""Coverage of runs: states, moves between them, calls, and faults at calls."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from typing import Any


class Coverage:
    """Counts over many runs.

    Attributes:
        states: how often each state of each machine was entered.
        transitions: how often each move was made.
        faults: how often each kind of fault hit each call or occasion.
        events: how often each event was logged, and each metric counted, by the library's functions.
        known_states: every state that there is, as far as it is known.
    """

    def __init__(self) -> None:
        self.states: Counter[tuple[str, str]] = Counter()
        self.transitions: Counter[tuple[str, str, str]] = Counter()
        self.faults: Counter[tuple[str, str]] = Counter()
        self.events: Counter[str] = Counter()
        self.known_states: set[tuple[str, str]] = set()

    def enters(self, machine: str, state: str) -> None:
        """A state was entered."""
        self.states[machine, state] += 1

    def moves(self, machine: str, state: str, following: str) -> None:
        """One state followed another."""
        self.transitions[machine, state, following] += 1

    def observe(self, event: str) -> None:
        """The library logged or counted something."""
        self.events[event] += 1

    def know(self, machine: str, definition: Mapping[str, Any]) -> None:
        """Learn which states a machine has."""
        for name, state in definition["States"].items():
            self.known_states.add((machine, name))
            for flow in (*state.get("Branches", ()), *([state["ItemProcessor"]] if "ItemProcessor" in state else ())):
                self.know(machine, flow)

    def add_faults(self, hit: Mapping[tuple[str, str], int]) -> None:
        """Add what went wrong in a run."""
        self.faults.update(hit)

    def merge(self, other: Coverage) -> None:
        """Add what other runs have reached."""
        self.states.update(other.states)
        self.transitions.update(other.transitions)
        self.faults.update(other.faults)
        self.events.update(other.events)
        self.known_states |= other.known_states

    def missed(self) -> Iterable[tuple[str, str]]:
        """States that no run has entered."""
        return sorted(self.known_states - self.states.keys())

    def as_json(self) -> dict[str, Any]:
        """Totals, and what was missed."""
        return {
            "states": {"seen": len(self.states), "known": len(self.known_states)},
            "states_missed": [f"{machine}: {state}" for machine, state in self.missed()],
            "transitions": len(self.transitions),
            "calls_x_faults": len(self.faults),
            "faults": {f"{where} / {kind}": count for (where, kind), count in sorted(self.faults.items())},
            "events": dict(sorted(self.events.items())),
        }
