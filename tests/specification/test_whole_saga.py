"""The whole saga keeps its promises in every shape, and each condition is needed, or has a reason to be spare."""

from __future__ import annotations

from dataclasses import replace

import pytest

from tests.specification.checker import check
from tests.specification.conditions import Mutant
from tests.specification.saga_conditions import SagaCondition as C
from tests.specification.saga_conditions import SagaPromise as P
from tests.specification.saga_world import StepSpec
from tests.specification.suite import LargeConfigurationTests, RedundantConditionTests, SpareConditionTests, Suite
from tests.specification.whole_saga import SagaModel

DEBIT = StepSpec(name="Debit", undo=True)
CREDIT = StepSpec(name="Credit", pivot=True)
RECEIPT = StepSpec(name="Receipt")
SHIPMENT = StepSpec(name="Ship")
EVENT = StepSpec(name="Announce", row=False)
OTHER_WAY = StepSpec(name="Transfer", pivot=True, on_the_way=False)
SHAPES = {
    "two steps": (DEBIT, CREDIT),
    "a step behind the pivot": (DEBIT, CREDIT, RECEIPT),
    "a pivot that can be undone": (DEBIT, StepSpec(name="Credit", pivot=True, undo=True), RECEIPT),
    "two ways, the first": (
        StepSpec(name="Transfer", pivot=True),
        replace(DEBIT, on_the_way=False),
        replace(CREDIT, on_the_way=False),
        RECEIPT,
    ),
    "two ways, the second": (OTHER_WAY, DEBIT, CREDIT, RECEIPT),
    "two ways, the pivot that is not taken first": (
        replace(DEBIT, on_the_way=False),
        replace(CREDIT, on_the_way=False),
        StepSpec(name="Transfer", pivot=True),
    ),
    "a step between two pivots": (DEBIT, CREDIT, StepSpec(name="Fee", undo=True), OTHER_WAY),
    "no pivot on the way": (DEBIT, replace(CREDIT, on_the_way=False), SHIPMENT, EVENT),
    "no pivot on the way, an event first": (DEBIT, replace(CREDIT, on_the_way=False), EVENT, RECEIPT),
    "no pivot on the way, nothing before": (OTHER_WAY, replace(DEBIT, on_the_way=False), SHIPMENT),
    "two ways, neither taken": (OTHER_WAY, DEBIT, replace(CREDIT, on_the_way=False), SHIPMENT),
    "two pivots on one way": (DEBIT, CREDIT, StepSpec(name="Transfer", pivot=True)),
    "a step that may be skipped": (StepSpec(name="Discount", undo=True, goes_on=True), CREDIT, RECEIPT),
}


def shaped(name: str) -> SagaModel:
    return SagaModel(steps=SHAPES[name], redrive=False)


# A step was renamed while the saga was under way: the same one under the earlier definition and under the later one.
RENAMED = {
    "one before the pivot": (replace(DEBIT, new=False), StepSpec(name="Take", undo=True, old=False), CREDIT),
    "one behind the pivot": (CREDIT, replace(SHIPMENT, new=False), StepSpec(name="Send", old=False)),
}
SETTINGS = {
    "renamed": SagaModel(steps=RENAMED["one before the pivot"], redrive=False, recoveries=2, letters=2),
    "renamed behind": SagaModel(steps=RENAMED["one behind the pivot"], redrive=False),
    "rolled back": SagaModel(steps=RENAMED["one before the pivot"], redrive=False, recoveries=2, rolls_back=True),
    "rolled back behind": SagaModel(
        steps=RENAMED["one behind the pivot"], redrive=False, recoveries=2, rolls_back=True
    ),
    "small": shaped("a step behind the pivot"),
    "two people": replace(shaped("two steps"), recoveries=2, people=2),
    "years": replace(shaped("a step behind the pivot"), aging=True),
    "ways": replace(shaped("two ways, the pivot that is not taken first"), letters=2),
    "between": shaped("a step between two pivots"),
    "between, two recoveries": replace(shaped("a step between two pivots"), recoveries=2),
    "around": shaped("no pivot on the way"),
    "around, an event": replace(shaped("no pivot on the way, an event first"), recoveries=2),
    "skipping": shaped("a step that may be skipped"),
    "redrive": replace(shaped("two steps"), redrive=True),
    "restored": replace(shaped("two steps"), recoveries=2, restores=True),
    "resumed": replace(shaped("two steps"), people=2, resumes=True),
}
LARGE = {
    **{f"{name}, redriven": replace(shaped(name), redrive=True) for name in SHAPES},
    "years, redriven": replace(shaped("two steps"), redrive=True, aging=True),
    "a step behind the pivot, three recoveries": replace(
        shaped("a step behind the pivot"), recoveries=3, letters=2, people=2
    ),
    "a step behind the pivot, resumed twice": replace(
        shaped("a step behind the pivot"), recoveries=2, people=2, resumes=True
    ),
    "two steps, redriven, resumed": replace(shaped("two steps"), redrive=True, resumes=True),
    "two steps, redriven, two recoveries": replace(shaped("two steps"), redrive=True, recoveries=2),
    "two steps, redriven, two letters": replace(shaped("two steps"), redrive=True, letters=2),
}


@pytest.mark.parametrize("shape", SHAPES)
def test_in_every_shape_no_promise_is_broken_and_no_run_is_stuck(shape: str) -> None:
    verdict = check(shaped(shape))

    assert verdict.clean, verdict


class TestWholeSaga(RedundantConditionTests, LargeConfigurationTests, SpareConditionTests):
    suite = Suite(
        conditions=C,
        settings=SETTINGS,
        large=LARGE,
        mutants=(
            Mutant((C.STEP_NO_ROW,), P.FAILED_BUT_AN_EFFECT_STANDS),
            Mutant((C.PASSED_OVER_REPLAYS,), P.OWNER_GAVE_UP, "skipping"),
            Mutant((C.FENCE_BEFORE_GIVING_UP,), P.FAILED_BUT_AN_EFFECT_STANDS),
            Mutant((C.FENCE_NO_ROW,), P.EFFECT_FORGOTTEN),
            Mutant((C.NO_WAY_BACK,), P.UNDONE_BEHIND_A_STANDING_PIVOT, "between"),
            Mutant((C.FORWARD_AROUND_PIVOTS,), P.UNDONE_BEHIND_A_STANDING_PIVOT, "around"),
            Mutant((C.FORWARD_AROUND_PIVOTS,), P.FAILED_BUT_AN_EFFECT_STANDS, "around, an event"),
            Mutant((C.DIRECTION_ONCE,), P.DIRECTION_CHANGED),
            Mutant((C.PARK_OWNED,), P.PARKED_ALTHOUGH_SETTLED),
            Mutant((C.FENCE_IN_RECOVERY,), P.FAILED_BUT_AN_EFFECT_STANDS),
            Mutant((C.FENCE_EVERY_PIVOT,), P.FAILED_BUT_AN_EFFECT_STANDS, "ways"),
            Mutant((C.OUTLIVE_EARLIER_FUNCTIONS,), P.FAILED_BUT_AN_EFFECT_STANDS, "renamed"),
            Mutant((C.OUTLIVE_EARLIER_FUNCTIONS,), P.EFFECT_UNDER_TWO_NAMES, "renamed behind"),
            Mutant((C.ROWS_FIT,), P.EFFECT_UNDER_TWO_NAMES, "renamed behind"),
            Mutant((C.NOTE_DEFINITION,), P.EFFECT_UNDER_TWO_NAMES, "rolled back behind"),
            Mutant((C.TAKE_OVER_OWNED,), P.TAKEN_OVER_FROM_A_FORMER_OWNER, "two people"),
            Mutant((C.TAKE_OVER_NOT_PARKED,), P.TAKEN_OVER_ALTHOUGH_PARKED),
            Mutant((C.RESOLVE_UNPARKS_ONCE,), P.TAKEN_OVER_FROM_A_FORMER_OWNER, "resumed"),
            Mutant((C.WHAT_TO_DO_SUCCEEDED,), P.FAILED_BUT_AN_EFFECT_STANDS, "restored"),
            Mutant((C.LOOK_RECOVERY_FIRST,), P.PARKED_WHILE_ITS_OWNER_RUNS),
            Mutant((C.WHAT_TO_DO_YOUNG,), P.FAILED_BUT_AN_EFFECT_STANDS, "years"),
            Mutant((C.RESTART_YOUNG,), P.FAILED_BUT_AN_EFFECT_STANDS, "years"),
        ),
        redundant=(
            Mutant((C.DIRECTION_OWNED, C.DIRECTION_ONCE), P.COMPLETED_BUT_NOT_ALL_APPLIED, "years"),
            Mutant((C.ASK_THE_LOG, C.DIRECTION_ONCE), P.FAILED_BUT_AN_EFFECT_STANDS),
            Mutant((C.SETTLE_OWNED, C.FENCE_NO_ROW), P.COMPLETED_BUT_NOT_ALL_APPLIED),
            Mutant((C.CHAIN_FROM_LAST, C.FENCE_NO_ROW), P.FAILED_BUT_AN_EFFECT_STANDS, "between, two recoveries"),
            Mutant((C.WHAT_TO_DO_PARKED, C.WHAT_TO_DO_YOUNG), P.STARTED_ALTHOUGH_PARKED, "years"),
            Mutant((C.RESTART_NOT_PARKED, C.RESTART_YOUNG), P.STARTED_ALTHOUGH_PARKED, "years"),
            Mutant((C.RESTART_FIRST_OWNER, C.RESTART_YOUNG), P.STARTED_ALTHOUGH_TAKEN_OVER, "years"),
        ),
        # No harm was found without these, alone: they save calls, and keep two executions from doing the same work.
        spare={
            C.FENCED_ENDS: "who compensated all the same would be refused the direction, or do what the owner does",
            C.READ_MINE: "every write of a recovery asks for the owner again",
            C.READ_DIRECTION: "the fences would find the same rows, and lead to the same direction",
        },
        spare_in=("small", "between", "redrive"),
    )
