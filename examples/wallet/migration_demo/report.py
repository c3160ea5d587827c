"""The report: ``build/migration-report.json``, and a page with the picture."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator
from html import escape
from pathlib import Path
from typing import Any, Final

from examples.wallet.functions.wallet.split.layout import LAYOUT

from .picture import colour_of, timeline
from .run import Result
from .world import Fate

JSON: Final = "migration-report.json"
PAGE: Final = "migration-report.html"
_CSS: Final = """
  :root { color-scheme: light dark; }
  body { font: 15px/1.5 system-ui, sans-serif; margin: 2rem auto; max-width: 1160px; padding: 0 1rem; color: #1f2328;
    background: #fff; }
  h1 { margin: 0 0 .2rem; font-size: 1.6rem; } h2 { margin: 2.2rem 0 .6rem; font-size: 1.15rem; }
  .verdict { font-weight: 600; } .holds { color: #1a7f37; } .broken { color: #cf222e; }
  .tiles { display: grid; grid-template-columns: repeat(auto-fit, minmax(8.5rem, 1fr)); gap: .8rem;
    margin: 1.2rem 0 1.6rem; }
  .tile { border: 1px solid #d8dee4; border-radius: 8px; padding: .6rem 1rem; }
  .tile b { display: block; font-size: 1.5rem; font-variant-numeric: tabular-nums; } .tile span { color: #59636e; }
  table { border-collapse: collapse; width: 100%; font-variant-numeric: tabular-nums; }
  th, td { text-align: left; padding: .3rem .7rem; border-bottom: 1px solid #d8dee4; vertical-align: top; }
  td.n, th.n { text-align: right; } .chip { display: inline-block; width: .8rem; height: .8rem; border-radius: 3px;
    margin-right: .5rem; vertical-align: -1px; } .dim { color: #59636e; }
  .wide { overflow-x: auto; } svg { width: 100%; min-width: 1000px; height: auto; }
  .legacy { background: #9aa4af; } .ready { background: #6e7781; } .expand { background: #2a78d6; }
  .migrate { background: #1a9c6b; } .contract { background: #d9890b; } .removed { background: #8250df; }
  @media (prefers-color-scheme: dark) {
    body { color: #e6edf3; background: #0d1117; } .tile, th, td { border-color: #30363d; }
    .tile span, .dim { color: #9198a1; } .holds { color: #3fb950; } .broken { color: #ff7b72; }
  }
"""


def write(result: Result, folder: Path, *, seed: int) -> tuple[Path, Path]:
    """Write both files, and return their paths."""
    folder.mkdir(parents=True, exist_ok=True)
    json_file, page = folder / JSON, folder / PAGE
    json_file.write_text(json.dumps(document(result, seed=seed), indent=2) + "\n", encoding="utf-8")
    page.write_text(html(result, seed=seed), encoding="utf-8")
    return json_file, page


def document(result: Result, *, seed: int) -> dict[str, Any]:
    """The report as JSON values."""
    outcomes = result.outcomes
    return {
        "phases": [
            {
                "phase": visit.phase,
                "seconds": round(visit.seconds, 1),
                "requests": visit.requests,
                "waited_for": visit.waited_for,
            }
            for visit in result.timeline.visits
        ],
        "requests": sum(outcomes.requests.values()),
        "requests_by_kind": dict(outcomes.requests),
        "reads": outcomes.reads,
        "refused_by_migration": len(outcomes.refused),
        "unavailable": outcomes.unavailable,
        "lost": outcomes.lost,
        "refused_in_every_release": outcomes.wanted_refusals,
        "crashes": sum(n for (_, _, fate), n in result.chaos.struck.items() if fate is not Fate.LOST),
        "lost_responses": sum(n for (_, _, fate), n in result.chaos.struck.items() if fate is Fate.LOST),
        "invariants": {
            name: {"checked": one.checked, "violated": one.violated, "examples": one.examples}
            for name, one in result.checks.invariants.items()
        },
        "ended": result.ended,
        "holds": result.holds,
        "seed": seed,
        "virtual_seconds": round(result.virtual_seconds, 1),
        "seconds": round(result.seconds, 1),
    }


def html(result: Result, *, seed: int) -> str:
    """The page."""
    known = document(result, seed=seed)
    verdict = (
        '<p class="verdict holds">Every invariant held, no request was refused by the migration, none was lost.</p>'
        if result.holds
        else '<p class="verdict broken">Something is wrong: see the tables.</p>'
    )
    checked = sum(one.checked for one in result.checks.invariants.values())
    tiles = [
        (f"{known['requests']:,}", "requests"),
        (str(known["refused_by_migration"]), "refused by the migration"),
        (str(known["lost"]), "lost"),
        (f"{known['crashes']:,}", "crashes at AWS calls"),
        (f"{known['lost_responses']:,}", "lost responses"),
        (f"{checked:,}", "checks"),
        (str(len(result.timeline.visits)), "phases passed through"),
    ]
    shown = "".join(f"<div class=tile><b>{number}</b><span>{what}</span></div>" for number, what in tiles)
    return (
        "<!doctype html><html lang='en'><head><meta charset='utf-8'><title>Migration under load</title>"
        "<meta name='viewport' content='width=device-width, initial-scale=1'>"
        f"<style>{_CSS}</style></head><body><h1>One record becomes six items while payments run</h1>{verdict}"
        f'<div class="tiles">{shown}</div>'
        f'<div class="wide">{timeline(result)}</div>'
        "<h2>Invariants</h2>"
        f"{_table(('condition', 'checked', 'violated'), _invariants(result), numbers=(1, 2))}"
        "<h2>Phases</h2>"
        f"{_table(('phase', '', 'times', 'seconds', 'requests', 'longest gate'), _phases(result), numbers=(2, 3, 4))}"
        "<h2>Crashes</h2><p class='dim'>Each process dies before or after a call, or dies while the call travels and "
        "arrives up to 2 seconds later, or loses the response.</p>"
        f"{_table(('process', 'call', *(fate.value for fate in Fate)), _crashes(result), numbers=(2, 3, 4, 5))}"
        "<h2>What is real here</h2><p>Real: the operations, <code>saga_runtime</code> with its migration kit and "
        "worker, the gates of <code>cdk-sagas migrate</code>, and every expression. Simulated: DynamoDB "
        "itself (the simulator's, which is compared with moto in tests; transactions hold their items, and conflict), "
        "the network, processes and time. Two backfills, one comparison, one copy of histories and three readers run "
        "at all times. Gates wait for seconds instead of days.</p>"
        f"<p class='dim'>Seed {seed}; {known['virtual_seconds']:.0f} virtual seconds in {known['seconds']:.0f} s; "
        f"{result.calls:,} calls to DynamoDB; {result.rows:,} rows of history.</p></body></html>\n"
    )


def _invariants(result: Result) -> Iterator[tuple[str, ...]]:
    for name, one in result.checks.invariants.items():
        yield escape(name), f"{one.checked:,}", f"<b>{one.violated:,}</b>"


def _phases(result: Result) -> Iterator[tuple[str, ...]]:
    for phase in range(LAYOUT.last + 1):
        visits = [visit for visit in result.timeline.visits if visit.phase == phase]
        if visits:
            longest = max(visits, key=lambda visit: visit.seconds).waited_for
            yield (
                f'<span class="chip {colour_of(phase)}"></span>{phase}',
                escape(LAYOUT.describe(phase)),
                str(len(visits)),
                f"{sum(visit.seconds for visit in visits):.0f}",
                f"{sum(visit.requests for visit in visits):,}",
                f'<span class="dim">{escape(longest.partition(";")[0])}</span>',
            )


def _crashes(result: Result) -> Iterator[tuple[str, ...]]:
    struck: Counter[tuple[str, str, Fate]] = result.chaos.struck
    for actor, call in sorted({(actor, call) for actor, call, _ in struck}):
        yield actor, call, *(f"{struck[actor, call, fate]:,}" for fate in Fate)


def _table(head: tuple[str, ...], rows: Iterator[tuple[str, ...]], *, numbers: tuple[int, ...]) -> str:
    def cells(kind: str, values: tuple[str, ...]) -> str:
        return "".join(
            f"<{kind}{' class=n' if index in numbers else ''}>{value}</{kind}>" for index, value in enumerate(values)
        )

    body = "".join(f"<tr>{cells('td', row)}</tr>" for row in rows)
    return f'<div class="wide"><table><tr>{cells("th", head)}</tr>{body}</table></div>'
