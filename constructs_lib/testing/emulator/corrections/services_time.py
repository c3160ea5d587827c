"""Every service: time passes at the emulator's speed."""

from __future__ import annotations

import threading
import time
from typing import Any, Final

from ministack.services import apigateway_v1, dynamodb, eventbridge, scheduler, sqs

from constructs_lib.testing.emulator.clock import EmulatorClock
from constructs_lib.testing.emulator.corrections import Correction, Emulator, replace

#: Visibility timeouts and delays, time to live, rules and schedules, throttling rates.
_MODULES: Final = (sqs, dynamodb, eventbridge, scheduler, apigateway_v1)

#: The thread of the service that deletes items.
_REAPER: Final = "dynamodb-ttl-reaper"


class _EmulatedTime:
    """Replaces the ``time`` module in a service."""

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


class _NeverEarly:
    """Replaces the ``time`` module in a service that deletes what has expired."""

    def __init__(self, emulated: Any) -> None:
        self._emulated = emulated

    def time(self) -> float:
        """The emulated time; for the thread that deletes, real time as long as that is earlier."""
        now = float(self._emulated.time())
        return min(now, time.time()) if threading.current_thread().name == _REAPER else now

    def __getattr__(self, name: str) -> Any:
        return getattr(self._emulated, name)


def time_to_live(emulator: Emulator) -> None:
    """An item is deleted when it has expired by real time, too.

    A function that does not know the speed (a library in it, Powertools for one) writes times of its own clock, and the
    emulator's runs ahead of that: what is to live for an hour was gone after six minutes at speed 10. DynamoDB deletes
    within a few days after the time, and never before it.
    """
    if emulator.settings.speed == 1:
        return
    replace(dynamodb, "time", _NeverEarly)


CORRECTIONS: Final[tuple[Correction, ...]] = (services_time, time_to_live)
