"""The one clock: real time, or time that runs faster from a given moment on."""

from __future__ import annotations

import time

import pytest

from saga_runtime.protocol import Env
from saga_runtime.shared import clock


@pytest.mark.parametrize(
    ("setting", "real", "now_ms"),
    [
        (None, 1_000.5, 1_000_500),
        ("", 1_000.5, 1_000_500),
        ("1000:1", 1_060.0, 1_060_000),
        ("1000:60", 1_000.0, 1_000_000),
        ("1000:60", 1_001.5, 1_090_000),
    ],
)
def test_time_runs_at_the_speed_of_the_environment(
    monkeypatch: pytest.MonkeyPatch, setting: str | None, real: float, now_ms: int
) -> None:
    monkeypatch.setattr(time, "time", lambda: real)
    if setting is None:
        monkeypatch.delenv(Env.CLOCK, raising=False)
    else:
        monkeypatch.setenv(Env.CLOCK, setting)

    assert clock.now_ms() == now_ms


@pytest.mark.parametrize(("setting", "real"), [(None, 3.0), ("", 3.0), ("1000:1", 3.0), ("1000:60", 0.05)])
def test_a_stretch_of_this_clocks_time_has_a_real_length(
    monkeypatch: pytest.MonkeyPatch, setting: str | None, real: float
) -> None:
    if setting is None:
        monkeypatch.delenv(Env.CLOCK, raising=False)
    else:
        monkeypatch.setenv(Env.CLOCK, setting)

    assert clock.real_seconds(3) == pytest.approx(real)
