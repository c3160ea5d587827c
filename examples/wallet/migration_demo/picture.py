"""The timeline as one SVG: self-contained, readable on light and on dark."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from html import escape
from typing import Final

from constructs_lib.testing.simulator.engine.kernel import SECOND
from examples.wallet.functions.wallet.split.layout import LAYOUT
from saga_runtime.migration.layout import LEGACY, READY

from .conductor import Sample, Visit
from .run import Result
from .world import START

STYLE: Final = """
  .split { --ink: #1f2328; --dim: #59636e; --grid: #d8dee4; --page: #ffffff; --legacy: #9aa4af; --ready: #6e7781;
    --expand: #2a78d6; --migrate: #1a9c6b; --contract: #d9890b; --removed: #8250df; --crash: #cf222e; --good: #1a7f37; }
  @media (prefers-color-scheme: dark) {
    .split { --ink: #e6edf3; --dim: #9198a1; --grid: #30363d; --page: #0d1117; --legacy: #6e7681; --ready: #8b949e;
      --expand: #4493f8; --migrate: #2fbf8a; --contract: #e3a008; --removed: #a08cf0; --crash: #ff7b72;
      --good: #3fb950; }
  }
  .split text { font: 12px system-ui, sans-serif; fill: var(--ink); }
  .split .dim { fill: var(--dim); }
  .split .title { font-weight: 600; }
  .split .small { font-size: 10px; }
  .split .good { fill: var(--good); font-weight: 600; }
  .split .bad { fill: var(--crash); font-weight: 600; }
"""
_WIDTH: Final = 1120
_LEFT: Final = 62
_RIGHT: Final = 16
_STAGES: Final = ("expand", "expand", "migrate", "migrate", "migrate", "contract")
_PLACES: Final = (("OLD", "legacy"), ("DUAL", "expand"), ("NEW", "migrate"), ("CONTRACTED", "contract"))
_LEGEND: Final = (("old item", "legacy"), ("both", "expand"), ("new item", "migrate"), ("contracted", "contract"))
_GROUPS: Final = ("profiles", "balances and metrics")


def colour_of(phase: int) -> str:
    """Name of a phase's colour."""
    if phase == LEGACY:
        return "legacy"
    if phase == READY:
        return "ready"
    group = LAYOUT.group_of(phase)
    return "removed" if group is None else _STAGES[LAYOUT.stage(phase, group) - 1]


@dataclass(frozen=True, slots=True)
class _Axis:
    """Time, from left to right."""

    seconds: float

    def x(self, second: float) -> float:
        """Place of a second."""
        return round(_LEFT + (_WIDTH - _LEFT - _RIGHT) * second / self.seconds, 1)


def timeline(result: Result) -> str:
    """The picture."""
    axis = _Axis(result.virtual_seconds)
    samples = result.timeline.samples
    parts: list[str] = []
    y = 18.0
    parts += _staircase(axis, result.timeline.visits, top=y)
    y += 214
    for index, title in enumerate(_GROUPS):
        parts += _places(axis, samples, str(index), title, top=y)
        y += 86
    rate = max((one.done for one in samples), default=1)
    parts += _bars(axis, samples, "requests answered per second", lambda one: one.done, "expand", top=y, most=rate)
    y += 78
    most = max((one.struck for one in samples), default=1)
    parts += _bars(
        axis, samples, "crashes and lost responses per second", lambda one: one.struck, "crash", top=y, most=most
    )
    y += 78
    parts += _verdict(axis, result, top=y)
    y += 52
    parts += _time(axis, top=y)
    height = y + 26
    return (
        f'<svg class="split" xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {_WIDTH} {height:.0f}" role="img" '
        f'aria-label="Timeline of the migration"><style>{STYLE}</style>'
        f'<rect width="{_WIDTH}" height="{height:.0f}" style="fill:var(--page)"/>{"".join(parts)}</svg>'
    )


def _staircase(axis: _Axis, visits: Sequence[Visit], *, top: float) -> Iterator[str]:
    """Phases: one step each, up and down, in the colour of what happens in it."""
    height, last = 168.0, LAYOUT.last
    yield _text(_LEFT, top, "phase", "title")
    legend = [("legacy code", "legacy"), ("ready", "ready"), ("expand", "expand"), ("migrate", "migrate")]
    legend += [("contract", "contract"), ("old items deleted", "removed")]
    x = _LEFT + 60.0
    for name, colour in legend:
        yield f'<rect x="{x}" y="{top - 9}" width="10" height="10" rx="2" style="fill:var(--{colour})"/>'
        yield _text(x + 14, top, name, "dim")
        x += 26 + 7 * len(name)
    top += 12

    def y(phase: float) -> float:
        return round(top + height - height * phase / last, 1)

    for phase in (0, 7, last):
        yield _line(_LEFT, y(phase), _WIDTH - _RIGHT, y(phase))
        yield _text(_LEFT - 8, y(phase) + 4, str(phase), "dim", anchor="end")
    for visit in visits:
        begin = (visit.began - START) / SECOND
        left, right = axis.x(begin), axis.x(begin + visit.seconds)
        yield (
            f'<rect x="{left}" y="{y(visit.phase) - 3}" width="{max(1.0, right - left):.1f}" '
            f'height="{top + height - y(visit.phase) + 3:.1f}" style="fill:var(--{colour_of(visit.phase)})" '
            f'fill-opacity="0.82"><title>{escape(f"phase {visit.phase}: {LAYOUT.describe(visit.phase)}")}, '
            f"{visit.seconds:.0f} s</title></rect>"
        )
        if right - left > 13:
            yield _text((left + right) / 2, y(visit.phase) - 7, str(visit.phase), "small", anchor="middle")


def _places(axis: _Axis, samples: Sequence[Sample], group: str, title: str, *, top: float) -> Iterator[str]:
    """Share of a group's concerns in each place, stacked."""
    height = 56.0
    yield _text(_LEFT, top, f"where {title} are", "title")
    x = _LEFT + 40 + 7.2 * len(f"where {title} are")
    for name, colour in (
        ("old item", "legacy"),
        ("both", "expand"),
        ("new item", "migrate"),
        ("contracted", "contract"),
    ):
        yield f'<rect x="{x}" y="{top - 9}" width="10" height="10" rx="2" style="fill:var(--{colour})"/>'
        yield _text(x + 14, top, name, "dim")
        x += 26 + 6.6 * len(name)
    top += 8
    below = [0.0] * len(samples)
    for place, colour in _PLACES:
        shares = []
        for sample, under in zip(samples, below, strict=True):
            found = sample.places[group]
            shares.append(under + found[place] / max(1, sum(found.values())))
        upper, lower = (
            [f"{axis.x(_at(one))},{top + height - height * y:.1f}" for one, y in zip(samples, edge, strict=True)]
            for edge in (shares, below)
        )
        points = " ".join([*upper, *reversed(lower)])
        yield f'<polygon points="{points}" style="fill:var(--{colour})" fill-opacity="0.82"/>'
        below = shares
    yield _text(_LEFT - 8, top + 8, "100 %", "dim small", anchor="end")
    yield _text(_LEFT - 8, top + height, "0", "dim small", anchor="end")


def _bars(
    axis: _Axis,
    samples: Sequence[Sample],
    title: str,
    value: Callable[[Sample], int],
    colour: str,
    *,
    top: float,
    most: int,
) -> Iterator[str]:
    height = 46.0
    yield _text(_LEFT, top, title, "title")
    top += 8
    yield _line(_LEFT, top + height, _WIDTH - _RIGHT, top + height)
    yield _text(_LEFT - 8, top + 8, str(most), "dim small", anchor="end")
    width = max(1.0, (axis.x(1) - axis.x(0)) * 0.86)
    for sample in samples:
        tall = round(height * value(sample) / max(1, most), 1)
        yield (
            f'<rect x="{axis.x(_at(sample) - 1)}" y="{top + height - tall}" width="{width:.1f}" height="{tall}" '
            f'style="fill:var(--{colour})" fill-opacity="0.75"/>'
        )


def _verdict(axis: _Axis, result: Result, *, top: float) -> Iterator[str]:
    checked = sum(one.checked for one in result.checks.invariants.values())
    violated = sum(one.violated for one in result.checks.invariants.values())
    yield _text(_LEFT, top, "violated invariants", "title")
    yield _text(
        _LEFT + 150,
        top,
        f"{violated} of {checked:,} checks, after every write and at every read",
        "bad" if violated else "good",
    )
    top += 26
    yield _line(_LEFT, top, _WIDTH - _RIGHT, top)
    most = max([one.violated for one in result.timeline.samples], default=0) or 1
    points = [f"{axis.x(_at(one))},{top - 18 * one.violated / most:.1f}" for one in result.timeline.samples]
    colour = "crash" if violated else "good"
    yield f'<polyline points="{" ".join(points)}" style="fill:none;stroke:var(--{colour});stroke-width:2.5"/>'


def _time(axis: _Axis, *, top: float) -> Iterator[str]:
    step = 60 if axis.seconds > 240 else 20
    for second in range(0, int(axis.seconds) + 1, step):
        yield _text(axis.x(second), top, f"{second // 60}:{second % 60:02d}", "dim small", anchor="middle")


def _at(sample: Sample) -> float:
    return sample.second - START / SECOND


def _text(x: float, y: float, text: str, style: str, *, anchor: str = "start") -> str:
    return f'<text x="{x}" y="{y}" class="{style}" text-anchor="{anchor}">{escape(text)}</text>'


def _line(x1: float, y1: float, x2: float, y2: float) -> str:
    return f'<line x1="{x1}" y1="{y1}" x2="{x2}" y2="{y2}" style="stroke:var(--grid)"/>'
