"""Text for people, by rich: columns, paragraphs, colours and bars. A pipe gets plain lines that are never wrapped."""

from __future__ import annotations

import io
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Final, TextIO

from rich.cells import cell_len, set_cell_size
from rich.console import Console
from rich.highlighter import RegexHighlighter
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn
from rich.text import Text
from rich.theme import Theme

from constructs_lib.saga.graph.terminal import clean, harmless
from constructs_lib.saga.graph.timeline import MIN_WIDTH, can_draw, duration

Line = str | Text
"""A line of text; statuses in a plain one are coloured."""
UNBOUNDED: Final = 1_000_000
_GAP: Final = "  "
_STYLES: Final = {"status.bad": "bold red", "status.good": "green", "status.open": "cyan"}


class _Statuses(RegexHighlighter):
    """Colours of statuses, wherever they are in a line."""

    base_style = "status."
    highlights = (
        r"\b(?P<bad>PARKED|FAILED|TIMED_OUT|ABORTED|OVERDUE|WRONG)\b",
        r"\b(?P<good>COMPLETED|SUCCEEDED)\b",
        r"\b(?P<open>IN_PROGRESS|RUNNING)\b",
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Screen:
    """The reader of a text: a terminal, or a pipe.

    Attributes:
        width: columns that a line should have at most. Ids and commands are never cut: they are to be copied.
        unicode: whether it shows more than ASCII.
        colour: whether it shows colours.
    """

    width: int = UNBOUNDED
    unicode: bool = True
    colour: bool = False

    @classmethod
    def of(cls, stream: TextIO) -> Screen:
        """Return that of a stream: colours only on a terminal, and without ``NO_COLOR``."""
        console = Console(file=stream)
        return cls(
            width=max(console.width, MIN_WIDTH) if stream.isatty() else UNBOUNDED,
            unicode=can_draw(stream.encoding),
            colour=console.color_system is not None and not console.no_color,
        )

    def clean(self, text: str) -> str:
        """Text that is safe in a terminal."""
        return clean(text, unicode=self.unicode)

    def text(self, *blocks: Iterable[Line]) -> str:
        """The whole text: blocks, with an empty line between them; empty ones are left out.

        What their plain lines have of others cannot move the cursor or change colours.
        """
        console = Console(
            file=io.StringIO(),
            width=UNBOUNDED,
            force_terminal=self.colour,
            color_system="standard" if self.colour else None,
            highlighter=_Statuses(),
            theme=Theme(_STYLES),
            markup=False,
            emoji=False,
        )
        with console.capture() as captured:
            for number, block in enumerate(lines for block in blocks if (lines := list(block))):
                for line in ["", *block] if number else block:
                    console.print(harmless(line) if isinstance(line, str) else line, soft_wrap=True)
        return captured.get()

    def paragraph(self, text: str, indent: int = 0, lead: str = "", style: str = "") -> Iterator[Text]:
        """Lines of whole words; one that is wider than a line is cut.

        Args:
            text: cleaned here.
            indent: spaces before each line.
            lead: the last ones of them in the first line.
            style: of the words.
        """
        words = Text(" ".join(self.clean(text).split()), style)
        lines = words.wrap(Console(width=UNBOUNDED), max(self.width, MIN_WIDTH) - indent)
        for number, line in enumerate(lines if words else ()):
            line.rstrip()
            yield Text.assemble((lead if number == 0 else "").rjust(indent), line)

    def table(self, rows: Sequence[Sequence[str]], *, name: int = 0, indent: int = 2) -> list[list[Line]]:
        """Lines of each row, in columns; of which empty ones are left out.

        Args:
            rows: cells, cleaned here.
            name: the column of the rows' names, which are never cut: one that has no place next to the other cells has
                a line of its own.
            indent: spaces before each line.
        """
        cleaned = [[self.clean(cell) for cell in row] for row in rows]
        widths = [max(map(cell_len, column)) for column in zip(*cleaned, strict=True)]
        beside = self.width - indent - sum(width + len(_GAP) for place, width in enumerate(widths) if place != name)
        widths[name] = max((size for row in cleaned if (size := cell_len(row[name])) <= beside), default=0)
        margin, table = " " * indent, list[list[Line]]()
        for row in cleaned:
            alone = row[name] if cell_len(row[name]) > widths[name] else ""
            if alone and name == 0:
                table.append([f"{margin}{alone}", *self.paragraph(", ".join(filter(None, row[1:])), indent + 2)])
                continue
            cells = [
                set_cell_size("" if alone and place == name else cell, widths[place]) for place, cell in enumerate(row)
            ]
            line = f"{margin}{_GAP.join(filter(None, cells))}".rstrip()
            table.append([line, f"{margin}    {alone}"] if alone else [line])
        return table


def safe(text: str) -> str:
    """Text of others that is safe on the standard output."""
    return Screen.of(sys.stdout).clean(text)


@contextmanager
def progress(total: int | None) -> Iterator[Callable[..., None]]:
    """A bar on the standard error, if a terminal shows it. Threads may share what it yields.

    Yields:
        ``bar(advance=1, note="…")``, or ``bar(completed=…, total=…)``.
    """
    console, note = Console(stderr=True), TextColumn("{task.fields[note]}", markup=False)
    columns: tuple[Any, ...] = (BarColumn(), MofNCompleteColumn(), note)
    with Progress(*columns, console=console, disable=not console.is_terminal, redirect_stdout=False) as bars:
        task = bars.add_task("", total=total, note="")
        yield lambda **changes: bars.update(task, **changes)


def whole_seconds(milliseconds: int) -> str:
    """A duration in whole seconds.

    >>> whole_seconds(1_999), whole_seconds(-1)
    ('1 s', '0 s')
    """
    return duration(max(milliseconds, 0) // 1_000 * 1_000).removeprefix("0 ms") or "0 s"


def counted(count: int, what: str) -> str:
    """A number of things.

    >>> counted(1, "saga"), counted(1_000, "saga")
    ('1 saga', '1,000 sagas')
    """
    return f"{count:,} {what}{'' if count == 1 else 's'}"
