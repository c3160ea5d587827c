"""One execution at a time compensates a late effect, and the conditions of that are needed."""

from __future__ import annotations

from tests.specification.conditions import STUCK, Mutant
from tests.specification.late_undo import LateCondition as C
from tests.specification.late_undo import LateModel
from tests.specification.late_undo import LatePromise as P
from tests.specification.suite import RedundantConditionTests, SpareConditionTests, Suite


class TestLateUndo(RedundantConditionTests, SpareConditionTests):
    suite = Suite(
        conditions=C,
        settings={
            "one operator": LateModel(people=1),
            "two operators": LateModel(people=2, most=7),
        },
        mutants=(
            Mutant((C.MOST_TRIES,), P.TRIED_WITHOUT_LIMIT, "one operator"),
            Mutant((C.OPERATOR_STARTS_NEXT,), P.TRIED_WITHOUT_LIMIT, "one operator"),
            Mutant((C.SAME_SAGA,), P.NUMBER_OF_ANOTHER_SAGA, "one operator"),
            Mutant((C.NAME_BY_NUMBER,), P.TWO_AT_ONCE, "two operators"),
        ),
        redundant=(
            Mutant((C.NOTED_BEFORE_NEXT, C.LIMIT_NOTED), STUCK, "one operator"),
            Mutant((C.LIMIT_NOTED, C.NOTED_BEFORE_NEXT), STUCK, "one operator"),
        ),
        spare={
            C.TRIES_GROW: "the next look finds the executions behind a lower number, and records the last one again",
        },
        spare_in=("one operator", "two operators"),
    )
