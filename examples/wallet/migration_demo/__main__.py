"""``python -m examples.wallet.migration_demo``: split a wallet while payments run, and prove it."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from constructs_lib.cli.migrate import bar
from examples.wallet.functions.wallet.split.layout import LAYOUT

from .conductor import Conductor
from .report import write
from .run import Result, run

BUILD: Final = Path("build")


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the demo and return its exit status: 0 if every invariant holds and every request was served."""
    parser = argparse.ArgumentParser(prog="migration-demo", description=__doc__)
    parser.add_argument("--seed", type=int, default=1, help="repeats a run (1)")
    options = parser.parse_args(arguments)
    _say("A wallet of 40 records, 8 requests a second, two backfills; every AWS call may be the last one.\n\n")
    result = run(seed=options.seed, watch=_show)
    _say(f"\n\n{summary(result)}\n")
    for path in write(result, BUILD, seed=options.seed):
        _say(f"{path}\n")
    return 0 if result.holds else 1


def summary(result: Result) -> str:
    """The verdict, for a terminal."""
    outcomes = result.outcomes
    lines = [
        f"{sum(outcomes.requests.values()):,} requests, {outcomes.reads:,} reads: {len(outcomes.refused)} refused by",
        f"the migration, {outcomes.lost} lost; {sum(result.chaos.struck.values()):,} crashes and lost responses",
        "",
        f"{'checked':>10} {'violated':>9}",
        *(f"{one.checked:>10,} {one.violated:>9,}  {name}" for name, one in result.checks.invariants.items()),
        "",
        (
            f"{'holds' if result.holds else 'DOES NOT HOLD'}: {len(result.timeline.visits)} phases in "
            f"{result.seconds:.0f} s ({result.virtual_seconds:.0f} virtual seconds)"
        ),
    ]
    return "\n".join(lines)


def _show(conductor: Conductor) -> None:
    phase = conductor.timeline.visits[-1].phase
    line = f"{bar(phase, LAYOUT.last)} {phase:2} {LAYOUT.describe(phase)}"
    _say(f"\r\x1b[K{line[:110]}" if sys.stdout.isatty() else f"{line}\n")


def _say(text: str) -> None:
    sys.stdout.write(text)
    sys.stdout.flush()


if __name__ == "__main__":
    raise SystemExit(main())
