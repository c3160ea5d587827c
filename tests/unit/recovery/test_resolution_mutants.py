"""Each condition of what people do about a parked saga, removed: the history that needs it must then end badly."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import boto3
import pytest

from saga_runtime.errors import SagaError
from saga_runtime.recovery import resolution
from saga_runtime.recovery.resolution import CannotResolve
from tests.unit.support import resolving as r
from tests.unit.support.desk import Desk, desk_in
from tests.unit.support.mutation import Mutant, Scenario, mutate
from tests.unit.support.world import World

pytestmark = pytest.mark.exhaustive


@pytest.fixture
def desk(world: World, monkeypatch: pytest.MonkeyPatch, boto3_session: boto3.Session) -> Iterator[Desk]:
    """A running saga, and a person's desk."""
    with desk_in(world, monkeypatch, boto3_session) as made:
        yield made


def _instead(name: str, target: str, old: str, new: str, kills: Scenario) -> Mutant:
    return Mutant(name=name, owner=resolution, target=target, old=old, new=new, kills=kills)


ALWAYS = "attribute_exists(#status) OR #attempt = :held OR #status = :found"
MUTANTS = [
    _instead(
        "decide whatever the row says by then",
        "AS_READ",
        "#status = :found AND #attempt = :held",
        ALWAYS,
        r.two_people_who_read_the_same_do_not_both_decide,
    ),
    _instead(
        "decide whoever holds the row by then",
        "AS_READ",
        " AND #attempt = :held",
        " AND (#attempt = :held OR attribute_exists(#attempt))",
        r.who_took_the_step_over_meanwhile_is_not_decided_about,
    ),
    _instead(
        "decide whatever state the row is in by then",
        "AS_READ",
        "#status = :found AND ",
        "(#status = :found OR attribute_exists(#status)) AND ",
        r.an_outcome_that_was_written_meanwhile_stays,
    ),
    _instead(
        "believe a no while a request travels",
        "_decide_step",
        "else subject.grace_ms",
        "else 0",
        r.a_no_counts_only_when_nothing_can_arrive_any_more,
    ),
    _instead(
        "believe a no about an undo while a request travels",
        "_decide_undo",
        "else subject.grace_ms",
        "else 0",
        r.a_no_about_an_undo_counts_only_when_nothing_can_arrive_any_more,
    ),
    _instead(
        "believe a yes while the caller lives",
        "_require_over",
        "if left > 0:",
        "if left > 0 and grace_ms:",
        r.a_yes_waits_until_the_caller_is_dead,
    ),
    _instead(
        "bury a step that must happen",
        "_decided",
        "None if subject.must_happen else ",
        "",
        r.where_a_saga_only_goes_forward_a_step_is_called_anew,
    ),
    _instead(
        "call a step anew in a saga that goes back",
        "_decided",
        "None if subject.must_happen else StepStatus.TOMBSTONE",
        "None",
        r.where_a_saga_goes_back_a_step_never_happens_any_more,
    ),
    _instead(
        "believe what was seen of another attempt",
        "_require_seen",
        "or row.attempt != seen",
        "",
        r.knowledge_of_an_older_attempt_does_not_count,
    ),
    _instead(
        "resume whoever owns the saga by then",
        "PARKED",
        "#owner = :owner",
        "(#owner = :owner OR attribute_exists(#owner))",
        r.two_people_resume_a_saga_once,
    ),
    _instead(
        "resume whatever the status",
        "PARKED",
        "#status = :in_progress",
        "(#status = :in_progress OR attribute_exists(#status))",
        r.a_saga_that_settled_meanwhile_is_not_resumed,
    ),
    _instead(
        "resume what is not parked",
        "PARKED",
        " AND attribute_exists(#parked)",
        "",
        r.a_saga_that_is_not_parked_is_not_handed_over,
    ),
]


@pytest.mark.parametrize("mutant", MUTANTS, ids=lambda mutant: mutant.name)
def test_without_the_condition_its_history_ends_badly(
    mutant: Mutant, desk: Desk, monkeypatch: pytest.MonkeyPatch
) -> None:
    mutate(monkeypatch, mutant)

    bad: tuple[Any, ...] = (AssertionError, pytest.fail.Exception, CannotResolve, SagaError)
    with pytest.raises(bad):
        mutant.kills(desk)


def test_every_history_has_its_mutant() -> None:
    histories = {
        name
        for name, value in vars(r).items()
        if getattr(value, "__module__", "") == r.__name__ and value.__doc__ and callable(value)
    } - {"subject_of", "write_of"}

    assert {mutant.kills.__name__ for mutant in MUTANTS} == histories
