"""Emulator time: real time at speed 1, N times faster at speed N."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Final

#: Environment variable by which function code learns the clock: ``<real epoch seconds at start>:<speed>``.
CLOCK_VARIABLE: Final = "CDK_SAGAS_CLOCK"


@dataclass(frozen=True, slots=True, kw_only=True)
class EmulatorClock:
    """One clock for everything that the emulator measures, waits for or stamps.

    It shows real time at `base` and then runs `speed` times faster, so that a stored time, a wait and a timeout
    agree with each other at any speed.

    Attributes:
        base: Real epoch seconds at which the clock started.
        speed: How many emulated seconds pass in a real one.
        real_time: Where real epoch seconds come from.
    """

    base: float
    speed: float
    real_time: Callable[[], float] = field(default=time.time, repr=False)

    def now(self) -> float:
        """Return emulated epoch seconds."""
        return self.base + (self.real_time() - self.base) * self.speed

    def real(self, emulated_seconds: float) -> float:
        """Return how many real seconds an emulated duration takes."""
        return emulated_seconds / self.speed

    def timestamp(self) -> str:
        """Return emulated time in the format of AWS's own timestamps: UTC, milliseconds, ``Z``."""
        return datetime.fromtimestamp(self.now(), UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")

    def variable(self) -> str | None:
        """Return the value of `CLOCK_VARIABLE`, or None where emulated time is real time."""
        return None if self.speed == 1 else f"{self.base!r}:{self.speed!r}"
