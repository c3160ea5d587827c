"""A bar of progress on the standard error, if a person reads it."""

from __future__ import annotations

import sys
import threading
import time
from typing import Final, TextIO

_WIDTH: Final = 30
_EVERY_SECONDS: Final = 0.1


class Progress:
    """Draws how much of a known amount is done. Threads may share it; nothing is drawn if no terminal reads it.

    Args:
        total: the amount.
        stream: the standard error by default.
    """

    def __init__(self, total: int, *, stream: TextIO | None = None) -> None:
        self._total = total
        self._stream = stream if stream is not None else sys.stderr
        self._done = 0
        self._drawn_at = 0.0
        self._lock = threading.Lock()

    def advance(self, note: str = "") -> None:
        """Count one more, and draw at most ten times a second.

        Args:
            note: behind the bar.
        """
        with self._lock:
            self._done += 1
            now = time.monotonic()
            if self._done == self._total or now - self._drawn_at >= _EVERY_SECONDS:
                self._drawn_at = now
                self._draw(note)

    def end(self) -> None:
        """Leave the bar's line."""
        if self._stream.isatty():
            self._stream.write("\n")
            self._stream.flush()

    def _draw(self, note: str) -> None:
        if not self._stream.isatty():
            return
        full = _WIDTH * self._done // max(self._total, 1)
        bar = "#" * full + "." * (_WIDTH - full)
        self._stream.write(f"\r\x1b[K[{bar}] {self._done:,} of {self._total:,} {note}")
        self._stream.flush()
