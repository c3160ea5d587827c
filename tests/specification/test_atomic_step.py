"""The log row keeps the promises of a step and its compensation, and each of its conditions is needed."""

from __future__ import annotations

from dataclasses import replace

import pytest

from tests.specification.atomic_step import AtomicStepModel
from tests.specification.atomic_step import StepCondition as C
from tests.specification.atomic_step import StepPromise as P
from tests.specification.checker import check
from tests.specification.conditions import Mutant, found

SETTINGS = {
    "small": AtomicStepModel(),
    "three of each": AtomicStepModel(steps=3, undos=3),
    "one at a time, and functions that only write": AtomicStepModel(steps=1, undos=1, reads_refuse=False),
}
MUTANTS = (
    Mutant((C.ONE_TRANSACTION,), P.EFFECT_TWICE),
    Mutant((C.NO_ROW,), P.EFFECT_TWICE),
    Mutant((C.NO_ROW_TO_BURY,), P.EFFECT_STANDS_AFTER_COMPENSATION),
    Mutant((C.STILL_DONE,), P.UNDONE_TWICE),
    Mutant((C.BURY,), P.EFFECT_STANDS_AFTER_COMPENSATION),
    Mutant((C.FENCED,), P.ANSWERED_DONE_WITHOUT_EFFECT),
    Mutant((C.REFUSAL_READS_ROW,), P.REFUSED_ALTHOUGH_DONE),
    Mutant((C.UNDO_REFUSAL_READS_ROW,), P.UNDO_REFUSED_ALTHOUGH_UNDONE),
)
REDUNDANT = (
    Mutant(
        (C.ROW_REFUSAL_FIRST, C.REFUSAL_READS_ROW),
        P.REFUSED_ALTHOUGH_DONE,
        "one at a time, and functions that only write",
    ),
)


@pytest.mark.parametrize("setting", SETTINGS)
def test_under_all_conditions_no_promise_is_broken_and_nothing_gets_stuck(setting: str) -> None:
    verdict = check(SETTINGS[setting])

    assert verdict.clean, verdict


@pytest.mark.parametrize("mutant", MUTANTS, ids=str)
def test_without_a_condition_a_promise_is_broken(mutant: Mutant) -> None:
    verdict = check(replace(SETTINGS[mutant.setting], off=frozenset(mutant.off)), until=mutant.harm)

    print(verdict)
    assert mutant.harm in found(verdict)


@pytest.mark.parametrize("mutant", REDUNDANT, ids=str)
def test_a_condition_that_is_redundant_alone_matters_when_its_companions_are_gone(mutant: Mutant) -> None:
    spare, *companions = mutant.off
    model = SETTINGS[mutant.setting]

    assert check(replace(model, off=frozenset({spare}))).clean
    assert mutant.harm not in found(check(replace(model, off=frozenset(companions))))
    assert mutant.harm in found(check(replace(model, off=frozenset(mutant.off)), until=mutant.harm))


def test_every_condition_has_its_mutant() -> None:
    assert {mutant.off[0] for mutant in (*MUTANTS, *REDUNDANT)} == set(C)
