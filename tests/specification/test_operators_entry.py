"""An entry about a late effect goes when it is undone, not before, and each of its conditions is needed."""

from __future__ import annotations

from tests.specification.conditions import STUCK, Mutant
from tests.specification.operators_entry import EntryCondition as C
from tests.specification.operators_entry import EntryModel
from tests.specification.operators_entry import EntryPromise as P
from tests.specification.suite import LargeConfigurationTests, SpecificationTests, Suite


class TestOperatorsEntry(LargeConfigurationTests, SpecificationTests):
    suite = Suite(
        conditions=C,
        settings={"small": EntryModel(), "one sweep": EntryModel(sweeps=1, entries=3)},
        large={"three entries": EntryModel(entries=3)},
        mutants=(
            Mutant((C.STORED_TOGETHER,), P.UNTOLD),
            Mutant((C.SENT_FIRST,), P.UNTOLD),
            Mutant((C.ROW_AS_READ,), P.UNTOLD),
            Mutant((C.ONLY_COMPENSATED,), P.UNTOLD),
            Mutant((C.DELETED_WHEN_OVER,), STUCK),
            Mutant((C.LEAST_COPY_STAYS,), P.UNTOLD),
        ),
    )
