"""Token row and log row keep a callback step's promises, and each condition is needed, or has a reason to be spare."""

from __future__ import annotations

from dataclasses import replace

from tests.specification.callback_conditions import CallbackCondition as C
from tests.specification.callback_conditions import CallbackPromise as P
from tests.specification.callback_step import CallbackStepModel
from tests.specification.conditions import STUCK, Mutant
from tests.specification.suite import LargeConfigurationTests, RedundantConditionTests, SpareConditionTests, Suite

# One wait, one dispatcher and one receiver at once, and a provider that knows its keys.
SMALL = CallbackStepModel(attempts=1, dispatchers=1, receivers=1, repeats=True)
SETTINGS = {
    "small": SMALL,
    "retried": replace(SMALL, attempts=2, declines=False),
    "behind the pivot": replace(SMALL, attempts=2, declines=False, only_forward=True),
    "refused behind the pivot": replace(SMALL, only_forward=True, relents=True),
    "a later step fails": replace(SMALL, declines=False, goes_back=True, twice=True),
    "verify": replace(SMALL, repeats=False, declines=False),
    "verify, two dispatchers": replace(SMALL, repeats=False, declines=False, dispatchers=2, doubled=True),
    "denies what is pending": replace(SMALL, blunt=True),
    "relents": replace(SMALL, relents=True),
    "relents, one event id": replace(SMALL, relents=True, one_id=True),
    "contradicts itself": replace(SMALL, stale=True, declines=False),
    "ids of its own": replace(SMALL, own_ids=True, stale=True, declines=False),
    "verify, ids of its own": replace(SMALL, repeats=False, own_ids=True, declines=False),
}
LARGE = {
    "retried, and may be refused": replace(SMALL, attempts=2),
    "retried, two receivers": replace(SMALL, attempts=2, declines=False, receivers=2),
    "retried, two dispatchers": replace(SMALL, attempts=2, declines=False, dispatchers=2),
    "verify, retried": replace(SMALL, attempts=2, repeats=False),
    "relents, retried": replace(SMALL, attempts=2, relents=True),
    "relents, behind the pivot, retried": replace(SMALL, attempts=2, relents=True, only_forward=True),
    "verify, ids of its own, retried": replace(SMALL, attempts=2, repeats=False, own_ids=True, stale=True),
    "relents, skipped": replace(SMALL, attempts=2, relents=True, passes=True),
}


class TestCallbackStep(RedundantConditionTests, LargeConfigurationTests, SpareConditionTests):
    suite = Suite(
        conditions=C,
        settings=SETTINGS,
        large=LARGE,
        mutants=(
            Mutant((C.INTENT_FIRST,), P.EFFECT_TWICE, "verify, two dispatchers"),
            Mutant((C.REGISTER_FIRST,), STUCK),
            Mutant((C.NEWER_REPLACES,), STUCK, "behind the pivot"),
            Mutant((C.OLDER_CHANGES_NOTHING,), STUCK, "behind the pivot"),
            Mutant((C.REFUSAL_STAYS,), P.OWNER_GAVE_UP, "relents"),
            Mutant((C.ALIVE_WAITS,), P.EFFECT_TWICE, "verify, two dispatchers"),
            Mutant((C.GRACE_WAITS,), P.EFFECT_TWICE, "verify, two dispatchers"),
            Mutant((C.TAKE_OVER_HELD,), P.EFFECT_TWICE, "verify, two dispatchers"),
            Mutant((C.PENDING_WAITS,), P.EFFECT_TWICE, "verify, two dispatchers"),
            Mutant((C.DECLARED_REFUSAL,), STUCK, "verify, ids of its own"),
            Mutant((C.ALIAS_ABSENT,), STUCK, "ids of its own"),
            Mutant((C.ALIAS_HANDS_OVER,), STUCK, "ids of its own"),
            Mutant((C.ALIAS_KEEPS_BOTH,), STUCK, "ids of its own"),
            Mutant((C.SUCCESS_FIRST,), STUCK, "ids of its own"),
            Mutant((C.ADOPTED_TOGETHER,), STUCK, "ids of its own"),
            Mutant((C.ADOPTED_AS_READ,), STUCK, "ids of its own"),
            Mutant((C.PENDING_TELLS_ID,), STUCK, "verify, ids of its own"),
            Mutant((C.ONE_RECEIPT,), STUCK),
            Mutant((C.MARKER_OF_OUTCOME,), STUCK, "relents, one event id"),
            Mutant((C.AS_READ,), P.UNDONE_TWICE),
            Mutant((C.DONE_STAYS,), STUCK, "contradicts itself"),
            Mutant((C.UNDONE_STAYS,), P.UNDONE_TWICE),
            Mutant((C.LATE_ON_TOMBSTONE,), STUCK, "denies what is pending"),
            Mutant((C.LATE_ON_FAILED,), STUCK, "contradicts itself"),
            Mutant((C.DUE_WITH_IT,), STUCK, "denies what is pending"),
            Mutant((C.SWEEPER_SENDS,), STUCK),
            Mutant((C.ANSWER_UNPARKS,), STUCK),
            Mutant((C.DIRECT_ANSWER_UNPARKS,), STUCK, "behind the pivot"),
            Mutant((C.LATE_AS_READ,), STUCK),
            Mutant((C.PARK_UNLESS_ANSWERED,), STUCK),
            Mutant((C.TAKE_OVER_FORGETS,), STUCK, "refused behind the pivot"),
            Mutant((C.BURY,), STUCK),
            Mutant((C.CHAIN_AGAIN,), STUCK, "denies what is pending"),
            Mutant((C.CHAIN_AWAITS_LATE_UNDO,), STUCK, "denies what is pending"),
            Mutant((C.UNDO_LATE,), STUCK, "denies what is pending"),
            Mutant((C.DUE_UNTIL_UNDONE,), STUCK, "denies what is pending"),
        ),
        redundant=(
            Mutant((C.ANSWERS_FROM_THE_ROW, C.LATE_HELD), STUCK, "behind the pivot"),
            Mutant((C.OUTCOME_ANSWERS, C.ANSWERS_FROM_THE_ROW), STUCK, "behind the pivot"),
            Mutant((C.LATE_HELD, C.ANSWERS_FROM_THE_ROW), STUCK, "behind the pivot"),
            Mutant((C.SETTLED_HELD, C.ANSWERS_FROM_THE_ROW), STUCK, "behind the pivot"),
            Mutant((C.DUPLICATE_SENDS, C.SWEEPER_SENDS), STUCK, "verify"),
        ),
        # No harm was found without these, alone: something else keeps what they keep, later or by a longer way.
        spare={
            C.EARLY_ANSWERS: "a job's token is registered before its provider is asked, and its row keeps the answer",
            C.EARLY_IS_KEPT: "the same; only what is under an id of the provider's own comes before its job is known",
            C.ACCEPTED_IS_NOT_CALLED: "its provider would be asked all the same, or would know the key",
            C.REFUSAL_DECISIVE: "the former request's success is received, and undone as applied late",
            C.TOLD_BY_THE_ROW: "both rows are written at once, and the first outcome stays in both",
            C.NEWER_IS_TOLD: "the writer of the newer token delivers, or the sweeper does",
            C.ASK_THE_LOG: "a late effect is compensated after the end, by an execution of its own",
            C.ONLY_LATE: "of a job that was ever late no row becomes DONE again",
        },
        spare_in=("behind the pivot", "denies what is pending", "contradicts itself"),
    )
