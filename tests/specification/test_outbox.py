"""Events that are published because a transaction committed keep their promises, and each condition is needed."""

from __future__ import annotations

from tests.specification.conditions import Mutant
from tests.specification.outbox import OutboxCondition as C
from tests.specification.outbox import OutboxModel
from tests.specification.outbox import OutboxPromise as P
from tests.specification.suite import LargeConfigurationTests, Suite


class TestOutbox(LargeConfigurationTests):
    suite = Suite(
        conditions=C,
        settings={"small": OutboxModel(), "one at a time": OutboxModel(attempts=1, publishers=1)},
        large={"three at once": OutboxModel(attempts=3, publishers=3)},
        mutants=(
            Mutant((C.ROW_WITH_EFFECT,), P.EVENT_LOST),
            Mutant((C.EFFECT_WITH_ROW,), P.EVENT_OF_NOTHING),
            Mutant((C.STABLE_ID,), P.CONSUMED_TWICE),
            Mutant((C.PUBLISHED_BEFORE_DELETED,), P.EVENT_LOST),
            Mutant((C.REFUSAL_LEAVES_ROW,), P.EVENT_LOST),
            Mutant((C.SWEPT,), "STUCK"),
        ),
    )
