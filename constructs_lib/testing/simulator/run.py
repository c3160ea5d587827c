"""One run: a world, clients, faults, and calm until nothing is left to do; then the audits."""

from __future__ import annotations

import itertools
import re
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from random import Random
from typing import Any, Final

from constructs_lib.testing.invariants import Invariant
from constructs_lib.testing.simulator.aws.gateway import path_of
from constructs_lib.testing.simulator.checks.coverage import Coverage
from constructs_lib.testing.simulator.checks.findings import Finding
from constructs_lib.testing.simulator.checks.requests import Requests, requests_of
from constructs_lib.testing.simulator.deployment.blueprint import ApiSpec
from constructs_lib.testing.simulator.deployment.deployment import Deployment
from constructs_lib.testing.simulator.engine.kernel import SECOND, OutOfStepsError
from constructs_lib.testing.simulator.faults.climate import MINUTE, Climate, drawn_climate
from constructs_lib.testing.simulator.outside.clients import Client, Fate
from constructs_lib.testing.simulator.outside.operators import UNDONE_LATE, Operator
from constructs_lib.testing.simulator.promise import audit, results
from constructs_lib.testing.simulator.workload import (
    Intent,
    Workload,
    audit_of,
    audit_results_of,
    intent_of,
    providers_of,
)
from constructs_lib.testing.simulator.world import World, running
from saga_runtime.protocol import (
    HOLD_DECISIONS,
    HoldAttribute,
    LogAttribute,
    OutboxAttribute,
    RecordAttribute,
    RecordStatus,
    TokenAttribute,
    TokenStatus,
)

_REQUEST: Final = re.compile(r"\b[a-z2-7]{26}\b")
"""The part of a saga's id that is its request's."""
START: Final = 1_767_225_600 * SECOND
"""When a run begins: 2026-01-01T00:00:00Z."""
_ROTATIONS: Final = 3
"""Occasions on which a secret may be rotated: two soon after each other, and a provider signs with neither version."""
_FAILING: Final = 0.2
"""Share of the releases that fail the first time."""
_LONGEST_PAUSE: Final = 3_607 * SECOND
"""Between two looks for the end. No multiple of a schedule's minutes: each would meet the same invocation at work."""
_OFTEN: Final = 10
"""A saga that parks again after so many resumptions is reported with the reason."""


@dataclass(slots=True, kw_only=True)
class RunResult:
    """Result of a run.

    Attributes:
        seed: repeats it.
        sagas: how many intents there were.
        findings: what is wrong.
        faults: how many faults hit.
        parked: sagas that were parked at some time.
        moved: sagas that were moved to other state machines.
        steps: of the kernel.
        virtual: microseconds that passed in it.
        trace: every line, if they were asked for or something is wrong.
        statuses: how many sagas ended how.
        hit: calls and occasions with the fault that hit them, the most frequent first.
        met: number of calls and states of each actor, if faults were planned.
        responses: the last settled response of each client, in order, as status and body; None: it has none.
        checked: how many things each invariant was checked of.
        requests: those of each operation.
    """

    seed: int
    sagas: int
    findings: list[Finding] = field(default_factory=list)
    faults: int = 0
    parked: int = 0
    moved: int = 0
    steps: int = 0
    virtual: int = 0
    trace: list[str] = field(default_factory=list)
    statuses: dict[str, int] = field(default_factory=dict)
    hit: list[str] = field(default_factory=list)
    met: dict[tuple[str, str], int] = field(default_factory=dict)
    responses: list[tuple[int, str] | None] = field(default_factory=list)
    checked: dict[str, int] = field(default_factory=dict)
    requests: dict[str, Requests] = field(default_factory=dict)

    @property
    def answers(self) -> list[int | None]:
        """The last settled status of each client, in order; None: it has none."""
        return [None if response is None else response[0] for response in self.responses]

    def about(self) -> list[str]:
        """Lines of the trace about the sagas that the findings name; every line if they name none."""
        named = {word for finding in self.findings for word in _REQUEST.findall(finding.text)}
        return [line for line in self.trace if any(name in line for name in named)] if named else self.trace


def simulate_once(
    deployment: Deployment,
    workload: Workload,
    seed: int,
    *,
    sagas: int,
    coverage: Coverage,
    climate: Climate | None = None,
    traced: bool = False,
    releases: Sequence[Deployment] = (),
    begins: Sequence[int] | None = None,
) -> RunResult:
    """Run a world to its end, and audit it.

    Args:
        deployment: what is deployed.
        workload: what is asked of it.
        seed: what everything is drawn from.
        sagas: how many clients there are.
        coverage: counts what is reached.
        climate: what goes wrong; drawn from the seed if it is not given.
        traced: whether the trace is wanted also of a run in which nothing is wrong.
        releases: later versions, deployed over it in turn while sagas run.
        begins: microseconds after which each client begins; drawn from the seed if they are not given.

    Raises:
        NotSimulatedError: if the run needs what the simulator does not have.
        ValueError: if no API has the operation of an intent.
        Exception: whatever the workload raises, also in an actor that it makes.
    """
    random, length, burst = draws_of(seed)
    if climate is None:
        climate = climate_of(deployment, seed)
    for release in releases:
        deployment.switch.include([image.bundle for image in release.images.values()])
    with running(deployment, climate, str(seed), start=START, coverage=coverage, changes=workload.environment) as world:
        workload.prepare(world, random)
        world.connect(providers_of(workload, world, random))
        fates = []
        for number in range(sagas):
            intent = intent_of(workload, number, random)
            fate = Fate(intent=intent, key=intent.key or f"key-{number}-{random.getrandbits(32):08x}")
            fates.append(fate)
            drawn = int(random.random() * burst * length)
            Client(world, f"client {number}", fate).begin(drawn if begins is None else begins[number])
        _require_routes([fate.intent for fate in fates], (deployment, *releases))
        _release(world, releases, str(seed), length)
        _rotate(world, Random(f"{seed}:rotations"), length)
        operator = Operator(world, workload)
        operator.begin()
        operator.begin_to_cancel(Random(f"{seed}:cancellations"), length)
        operator.begin_to_hold(Random(f"{seed}:holds"), length)
        result = RunResult(seed=seed, sagas=sagas)
        try:
            ended = _run(world, workload, fates)
        except OutOfStepsError as error:
            world.findings.add("in flight", str(error))
            ended = False
        invariants: list[Invariant] = []
        if not ended:
            _report_unended(world, operator, _left(world, workload, fates))
        invariants += audit(world, fates)
        invariants += audit_of(workload, world)
        found = results(world, fates)
        invariants += audit_results_of(workload, world, found)
        result.requests = requests_of(
            found, [fate.last for fate in fates], world.parts, workload.unrecorded, world.functions.raised
        )
        for invariant in invariants:
            result.checked[invariant.name] = result.checked.get(invariant.name, 0) + invariant.checked
            for violation in invariant.violations:
                world.findings.add(invariant.name, violation)
        coverage.add_faults(world.weather.hit)
        result.findings = world.findings.found
        result.faults = sum(world.weather.hit.values())
        result.parked, result.moved = len(operator.resumed), len(operator.moved)
        result.hit = [f"{what}: {where} ({count})" for (where, what), count in world.weather.hit.most_common()]
        result.met = dict(world.weather.met)
        result.responses = [fate.settled[-1] if fate.settled else None for fate in fates]
        result.steps = world.kernel.steps
        result.virtual = world.kernel.now - START
        result.statuses = _statuses(world)
        if traced or result.findings:
            result.trace = list(world.trace.lines())
    for release in releases:
        release.reset()
    return result


def _require_routes(intents: Collection[Intent], versions: Sequence[Deployment]) -> None:
    """Refuse an operation that no API of a version has: its requests would go nowhere, and nothing would be found.

    Likewise one that APIs of several stacks have, if the intent names none: all requests would be sent to one of them.
    """
    of_versions = [version.blueprint.apis.values() for version in versions]
    for operation, stack in sorted({(intent.operation, intent.stack) for intent in intents}, key=str):
        having = [{api.stack for api in apis if _has(api, operation, stack)} for apis in of_versions]
        if not any(having):
            there = sorted(
                {f"{route.method} {route.path}" for apis in of_versions for api in apis for route in api.routes}
            )
            raise ValueError(
                f"operation of an Intent must be one of a REST API or an HTTP API of {stack or 'the stack'}, "
                f"got {operation!r}; there are {there}"
            )
        named = [{api.stack for api in apis if _names(api, operation, stack)} for apis in of_versions]
        if several := next((found for found in named if len(found) > 1), None):
            raise ValueError(
                f"stack of an Intent must be one of {sorted(several)}, whose APIs have {operation}, got None"
            )


def _has(api: ApiSpec, operation: str, stack: str | None) -> bool:
    return path_of({api.id: api}, operation, stack) is not None


def _names(api: ApiSpec, operation: str, stack: str | None) -> bool:
    """True if an API has the operation by its name, and not by a route that takes any path."""
    return stack in (None, api.stack) and any(route.path.endswith(f"/{operation}") for route in api.routes)


def _release(world: World, releases: Sequence[Deployment], seed: str, length: int) -> None:
    """Deploy releases one after another, at moments that are drawn; some fail, and are rolled back."""
    random, failures = Random(f"{seed}:releases"), Random(f"{seed}:failed releases")
    moments = sorted(int(random.random() * length) for _ in releases)
    for moment, release in zip(moments, releases, strict=True):
        share = random.choice((0, SECOND // 10, 5 * SECOND))
        pauses = (int(random.random() * most) for most in itertools.repeat(share))
        failing = failures.random() if failures.random() < _FAILING else None
        world.rollout.plan(release, moment, pauses, failing=failing)


def _rotate(world: World, random: Random, length: int) -> None:
    """Plan the moments at which secrets may get new values."""
    for secret in sorted(world.secrets.versions):
        for _ in range(_ROTATIONS):
            world.kernel.after(int(random.random() * length), partial(world.rotate, secret))


def climate_of(deployment: Deployment, seed: int) -> Climate:
    """Draw the faults of a seed's run."""
    _, length, _ = draws_of(seed)
    services = ("dynamodb", "stepfunctions", "sqs", "lambda", *sorted(deployment.blueprint.functions))
    return drawn_climate(Random(f"{seed}:climate"), start=START, length=length, services=services)


def draws_of(seed: int) -> tuple[Random, int, float]:
    """Source of a run's draws, duration of its faults, and the share of it over which clients begin."""
    random = Random(f"{seed}:run")
    length = int(random.choice((1, 1, 5, 30)) * MINUTE)
    return random, length, random.choice((0.0, 0.02, 1.0))


def _run(world: World, workload: Workload, fates: list[Fate]) -> bool:
    """Let everything happen; whether nothing was left to do in time."""
    state = {"quiet": False}
    kernel = world.kernel
    pause = 10 * SECOND

    def look() -> None:
        nonlocal pause
        begun = world.weather.is_over and world.rollout.done and workload.has_sent(world)
        state["quiet"] = begun and all(fate.done for fate in fates) and not _left(world, workload, fates)
        pause = min(int(pause * 1.3), _LONGEST_PAUSE)
        kernel.after(pause, look)

    kernel.after(pause, look)
    last = max(
        world.weather.climate.ends, kernel.now, *(outage.ends for outage in world.weather.climate.outages or ()), 0
    )
    patience = int(workload.patience.total_seconds() * SECOND)
    return kernel.run(until=last + patience, ended=lambda: state["quiet"])


def _left(world: World, workload: Workload, fates: list[Fate]) -> dict[str, Any]:
    """Find what has not ended."""
    left: dict[str, Any] = {}
    if not workload.has_sent(world):
        left["workload"] = "has_sent is false"
    if not world.rollout.done:
        left["releases"] = "not every release is complete"
    if running_now := [execution.name for execution in world.machines.running()]:
        left["executions"] = running_now
    if world.functions.running:
        left["invocations"] = list(world.functions.running)
    waiting = {
        "messages": world.queues.waiting(),
        "changes": world.streams.waiting(),
        "events on their way": world.events.waiting(),
    }
    left |= {what: found for what, found in waiting.items() if found}
    if open_now := [f"{saga_id}{' (parked)' if parked else ''}" for saga_id, parked in _open(world).items()]:
        left["sagas"] = open_now
    switches = (str(item[HoldAttribute.ID]["S"]) for table in world.parts.holds for item in world.table(table))
    if holds := [one for one in switches if not one.endswith(HOLD_DECISIONS)]:
        left["holds"] = holds
    if events := [str(item[OutboxAttribute.ID]["S"]) for table in world.parts.outboxes for item in world.table(table)]:
        left["events"] = events
    rows = (row for table in world.parts.tokens for row in world.table(table))
    if notices := [
        row[TokenAttribute.ID]["S"] for row in rows if row[TokenAttribute.STATUS]["S"] == TokenStatus.NOTICE
    ]:
        left["notices"] = notices
    if late := _late_effects(world):
        left["late effects"] = late
    if clients := [fate.key for fate in fates if not fate.done]:
        left["clients"] = clients
    return left


def _open(world: World) -> dict[str, bool]:
    """Sagas in progress, and whether each is parked."""
    return {
        item[RecordAttribute.SAGA_ID]["S"]: RecordAttribute.PARKED_BY in item
        for table in world.parts.requests
        for item in world.records(table)
        if item[RecordAttribute.STATUS]["S"] == RecordStatus.IN_PROGRESS
    }


def _report_unended(world: World, operator: Operator, left: Mapping[str, Any]) -> None:
    world.findings.add("in flight", f"not everything has ended: {left}")
    for saga_id in _open(world):
        times = operator.resumed.get(saga_id, 0)
        if times >= _OFTEN:
            reason = operator.reasons[saga_id]
            world.findings.add("in flight", f"saga {saga_id} parked again, {times} times resumed: {reason}")


def _late_effects(world: World) -> list[str]:
    """List the late effects to compensate, also one whose compensation was interrupted."""
    rows = (row for log in world.parts.logs for row in world.table(log))
    return [
        f"{row[LogAttribute.SAGA_ID]['S']} {row[LogAttribute.STEP]['S']}"
        for row in rows
        if row[LogAttribute.STATUS]["S"] in UNDONE_LATE
    ]


def _statuses(world: World) -> dict[str, int]:
    found: dict[str, int] = {}
    for table in world.parts.requests:
        for item in world.records(table):
            status = item[RecordAttribute.STATUS]["S"]
            found[status] = found.get(status, 0) + 1
    return dict(sorted(found.items()))
