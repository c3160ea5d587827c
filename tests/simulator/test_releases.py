"""Releases are deployed while sagas run: each keeps its promise, under the version that it meets."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from datetime import timedelta
from functools import partial
from random import Random

from constructs_lib.testing.simulator import Deployment, World, simulate
from constructs_lib.testing.simulator.checks.coverage import Coverage
from constructs_lib.testing.simulator.engine.kernel import SECOND
from constructs_lib.testing.simulator.faults.climate import CALM
from constructs_lib.testing.simulator.run import START
from constructs_lib.testing.simulator.world import running

from .drawn.assembly import drawn_assembly
from .drawn.releases import KINDS, DrawnRelease, drawn_release, reconditioned, renamed
from .drawn.sagas import DrawnSaga, DrawnStep, drawn_saga
from .drawn.workload import Drawn
from .support import add_machine, blueprint, execute, function_arn, invoke, output_of

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


def test_sagas_keep_their_promise_under_releases() -> None:
    with (
        Deployment.of_assembly(drawn_assembly(BEFORE)) as before,
        Deployment.of_assembly(drawn_assembly(AFTER)) as after,
    ):
        report = simulate(before, Drawn(AFTER), sagas=150, releases=[before, after, after])
    report.require_kept()
    states = {state for _, state in report.coverage.states}
    assert {"S3", "S4"} <= states


def test_sagas_keep_their_promise_under_drawn_releases() -> None:
    sagas = [drawn_saga(seed) for seed in range(6)]
    releases = [drawn_release(saga, seed) for seed, saga in enumerate(sagas)]
    assert {release.kind for release in releases} == set(KINDS)
    with (
        Deployment.of_assembly(drawn_assembly(sagas)) as before,
        Deployment.of_assembly(drawn_assembly(sagas, releases)) as after,
    ):
        report = simulate(before, Drawn(sagas, releases=releases), sagas=150, releases=[after])
    report.require_kept()


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
        report = simulate(before, Renaming(sagas, [before, after]), sagas=60, releases=[after, before, after])
    report.require_kept()
    assert report.parked


def test_sagas_go_by_the_conditions_of_one_release() -> None:
    sagas = [drawn_saga(seed) for seed in (21, 22, 23)]
    with (
        Deployment.of_assembly(drawn_assembly(sagas)) as before,
        Deployment.of_assembly(drawn_assembly(sagas, [reconditioned(saga) for saga in sagas])) as after,
    ):
        workload = Renaming(sagas, [before, after], reconditioned)
        report = simulate(before, workload, sagas=60, releases=[after, before, after])
    report.require_kept()
    assert report.parked


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
