"""A run is repeated exactly by its seed, also by another process with other hashes."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from .examples import assembly

pytestmark = pytest.mark.proof

ROOT = Path(__file__).parents[2]
PROGRAM = """
import hashlib, sys
from pathlib import Path
from constructs_lib.testing.simulator import Deployment
from constructs_lib.testing.simulator.checks.coverage import Coverage
from constructs_lib.testing.simulator.run import simulate_once
from tests.simulator.examples import EXAMPLES

name, folder, *seeds = sys.argv[1:]
with Deployment.of_assembly(Path(folder)) as deployment:
    for seed in seeds:
        result = simulate_once(
            deployment, EXAMPLES[name].workload(), int(seed), sagas=5, coverage=Coverage(), traced=True
        )
        text = "\\n".join([*result.trace, *map(str, result.findings), *result.hit])
        print(seed, len(result.trace), hashlib.sha256(text.encode()).hexdigest())
"""


def _told(name: str, seeds: list[str], hashes: str) -> list[str]:
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM, name, str(assembly(name)), *seeds],
        env={**os.environ, "PYTHONHASHSEED": hashes, "PYTHONPATH": f"{ROOT}{os.pathsep}{ROOT / 'lambda_src'}"},
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=True,
    )
    return done.stdout.splitlines()


@pytest.mark.parametrize("name", ["funds_transfer", "cart_fulfilment"])
def test_a_seed_repeats_its_run(name: str) -> None:
    seeds = ["21", "22"]
    first = _told(name, seeds, "1")
    # In another order: a run leaves nothing behind for the next one.
    second = _told(name, seeds[::-1], "2")
    assert len(first) == 2
    assert sorted(first) == sorted(second)
