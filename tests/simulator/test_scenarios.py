"""Ends of small state machines in the simulator. ``tests/local`` compares the same ones with local AWS."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any, Final

import pytest

from constructs_lib.testing.simulator.deployment.blueprint import QueueSpec, TableSpec, arn
from constructs_lib.testing.simulator.world import World

from .scenarios import CHILDREN, FUNCTIONS, SCENARIOS, Scenario
from .support import add_machine, blueprint, execute, function_arn, world_of

ENDS: Final[dict[str, Any]] = {
    "a result is the output": {"x": 1},
    "an output may be text": "ab",
    "assign sees the variables as they were": {"x": 2, "y": 1, "in": 1},
    "a rule's assign counts, and its state's does not": "rule",
    "a default's assign counts": "state",
    "no rule fits and there is no default": ("FAILED", "States.NoChoiceMatched"),
    "a failure has its own name": ("FAILED", "Mine"),
    "an error is caught by its name": "Oops",
    "an error is caught by States.TaskFailed": "Oops",
    "an error is caught by States.ALL": "Oops",
    "an error is not caught by another's name": ("FAILED", "Oops"),
    "a cause is the error's document": {"type": "Oops", "message": 'a "quoted" reason'},
    "a process that dies is Runtime.ExitError": "Runtime.ExitError",
    "retries are counted": 2,
    "a task that takes too long": "States.Timeout",
    "branches in order": [{"x": 1}, 2],
    "a branch that fails": {"Error": "Mine", "Cause": "c"},
    "items with their places": [[0, "a"], [1, "b"], [2, "c"]],
    "numbers of 15 digits": "0.3",
    "objects as text": '{"a":1,"b":[true,null,"x"]}',
    "a large number in a text": "12345678901234600",
    "text that is not ASCII": 9,
    "a missing value": ("FAILED", "States.QueryEvaluationError"),
    "null is a value": None,
    "a parsed text": 2,
    "a sum of seconds": 40,
    "a context that stays": [7, 0],
    "a result that is too large": ("FAILED", "States.DataLimitExceeded"),
    "an item that is put and got": {"id": {"S": "a"}, "n": {"N": "1.5"}},
    "an item that is not there": False,
    "a condition that is not met": "DynamoDB.ConditionalCheckFailedException",
    "a condition that is not met, by the SDK": "DynamoDb.ConditionalCheckFailedException",
    "a query that counts": [1, False],
    "an update that returns": {"id": {"S": "u"}, "n": {"N": "1"}},
    "a child that succeeds": {"got": {"x": 1}},
    "a child that fails": "States.TaskFailed",
    "an Express child that succeeds": ["SUCCEEDED", {"got": {"x": 1}}],
    "an Express child that fails": ["FAILED", "Inside"],
    "a machine that takes too long": ("TIMED_OUT", None),
    "a message": 1,
}


@pytest.fixture(scope="module")
def world() -> Iterator[World]:
    made = blueprint(**FUNCTIONS)
    made.tables["table"] = TableSpec(name="table", keys=("id",), kinds=("S",))
    made.queues["queue"] = QueueSpec(name="queue")
    names = {name: function_arn(name) for name in FUNCTIONS}
    names |= {"TABLE": "table", "QUEUE": made.queues["queue"].url}
    for name, child in CHILDREN.items():
        names[name] = add_machine(made, name, child)
        names[f"{name}-express"] = add_machine(made, f"{name}-express", child, "EXPRESS")
    for number, scenario in enumerate(SCENARIOS):
        add_machine(made, f"m{number}", scenario.definition(**names))
    with world_of(made) as found:
        yield found


def end_of(world: World, scenario: Scenario) -> Any:
    """End of a scenario: its output, or its status and error."""
    described = execute(world, f"m{SCENARIOS.index(scenario)}", scenario.given)
    assert described["stateMachineArn"] == arn("states", f"stateMachine:m{SCENARIOS.index(scenario)}")
    if described["status"] == "SUCCEEDED":
        return json.loads(described["output"])
    return described["status"], described.get("error")


@pytest.mark.parametrize("scenario", SCENARIOS, ids=lambda scenario: scenario.name)
def test_a_scenario_ends_as_it_does_on_aws(scenario: Scenario, world: World) -> None:
    assert end_of(world, scenario) == ENDS[scenario.name]
