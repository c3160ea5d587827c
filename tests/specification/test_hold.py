"""A hold keeps its promises, and each of its conditions is needed."""

from __future__ import annotations

from typing import Final

from tests.specification.conditions import STUCK, Mutant
from tests.specification.hold import HoldCondition as C
from tests.specification.hold import HoldModel, Kind
from tests.specification.hold import HoldPromise as P
from tests.specification.suite import LargeConfigurationTests, Suite

AUTHORIZE: Final = Kind("authorize")
CAPTURE: Final = Kind("capture", 1, 1)
ANOTHER: Final = Kind("capture", 2, 2)
ABOVE: Final = Kind("capture", 1, 3)
VOID: Final = Kind("void")
EXPIRE: Final = Kind("expire")
DEBIT: Final = Kind("debit", amount=1)


class TestHold(LargeConfigurationTests):
    suite = Suite(
        conditions=C,
        settings={
            "small": HoldModel(kinds=(AUTHORIZE, CAPTURE, VOID, EXPIRE)),
            "with debits": HoldModel(kinds=(AUTHORIZE, CAPTURE, EXPIRE, DEBIT)),
            "two of each": HoldModel(kinds=(AUTHORIZE, AUTHORIZE, CAPTURE, CAPTURE, VOID)),
            "two captures": HoldModel(kinds=(AUTHORIZE, CAPTURE, ANOTHER, EXPIRE)),
            "above the hold": HoldModel(kinds=(AUTHORIZE, ABOVE, EXPIRE)),
            "the client went away": HoldModel(kinds=(AUTHORIZE, EXPIRE, EXPIRE, DEBIT)),
        },
        large={
            "two debits": HoldModel(kinds=(AUTHORIZE, CAPTURE, EXPIRE, DEBIT, DEBIT)),
            "all": HoldModel(kinds=(AUTHORIZE, AUTHORIZE, CAPTURE, ANOTHER, VOID, EXPIRE, DEBIT)),
        },
        mutants=(
            Mutant((C.SEQUENCE_AS_READ,), P.BALANCE_DIFFERS_FROM_ENTRIES, "with debits"),
            Mutant((C.HELD_AS_READ,), P.OVERDRAWN, "with debits"),
            Mutant((C.HELD_COUNTS,), P.OVERDRAWN, "with debits"),
            Mutant((C.HOLD_ABSENT,), P.AUTHORIZED_TWICE, "two of each"),
            Mutant((C.HOLD_OPEN,), P.CAPTURED_AND_RELEASED),
            Mutant((C.HELD_WITH_HOLD,), P.CAPTURED_TWICE, "two captures"),
            Mutant((C.WITHIN_HOLD,), P.CAPTURED_ABOVE_HOLD, "above the hold"),
            Mutant((C.IN_TIME,), P.CAPTURED_AFTER_EXPIRY),
            Mutant((C.EXPIRES_BY_TIME,), P.RELEASED_BEFORE_EXPIRY),
            Mutant((C.DUE,), STUCK, "the client went away"),
            Mutant((C.SAME_ID_REPLAYS,), P.TOLD_REFUSED_ALTHOUGH_DONE),
            Mutant((C.OTHER_ID_REFUSED,), P.TOLD_DONE_BY_ANOTHER, "two captures"),
            Mutant((C.CAPTURED_IS_NOT_RELEASED,), P.TOLD_RELEASED_BUT_CAPTURED),
        ),
    )
