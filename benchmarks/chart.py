"""A chart of a few falling or rising lines, as an SVG that needs no font and no script."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final
from xml.sax.saxutils import escape

_WIDTH: Final = 760
_HEIGHT: Final = 360
_LEFT: Final = 70
_TOP: Final = 44
_RIGHT: Final = 20
_BOTTOM: Final = 50
_TICKS: Final = 5
_STROKES: Final = (("#1f6f8b", ""), ("#b3541e", ""), ("#1f6f8b", "6 4"), ("#b3541e", "6 4"))
"""Colour and dashes: four lines at most, which differ without colours, too."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Line:
    """A line.

    Attributes:
        name: for the legend.
        points: x and y, from 0 on, by ascending x.
    """

    name: str
    points: Sequence[tuple[float, float]]


def write_chart(path: Path, lines: Sequence[Line], *, title: str, x: str, y: str) -> None:
    """Draw lines over axes that begin at 0.

    Args:
        path: the file.
        lines: one to four.
        title: what it shows.
        x: what the horizontal axis is of.
        y: what the vertical axis is of.
    """
    if not 1 <= len(lines) <= len(_STROKES):
        raise ValueError(f"a chart has 1 to {len(_STROKES)} lines, got {len(lines)}")
    most_x = _round(max(at for line in lines for at, _ in line.points))
    most_y = _round(max(value for line in lines for _, value in line.points))
    box, middle = f"0 0 {_WIDTH} {_HEIGHT}", (_HEIGHT - _BOTTOM + _TOP) / 2
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="{box}" role="img" font-family="sans-serif" fill="#333">',
        f"<title>{escape(title)}</title>",
        f'<rect width="{_WIDTH}" height="{_HEIGHT}" fill="#fff"/>',
        _text(_LEFT, 22, title, size=15),
        _text((_WIDTH + _LEFT) / 2, _HEIGHT - 12, x, anchor="middle"),
        f'<g transform="translate(16 {middle}) rotate(-90)">{_text(0, 0, y, anchor="middle")}</g>',
    ]
    for tick in range(_TICKS + 1):
        across, up = _place(most_x * tick / _TICKS, most_y * tick / _TICKS, most_x, most_y)
        parts += [
            f'<path d="M{_LEFT} {up:.1f}H{_WIDTH - _RIGHT}" stroke="#ddd"/>',
            _text(across, _HEIGHT - _BOTTOM + 18, f"{most_x * tick / _TICKS:g}", anchor="middle"),
            _text(_LEFT - 8, up + 4, f"{most_y * tick / _TICKS:,.0f}", anchor="end"),
        ]
    for number, (line, (colour, dashes)) in enumerate(zip(lines, _STROKES, strict=False)):
        drawn = "L".join(f"{px:.1f} {py:.1f}" for px, py in (_place(*point, most_x, most_y) for point in line.points))
        style = f'fill="none" stroke="{colour}" stroke-width="2" stroke-dasharray="{dashes}"'
        legend = _TOP + 12 + 18 * number
        parts += [
            f'<path d="M{drawn}" {style}/>',
            f'<path d="M{_WIDTH - 250} {legend}h30" {style}/>',
            _text(_WIDTH - 212, legend + 4, line.name),
        ]
    path.write_text("\n".join([*parts, "</svg>", ""]), "utf-8")


def _round(most: float) -> float:
    """The next number that the ticks divide well."""
    step = 1.0
    while True:
        for factor in (1, 2, 5):
            if most <= _TICKS * step * factor:
                return _TICKS * step * factor
        step *= 10


def _place(x: float, y: float, most_x: float, most_y: float) -> tuple[float, float]:
    across = _LEFT + x / most_x * (_WIDTH - _LEFT - _RIGHT)
    return across, _HEIGHT - _BOTTOM - y / most_y * (_HEIGHT - _TOP - _BOTTOM)


def _text(x: float, y: float, text: str, *, anchor: str = "start", size: int = 12) -> str:
    return f'<text x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}" font-size="{size}">{escape(text)}</text>'


@dataclass(frozen=True, slots=True, kw_only=True)
class Bar:
    """A bar of two parts."""

    name: str
    parts: tuple[float, float]


def write_bars(path: Path, bars: Sequence[Bar], *, title: str, parts: tuple[str, str], unit: str) -> None:
    """Draw horizontal bars, one below the other, from the shortest to the longest.

    Args:
        path: the file.
        bars: at least one.
        title: what they show.
        parts: names of the two parts.
        unit: of the values, which follow the bars.
    """
    left, thick, gap = 190, 22, 12
    height = _TOP + 26 + len(bars) * (thick + gap)
    most, box = max(sum(bar.parts) for bar in bars), f"0 0 {_WIDTH} {height}"
    drawn = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="{box}" role="img" font-family="sans-serif" fill="#333">',
        f"<title>{escape(title)}</title>",
        f'<rect width="{_WIDTH}" height="{height}" fill="#fff"/>',
        _text(16, 22, title, size=15),
    ]
    for place, (name, (colour, _)) in enumerate(zip(parts, _STROKES, strict=False)):
        drawn.append(f'<rect x="{left + place * 150}" y="34" width="12" height="12" fill="{colour}"/>')
        drawn.append(_text(left + place * 150 + 18, 44, name))
    for place, bar in enumerate(sorted(bars, key=lambda bar: sum(bar.parts))):
        y, x = _TOP + 16 + place * (thick + gap), float(left)
        drawn.append(_text(left - 10, y + 15, bar.name, anchor="end"))
        for value, (colour, _) in zip(bar.parts, _STROKES, strict=False):
            width = value / most * (_WIDTH - left - 100)
            drawn.append(f'<rect x="{x:.1f}" y="{y}" width="{width:.1f}" height="{thick}" fill="{colour}"/>')
            x += width
        drawn.append(_text(x + 8, y + 15, f"{sum(bar.parts):.0f} {unit}"))
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("\n".join([*drawn, "</svg>"]) + "\n", "utf-8")
