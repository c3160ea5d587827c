"""Text for a terminal: cleaned, measured in cells, cut and wrapped."""

from __future__ import annotations

import unicodedata
from collections.abc import Iterator, Sequence


def clean(text: str, *, unicode: bool) -> str:
    """Text that is safe in a terminal: foreign text must not move its cursor or change its colours."""
    visible = "".join(char if char.isprintable() else " " for char in text).strip()
    return visible if unicode else visible.encode("ascii", "backslashreplace").decode("ascii")


def harmless(text: str) -> str:
    """Text in which only line ends are left of what moves a terminal's cursor or changes its colours."""
    return "".join(char if char.isprintable() or char == "\n" else " " for char in text)


def cells(text: str) -> int:
    """Cells that a text takes: two for a wide character, none for one that combines."""
    return sum(_of_one(char) for char in text)


def _of_one(char: str) -> int:
    if unicodedata.combining(char):
        return 0
    return 2 if unicodedata.east_asian_width(char) in {"W", "F"} else 1


def widest(texts: Sequence[str]) -> int:
    """Cells of the widest text."""
    return max(cells(text) for text in texts)


def pad(text: str, width: int, *, right: bool = False) -> str:
    """The text with spaces behind it, or before it."""
    space = " " * (width - cells(text))
    return space + text if right else text + space


def shorten(text: str, width: int, mark: str) -> str:
    """The text, cut in its middle: an item's key at the end matters as much as the step at the beginning."""
    if cells(text) <= width:
        return text
    tail = (width - 1) // 2
    head = _taken(text, width - 1 - tail)
    return head + mark + _taken(text[::-1], tail)[::-1]


def _taken(text: str, width: int) -> str:
    used = 0
    for index, char in enumerate(text):
        used += _of_one(char)
        if used > width:
            return text[:index]
    return text


def wrap(text: str, width: int) -> Iterator[str]:
    """Lines of whole words; a word that is wider than a line is cut."""
    line = ""
    for word in text.split():
        rest = word
        if line and cells(line) + 1 + cells(rest) <= width:
            line += " " + rest
            continue
        if line:
            yield line
        while cells(rest) > width:
            head = _taken(rest, width)
            yield head
            rest = rest[len(head) :]
        line = rest
    if line:
        yield line
