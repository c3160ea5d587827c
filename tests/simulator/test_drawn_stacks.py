"""Drawn sagas over two stacks, which share tables, and whose provider sends each report to the receivers of both."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from typing import Any, Final

import pytest

from constructs_lib.testing.invariants import Invariant
from constructs_lib.testing.simulator import Climate, Deployment, Event, World, simulate
from constructs_lib.testing.simulator.faults.climate import HOUR
from constructs_lib.testing.simulator.run import START

from .drawn.assembly import drawn_assembly
from .drawn.sagas import DrawnSaga, DrawnStep, drawn_saga
from .drawn.workload import Drawn
from .reverted.__main__ import look_for
from .reverted.reverts import REVERTS

ALIKE: Final = DrawnSaga(
    nodes=(
        DrawnStep(name="S1", kind="job", undo=True),
        DrawnStep(name="S2", kind="wait"),
        DrawnStep(name="S3", kind="atomic", pivot=True),
        DrawnStep(name="J4", kind="job", refusable=False),
    )
)
"""A saga of which every stack has two: its steps have the same names, and its requests are in one table."""
OUTCOMES: Final = Climate(
    events={Event.PROVIDER_EARLY: 0.7, Event.PROVIDER_CONTRADICTS: 0.4, Event.PROVIDER_TWICE: 0.3}, ends=START + HOUR
)


class Counting(Drawn):
    """Requests to drawn sagas; notes the logs that have rows."""

    def __init__(self, *given: Any, **options: Any) -> None:
        super().__init__(*given, **options)
        self.logs: set[str] = set()

    def audit(self, world: World) -> Iterable[Invariant]:
        self.logs |= {log for log in world.parts.logs if world.table(log)}
        return super().audit(world)


@pytest.mark.parametrize(
    "tokens", [True, pytest.param(False, marks=pytest.mark.proof)], ids=["one token table", "each its own"]
)
def test_outcome_that_every_stack_hears_of_reaches_its_saga(tokens: bool) -> None:
    sagas = [ALIKE] * 4
    workload = Counting(sagas)
    with Deployment.of_assembly(drawn_assembly(sagas, stacks=2, tokens=tokens)) as deployment:
        report = simulate(deployment, workload, sagas=40, climate=OUTCOMES)
    report.require_kept()
    assert {log.partition("-")[0] for log in workload.logs} == {"Drawn", "Drawn1"}
    assert len(workload.logs) == len(sagas)


@pytest.mark.proof
def test_drawn_sagas_of_two_stacks_keep_their_promise() -> None:
    sagas = [drawn_saga(seed) for seed in range(6)]
    with Deployment.of_assembly(drawn_assembly(sagas, stacks=2, tokens=True)) as deployment:
        simulate(deployment, Drawn(sagas), sagas=160).require_kept()


@pytest.mark.proof
def test_defect_of_sagas_that_share_a_request_table_is_found_across_stacks() -> None:
    revert = replace(REVERTS["early-to-the-first-saga"], stack="divided")
    found = look_for(revert, seed=20203, seconds=60, shrink=False)

    assert found["found"]
    assert found["with the fix"] is False
