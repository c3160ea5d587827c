"""An inline saga keeps its promises with Express executions alongside Standard, and needs each condition."""

from __future__ import annotations

from dataclasses import replace

from tests.specification.checker import check
from tests.specification.conditions import Mutant
from tests.specification.inline_routes import ROUTED, RoutedModel
from tests.specification.inline_saga import InlineCondition as C
from tests.specification.inline_saga import InlineModel
from tests.specification.inline_saga import InlinePromise as I
from tests.specification.saga_conditions import SagaPromise as P
from tests.specification.saga_world import StepSpec
from tests.specification.suite import LargeConfigurationTests, SpareConditionTests, Suite

DEBIT = StepSpec(name="Debit", undo=True)
FEE = StepSpec(name="Fee", undo=True)
CREDIT = StepSpec(name="Credit", pivot=True)
RECEIPT = StepSpec(name="Receipt")
RENAMED = (replace(DEBIT, new=False), StepSpec(name="Take", undo=True, old=False), CREDIT)
RENAMED_BEHIND = (CREDIT, replace(RECEIPT, new=False), StepSpec(name="Send", old=False))

two = InlineModel(steps=(DEBIT, CREDIT), redrive=False)
three = InlineModel(steps=(DEBIT, FEE, CREDIT), redrive=False)
SETTINGS = {
    "inline": two,
    "no pivot": InlineModel(steps=(DEBIT, FEE), redrive=False),
    "renamed": InlineModel(steps=RENAMED, redrive=False, changed=True),
    "renamed behind": InlineModel(steps=RENAMED_BEHIND, redrive=False, changed=True),
    "key reused": replace(two, reused=True),
    "two routes": RoutedModel(steps=ROUTED, redrive=False),
    "not prepared": replace(two, unprepared=frozenset({0, 1})),
}
LARGE = {
    "three steps": three,
    "behind the pivot": InlineModel(steps=(DEBIT, CREDIT, RECEIPT), redrive=False),
    "skipped step": InlineModel(steps=(DEBIT, CREDIT, StepSpec(name="Post", goes_on=True)), redrive=False),
    "two Express executions": replace(two, drivers=2),
    "no pivot, two Express executions": InlineModel(steps=(DEBIT, FEE), drivers=2, redrive=False),
    "two recoveries": replace(two, recoveries=2),
    "resumed": replace(two, resumes=True),
    "90 days": replace(two, aging=True),
    "redriven": replace(two, redrive=True),
    "two ways": InlineModel(
        steps=(DEBIT, StepSpec(name="Card", pivot=True, on_the_way=False), FEE, CREDIT), redrive=False
    ),
    "two routes, then a pivot": RoutedModel(steps=(*ROUTED, CREDIT), redrive=False),
    "two routes, two Express executions": RoutedModel(steps=ROUTED, redrive=False, drivers=2),
    "three steps, not prepared": replace(three, unprepared=frozenset({0, 1})),
    "no pivot, not prepared": InlineModel(steps=(DEBIT, FEE), redrive=False, unprepared=frozenset({0, 1})),
    "only the first start is prepared": replace(two, recoveries=2, unprepared=frozenset({1, 2})),
    "not prepared, redriven": replace(two, unprepared=frozenset({0, 1}), redrive=True),
    "not prepared, two Express executions": replace(two, unprepared=frozenset({0, 1}), drivers=2),
    "renamed, two Express executions": InlineModel(steps=RENAMED, redrive=False, changed=True, drivers=2),
}


class TestInlineSaga(LargeConfigurationTests, SpareConditionTests):
    suite = Suite(
        conditions=C,
        settings=SETTINGS,
        large=LARGE,
        mutants=(
            Mutant((C.FENCE_PIVOTS_AHEAD,), P.FAILED_BUT_AN_EFFECT_STANDS, "inline"),
            Mutant((C.CHAIN_FROM_LAST,), P.FAILED_BUT_AN_EFFECT_STANDS, "no pivot"),
            Mutant((C.AGAIN_WHEN_AHEAD,), I.RESULT_WITHOUT_AN_OUTPUT, "inline"),
            Mutant((C.SETTLE_DIRECTION,), P.COMPLETED_BUT_NOT_ALL_APPLIED, "no pivot"),
            Mutant((C.JOINS,), P.OWNER_GAVE_UP, "inline"),
            Mutant((C.WAYS_AGREE,), P.COMPLETED_BUT_NOT_ALL_APPLIED, "inline"),
            Mutant((C.DELEGATES_BY_NAME,), P.STARTED_ALTHOUGH_PARKED, "inline"),
            Mutant((C.COMPARES,), P.EFFECT_UNDER_TWO_NAMES, "renamed behind"),
            Mutant((C.OUTLIVE_EXPRESS,), P.EFFECT_UNDER_TWO_NAMES, "renamed behind"),
            Mutant((C.ROWS_FIT,), P.EFFECT_UNDER_TWO_NAMES, "renamed behind"),
            Mutant((C.EXPECTED,), P.FAILED_BUT_AN_EFFECT_STANDS, "not prepared"),
            Mutant((C.KEEPS_ROUTE,), I.BOTH_WAYS_TAKEN, "two routes"),
            Mutant((C.OWNER_IS_THE_SAGAS,), I.LATER_SAGA_CHANGED, "key reused"),
        ),
        spare={
            C.JOINS_AT_SETTLE: "the saga would be parked, and another execution, or an operator, would settle it",
        },
        spare_in=("inline", "no pivot"),
    )


def test_compensation_of_a_standard_saga_is_not_safe_alongside_express() -> None:
    old = replace(three, old_way_back=True).without(C.JOINS, C.JOINS_AT_SETTLE)

    verdict = check(old, until=P.FAILED_BUT_AN_EFFECT_STANDS)

    print(verdict)
    assert P.FAILED_BUT_AN_EFFECT_STANDS in verdict.violations
