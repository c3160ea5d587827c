"""An entry about late effects that could not be undone goes when none is left, and each condition is needed."""

from __future__ import annotations

from tests.specification.conditions import STUCK, Mutant
from tests.specification.late_undo_entry import UndoEntryCondition as C
from tests.specification.late_undo_entry import UndoEntryModel
from tests.specification.late_undo_entry import UndoEntryPromise as P
from tests.specification.suite import SpecificationTests, Suite


class TestLateUndoEntry(SpecificationTests):
    suite = Suite(
        conditions=C,
        settings={"small": UndoEntryModel(), "three rows": UndoEntryModel(rows=3)},
        mutants=(
            Mutant((C.NONE_LEFT,), P.NOT_UNDONE_UNTOLD),
            Mutant((C.NONE_EXPIRED,), P.NOT_UNDONE_UNTOLD),
            Mutant((C.READ_AFTER_RECEIPT,), P.NOT_UNDONE_UNTOLD),
            Mutant((C.DELETED_WHEN_OVER,), STUCK),
        ),
    )
