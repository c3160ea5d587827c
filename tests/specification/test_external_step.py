"""Row, deadline and grace keep an external step's promises at every kind of provider, and each condition is needed."""

from __future__ import annotations

from dataclasses import replace

from tests.specification.conditions import Mutant
from tests.specification.external_conditions import ExternalCondition as C
from tests.specification.external_conditions import ExternalPromise as P
from tests.specification.external_provider import Offers
from tests.specification.external_step import ExternalStepModel
from tests.specification.suite import LargeConfigurationTests, RedundantConditionTests, SpareConditionTests, Suite

CAN_BE_ASKED = Offers(verify=True, verify_undo=True)
IDEMPOTENT = Offers(idempotent=True, undo_idempotent=True)
FORGETS = Offers(idempotent=True, verify=True, undo_idempotent=True, verify_undo=True, forgets=True)
ASKED = ExternalStepModel(offers=CAN_BE_ASKED)
REPEATED = ExternalStepModel(offers=IDEMPOTENT)


class TestExternalStep(RedundantConditionTests, LargeConfigurationTests, SpareConditionTests):
    suite = Suite(
        conditions=C,
        settings={
            "verify": ASKED,
            "verify, three steps": replace(ASKED, steps=3, undos=0),
            "verify, two undos": replace(ASKED, steps=1, undos=2),
            "verify, three undos": replace(ASKED, steps=0, undos=3, done=True),
            "verify, pivot": replace(ASKED, undos=0, asks=1),
            "undo in doubt": replace(ASKED, offers=Offers(verify=True), steps=1, undos=2),
            "idempotent": REPEATED,
            "idempotent, pivot": replace(REPEATED, undos=0, asks=1),
            "windows": ExternalStepModel(offers=FORGETS, undos=0),
            "windows, two undos": ExternalStepModel(offers=FORGETS, steps=1, undos=2),
        },
        large={
            "verify, two of each": replace(ASKED, undos=2),
            "verify, the step and three undos": replace(ASKED, steps=1, undos=3),
            "verify, three steps and an undo": replace(ASKED, steps=3),
            "verify, pivot with a compensation": replace(ASKED, asks=1),
            "idempotent, two undos": replace(REPEATED, steps=1, undos=2),
            "idempotent, three steps": replace(REPEATED, steps=3, undos=0),
            "idempotent for a while, then unknowable": replace(REPEATED, offers=replace(IDEMPOTENT, forgets=True)),
            "idempotent, pivot with a compensation": replace(REPEATED, steps=1, asks=1),
            "windows, and an undo": ExternalStepModel(offers=FORGETS),
            "windows, pivot with a compensation": ExternalStepModel(offers=FORGETS, steps=1, asks=1),
        },
        mutants=(
            Mutant((C.TRAVEL_ENDS,), P.EFFECT_TWICE, "verify"),
            Mutant((C.DEAD_AT_DEADLINE,), P.EFFECT_TWICE, "verify"),
            Mutant((C.DEADLINES_GROW,), P.REFUSED_ALTHOUGH_DONE, "idempotent"),
            Mutant((C.ONE_CALL,), P.EFFECT_TWICE, "verify"),
            Mutant((C.INTENT_FIRST,), P.EFFECT_TWICE, "verify"),
            Mutant((C.INTENT_NO_ROW,), P.EFFECT_STANDS_AFTER_COMPENSATION, "verify"),
            Mutant((C.REPLAYS,), P.EFFECT_TWICE, "verify"),
            Mutant((C.REFUSAL_STAYS,), P.REFUSED_ALTHOUGH_DONE, "verify"),
            Mutant((C.FENCED,), P.EFFECT_STANDS_AFTER_COMPENSATION, "verify"),
            Mutant((C.CALL_AFTER_DEADLINE,), P.REFUSED_ALTHOUGH_DONE, "idempotent"),
            Mutant((C.CALL_AFTER_GRACE,), P.EFFECT_TWICE, "verify"),
            Mutant((C.CLEAR_NO,), P.EFFECT_TWICE, "verify"),
            Mutant((C.WINDOW_OPEN,), P.EFFECT_TWICE, "windows"),
            Mutant((C.WINDOW_COVERS_CALL,), P.EFFECT_TWICE, "windows"),
            Mutant((C.TAKE_OVER_FIRST,), P.EFFECT_STANDS_AFTER_COMPENSATION, "verify"),
            Mutant((C.TAKE_OVER_HELD,), P.EFFECT_TWICE, "verify, three steps"),
            Mutant((C.CLEAR_REFUSAL,), P.REFUSED_ALTHOUGH_DONE, "verify"),
            Mutant((C.DECLARED_REFUSAL,), P.REFUSED_ALTHOUGH_DONE, "verify"),
            Mutant((C.REFUSAL_AFTER_GRACE,), P.REFUSED_ALTHOUGH_DONE, "idempotent"),
            Mutant((C.REFUSAL_HELD,), P.REFUSED_ALTHOUGH_DONE, "verify"),
            Mutant((C.BURY,), P.EFFECT_STANDS_AFTER_COMPENSATION, "verify"),
            Mutant((C.BURY_NO_ROW,), P.EFFECT_STANDS_AFTER_COMPENSATION, "verify"),
            Mutant((C.BURY_AFTER_GRACE,), P.EFFECT_STANDS_AFTER_COMPENSATION, "verify"),
            Mutant((C.BURY_HELD,), P.EFFECT_STANDS_AFTER_COMPENSATION, "verify"),
            Mutant((C.UNDOING_FIRST,), P.UNDONE_TWICE, "verify, two undos"),
            Mutant((C.UNDOING_DONE,), P.UNDONE_TWICE, "verify, two undos"),
            Mutant((C.UNDO_OWN_KEY,), P.EFFECT_STANDS_AFTER_COMPENSATION, "idempotent"),
            Mutant((C.UNDO_AFTER_GRACE,), P.UNDONE_TWICE, "verify, two undos"),
            Mutant((C.UNDO_TAKE_OVER_FIRST,), P.UNDONE_TWICE, "verify, three undos"),
            Mutant((C.UNDO_TAKE_OVER_HELD,), P.UNDONE_TWICE, "verify, three undos"),
            Mutant((C.UNDECIDED_PARKS,), P.UNDONE_TWICE, "undo in doubt"),
            Mutant((C.ASK_BURIES,), P.WENT_BACK_BUT_THE_EFFECT_STANDS, "verify, pivot"),
            Mutant((C.ASK_WRITES,), P.WENT_BACK_BUT_THE_EFFECT_STANDS, "verify, pivot"),
        ),
        redundant=(
            Mutant((C.DONE_INTENT, C.DONE_HELD), P.UNDONE_TWICE, "verify, two undos"),
            Mutant((C.DONE_HELD, C.DONE_INTENT), P.UNDONE_TWICE, "verify, two undos"),
        ),
        # No harm was found without these, alone.
        spare={
            C.OWN_INTENT: "who gives up instead is taken over from, after its deadline",
            C.UNDO_AFTER_DEADLINE: "the provider knows the undo's key, or its no is not believed before the grace",
            C.UNDONE_UNDOING: "it is written by who knows that the undo took effect, and that stays true",
        },
        spare_in=("verify", "verify, two undos", "verify, three undos"),
    )
