"""Messages that begin an inline saga keep their promises, and each of the conditions is needed."""

from __future__ import annotations

from tests.specification.begun_saga import OTHER, BegunModel
from tests.specification.begun_saga import BegunCondition as C
from tests.specification.begun_saga import BegunPromise as P
from tests.specification.conditions import STUCK, Mutant
from tests.specification.suite import LargeConfigurationTests, SpareConditionTests, Suite


class TestBegunSaga(LargeConfigurationTests, SpareConditionTests):
    suite = Suite(
        conditions=C,
        settings={
            "small": BegunModel(drivers=1),
            "another request": BegunModel(messages=("m1", OTHER), drivers=1),
        },
        large={
            "two Express executions": BegunModel(),
            "all of it": BegunModel(messages=("m1", "m2", OTHER)),
        },
        mutants=(
            Mutant((C.RESERVES_FIRST,), P.BEGUN_TWICE),
            Mutant((C.STARTS_THE_RECORDS,), P.BEGUN_TWICE),
            Mutant((C.DELETED_AFTER_RECORD,), P.MESSAGE_LOST),
            Mutant((C.OTHER_REQUEST_PARKED,), P.MESSAGE_LOST, "another request"),
            Mutant((C.RECONCILED,), STUCK),
        ),
        spare={
            C.STANDARD_WHEN_DUE: "the reconciler starts it, later",
            C.NOT_BEFORE_DUE: "Standard would run alongside Express, and both be paid for",
            C.STANDARD_IF_REFUSED: "the saga would wait until it is due",
        },
        spare_in=("small",),
    )
