"""Backoff: full jitter under a growing, capped bound."""

from __future__ import annotations

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


@pytest.mark.parametrize(("attempts", "base_ms", "cap_ms"), [(0, 1, 1), (1, 0, 1), (1, 2, 1), (-1, 1, 1)])
def test_a_backoff_without_sense_is_refused(attempts: int, base_ms: int, cap_ms: int) -> None:
    with pytest.raises(ValueError, match=f"attempts={attempts} base_ms={base_ms} cap_ms={cap_ms}"):
        Backoff(attempts=attempts, base_ms=base_ms, cap_ms=cap_ms)
