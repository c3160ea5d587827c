"""A person's word about a step in doubt keeps every promise, and each of its conditions is needed, or spare."""

from __future__ import annotations

from tests.specification.conditions import Mutant
from tests.specification.external_conditions import ExternalPromise as P
from tests.specification.external_provider import Offers
from tests.specification.resolved_step import ResolutionCondition as C
from tests.specification.resolved_step import ResolvedStepModel, Way
from tests.specification.suite import SpareConditionTests, Suite

SILENT = Offers()
ASKED = Offers(verify=True, verify_undo=True)
IDEMPOTENT = Offers(idempotent=True, undo_idempotent=True, forgets=True)


class TestResolvedStep(SpareConditionTests):
    suite = Suite(
        conditions=C,
        settings={
            "no queries": ResolvedStepModel(offers=SILENT, way=Way.BACK),
            "no queries, forward": ResolvedStepModel(offers=SILENT, way=Way.FORWARD),
            "no queries, two undos": ResolvedStepModel(offers=SILENT, way=Way.BACK, steps=0, undos=2, done=True),
            "small": ResolvedStepModel(offers=ASKED, way=Way.BACK, steps=1),
            "verify, forward": ResolvedStepModel(offers=ASKED, way=Way.FORWARD, undos=0),
            "verify, two undos": ResolvedStepModel(offers=ASKED, way=Way.BACK, steps=0, undos=2, done=True),
            "idempotent": ResolvedStepModel(offers=IDEMPOTENT, way=Way.BACK, steps=1),
            "idempotent, forward": ResolvedStepModel(offers=IDEMPOTENT, way=Way.FORWARD, undos=0),
        },
        mutants=(
            Mutant((C.RESOLVE_ROW_ATTEMPT,), P.EFFECT_TWICE, "verify, forward"),
            Mutant((C.RESOLVE_AFTER_GRACE,), P.EFFECT_STANDS_AFTER_COMPENSATION, "no queries"),
        ),
        spare={
            C.RESOLVE_AFTER_DEADLINE: "what has happened has happened; but who lives may yet write the output",
        },
        spare_in=("no queries", "no queries, two undos", "verify, forward"),
    )
