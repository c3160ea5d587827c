"""A saga's run as a timeline for a terminal: one bar per row of its log."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Final

from constructs_lib.saga.graph.terminal import clean, pad, shorten, widest, wrap
from saga_runtime.protocol import StepStatus

MIN_WIDTH: Final = 40
_GOOD_BARS: Final = 30
_FEWER_BARS: Final = 24
_MIN_BARS: Final = 16
_MIN_NAME: Final = 12
_MAX_STATUS: Final = 12
_GAP: Final = "  "
_TICK_CELLS: Final = 10
_TICKS_MS: Final = tuple(
    number * unit
    for unit, numbers in (
        (1, (1, 2, 5, 10, 20, 50, 100, 200, 500)),
        (1_000, (1, 2, 5, 10, 15, 30)),
        (60_000, (1, 2, 5, 10, 15, 30)),
        (3_600_000, (1, 2, 3, 6, 12)),
        (86_400_000, (1, 2, 5, 10, 20, 50, 100, 200, 500)),
    )
    for number in numbers
)
"""Distances of the axis' marks: what a clock has, so that a label is a round number."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TimelineRow:
    """One row of a saga log, as far as the timeline shows it.

    Attributes:
        step: the row's sort key: a step's name, with an item's key inside a map.
        status: a ``StepStatus``; any other text is shown as it is.
        started_ms: when it began, in epoch milliseconds; None for a step that was not reached, which has no bar.
        ended_ms: when it ended; None while it is open: its bar extends to the present.
        detail: one sentence or several; shown below the bar.
    """

    step: str
    status: str
    started_ms: int | None = None
    ended_ms: int | None = None
    detail: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Style:
    unicode: bool
    marks: dict[str, str]
    bars: dict[str, str]
    unknown_mark: str
    bar: str
    moment: str
    open_end: str
    grid: str
    rule: str
    tick: str
    below: str
    cut: str


_UNICODE: Final = _Style(
    unicode=True,
    marks={
        StepStatus.DONE: "✔",
        StepStatus.RECORDED: "◦",
        StepStatus.INTENT: "?",
        StepStatus.REFUSED: "✘",
        StepStatus.TOMBSTONE: "∅",
        StepStatus.COMPENSATING: "?",
        StepStatus.COMPENSATED: "↩",
        StepStatus.APPLIED_LATE: "!",
    },
    bars={StepStatus.INTENT: "▒", StepStatus.COMPENSATING: "▒", StepStatus.COMPENSATED: "░", StepStatus.REFUSED: "▓"},
    unknown_mark="·",
    bar="█",
    moment="◆",
    open_end="▶",
    grid="┊",
    rule="─",
    tick="┬",
    below="└ ",
    cut="…",
)
_ASCII: Final = _Style(
    unicode=False,
    marks={
        StepStatus.DONE: "+",
        StepStatus.RECORDED: "o",
        StepStatus.INTENT: "?",
        StepStatus.REFUSED: "x",
        StepStatus.TOMBSTONE: "0",
        StepStatus.COMPENSATING: "?",
        StepStatus.COMPENSATED: "<",
        StepStatus.APPLIED_LATE: "!",
    },
    bars={StepStatus.INTENT: "~", StepStatus.COMPENSATING: "~", StepStatus.COMPENSATED: "-", StepStatus.REFUSED: "x"},
    unknown_mark=".",
    bar="=",
    moment="*",
    open_end=">",
    grid=":",
    rule="-",
    tick="+",
    below="' ",
    cut="~",
)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Columns:
    """Widths of the columns; 0 for one that is left out."""

    name: int
    state: int
    begin: int
    bars: int
    length: int

    @property
    def before_bars(self) -> int:
        return 2 + sum(width + len(_GAP) for width in (self.name, self.state, self.begin) if width)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Axis:
    """From moments to cells."""

    start: int
    end: int
    cells: int

    @property
    def span(self) -> int:
        return max(self.end - self.start, 1)

    def cell(self, moment: int) -> int:
        share = (min(max(moment, self.start), self.end) - self.start) / self.span
        return min(int(share * self.cells), self.cells - 1)

    @property
    def ticks(self) -> list[int]:
        """Moments of the marks, in milliseconds from the start."""
        wide_enough = (tick for tick in _TICKS_MS if tick / self.span * self.cells >= _TICK_CELLS)
        distance = next(wide_enough, self.span + 1)
        return list(range(0, self.span + 1, distance))


def timeline(
    rows: Sequence[TimelineRow],
    *,
    width: int = 100,
    details: int | None = None,
    now_ms: int | None = None,
    unicode: bool = True,
) -> list[str]:
    """Draw rows as lines, in the order in which they began; those that did not begin come last.

    Guaranteed: no line is wider than ``width`` (``MIN_WIDTH`` at least), none holds a control character, and without
    ``unicode`` all are ASCII. Bars are in proportion to time; one of less than a cell is a mark. Where the width has
    no place for bars, they are left out: the numbers stay.

    Args:
        rows: of one saga.
        width: columns of the terminal.
        details: columns of the details below the bars, if they are not those of the terminal.
        now_ms: the present, in epoch milliseconds, up to which open rows reach; by default the last moment in the rows.
        unicode: whether the terminal shows more than ASCII; see ``can_draw``.
    """
    if not rows:
        return []
    style = _UNICODE if unicode else _ASCII
    width = max(width, MIN_WIDTH)
    below = details if details is not None else width
    ordered = sorted(rows, key=lambda row: (row.started_ms is None, row.started_ms or 0))
    moments = [moment for row in rows for moment in (row.started_ms, row.ended_ms) if moment is not None]
    if not moments:
        return [line for row in ordered for line in _plain(row, style, width, below)]
    start = min(moments)
    end = max([*moments, now_ms]) if now_ms is not None else max(moments)

    names = [clean(row.step, unicode=style.unicode) for row in ordered]
    states = [shorten(clean(row.status, unicode=style.unicode), _MAX_STATUS, style.cut) for row in ordered]
    begins = [f"+{duration(row.started_ms - start)}" if row.started_ms is not None else "" for row in ordered]
    lengths = [_length(row, end) for row in ordered]
    columns = _columns(width, *(widest(column) for column in (names, states, begins, lengths)))
    axis = _Axis(start=start, end=end, cells=columns.bars)

    lines = _heading(axis, style, width, columns)
    for row, name, state, begun, took in zip(ordered, names, states, begins, lengths, strict=True):
        parts = [pad(shorten(name, columns.name, style.cut), columns.name), pad(state, columns.state)]
        if columns.begin:
            parts.append(pad(begun, columns.begin, right=True))
        if columns.bars:
            parts.append(_bar(row, axis, style))
        parts.append(pad(took, columns.length, right=True))
        lines.append(f"{_mark(row, style)} {_GAP.join(parts)}".rstrip())
        lines += _details(row, style, below)
    return lines


def _columns(width: int, name: int, state: int, begin: int, length: int) -> _Columns:
    """Columns that fit, the best first: names are cut and the column of beginnings is dropped before the bars."""
    room = width - 2 - state - length - 2 * len(_GAP)
    short = min(name, _MIN_NAME)
    ways = (
        (begin, name, _GOOD_BARS),
        (0, name, _FEWER_BARS),
        (0, short, _MIN_BARS),
        (begin, short, 0),
        (0, short, 0),
    )
    for begins, least_name, fewest in ways:
        bars = fewest > 0
        left = room - (begins + len(_GAP) if begins else 0) - (len(_GAP) if bars else 0)
        if left >= least_name + fewest:
            name_width = min(name, left - fewest)
            return _Columns(
                name=name_width, state=state, begin=begins, bars=left - name_width if bars else 0, length=length
            )
    return _Columns(name=max(min(name, room), 1), state=state, begin=0, bars=0, length=length)


def can_draw(encoding: str | None) -> bool:
    """Test whether a stream of this encoding can show what ``timeline`` draws with ``unicode``.

    >>> can_draw("utf-8"), can_draw("ascii"), can_draw(None)
    (True, False, False)
    """
    glyphs = [*_UNICODE.marks.values(), *_UNICODE.bars.values(), _UNICODE.bar, _UNICODE.moment, _UNICODE.open_end]
    try:
        "".join([*glyphs, _UNICODE.grid, _UNICODE.rule, _UNICODE.tick, _UNICODE.below, _UNICODE.cut]).encode(
            encoding or "ascii"
        )
    except (LookupError, UnicodeEncodeError):
        return False
    return True


def duration(milliseconds: int) -> str:
    """A duration as people read it: two units at most.

    >>> [duration(n) for n in (0, 250, 1_500, 59_990, 90_000, 7_200_000, 90_000_000)]
    ['0 ms', '250 ms', '1.5 s', '60 s', '1 m 30 s', '2 h', '1 d 1 h']
    """
    if milliseconds < 1_000:
        return f"{milliseconds} ms"
    if milliseconds < 60_000:
        return f"{milliseconds / 1_000:.1f}".removesuffix(".0") + " s"
    seconds = milliseconds // 1_000
    for unit, size, smaller, rest in (("d", 86_400, "h", 3_600), ("h", 3_600, "m", 60), ("m", 60, "s", 1)):
        if seconds >= size:
            left = seconds % size // rest
            return f"{seconds // size} {unit}" + (f" {left} {smaller}" if left else "")
    raise AssertionError(milliseconds)


def _length(row: TimelineRow, end: int) -> str:
    if row.started_ms is None:
        return ""
    if row.ended_ms is None:
        return duration(max(end - row.started_ms, 0))
    return duration(max(row.ended_ms - row.started_ms, 0)) if row.ended_ms > row.started_ms else ""


def _heading(axis: _Axis, style: _Style, width: int, columns: _Columns) -> list[str]:
    begun = datetime(1970, 1, 1, tzinfo=UTC) + timedelta(milliseconds=axis.start)
    title = f"{begun:%Y-%m-%d %H:%M:%S}.{axis.start % 1_000:03d} UTC"
    total = f"{duration(axis.end - axis.start)} in all"
    lines = [f"{title}{total.rjust(width - len(title))}" if len(title) + len(total) < width else title]
    if not columns.bars:
        return [*lines, style.rule * width]
    labels, rule = [" "] * axis.cells, [style.rule] * axis.cells
    for tick in axis.ticks:
        cell = axis.cell(axis.start + tick)
        rule[cell] = style.tick
        text = duration(tick) if tick else "0"
        if cell + len(text) <= axis.cells:
            labels[cell : cell + len(text)] = text
    before = columns.before_bars
    after = style.rule * (width - before - axis.cells)
    return [*lines, f"{' ' * before}{''.join(labels)}".rstrip(), f"{style.rule * before}{''.join(rule)}{after}"]


def _bar(row: TimelineRow, axis: _Axis, style: _Style) -> str:
    cells = [" "] * axis.cells
    for tick in axis.ticks:
        cells[axis.cell(axis.start + tick)] = style.grid
    if row.started_ms is not None:
        ended = axis.end if row.ended_ms is None else max(row.ended_ms, row.started_ms)
        first, last = axis.cell(row.started_ms), axis.cell(ended)
        if first == last:
            cells[first] = style.moment
        else:
            cells[first : last + 1] = style.bars.get(row.status, style.bar) * (last + 1 - first)
        if row.ended_ms is None:
            cells[last] = style.open_end
    return "".join(cells)


def _plain(row: TimelineRow, style: _Style, width: int, below: int) -> list[str]:
    """A row of a saga of which nothing has begun."""
    text = (
        f"{_mark(row, style)} {clean(row.step, unicode=style.unicode)}{_GAP}{clean(row.status, unicode=style.unicode)}"
    )
    return [shorten(text, width, style.cut), *_details(row, style, below)]


def _mark(row: TimelineRow, style: _Style) -> str:
    return style.marks.get(row.status, style.unknown_mark)


def _details(row: TimelineRow, style: _Style, width: int) -> list[str]:
    lead = "  " + style.below
    wrapped = wrap(clean(row.detail, unicode=style.unicode), width - len(lead))
    return [(lead if number == 0 else " " * len(lead)) + text for number, text in enumerate(wrapped)]
