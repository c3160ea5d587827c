"""The examples keep their promise under random faults and schedules."""

from __future__ import annotations

import functools
from collections.abc import Callable

import pytest

from constructs_lib.testing.simulator import Climate, Event, SimulationReport, simulate
from constructs_lib.testing.simulator.engine.kernel import SECOND
from constructs_lib.testing.simulator.run import START

from .conftest import Deployed
from .examples import EXAMPLES

pytestmark = pytest.mark.proof

SAGAS = {"funds_transfer": 400, "order_processing": 240, "agentic_payout": 300, "cart_fulfilment": 130, "wallet": 300}
"""Few: ``make simulate`` runs thousands."""


@pytest.fixture(scope="module")
def report_of(deployed: Deployed) -> Callable[[str], SimulationReport]:
    """Reports of examples by name, each of one simulation."""

    @functools.cache
    def report(name: str) -> SimulationReport:
        return simulate(deployed(name), EXAMPLES[name].workload(), sagas=SAGAS[name], seed=1_000)

    return report


@pytest.mark.parametrize("name", EXAMPLES)
def test_an_example_keeps_its_promise(name: str, report_of: Callable[[str], SimulationReport]) -> None:
    report = report_of(name)
    report.require_kept()
    assert report.sagas >= SAGAS[name]
    assert report.faults > report.sagas
    assert set(report.statuses) == {"COMPLETED", "FAILED"}
    # Most of what there is was reached: otherwise nothing was tried.
    assert len(report.coverage.states) >= 0.55 * len(report.coverage.known_states)


def test_events_are_accepted_while_their_secret_is_rotated(deployed: Deployed) -> None:
    rotations = Climate(events={Event.ROTATION: 1.0}, ends=START + 1_800 * SECOND)
    report = simulate(deployed("wallet"), EXAMPLES["wallet"].workload(), sagas=100, seed=1, climate=rotations)
    report.require_kept()
    assert report.faults >= 10


def test_run_ends_when_late_effects_are_compensated(deployed: Deployed) -> None:
    """The seed of a run that was quiet between a late outcome and the reconciler's next check."""
    simulate(deployed("cart_fulfilment"), EXAMPLES["cart_fulfilment"].workload(), sagas=10, seed=330617).require_kept()


def test_run_ends_when_outboxes_are_swept(deployed: Deployed) -> None:
    """The seed of a run in which the bus refused events until the publisher's next sweep."""
    simulate(deployed("cart_fulfilment"), EXAMPLES["cart_fulfilment"].workload(), sagas=10, seed=31358).require_kept()
