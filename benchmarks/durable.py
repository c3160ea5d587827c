"""Processor time of two steps: AWS's durable functions on AWS's local runner, and a saga in the simulator.

Neither is AWS, and they differ: the runner keeps operations in memory and has no database; the simulator runs the API,
the gatekeeper, the state machine and the steps with their DynamoDB transactions. What both show is what an engine's own
work costs. The runner is installed in ``build/durable``.

    python -m benchmarks.durable
"""

from __future__ import annotations

import json
import statistics
import subprocess
import sys
import time
import venv
from pathlib import Path
from random import Random
from typing import Final

from aws_cdk import App

from benchmarks.gatekeeper import ROOT
from benchmarks.report import write_report
from benchmarks.transfers import SagaStack
from constructs_lib import Run
from constructs_lib.testing.simulator import Intent, Workload, World, simulate
from constructs_lib.testing.simulator.deployment.deployment import Deployment
from constructs_lib.testing.simulator.faults.climate import CALM
from saga_runtime import LedgerBuilder, Money

SAGAS: Final = 100
ROUNDS: Final = 5
FOLDER: Final = Path("build/durable")


class Transfers(Workload):
    """One transfer for each request, between two accounts."""

    def prepare(self, world: World, random: Random) -> None:
        """Open the accounts."""
        del random
        for table in ("LedgerTableName", "PartnerTableName"):
            builder = LedgerBuilder(table=world.output(table))
            for account in ("alice", "bob"):
                for write in builder.open_account(account_id=account, opening=Money(10**9, "EUR"), now_ms=1):
                    world.db.put(world.output(table), write.action["Put"]["Item"])

    def intent(self, number: int, random: Random) -> Intent:
        """A transfer."""
        del number, random
        return Intent(operation="transfers", body={"from": "alice", "to": "bob", "amount": 1, "currency": "EUR"})


def main() -> None:
    """Measure in turn, and write the report."""
    python = installed()
    taken: dict[str, list[float]] = {"durable function": [], Run.INLINE: [], Run.STANDARD: []}
    with deployed(Run.INLINE) as inline, deployed(Run.STANDARD) as standard:
        for seed in range(ROUNDS):
            done = subprocess.run(
                [python, ROOT / "benchmarks" / "durable_saga.py", str(SAGAS)], capture_output=True, check=True
            )
            taken["durable function"].append(float(done.stdout))
            taken[Run.INLINE].append(simulated(inline, seed))
            taken[Run.STANDARD].append(simulated(standard, seed))
    report = {name: round(statistics.median(times), 1) for name, times in taken.items()}
    write_report("durable", {"processor_ms_per_saga": report})
    sys.stdout.write(json.dumps(report, indent=2) + "\n")


def installed() -> Path:
    """The Python that has the runner."""
    python = FOLDER / "bin" / "python"
    lock = ROOT / "requirements" / "durable.txt"
    if not python.exists():
        venv.create(FOLDER, with_pip=True)
    subprocess.run([python, "-m", "pip", "install", "--quiet", "--require-hashes", "-r", lock], check=True)
    return python


def deployed(run: Run) -> Deployment:
    """The saga of two steps, in the simulator."""
    return Deployment.of_stack(SagaStack(App(), run.title(), run=run))


def simulated(deployment: Deployment, seed: int) -> float:
    """Processor milliseconds of one saga, without faults."""
    begun = time.process_time()
    simulate(deployment, Transfers(), sagas=SAGAS, seed=seed, climate=CALM).require_kept()
    return (time.process_time() - begun) / SAGAS * 1e3


if __name__ == "__main__":
    main()
