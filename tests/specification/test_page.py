"""The page about the specification says what the tests say."""

from __future__ import annotations

import pytest

from tests.specification import (
    test_adopted_saga,
    test_atomic_step,
    test_callback_step,
    test_changed_definition,
    test_collecting,
    test_direct_operation,
    test_event_intake,
    test_external_step,
    test_hold,
    test_late_undo,
    test_request_record,
    test_resolved_step,
    test_whole_saga,
)
from tests.specification.adopted_saga import AdoptPromise
from tests.specification.atomic_step import StepPromise
from tests.specification.callback_conditions import CallbackPromise
from tests.specification.changed_definition import DefinitionPromise
from tests.specification.collecting import CollectingPromise
from tests.specification.conditions import ROOT, Condition, Mutant
from tests.specification.direct_operation import DirectPromise
from tests.specification.event_intake import IntakePromise
from tests.specification.external_conditions import ExternalPromise
from tests.specification.hold import HoldPromise
from tests.specification.late_undo import LatePromise
from tests.specification.record_conditions import RecordPromise
from tests.specification.saga_conditions import SagaPromise

PAGE = (ROOT / "docs" / "specification.md").read_text(encoding="utf-8")
# The classes stay in their modules: imported here by name, their tests would run here once more.
SUITES = (
    test_request_record.TestRequestRecord.suite,
    test_direct_operation.TestDirectOperation.suite,
    test_event_intake.TestEventIntake.suite,
    test_atomic_step.TestAtomicStep.suite,
    test_hold.TestHold.suite,
    test_collecting.TestCollecting.suite,
    test_external_step.TestExternalStep.suite,
    test_resolved_step.TestResolvedStep.suite,
    test_callback_step.TestCallbackStep.suite,
    test_whole_saga.TestWholeSaga.suite,
    test_changed_definition.TestChangedDefinition.suite,
    test_adopted_saga.TestAdoptedSaga.suite,
    test_late_undo.TestLateUndo.suite,
)


@pytest.mark.parametrize(
    "mutant",
    [mutant for suite in SUITES for mutant in (*suite.mutants, *suite.redundant)],
    ids=str,
)
def test_every_mutant_has_its_row(mutant: Mutant) -> None:
    condition, *companions = mutant.off
    cells = [f"`{condition.name}`", condition.because.reason]
    cells += [", ".join(f"`{companion.name}`" for companion in companions)] if companions else []
    cells += [f"`{mutant.harm}`", mutant.setting]

    assert f"| {' | '.join(cells)} |" in PAGE


PROMISES = (
    RecordPromise,
    DirectPromise,
    IntakePromise,
    StepPromise,
    HoldPromise,
    CollectingPromise,
    ExternalPromise,
    SagaPromise,
    CallbackPromise,
    DefinitionPromise,
    AdoptPromise,
    LatePromise,
)


@pytest.mark.parametrize("promise", [promise for promises in PROMISES for promise in promises])
def test_every_promise_is_explained(promise: str) -> None:
    assert f"`{promise}`" in PAGE


SPARE = [(condition, reason) for suite in SUITES for condition, reason in suite.spare.items()]


@pytest.mark.parametrize(("condition", "reason"), SPARE, ids=[condition.name for condition, _ in SPARE])
def test_every_spare_condition_is_named(condition: Condition, reason: str) -> None:
    assert f"| `{condition.name}` | {reason} |" in PAGE
