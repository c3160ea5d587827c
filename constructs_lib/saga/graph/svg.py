"""A drawing as SVG: no scripts, no fonts of its own, readable on light and on dark pages."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from html import escape
from typing import Final

from constructs_lib.saga.description.description import SagaDescription
from constructs_lib.saga.graph.cards import (
    CAPTION_LINE,
    CAPTION_SIZE,
    CODE_LINE,
    ICON,
    NAME_LINE,
    PADDING,
    PIVOT_WORD,
    badge_width,
)
from constructs_lib.saga.graph.drawing import (
    Box,
    Card,
    Chip,
    Drawing,
    End,
    Joint,
    Lane,
    Line,
    Panel,
    Pill,
    PivotLine,
    Point,
    Shape,
    Way,
    Word,
)
from constructs_lib.saga.graph.layout import lay_out
from constructs_lib.saga.graph.palette import style
from constructs_lib.saga.graph.sheet import MARGIN, WIDTH
from constructs_lib.saga.graph.text import text_width

_RADIUS: Final = 10
_CORNER: Final = 9
_ARROW: Final = 6
_DASHES: Final = {Way.UNDO: "6 4", Way.FAIL: "1.5 4", Way.PARK: "1.5 4", Way.SKIP: "5 4"}
_ENDS: Final = {
    End.START: ("start", "M5.5 3.5l6 4.5-6 4.5z"),
    End.COMPLETED: ("done", "M3 8.5l3.5 3.5L13 4.5"),
    End.FAILED: ("failed", "M4 4l8 8M12 4l-8 8"),
    End.PARKED: ("park", "M5.5 3.5v9M10.5 3.5v9"),
}
_LEGEND: Final = (
    (Way.FORWARD, "the way forward"),
    (Way.FAIL, "failed"),
    (Way.UNDO, "compensations, last step first"),
    (Way.PARK, "retried; still in doubt: parked"),
)


def to_svg(saga: SagaDescription) -> str:
    """The picture of a saga, as the text of an SVG file. The same description gives the same bytes."""
    return render(lay_out(saga))


def render(drawing: Drawing) -> str:
    """A drawing, as the text of an SVG file."""
    width, height = drawing.width, drawing.height
    size = f'width="{width}" height="{height}" viewBox="0 0 {width} {height}"'
    lines = [
        f'<svg xmlns="http://www.w3.org/2000/svg" {size} role="img" aria-labelledby="title desc">',
        f'<title id="title">{_text(f"Saga {drawing.title}")}</title>',
        f'<desc id="desc">{_text(drawing.description)}</desc>',
        f"<style>{style()}</style>",
        f'<rect class="f-ground s-edge" x=".5" y=".5" width="{width - 1}" height="{height - 1}" rx="14"/>',
        *_ahead(drawing),
        *_words(MARGIN, 42, (drawing.title,), "h f-ink", 0),
        *_words(MARGIN, 62, (drawing.subtitle,), "t f-soft", 0),
    ]
    for shape in drawing.shapes:
        lines += _shape(shape)
    return "\n".join([*lines, *_legend(height - 26), "</svg>", ""])


def _shape(shape: Shape) -> Iterator[str]:
    match shape:
        case Card():
            yield from _card(shape)
        case Panel():
            yield from _panel(shape)
        case Lane():
            yield _rect(shape.box, "f-lane s-panel-edge", radius=8)
        case Chip():
            yield from _chip(shape)
        case Pill():
            yield from _pill(shape)
        case Line():
            yield from _line(shape)
        case Joint():
            yield f'<circle class="f-{shape.way}" cx="{_n(shape.at[0])}" cy="{_n(shape.at[1])}" r="3.5"/>'
        case Word():
            yield from _words(*shape.at, (shape.text,), "t f-soft", 0, anchor=shape.anchor)
        case PivotLine():
            yield from _pivot(shape)


def _card(card: Card) -> Iterator[str]:
    box = card.box
    yield "<g>"
    yield f"<title>{_text(card.hint)}</title>"
    if card.tone is None:
        yield _rect(box, "f-undo-fill s-undo", dashes="6 4")
    else:
        yield _rect(box, f"f-card s-{'pivot' if card.pivot else card.tone}", stroke=2.5 if card.pivot else 1.3)
    tone = card.tone or "undo"
    fill = "f-card" if card.tone is None else f"f-{tone}-fill"
    size = 24 if card.compact else ICON
    top = box.y + 8 if card.compact else box.middle - size / 2
    tile = Box(x=box.x + PADDING - 2, y=top, width=size, height=size)
    yield from _icon(tile, card.icon, tone, fill)
    x = box.x + PADDING if card.compact else tile.right + PADDING
    y = box.middle - _content_height(card) / 2 + (ICON if card.compact else 0)
    yield from _words(x, y + 13, card.name, "n f-ink", NAME_LINE)
    y += len(card.name) * NAME_LINE
    yield from _words(x, y + 10, card.caption, "t f-soft", CAPTION_LINE)
    y += len(card.caption) * CAPTION_LINE + 6
    for number, note in enumerate(card.notes):
        yield from _words(x, y + 10 + number * CAPTION_LINE, (note.text,), f"t f-{note.way}", 0)
    if card.pivot:
        width = badge_width(PIVOT_WORD)
        yield from _badge(Box(x=box.right - width - 8, y=box.y + 9, width=width, height=20), PIVOT_WORD)
    yield "</g>"


def _content_height(card: Card) -> float:
    lines = len(card.caption) + len(card.notes)
    return len(card.name) * NAME_LINE + lines * CAPTION_LINE + bool(card.notes) * 6 + card.compact * ICON


def _panel(panel: Panel) -> Iterator[str]:
    box = panel.box
    yield "<g>"
    yield f"<title>{_text(panel.hint)}</title>"
    if panel.sheets:
        for shift in (10, 5):
            sheet = Box(x=box.x + shift, y=box.y + shift, width=box.width, height=box.height)
            yield _rect(sheet, "f-panel s-panel-edge", radius=14)
    yield _rect(box, "f-panel s-panel-edge", radius=14)
    tile = Box(x=box.x + PADDING, y=box.y + 11, width=ICON, height=ICON)
    yield from _icon(tile, panel.icon, "group", "f-group-fill")
    x = tile.right + PADDING
    yield from _words(x, box.y + 23, panel.name, "n f-group", NAME_LINE)
    yield from _words(x, box.y + 20 + len(panel.name) * NAME_LINE, (panel.caption,), "t f-soft", 0)
    yield "</g>"


def _chip(chip: Chip) -> Iterator[str]:
    box, point = chip.box, 11
    corners = (
        (box.x + point, box.y),
        (box.right - point, box.y),
        (box.right, box.middle),
        (box.right - point, box.bottom),
        (box.x + point, box.bottom),
        (box.x, box.middle),
    )
    path = " ".join(f"{_n(x)},{_n(y)}" for x, y in corners)
    yield f'<g><title>{_text(chip.hint)}</title><polygon class="f-chip s-chip-edge" points="{path}"/>'
    yield from _words(box.center, box.y + 17, chip.lines, "c f-ink", CODE_LINE, anchor="middle")
    yield "</g>"


def _pill(pill: Pill) -> Iterator[str]:
    colour, icon = _ENDS[pill.end]
    box = pill.box
    yield _rect(box, f"f-{colour}-fill s-{colour}", radius=23, stroke=1.6)
    yield from _icon(Box(x=box.x + 12, y=box.y + 11, width=24, height=24), icon, colour, "f-ground", bold=True)
    yield from _words(box.x + 46, box.y + 20, (pill.title,), "n f-ink", 0)
    yield from _words(box.x + 46, box.y + 36, (pill.note,), "t f-soft", 0)


def _pivot(line: PivotLine) -> Iterator[str]:
    box = line.label
    y = _n(line.y)
    yield f'<path class="l s-pivot" d="M{MARGIN} {y}H{_n(box.x)}M{_n(box.right)} {y}H{WIDTH - MARGIN}"/>'
    yield from _badge(box, line.text)


def _badge(box: Box, text: str) -> Iterator[str]:
    yield _rect(box, "f-pivot", radius=box.height / 2)
    yield from _words(box.center, box.middle + 4, (text,), "t b f-pivot-ink", 0, anchor="middle")


def _ahead(drawing: Drawing) -> Iterator[str]:
    """The ground below the pivot's line: another country."""
    for shape in drawing.shapes:
        if isinstance(shape, PivotLine):
            bottom = drawing.height - 50
            box = Box(x=MARGIN, y=shape.y, width=drawing.width - 2 * MARGIN, height=bottom - shape.y)
            yield _rect(box, "f-ahead", radius=0)


def _line(line: Line) -> Iterator[str]:
    dashes = _DASHES.get(line.way)
    dash = f' stroke-dasharray="{dashes}"' if dashes else ""
    yield f'<path class="l s-{line.way}"{dash} d="{_path(_shortened(line))}"/>'
    if line.arrow:
        yield f'<path class="f-{line.way}" d="{_head(line.points[-2], line.points[-1])}"/>'


def _shortened(line: Line) -> Sequence[Point]:
    """Its points, so that the line ends inside its arrow's head."""
    if not line.arrow:
        return line.points
    (x0, y0), (x1, y1) = line.points[-2:]
    length = math.hypot(x1 - x0, y1 - y0)
    back = min(_ARROW, length) / length if length else 0
    return (*line.points[:-1], (x1 - (x1 - x0) * back, y1 - (y1 - y0) * back))


def _path(points: Sequence[Point]) -> str:
    parts = [f"M{_n(points[0][0])} {_n(points[0][1])}"]
    for before, corner, after in zip(points, points[1:], points[2:], strict=False):
        room = min(_CORNER, _distance(before, corner) / 2, _distance(corner, after) / 2)
        start, end = _towards(corner, before, room), _towards(corner, after, room)
        parts.append(f"L{_n(start[0])} {_n(start[1])}Q{_n(corner[0])} {_n(corner[1])} {_n(end[0])} {_n(end[1])}")
    parts.append(f"L{_n(points[-1][0])} {_n(points[-1][1])}")
    return "".join(parts)


def _distance(one: Point, other: Point) -> float:
    return math.hypot(other[0] - one[0], other[1] - one[1])


def _towards(origin: Point, target: Point, distance: float) -> Point:
    length = _distance(origin, target) or 1
    share = distance / length
    return origin[0] + (target[0] - origin[0]) * share, origin[1] + (target[1] - origin[1]) * share


def _head(before: Point, tip: Point) -> str:
    length = _distance(before, tip) or 1
    dx, dy = (tip[0] - before[0]) / length, (tip[1] - before[1]) / length
    base = (tip[0] - dx * _ARROW * 1.4, tip[1] - dy * _ARROW * 1.4)
    left = (base[0] - dy * _ARROW * 0.8, base[1] + dx * _ARROW * 0.8)
    right = (base[0] + dy * _ARROW * 0.8, base[1] - dx * _ARROW * 0.8)
    return f"M{_n(tip[0])} {_n(tip[1])}L{_n(left[0])} {_n(left[1])}L{_n(right[0])} {_n(right[1])}z"


def _legend(y: float) -> Iterator[str]:
    x = float(MARGIN)
    for way, text in _LEGEND:
        yield from _line(Line(points=((x, y - 4), (x + 30, y - 4)), way=way))
        yield from _words(x + 38, y, (text,), "t f-soft", 0)
        x += 38 + text_width(text, CAPTION_SIZE) + 14


def _icon(tile: Box, icon: str, colour: str, fill: str, *, bold: bool = False) -> Iterator[str]:
    yield _rect(tile, fill, radius=tile.width / 2 if bold else 8)
    place = f"translate({_n(tile.center - 8)} {_n(tile.middle - 8)})"
    yield f'<path class="{"k" if bold else "i"} s-{colour}" transform="{place}" d="{icon}"/>'


def _rect(box: Box, classes: str, *, radius: float = _RADIUS, stroke: float = 1, dashes: str = "") -> str:
    place = f'x="{_n(box.x)}" y="{_n(box.y)}" width="{_n(box.width)}" height="{_n(box.height)}" rx="{_n(radius)}"'
    line = f' stroke-width="{_n(stroke)}"' if "s-" in classes and stroke != 1 else ""
    dash = f' stroke-dasharray="{dashes}"' if dashes else ""
    return f'<rect class="{classes}" {place}{line}{dash}/>'


def _words(
    x: float, y: float, lines: Sequence[str], classes: str, height: float, *, anchor: str = "start"
) -> Iterator[str]:
    where = "" if anchor == "start" else f' text-anchor="{anchor}"'
    for number, line in enumerate(lines):
        yield f'<text class="{classes}" x="{_n(x)}" y="{_n(y + number * height)}"{where}>{_text(line)}</text>'


def _text(text: str) -> str:
    """Text that XML allows: characters that it cannot hold at all are replaced."""
    return escape("".join(char if char.isprintable() else " " for char in text), quote=False)


def _n(number: float) -> str:
    """A number as short as it can be; the same on every machine."""
    return f"{round(number * 10) / 10:.1f}".removesuffix(".0")
