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


def _seconds() -> float:
    real = time.time()
    setting = os.environ.get(Env.CLOCK)
    if not setting:
        return real
    base, _, speed = setting.partition(":")
    return float(base) + (real - float(base)) * float(speed)
