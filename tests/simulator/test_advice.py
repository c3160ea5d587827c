"""Operators do what ``cdk-sagas inspect`` advises, as several, slowly, again, or in part: sagas keep their promise."""

from __future__ import annotations

from dataclasses import replace
from random import Random
from typing import Final
from unittest import mock

import pytest

from constructs_lib.testing.simulator import Deployment, Intent, SimulationReport, simulate
from saga_runtime.recovery.resolution import Subject

from .drawn.advised import Advised, advised
from .drawn.assembly import drawn_assembly
from .drawn.sagas import ROUTES, SKIP, DrawnGroup, DrawnSaga, DrawnStep, way_by

pytestmark = pytest.mark.proof

SKIPPING = DrawnSaga(
    nodes=(
        DrawnStep(name="S1", kind="both", pivot=True),
        DrawnStep(name="S2", kind="both", route=SKIP, refusable=False),
        *(DrawnStep(name=f"S{n}", kind="asked", when=way_by("S2", route)) for n, route in enumerate(ROUTES, start=3)),
    )
)
"""Behind its pivot it may be parked over a step that follows on a skipped one."""
_COMPENSATING = DrawnSaga(
    nodes=(
        DrawnStep(name="S1", kind="atomic", undo=True),
        DrawnStep(name="S2", kind="job", undo=True),
        DrawnGroup(name="G1", kind="map", branches=((DrawnStep(name="S3", kind="keyed", undo=True),),)),
        DrawnStep(name="S4", kind="both", pivot=True),
        DrawnGroup(name="G2", kind="map", branches=((DrawnStep(name="S5", kind="asked"),),)),
        DrawnStep(name="S6", kind="job", refusable=False),
    )
)


_CASES: Final = 4
"""Kinds of advice that are followed, at least."""


class Skipped(Advised):
    """Requests to ``SKIPPING``, of each of which a step is skipped, for a reason that is drawn in each call."""

    def intent(self, number: int, random: Random) -> Intent:
        intent = super().intent(number, random)
        behave = {**intent.body["behave"], "S2": "route"}
        return replace(intent, body={**intent.body, "behave": behave}, other_body=None)


def _simulated(saga: DrawnSaga, sagas: int, of: type[Advised] = Advised) -> tuple[Advised, SimulationReport]:
    with Deployment.of_assembly(drawn_assembly([saga])) as deployment, advised():
        workload = of([saga], only=[0])
        return workload, simulate(deployment, workload, sagas=sagas)


def test_who_does_what_is_advised_keeps_the_promise() -> None:
    workload, report = _simulated(_COMPENSATING, 60)

    report.require_kept()
    executed = {case for case in workload.done if ":" not in case} - {"hold", "release"}
    assert len(executed) >= _CASES, workload.done


def test_who_decides_behind_a_skipped_step_keeps_the_promise() -> None:
    workload, report = _simulated(SKIPPING, 80, Skipped)

    report.require_kept()
    assert workload.done["fixed, call it again"] > 0


def test_advice_to_call_a_skipped_step_again_is_found() -> None:
    never = mock.PropertyMock(return_value=False)
    with (
        mock.patch.object(Subject, "is_skipped", never),
        mock.patch("constructs_lib.cli.saga.inspection._is_skipped", return_value=False),
    ):
        _, report = _simulated(SKIPPING, 200, Skipped)

    assert not report.kept
