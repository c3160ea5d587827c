"""The page about the specification says what the tests say."""

from __future__ import annotations

import pytest

from tests.specification import test_atomic_step, test_request_record, test_whole_saga
from tests.specification.atomic_step import StepPromise
from tests.specification.conditions import ROOT, Mutant
from tests.specification.record_conditions import RecordPromise
from tests.specification.saga_conditions import SagaPromise

PAGE = (ROOT / "docs" / "specification.md").read_text(encoding="utf-8")
MUTANTS = [
    mutant
    for module in (test_request_record, test_atomic_step, test_whole_saga)
    for mutant in (*module.MUTANTS, *module.REDUNDANT)
]


@pytest.mark.parametrize("mutant", MUTANTS, ids=str)
def test_every_mutant_has_its_row(mutant: Mutant) -> None:
    condition, *companions = mutant.off
    cells = [f"`{condition.name}`", condition.because.reason]
    cells += [", ".join(f"`{companion.name}`" for companion in companions)] if companions else []
    cells += [f"`{mutant.harm}`", mutant.setting]

    assert f"| {' | '.join(cells)} |" in PAGE


@pytest.mark.parametrize("promise", [*RecordPromise, *StepPromise, *SagaPromise])
def test_every_promise_is_explained(promise: str) -> None:
    assert f"`{promise}`" in PAGE


def test_every_spare_condition_is_named() -> None:
    for condition, reason in test_whole_saga.SPARE.items():
        assert f"| `{condition.name}` | {reason} |" in PAGE
