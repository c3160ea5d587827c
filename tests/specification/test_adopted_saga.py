"""A saga that operators move to other state machines ends once, and the conditions of that are needed."""

from __future__ import annotations

from tests.specification.adopted_saga import AdoptCondition as C
from tests.specification.adopted_saga import AdoptModel
from tests.specification.adopted_saga import AdoptPromise as P
from tests.specification.conditions import STUCK, Mutant
from tests.specification.suite import SpareConditionTests, Suite


class TestAdoptedSaga(SpareConditionTests):
    suite = Suite(
        conditions=C,
        settings={
            "one operator": AdoptModel(people=1),
            "two operators": AdoptModel(people=2, owners=5),
        },
        mutants=(
            Mutant((C.SAME_LOG,), P.SETTLED_FAILED_WITH_EFFECT, "one operator"),
            Mutant((C.OWNER_ENDED,), P.MOVED_WHILE_ITS_OWNER_RUNS, "one operator"),
            Mutant((C.OWNER_AS_READ,), P.MOVED_WHILE_ITS_OWNER_RUNS, "one operator"),
            Mutant((C.STATUS_AS_READ,), P.MOVED_ALTHOUGH_SETTLED, "one operator"),
            Mutant((C.NEW_OWNER,), STUCK, "one operator"),
            Mutant((C.REPEATED,), STUCK, "one operator"),
        ),
        spare={
            C.MACHINES_AS_READ: "a saga that another operator moved has another owner",
            C.PARKED_AS_READ: "a saga that was resumed has another owner, and only its owner parks it",
        },
        spare_in=("one operator", "two operators"),
    )
