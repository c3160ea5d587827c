"""A collecting account keeps its promises, and each of its conditions is needed."""

from __future__ import annotations

from tests.specification.collecting import CollectingCondition as C
from tests.specification.collecting import CollectingModel, Who
from tests.specification.collecting import CollectingPromise as P
from tests.specification.conditions import STUCK, Mutant
from tests.specification.suite import LargeConfigurationTests, RedundantConditionTests, Suite


class TestCollecting(RedundantConditionTests, LargeConfigurationTests):
    suite = Suite(
        conditions=C,
        settings={
            "small": CollectingModel(),
            "one credit": CollectingModel(credits=1),
            "swept by need": CollectingModel(credits=1, others=(Who.SWEEP, Who.NEED, Who.DEBIT)),
            "the account is closed": CollectingModel(others=(Who.SWEEP, Who.DEBIT), closes=True),
        },
        large={
            "three credits": CollectingModel(credits=3),
            "swept by need, two credits": CollectingModel(others=(Who.SWEEP, Who.NEED, Who.DEBIT)),
        },
        mutants=(
            Mutant((C.ENTRY_ONCE,), P.CREDITED_TWICE),
            Mutant((C.SHARD_OPEN,), P.MONEY_IN_A_CLOSED_SHARD),
            Mutant((C.SHARD_AS_READ,), P.MONEY_LOST_OR_MADE),
            Mutant((C.ACCOUNT_AS_READ,), P.MONEY_LOST_OR_MADE, "swept by need"),
            Mutant((C.ONE_TRANSACTION,), P.MONEY_LOST_OR_MADE),
            Mutant((C.SUSPENSE,), STUCK, "the account is closed"),
            Mutant((C.DUE,), STUCK),
            Mutant((C.CLOSED_AFTER_ITS_WINDOW,), STUCK),
            Mutant((C.PLANS_AGAIN,), STUCK),
        ),
        redundant=(
            Mutant((C.SWEEP_OPEN, C.SHARD_AS_READ, C.ACCOUNT_AS_READ), P.SHARD_DIFFERS_FROM_ITS_ENTRIES, "one credit"),
        ),
    )
