"""The compensation over serialized DynamoDB: the step's row decides, so running it is always safe."""

from __future__ import annotations

from typing import Any

import pytest

from saga_runtime import Commit, InsufficientFunds, StepCall, TransientError, compensation
from saga_runtime.errors import SagaFenced
from saga_runtime.shared import aws
from saga_runtime.steps.atomic_compensation import CompensationRefused
from tests.unit.support.samples import BODY, SAGA_ID, step_event
from tests.unit.support.transfers import run, undo
from tests.unit.support.wire import Action, Fault, Killed, Moment
from tests.unit.support.world import Context, World

STEP_KEY = f"{SAGA_ID}#Transfer"


@pytest.fixture(autouse=True)
def accounts(world: World) -> None:
    """Two accounts, as the sample request wants them."""
    world.open_accounts(alice=500, bob=0)
    world.wire.forget()


def test_a_step_that_never_ran_is_fenced(world: World) -> None:
    calls = world.calls_of(undo)

    assert calls == ["GetItem", "PutItem"]
    assert world.rows() == {STEP_KEY: "TOMBSTONE"}
    assert world.balances() == {"alice": 500, "bob": 0}


def test_an_applied_step_is_compensated_once_with_its_recorded_output(world: World) -> None:
    run()

    undo()
    undo()

    assert world.rows() == {STEP_KEY: "COMPENSATED"}
    assert world.balances() == {"alice": 500, "bob": 0}
    assert len([entry for entry in world.entries() if entry["entry_id"]["S"] == f"{STEP_KEY}#undo"]) == 2


@pytest.mark.parametrize("happened", [True, False])
def test_a_compensation_that_finds_nothing_left_to_do_makes_one_call(world: World, happened: bool) -> None:
    if happened:
        run()
    undo()

    assert world.calls_of(undo) == ["GetItem"]


@pytest.mark.parametrize("status", ["REFUSED", "COMPENSATED", "TOMBSTONE"])
def test_a_row_without_an_applied_effect_is_left_alone(world: World, status: str) -> None:
    row = {"saga_id": {"S": SAGA_ID}, "step": {"S": "Transfer"}, "status": {"S": status}, "updated_at": {"N": "1"}}
    aws.dynamodb().put_item(TableName="log", Item=row)

    undo()

    assert world.rows() == {STEP_KEY: status}


def test_the_compensation_is_called_only_for_a_step_that_was_applied(world: World) -> None:
    called: list[tuple[str, Any]] = []

    @compensation
    def undoing(call: StepCall, output: Any) -> Commit:
        called.append((call.key, output["amount"]))
        return Commit()

    undoing(step_event(saga_id=f"{SAGA_ID}1"), Context())
    run()
    undoing(step_event(), Context())

    assert called == [(f"{STEP_KEY}#undo", "200")]


@pytest.mark.parametrize("moment", list(Moment))
@pytest.mark.parametrize("action", [Action.DROP, Action.THROTTLE, Action.CONFLICT])
@pytest.mark.parametrize("happened", [True, False])
def test_a_disturbed_compensation_reaches_the_same_end(
    world: World, action: Action, moment: Moment, happened: bool
) -> None:
    if happened:
        run()
    world.wire.plan(Fault(operation="TransactWriteItems", action=action, moment=moment))

    undo()

    assert world.balances() == {"alice": 500, "bob": 0}
    assert world.rows() == {STEP_KEY: "COMPENSATED" if happened else "TOMBSTONE"}


def test_after_a_conflict_a_compensation_is_planned_on_what_was_recorded(world: World) -> None:
    """Changes that its function makes to its input are not in the next try."""
    seen: list[tuple[str, int]] = []

    @compensation
    def undoing(call: StepCall, output: dict[str, str]) -> Commit:
        seen.append((output.pop("amount"), call.request.pop("amount")))
        return Commit()

    run()
    world.wire.plan(Fault(operation="UpdateItem", action=Action.CONFLICT, times=2))

    undoing(step_event(), Context())

    assert seen == [("200", BODY["amount"])] * 3


@pytest.mark.parametrize("moment", list(Moment))
def test_a_compensation_that_dies_around_its_commit_compensates_once(world: World, moment: Moment) -> None:
    run()
    world.wire.plan(Fault(operation="TransactWriteItems", action=Action.KILL, moment=moment, times=1))
    with pytest.raises(Killed):
        undo()

    undo()

    assert world.balances() == {"alice": 500, "bob": 0}


def test_a_step_that_commits_during_its_compensation_is_compensated(world: World) -> None:
    zombie = zombie_after_the_next_read(world)

    undo()

    assert zombie == ["committed"]
    assert world.rows() == {STEP_KEY: "COMPENSATED"}
    assert world.balances() == {"alice": 500, "bob": 0}


def zombie_after_the_next_read(world: World) -> list[str]:
    """Let a late attempt of the step commit right after the compensation has read the row."""
    committed: list[str] = []
    read = aws.dynamodb().get_item

    def read_then_zombie(**arguments: Any) -> Any:
        answer = read(**arguments)
        if not committed:
            committed.append("committed")
            run()
        return answer

    aws.dynamodb().get_item = read_then_zombie  # type: ignore[method-assign]
    return committed


def test_a_compensation_that_is_refused_on_business_grounds_is_tried_again_later(world: World) -> None:
    run(body={**BODY, "amount": 200})
    run(f"{SAGA_ID}1", {**BODY, "from": "bob", "to": "alice", "amount": 200})

    with pytest.raises(CompensationRefused) as raised:
        undo()

    assert raised.value.retryable
    assert isinstance(raised.value, TransientError)
    assert isinstance(raised.value.__cause__, InsufficientFunds)
    assert world.rows()[STEP_KEY] == "DONE"


def test_a_late_attempt_after_the_tombstone_is_fenced(world: World) -> None:
    undo()

    with pytest.raises(SagaFenced):
        run()

    assert world.balances() == {"alice": 500, "bob": 0}
