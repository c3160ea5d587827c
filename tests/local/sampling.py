"""A sample of what could be broken: ``tests/simulator/test_each_call.py`` breaks everything, without real processes."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import TypeVar

Point = TypeVar("Point")
Way = TypeVar("Way")


def in_turn(points: Iterable[Point], ways: Callable[[Point], Iterable[Way]]) -> Iterator[tuple[Point, Way]]:
    """Choose one way of breaking each point; points with the same ways take them in turn."""
    used: dict[tuple[Way, ...], int] = {}
    for point in points:
        possible = tuple(ways(point))
        number = used[possible] = used.get(possible, -1) + 1
        yield point, possible[number % len(possible)]


def each_third(found: Sequence[Point]) -> Sequence[Point]:
    """Choose each third, with the first and the last."""
    return [one for number, one in enumerate(found) if number % 3 == 0 or number == len(found) - 1]
