"""Sagas that are drawn keep their promise; one that does not shrinks to what a person can follow."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from functools import partial
from random import Random

import pytest

from constructs_lib.testing.invariants import Invariant
from constructs_lib.testing.simulator import Climate, Deployment, Event, Intent, World, simulate
from constructs_lib.testing.simulator.aws.dynamodb import Condition, Table, clauses_of, without
from constructs_lib.testing.simulator.aws.dynamodb.trees import Always
from constructs_lib.testing.simulator.faults.climate import HOUR
from constructs_lib.testing.simulator.run import START
from saga_runtime.idempotency.record import RESERVE

from .drawn.assembly import drawn_assembly
from .drawn.releases import DrawnRelease
from .drawn.sagas import (
    JOB_ROUTES,
    LETTERS,
    MUTATING,
    PHASES,
    PROVIDERS,
    SKIP,
    STOCK,
    DrawnGroup,
    DrawnSaga,
    DrawnStep,
    drawn_saga,
    items_of,
    needed_jobs,
    smaller,
    source_of,
    way_by,
)
from .drawn.shrink import Setting, shrunk
from .drawn.workload import Drawn, direct_intent

pytestmark = pytest.mark.proof

SAGAS = [drawn_saga(seed) for seed in range(4)]
"""Few: the synth takes longer than all runs."""
ONE = DrawnSaga(nodes=(DrawnStep(name="S1", kind="atomic", pivot=True),))
KINDS = {
    "atomic",
    "asked",
    "keyed",
    "both",
    "dynamodb",
    "job",
    "read",
    "look up",
    "store",
    "wait",
    "notify",
    "event",
    "pause",
    "token",
}
GROUPS = {"parallel", "map", "express", "child"}


@pytest.fixture(scope="module")
def deployment() -> Iterator[Deployment]:
    with Deployment.of_assembly(drawn_assembly(SAGAS)) as made:
        yield made


def test_drawn_sagas_keep_their_promise(deployment: Deployment) -> None:
    report = simulate(deployment, Drawn(SAGAS), sagas=160)
    report.require_kept()
    assert report.sagas == 160
    assert report.faults > 0


def test_what_follows_a_skipped_step_keeps_its_promise() -> None:
    charged = DrawnStep(name="S2", kind="keyed", undo=True)
    job = DrawnStep(name="S3", kind="job", undo=True, route=SKIP)
    saga = DrawnSaga(
        nodes=(
            DrawnStep(name="S1", kind="both", undo=True, route=SKIP),
            DrawnGroup(name="G1", kind="map", branches=((charged,),), items=items_of("S1")),
            job,
            DrawnStep(name="S4", kind="asked", undo=True, when=way_by("S3", *JOB_ROUTES)),
            DrawnStep(name="S5", kind="atomic", undo=True),
            DrawnStep(name="S6", kind="both", pivot=True),
        )
    )
    with Deployment.of_assembly(drawn_assembly([saga])) as deployment:
        simulate(deployment, Drawn([saga], only=[0]), sagas=150).require_kept()


def test_jobs_behind_a_pivot_keep_their_promise() -> None:
    saga = DrawnSaga(
        nodes=(
            DrawnStep(name="S1", kind="both", undo=True),
            DrawnStep(name="S2", kind="atomic", pivot=True),
            DrawnStep(name="J3", kind="job", undo=True, route=SKIP, refusable=False),
            DrawnGroup(
                name="G1",
                kind="parallel",
                branches=(
                    (DrawnStep(name="J4", kind="job", refusable=False),),
                    (DrawnStep(name="J5", kind="job", undo=True, refusable=False),),
                ),
            ),
        )
    )
    with Deployment.of_assembly(drawn_assembly([saga])) as deployment:
        simulate(deployment, Drawn([saga], only=[0]), sagas=150).require_kept()


def test_saga_continues_with_what_its_provider_refused_first() -> None:
    saga = DrawnSaga(
        nodes=(
            DrawnStep(name="S1", kind="dynamodb", pivot=True),
            DrawnStep(name="J2", kind="job", undo=True, refusable=False),
            DrawnStep(name="J3", kind="job", refusable=False),
        )
    )
    climate = Climate(events={Event.PROVIDER_CONTRADICTS: 0.7}, ends=START + HOUR)
    with Deployment.of_assembly(drawn_assembly([saga])) as deployment:
        report = simulate(deployment, Drawn([saga], only=[0]), sagas=60, climate=climate)
    report.require_kept()
    assert set(report.statuses) == {"COMPLETED"}
    assert report.parked > report.statuses["COMPLETED"] / 2


POSTING = (
    DrawnSaga(
        nodes=(
            DrawnStep(name="H0", kind="atomic", undo=True, posts="hold"),
            DrawnStep(name="D1", kind="atomic", undo=True, posts="debit"),
            DrawnStep(name="S1", kind="dynamodb", undo=True, posts=STOCK),
            DrawnStep(name="K2", kind="atomic", pivot=True, posts="capture"),
            DrawnStep(name="C3", kind="atomic", refusable=False, posts="credit"),
            DrawnStep(name="S4", kind="event"),
        )
    ),
    DrawnSaga(
        nodes=(
            DrawnStep(name="D1", kind="atomic", undo=True, posts="debit"),
            DrawnStep(name="T2", kind="atomic", pivot=True, when="$request.a", posts="transfer"),
            DrawnStep(name="B3", kind="atomic", undo=True, refusable=False, posts="book"),
            DrawnStep(name="P4", kind="atomic", pivot=True, when="$not($request.a)", posts="pay out"),
        )
    ),
)


def test_postings_and_events_keep_their_promise() -> None:
    with Deployment.of_assembly(drawn_assembly(POSTING)) as deployment:
        report = simulate(deployment, Drawn(POSTING, only=[0, 1]), sagas=100)
    report.require_kept()
    assert min(report.checked[name] for name in ("books and rows agree", "events are consumed once")) > 100


class _Forgetful(Drawn):
    """Requests to sagas, on a database that takes an item of a table whatever it holds."""

    table = ""

    def prepare(self, world: World, random: Random) -> None:
        super().prepare(world, random)
        world.db.rewrite = lambda table, _, condition: Always() if self.table in table.name else condition


@pytest.mark.parametrize(
    ("table", "kind"),
    [
        ("Consumed", "events are consumed once"),
        ("Ledger", "balances equal their entries"),
        ("Effects", "what is in stock was not taken"),
    ],
)
def test_postings_and_events_without_their_conditions_are_found(table: str, kind: str) -> None:
    workload = _Forgetful(POSTING, only=[0, 1])
    workload.table = table
    with Deployment.of_assembly(drawn_assembly(POSTING)) as deployment:
        report = simulate(deployment, workload, sagas=200)
    assert kind in {finding.kind for run in report.violated for finding in run.findings}


class _Early(Drawn):
    """Requests to sagas whose waits have an outcome before an earlier step is done."""

    def audit(self, world: World) -> Iterable[Invariant]:
        rows = {(row["saga_id"]["S"], row["step"]["S"]): row for row in world.table(world.output("Log0"))}
        found = [rows[saga_id, "S2"] for saga_id, step in rows if step == "S1" and (saga_id, "S2") in rows]
        for wait in found:
            self.early += int(wait["updated_at"]["N"]) < int(rows[wait["saga_id"]["S"], "S1"]["updated_at"]["N"])
        return super().audit(world)

    early = 0


@pytest.mark.parametrize("alike", [False, True], ids=["of one saga", "of two sagas with such a step"])
def test_outcome_that_comes_before_its_wait_is_delivered(alike: bool) -> None:
    saga = DrawnSaga(
        nodes=(
            DrawnStep(name="S1", kind="atomic", undo=True),
            DrawnStep(name="S2", kind="wait"),
            DrawnStep(name="S3", kind="atomic", pivot=True),
        )
    )
    sagas = [saga, saga] if alike else [saga]
    workload = _Early(sagas, only=[0])
    climate = Climate(events={Event.PROVIDER_EARLY: 1.0}, ends=START + HOUR)
    with Deployment.of_assembly(drawn_assembly(sagas)) as deployment:
        report = simulate(deployment, workload, sagas=40, climate=climate)
    report.require_kept()
    assert set(report.statuses) == {"COMPLETED", "FAILED"}
    assert workload.early > 0


class _Direct(Drawn):
    """Requests to the direct operation."""

    def intent(self, number: int, random: Random) -> Intent:
        return direct_intent(random)


class _Unconditional(_Direct):
    """The same, on a database that takes a record for free whatever it holds."""

    def prepare(self, world: World, random: Random) -> None:
        super().prepare(world, random)
        world.db.rewrite = lambda _table, text, condition: Always() if text == RESERVE else condition


def test_direct_operation_is_applied_once(deployment: Deployment) -> None:
    report = simulate(deployment, _Direct(SAGAS), sagas=500)
    report.require_kept()
    assert set(report.statuses) == {"COMPLETED", "FAILED"}
    assert {trouble for where, trouble in report.coverage.faults if "Direct" in where} >= {"kill after", "lose answer"}


def test_direct_operation_without_its_condition_is_found(deployment: Deployment) -> None:
    report = simulate(deployment, _Unconditional(SAGAS), sagas=200)
    assert not report.kept


def test_everything_is_drawn() -> None:
    sagas = [drawn_saga(seed) for seed in range(500)]
    assert {step.kind for saga in sagas for step in saga.steps} == KINDS
    assert {node.kind for saga in sagas for node in saga.nodes if isinstance(node, DrawnGroup)} == GROUPS
    assert {sum(step.pivot for step in saga.steps) for saga in sagas} == {0, 1, 2}
    assert {step.route for saga in sagas for step in saga.steps} == {None, "notify", "continue"}
    assert {step.kind for saga in sagas for step in saga.steps if step.route == SKIP} >= {"atomic", "job", "wait"}
    behind = {step.route for saga in sagas for step in saga.steps if step.kind == "wait" and not step.refusable}
    assert behind == {None, SKIP}
    needed = [step for saga in sagas for step in saga.steps if step.name in needed_jobs(saga)]
    assert {step.undo for step in needed} == {False, True}
    assert not any(saga.inline for saga in sagas if any(needed_jobs(saga)))
    assert {source_of(node) is None for saga in sagas for node in saga.nodes if isinstance(node, DrawnGroup)} == {
        False,
        True,
    }
    assert {saga.inline for saga in sagas} == {False, True}
    assert {step.posts for saga in sagas for step in saga.steps} == {"", STOCK, *LETTERS}
    assert {step.kind for saga in sagas for step in saga.steps if step.hosted} == {*PROVIDERS}
    groups = [node for saga in sagas for node in saga.nodes if isinstance(node, DrawnGroup)]
    assert {node.short for node in groups if node.kind in PHASES} == {False, True}
    assert {node.max_items for node in groups if node.kind == "map"} == {1, 2, 3, 12}
    for saga in sagas:
        assert any(step.kind in MUTATING for step in saga.steps)
    assert drawn_saga(7) == drawn_saga(7)


def test_shrinking_ends() -> None:
    for saga in SAGAS:
        left = saga
        for _ in range(100):
            left = next(smaller(left), left)
        assert next(smaller(left), None) is None
        assert len(list(left.steps)) == 1


def _weakened(world: World) -> None:
    """Let a row be written that is there already: its step happens again."""

    def rewrite(table: Table, _text: str, condition: Condition) -> Condition:
        if "Log" in table.name:
            for clause in list(clauses_of(condition)):
                if str(clause) == "attribute_not_exists(#saga_id)":
                    condition = without(condition, clause)
        return condition

    world.db.rewrite = rewrite


def test_a_failure_shrinks_to_a_readable_one() -> None:
    failure = shrunk(ONE, 0, 10, setting=Setting(prepare=_weakened), steps=30_000)
    assert failure is not None
    assert failure.saga == ONE
    steps, clients, _ = failure.size
    assert steps == 1
    assert clients < 10
    printed = str(failure)
    assert "saga:\n  S1 (atomic, PIVOT)\n" in printed
    assert f"{clients} clients; faults: " in printed
    assert "dynamodb:TransactWriteItems" in printed
    assert "rows and effects agree" in printed


def _weakened_by_a_release(world: World) -> None:
    """The same, once a release is deployed."""
    plan = world.rollout.plan

    def planned(release: Deployment, moment: int, pauses: Iterator[int], *, failing: float | None) -> None:
        world.kernel.after(moment, partial(_weakened, world))
        plan(release, moment, pauses, failing=failing)

    vars(world.rollout)["plan"] = planned


def test_a_failure_of_a_release_shrinks_to_a_readable_one() -> None:
    release = DrawnRelease(kind="stricter", saga=ONE)
    failure = shrunk(ONE, 0, 10, setting=Setting(prepare=_weakened_by_a_release), release=release, steps=30_000)
    assert failure is not None
    assert failure.release == release
    assert failure.clients < 10
    assert "saga:\n  S1 (atomic, PIVOT)\nrelease: stricter\n" in str(failure)


def test_a_saga_that_keeps_its_promise_does_not_shrink() -> None:
    assert shrunk(ONE, 0, 3, steps=20_000) is None
