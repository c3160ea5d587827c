"""Drawing on a terminal, or into a file: colours only where they are wanted, progress only as often as it helps."""

from __future__ import annotations

import os
import re
import sys
import threading
import time
from dataclasses import dataclass
from typing import Final, TextIO

WIDTH: Final = 76
_ESCAPES: Final = re.compile(r"\x1b\[[0-9;]*m")
_BAR: Final = 16


@dataclass(frozen=True, slots=True, kw_only=True)
class Style:
    """Decoration of text: with colours or without, with box drawing characters or in ASCII."""

    colour: bool
    unicode: bool

    @classmethod
    def of(cls, stream: TextIO) -> Style:
        """Return the style that a stream can show. ``NO_COLOR`` is respected."""
        wanted = not os.environ.get("NO_COLOR") and os.environ.get("TERM") != "dumb"
        encoding = (getattr(stream, "encoding", None) or "ascii").lower().replace("-", "")
        return cls(colour=wanted and stream.isatty(), unicode=encoding.startswith("utf"))

    @property
    def tick(self) -> str:
        """Mark of what holds."""
        return "✓" if self.unicode else "ok"

    @property
    def cross(self) -> str:
        """Mark of what does not."""
        return "✗" if self.unicode else "!!"

    def good(self, text: str) -> str:
        """Green."""
        return self._paint("32", text)

    def bad(self, text: str) -> str:
        """Red."""
        return self._paint("1;31", text)

    def bold(self, text: str) -> str:
        """Bold."""
        return self._paint("1", text)

    def dim(self, text: str) -> str:
        """Faint."""
        return self._paint("2", text)

    def _paint(self, code: str, text: str) -> str:
        return f"\x1b[{code}m{text}\x1b[0m" if self.colour else text


class Table:
    """A box with sections, of lines with something at the left and something at the right."""

    def __init__(self, style: Style) -> None:
        self.style = style
        self._lines: list[str] = []
        self._glyphs = dict(zip("─│╭╮╰╯├┤█", "─│╭╮╰╯├┤█" if style.unicode else "-|++++++#", strict=True))

    def section(self, title: str, right: str = "") -> None:
        """Begin a section."""
        g = self._glyphs
        self._lines.append(g["├"] + g["─"] * (WIDTH - 2) + g["┤"])
        self.line(self.style.bold(title), self.style.dim(right))

    def line(self, left: str, right: str = "") -> None:
        """Add a line. What does not fit is cut at the left part's end."""
        room = WIDTH - 4 - _width(right) - (1 if right else 0)
        if _width(left) > room:
            left = _ESCAPES.sub("", left)[: room - 1] + ("…" if self.style.unicode else ".")
        bar = self._glyphs["│"]
        self._lines.append(f"{bar} {left}{' ' * (WIDTH - 4 - _width(left) - _width(right))}{right} {bar}")

    def bar(self, label: str, number: int, top: int, *, alarming: bool = False) -> None:
        """Add a line with a number and a bar as long as it is large."""
        length = max(1, round(_BAR * number / max(top, 1)))
        bar = self._glyphs["█"] * length + " " * (_BAR - length)
        self.line(label, f"{number:>7,}  {self.style.bad(bar) if alarming else self.style.good(bar)}")

    def gap(self) -> None:
        """Add an empty line."""
        self.line("")

    def text(self) -> str:
        """The whole box."""
        g = self._glyphs
        edge = g["─"] * (WIDTH - 2)
        return "\n".join([f"{g['╭']}{edge}{g['╮']}", *self._lines, f"{g['╰']}{edge}{g['╯']}"])


class Progress:
    """Shows the progress of the run: one line that is redrawn on a terminal, a line every few seconds elsewhere."""

    def __init__(self, stream: TextIO, style: Style, total: int) -> None:
        self._stream = stream
        self._style = style
        self._total = total
        self._done = 0
        self._requests = 0
        self._started = time.monotonic()
        self._told = self._started
        self._lock = threading.Lock()

    def heard(self, requests: int) -> None:
        """So many requests have been answered."""
        with self._lock:
            self._requests = max(self._requests, requests)
            now = time.monotonic()
            if now - self._told >= (0.1 if self._stream.isatty() else 2.0):
                self._told = now
                self._draw(now - self._started)

    def step(self) -> None:
        """One more key is done."""
        with self._lock:
            self._done += 1
            if self._done == self._total:
                self._draw(time.monotonic() - self._started, last=True)

    def _draw(self, seconds: float, *, last: bool = False) -> None:
        told = f"{self._done:>4}/{self._total} keys  {self._requests:>6,} requests  {seconds:>5.1f} s"
        if not self._stream.isatty():
            self._stream.write(f"  {told}\n")
        else:
            filled = round(24 * self._done / self._total)
            full, empty = ("█", "░") if self._style.unicode else ("#", ".")
            bar = self._style.good(full * filled) + self._style.dim(empty * (24 - filled))
            self._stream.write(f"\r  {bar} {told}{chr(10) if last else ''}")
        self._stream.flush()


def say(text: str, stream: TextIO | None = None) -> None:
    """Print a line at once."""
    print(text, file=stream or sys.stdout, flush=True)


def _width(text: str) -> int:
    return len(_ESCAPES.sub("", text))
