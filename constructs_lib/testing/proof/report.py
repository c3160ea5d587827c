"""Reports of a proof: a page for auditors, and the same as JSON."""

from __future__ import annotations

import importlib.metadata
import json
import platform
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime
from html import escape
from pathlib import Path
from typing import Any, Final

from constructs_lib.testing.proof.checks import Case, Check

_STYLE: Final = """
:root { color-scheme: light dark; --ink: #1f2328; --dim: #59636e; --line: #d8dee4; --page: #ffffff; --soft: #f6f8fa;
  --good: #1a7f37; --bad: #cf222e; }
@media (prefers-color-scheme: dark) { :root { --ink: #e6edf3; --dim: #9198a1; --line: #30363d; --page: #0d1117;
  --soft: #151b23; --good: #3fb950; --bad: #ff7b72; } }
body { font: 15px/1.5 system-ui, sans-serif; color: var(--ink); background: var(--page); margin: 0 auto;
  max-width: 1140px; padding: 24px 20px 64px; }
h1 { font-size: 24px; margin: 0 0 4px; } h2 { font-size: 18px; margin: 36px 0 4px; } h3 { font-size: 15px; }
p { margin: 6px 0; } .dim { color: var(--dim); } .verdict { font-weight: 600; font-size: 17px; }
.good { color: var(--good); } .bad { color: var(--bad); } .wide { overflow-x: auto; }
code { background: var(--soft); padding: 1px 5px; border-radius: 4px; overflow-wrap: anywhere; }
table { border-collapse: collapse; font-variant-numeric: tabular-nums; margin: 8px 0; }
th, td { padding: 4px 14px 4px 0; border-bottom: 1px solid var(--line); text-align: left; vertical-align: top; }
thead th { color: var(--dim); font-weight: 600; vertical-align: bottom; min-width: 4.5em; }
tbody th { font-weight: 400; } thead th.text { min-width: 8em; } td.mark, th.mark { text-align: center; }
td.n, th.n { text-align: right; padding-right: 28px; }
details { margin: 8px 0; } summary { cursor: pointer; } li { overflow-wrap: anywhere; }
"""


_UNSTATED: Final = "nothing was stated about what a request does"
_FILES: Final = ("proof.json", "proof.html")


def delete_report(folder: Path) -> None:
    """Delete the report that a folder has: a run that dies must not leave the one of a former run."""
    for name in _FILES:
        (folder / name).unlink(missing_ok=True)


def write_report(
    folder: Path,
    checks: Sequence[Check],
    *,
    layer: str,
    seeds: Sequence[int],
    title: str,
    ended_by: str | None,
    left_out: Sequence[str] = (),
) -> None:
    """Write ``proof.json`` and ``proof.html`` into a folder, which is made if it is missing.

    Args:
        folder: for both files.
        checks: those that were run.
        layer: in which they were run.
        seeds: of their requests.
        title: of the report.
        ended_by: the exception that ended the proof; None: it came to its end.
        left_out: what of the stack is not in the layer.
    """
    document = {
        "title": title,
        "layer": layer,
        "left_out": list(left_out),
        "seeds": list(seeds),
        "made_at": datetime.now(UTC).isoformat(timespec="seconds"),
        "cdk_sagas": importlib.metadata.version("cdk-sagas"),
        "python": platform.python_version(),
        "holds": ended_by is None and bool(checks) and all(check.holds for check in checks),
        "stated": bool(checks) and all(check.stated for check in checks),
        "ended_by": ended_by,
        "checks": [check.as_json() for check in checks],
    }
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "proof.json").write_text(json.dumps(document, indent=1) + "\n", encoding="utf-8")
    (folder / "proof.html").write_text("\n".join(_page(document, checks)) + "\n", encoding="utf-8")


def _page(document: dict[str, Any], checks: Sequence[Check]) -> Iterator[str]:
    title = f"Proof: {escape(document['title'])}"
    yield "<!doctype html>"
    yield f'<html lang="en"><head><meta charset="utf-8"><title>{title}</title>'
    yield '<meta name="viewport" content="width=device-width, initial-scale=1">'
    yield f"<style>{_STYLE}</style></head><body><h1>{title}</h1>"
    seeds = ", ".join(map(str, document["seeds"]))
    yield (
        f'<p class="dim">Run in {escape(document["layer"])} at {document["made_at"]}, cdk-sagas '
        f"{escape(document['cdk_sagas'])}, Python {document['python']}; seeds {seeds}. "
        "The same seeds repeat it.</p>"
    )
    yield _verdict(document["holds"], f"Every claim holds{_unless(document['stated'])}.", _not_holding(checks))
    if document["ended_by"] is not None:
        yield f'<p class="bad">The proof was ended by {escape(document["ended_by"])}</p>'
    if document["left_out"]:
        told = "".join(f"<li>{escape(text)}</li>" for text in document["left_out"])
        yield f"<p>Not in {escape(document['layer'])}; a case that needs one ends the proof:</p><ul>{told}</ul>"
    yield from _summary(checks)
    for check in checks:
        yield from _section(check)
    yield "</body></html>"


def _verdict(holds: bool, good: str, bad: str) -> str:
    return f'<p class="verdict {"good" if holds else "bad"}">{good if holds else bad}</p>'


def _unless(stated: bool) -> str:
    return "" if stated else f"; {_UNSTATED}"


def _not_holding(checks: Sequence[Check]) -> str:
    if not checks:
        return "Nothing was run."
    broken = any(check.broken or (check.finished and not check.holds) for check in checks)
    return "A claim does not hold." if broken else "The proof is not finished."


def _summary(checks: Sequence[Check]) -> Iterator[str]:
    yield '<div class="wide"><table><thead><tr><th>check</th><th class="n">cases enumerated</th>'
    yield '<th class="n">run</th><th class="n">faults that happened</th><th class="n">break the claim</th>'
    yield '<th class="n">seconds</th></tr></thead><tbody>'
    for check in checks:
        hit = sum(case.hit for case in check.cases if case.fault != "none")
        drawn = "" if not check.is_sample else " (drawn)" if check.draw is None else f" (drawn by {check.draw})"
        yield (
            f'<tr><th scope="row">{escape(check.name)}</th><td class="n">{check.enumerated:,}</td>'
            f'<td class="n">{len(check.cases):,}{drawn}</td><td class="n">{hit:,}</td>'
            f'<td class="n">{len(check.broken):,}</td><td class="n">{check.seconds:.1f}</td></tr>'
        )
    yield "</tbody></table></div>"


def _section(check: Check) -> Iterator[str]:
    yield f"<h2>{escape(check.name.capitalize())}</h2><p>{escape(check.claim)}</p>"
    otherwise = "Does not hold." if check.finished or check.broken else "Is not finished."
    yield _verdict(check.holds, f"Holds in every case{_unless(check.stated)}.", otherwise)
    if check.unproven:
        told = "".join(f'<li class="bad">{escape(text)}</li>' for text in check.unproven)
        yield f"<ul>{told}</ul>"
    if check.broken:
        yield "<ul>"
        for case in check.broken:
            told = "".join(f"<li>{escape(text)}</li>" for text in case.told)
            yield f'<li class="bad">{escape(str(case))}<ul>{told}</ul></li>'
        yield "</ul>"
    if check.invariants:
        yield f"<details><summary>{len(check.invariants)} invariants were audited after each case</summary>"
        yield '<div class="wide"><table><thead><tr><th>invariant</th><th class="n">things checked</th>'
        yield "</tr></thead><tbody>"
        for name, checked in sorted(check.invariants.items()):
            yield f'<tr><th scope="row">{escape(name)}</th><td class="n">{checked:,}</td></tr>'
        yield "</tbody></table></div></details>"
    # In a sample each call has other faults: there is nothing to compare in columns.
    compared = [] if check.is_sample else [case for case in check.cases if case.caller]
    for seed in dict.fromkeys(case.seed for case in compared):
        yield from _matrix(seed, [case for case in compared if case.seed == seed])
    others = [case for case in check.cases if check.is_sample or not case.caller]
    if check.is_sample:
        others.sort(key=lambda case: (case.seed, case.caller, case.call, case.nth, case.fault))
    if others:
        yield '<div class="wide"><table><thead><tr><th>seed</th><th class="text">what happened</th>'
        yield '<th class="n">status of the response</th><th class="mark">holds</th></tr></thead><tbody>'
        for case in others:
            yield (
                f'<tr><th scope="row">{case.seed}</th><td>{escape(_what(case))}</td>'
                f'<td class="n">{_or(case.status)}</td><td class="mark">{_mark(case)}</td></tr>'
            )
        yield "</tbody></table></div>"


def _what(case: Case) -> str:
    if case.caller:
        return f"{case.caller} {case.call} #{case.nth}: {case.fault}"
    if case.call:
        return f"{case.call}: {case.fault} faults"
    return "nothing went wrong" if case.fault == "none" else case.fault


def _matrix(seed: int, cases: Sequence[Case]) -> Iterator[str]:
    """Calls by faults: a table for each set of faults that calls have."""
    rows: dict[tuple[str, str, int], dict[str, Case]] = {}
    for case in cases:
        rows.setdefault((case.caller, case.call, case.nth), {})[case.fault] = case
    kinds: dict[tuple[str, ...], list[tuple[str, str, int]]] = {}
    for row, found in rows.items():
        kinds.setdefault(tuple(found), []).append(row)
    yield f"<h3>Seed {seed}: {len(rows):,} calls and states, {len(cases):,} cases</h3>"
    for faults, of_kind in kinds.items():
        yield '<div class="wide"><table><thead><tr><th class="text">caller</th><th class="text">call or state</th>'
        yield "".join(f'<th class="mark">{escape(fault)}</th>' for fault in faults) + "</tr></thead><tbody>"
        for caller, call, nth in of_kind:
            marks = "".join(
                f'<td class="mark" title="status {_or(rows[caller, call, nth][fault].status)}">'
                f"{_mark(rows[caller, call, nth][fault])}</td>"
                for fault in faults
            )
            yield f'<tr><th scope="row">{escape(caller)}</th><td>{escape(call)} #{nth}</td>{marks}</tr>'
        yield "</tbody></table></div>"


def _mark(case: Case) -> str:
    if case.holds and not case.made:
        return "not made"
    if case.holds:
        return '<span class="good">holds</span>'
    return f'<span class="bad">{"breaks" if case.hit else "did not happen"}</span>'


def _or(status: int | None) -> str:
    return "" if status is None else str(status)
