"""A step that is renamed while its function runs: a recovery waits until the attempt is dead, and verifies."""

from __future__ import annotations

import dataclasses
from typing import Any

import pytest

from constructs_lib.saga.asl import SagaPlan
from constructs_lib.saga.asl.recovery import NOTE_DEFINITION
from constructs_lib.saga.description.description import SagaDescription, StepDescription
from constructs_lib.saga.validation.budget import outlived_with_phases
from tests.constructs.support.groups import plan
from tests.constructs.support.plans import step
from tests.constructs.support.simulation import Moment, Simulation, Stop

OUTLIVED = 1_260
CREDIT = step("Credit", pivot=True)


def _recovered(began: SagaPlan, *deployed: SagaPlan, stops: dict[int, Moment], without: str = "") -> Simulation:
    """A saga that is stopped at calls, and recovered under other definitions, of which a state may do nothing."""
    at = frozenset(Stop(call=call, moment=moment) for call, moment in stops.items())

    def changed(definition: dict[str, Any]) -> dict[str, Any]:
        states = definition["States"]
        if without in states:
            definition = definition | {"States": states | {without: {"Type": "Pass", "Next": states[without]["Next"]}}}
        return definition

    return Simulation(plan=began, deployed=deployed, request={}, stops=at, change=changed).run()


def _definitions(earlier: list[str], later: list[str], *, outlived: int = OUTLIVED) -> tuple[SagaPlan, SagaPlan]:
    """Two definitions of steps in front of, on, and behind the pivot, which is called Credit."""

    def made(names: list[str], fingerprint: str) -> SagaPlan:
        at = names.index("Credit")
        nodes = [CREDIT if n == "Credit" else step(n, undo=index < at) for index, n in enumerate(names)]
        return plan(*nodes, fingerprint=fingerprint, outlived_seconds=outlived)

    return made(earlier, "earlier"), made(later, "later")


BEFORE = (["Debit", "Credit"], ["Take", "Credit"])
BEHIND = (["Credit", "Ship"], ["Credit", "Send"])


@pytest.mark.parametrize("names", [BEFORE, BEHIND], ids=["before the pivot", "behind it"])
def test_a_renamed_step_that_is_applied_during_the_wait_parks_the_saga(names: tuple[list[str], list[str]]) -> None:
    saga = _recovered(*_definitions(*names), stops={1 if names is BEFORE else 2: Moment.LATE})

    assert saga.parked
    assert saga.told[0]["parked_reason"]["error"] == "IncompatibleDefinition"
    assert sum(saga.effects[name] for name in ("Debit", "Take", "Ship", "Send")) == 1


def test_a_renamed_step_that_was_never_called_does_not_park_the_saga() -> None:
    saga = _recovered(*_definitions(*BEFORE), stops={1: Moment.BEFORE})

    assert (saga.settled, +saga.effects) == ("FAILED", {})


def test_without_waiting_a_failed_saga_has_an_effect() -> None:
    saga = _recovered(*_definitions(*BEFORE, outlived=0), stops={1: Moment.LATE})

    assert (saga.settled, saga.effects["Debit"]) == ("FAILED", 1)


def test_without_the_wait_a_renamed_step_is_applied_under_both_names() -> None:
    saga = _recovered(*_definitions(*BEHIND, outlived=0), stops={2: Moment.LATE})

    assert (saga.settled, saga.effects["Ship"], saga.effects["Send"]) == ("COMPLETED", 1, 1)


def _happened(saga: Simulation) -> int:
    return sum(saga.effects[name] for name in ("Debit", "Take", "Ship", "Send"))


@pytest.mark.parametrize("moment", Moment)
@pytest.mark.parametrize("names", [BEFORE, BEHIND], ids=["before the pivot", "behind it"])
def test_a_step_whose_renaming_is_rolled_back_is_applied_under_one_name(
    names: tuple[list[str], list[str]], moment: Moment
) -> None:
    began, renamed = _definitions(*names)
    ends = set()
    for call in range(3, 16):
        saga = _recovered(began, renamed, began, stops={2: Moment.BEFORE, call: moment})
        ends.add("parked" if saga.parked else saga.settled)
        assert saga.parked or saga.settled == "FAILED" or _happened(saga) == 1, (call, saga.traces)
        assert _happened(saga) <= (saga.settled != "FAILED"), (call, saga.traces)
    assert "parked" in ends


def test_without_noting_the_definition_it_is_applied_under_both_names() -> None:
    began, renamed = _definitions(*BEHIND)
    happened = [
        _happened(
            _recovered(began, renamed, began, stops={2: Moment.BEFORE, call: Moment.LATE}, without=NOTE_DEFINITION)
        )
        for call in range(3, 16)
    ]
    assert max(happened) == 2


def test_under_the_same_definition_nothing_is_waited_for() -> None:
    began, _ = _definitions(*BEFORE)
    saga = _recovered(began, dataclasses.replace(began), stops={1: Moment.LATE})

    assert not [trace for trace in saga.traces.values() if "Wait for earlier functions to end" in trace]
    assert (saga.settled, +saga.effects) == ("FAILED", {})


@pytest.mark.parametrize(
    ("kind", "timeout", "outlived"),
    [("atomic", 0, 300 + 900 + 60), ("express", 60, 300 + 900 + 60), ("child", 3_600, 3_600 + 900 + 60)],
)
def test_the_wait_outlasts_functions_and_phases(kind: str, timeout: int, outlived: int) -> None:
    inner = StepDescription(name="Inner", kind="atomic", side="before")
    branches = ((inner,),) if timeout else ()
    one = StepDescription(name="One", kind=kind, side="before", timeout=timeout, branches=branches)

    assert outlived_with_phases(SagaDescription(name="S", steps=(one,), timeout=60, fingerprint="f")) == outlived
