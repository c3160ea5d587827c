"""The timeline of a soak as one SVG: self-contained, readable on light and on dark."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from html import escape
from typing import Final

from .account import Account, End
from .run import Run
from .wishes import Example

STYLE: Final = """
  .soak { --ink: #1f2328; --dim: #59636e; --grid: #d8dee4; --page: #ffffff; --faults: #9aa4af; --kills: #cf222e;
    --stops: #bc4c00; --recoveries: #8250df; --end: #cf222e; --quiet: #1a7f37;
    --transfers: #2a78d6; --orders: #1baf7a; --payouts: #e0a100; --carts: #6e56cf; }
  @media (prefers-color-scheme: dark) {
    .soak { --ink: #e6edf3; --dim: #9198a1; --grid: #30363d; --page: #0d1117; --faults: #6e7681; --kills: #ff7b72;
      --stops: #f0883e; --recoveries: #bc8cff; --end: #ff7b72; --quiet: #3fb950;
      --transfers: #4493f8; --orders: #2fbf8a; --payouts: #d29922; --carts: #a08cf0; }
  }
  .soak text { font: 12px system-ui, sans-serif; fill: var(--ink); }
  .soak .dim { fill: var(--dim); }
  .soak .title { font-weight: 600; }
  .soak .grid { stroke: var(--grid); stroke-width: 1; }
  .soak .mark { stroke-width: 1.5; stroke-dasharray: 5 4; }
"""
_COLOURS: Final[Mapping[Example, str]] = {
    Example.TRANSFERS: "transfers",
    Example.ORDERS: "orders",
    Example.PAYOUTS: "payouts",
    Example.CARTS: "carts",
}
_WIDTH: Final = 1120
_LEFT: Final = 52
_RIGHT: Final = 18
_POINTS: Final = 300
_BARS: Final = 100
_PAIRS: Final = 60
_STOPS: Final = frozenset({"stopped", "timed out"})


@dataclass(frozen=True, slots=True, kw_only=True)
class Band:
    """One chart of several that share their time.

    Attributes:
        top: where it begins.
        height: of the chart.
        most: value at its full height.
    """

    top: float
    height: float
    most: float

    @property
    def bottom(self) -> float:
        """Lower edge."""
        return self.top + self.height

    def y(self, value: float) -> float:
        """Vertical position of a value."""
        return self.bottom - self.height * value / self.most


class Timeline:
    """Draws one soak.

    Args:
        run: the soak.
    """

    def __init__(self, run: Run) -> None:
        self._run = run
        ends = [run.real(saga.ended) for one in run.accounts for saga in one.sagas if saga.ended is not None]
        marks = [run.real(run.faults_ended), *([run.real(run.quiet)] if run.quiet is not None else [])]
        self._seconds = max([*ends, *marks, 1.0]) * 1.05

    def svg(self) -> str:
        """The picture."""
        stacked = self._stacked()
        in_flight = Band(top=34, height=270, most=_round_up(max(map(sum, zip(*stacked.values(), strict=True)))))
        kills, others = (self._counts(self._faults(kill=kill), _BARS) for kill in (True, False))
        hurt = Band(
            top=in_flight.bottom + 54, height=110, most=_round_up(max(map(sum, zip(kills, others, strict=True))))
        )
        stops, recoveries = self._counts(self._stops(), _PAIRS), self._counts(self._recoveries(), _PAIRS)
        healed = Band(top=hurt.bottom + 54, height=110, most=_round_up(max(*stops, *recoveries)))
        height = healed.bottom + 30
        parts = [
            *self._frame(in_flight, "sagas in flight", self._of_sagas()),
            *self._areas(stacked, in_flight),
            *self._frame(hurt, f"faults in AWS calls, each {self._seconds / _BARS:.1f} s", self._of_faults()),
            *self._bars(others, hurt, "faults", above=kills),
            *self._bars(kills, hurt, "kills"),
            *self._frame(healed, f"interruptions, each {self._seconds / _PAIRS:.1f} s", self._of_stops()),
            *self._bars(stops, healed, "stops", half=0),
            *self._bars(recoveries, healed, "recoveries", half=1),
            *self._seconds_axis(healed.bottom),
            *self._marks(in_flight.top, healed.bottom),
        ]
        label = "sagas in flight over time, faults, interruptions and recoveries"
        return (
            f'<svg class="soak" viewBox="0 0 {_WIDTH} {height:.0f}" role="img" aria-label="{label}"'
            f' xmlns="http://www.w3.org/2000/svg"><style>{STYLE}</style>{"".join(parts)}</svg>'
        )

    # --- What is drawn

    def _stacked(self) -> dict[Example, list[int]]:
        """Sagas in flight at each point of time."""
        step = self._seconds / (_POINTS - 1)
        return {one.example: [self._at(one, n * step) for n in range(_POINTS)] for one in self._run.accounts}

    def _at(self, one: Account, second: float) -> int:
        """A saga that is parked waits for a person, and is shown until the end."""
        real = self._run.real
        return sum(real(s.began) <= second and (s.ended is None or real(s.ended) > second) for s in one.sagas)

    def _faults(self, *, kill: bool) -> Iterator[float]:
        for hit in self._run.damage.hits:
            if hit.kind not in _STOPS and hit.kind.startswith("kill") is kill:
                yield hit.at.timestamp()

    def _stops(self) -> Iterator[float]:
        return (hit.at.timestamp() for hit in self._run.damage.hits if hit.kind in _STOPS)

    def _recoveries(self) -> Iterator[float]:
        return (at.timestamp() for one in self._run.accounts for at in one.recoveries_at)

    def _counts(self, times: Iterable[float], buckets: int) -> list[int]:
        counts = [0] * buckets
        for at in times:
            bucket = int(self._run.real(at) / self._seconds * buckets)
            if 0 <= bucket < buckets:
                counts[bucket] += 1
        return counts

    # --- How

    def _x(self, second: float) -> float:
        return _LEFT + (_WIDTH - _LEFT - _RIGHT) * second / self._seconds

    def _areas(self, stacked: Mapping[Example, Sequence[int]], band: Band) -> Iterator[str]:
        below, step = [0] * _POINTS, self._seconds / (_POINTS - 1)
        for example, counts in stacked.items():
            top = [low + count for low, count in zip(below, counts, strict=True)]
            upper = [f"{self._x(n * step):.1f},{band.y(value):.1f}" for n, value in enumerate(top)]
            lower = [f"{self._x(n * step):.1f},{band.y(value):.1f}" for n, value in enumerate(below)]
            yield (
                f'<polygon points="{" ".join([*upper, *reversed(lower)])}" fill="var(--{_COLOURS[example]})"'
                ' stroke="var(--page)" stroke-width="1" stroke-linejoin="round"/>'
            )
            below = top

    def _bars(
        self,
        counts: Sequence[int],
        band: Band,
        colour: str,
        *,
        above: Sequence[int] | None = None,
        half: int | None = None,
    ) -> Iterator[str]:
        """One bar a bucket: on top of other bars, or next to them in its half of the bucket."""
        width = (_WIDTH - _LEFT - _RIGHT) / len(counts)
        for number, count in enumerate(counts):
            if not count:
                continue
            base = above[number] if above is not None else 0
            x = _LEFT + width * number + (width / 2 * half if half is not None else 0)
            wide = max(1.0, (width if half is None else width / 2) - 0.8)
            y = band.y(base + count)
            box = f'x="{x:.1f}" y="{y:.1f}" width="{wide:.1f}" height="{band.y(base) - y:.1f}"'
            yield f'<rect {box} fill="var(--{colour})"/>'

    def _frame(self, band: Band, title: str, legend: Sequence[tuple[str, str]]) -> Iterator[str]:
        yield f'<text class="title" x="{_LEFT}" y="{band.top - 16:.0f}">{escape(title)}</text>'
        x = _LEFT + 7.2 * len(title) + 26
        for colour, text in legend:
            yield f'<rect x="{x:.0f}" y="{band.top - 26:.0f}" width="11" height="11" rx="2" fill="var(--{colour})"/>'
            yield f'<text x="{x + 16:.0f}" y="{band.top - 16:.0f}">{escape(text)}</text>'
            x += 16 + 6.4 * len(text) + 20
        for part in (0.0, 0.5, 1.0):
            y = band.y(band.most * part)
            yield f'<line class="grid" x1="{_LEFT}" x2="{_WIDTH - _RIGHT}" y1="{y:.1f}" y2="{y:.1f}"/>'
            yield f'<text class="dim" x="{_LEFT - 8}" y="{y + 4:.1f}" text-anchor="end">{band.most * part:g}</text>'

    def _seconds_axis(self, bottom: float) -> Iterator[str]:
        every = next(step for step in (5, 10, 20, 30, 60, 120, 300, 600, 3_600) if self._seconds / step <= 14)
        second = 0
        while second <= self._seconds:
            x = self._x(second)
            yield f'<line class="grid" x1="{x:.1f}" x2="{x:.1f}" y1="{bottom:.0f}" y2="{bottom + 5:.0f}"/>'
            yield f'<text class="dim" x="{x:.1f}" y="{bottom + 20:.0f}" text-anchor="middle">{second} s</text>'
            second += every

    def _marks(self, top: float, bottom: float) -> Iterator[str]:
        """Moments: each text is on the side where the other one is not."""
        run = self._run
        yield self._mark(run.real(run.faults_ended), top, bottom, "end", "load and faults end", left=True)
        if run.quiet is not None:
            yield self._mark(run.real(run.quiet), top, bottom, "quiet", "quiet", left=False)

    def _mark(self, second: float, top: float, bottom: float, colour: str, text: str, *, left: bool) -> str:
        x = self._x(second)
        line = f'x1="{x:.1f}" x2="{x:.1f}" y1="{top:.0f}" y2="{bottom:.0f}"'
        place = f'x="{x - 6 if left else x + 6:.1f}" y="{top + 12:.0f}" text-anchor="{"end" if left else "start"}"'
        return (
            f'<line class="mark" {line} stroke="var(--{colour})"/>'
            f'<text {place} style="fill: var(--{colour}); font-weight: 600">{text}</text>'
        )

    # --- What the colours mean

    def _of_sagas(self) -> list[tuple[str, str]]:
        return [(_COLOURS[one.example], f"{one.example}: {len(one.sagas):,}") for one in self._run.accounts]

    def _of_faults(self) -> list[tuple[str, str]]:
        faults = self._run.damage.faults
        killed = sum(count for kind, count in faults.items() if kind.startswith("kill"))
        return [("kills", f"process killed: {killed:,}"), ("faults", f"others: {sum(faults.values()) - killed:,}")]

    def _of_stops(self) -> list[tuple[str, str]]:
        stops = sum(self._run.damage.stops.values())
        recoveries = sum(saga.recoveries for one in self._run.accounts for saga in one.sagas)
        return [("stops", f"stopped or timed out: {stops:,}"), ("recoveries", f"recovered: {recoveries:,}")]


def histogram(one: Account) -> str:
    """Durations of an example's sagas, in the emulator's time, on a scale of doubling seconds."""
    edges = [0.5 * 2**n for n in range(13)]
    taken = [saga.ended - saga.began for saga in one.sagas if saga.ended is not None and saga.end is not End.PARKED]
    counts = [0] * len(edges)
    for seconds in taken:
        counts[max((n for n, edge in enumerate(edges) if seconds >= edge), default=0)] += 1
    most = max([*counts, 1])
    width, height, wide = 320, 84, 320 / len(edges)
    bars = "".join(
        f'<rect x="{n * wide + 1:.1f}" y="{60 - 52 * count / most:.1f}" width="{wide - 2:.1f}"'
        f' height="{52 * count / most:.1f}" fill="var(--{_COLOURS[one.example]})"><title>{count}</title></rect>'
        for n, count in enumerate(counts)
    )
    labels = "".join(
        f'<text class="dim" x="{n * wide:.1f}" y="76" style="font-size: 10px">{edge:g} s</text>'
        for n, edge in enumerate(edges)
        if n % 3 == 1
    )
    line = f'<line class="grid" x1="0" x2="{width}" y1="60.5" y2="60.5"/>'
    label = f"how long sagas of {one.example} took"
    return (
        f'<svg class="soak" viewBox="0 0 {width} {height}" role="img" aria-label="{escape(label)}"'
        f' xmlns="http://www.w3.org/2000/svg">{line}{bars}{labels}</svg>'
    )


def _round_up(value: float) -> float:
    """The next number whose half is a whole one, or close to it."""
    for step in (2, 4, 6, 8, 10, 12, 16, 20, 24, 30, 40, 50, 60, 80, 100, 120, 160, 200, 300, 400, 600, 1_000):
        if value <= step:
            return step
    return value
