"""Pauses of a test that waits for something: short at first, then longer, so that waiting takes no processor."""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import Final

_GROWTH: Final = 1.3


@dataclass(slots=True, kw_only=True)
class Pauses:
    """One wait.

    Attributes:
        next: duration of the next pause, in seconds.
        most: of any pause.
    """

    next: float = 0.01
    most: float = 0.25

    def pause(self) -> None:
        """Sleep, before the test checks again."""
        time.sleep(self.next)
        self.next = min(self.next * _GROWTH, self.most)
