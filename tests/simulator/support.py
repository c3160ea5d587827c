"""Small worlds, put together by hand."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any, Final

from constructs_lib.testing.simulator.checks.coverage import Coverage
from constructs_lib.testing.simulator.deployment.blueprint import Blueprint, FunctionSpec, MachineSpec, arn
from constructs_lib.testing.simulator.deployment.deployment import Deployment
from constructs_lib.testing.simulator.engine.kernel import SECOND
from constructs_lib.testing.simulator.faults.climate import CALM, Climate
from constructs_lib.testing.simulator.run import START
from constructs_lib.testing.simulator.world import World, running

EVERYTHING: Final = {"Effect": "Allow", "Action": "*", "Resource": "*"}
ROLE: Final = "role"
HOUR: Final = 3_600 * SECOND
RETURN: Final = "def handler(event, context):\n    return event\n"


def blueprint(**functions: str) -> Blueprint:
    """Functions by name and source, with a role that may do everything."""
    made = Blueprint(roles={ROLE: [EVERYTHING]})
    for name, source in functions.items():
        add_function(made, name, source)
    return made


def add_function(made: Blueprint, name: str, source: str, **more: Any) -> None:
    """Add a function of one module."""
    values: dict[str, Any] = {"environment": {}, "timeout": 15, "role": ROLE, **more}
    made.functions[name] = FunctionSpec(name=name, code=source, handler="index.handler", **values)


def add_machine(made: Blueprint, name: str, definition: Mapping[str, Any], kind: str = "STANDARD") -> str:
    """Add a state machine, and return its ARN."""
    made.machines[name] = MachineSpec(
        name=name, definition={"QueryLanguage": "JSONata", **definition}, kind=kind, role=ROLE
    )
    return made.machines[name].arn


def function_arn(name: str) -> str:
    """ARN of a function."""
    return arn("lambda", f"function:{name}")


def invoke(name: str, payload: Any = None, **more: Any) -> dict[str, Any]:
    """A state that invokes a function."""
    arguments = {"FunctionName": function_arn(name), "Payload": payload if payload is not None else {}}
    return {
        "Type": "Task",
        "Resource": "arn:aws:states:::lambda:invoke",
        "Arguments": arguments,
        "Output": "{% $states.result.Payload %}",
        **({} if "Next" in more else {"End": True}),
        **more,
    }


@contextmanager
def world_of(made: Blueprint, climate: Climate = CALM, seed: str = "1") -> Iterator[World]:
    """A world in which nothing has happened yet."""
    with Deployment(made) as deployment, running(deployment, climate, seed, start=START, coverage=Coverage()) as world:
        yield world


def execute(world: World, machine: str, given: Any = None, *, name: str = "run", seconds: int = 86_400) -> Any:
    """Run an execution to its end, or for some virtual time, and return DescribeExecution's response."""
    text = json.dumps({} if given is None else given)
    execution = world.machines.start(arn("states", f"stateMachine:{machine}"), name, text)
    until = world.kernel.now + seconds * SECOND
    world.kernel.run(until=until, ended=lambda: not execution.running)
    return execution.described()


def output_of(described: Mapping[str, Any]) -> Any:
    """An execution's output."""
    assert described["status"] == "SUCCEEDED", described
    return json.loads(described["output"])
