"""Every service: time passes at the emulator's speed."""

from __future__ import annotations

import time
from typing import Any, Final

from ministack.services import apigateway_v1, dynamodb, eventbridge, scheduler, sqs

from ..clock import EmulatorClock
from . import Correction, Emulator, replace

#: Visibility timeouts and delays, time to live, rules and schedules, throttling rates.
_MODULES: Final = (sqs, dynamodb, eventbridge, scheduler, apigateway_v1)


class _EmulatedTime:
    """Stands for the ``time`` module in a service."""

    def __init__(self, clock: EmulatorClock) -> None:
        self.time = clock.now
        self._clock = clock

    def sleep(self, seconds: float) -> None:
        """Sleep for an emulated duration."""
        time.sleep(self._clock.real(seconds))

    def __getattr__(self, name: str) -> Any:
        return getattr(time, name)


def services_time(emulator: Emulator) -> None:
    """Visibility timeouts, delays, time to live, schedules and rates follow the emulator's clock."""
    if emulator.settings.speed == 1:
        return
    for module in _MODULES:
        replace(module, "time", lambda _original: _EmulatedTime(emulator.clock))


CORRECTIONS: Final[tuple[Correction, ...]] = (services_time,)
