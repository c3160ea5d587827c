"""Backoff: full jitter under a growing, capped bound."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from saga_runtime.shared.backoff import Backoff


@given(failures=st.integers(min_value=1, max_value=200), random=st.floats(min_value=0, max_value=1, exclude_max=True))
def test_a_delay_lies_between_nothing_and_its_bound(failures: int, random: float) -> None:
    backoff = Backoff(attempts=8, base_ms=20, cap_ms=1_000)

    assert 0 <= backoff.delay_ms(failures, random) <= min(1_000, 20 * 2 ** (failures - 1))


def test_the_bound_doubles_up_to_its_cap() -> None:
    assert [Backoff().delay_ms(failures, 1.0) for failures in range(1, 9)] == [20, 40, 80, 160, 320, 640, 1000, 1000]


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({"attempts": 0}, "attempts of a backoff must be an integer of at least 1, got 0"),
        ({"attempts": True}, "attempts of a backoff must be an integer of at least 1, got True"),
        ({"base_ms": 0}, "base_ms of a backoff must be an integer of at least 1, got 0"),
        ({"base_ms": 20.0}, "base_ms of a backoff must be an integer of at least 1, got 20.0"),
        ({"base_ms": 2, "cap_ms": 1}, "cap_ms of a backoff must be an integer of at least 2, got 1"),
        ({"full": 1}, "full of a backoff must be True or False, got 1"),
    ],
)
def test_a_wrong_backoff_is_refused(wrong: Any, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        Backoff(**wrong)


def test_a_backoff_travels_in_a_variable() -> None:
    chosen = Backoff(attempts=4, base_ms=50, cap_ms=200, full=False)

    assert Backoff.from_json(chosen.to_json()) == chosen
    assert Backoff.from_json(None) == Backoff.from_json("") == Backoff()


def test_the_longest_delays_sum_up() -> None:
    assert Backoff().longest_ms == 2_260
    assert Backoff(attempts=4, base_ms=50, cap_ms=200, full=False).longest_ms == 525
    assert Backoff(attempts=1).longest_ms == 0
    assert Backoff(attempts=40, base_ms=1, cap_ms=2**40, full=True).longest_ms == 2**30 - 1 + 9 * 2**30


def test_the_longest_delays_of_any_number_of_tries_are_known_at_once() -> None:
    assert Backoff(attempts=10**12, base_ms=1, cap_ms=1).longest_ms == 10**12 - 1
