"""Texts, jobs and waits of drawn sagas: all of it is in fact drawn, and the sagas keep their promise."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from typing import Any

import pytest

from constructs_lib.testing.invariants import Invariant
from constructs_lib.testing.simulator import Deployment, World, simulate
from constructs_lib.testing.simulator.report import SimulationReport

from .drawn.assembly import drawn_assembly
from .drawn.sagas import SKIP, DrawnGroup, DrawnSaga, DrawnStep, items_of
from .drawn.texts import REFUSED
from .drawn.workload import Drawn

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
            if set(REFUSED) & set(row.get("output", {"S": ""})["S"]):
                self.found["outputs with refused characters"] += 1
            if len(row.get("detail", {"S": ""})["S"]) == 1_000:
                self.found["long details"] += 1
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
    _, found = counted(JOBS, 120)
    assert found["outputs with refused characters"] > 10
    assert found["long details"] > 0
