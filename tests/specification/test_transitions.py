"""Transitions keep their promises, each of their conditions is needed, and each naive form breaks one."""

from __future__ import annotations

import pytest

from tests.specification.checker import check
from tests.specification.conditions import Mutant, found
from tests.specification.suite import LargeConfigurationTests, RedundantConditionTests, Suite
from tests.specification.transitions import Form, TransitionModel
from tests.specification.transitions import TransitionCondition as C
from tests.specification.transitions import TransitionPromise as P

RACE = ("start 1", "cancel", "cancel, too", "complete 1")
LATE = ("start 1", "complete 1", "give up", "try again", "start 2", "complete 2")
CHARGED = ("start 1", "give up", "try again", "start 2")


class TestTransitions(RedundantConditionTests, LargeConfigurationTests):
    suite = Suite(
        conditions=C,
        settings={
            "small": TransitionModel(kinds=("start 1", "fail 1", "try again", "start 2")),
            "a late worker begins": TransitionModel(kinds=("start 1", "complete 1", "give up", "try again", "start 2")),
            "race": TransitionModel(kinds=RACE),
            "charged": TransitionModel(kinds=CHARGED, charges=True),
        },
        large={
            "tried again": TransitionModel(),
            "a late worker": TransitionModel(kinds=LATE),
            "cancelled when tried again": TransitionModel(
                kinds=("start 1", "fail 1", "try again", "start 2", "cancel")
            ),
        },
        mutants=(
            Mutant((C.FROM_STATE,), P.LEFT_A_TERMINAL_STATE, "race"),
            Mutant((C.MARKER_DECIDES,), P.CONFLICT_BUT_MOVED),
            Mutant((C.VERSION_AS_READ,), P.CONFLICT_BUT_MOVED),
            Mutant((C.HOLDER,), P.ENDED_BY_ANOTHER, "a late worker begins"),
            Mutant((C.VERDICT_FIRST,), P.CHARGED_TWICE, "charged"),
        ),
        redundant=(Mutant((C.TRANSITION_MARKER_ABSENT, C.VERSION_AS_READ), P.TRANSITION_TWICE),),
    )


@pytest.mark.parametrize(
    ("form", "kinds", "harm"),
    [
        (Form.ARTICLE, RACE, P.SUCCESS_OF_ANOTHER),
        (Form.ARTICLE, TransitionModel().kinds, P.ACTION_LOST),
        (Form.ARTICLE, TransitionModel().kinds, P.TRANSITION_TWICE),
        (Form.STATE, RACE, P.SUCCESS_OF_ANOTHER),
        (Form.STATE, TransitionModel().kinds, P.TRANSITION_TWICE),
        (Form.STATE, TransitionModel().kinds, P.CONFLICT_BUT_MOVED),
    ],
    ids=str,
)
def test_a_naive_form_breaks_a_promise(form: Form, kinds: tuple[str, ...], harm: P) -> None:
    verdict = check(TransitionModel(form=form, kinds=kinds), until=harm)

    print(verdict)
    assert harm in found(verdict)


def test_without_a_cycle_the_state_is_enough() -> None:
    """A state that never comes back shows which visit of it was meant: ``expected_version`` may be left out."""
    verdict = check(TransitionModel(kinds=RACE).without(C.VERSION_AS_READ))

    assert verdict.clean, verdict
