"""A job runs once in its period, and each condition that makes it so is needed."""

from __future__ import annotations

from tests.specification.conditions import Mutant
from tests.specification.once_in_a_period import PeriodCondition as C
from tests.specification.once_in_a_period import PeriodModel
from tests.specification.once_in_a_period import PeriodPromise as P
from tests.specification.suite import SpecificationTests, Suite


class TestOnceInAPeriod(SpecificationTests):
    suite = Suite(
        conditions=C,
        settings={"small": PeriodModel(), "three operators": PeriodModel(processes=4, operators=3)},
        mutants=(
            Mutant((C.NO_RUN,), P.RUN_AT_ONCE),
            Mutant((C.OWNER_AS_MET,), P.RUN_AT_ONCE),
            Mutant((C.STATE_AS_MET,), P.RUN_AFTER_DONE),
            Mutant((C.DONE_AS_SEEN,), P.ANOTHERS_END),
            Mutant((C.OWN_END,), P.ANOTHERS_END),
        ),
    )
