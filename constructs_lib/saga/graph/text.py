"""Width of a text in a picture, estimated for the widest of the usual system fonts."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Callable, Iterator
from typing import Final

# Shares of the font size, as in DejaVu Sans and Verdana: a narrower font adds space and never overflows.
_SPECIAL: Final = {
    **dict.fromkeys("ijlI|.,:;'!` ", 0.38),
    **dict.fromkeys('frt()[]{}/\\-"', 0.47),
    **dict.fromkeys("mwMWOQ@%", 0.98),
}
_UPPER: Final = 0.75
_OTHER: Final = 0.65
_WIDE: Final = 1.1
_BOLD: Final = 1.12
_MONOSPACE: Final = 0.63
_Measure = Callable[[str], float]
_WORD: Final = re.compile(r"[A-Z]+(?![a-z])|[A-Z][a-z]*|[a-z]+|[0-9]+|[^A-Za-z0-9]+")


def text_width(text: str, size: float, *, bold: bool = False) -> float:
    """Pixels that a text takes at most in a system font of this size."""
    return sum(_share(char) for char in text) * size * (_BOLD if bold else 1)


def code_width(text: str, size: float) -> float:
    """Pixels that a text takes at most in a monospaced font of this size."""
    return sum(max(_share(char), _MONOSPACE) if not char.isascii() else _MONOSPACE for char in text) * size


def wrap_name(name: str, width: float, size: float) -> tuple[str, ...]:
    """A bold name in PascalCase on as few lines as it needs, broken between its words; a long word is cut."""
    lines = _fill(_WORD.findall(name), width, lambda text: text_width(text.rstrip(), size, bold=True))
    return tuple(line.strip() for line in lines)


def wrap_text(text: str, width: float, size: float) -> tuple[str, ...]:
    """Prose on as few lines as it needs, broken between its words."""
    lines = _fill(re.findall(r"\S+\s*", text), width, lambda line: text_width(line.rstrip(), size))
    return tuple(line.rstrip() for line in lines)


def wrap_code(code: str, width: float, size: float, *, most: int) -> tuple[str, ...]:
    """An expression on at most ``most`` lines, broken at spaces where it can be; what does not fit is left out."""
    flat = " ".join(code.split())
    lines = [
        line.rstrip() for line in _fill(re.findall(r"\S+\s*", flat), width, lambda t: code_width(t.rstrip(), size))
    ]
    if len(lines) <= most:
        return tuple(lines)
    last = lines[most - 1]
    while last and code_width(last + "…", size) > width:
        last = last[:-1]
    return (*lines[: most - 1], last.rstrip() + "…")


def _fill(words: list[str], width: float, measure: _Measure) -> tuple[str, ...]:
    lines = [""]
    for word in words:
        for piece in _pieces(word, width, measure):
            if lines[-1] and measure(lines[-1] + piece) > width:
                lines.append("")
            lines[-1] += piece
    return tuple(lines)


def _pieces(word: str, width: float, measure: _Measure) -> Iterator[str]:
    while len(word) > 1 and measure(word) > width:
        fits = next((n for n in range(len(word) - 1, 1, -1) if measure(word[:n]) <= width), 1)
        yield word[:fits]
        word = word[fits:]
    yield word


def _share(char: str) -> float:
    if unicodedata.east_asian_width(char) in {"W", "F"}:
        return _WIDE
    return _SPECIAL.get(char, _UPPER if char.isupper() else _OTHER)
