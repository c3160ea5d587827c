"""The updates of a request record that these tests make are those that the state machines make."""

from __future__ import annotations

from typing import Any

import pytest

from constructs_lib.saga.asl import CompiledStep, SagaPlan, definition_of, recovery_of
from constructs_lib.saga.description.description import FunctionDescription
from saga_runtime.protocol import Direction, RecordStatus
from tests.constructs.support.plans import PLANS
from tests.unit.support.samples import NOW_MS, REQUEST_ID, SAGA_ID
from tests.unit.support.settling import REMEMBER_SECONDS, REPLAY_SECONDS, direct, note_definition, park, settle

WHO: dict[str, Any] = {"request_id": REQUEST_ID, "execution": SAGA_ID, "now_ms": NOW_MS}


@pytest.fixture(scope="module")
def updates() -> dict[str, dict[str, Any]]:
    """Arguments of every update of the request record in a saga's machines, by the state's name."""

    def step(name: str, *, pivot: bool) -> CompiledStep:
        return CompiledStep(
            name=name,
            kind="atomic",
            function_arn="arn:do",
            pivot=pivot,
            compensate_arn="arn:undo",
            compensation=FunctionDescription(timeout=10),
        )

    plan = SagaPlan(
        steps=[step("Debit", pivot=False), step("Credit", pivot=True)],
        request_table="requests",
        log_table="log",
        log_days=400,
        replay_seconds=REPLAY_SECONDS,
        remember_seconds=REMEMBER_SECONDS,
        timeout_seconds=3_600,
        result="$outputs",
        http_status_by_error={},
        refused_http_status=422,
        comment="a saga",
    )
    machines = {"": definition_of(plan), "recovery: ": recovery_of(plan, "arn:forward")}
    return {
        prefix + name: state["Arguments"]
        for prefix, machine in machines.items()
        for name, state in machine["States"].items()
        if state.get("Resource", "").endswith(":updateItem")
    }


MINE = {
    "Settle completed": settle(**WHO, status=RecordStatus.COMPLETED),
    "Settle failed": settle(**WHO, status=RecordStatus.FAILED),
    "Park saga": park(**WHO),
    "Begin compensation at Debit": direct(**WHO, direction=Direction.COMPENSATE),
    "Begin compensation at Credit": direct(**WHO, direction=Direction.COMPENSATE),
    "Continue forward at Credit": direct(**WHO, direction=Direction.FORWARD),
    "Note first definition": note_definition(**WHO, definition="d"),
    "recovery: Settle failed": settle(**WHO, status=RecordStatus.FAILED),
    "recovery: Park saga": park(**WHO),
    "recovery: Note definition": note_definition(**WHO, definition="d"),
    "recovery: Set direction to compensate": direct(**WHO, direction=Direction.COMPENSATE),
    "recovery: Set direction to forward": direct(**WHO, direction=Direction.FORWARD),
}


def test_no_machine_makes_an_update_that_is_not_tried_here(updates: dict[str, dict[str, Any]]) -> None:
    assert set(updates) == set(MINE)


@pytest.mark.parametrize("state", MINE)
def test_the_update_is_the_machines_own(updates: dict[str, dict[str, Any]], state: str) -> None:
    theirs, mine = updates[state], MINE[state]

    for part in ("UpdateExpression", "ConditionExpression", "ExpressionAttributeNames"):
        assert theirs[part] == mine[part]
    assert set(theirs["ExpressionAttributeValues"]) == set(mine["ExpressionAttributeValues"])
    assert theirs["ExpressionAttributeValues"][":in_progress"] == {"S": "IN_PROGRESS"}
    assert theirs["ExpressionAttributeValues"][":owner"] == {"S": "{% $states.context.Execution.Name %}"}


def test_a_waiting_saga_is_not_parked_over_a_new_outcome() -> None:
    theirs = definition_of(PLANS["jobs"])["States"]["Park saga"]["Arguments"]
    mine = park(**WHO, waits=True)

    for part in ("UpdateExpression", "ConditionExpression", "ExpressionAttributeNames"):
        assert theirs[part] == mine[part]
