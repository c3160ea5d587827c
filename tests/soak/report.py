"""Reports of a soak: numbers as JSON, and a page for readers."""

from __future__ import annotations

import json
import os
import platform
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from html import escape
from pathlib import Path
from typing import Any, Final

from .account import Account, End
from .picture import Timeline, histogram
from .run import Run, totals

FOLDER: Final = Path(__file__).resolve().parents[2] / "build"
_PARTS: Final = (50, 90, 99)
_MOST_CALLS: Final = 30
_PAGE: Final = """
:root { color-scheme: light dark; --ink: #1f2328; --dim: #59636e; --grid: #d8dee4; --page: #ffffff; --soft: #f6f8fa;
  --good: #1a7f37; --bad: #cf222e; }
@media (prefers-color-scheme: dark) { :root { --ink: #e6edf3; --dim: #9198a1; --grid: #30363d; --page: #0d1117;
  --soft: #151b23; --good: #3fb950; --bad: #ff7b72; } }
body { font: 15px/1.5 system-ui, sans-serif; color: var(--ink); background: var(--page); margin: 0 auto;
  max-width: 1140px; padding: 24px 20px 64px; }
h1 { font-size: 24px; margin: 0 0 4px; } h2 { font-size: 18px; margin: 36px 0 8px; }
p { margin: 6px 0; } .dim { color: var(--dim); } code { background: var(--soft); padding: 1px 5px; border-radius: 4px; }
.verdict { font-weight: 600; font-size: 17px; } .good { color: var(--good); } .bad { color: var(--bad); }
.wide { overflow-x: auto; } table { border-collapse: collapse; font-variant-numeric: tabular-nums; }
th, td { padding: 4px 12px 4px 0; text-align: right; border-bottom: 1px solid var(--grid); white-space: nowrap; }
th { white-space: normal; vertical-align: bottom; }
th { font-weight: 600; color: var(--dim); } th:first-child, td:first-child { text-align: left; }
.columns { display: grid; grid-template-columns: repeat(auto-fit, minmax(250px, 1fr)); gap: 12px 32px; }
.row { display: flex; flex-wrap: wrap; gap: 12px 64px; align-items: flex-start; margin-top: 12px; }
.row > div { max-width: 100%; } th:first-child, td:first-child { position: sticky; left: 0; background: var(--page); }
@media (max-width: 600px) { td:first-child { white-space: normal; overflow-wrap: anywhere; min-width: 8em; } }
.soak { width: 100%; height: auto; } .picture .soak { min-width: 1000px; }
ul { padding-left: 20px; } li { overflow-wrap: anywhere; }
"""


def write(run: Run, folder: Path = FOLDER) -> tuple[Path, Path]:
    """Write both, and return where they are."""
    folder.mkdir(exist_ok=True)
    numbers, page = folder / "soak-report.json", folder / "soak-report.html"
    numbers.write_text(json.dumps(as_json(run), indent=2) + "\n", "utf-8")
    page.write_text(as_html(run), "utf-8")
    return page, numbers


# --- Numbers


def as_json(run: Run) -> dict[str, Any]:
    """Everything as numbers."""
    settings, damage = run.settings, run.damage
    return {
        "seed": settings.seed,
        "passed": not run.problems(),
        "problems": run.problems(),
        "settings": {
            "seconds": settings.seconds,
            "speed": settings.speed,
            "clients": dict(settings.clients),
            "processes_per_function": settings.concurrency,
            "share_of_calls": settings.share,
            "share_of_states": settings.stops,
        },
        "machine": {"processors": os.cpu_count(), "python": platform.python_version()},
        "seconds": {
            "load_and_faults": round(run.real(run.faults_ended), 1),
            "until_quiet": None if run.quiet is None else round(run.real(run.quiet) - run.real(run.faults_ended), 1),
            "everything": round(run.real_seconds, 1),
        },
        "sagas": dict(totals(run.accounts)),
        "examples": {one.example: _example(one, run) for one in run.accounts},
        "calls": dict(damage.calls),
        "faults": {
            "share": round(damage.share, 4),
            "by_kind": dict(damage.faults),
            "by_call": dict(by_call(run).most_common()),
            "executions_ended": dict(damage.stops),
            "at_providers": {kind: dict(counts) for kind, counts in damage.troubles.items()},
            "status_events_lost_of_sagas_that_begin_with": damage.suppressed,
        },
        "decisions_by_people": run.decisions,
        "wallet_requests": run.wallet_requests,
        "migration": dict(zip(("points", "changes of the phase"), run.migration_requests, strict=True)),
    }


def _example(one: Account, run: Run) -> dict[str, Any]:
    return {
        "asked": one.asked,
        "started": len(one.sagas),
        "ends": {end: one.ends()[end] for end in End},
        "errors": dict(Counter(saga.error for saga in one.sagas if saga.error is not None).most_common()),
        "parked": [
            {"saga_id": s.saga_id, "stuck": s.stuck, "decidable": s.decidable} for s in one.sagas if s.end is End.PARKED
        ],
        "recovered": one.recovered(),
        "recoveries_per_saga": {str(n): count for n, count in sorted(per_saga(one).items())},
        "recoveries_after": dict(one.causes()),
        "recoveries_by": by_source(one),
        "executions_for_late_effects": sum(saga.late for saga in one.sagas),
        "reconciler": {
            "looks": one.reconciled.looks,
            "status_events": one.reconciled.events,
            "killed": one.reconciled.killed,
        },
        "seconds_to_end": {
            "emulated": percentiles(seconds_of(one)),
            "real": percentiles([seconds / run.settings.speed for seconds in seconds_of(one)]),
        },
        "clients": {"answered": one.books.answered, "never_answered": one.books.unanswered},
        "operators_told": dict(one.books.operators),
        "dead_letters": dict(one.books.dead_letters),
        "invariants": {i.name: {"checked": i.checked, "violations": list(i.violations)} for i in one.books.invariants},
    }


def by_source(one: Account) -> dict[str, int]:
    """Recoveries by trigger. A reconciler that was killed had no time to report its work."""
    found = one.reconciled
    recoveries = sum(saga.recoveries for saga in one.sagas)
    return {
        "status event": found.by_event,
        "schedule": found.by_schedule,
        "a reconciler that was killed": max(0, recoveries - found.by_event - found.by_schedule),
        "schedule: never started, and started": found.started,
    }


def per_saga(one: Account) -> Counter[int]:
    """Number of sagas by number of recoveries."""
    return Counter(saga.recoveries for saga in one.sagas)


def seconds_of(one: Account) -> list[float]:
    """Duration of each saga, in the emulator's time; in ascending order."""
    return sorted(saga.ended - saga.began for saga in one.sagas if saga.ended is not None)


def percentiles(values: Sequence[float]) -> dict[str, float]:
    """Percentiles of values in ascending order."""
    if not values:
        return {}
    found = {f"p{part}": values[min(len(values) - 1, len(values) * part // 100)] for part in _PARTS}
    return {name: round(value, 1) for name, value in {**found, "longest": values[-1]}.items()}


def by_call(run: Run) -> Counter[str]:
    """Faults by call; those of state machines apart, and where executions were ended as one."""
    found: Counter[str] = Counter()
    for hit in run.damage.hits:
        if hit.kind not in run.damage.stops:
            found[f"{hit.call}{' (state machine)' if hit.caller.startswith('states:') else ''}"] += 1
    return found


# --- The page


def as_html(run: Run) -> str:
    """A page that needs nothing else."""
    return "\n".join(
        [
            "<!doctype html>",
            '<html lang="en"><head><meta charset="utf-8"><title>Soak report</title>',
            '<meta name="viewport" content="width=device-width, initial-scale=1">',
            f"<style>{_PAGE}</style></head><body>",
            *_head(run),
            f'<div class="wide picture">{Timeline(run).svg()}</div>',
            *_sagas(run),
            *_recoveries(run),
            *_times(run),
            *_faults(run),
            *_parked(run),
            *_invariants(run),
            "</body></html>",
            "",
        ]
    )


def _head(run: Run) -> Iterator[str]:
    problems, settings = run.problems(), run.settings
    sagas = sum(totals(run.accounts).values())
    yield "<h1>Soak report</h1>"
    yield (
        f'<p class="dim">{sagas:,} sagas of four examples in one local AWS, {run.real(run.faults_ended):.0f} s of load '
        f"and faults, {os.cpu_count()} processors. "
        f"<code>make soak SEED={settings.seed} SECONDS={settings.seconds:g}</code> sends the same requests "
        "and, call by call, lets the same go wrong; how they interleave is the machine's.</p>"
    )
    if problems:
        things = "1 thing" if len(problems) == 1 else f"{len(problems)} things"
        yield f'<p class="verdict bad">Failed: {things} must not be.</p><ul>'
        yield from (f"<li>{escape(problem)}</li>" for problem in problems[:50])
        yield "</ul>"
        return
    assert run.quiet is not None
    parked = totals(run.accounts)[End.PARKED]
    told = "nothing is parked" if not parked else f"{parked} are parked that no machine can decide"
    seconds = run.real(run.quiet) - run.real(run.faults_ended)
    yield (
        f'<p class="verdict good">Passed: quiet {seconds:.0f} s after the last fault; nothing is in flight, {told}, '
        "all books are equal.</p>"
    )


def _sagas(run: Run) -> Iterator[str]:
    yield "<h2>Outcomes of the sagas</h2>"
    head = ["", "asked", "started", *End, "recovered", "recoveries"]
    rows: list[Sequence[object]] = []
    for one in run.accounts:
        ends = one.ends()
        total = sum(saga.recoveries for saga in one.sagas)
        rows.append([one.example, one.asked, len(one.sagas), *(ends[end] for end in End), one.recovered(), total])
    rows.append(["all", *(sum(int(str(row[n])) for row in rows) for n in range(1, len(head)))])
    yield table(head, rows)
    yield (
        '<p class="dim">Asked is more than started where a client\'s request never arrived and it never came back; and '
        "where two clients asked for one payout.</p>"
    )
    yield "<h2>Why sagas were compensated</h2>"
    errors = sorted({saga.error for one in run.accounts for saga in one.sagas if saga.error is not None})
    counted = [Counter(saga.error for saga in one.sagas) for one in run.accounts]
    rows = [[error, *(counts[error] or "" for counts in counted)] for error in errors]
    yield table(["error", *(one.example for one in run.accounts)], rows)


def _recoveries(run: Run) -> Iterator[str]:
    yield "<h2>Recoveries</h2>"
    head = ["", *(one.example for one in run.accounts)]
    sources = [by_source(one) for one in run.accounts]
    rows: list[Sequence[object]] = [[f"found by {name}", *(each[name] for each in sources)] for name in sources[0]]
    causes = [one.causes() for one in run.accounts]
    named = sorted({cause for each in causes for cause in each})
    rows += [[f"after {cause.lower().replace('_', ' ')}", *(each[cause] for each in causes)] for cause in named]
    rows.append(["for effects that came late", *(sum(s.late for s in one.sagas) for one in run.accounts)])
    yield table(head, rows)
    yield "<p></p>"
    counted = [per_saga(one) for one in run.accounts]
    most = max(n for each in counted for n in each)
    rows = [[n, *(each[n] or "" for each in counted)] for n in range(most + 1)]
    yield table(["recoveries of one saga", *head[1:]], rows)


def _times(run: Run) -> Iterator[str]:
    yield "<h2>How long sagas took</h2>"
    names = [*(f"p{part}" for part in _PARTS), "longest"]
    rows = []
    for one in run.accounts:
        found = percentiles(seconds_of(one))
        real = percentiles([seconds / run.settings.speed for seconds in seconds_of(one)])
        rows.append([one.example, *(f"{found.get(name, 0):,.1f} s" for name in names), f"{real.get('p50', 0):.1f} s"])
    yield table(["in the emulator's time", *names, "p50, real"], rows)
    yield "<div class='columns'>"
    for one in run.accounts:
        yield f"<div><p class='dim'>{one.example}</p>{histogram(one)}</div>"
    yield "</div>"


def _faults(run: Run) -> Iterator[str]:
    damage = run.damage
    calls = sum(damage.calls.values())
    yield "<h2>What went wrong</h2>"
    yield (
        f"<p>{sum(damage.faults.values()):,} of {calls:,} AWS calls failed: {damage.share:.1%} "
        f"({damage.calls['functions']:,} calls by functions, {damage.calls['state machines']:,} by state machines). "
        f"{sum(damage.stops.values())} executions were ended. Status events were lost of every saga whose id begins "
        f"with one of <code>{' '.join(damage.suppressed)}</code>, and came twice of the others.</p>"
    )
    yield "<div class='row'><div>"
    yield table(["fault", "calls"], [*damage.faults.items(), *((f"execution {k}", n) for k, n in damage.stops.items())])
    yield "</div><div>"
    yield table(["call", "faults"], by_call(run).most_common(_MOST_CALLS))
    yield "</div><div>"
    names = sorted({name for counts in damage.troubles.values() for name in counts})
    rows = [[name, *(counts.get(name, "") for counts in damage.troubles.values())] for name in names]
    yield table(["at providers", *damage.troubles], rows)
    yield "</div></div>"


def _parked(run: Run) -> Iterator[str]:
    found = [(one, saga) for one in run.accounts for saga in one.sagas if saga.end is End.PARKED]
    if not found:
        return
    yield "<h2>Parked</h2>"
    rows = [
        [saga.saga_id, one.example, *(str((saga.stuck or {}).get(key, "")) for key in ("step", "error", "detail")),
         saga.decidable or "no machine can decide it"]
        for one, saga in found
    ]  # fmt: skip
    yield table(["saga", "example", "step", "error", "detail", "could it be decided?"], rows)


def _invariants(run: Run) -> Iterator[str]:
    yield "<h2>What was audited</h2>"
    names = list(dict.fromkeys(i.name for one in run.accounts for i in one.books.invariants))
    checked: list[Counter[str]] = [Counter() for _ in run.accounts]
    broken: Counter[str] = Counter()
    for counts, one in zip(checked, run.accounts, strict=True):
        for invariant in one.books.invariants:
            counts[invariant.name] += invariant.checked
            broken[invariant.name] += len(invariant.violations)
    rows = [[name, *(counts[name] or "" for counts in checked), broken[name] or "holds"] for name in names]
    answered = [f"{one.books.answered}" for one in run.accounts]
    rows.append(
        ["clients who waited heard one answer", *answered, sum(one.books.unanswered for one in run.accounts) or "holds"]
    )
    yield table(["checked", *(one.example for one in run.accounts), "broken"], rows)
    yield "<h2>Operator queue, and undelivered messages</h2>"
    told = [(one.example, what, n) for one in run.accounts for what, n in one.books.operators.items()]
    dead = [(one.example, path, n) for one in run.accounts for path, n in one.books.dead_letters.items()]
    yield table(["example", "what", "messages"], [*told, *dead]) if told or dead else '<p class="dim">Nothing.</p>'


def table(head: Iterable[object], rows: Iterable[Sequence[object]]) -> str:
    """A table."""
    top = "".join(f"<th>{escape(str(cell))}</th>" for cell in head)
    body = "".join("<tr>" + "".join(f"<td>{escape(_cell(cell))}</td>" for cell in row) + "</tr>" for row in rows)
    return f'<div class="wide"><table><thead><tr>{top}</tr></thead><tbody>{body}</tbody></table></div>'


def _cell(value: object) -> str:
    return f"{value:,}" if isinstance(value, int) else str(value)


def lines(run: Run) -> Mapping[str, str]:
    """Summary lines for a terminal."""
    ends, calls = totals(run.accounts), sum(run.damage.calls.values())
    return {
        "sagas": ", ".join(f"{count} {end}" for end, count in ends.items() if count),
        "faults": f"{sum(run.damage.faults.values())} ({run.damage.share:.1%} of {calls} calls)",
        "executions ended": ", ".join(f"{count} {how}" for how, count in run.damage.stops.items()),
        "recoveries": str(sum(saga.recoveries for one in run.accounts for saga in one.sagas)),
    }
