"""Sagas that were parked although a machine could decide them are findings."""

from __future__ import annotations

from collections.abc import Iterable
from types import SimpleNamespace
from typing import Any, Final, cast

import pytest

from constructs_lib.testing.invariants import Invariant
from constructs_lib.testing.simulator import Climate, Event, SimulationReport, World, simulate
from constructs_lib.testing.simulator.world import Parking
from saga_runtime.protocol import RESULT_FAILED, ErrorName, StepStatus
from saga_runtime.recovery.decisions import ParkedFor
from saga_runtime.steps.external_call import nobody_knows, undecided
from saga_runtime.steps.verdict import Unknown

from .conftest import Deployed
from .workloads.carts import Carts
from .workloads.orders import Orders
from .workloads.parking import audit_parking

_SAGA: Final = f"{'a' * 26}-mdwqr4j1"
_STEP: Final = cast("Any", SimpleNamespace(step="ProcessPayment"))
_INTENT, _COMPENSATING = StepStatus.INTENT, StepStatus.COMPENSATING


class _Parked(Orders):
    """Orders, and another saga that was parked."""

    def __init__(
        self, error: str, detail: str = "", status: StepStatus = _INTENT, *, undisturbed: bool = False
    ) -> None:
        self._given = (error, detail, status, undisturbed)

    def has_sent(self, world: World) -> bool:
        error, detail, status, undisturbed = self._given
        in_doubt = ((world.output("LogTableName"), "ProcessPayment", status),)
        parking = Parking(parked_at=1, error=error, detail=detail, in_doubt=in_doubt, undisturbed=undisturbed)
        world.parked_for[_SAGA] = [parking]
        return super().has_sent(world)

    def audit(self, world: World) -> Iterable[Invariant]:
        return ()


def _told(report: SimulationReport) -> list[str]:
    return [str(finding) for run in report.violated for finding in run.findings]


@pytest.mark.parametrize(
    ("workload", "told"),
    [
        (_Parked(ErrorName.UNDECIDED, undecided(_STEP).message), "the provider of step ProcessPayment can be asked"),
        (
            _Parked(ErrorName.UNDECIDED, undecided(_STEP).message, _COMPENSATING),
            "the provider of step ProcessPayment can be asked",
        ),
        (_Parked(ParkedFor.RECOVERIES_EXHAUSTED, undisturbed=True), "its last recovery began after the last fault"),
        (_Parked(ParkedFor.OWNER_SUCCEEDED), "its owner had not settled it"),
        (_Parked(RESULT_FAILED), "all its steps are done; correct the saga's result"),
    ],
    ids=["verify", "verify_undo", "recoveries", "settled", "result"],
)
def test_saga_that_a_machine_could_decide_must_not_be_parked(workload: _Parked, told: str, deployed: Deployed) -> None:
    (found,) = _told(simulate(deployed("order_processing"), workload, sagas=5, climate=Climate()))
    assert found.startswith(f"sagas are parked for a reason: saga {_SAGA} was parked (")
    assert found.endswith(f"), though {told}")


@pytest.mark.parametrize(
    ("workload", "events"),
    [
        (_Parked(ErrorName.UNDECIDED, nobody_knows(_STEP, Unknown()).message), {}),
        (_Parked(ParkedFor.RECOVERIES_EXHAUSTED), {}),
        (_Parked(ParkedFor.OWNER_SUCCEEDED), {Event.DESCRIBE_BEHIND: 0.0}),
        (_Parked("StepInDoubt", "timed out"), {}),
    ],
    ids=["unknown", "outage", "behind", "always"],
)
def test_saga_that_no_machine_could_decide_may_be_parked(
    workload: _Parked, events: dict[Event, float], deployed: Deployed
) -> None:
    simulate(deployed("order_processing"), workload, sagas=5, climate=Climate(events=events)).require_kept()


@pytest.mark.parametrize(("asked", "status"), [("verify", _INTENT), ("verify_undo", _COMPENSATING)])
def test_provider_that_cannot_be_asked_is_a_reason(asked: str, status: StepStatus, deployed: Deployed) -> None:
    deployment = deployed("order_processing")
    workload = _Parked(ErrorName.UNDECIDED, undecided(_STEP).message, status)
    providers = [
        payload["provider"]
        for machine in deployment.blueprint.machines.values()
        for payload in _payloads_of(machine.definition)
        if "provider" in payload
    ]
    assert providers
    for provider in providers:
        provider[asked] = False
    try:
        # The function compares both sides, and refuses to run.
        report = simulate(deployment, workload, sagas=1, climate=Climate())
    finally:
        for provider in providers:
            provider[asked] = True
    assert not [told for told in _told(report) if "can be asked" in told]


def _payloads_of(value: Any) -> Iterable[dict[str, Any]]:
    """Payloads of every function that a definition calls."""
    if isinstance(value, dict):
        if isinstance(value.get("Payload"), dict):
            yield value["Payload"]
        for inner in value.values():
            yield from _payloads_of(inner)
    elif isinstance(value, list):
        for inner in value:
            yield from _payloads_of(inner)


class _Seen(Carts):
    """Carts whose parkings are kept."""

    def audit(self, world: World) -> Iterable[Invariant]:
        self.parkings = [parking for parkings in world.parked_for.values() for parking in parkings]
        self.strict = audit_parking(world)
        return super().audit(world)


def test_parking_by_an_owner_that_began_after_the_last_fault_is_undisturbed(deployed: Deployed) -> None:
    """The label of a parcel on its way cannot be voided: the saga is parked twice amid faults, and once without any."""
    workload = _Seen()
    simulate(deployed("cart_fulfilment"), workload, sagas=10, seed=82).require_kept()
    assert [parking.undisturbed for parking in workload.parkings] == [False, False, True]
    assert {parking.error for parking in workload.parkings} == {"StepInDoubt"}
    assert len(workload.strict.violations) == 1
