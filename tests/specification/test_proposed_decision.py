"""A decision of two operators keeps its promises, and each of its conditions is needed."""

from __future__ import annotations

from tests.specification.conditions import Mutant
from tests.specification.proposed_decision import ProposalCondition as C
from tests.specification.proposed_decision import ProposalModel
from tests.specification.proposed_decision import ProposalPromise as P
from tests.specification.suite import LargeConfigurationTests, Suite


class TestProposedDecision(LargeConfigurationTests):
    suite = Suite(
        conditions=C,
        settings={
            "small": ProposalModel(),
            "two proposals": ProposalModel(most_proposals=2, at_once=2),
            "three operators": ProposalModel(people=("alice", "bob", "carol"), at_once=2),
        },
        large={"all": ProposalModel(people=("alice", "bob", "carol"), most_proposals=2)},
        mutants=(
            Mutant((C.OTHER_PRINCIPAL,), P.DECIDED_ALONE),
            Mutant((C.UNEXPIRED,), P.DECIDED_TOO_LATE),
            Mutant((C.AS_SEEN,), P.PROPOSED_ABOUT_ANOTHER_PARKING),
            Mutant((C.NUMBER_IS_FREE,), P.TOLD_THE_NUMBER_OF_ANOTHER, "two proposals"),
            Mutant((C.NUMBERS_GROW,), P.TOLD_THE_NUMBER_OF_ANOTHER),
            Mutant((C.RECORD_AS_PROPOSED,), P.DECIDED_ABOUT_ANOTHER_PARKING),
            Mutant((C.ROW_AS_PROPOSED,), P.DECIDED_ABOUT_ANOTHER_ROW),
            Mutant((C.CONFIRMED_BEFORE,), P.REFUSED_ALTHOUGH_DECIDED),
            Mutant((C.RESUMED_AS_PARKED,), P.RESUMED_ANOTHER_PARKING),
        ),
    )
