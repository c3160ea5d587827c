"""The one clock of the runtime. Nothing else in ``saga_runtime`` or ``handlers`` asks for the time."""

from __future__ import annotations

import os
import time
from datetime import UTC, datetime

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


def moment(epoch_ms: int) -> str:
    """Date and time for people, in UTC: operators may be in different time zones.

    >>> moment(1_700_000_000_123)
    '2023-11-14 22:13:20 UTC'
    """
    return datetime.fromtimestamp(epoch_ms // 1_000, UTC).strftime("%Y-%m-%d %H:%M:%S UTC")


def _seconds() -> float:
    real = time.time()
    base, speed = _setting()
    return base + (real - base) * speed


def _setting() -> tuple[float, float]:
    base, _, speed = os.environ.get(Env.CLOCK, "").partition(":")
    return (float(base), float(speed)) if base else (0.0, 1.0)
