"""A group of an inline saga keeps the saga's promises, and each of the conditions is needed."""

from __future__ import annotations

from dataclasses import replace

import pytest

from tests.specification.checker import check
from tests.specification.conditions import Mutant, found
from tests.specification.inline_branches import BranchCondition as C
from tests.specification.inline_branches import BranchModel
from tests.specification.inline_saga import InlineCondition as I
from tests.specification.saga_conditions import SagaPromise as P
from tests.specification.saga_world import StepSpec
from tests.specification.suite import LargeConfigurationTests, SpareConditionTests, Suite

HOTEL = StepSpec(name="Hotel", undo=True)
FLIGHT = StepSpec(name="Flight", undo=True)
SEAT = StepSpec(name="Seat", undo=True)
LIST = StepSpec(name="List", undo=True)
PAY = StepSpec(name="Pay", pivot=True)
MAIL = StepSpec(name="Mail")
PRINT = StepSpec(name="Print")

trip = BranchModel(steps=(HOTEL, FLIGHT, PAY), group=((0,), (1,)), redrive=False)
free = BranchModel(steps=(HOTEL, FLIGHT), group=((0,), (1,)), redrive=False)
SETTINGS = {
    "branches": trip,
    "no pivot": free,
    "items": BranchModel(steps=(LIST, HOTEL, PAY), group=((1,),), of=0, redrive=False),
}
LARGE = {
    "behind the pivot": BranchModel(steps=(PAY, MAIL, PRINT), group=((1,), (2,)), redrive=False),
    "two steps in a branch": BranchModel(steps=(FLIGHT, SEAT, HOTEL, PAY), group=((0, 1), (2,)), redrive=False),
    "two items": BranchModel(steps=(LIST, HOTEL, FLIGHT, PAY), group=((1,), (2,)), of=0, redrive=False),
    "two calls travel": replace(free, letters=2),
    "two Express executions": replace(trip, drivers=2),
    "no pivot, two Express executions": replace(free, drivers=2),
    "items, two Express executions": BranchModel(
        steps=(LIST, HOTEL, PAY), group=((1,),), of=0, redrive=False, drivers=2
    ),
    "redriven": replace(trip, redrive=True, recoveries=0),
    "no pivot, redriven": replace(free, redrive=True, recoveries=0),
    "items, redriven": BranchModel(steps=(LIST, HOTEL, PAY), group=((1,),), of=0, recoveries=0),
    "redriven, and taken over": replace(free, redrive=True, letters=0),
}


class TestInlineBranches(LargeConfigurationTests, SpareConditionTests):
    suite = Suite(
        conditions=C,
        settings=SETTINGS,
        large=LARGE,
        mutants=(
            Mutant((C.GROUP_JOINS,), P.OWNER_GAVE_UP, "branches"),
            Mutant((C.CHAIN_EVERY_BRANCH,), P.FAILED_BUT_AN_EFFECT_STANDS, "branches"),
            Mutant((C.UNDO_READS_NO_OUTPUT,), P.FAILED_BUT_AN_EFFECT_STANDS, "items"),
        ),
        spare={C.GROUP_DELEGATES: "Express would compensate a group that Standard may complete"},
        spare_in=("no pivot",),
    )


@pytest.mark.parametrize(
    "mutant",
    [
        Mutant((I.FENCE_PIVOTS_AHEAD,), P.FAILED_BUT_AN_EFFECT_STANDS, "branches"),
        Mutant((I.CHAIN_FROM_LAST,), P.FAILED_BUT_AN_EFFECT_STANDS, "no pivot"),
        Mutant((I.SETTLE_DIRECTION,), P.COMPLETED_BUT_NOT_ALL_APPLIED, "no pivot"),
    ],
    ids=str,
)
def test_group_needs_the_conditions_of_an_inline_saga(mutant: Mutant) -> None:
    verdict = check(SETTINGS[mutant.setting].without(*mutant.off), until=mutant.harm)

    print(verdict)
    assert mutant.harm in found(verdict)
