"""A migration keeps its layout from phase 1 on."""

from __future__ import annotations

from tests.specification.conditions import Mutant
from tests.specification.migration_layout import LayoutCondition as C
from tests.specification.migration_layout import LayoutModel
from tests.specification.migration_layout import LayoutPromise as P
from tests.specification.suite import SpecificationTests, Suite


class TestMigrationLayout(SpecificationTests):
    suite = Suite(
        conditions=C,
        settings={"small": LayoutModel()},
        mutants=(Mutant((C.LAYOUT_IS_KEPT,), P.ATTRIBUTE_LOST),),
    )
