"""A direct operation keeps its promises, and each of its conditions is needed."""

from __future__ import annotations

from tests.specification.conditions import STUCK, Mutant
from tests.specification.direct_operation import DirectCondition as C
from tests.specification.direct_operation import DirectModel
from tests.specification.direct_operation import DirectPromise as P
from tests.specification.suite import LargeConfigurationTests, SpareConditionTests, Suite


class TestDirectOperation(SpareConditionTests, LargeConfigurationTests):
    suite = Suite(
        conditions=C,
        settings={
            "small": DirectModel(),
            "two bodies": DirectModel(bodies="ab"),
            "open": DirectModel(final=False),
            "open, two bodies": DirectModel(final=False, bodies="ab"),
            "a saga's, too": DirectModel(saga=True),
            "open, a saga's, too": DirectModel(final=False, saga=True),
        },
        large={
            "three at once": DirectModel(places=3),
            "open, three at once": DirectModel(final=False, places=3),
            "a saga's, too, three at once": DirectModel(saga=True, places=3),
        },
        mutants=(
            Mutant((C.RECORD_IS_CONDITIONAL,), P.MOVED_TWICE),
            Mutant((C.WRITES_WITH_RECORD,), P.MOVED_TWICE),
            Mutant((C.RECORD_WITH_WRITES,), P.TOLD_DONE_NOT_MOVED),
            Mutant((C.FORGOTTEN_BY_TIME,), P.MOVED_TWICE),
            Mutant((C.REMEMBERED_FOR_LONGER,), P.MOVED_TWICE),
            Mutant((C.MET_OTHER_BODY,), P.ANSWER_OF_ANOTHER_REQUEST, "two bodies"),
            Mutant((C.REFUSAL_IS_STORED,), P.TWO_ANSWERS),
            Mutant((C.REFUSAL_IS_CONDITIONAL,), P.REFUSED_BUT_MOVED),
            Mutant((C.REFUSAL_LOOKS,), P.REFUSED_ALTHOUGH_MOVED, "open"),
            Mutant((C.TOKEN_PER_CALL,), P.TOLD_DONE_NOT_MOVED),
            Mutant((C.ONE_KEY,), P.MOVED_TWICE, "a saga's, too"),
            Mutant((C.IN_PROGRESS_IS_TAKEN,), P.MOVED_TWICE, "a saga's, too"),
            Mutant((C.MACHINE_STAYS,), STUCK, "a saga's, too"),
        ),
        spare={
            C.RECORD_REFUSAL_FIRST: "the refusal that follows is stored on the record's condition, or reads it; one "
            "call more"
        },
        spare_in=("small", "open", "a saga's, too"),
    )
