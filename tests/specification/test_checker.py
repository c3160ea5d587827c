"""The checker itself: it finds shortest traces, broken promises, and states without a way to a rest."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import pytest

from tests.for_each import for_each
from tests.specification import catalogue
from tests.specification.checker import Move, TooManyStates, check
from tests.specification.conditions import Condition


@dataclass(frozen=True)
class Counter:
    """Counts up, by one or by three; a fault makes it odd forever, if configured."""

    top: int = 6
    forbidden: int = -1
    trap: bool = False

    def initial(self) -> int:
        return 0

    def moves(self, state: int) -> Iterator[Move[int]]:
        if state < 0:
            return
        if state + 1 <= self.top:
            yield Move("one", state + 1)
        if state + 3 <= self.top:
            yield Move("three", state + 3)
        if self.trap:
            yield Move("falls", -1, fault=True)

    def broken(self, state: int) -> Iterator[str]:
        if state == self.forbidden:
            yield "FORBIDDEN"

    def at_rest(self, state: int) -> bool:
        return state == self.top


def test_every_state_is_visited_and_nothing_is_found_where_nothing_is_wrong() -> None:
    verdict = check(Counter())

    assert verdict.states == 7
    assert verdict.clean


def test_a_broken_promise_is_shown_by_a_shortest_trace() -> None:
    assert check(Counter(forbidden=4)).violations == {"FORBIDDEN": ("one", "three")}


def test_a_state_without_a_way_to_a_rest_is_stuck() -> None:
    assert check(Counter(trap=True)).stuck == ("falls",)


def test_a_rest_that_needs_a_fault_does_not_count() -> None:
    @dataclass(frozen=True)
    class OnlyByFault(Counter):
        def moves(self, state: int) -> Iterator[Move[int]]:
            if state < self.top:
                yield Move("one", state + 1, fault=state == 2)

    assert check(OnlyByFault()).stuck == ()


def test_an_infinite_search_is_abandoned() -> None:
    with pytest.raises(TooManyStates, match="more than 10 states"):
        check(Counter(top=1_000), limit=10)


CONDITIONS = [condition for suite in catalogue.SUITES.values() for condition in suite.conditions]


@for_each(CONDITIONS)
def test_every_condition_of_the_models_is_in_the_code(condition: Condition) -> None:
    because = condition.because

    assert because.in_the_code, f"{because.file} has no {because.text!r}: {condition} is another one now"
