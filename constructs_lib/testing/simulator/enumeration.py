"""Every call of one saga, broken in every way: one run for each, where ``simulate`` draws."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import ExitStack
from pathlib import Path
from random import Random
from typing import TYPE_CHECKING, Any, Final

from constructs_lib.testing.simulator.checks.coverage import Coverage
from constructs_lib.testing.simulator.checks.findings import Finding
from constructs_lib.testing.simulator.checks.requests import INTERRUPTED
from constructs_lib.testing.simulator.deployment.blueprint import Blueprint
from constructs_lib.testing.simulator.deployment.deployment import Deployment
from constructs_lib.testing.simulator.faults.climate import Climate, Event, Planned, Trouble
from constructs_lib.testing.simulator.report import SimulationReport
from constructs_lib.testing.simulator.run import RunResult, simulate_once
from constructs_lib.testing.simulator.simulation import deployed, without_garbage_collection
from constructs_lib.testing.simulator.workload import Workload, require_workload

if TYPE_CHECKING:
    from aws_cdk import Stack, Stage

_AGAIN: Final = 40
"""Calls in a row: more than every retry of an SDK, a state machine and a function makes."""
_OF_FUNCTIONS: Final = (
    (Trouble.KILL_BEFORE, 1),
    (Trouble.KILL_AFTER, 1),
    (Trouble.LOSE_ANSWER, 1),
    (Trouble.HOLD, 1),
    (Trouble.LATE_REQUEST, 1),
    (Trouble.KILL_AFTER, _AGAIN),
    (Trouble.LOSE_REQUEST, _AGAIN),
    (Trouble.LOSE_ANSWER, _AGAIN),
)
_OF_MACHINES: Final = (
    (Trouble.LOSE_REQUEST, 1),
    (Trouble.LOSE_ANSWER, 1),
    (Trouble.LOSE_REQUEST, _AGAIN),
    (Trouble.LOSE_ANSWER, _AGAIN),
)
_OF_OTHERS: Final = ((Trouble.LOSE_REQUEST, 1), (Trouble.LOSE_ANSWER, 1))
_SWEEP: Final = 20
"""Calls of one kind of a function that a schedule invokes: some more than one of its sweeps makes."""


def break_each_call(
    stack: Stack | Stage | Path | Deployment,
    workload: Workload,
    *,
    seed: int = 0,
    after: Sequence[Planned] = (),
    of: Collection[str] | None = None,
    drawn: int | None = None,
    part: tuple[int, int] = (0, 1),
    progress: Callable[[SimulationReport], None] | None = None,
) -> SimulationReport:
    """Record the calls and states of one saga, and break each of them in each way, in a run of its own.

    Functions die before and after each call and are held, their requests arrive late, and requests and answers are
    lost, once and for a long time. Calls of state machines and of clients are lost. Executions are stopped and time
    out before each state. What only a schedule invokes is broken if ``of`` names it.

    Guaranteed: one fault that is over after one call changes no answer; otherwise that is a finding, too.

    Args:
        stack: a CDK stack, an app, a synthesized assembly, or what is deployed already, as ``simulate`` takes it.
        workload: its first intent is the saga.
        seed: what the intent is drawn from.
        after: faults of every run, also of the one that is recorded: a stopped execution, for example, so that a
            reconciler has something to do.
        of: names of the functions and state machines whose calls are broken; None: all that the saga needs.
        drawn: so many of the faults, drawn by the seed; None: all of them.
        part: which part of them is run, from 0 on, and of how many: every n-th of each kind; all parts are all faults.
        progress: called after each run.

    Returns:
        The runs: ``report.require_kept()`` fails if one of them found something, or if the request was
        neither done nor refused by a step.

    Raises:
        ValueError: if the part is not one of so many.
    """
    require_workload(workload)
    number, parts = _require_part(part)
    report = SimulationReport(seed=seed)
    with ExitStack() as opened, without_garbage_collection():
        deployment = deployed(stack, opened)
        report.leave_out(deployment.blueprint.left_out)
        for machine in deployment.blueprint.machines.values():
            report.coverage.know(machine.name, machine.definition)
        calls = EachCall(deployment, workload, seed=seed, coverage=report.coverage, after=after)
        report.add(calls.recorded)
        plans = calls.planned(of=of, drawn=drawn)
        # By kind, so that each part has some of each.
        for planned in sorted(plans, key=lambda one: str(one.how))[number::parts] if parts > 1 else plans:
            report.add(calls.broken(planned))
            if progress is not None:
                progress(report)
    for requests in report.requests.values() if after else ():
        requests.expect(INTERRUPTED)
    return report


class EachCall:
    """The calls and states of one saga, as recorded, and runs in each of which one of them is broken.

    Args:
        deployment: what is deployed.
        workload: its first intent is the saga.
        seed: what the intent is drawn from.
        coverage: counts what is reached.
        after: faults of every run, also of the one that is recorded.

    Attributes:
        recorded: the run without a further fault.
    """

    def __init__(
        self,
        deployment: Deployment,
        workload: Workload,
        *,
        seed: int,
        coverage: Coverage,
        after: Sequence[Planned] = (),
    ) -> None:
        self._deployment = deployment
        self._workload = workload
        self._seed = seed
        self._coverage = coverage
        self._after = tuple(after)
        self.recorded = self._run()

    def planned(self, *, of: Collection[str] | None = None, drawn: int | None = None) -> list[Planned]:
        """Return each fault of each recorded call and state, or so many of them, drawn by the seed."""
        plans = list(_plans(self._deployment.blueprint, self.recorded, of))
        return plans if drawn is None else Random(self._seed).sample(plans, min(drawn, len(plans)))

    def broken(self, planned: Planned) -> RunResult:
        """Run the saga again with a fault. One that is over after one call must not change the answer."""
        run = self._run(planned)
        if planned.times == 1 and isinstance(planned.how, Trouble) and run.answers != self.recorded.answers:
            run.findings.append(
                Finding("one fault changes no answer", f"{planned}: {run.answers}, not {self.recorded.answers}")
            )
        return run

    def _run(self, *planned: Planned) -> RunResult:
        return simulate_once(
            self._deployment,
            self._workload,
            self._seed,
            sagas=1,
            coverage=self._coverage,
            climate=Climate(planned=(*planned, *self._after)),
        )


def _require_part(part: Any) -> tuple[int, int]:
    whole = isinstance(part, tuple) and len(part) == 2 and all(type(one) is int for one in part)
    if not whole or not 0 <= part[0] < part[1]:
        raise ValueError(f"part must be a number from 0 on and of how many, got {part!r}; (0, 1) is all")
    return part[0], part[1]


def swept_functions(blueprint: Blueprint) -> set[str]:
    """Names of the functions that a schedule invokes."""
    return {target.arn.rpartition(":")[2] for rule in blueprint.rules if rule.is_scheduled for target in rule.targets}


def _plans(blueprint: Blueprint, recorded: RunResult, of: Collection[str] | None) -> Iterator[Planned]:
    """Every fault of what was recorded."""
    swept = swept_functions(blueprint)
    machines = {machine.name for machine in blueprint.machines.values()}
    states = states_of(blueprint)
    for (name, what), count in recorded.met.items():
        if (name not in of) if of is not None else name in swept:
            continue
        for nth in range(1, min(count, _SWEEP if name in swept else count) + 1):
            if (name, what) in states:
                yield from (Planned(of=name, what=what, nth=nth, how=how) for how in (Event.STOP, Event.TIME_OUT))
                continue
            kinds = _OF_MACHINES if name in machines else _OF_FUNCTIONS if name in blueprint.functions else _OF_OTHERS
            yield from (Planned(of=name, what=what, nth=nth, how=how, times=times) for how, times in kinds)


def states_of(blueprint: Blueprint) -> set[tuple[str, str]]:
    """Machine and name of every state."""
    known = Coverage()
    for machine in blueprint.machines.values():
        known.know(machine.name, machine.definition)
    return known.known_states
