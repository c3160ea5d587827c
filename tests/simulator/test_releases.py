"""Releases are deployed while sagas run: each keeps its promise, under the version that it meets."""

from __future__ import annotations

import itertools
import json
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from datetime import timedelta
from functools import partial
from pathlib import Path
from random import Random
from types import SimpleNamespace
from typing import Any

import pytest

from constructs_lib.testing.invariants import Invariant
from constructs_lib.testing.simulator import Climate, Deployment, Intent, Workload, World, run, simulate
from constructs_lib.testing.simulator.aws.states.executions import Execution
from constructs_lib.testing.simulator.checks.coverage import Coverage
from constructs_lib.testing.simulator.deployment.blueprint import arn
from constructs_lib.testing.simulator.engine.kernel import SECOND
from constructs_lib.testing.simulator.errors import NotSimulatedError, ServiceError
from constructs_lib.testing.simulator.faults.climate import CALM
from constructs_lib.testing.simulator.outside import operators
from constructs_lib.testing.simulator.outside.clients import Fate
from constructs_lib.testing.simulator.promise import answers
from constructs_lib.testing.simulator.rollout import Rollout
from constructs_lib.testing.simulator.run import START, simulate_once
from constructs_lib.testing.simulator.world import running
from tests.local.replacing.stack import synthesize

from .drawn.assembly import drawn_assembly
from .drawn.releases import (
    KINDS,
    DrawnRelease,
    added,
    bucketed,
    drawn_release,
    moved,
    reconditioned,
    renamed,
    replaced,
)
from .drawn.sagas import INLINE, SMALL, DrawnSaga, DrawnStep, drawn_saga, reads_request
from .drawn.workload import Drawn
from .machines import Deleted, Replacement
from .support import EVERYTHING, RETURN, add_function, add_machine, blueprint, execute, function_arn, invoke, output_of

pytestmark = pytest.mark.proof

DAY = 86_400 * SECOND
TURN = DAY // 8
FIRST = "import time\ndef handler(event, context):\n    time.sleep(5)\n    return 'first'\n"
SECOND_VERSION = "def handler(event, context):\n    return 'second'\n"
STEPS = (
    DrawnStep(name="S1", kind="atomic", undo=True),
    DrawnStep(name="S2", kind="asked", undo=True),
    DrawnStep(name="S3", kind="atomic", pivot=True),
)
BEFORE = [DrawnSaga(nodes=STEPS)]
AFTER = [DrawnSaga(nodes=(*STEPS, DrawnStep(name="S4", kind="both", refusable=False)))]


def test_release_leaves_running_sagas_and_replaces_new_ones() -> None:
    before, after = blueprint(work=FIRST), blueprint(work=SECOND_VERSION)
    add_machine(before, "saga", {"StartAt": "A", "States": {"A": invoke("work", Next="B"), "B": invoke("work")}})
    add_machine(after, "saga", {"StartAt": "C", "States": {"C": {"Type": "Pass", "Output": "new", "End": True}}})
    with (
        Deployment(before) as deployment,
        Deployment(after) as release,
        running(deployment, CALM, "1", start=START, coverage=Coverage()) as world,
    ):
        first = world.functions.invoke(function_arn("work"), "{}")
        world.kernel.after(SECOND, lambda: world.rollout.add(release, itertools.repeat(0)))
        assert output_of(execute(world, "saga", name="one")) == "second"
        assert first.value().payload == '"first"'
        assert output_of(execute(world, "saga", name="two")) == "new"


def test_release_that_fails_is_rolled_back_and_deployed_once_more() -> None:
    versions = blueprint(work="def handler(event, context):\n    return 'old'\n"), blueprint(work=SECOND_VERSION)
    for version, output in zip(versions, ("old", "new"), strict=True):
        add_machine(version, "saga", {"StartAt": "A", "States": {"A": {"Type": "Pass", "Output": output, "End": True}}})
    seen = []
    with (
        Deployment(versions[0]) as deployment,
        Deployment(versions[1]) as release,
        running(deployment, CALM, "1", start=START, coverage=Coverage()) as world,
    ):
        world.rollout.add(release, itertools.repeat(10 * SECOND), failing=0.5)
        for number in range(14):
            world.kernel.run(until=START + (number * 10 + 5) * SECOND)
            function = world.functions.invoke(function_arn("work"), "{}")
            machine = world.machines.start(arn("states", "stateMachine:saga"), str(number), "{}")
            world.kernel.run(until=START + (number * 10 + 8) * SECOND)
            seen.append((json.loads(function.value().payload), output_of(machine.described())))
        assert world.rollout.done
        notes = [
            line.partition("CloudFormation")[2].strip() for line in world.trace.lines() if "CloudFormation" in line
        ]
    assert [key for key, _ in itertools.groupby(seen)] == [
        ("old", "old"),
        ("second", "old"),
        ("second", "new"),
        ("old", "new"),
        ("old", "old"),
        ("second", "old"),
        ("second", "new"),
    ]
    assert notes == [
        "a release begins",
        "a release fails, and is rolled back",
        "a release is complete",
        "a release begins",
        "a release is complete",
    ]


WAITS = {
    "StartAt": "A",
    "States": {"A": {"Type": "Wait", "Seconds": 60, "Next": "B"}, "B": {"Type": "Pass", "Output": "B", "End": True}},
}


@contextmanager
def leaving_out(*, retained: bool, kind: str = "STANDARD") -> Iterator[tuple[World, Execution]]:
    """A world in which a machine's execution waits, and a release has left out the machine, with its role."""
    before, after = blueprint(), blueprint()
    add_machine(before, "old", WAITS, kind=kind)
    before.machines["old"] = replace(before.machines["old"], retained=retained, role="old role")
    before.roles["old role"] = [EVERYTHING]
    add_machine(after, "new", WAITS)
    with (
        Deployment(before) as deployment,
        Deployment(after) as release,
        running(deployment, CALM, "1", start=START, coverage=Coverage()) as world,
    ):
        execution = world.machines.start(before.machines["old"].arn, "one", "{}")
        world.rollout.add(release, itertools.repeat(0))
        world.kernel.run(until=START + SECOND)
        yield world, execution


def test_left_out_machine_is_deleted_and_its_executions_end_at_their_next_state() -> None:
    with leaving_out(retained=False) as (world, execution):
        arn = execution.machine.arn
        assert world.call("stepfunctions", "DescribeStateMachine", {"stateMachineArn": arn})["status"] == "DELETING"
        with pytest.raises(ServiceError, match="StateMachineDeleting"):
            world.machines.start(arn, "two", "{}")
        world.kernel.run(until=START + 120 * SECOND)
        assert (execution.status, execution.error) == ("FAILED", "States.Runtime")
        assert execution.stopped == START + 60 * SECOND
        with pytest.raises(ServiceError, match="StateMachineDoesNotExist"):
            world.machines.start(arn, "two", "{}")


def test_left_out_machine_that_is_retained_continues() -> None:
    with leaving_out(retained=True) as (world, execution):
        world.kernel.run(until=START + 120 * SECOND)
        assert output_of(execution.described()) == "B"
        assert world.machines.start(execution.machine.arn, "two", "{}").running


def test_executions_of_a_left_out_express_machine_continue() -> None:
    with leaving_out(retained=False, kind="EXPRESS") as (world, execution):
        world.kernel.run(until=START + 120 * SECOND)
        assert output_of(execution.described()) == "B"
        assert execution.machine.arn not in world.machines.machines


@pytest.mark.parametrize("kinds", [["STANDARD", "EXPRESS"], ["STANDARD", None, "STANDARD"]])
def test_state_machine_that_a_release_creates_again_has_another_name(kinds: list[str | None]) -> None:
    with releases_of(kinds) as (world, later):
        execution = world.machines.start(arn("states", "stateMachine:m"), "one", "{}")
        for version in later:
            world.rollout.add(version, itertools.repeat(0))
        world.kernel.run(until=START + SECOND)

        assert world.call("stepfunctions", "DescribeStateMachine", {"stateMachineArn": MADE})["status"] == "ACTIVE"
        assert execution.machine.arn in world.machines.deleting
        assert world.rollout.latest.images["asks"].spec.environment["MACHINE"] == MADE
        assert world.rollout.latest.blueprint.outputs == {
            "stack": {"manifest": f'{{"machine": "m-2", "arn": "{MADE}"}}'}
        }
        assert world.rollout.latest.blueprint.roles["asks"][0]["Resource"] == MADE
        world.kernel.run(until=START + 120 * SECOND)
        assert execution.status == "FAILED"


def test_state_machine_that_the_stack_names_is_not_created_again() -> None:
    told = "creates state machine m again is not simulated"
    with (
        releases_of(["STANDARD", "EXPRESS"], named=True) as (world, later),
        pytest.raises(NotSimulatedError, match=told),
    ):
        world.rollout.add(later[0], itertools.repeat(0))


def test_release_that_creates_a_state_machine_of_the_stacks_name_does_not_fail() -> None:
    with releases_of([None, "STANDARD"], named=True) as (world, (later,)):
        world.rollout.add(later, itertools.repeat(0), failing=0.9)
        world.kernel.run(until=START + SECOND)
        assert world.rollout.done
        assert not any("fails" in line for line in world.trace.lines())


def test_state_machine_of_a_release_that_failed_is_deleted_and_the_next_one_has_another_name() -> None:
    with releases_of([None, "STANDARD"]) as (world, (later,)):
        world.rollout.add(later, itertools.repeat(SECOND), failing=0.9)
        started = []
        world.kernel.after(5 * SECOND, lambda: started.append(world.machines.start(FIRST_MADE, "one", "{}")))
        world.kernel.run(until=START + 120 * SECOND)
        assert world.rollout.done
        assert (started[0].status, started[0].error) == ("FAILED", "States.Runtime")
        assert set(world.machines.machines) == {MADE}
        assert world.rollout.latest.images["asks"].spec.environment["MACHINE"] == MADE


def test_sagas_of_a_release_that_failed_are_still_known() -> None:
    other = DrawnSaga(nodes=STEPS[2:])
    with (
        Deployment.of_assembly(drawn_assembly(BEFORE)) as before,
        Deployment.of_assembly(drawn_assembly(BEFORE, [replaced(other)])) as after,
        running(before, CALM, "1", start=START, coverage=Coverage()) as world,
    ):
        world.rollout.add(after, itertools.repeat(0), failing=0.9)
        world.kernel.run(until=START + SECOND)
        machines = [operation.machine.rpartition(":")[2] for operation in world.parts.operations]
        created = [name for name in machines if "V2" in name]
        assert [name.endswith("-2") for name in created] == [False, True]


def test_sagas_keep_their_promise_when_releases_fail(monkeypatch: pytest.MonkeyPatch) -> None:
    planned: list[float | None] = []
    plan = Rollout.plan

    def spied(self: Rollout, *given: Any, failing: float | None) -> None:
        planned.append(failing)
        plan(self, *given, failing=failing)

    monkeypatch.setattr(Rollout, "plan", spied)
    monkeypatch.setattr(run, "_FAILING", 1)
    sagas = [drawn_saga(seed) for seed in (61, 62, 63, 64)]
    releases = [
        replaced(drawn_saga(65)),
        moved(sagas[1]),
        moved(sagas[2]),
        DrawnRelease(kind="stricter", saga=sagas[3]),
    ]
    first, second = drawn_assembly(sagas, shift="CANARY"), drawn_assembly(sagas, releases, shift="CANARY")
    folders = Replacement(deleted=Deleted.ALL, roles=True).of([first, second])
    with ExitStack() as opened:
        before, *later = [opened.enter_context(Deployment.of_assembly(folder)) for folder in folders]
        report = simulate(before, Drawn(sagas, releases=releases), sagas=100, releases=later)
    report.require_kept()
    assert report.moved
    assert planned
    assert all(failing is not None and 0 <= failing < 1 for failing in planned)


def test_state_machines_to_which_a_replaced_saga_is_moved_are_known() -> None:
    after = drawn_assembly(BEFORE, [replaced(DrawnSaga(nodes=STEPS[2:]))])
    with ExitStack() as opened:
        folders = Replacement(deleted=Deleted.ALL, roles=True).of([drawn_assembly(BEFORE), after])
        first, *later = [opened.enter_context(Deployment.of_assembly(folder)) for folder in folders]
        world = opened.enter_context(running(first, CALM, "1", start=START, coverage=Coverage()))
        for version in later:
            world.rollout.add(version, itertools.repeat(0))
        world.kernel.run(until=START + SECOND)
        known = {(one.machine, one.recovery) for one in world.parts.operations}
        assert {(target.forward, target.recovery) for target in world.rollout.latest.parts.targets.values()} <= known


MADE = arn("states", "stateMachine:m-2")
FIRST_MADE = arn("states", "stateMachine:m")


@contextmanager
def releases_of(kinds: list[str | None], *, named: bool = False) -> Iterator[tuple[World, list[Deployment]]]:
    """A world of state machine ``m`` and what asks it; and later releases, each with a type of it, or without it."""
    versions = []
    for kind in kinds:
        made = blueprint()
        if kind is not None:
            machine = add_machine(made, "m", WAITS, kind=kind)
            made.machines["m"] = replace(made.machines["m"], named=named)
            add_function(made, "asks", RETURN, environment={"MACHINE": machine})
            made.roles["asks"] = [{"Effect": "Allow", "Action": "states:StartExecution", "Resource": machine}]
            made.outputs["stack"] = {"manifest": json.dumps({"machine": "m", "arn": machine})}
        versions.append(made)
    with ExitStack() as opened:
        first, *later = [opened.enter_context(Deployment(version)) for version in versions]
        yield opened.enter_context(running(first, CALM, "1", start=START, coverage=Coverage())), later


def test_sagas_keep_their_promise_under_releases() -> None:
    with (
        Deployment.of_assembly(drawn_assembly(BEFORE)) as before,
        Deployment.of_assembly(drawn_assembly(AFTER)) as after,
    ):
        report = simulate(before, Drawn(AFTER), sagas=150, releases=[before, after, after])
    report.require_kept()
    states = {state for _, state in report.coverage.states}
    assert {"S3", "S4"} <= states


def test_sagas_that_a_release_cannot_end_are_reported_with_the_reason(monkeypatch: pytest.MonkeyPatch) -> None:
    """A step behind the pivot is gone: those that have yet to apply it park again whenever they are resumed.

    An operator resumes each of them so often, and no more.
    """
    monkeypatch.setattr(operators, "_RESUMES", 12)
    workload = Drawn(AFTER)
    workload.patience = timedelta(hours=6)
    with (
        Deployment.of_assembly(drawn_assembly(AFTER)) as before,
        Deployment.of_assembly(drawn_assembly(BEFORE)) as after,
    ):
        report = simulate(before, workload, sagas=600, releases=[after])
    assert len(report.violated) == 1, "no saga was at the step when the release came"
    said = [finding.text for finding in report.violated[0].findings if "parked again" in finding.text]
    assert said
    assert all("12 times resumed" in text and "IncompatibleDefinition" in text for text in said)


def _keep(sagas: Sequence[DrawnSaga], releases: Sequence[DrawnRelease], count: int, *, back: bool = False) -> None:
    """Simulate requests while a release is deployed; with ``back``, the former one again, and this once more."""
    with (
        Deployment.of_assembly(drawn_assembly(sagas)) as before,
        Deployment.of_assembly(drawn_assembly(sagas, releases)) as after,
    ):
        order = [after, before, after] if back else [after]
        simulate(before, Drawn(sagas, releases=releases), sagas=count, releases=order).require_kept()


def test_sagas_keep_their_promise_under_drawn_releases() -> None:
    seeds = (0, 1, 2, 3, 4, 7, 8, 10)
    sagas = [drawn_saga(seed) for seed in seeds]
    releases = [drawn_release(saga, seed) for seed, saga in zip(seeds, sagas, strict=True)]
    assert {release.kind for release in releases} == set(KINDS)
    _keep(sagas, releases, 150)


def test_sagas_keep_their_promise_when_operations_move_there_and_back() -> None:
    sagas = [drawn_saga(seed) for seed in (31, 32, 33)]
    releases = [moved(saga) for saga in sagas]
    _keep(sagas, releases, 100, back=True)


def test_request_that_is_too_large_is_accepted_by_a_release_that_takes_it() -> None:
    sagas = [replace(BEFORE[0], body=body) for body in (SMALL, INLINE)]
    releases = [moved(saga) for saga in sagas]
    _keep(sagas, releases, 600, back=True)


@pytest.mark.parametrize(
    ("status", "begun", "again", "kept"),
    [
        *((status, True, [], True) for status in (400, 404, 413)),
        (413, False, [], False),
        (413, True, [413], False),
        *((status, True, [], False) for status in (403, 422)),
    ],
)
def test_only_what_another_release_may_accept_is_recorded_after_it_was_refused(
    status: int, begun: bool, again: list[int], kept: bool
) -> None:
    world: Any = SimpleNamespace(
        parts=SimpleNamespace(requests=[], open_refusals=()), rollout=SimpleNamespace(begun=begun)
    )
    intent = Intent(operation="pay", body={})
    fate = Fate(intent=intent, key="k", refused=[status], refused_again=again, accepted={"saga"})

    found = [one.violations for one in answers(world, [fate]) if one.name == "what was refused is not recorded"]

    assert [not violations for violations in found] == [kept]


def test_sagas_keep_their_promise_when_large_payloads_get_a_bucket() -> None:
    drawn = [saga for saga in map(drawn_saga, range(200)) if not saga.bucket and not reads_request(saga)]
    sagas = [saga for saga in drawn if saga.body == INLINE][:3]
    releases = [bucketed(saga) for saga in sagas]
    _keep(sagas, releases, 120)


@pytest.mark.parametrize("roles", [True, False])
@pytest.mark.parametrize("deleted", Deleted)
def test_sagas_keep_their_promise_when_machines_are_replaced(deleted: Deleted, roles: bool) -> None:
    sagas = [drawn_saga(seed) for seed in (41, 42, 43)]
    folders = Replacement(deleted=deleted, roles=roles).of([drawn_assembly(sagas)])
    with Deployment.of_assembly(folders[0]) as before, Deployment.of_assembly(folders[1]) as after:
        report = simulate(before, Drawn(sagas), sagas=100, releases=[after])
    report.require_kept()
    assert report.moved or deleted is Deleted.NONE


class Paying(Workload):
    """One payment, whose state machine is replaced while its step is at work."""

    def __init__(self, after: Deployment) -> None:
        self._after = after

    def prepare(self, world: World, random: Random) -> None:
        def look() -> None:
            if any(name.startswith("Step") for name in world.functions.running):
                world.rollout.add(self._after, itertools.repeat(0))
            else:
                world.kernel.after(SECOND // 1_000, look)

        look()

    def intent(self, number: int, random: Random) -> Intent:
        return Intent(operation="pay", body={"counter": "c"})

    def audit(self, world: World) -> Iterable[Invariant]:
        self.executions = [
            (one.machine.name.endswith("Again"), one.name.partition("-")[2].partition("-")[2], one.status, one.error)
            for one in world.machines.executions.values()
        ]
        self.effects = {item["id"]["S"]: int(item["n"]["N"]) for item in world.table(world.output("CounterTableName"))}
        return ()


def test_saga_of_a_deleted_machine_is_moved_and_pays_once(tmp_path: Path) -> None:
    """``tests/local/test_replaced_saga.py`` does the same on local AWS."""
    with (
        Deployment.of_assembly(synthesize(tmp_path / "first", generation=1, deleted=True)) as first,
        Deployment.of_assembly(synthesize(tmp_path / "again", generation=1, deleted=True, again=True)) as again,
    ):
        workload, slow = Paying(again), Climate(latency=2 * SECOND)
        run = simulate_once(first, workload, 1, sagas=1, coverage=Coverage(), climate=slow, begins=[0])
    assert not run.findings
    assert run.answers == [200]
    assert workload.executions == [
        (False, "", "FAILED", "States.Runtime"),
        (True, "r1", "SUCCEEDED", None),
        (True, "r1", "SUCCEEDED", None),
    ]
    assert workload.effects == {"c/Pay": 1}


class Renaming(Drawn):
    """Requests to sagas whose steps, or conditions, change, and whose operator deploys either again, in turn."""

    patience = timedelta(days=40)

    def __init__(
        self,
        sagas: Sequence[DrawnSaga],
        versions: Sequence[Deployment],
        change: Callable[[DrawnSaga], DrawnRelease] = renamed,
    ) -> None:
        super().__init__(sagas, releases=[change(saga) for saga in sagas])
        self._versions = versions

    def prepare(self, world: World, random: Random) -> None:
        super().prepare(world, random)
        for number in range(1, 38 * DAY // TURN):
            version = self._versions[number % 2]
            world.kernel.after(number * TURN, partial(world.rollout.add, version, itertools.repeat(SECOND)))


def test_renamed_steps_are_applied_under_one_name() -> None:
    sagas = [drawn_saga(seed) for seed in (11, 12, 13)]
    with (
        Deployment.of_assembly(drawn_assembly(sagas)) as before,
        Deployment.of_assembly(drawn_assembly(sagas, [renamed(saga) for saga in sagas])) as after,
    ):
        report = simulate(before, Renaming(sagas, [before, after]), sagas=120, releases=[after, before, after])
    report.require_kept()
    assert report.parked


def test_sagas_go_by_the_conditions_of_one_release() -> None:
    sagas = [drawn_saga(seed) for seed in (21, 22, 23)]
    with (
        Deployment.of_assembly(drawn_assembly(sagas)) as before,
        Deployment.of_assembly(drawn_assembly(sagas, [reconditioned(saga) for saga in sagas])) as after,
    ):
        workload = Renaming(sagas, [before, after], reconditioned)
        report = simulate(before, workload, sagas=300, releases=[after, before, after])
    report.require_kept()
    assert report.parked


class Turning(Drawn):
    """Requests to sagas whose aliases an operator turns to any version, at any time, and leaves between two."""

    def prepare(self, world: World, random: Random) -> None:
        super().prepare(world, random)
        for turn in range(20):
            world.kernel.after(turn * 300 * SECOND + random.randrange(300) * SECOND, partial(self._turn, world, random))

    def _turn(self, world: World, random: Random) -> None:
        for alias in list(world.machines.published.aliases):
            of = {"stateMachineArn": alias.rpartition(":")[0]}
            versions = world.call("stepfunctions", "ListStateMachineVersions", of)["stateMachineVersions"]
            arns = random.sample([one["stateMachineVersionArn"] for one in versions], min(2, len(versions)))
            weights = [100] if len(arns) == 1 else random.choice(([100, 0], [50, 50]))
            shared = zip(arns, weights, strict=True)
            routes = [{"stateMachineVersionArn": version, "weight": weight} for version, weight in shared]
            turned = {"stateMachineAliasArn": alias, "routingConfiguration": routes}
            world.call("stepfunctions", "UpdateStateMachineAlias", turned)

    def audit(self, world: World) -> Iterable[Invariant]:
        yield from super().audit(world)
        for execution in world.machines.executions.values():
            latest = world.machines.machines.get(execution.machine.arn)
            self.earlier += latest is not None and latest.definition != execution.machine.definition

    earlier = 0


@pytest.mark.parametrize("shift", ["ALL_AT_ONCE", "CANARY", "LINEAR"])
def test_sagas_keep_their_promise_while_aliases_move_and_turn_back(shift: str) -> None:
    sagas = [drawn_saga(seed) for seed in (51, 52, 53, 54)]
    releases = [added(saga, "both") for saga in sagas]
    with (
        Deployment.of_assembly(drawn_assembly(sagas, shift=shift)) as before,
        Deployment.of_assembly(drawn_assembly(sagas, releases, shift=shift)) as after,
    ):
        workload = Turning(sagas, releases=releases)
        report = simulate(before, workload, sagas=150, releases=[after, before, after])
    report.require_kept()
    assert workload.earlier > 20


def test_run_waits_for_its_releases() -> None:
    with (
        Deployment.of_assembly(drawn_assembly(BEFORE)) as before,
        Deployment.of_assembly(drawn_assembly(AFTER)) as after,
        running(before, CALM, "1", start=START, coverage=Coverage()) as world,
    ):
        world.rollout.plan(after, 600 * SECOND, itertools.repeat(0))
        assert not world.rollout.done
        world.kernel.run(until=START + 601 * SECOND)
        assert world.rollout.done
