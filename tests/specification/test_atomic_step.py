"""The log row keeps the promises of a step and its compensation, and each of its conditions is needed."""

from __future__ import annotations

from tests.specification.atomic_step import AtomicStepModel
from tests.specification.atomic_step import StepCondition as C
from tests.specification.atomic_step import StepPromise as P
from tests.specification.conditions import Mutant
from tests.specification.suite import RedundantConditionTests, Suite


class TestAtomicStep(RedundantConditionTests):
    suite = Suite(
        conditions=C,
        settings={
            "small": AtomicStepModel(),
            "three of each": AtomicStepModel(steps=3, undos=3),
            "one at a time, and functions that only write": AtomicStepModel(steps=1, undos=1, reads_refuse=False),
        },
        mutants=(
            Mutant((C.ONE_TRANSACTION,), P.EFFECT_TWICE),
            Mutant((C.NO_ROW,), P.EFFECT_TWICE),
            Mutant((C.NO_ROW_TO_BURY,), P.EFFECT_STANDS_AFTER_COMPENSATION),
            Mutant((C.STILL_DONE,), P.UNDONE_TWICE),
            Mutant((C.BURY,), P.EFFECT_STANDS_AFTER_COMPENSATION),
            Mutant((C.FENCED,), P.ANSWERED_DONE_WITHOUT_EFFECT),
            Mutant((C.REFUSAL_READS_ROW,), P.REFUSED_ALTHOUGH_DONE),
            Mutant((C.UNDO_REFUSAL_READS_ROW,), P.UNDO_REFUSED_ALTHOUGH_UNDONE),
        ),
        redundant=(
            Mutant(
                (C.ROW_REFUSAL_FIRST, C.REFUSAL_READS_ROW),
                P.REFUSED_ALTHOUGH_DONE,
                "one at a time, and functions that only write",
            ),
        ),
    )
