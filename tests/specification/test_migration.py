"""A migration keeps its promises, and each of its conditions is needed."""

from __future__ import annotations

import pytest

from tests.specification.article_history import Histories, Identity
from tests.specification.article_migration import DIVERGES, DualWrites, Way
from tests.specification.checker import check
from tests.specification.conditions import STUCK, Mutant
from tests.specification.migration import MigrationCondition as C
from tests.specification.migration import MigrationModel
from tests.specification.migration import MigrationPromise as P
from tests.specification.suite import LargeConfigurationTests, RedundantConditionTests, Suite

CHARGE = ("charge",)


class TestMigration(RedundantConditionTests, LargeConfigurationTests):
    suite = Suite(
        conditions=C,
        settings={
            "small": MigrationModel(),
            "two workers": MigrationModel(workers=2, reader=False, start=1, operations=CHARGE),
            "two workers, nothing contracted": MigrationModel(
                workers=2, reader=False, start=1, top=3, operations=CHARGE
            ),
            "two writers": MigrationModel(writers=2, reader=False, start=1, top=2),
            "births": MigrationModel(writers=2, reader=False, operations=CHARGE, born=False),
            "deletions": MigrationModel(writers=2, reader=False, start=1, operations=CHARGE, deletion=True),
        },
        large={
            "two writers, all phases": MigrationModel(writers=2),
            "two workers, all phases": MigrationModel(workers=2),
            "two of each, OLD and DUAL": MigrationModel(writers=2, workers=2, reader=False, start=1, top=2),
            "births, two workers": MigrationModel(writers=2, workers=2, operations=CHARGE, born=False),
        },
        mutants=(
            Mutant((C.LEGACY_IS_GONE,), P.OLD_AND_NEW_DIFFER),
            Mutant((C.PHASE_BY_ONE,), P.OLD_AND_NEW_DIFFER),
            Mutant((C.ALL_ARE_OLD,), P.OLD_AND_NEW_DIFFER),
            Mutant((C.OP_MARKER,), P.MOVED_TWICE),
            Mutant((C.OLD_ASKS_MARK,), P.OLD_AND_NEW_DIFFER),
            Mutant((C.NEW_ASKS_STATE,), P.OLD_AND_NEW_DIFFER),
            Mutant((C.MIRROR,), P.OLD_AND_NEW_DIFFER),
            Mutant((C.COPY_AS_READ,), P.OLD_AND_NEW_DIFFER),
            Mutant((C.SEAL_ASKS,), P.MONEY_LOST_OR_MADE, "two workers"),
            Mutant((C.SEAL_MARKS_OLD,), STUCK),
            Mutant((C.UNSEAL_AS_READ,), P.OLD_AND_NEW_DIFFER),
            Mutant((C.UNSEAL_COPIES,), P.OLD_AND_NEW_DIFFER),
            Mutant((C.RETREAT_ASKS,), P.MONEY_LOST_OR_MADE, "two workers"),
            Mutant((C.CONTRACT_ASKS,), P.MONEY_LOST_OR_MADE, "two workers"),
            Mutant((C.READ_ASKS_MARK,), P.STALE_READ),
            Mutant((C.GONE_ASKS,), P.NEW_ITEM_WITHOUT_A_MARK, "deletions"),
            Mutant((C.GONE_ASKS_ABSENT,), P.NEW_ITEM_WITHOUT_A_MARK, "deletions"),
            Mutant((C.GONE_DEMANDS,), P.MONEY_LOST_OR_MADE, "deletions"),
            Mutant((C.BIRTH_ABSENT,), P.MONEY_LOST_OR_MADE, "births"),
        ),
        redundant=(
            Mutant((C.DUAL_ASKS_OLD, C.DUAL_ASKS_NEW), P.NEW_ITEM_WITHOUT_A_MARK, "two writers"),
            Mutant((C.DUAL_ASKS_NEW, C.DUAL_ASKS_OLD), P.NEW_ITEM_WITHOUT_A_MARK, "two writers"),
            Mutant((C.COPY_ASKS_MARK, C.COPY_ASKS_ABSENT), P.MONEY_LOST_OR_MADE, "two workers, nothing contracted"),
            Mutant((C.COPY_ASKS_ABSENT, C.COPY_ASKS_MARK), P.MONEY_LOST_OR_MADE, "two workers, nothing contracted"),
        ),
    )


class TestDualWrites:
    """The ways that articles describe: writers of the new release write both items, a backfill copies the rest."""

    @pytest.mark.parametrize(
        "model",
        [
            DualWrites(Way.ADD, old_writers=False),
            DualWrites(Way.ADD, old_writers=False, backfills=2),
            DualWrites(Way.SET, old_writers=False),
            DualWrites(Way.ONCE, old_writers=False),
            DualWrites(Way.ONCE, as_read=True),
            DualWrites(Way.WAIT, old_writers=False),
            DualWrites(Way.WAIT, as_read=True),
        ],
        ids=str,
    )
    def test_dual_writes_with_a_backfill_diverge(self, model: DualWrites) -> None:
        verdict = check(model)

        print(verdict)
        assert DIVERGES in verdict.violations

    def test_dual_writes_after_a_conditional_copy_converge(self) -> None:
        verdict = check(DualWrites(Way.WAIT, old_writers=False, as_read=True, backfills=2))

        assert verdict.clean, verdict


class TestHistories:
    """Rows of both forms, as readers merge them."""

    @pytest.mark.parametrize("identity", [Identity.MOMENT, Identity.KEY], ids=str)
    def test_rows_by_moment_or_by_their_own_keys_diverge(self, identity: Identity) -> None:
        verdict = check(Histories(identity))

        print(verdict)
        assert DIVERGES in verdict.violations

    def test_rows_by_the_operations_id_are_each_purchase_once(self) -> None:
        verdict = check(Histories(Identity.ID, backfills=2))

        assert verdict.clean, verdict
