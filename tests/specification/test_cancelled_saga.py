"""A cancelled saga ends once, its pivot decides how, and each condition of a cancellation is needed."""

from __future__ import annotations

from tests.specification.cancelled_saga import CancelCondition as C
from tests.specification.cancelled_saga import CancelModel
from tests.specification.cancelled_saga import CancelPromise as P
from tests.specification.conditions import STUCK, Mutant
from tests.specification.suite import SpecificationTests, Suite


class TestCancelledSaga(SpecificationTests):
    suite = Suite(
        conditions=C,
        settings={
            "small": CancelModel(),
            "one operator": CancelModel(people=1),
            "a callback step waits": CancelModel(waits=True),
            "Express": CancelModel(people=1, express=True),
            "the key is reused": CancelModel(people=1, express=True, reused=True),
        },
        mutants=(
            Mutant((C.IN_PROGRESS,), P.CANCELLED_ALTHOUGH_SETTLED),
            Mutant((C.FIRST_OWNER,), P.CANCELLATION_FORGOTTEN, "one operator"),
            Mutant((C.FIRST_OWNER,), P.CANCELLED_ANOTHER_SAGA, "the key is reused"),
            Mutant((C.NOT_PARKED,), P.CANCELLED_ALTHOUGH_PARKED),
            Mutant((C.UNDIRECTED,), P.CANCELLED_ALTHOUGH_DECIDED, "Express"),
            Mutant((C.ONCE,), P.CANCELLED_TWICE),
            Mutant((C.NO_DIRECTION,), P.FAILED_BUT_AN_EFFECT_STANDS),
            Mutant((C.MARK_FIRST,), P.STOPPED_WITHOUT_A_DECISION),
            Mutant((C.NEVER_STARTED,), P.STARTED_ALTHOUGH_CANCELLED),
            Mutant((C.NO_DUPLICATE_STARTS,), P.STARTED_ALTHOUGH_CANCELLED),
            Mutant((C.EXPRESS_ENDED,), P.RECOVERED_WHILE_EXPRESS_RUNS, "Express"),
            Mutant((C.RECONCILER_STOPS,), STUCK, "a callback step waits"),
        ),
    )
