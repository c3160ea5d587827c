"""Many payments to one account: the results of the benchmark, in a shorter run."""

from __future__ import annotations

import pytest

from benchmarks.hot_accounts import measured


@pytest.mark.parametrize(
    ("shards", "share"),
    [(16, 0.5), *(pytest.param(*more, marks=pytest.mark.exhaustive) for more in ((32, 0.5), (64, 0.5), (64, 1.0)))],
)
def test_a_collecting_account_takes_300_payments_a_second_with_few_conflicts(shards: int, share: float) -> None:
    result = measured(shards=shards, latency_ms=15, share=share, rate=300, seconds=5)

    assert result.transactions <= 1.2
    assert result.lost == 0
    assert result.collected == result.payments


@pytest.mark.parametrize("share", [0.5, pytest.param(1.0, marks=pytest.mark.exhaustive)])
def test_a_hot_account_refuses_payments_and_loses_none_of_the_others(share: float) -> None:
    result = measured(shards=0, latency_ms=15, share=share, rate=60, seconds=10)

    assert 15 <= result.lost <= 40
    assert result.collected == result.payments - round(result.payments * result.lost / 100)


def test_adding_to_one_item_without_a_read_does_not_help() -> None:
    result = measured(shards=1, latency_ms=15, share=0.5, rate=100, seconds=10)

    assert result.lost > 1
