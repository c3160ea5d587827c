"""``make simulate``: the examples, and sagas that are drawn; build/simulation-report.json says what was found."""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path
from typing import Final

from constructs_lib.testing.simulator import Deployment, SimulationReport, simulate

from .drawn.assembly import drawn_assembly
from .drawn.sagas import drawn_saga
from .drawn.shrink import shrunk, suspects
from .drawn.workload import Drawn
from .examples import EXAMPLES, assembly

REPORT: Final = Path("build/simulation-report.json")
DRAWN: Final = "drawn"
DRAWN_SAGAS: Final = 8
"""Sagas of the stack that is drawn: the CDK takes a second for each."""
_WIDTH: Final = 30


def main() -> int:
    """Simulate; the exit status is 1 if something was found."""
    options = _options()
    reports: dict[str, SimulationReport] = {}
    for name in options.examples:
        drawn = [drawn_saga(options.seed + number) for number in range(DRAWN_SAGAS)] if name == DRAWN else []
        with Deployment.of_assembly(drawn_assembly(drawn) if drawn else assembly(name)) as deployment:
            wanted = max(1, options.sagas // len(options.examples))

            def show(report: SimulationReport, name: str = name, wanted: int = wanted) -> None:
                _show(name, report, wanted)

            reports[name] = simulate(
                deployment,
                Drawn(drawn) if drawn else EXAMPLES[name].workload(),
                sagas=wanted,
                seed=options.seed,
                stop_at_first=not options.go_on,
                progress=show,
            )
        sys.stderr.write("\n")
        sys.stdout.write(f"{name}: {reports[name]}\n")
        if drawn and reports[name].violated:
            run = reports[name].violated[0]
            for saga in suspects(run, drawn):
                failure = shrunk(saga, run.seed, run.sagas)
                if failure is not None:
                    sys.stdout.write(f"the same, smaller:\n{failure}\n")
                    break
    _write(reports, options.seed)
    return 1 if any(report.violated for report in reports.values()) else 0


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="make simulate", description=__doc__)
    parser.add_argument("--sagas", type=int, default=2_000, help="how many, over all examples and what is drawn")
    parser.add_argument(
        "--seed", type=int, default=0, help="of what is drawn, and of the first run; each further run has the next one"
    )
    parser.add_argument("--go-on", action="store_true", help="do not end an example with its first finding")
    parser.add_argument("--examples", nargs="+", choices=sorted([*EXAMPLES, DRAWN]), default=[*EXAMPLES, DRAWN])
    options = parser.parse_args()
    if options.sagas < 1:
        parser.error(f"--sagas must be 1 or more, got {options.sagas}")
    return options


def _show(name: str, report: SimulationReport, wanted: int) -> None:
    """A line that tells how far it is, written over the former one."""
    done = min(1.0, report.sagas / wanted)
    bar = "#" * round(done * _WIDTH)
    rate = report.sagas / report.seconds if report.seconds else 0.0
    reached = report.coverage
    sys.stderr.write(
        f"\r{name:<18} [{bar:<{_WIDTH}}] {report.sagas}/{wanted} sagas, {rate:.0f}/s, {report.faults} faults, "
        f"{len(reached.states)}/{len(reached.known_states)} states, {len(report.violated)} broken "
    )
    sys.stderr.flush()


def _write(reports: dict[str, SimulationReport], seed: int) -> None:
    """Totals, and each example's report."""
    every = list(reports.values())
    document = {
        "sagas": sum(report.sagas for report in every),
        "seed": seed,
        "faults": sum(report.faults for report in every),
        "parked": sum(report.parked for report in every),
        "violated": sum(len(report.violated) for report in every),
        "seconds": round(sum(report.seconds for report in every), 1),
        "coverage": {name: report.coverage.as_json() for name, report in reports.items()},
        "examples": {name: report.as_json() | {"coverage": None} for name, report in reports.items()},
    }
    REPORT.parent.mkdir(exist_ok=True)
    REPORT.write_text(json.dumps(document, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    sys.exit(main())
