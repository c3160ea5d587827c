"""The fast layer of a proof: the simulator, which runs the stack's functions and definitions in this process."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace
from functools import partial
from itertools import chain
from random import Random
from typing import Final

from constructs_lib.testing.invariants import Invariant
from constructs_lib.testing.proof.checks import Case
from constructs_lib.testing.proof.layer import AFTER, Cases, require_answered
from constructs_lib.testing.simulator.checks.coverage import Coverage
from constructs_lib.testing.simulator.deployment.deployment import Deployment
from constructs_lib.testing.simulator.engine.kernel import MILLISECOND, SECOND
from constructs_lib.testing.simulator.enumeration import EachCall, states_of, swept_functions
from constructs_lib.testing.simulator.faults.climate import HOUR, MINUTE, Climate, Event, Planned, Trouble
from constructs_lib.testing.simulator.run import START, RunResult, simulate_once
from constructs_lib.testing.simulator.simulation import SAGAS_OF_A_RUN
from constructs_lib.testing.simulator.workload import Intent, Result, Workload, Wrapped
from constructs_lib.testing.simulator.world import World

_KEY: Final = "proof"
_LATENCIES: Final = (1, 5, 10, 60, 300)
"""Milliseconds that a call usually takes: each is another schedule of concurrent requests."""
_COMMITS: Final = (0, 50)
"""Milliseconds for which a transaction holds its items at most."""


class OneRequest(Wrapped):
    """The first intent of a workload, under one key, for every client."""

    def intent(self, number: int, random: Random) -> Intent:
        """Draw the first intent, and return it again."""
        if number == 0:
            intent = super().intent(0, random)
            self._only = replace(intent, key=intent.key or _KEY)
        return self._only

    def audit_results(self, world: World, results: Sequence[Result]) -> Iterable[Invariant]:
        """Check the result, which is the same for all clients."""
        return super().audit_results(world, results[:1])


class Simulated:
    """A stack in the simulator.

    Args:
        deployment: what is deployed.
        workload: its first intent is the request.
    """

    name = "the simulator"

    def __init__(self, deployment: Deployment, workload: Workload) -> None:
        self._deployment = deployment
        self._workload = workload
        self.left_out = tuple(deployment.blueprint.left_out)

    def crashes(self, seed: int, at_most: int | None, draw: int) -> Cases:
        """Break each call, and end executions before each state."""
        calls = EachCall(self._deployment, self._workload, seed=seed, coverage=Coverage())
        require_answered(seed, calls.recorded.answers[0])
        every: list[Callable[[], Case]] = [partial(_broken, seed, calls, planned) for planned in calls.planned()]
        every += self._of_recoveries(seed, calls.recorded)
        drawn = every if at_most is None else Random(draw).sample(every, min(at_most, len(every)))
        cases = chain([_case(seed, calls.recorded)], (run() for run in drawn))
        return Cases(enumerated=1 + len(every), cases=cases)

    def _of_recoveries(self, seed: int, recorded: RunResult) -> list[Callable[[], Case]]:
        """Break each call of a recovery: of what a schedule invokes, and of what nothing calls without the stop."""
        blueprint = self._deployment.blueprint
        known = states_of(blueprint)
        states = [met for met in recorded.met if met in known]
        swept = swept_functions(blueprint)
        if not states or not swept:
            return []
        machine, state = states[len(states) // 2]
        stopped = Planned(of=machine, what=state, nth=1, how=Event.STOP)
        calls = EachCall(self._deployment, self._workload, seed=seed, coverage=Coverage(), after=(stopped,))
        named = {*blueprint.functions, *(machine.name for machine in blueprint.machines.values())}
        recovering = named & ({of for of, _ in calls.recorded.met} - {of for of, _ in recorded.met})
        return [partial(_broken, seed, calls, planned, after=1) for planned in calls.planned(of=swept | recovering)]

    def duplicates(self, seed: int) -> Cases:
        """Repeat a request under its key while it runs, and when it has ended."""
        self._require_answered(seed)
        run = self._of_one(seed, Climate(), [int(after * SECOND) for after in AFTER])
        return Cases(enumerated=1, cases=iter([self._alike(seed, run, f"a client sends it {len(AFTER)} times")]))

    def retries(self, seed: int) -> Cases:
        """Let each function die around its first call; a client repeats its request until it is settled."""
        calls = EachCall(self._deployment, self._workload, seed=seed, coverage=Coverage())
        require_answered(seed, calls.recorded.answers[0])
        blueprint = self._deployment.blueprint
        functions = (set(blueprint.functions) & {of for of, _ in calls.recorded.met}) - swept_functions(blueprint)
        first: dict[str, str] = {}
        for of, what in calls.recorded.met:
            if of in functions:
                first.setdefault(of, what)
        plans = [
            Planned(of=of, what=what, nth=1, how=how)
            for of, what in first.items()
            for how in (Trouble.KILL_BEFORE, Trouble.KILL_AFTER)
        ]
        return Cases(enumerated=len(plans), cases=self._retried(seed, calls, plans))

    def _retried(self, seed: int, calls: EachCall, plans: Sequence[Planned]) -> Iterator[Case]:
        for planned in plans:
            run = self._of_one(seed, Climate(planned=(planned,)), [0, HOUR])
            case = self._alike(seed, run, str(planned.how.value), planned)
            if run.answers[0] != calls.recorded.answers[0]:
                told = f"the response has status {run.answers[0]}, and without the crash {calls.recorded.answers[0]}"
                case = replace(case, violations=(*case.violations, told))
            yield case

    def concurrent(self, seed: int, clients: int) -> Cases:
        """Send a request under its key from many clients at the same moment, under several schedules."""
        self._require_answered(seed)
        schedules = [(latency, commit) for latency in _LATENCIES for commit in _COMMITS]

        def cases() -> Iterator[Case]:
            for latency, commit in schedules:
                climate = Climate(
                    latency=latency * MILLISECOND, commit_delay=commit * MILLISECOND, ends=START + 10 * MINUTE
                )
                run = self._of_one(seed, climate, [0] * clients)
                told = f"{clients} clients at once; a call takes {latency} ms, a transaction holds items {commit} ms"
                yield self._alike(seed, run, told)

        return Cases(enumerated=len(schedules), cases=cases())

    def soak(self, seed: int, requests: int) -> Cases:
        """Run many requests under faults that are drawn for each run."""
        runs = -(-requests // SAGAS_OF_A_RUN)

        def cases() -> Iterator[Case]:
            for number in range(seed, seed + runs):
                run = simulate_once(self._deployment, self._workload, number, sagas=SAGAS_OF_A_RUN, coverage=Coverage())
                case = _case(number, run)
                yield replace(case, fault=f"{run.faults} drawn", status=None, call=f"{run.sagas} requests")

        return Cases(enumerated=runs, cases=cases())

    def _require_answered(self, seed: int) -> None:
        """Send the request once, and require that it is settled."""
        require_answered(seed, self._of_one(seed, Climate(), [0]).answers[0])

    def _of_one(self, seed: int, climate: Climate, begins: Sequence[int]) -> RunResult:
        return simulate_once(
            self._deployment,
            OneRequest(self._workload),
            seed,
            sagas=len(begins),
            coverage=Coverage(),
            climate=climate,
            begins=begins,
        )

    def _alike(self, seed: int, run: RunResult, fault: str, planned: Planned | None = None) -> Case:
        """The case in which all clients must have one response."""
        case = replace(_case(seed, run, planned), fault=fault)
        checked = {**case.checked, "every client has one response": len(run.responses)}
        if len({*run.responses}) == 1 and None not in run.responses:
            return replace(case, checked=checked)
        told = f"clients of one key received {sorted(map(str, {*run.responses}))}"
        return replace(case, checked=checked, violations=(*case.violations, told))


def _broken(seed: int, calls: EachCall, planned: Planned, *, after: int = 0) -> Case:
    case = _case(seed, calls.broken(planned), planned, after=after)
    return replace(case, fault=f"{case.fault}, in a recovery") if after else case


def _case(seed: int, run: RunResult, planned: Planned | None = None, *, after: int = 0) -> Case:
    """The case of a run; so many faults hit before the planned one."""
    found = Case(
        seed=seed,
        status=run.answers[0] if run.answers else None,
        checked=run.checked,
        requests=run.requests,
        violations=tuple(map(str, run.findings)),
    )
    if planned is None:
        return found
    fault = f"{planned.how}, {planned.times} times" if planned.times > 1 else str(planned.how.value)
    return replace(found, caller=planned.of, call=planned.what, nth=planned.nth, fault=fault, hit=run.faults > after)
