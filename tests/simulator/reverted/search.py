"""Look for a defect from a seed, in a stack of each next seed, until it is found or the time is over."""

from __future__ import annotations

import argparse
import json
import sys
import time
from pathlib import Path
from typing import Any

from constructs_lib.testing.simulator.checks.coverage import Coverage
from constructs_lib.testing.simulator.run import RunResult, simulate_once
from constructs_lib.testing.simulator.simulation import SAGAS_OF_A_RUN, without_garbage_collection
from tests.simulator.drawn.shrink import shrunk, suspects
from tests.simulator.reverted.stacks import STACKS, Stack
from tests.simulator.shorter import Failure, shortened


def found_in(stack: Stack, seed: int, runs: int, ends: float = float("inf")) -> RunResult | None:
    """The first run of a stack that breaks its promise, of so many from a seed on.

    Args:
        stack: what is deployed.
        seed: of the first run.
        runs: how many.
        ends: of ``time.process_time``, after which no run begins.
    """
    with stack.deployed() as (deployment, workload, releases), without_garbage_collection():
        for number in range(runs):
            if time.process_time() >= ends:
                break
            run = simulate_once(
                deployment,
                workload,
                seed + number,
                sagas=SAGAS_OF_A_RUN,
                coverage=Coverage(),
                releases=releases,
            )
            if run.findings:
                return run
    return None


def _search(options: argparse.Namespace) -> dict[str, Any]:
    began, stacks = time.monotonic(), 0
    while time.process_time() < options.seconds:
        seed = options.seed + stacks
        stack = STACKS[options.stack](seed)
        stacks += 1
        run = found_in(stack, seed, options.runs, options.seconds)
        if run is not None:
            return _told(options, stack, seed, run, stacks, time.monotonic() - began)
    return {
        "found": False,
        "stacks": stacks,
        "seconds": round(time.monotonic() - began),
        "processor": round(time.process_time()),
    }


def _told(
    options: argparse.Namespace, stack: Stack, seed: int, run: RunResult, stacks: int, seconds: float
) -> dict[str, Any]:
    told: dict[str, Any] = {
        "found": True,
        "stacks": stacks,
        "seconds": round(seconds),
        "processor": round(time.process_time()),
        "stack": seed,
        "run": run.seed,
        "lines": len(run.about()),
        "findings": [str(finding) for finding in run.findings[:4]],
    }
    if options.shrink:
        begun = time.process_time()
        failure = _smaller(stack, run)
        told["shrinking"] = round(time.process_time() - begun)
        told["smaller"] = len(failure.result.about())
        told["failure"] = str(failure)
    return told


def _smaller(stack: Stack, run: RunResult) -> Failure:
    """A smaller saga and a shorter schedule; of a stack that was not drawn, the schedule alone becomes shorter."""
    for number in suspects(run) if stack.drawn else ():
        release = stack.releases[number] if stack.releases else None
        drawn, setting = stack.drawn[number], stack.setting
        failure = shrunk(drawn, run.seed, run.sagas, setting=setting, release=release)
        if failure is not None:
            return failure
    with stack.deployed() as (deployment, workload, releases):
        return shortened(run, deployment, workload, releases=releases)


def main() -> int:
    """Search, or repeat one run; the exit status is 0."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--stack", choices=sorted(STACKS), required=True)
    parser.add_argument("--seed", type=int, required=True)
    parser.add_argument("--run", type=int, help="of a stack that is repeated; then the seed is the stack's")
    parser.add_argument("--runs", type=int, default=30, help="of a stack, until another one is drawn")
    parser.add_argument("--seconds", type=float, default=60, help="of this process on a processor")
    parser.add_argument("--shrink", action="store_true")
    parser.add_argument("--into", type=Path, required=True, help="file for the result")
    options = parser.parse_args()
    if options.run is None:
        result = _search(options)
    else:
        again = found_in(STACKS[options.stack](options.seed), options.run, 1)
        result = {"found": again is not None}
    options.into.write_text(json.dumps(result), encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
