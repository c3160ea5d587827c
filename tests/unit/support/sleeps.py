"""Sleeps of the code under test."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable

import pytest


def replace_sleep(monkeypatch: pytest.MonkeyPatch, sleep: Callable[[float], object]) -> None:
    """Replace ``time.sleep`` for this thread and those that it starts.

    A thread that was there before, of a fake provider or of local AWS for example, sleeps for itself: it would take
    what the test gives the code, or never rest.
    """
    real, others = time.sleep, {*threading.enumerate()} - {threading.current_thread()}

    def replaced(seconds: float) -> None:
        if threading.current_thread() in others:
            real(seconds)
        else:
            sleep(seconds)

    monkeypatch.setattr(time, "sleep", replaced)
