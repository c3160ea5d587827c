"""Each conflicting outcome has an entry until an operator acknowledges it, and each condition is needed."""

from __future__ import annotations

from tests.specification.conditions import STUCK, Mutant
from tests.specification.conflicting_outcome import ConflictCondition as C
from tests.specification.conflicting_outcome import ConflictModel
from tests.specification.conflicting_outcome import ConflictPromise as P
from tests.specification.suite import LargeConfigurationTests, SpecificationTests, Suite


class TestConflictingOutcome(LargeConfigurationTests, SpecificationTests):
    suite = Suite(
        conditions=C,
        settings={"small": ConflictModel(senders=1), "two senders": ConflictModel(receivers=1)},
        large={"both": ConflictModel(), "three outcomes": ConflictModel(receivers=1, senders=1, outcomes=3)},
        mutants=(
            Mutant((C.STORED_TOGETHER,), P.CONFLICT_UNTOLD),
            Mutant((C.SENT_FIRST,), P.CONFLICT_UNTOLD),
            Mutant((C.SAME_AS_STORED,), P.CONFLICT_UNTOLD),
            Mutant((C.AS_SEEN,), P.ACKNOWLEDGED_UNSEEN),
            Mutant((C.STAYS,), P.CONFLICT_FORGOTTEN),
            Mutant((C.ONLY_ACKNOWLEDGED,), P.CONFLICT_FORGOTTEN),
            Mutant((C.RECORDED_AS_READ,), P.ROW_OF_NOTHING, "two senders"),
            Mutant((C.SAME_OUTCOME,), P.CONFLICT_FORGOTTEN),
            Mutant((C.DELETED_WHEN_OVER,), STUCK),
        ),
    )
