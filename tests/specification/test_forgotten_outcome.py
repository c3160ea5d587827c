"""An operator forgets what the listing showed of an unknown job, and it stays for the job."""

from __future__ import annotations

from tests.specification.conditions import Mutant
from tests.specification.forgotten_outcome import ForgetCondition as C
from tests.specification.forgotten_outcome import ForgetModel
from tests.specification.forgotten_outcome import ForgetPromise as P
from tests.specification.suite import LargeConfigurationTests, SpecificationTests, Suite


class TestForgottenOutcome(LargeConfigurationTests, SpecificationTests):
    suite = Suite(
        conditions=C,
        settings={"small": ForgetModel(), "two receivers": ForgetModel(operators=1, receivers=2)},
        large={"both": ForgetModel(receivers=2), "three outcomes": ForgetModel(outcomes=3)},
        mutants=(
            Mutant((C.STILL_UNKNOWN,), P.FORGOTTEN_ALTHOUGH_KNOWN),
            Mutant((C.AS_SEEN,), P.FORGOTTEN_UNSEEN),
            Mutant((C.AS_READ,), P.FORGOTTEN_UNSEEN),
            Mutant((C.DECIDED_ONCE,), P.FORGOTTEN_TWICE),
            Mutant((C.OUTCOME_STAYS,), P.OUTCOME_LOST),
            Mutant((C.LISTED_AGAIN,), P.FORGOTTEN_UNSEEN),
        ),
    )
