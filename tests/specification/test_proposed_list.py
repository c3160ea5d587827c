"""A list that two operators resume keeps its promises, and each of its conditions is needed."""

from __future__ import annotations

from tests.specification.conditions import STUCK, Mutant
from tests.specification.proposed_list import ListCondition as C
from tests.specification.proposed_list import ListModel
from tests.specification.proposed_list import ListPromise as P
from tests.specification.suite import LargeConfigurationTests, RedundantConditionTests, Suite


class TestProposedList(RedundantConditionTests, LargeConfigurationTests):
    suite = Suite(
        conditions=C,
        settings={
            "small": ListModel(),
            "two sagas": ListModel(sagas=2),
            "three operators": ListModel(people=("alice", "bob", "carol")),
        },
        large={"all": ListModel(people=("alice", "bob", "carol"), sagas=2)},
        mutants=(
            Mutant((C.OTHER_PRINCIPAL,), P.CONFIRMED_ALONE),
            Mutant((C.UNEXPIRED,), P.CONFIRMED_TOO_LATE),
            Mutant((C.CONFIRMED_ONCE,), P.CONFIRMED_BY_TWO),
            Mutant((C.MADE_AS_READ,), P.CONFIRMED_UNREAD),
            Mutant((C.MADE_ONCE,), P.PROPOSED_AFTER_IT_WAS_CONFIRMED),
            Mutant((C.CONFIRMED,), P.RESUMED_UNCONFIRMED),
            Mutant((C.PARKED_THEN,), P.RESUMED_PARKED_AGAIN),
            Mutant((C.CONTINUED,), STUCK),
        ),
        redundant=(
            Mutant((C.AS_SEEN, C.PARKED_THEN), P.RESUMED_ANOTHER_OWNER),
            Mutant((C.RESUMED_AS_PARKED, C.PARKED_THEN), P.RESUMED_BY_TWO_REQUESTS),
        ),
    )
