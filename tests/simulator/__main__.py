"""``make simulate``: the examples, and sagas that are drawn; build/simulation-report.json holds the findings."""

from __future__ import annotations

import argparse
import json
import os
import re
import secrets
import subprocess
import sys
from pathlib import Path
from typing import Any, Final

from constructs_lib.testing.simulator import SimulationReport

from .campaign import SHARES, Campaign, shares, unproven
from .drawn.shrink import Setting, shrunk, suspects

ROOT: Final = Path(__file__).parents[2]
REPORT: Final = ROOT / "build" / "simulation-report.json"
LEDGER: Final = ROOT / "docs" / "explanation" / "simulation.md"
SEEDS: Final = 1_000_000
_WIDTH: Final = 30
_ROW: Final = re.compile(r"^\| [^|]+ \| [0-9]+ \| ([0-9,]+) \|", re.MULTILINE)
_TOTAL: Final = re.compile(r"Together: [0-9,]+ sagas in [0-9,]+ runs\.")


def main() -> int:
    """Simulate; the exit status is 1 if a run found something, or if nothing was tried."""
    options = _options()
    # As in tests/conftest.py: stacks are simulated here; that their templates are valid is tested elsewhere.
    os.environ.setdefault("CDK_VALIDATION", "false")
    campaign = Campaign(wanted=shares(options.sagas, options.examples), seed=options.seed, go_on=options.go_on)
    sys.stderr.write(f"make simulate SAGAS={options.sagas} SEED={options.seed} repeats this\n")
    campaign.run(options.workers, lambda: _show(campaign))
    sys.stderr.write("\n")
    for name, report in campaign.reports.items():
        sys.stdout.write(f"{name}: {report}\n")
    _shrink(campaign)
    _write(campaign)
    total = _total(campaign)
    untried = unproven(campaign.reports)
    sys.stdout.writelines(f"{sentence}\n" for sentence in untried)
    if options.record and not campaign.broken and not untried:
        _record(total)
    sys.stdout.write(
        f"{total['sagas']:,} sagas from seed {campaign.seed}: {total['faults']:,} faults, {total['parked']} parked, "
        f"{total['violated']} runs broke the promise, {campaign.seconds:.0f} s\n"
    )
    return 1 if campaign.broken or untried else 0


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="make simulate", description=__doc__)
    parser.add_argument("--sagas", type=int, default=2_000, help="how many, over all examples and what is drawn")
    parser.add_argument(
        "--seed",
        type=int,
        default=secrets.randbelow(SEEDS),
        help="of what is drawn, and of the first run; each further run has the next one; random by default",
    )
    parser.add_argument("--workers", type=int, default=os.cpu_count() or 1, help="processes at once; one per processor")
    parser.add_argument("--go-on", action="store_true", help="do not end with the first finding")
    parser.add_argument("--record", action="store_true", help=f"add a row to the ledger in {LEDGER.relative_to(ROOT)}")
    parser.add_argument("--examples", nargs="+", choices=sorted(SHARES), default=[*SHARES])
    options = parser.parse_args()
    for name in ("sagas", "workers"):
        if getattr(options, name) < 1:
            parser.error(f"--{name} must be 1 or more, got {getattr(options, name)}")
    return options


def _show(campaign: Campaign) -> None:
    """Write progress over the former line; without a terminal, a line for each tenth."""
    done, wanted = sum(report.sagas for report in campaign.reports.values()), sum(campaign.wanted.values())
    share = min(1.0, done / wanted)
    if not sys.stderr.isatty():
        if int(share * 10) > campaign.tenths:
            campaign.tenths = int(share * 10)
            sys.stderr.write(f"[{share:4.0%}] {done:,} sagas, {done / campaign.seconds:.0f}/s\n")
        return
    reached = [report.coverage for report in campaign.reports.values()]
    sys.stderr.write(
        f"\r[{'#' * round(share * _WIDTH):<{_WIDTH}}] {done:,}/{wanted:,} sagas, {done / campaign.seconds:.0f}/s, "
        f"{_total(campaign)['faults']:,} faults; {sum(len(one.states) for one in reached)}/"
        f"{sum(len(one.known_states) for one in reached)} states, {sum(len(one.transitions) for one in reached)} "
        f"transitions, {sum(len(one.faults) for one in reached)} pairs of call and fault; "
        f"{len(campaign.broken)} broken "
    )
    sys.stderr.flush()


def _shrink(campaign: Campaign) -> None:
    """Print a smaller saga and a shorter schedule of the first run that broke its promise."""
    for block, report in campaign.broken[:1]:
        run = report.violated[0]
        for number in suspects(run) if block.drawn else ():
            release = block.releases[number] if block.releases else None
            setting = Setting(machines=block.machines, shift=block.shift)
            failure = shrunk(block.drawn[number], run.seed, run.sagas, setting=setting, release=release)
            if failure is not None:
                break
        else:
            failure = block.shortened(run)
        replaced = f"a release has {block.machines}\n" if block.machines is not None else ""
        moved = f"releases move aliases: {block.shift}\n" if block.shift is not None else ""
        sys.stdout.write(f"the same, smaller:\n{replaced}{moved}{failure}\n")


def _total(campaign: Campaign) -> dict[str, Any]:
    every = list(campaign.reports.values())
    return {
        "sagas": sum(report.sagas for report in every),
        "seed": campaign.seed,
        "faults": sum(report.faults for report in every),
        "parked": sum(report.parked for report in every),
        "violated": sum(len(report.violated) for report in every),
        "seconds": round(campaign.seconds, 1),
        "processor_seconds": round(sum(report.seconds for report in every), 1),
    }


def _write(campaign: Campaign) -> None:
    """Write totals, and the report of each example."""
    document = {
        **_total(campaign),
        "commit": _commit(),
        "coverage": {name: report.coverage.as_json() for name, report in campaign.reports.items()},
        "examples": {name: _without_coverage(report) for name, report in campaign.reports.items()},
    }
    REPORT.parent.mkdir(exist_ok=True)
    REPORT.write_text(json.dumps(document, indent=1) + "\n", encoding="utf-8")


def _without_coverage(report: SimulationReport) -> dict[str, Any]:
    return {name: value for name, value in report.as_json().items() if name != "coverage"}


def _commit() -> str:
    """Name the commit that was simulated, with ``+`` if files differ from it."""

    def git(*command: str) -> str:
        return subprocess.run(["git", *command], cwd=ROOT, capture_output=True, text=True, check=False).stdout.strip()

    sources = ("constructs_lib", "lambda_src", "examples", "tests/simulator")
    return git("rev-parse", "--short=12", "HEAD") + ("+" if git("status", "--porcelain", *sources) else "")


def _record(total: dict[str, Any]) -> None:
    """Add a row to the ledger, which ends its page, and to its total."""
    row = (
        f"| `{_commit()}` | {total['seed']} | {total['sagas']:,} | {total['faults']:,} | {total['parked']} "
        f"| {total['violated']} | {total['processor_seconds']:,.0f} |"
    )
    LEDGER.write_text(with_total(LEDGER.read_text(encoding="utf-8") + row + "\n"), encoding="utf-8")


def with_total(page: str) -> str:
    """The page with the total of its ledger."""
    sagas = [int(count.replace(",", "")) for count in _ROW.findall(page)]
    return _TOTAL.sub(f"Together: {sum(sagas):,} sagas in {len(sagas):,} runs.", page)


if __name__ == "__main__":
    sys.exit(main())
