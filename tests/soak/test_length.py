"""A soak lasts as long as it is asked for, and on until each example had its requests; but not for ever."""

from __future__ import annotations

import time
from types import SimpleNamespace
from typing import Any

import pytest

from tests.soak import run
from tests.soak.run import Settings
from tests.soak.wishes import Example


@pytest.mark.parametrize(
    ("a_second", "lasts"),
    [
        pytest.param(2.0, 60, id="enough before its time is over"),
        pytest.param(0.25, 120, id="not enough yet"),
        pytest.param(0.0, 600, id="never enough"),
    ],
)
def test_it_continues_until_each_example_had_its_requests(
    monkeypatch: pytest.MonkeyPatch, a_second: float, lasts: int
) -> None:
    now = 0.0
    told: dict[Example, list[Any]] = {example: [] for example in Example}
    told[Example.TRANSFERS] = [SimpleNamespace(answer=None)] * 1_000

    def sleep(seconds: float) -> None:
        nonlocal now
        now += seconds
        for example in set(Example) - {Example.TRANSFERS}:
            told[example] = [SimpleNamespace(answer=None)] * int(now * a_second)

    monkeypatch.setattr(time, "monotonic", lambda: now)
    monkeypatch.setattr(time, "sleep", sleep)
    load: Any = SimpleNamespace(told=told)

    run._let_pass(Settings(seed=1, seconds=60, requests=30), load, lambda _: None)

    assert now == lasts
