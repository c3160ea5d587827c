"""Simulate a stack: many runs, each with other sagas, faults and schedules."""

from __future__ import annotations

import gc
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from constructs_lib.testing.simulator.deployment.deployment import Deployment
from constructs_lib.testing.simulator.faults.climate import Climate
from constructs_lib.testing.simulator.report import SimulationReport
from constructs_lib.testing.simulator.run import simulate_once
from constructs_lib.testing.simulator.workload import Workload, require_workload

if TYPE_CHECKING:
    from aws_cdk import Stack, Stage

SAGAS_OF_A_RUN: Final = 20
"""Clients of one run: enough to get into each other's way, few enough to read about."""

_RUNS_UNTIL_COLLECTION: Final = 10
"""A run leaves some megabytes of cycles."""


def simulate(
    stack: Stack | Stage | Path | Deployment,
    workload: Workload,
    *,
    sagas: int = 1_000,
    seed: int = 0,
    climate: Climate | None = None,
    stop_at_first: bool = True,
    progress: Callable[[SimulationReport], None] | None = None,
    releases: Sequence[Stack | Stage | Path | Deployment] = (),
) -> SimulationReport:
    """Run many sagas of a stack under random faults and schedules, in virtual time, in this process.

    The stack's definitions are interpreted, its functions run as they are, and AWS is in memory: no port, no process,
    no network. What one seed found, the same seed finds again.

    Args:
        stack: a CDK stack, which is synthesized with what it depends on; an app, or a stage, for all of its stacks;
            all stacks of a synthesized assembly (``cdk.out``); or what is deployed already. Whatever account and region
            they are for, it is the simulated one.
        workload: its clients' intents, and invariants in addition to the promise.
        sagas: how many intents clients have, at least; 1 or more.
        seed: of the first run.
        climate: what goes wrong; drawn for each run from its seed if it is not given.
        stop_at_first: whether to end with the first run that finds something.
        progress: is called after each run.
        releases: later versions of the same, deployed over it in turn while sagas run. One in five fails midway, is
            rolled back, and deployed once more. Several stacks change as one: to deploy one after another, give an app
            for each.

    Returns:
        What was found: ``report.require_kept()`` fails if it is anything, or if no request of an operation
        was done, or refused by a step.

    Raises:
        NotSimulatedError: if a run needs what the simulator does not have; ``report.left_out`` lists what was left out.
        ValueError: for an argument of a wrong type.

    Example:
        ```python
        def test_transfers_keep_their_promise() -> None:
            simulate(FundsTransferStack(App(), "FundsTransfer"), Transfers(), sagas=1_000).require_kept()
        ```
    """
    require_workload(workload)
    whole: Any = sagas
    if isinstance(whole, bool) or not isinstance(whole, int) or whole < 1:
        raise ValueError(f"sagas must be a whole number from 1 on, got {sagas!r}")
    number: Any = seed
    if isinstance(number, bool) or not isinstance(number, int):
        raise ValueError(f"seed must be an integer, got {seed!r}; a run is repeated by its seed")
    with ExitStack() as opened:
        deployment, *later = (deployed(one, opened) for one in (stack, *releases))
        return _simulated(deployment, workload, sagas, seed, climate, progress, later, stop_at_first=stop_at_first)


def deployed(stack: Stack | Stage | Path | Deployment, opened: ExitStack) -> Deployment:
    """Deploy a stack for as long as a context is open; what is deployed already stays so."""
    if isinstance(stack, Deployment):
        return stack
    require_stack(stack)
    made = Deployment.of_assembly(stack) if isinstance(stack, Path) else Deployment.of_stack(stack)
    return opened.enter_context(made)


def require_stack(stack: Any) -> None:
    """Refuse what is neither a stack, nor an app, nor an assembly, nor deployed.

    Raises:
        ValueError: naming what was given.
    """
    if not isinstance(stack, Deployment | Path) and not hasattr(stack, "node"):
        raise ValueError(
            f"stack must be a Stack, an App, or the Path of an assembly, got {stack!r}; pass a stack of the CDK"
        )


def _simulated(
    deployment: Deployment,
    workload: Workload,
    sagas: int,
    seed: int,
    climate: Climate | None,
    progress: Callable[[SimulationReport], None] | None,
    releases: Sequence[Deployment],
    *,
    stop_at_first: bool,
) -> SimulationReport:
    report = SimulationReport(seed=seed)
    for version in (deployment, *releases):
        report.leave_out(version.blueprint.left_out)
        for machine in version.blueprint.machines.values():
            report.coverage.know(machine.name, machine.definition)
    began = time.process_time()
    with without_garbage_collection():
        while report.sagas < sagas:
            report.add(
                simulate_once(
                    deployment,
                    workload,
                    seed + report.runs,
                    sagas=min(SAGAS_OF_A_RUN, sagas),
                    coverage=report.coverage,
                    climate=climate,
                    releases=releases,
                )
            )
            if report.runs % _RUNS_UNTIL_COLLECTION == 0:
                gc.collect()
            report.seconds = time.process_time() - began
            if progress is not None:
                progress(report)
            if report.violated and stop_at_first:
                break
    return report


@contextmanager
def without_garbage_collection() -> Iterator[None]:
    """Spare the collector what exists already, and let it search the rest only when it is called."""
    enabled = gc.isenabled()
    gc.disable()
    gc.freeze()
    try:
        yield
    finally:
        gc.collect()
        gc.unfreeze()
        if enabled:
            gc.enable()
