"""The fixture of naps: which sleeps belong to the code under test."""

from __future__ import annotations

import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import pytest


@pytest.fixture
def earlier() -> Iterator[ThreadPoolExecutor]:
    """A thread that is there before the test."""
    with ThreadPoolExecutor(1) as pool:
        pool.submit(int).result()
        yield pool


def test_thread_of_an_earlier_test_sleeps_for_itself(earlier: ThreadPoolExecutor, naps: list[float]) -> None:
    began = time.perf_counter()

    earlier.submit(lambda: time.sleep(0.01)).result()

    assert time.perf_counter() - began >= 0.01
    assert naps == []


def test_each_thread_of_the_code_under_test_is_counted_and_does_not_sleep(naps: list[float]) -> None:
    def sleeps() -> None:
        time.sleep(60)

    sleeps()
    with ThreadPoolExecutor(1) as pool:
        pool.submit(sleeps).result()

    assert naps == [60, 60]
