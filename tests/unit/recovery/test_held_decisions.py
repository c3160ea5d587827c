"""Decisions about one saga that an operator holds: another operator must know of the hold."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final

import boto3
import pytest

from saga_runtime.protocol import HoldAttribute, SecondPerson
from saga_runtime.recovery import hold as hold_module
from saga_runtime.recovery.hold import HOLD_KEY, hold_key
from saga_runtime.shared import aws
from tests.unit.support.asked_function import ANN, BEN, EVE, asked_function
from tests.unit.support.checked_stack import create_hold_table
from tests.unit.support.gateway import STEP
from tests.unit.support.operated_saga import OperatedSaga, operated_saga_in
from tests.unit.support.samples import SAGA_ID
from tests.unit.support.world import World

APPLIED: Final = ("resolve", STEP, "--applied", "--output", '{"payment": "p"}')
CONFIRM: Final = ("confirm", "--proposal", "1", "--reason", "I asked, too", "--yes")
ALTHOUGH: Final = "--although-held"
SUBJECTS: Final = pytest.mark.parametrize("saga_id", [SAGA_ID, None], ids=["the saga", "all sagas"])


@pytest.fixture
def operated(world: World, monkeypatch: pytest.MonkeyPatch, boto3_session: boto3.Session) -> Iterator[OperatedSaga]:
    """A parked saga with a step in doubt."""
    monkeypatch.setattr(hold_module, "KEPT_MS", 0)
    with operated_saga_in(world, monkeypatch, boto3_session) as made:
        made.cut_off()
        made.park()
        made.shop.pass_every_deadline()
        yield made


def hold(saga_id: str | None, who: str) -> None:
    """Let an operator hold a saga, or all."""
    a = HoldAttribute
    item: Any = {a.SINCE: {"N": "1700000000000"}, a.REASON: {"S": "refunded by hand"}, a.WHO: {"S": who}}
    aws.dynamodb().put_item(TableName="hold", Item={**hold_key(saga_id), **item})


def release() -> None:
    for key in (HOLD_KEY, hold_key(SAGA_ID)):
        aws.dynamodb().delete_item(TableName="hold", Key=key)


def refused(told: str) -> bool:
    end = "since 2023-11-14 22:13:20 UTC: refunded by hand; agree with that operator, and repeat this with"
    return f"saga {SAGA_ID} must not be held by another operator, got a hold of {ANN[0]} {end} {ALTHOUGH}\n" in told


@SUBJECTS
@pytest.mark.parametrize("words", [APPLIED, ("resolve", "--resume"), ("cancel",)], ids=lambda words: words[0])
def test_function_refuses_what_another_operator_may_not_know(
    operated: OperatedSaga, monkeypatch: pytest.MonkeyPatch, saga_id: str | None, words: tuple[str, ...]
) -> None:
    function = asked_function(operated, monkeypatch, None)
    hold(saga_id, ANN[0])
    state = operated.state

    status, told = function.by(BEN, *words)

    assert (status, refused(told), operated.state) == (1, True, state), told


@SUBJECTS
def test_holder_decides_and_others_who_know_of_the_hold(
    operated: OperatedSaga, monkeypatch: pytest.MonkeyPatch, saga_id: str | None
) -> None:
    function = asked_function(operated, monkeypatch, None)
    hold(saga_id, ANN[0])

    assert function.by(ANN, *APPLIED)[0] == 0
    assert function.by(BEN, "resolve", "--resume", ALTHOUGH)[0] == 0


@SUBJECTS
def test_confirmation_is_refused_while_another_operator_holds(
    operated: OperatedSaga, monkeypatch: pytest.MonkeyPatch, saga_id: str | None
) -> None:
    function = asked_function(operated, monkeypatch, SecondPerson.OTHER_ROLE)
    hold(saga_id, ANN[0])
    assert function.by(ANN, *APPLIED)[0] == 0
    row = operated.shop.status

    status, told = function.by(EVE, *CONFIRM)
    assert (status, refused(told), operated.shop.status) == (1, True, row), told

    assert function.by(EVE, *CONFIRM, ALTHOUGH)[0] == 0
    assert operated.shop.status == "DONE"


@pytest.fixture
def reconciled(operated: OperatedSaga) -> OperatedSaga:
    """The saga, of a stack with a reconciler and without a function for operators."""
    create_hold_table()
    operated.manifests["Shop"]["reconcilers"] = [{"function": "Reconciler", "hold": "hold", "limit": 3, "serves": []}]
    return operated


@SUBJECTS
@pytest.mark.parametrize("words", [APPLIED, ("resolve", "--resume"), ("cancel",), ("recover",), ("adopt",)])
def test_commands_refuse_what_another_operator_may_not_know(
    reconciled: OperatedSaga, saga_id: str | None, words: tuple[str, ...]
) -> None:
    hold(saga_id, ANN[0])
    state = reconciled.state

    status, told = reconciled.run(*words)

    assert (status, refused(told), reconciled.state) == (1, True, state), told


@SUBJECTS
def test_command_of_an_operator_who_knows_of_the_hold(reconciled: OperatedSaga, saga_id: str | None) -> None:
    hold(saga_id, ANN[0])

    assert reconciled.run(*APPLIED, ALTHOUGH)[0] == 0
    assert reconciled.shop.status == "DONE"


def test_hold_that_may_not_be_read_is_reported(reconciled: OperatedSaga) -> None:
    """An operator who may resolve a saga need not have a right on its reconciler's table."""
    reconciled.manifests["Shop"]["reconcilers"][0]["hold"] = "gone"

    status, told = reconciled.run(*APPLIED)

    assert (status, told.count("whether another operator holds the saga is not known: table gone: ")) == (0, 1), told


@SUBJECTS
def test_inspect_shows_a_hold_first(reconciled: OperatedSaga, saga_id: str | None) -> None:
    hold(saga_id, ANN[0])

    status, told = reconciled.run("inspect")

    said = " ".join(told.partition("executions")[0].split())
    assert (status, f"held since 2023-11-14 22:13:20 UTC by {ANN[0]}: refunded by hand" in said) == (0, True), told
    release()
    assert "held " not in reconciled.run("inspect")[1].partition("executions")[0]


@pytest.mark.parametrize("by_function", [True, False], ids=["a function", "the command"])
def test_refusal_shows_no_character_that_moves_the_cursor(
    operated: OperatedSaga, monkeypatch: pytest.MonkeyPatch, by_function: bool
) -> None:
    """As of a hold that something else than the command wrote."""
    if by_function:
        asked_function(operated, monkeypatch, None)
    else:
        create_hold_table()
        operated.manifests["Shop"]["reconcilers"] = [{"function": "R", "hold": "hold", "limit": 3, "serves": []}]
    hold(SAGA_ID, f"{ANN[0]}\x1b[2A")

    status, told = operated.run(*APPLIED)

    assert (status, "\x1b" in told, "must not be held by another operator" in told) == (1, False, True), told
