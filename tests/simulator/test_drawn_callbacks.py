"""Texts, jobs and waits of drawn sagas: all of it is in fact drawn, and the sagas keep their promise."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable
from random import Random
from typing import Any

import pytest

from constructs_lib.testing.invariants import Invariant
from constructs_lib.testing.simulator import Deployment, Intent, World, simulate
from constructs_lib.testing.simulator.checks.coverage import Coverage
from constructs_lib.testing.simulator.faults.climate import CALM
from constructs_lib.testing.simulator.report import SimulationReport
from constructs_lib.testing.simulator.run import simulate_once

from .drawn.assembly import drawn_assembly
from .drawn.sagas import SKIP, DrawnGroup, DrawnSaga, DrawnStep, items_of
from .drawn.texts import REFUSED
from .drawn.workload import AMOUNT, Drawn

pytestmark = pytest.mark.proof

BEFORE = DrawnStep(name="S1", kind="both", undo=True, route=SKIP)
PIVOT = DrawnStep(name="S4", kind="atomic", pivot=True)
JOBS = DrawnSaga(
    nodes=(
        BEFORE,
        DrawnGroup(
            name="G1",
            kind="map",
            branches=((DrawnStep(name="S2", kind="job", undo=True),),),
            items=items_of("S1"),
        ),
        DrawnStep(name="S3", kind="wait"),
        PIVOT,
        DrawnStep(name="J5", kind="job", refusable=False),
        DrawnStep(name="S6", kind="notify"),
    ),
    announced=True,
)


class Counting(Drawn):
    """Requests to one saga; counts what is in its tables at the end of each run."""

    def __init__(self, *given: Any, **options: Any) -> None:
        super().__init__(*given, **options)
        self.found: Counter[str] = Counter()

    def audit(self, world: World) -> Iterable[Invariant]:
        for row in world.table(world.output("Log0")):
            if row["step"]["S"][0] in "WJ" and row["status"]["S"] in ("DONE", "RECORDED"):
                self.found[f"{row['step']['S'][0]} {row['status']['S']} behind the pivot"] += 1
            if len(row.get("output", {"S": ""})["S"]) > 19_999:
                self.found["large outputs"] += 1
            if set(REFUSED) & set(row.get("output", {"S": ""})["S"]):
                self.found["outputs with refused characters"] += 1
        for name in world.db.tables:
            for row in world.table(name) if "Tokens" in name else ():
                self.found[f"{row['status']['S']} in the token table"] += 1
                self.found["heartbeats"] += "heartbeat_at" in row
                self.found["failed dispatches"] += "failed_dispatches" in row
        for parkings in world.parked_for.values():
            self.found.update(f"parked: {parking.error}" for parking in parkings)
        for failure in map(json.loads, world.failures.values()):
            self.found[failure["error"]] += 1
            self.found["long details"] += len(failure["detail"]) >= 1_000
        return super().audit(world)


def counted(saga: DrawnSaga, sagas: int) -> tuple[SimulationReport, Counter[str]]:
    """Simulate a saga, which must keep its promise."""
    workload = Counting([saga], only=[0])
    with Deployment.of_assembly(drawn_assembly([saga])) as deployment:
        report = simulate(deployment, workload, sagas=sagas)
    report.require_kept()
    assert set(report.statuses) == {"COMPLETED", "FAILED"}
    return report, workload.found


def test_texts_that_a_queue_refuses_keep_no_saga_from_its_end() -> None:
    _, found = counted(JOBS, 200)
    assert found["outputs with refused characters"] > 10
    assert found["long details"] > 0


BEHIND = DrawnSaga(
    nodes=(
        DrawnStep(name="S1", kind="job", undo=True),
        DrawnStep(name="S2", kind="atomic", pivot=True),
        DrawnStep(name="W3", kind="wait", refusable=False),
        DrawnStep(name="W4", kind="wait", refusable=False, route=SKIP),
        DrawnStep(name="J5", kind="job", refusable=False),
        DrawnGroup(name="G1", kind="map", branches=((DrawnStep(name="W6", kind="wait", refusable=False),),)),
        DrawnStep(name="S7", kind="both", refusable=False),
    )
)


def test_what_a_provider_may_do_with_a_job_keeps_the_promise() -> None:
    _, found = counted(BEHIND, 120)
    assert found["ALIAS in the token table"] > 20
    assert found["EARLY in the token table"] > 0
    assert found["heartbeats"] > 10
    assert found["failed dispatches"] > 0
    assert found["parked: JobStillPending"] > 0
    assert found["parked: ManualResolutionRequired"] > 0
    assert found["Declined"] > 0
    assert found["large outputs"] > 5
    assert found["W RECORDED behind the pivot"] > 100
    assert found["J DONE behind the pivot"] > 20


WAITING_ITEMS = DrawnSaga(
    nodes=(
        DrawnGroup(
            name="G1",
            kind="map",
            branches=((DrawnStep(name="S1", kind="wait"), DrawnStep(name="S2", kind="atomic", undo=True)),),
        ),
        PIVOT,
    )
)


class Invalid(Drawn):
    """Half of the requests have an item whose key no item may have."""

    def intent(self, number: int, random: Random) -> Intent:
        intent = super().intent(number, random)
        if number % 2:
            intent.body["items"].append({"sku": "a b", "amount": AMOUNT})
        return intent


def test_a_request_with_a_key_that_no_item_may_have_is_taken_where_items_wait() -> None:
    workload = Invalid([WAITING_ITEMS], only=[0])
    with Deployment.of_assembly(drawn_assembly([WAITING_ITEMS])) as deployment:
        run = simulate_once(deployment, workload, 1, sagas=10, coverage=Coverage(), climate=CALM, traced=True)
    assert not run.findings
    assert any("POST" in line and "-> 202" in line for line in run.trace)
    assert not any("-> 502" in line for line in run.trace)
