"""Habits of the provider of drawn sagas: how it names a job, sends heartbeats of it, and answers about it."""

from __future__ import annotations

from dataclasses import dataclass
from random import Random
from typing import Final

_OWN_ID: Final = 0.4
"""Share of jobs and waits for which the provider has an id of its own."""
_BEATS: Final = 0.4
"""Share of those of which it sends heartbeats."""
_EVERY: Final = (60, 300, 590, 700)
"""Seconds between heartbeats; a step waits for 600."""
_LONG: Final = 0.08
"""Share of jobs that last for longer than their step waits."""
_SECONDS: Final = (3_000, 7_000)
"""Of such a job; a compensation queries for an hour after the step's hour."""
_UNKNOWN: Final = 0.08
"""Share of jobs of which it cannot report the outcome when it is asked, once, twice, or ever."""
_OFTEN: Final = 1_000


@dataclass(frozen=True, slots=True, kw_only=True)
class Habit:
    """Habit of a provider with one job, or one wait.

    Attributes:
        own_id: the provider's own id; None: it uses the one that it was given.
        beats: seconds between heartbeats; None: it sends none.
        seconds: of a job that lasts longer than its step waits; None: it does not.
        unknown: number of queries that are answered with an unknown outcome.
    """

    own_id: str | None
    beats: int | None
    seconds: int | None
    unknown: int


def habit_of(salt: int, key: str) -> Habit:
    """Draw the habit of a key."""
    random = Random(f"{salt}:{key}:habit")
    return Habit(
        own_id=f"own-{random.getrandbits(64):016x}" if random.random() < _OWN_ID else None,
        beats=random.choice(_EVERY) if random.random() < _BEATS else None,
        seconds=random.randrange(*_SECONDS) if random.random() < _LONG else None,
        unknown=random.choice((1, 2, _OFTEN)) if random.random() < _UNKNOWN else 0,
    )
