"""Layers in which a proof runs: what each of them does with one request."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final, Protocol

from constructs_lib.testing.proof.checks import Case

AFTER: Final = (0, 1, 10, 60, 600, 3_600)
"""Seconds after which a client sends its request again."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Cases:
    """Cases of a check.

    Attributes:
        enumerated: how many there are.
        cases: those that are run, each when it is asked for.
    """

    enumerated: int
    cases: Iterator[Case]


class Layer(Protocol):
    """Place in which requests run. Each method has the cases of one check, for the request of a seed.

    Attributes:
        name: of the place.
        left_out: what of the stack is not there, one text each.
    """

    name: str
    left_out: tuple[str, ...]

    def crashes(self, seed: int, at_most: int | None, draw: int) -> Cases:
        """Break each call, and end executions before each state; or so many of these, which ``draw`` draws."""

    def duplicates(self, seed: int) -> Cases:
        """Repeat a request under its key while it runs, and when it has ended."""

    def retries(self, seed: int) -> Cases:
        """Let each function die around its first call; a client repeats its request until it is settled."""

    def concurrent(self, seed: int, clients: int) -> Cases:
        """Send a request under its key from many clients at the same moment."""

    def soak(self, seed: int, requests: int) -> Cases:
        """Run many requests under random faults."""


def require_answered(seed: int, status: int | None) -> None:
    """Refuse a request whose undisturbed response is not settled: nothing is recorded of it.

    Raises:
        ValueError: naming the seed.
    """
    if status is None:
        raise ValueError(
            f"the request of seed {seed} must be settled when nothing goes wrong, got no settled response; "
            "let the workload prepare what it needs, or choose another seed"
        )
