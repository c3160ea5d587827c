"""The one clock of the runtime. Nothing else in ``saga_runtime`` or ``handlers`` asks for the time."""

from __future__ import annotations

import os
import time

from saga_runtime.protocol import Env


def now_ms() -> int:
    """Milliseconds since the epoch.

    In AWS this is the system's clock. A local emulator that runs time N times faster sets ``CDK_SAGAS_CLOCK`` to
    ``<real epoch seconds at its start>:<speed>``; then time runs that much faster here, too.
    """
    return int(_seconds() * 1000)


def real_seconds(seconds: float) -> float:
    """Real duration of a number of this clock's seconds: for a socket's timeout."""
    return seconds / _setting()[1]


def _seconds() -> float:
    real = time.time()
    base, speed = _setting()
    return base + (real - base) * speed


def _setting() -> tuple[float, float]:
    base, _, speed = os.environ.get(Env.CLOCK, "").partition(":")
    return (float(base), float(speed)) if base else (0.0, 1.0)
