"""Events that begin something keep their promises, and each of the conditions is needed."""

from __future__ import annotations

from tests.specification.conditions import Mutant
from tests.specification.event_intake import IntakeCondition as C
from tests.specification.event_intake import IntakeModel
from tests.specification.event_intake import IntakePromise as P
from tests.specification.suite import LargeConfigurationTests, Suite


class TestEventIntake(LargeConfigurationTests):
    suite = Suite(
        conditions=C,
        settings={
            "small": IntakeModel(events=("p1", "r")),
            "two events of one payment": IntakeModel(events=("p1", "p2")),
            "unknown customer": IntakeModel(events=("p1",), customer=False),
        },
        large={
            "all of it": IntakeModel(customer=False),
            "three at once": IntakeModel(places=3),
            "three at once, unknown customer": IntakeModel(places=3, customer=False),
        },
        mutants=(
            Mutant((C.RECORD_IS_CONDITIONAL,), P.CREDITED_TWICE),
            Mutant((C.WRITES_WITH_RECORD,), P.CREDITED_TWICE),
            Mutant((C.RECORD_WITH_WRITES,), P.EVENT_LOST),
            Mutant((C.BUSINESS_KEY,), P.CREDITED_TWICE, "two events of one payment"),
            Mutant((C.NOT_YET,), P.REFUNDED_BEFORE_PAID),
            Mutant((C.KEPT_BEFORE_ANSWER,), P.EVENT_LOST),
            Mutant((C.KEPT_COMES_AGAIN,), P.EVENT_LOST),
            Mutant((C.REFUSAL_LEAVES_NO_RECORD,), P.EVENT_LOST, "unknown customer"),
            Mutant((C.REFUSAL_LOOKS,), P.PARKED_ALTHOUGH_APPLIED),
            Mutant((C.FAILURE_IS_NOT_ANSWERED,), P.EVENT_LOST),
            Mutant((C.DELETED_WHEN_DONE,), P.EVENT_LOST),
            Mutant((C.REMEMBERED_FOR_LONGER,), P.CREDITED_TWICE),
        ),
    )
