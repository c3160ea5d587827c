"""Walking a definition: states, ways from one to the next, expressions, and the calls that it makes."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

State = Mapping[str, Any]
ENDINGS = frozenset({"Succeed", "Fail"})


@dataclass(frozen=True, slots=True)
class Edge:
    """One way from a state to another one."""

    source: str
    target: str
    kind: str


def edges(states: Mapping[str, State]) -> Iterator[Edge]:
    """Every way between the states of one level: ``next``, ``catch``, ``choice`` and ``default``."""
    for name, state in states.items():
        if "Next" in state:
            yield Edge(name, state["Next"], "next")
        if "Default" in state:
            yield Edge(name, state["Default"], "default")
        for choice in state.get("Choices", ()):
            yield Edge(name, choice["Next"], "choice")
        for catch in state.get("Catch", ()):
            yield Edge(name, catch["Next"], "catch")


def reachable(definition: State, start: str | None = None) -> set[str]:
    """Names of the states that can be reached, the start included."""
    following: dict[str, list[str]] = {}
    for edge in edges(definition["States"]):
        following.setdefault(edge.source, []).append(edge.target)
    seen: set[str] = set()
    todo = [start or definition["StartAt"]]
    while todo:
        name = todo.pop()
        if name not in seen:
            seen.add(name)
            todo.extend(following.get(name, ()))
    return seen


def levels(definition: State) -> Iterator[State]:
    """The definition and every nested one (branches, map processors)."""
    yield definition
    for state in definition["States"].values():
        for inner in (*state.get("Branches", ()), *(state[k] for k in ("ItemProcessor", "Iterator") if k in state)):
            yield from levels(inner)


def tasks(definition: State) -> Iterator[tuple[str, State]]:
    """Every Task state, nested ones included."""
    for level in levels(definition):
        for name, state in level["States"].items():
            if state["Type"] == "Task":
                yield name, state


def _rules(state: State) -> list[State]:
    """Rules of a Choice state, without the one for another definition, with which a first state may begin."""
    return [rule for rule in state["Choices"] if "$exists($begun)" not in rule["Condition"]]


def happy_path(definition: State) -> list[str]:
    """States from the start along ``Next``, taking the first rule of every choice."""
    path: list[str] = []
    name: str | None = definition["StartAt"]
    while name is not None:
        assert name not in path, f"the happy path comes back to {name}: {path}"
        path.append(name)
        state = definition["States"][name]
        name = next(iter(_rules(state)))["Next"] if state["Type"] == "Choice" else state.get("Next")
    return path


def endings(definition: State, start: str) -> set[str]:
    """Names of the states at which executions that reach ``start`` can end."""
    states = definition["States"]
    return {name for name in reachable(definition, start) if states[name].get("End") or states[name]["Type"] in ENDINGS}


_EXPRESSION = re.compile(r"^\{%(.*)%\}$", re.DOTALL)


def expressions(value: Any, where: str = "") -> Iterator[tuple[str, str]]:
    """Every JSONata expression, without its delimiters, with its place."""
    if isinstance(value, Mapping):
        for name, item in value.items():
            yield from expressions(item, f"{where}/{name}")
    elif isinstance(value, list):
        for index, item in enumerate(value):
            yield from expressions(item, f"{where}[{index}]")
    elif isinstance(value, str) and (match := _EXPRESSION.match(value)):
        yield where, match[1].strip()


_DYNAMODB = {
    "putItem": "dynamodb:PutItem",
    "getItem": "dynamodb:GetItem",
    "updateItem": "dynamodb:UpdateItem",
    "deleteItem": "dynamodb:DeleteItem",
    "query": "dynamodb:Query",
    "describeTable": "dynamodb:DescribeTable",
}
_IN_TRANSACTION = {
    "ConditionCheck": "dynamodb:ConditionCheckItem",
    "Delete": "dynamodb:DeleteItem",
    "Put": "dynamodb:PutItem",
    "Update": "dynamodb:UpdateItem",
}


def calls(definition: State) -> set[tuple[str, str]]:
    """Pairs of action and resource that the definition's tasks need, resources as the definition names them.

    Raises:
        AssertionError: for an integration that is not known here: teach it, do not skip it.
    """
    return {call for name, state in tasks(definition) for call in _calls(name, state)}


def _calls(name: str, state: State) -> Iterator[tuple[str, str]]:
    arguments = state.get("Arguments", {})
    integration = state["Resource"].removeprefix("arn:aws:states:::")
    if integration == "aws-sdk:dynamodb:transactWriteItems":
        for entry in arguments["TransactItems"]:
            for action, fields in entry.items():
                yield _IN_TRANSACTION[action], _literal(name, fields["TableName"])
        return
    if integration == "events:putEvents":
        for entry in arguments["Entries"]:
            yield "events:PutEvents", _literal(name, entry["EventBusName"])
        return
    if integration == "states:startExecution.sync:2":
        # Waiting for an execution and stopping it: by its name, and by the rule that Step Functions keeps for itself.
        child = _literal(name, arguments["StateMachineArn"]).removesuffix("}").removeprefix("${")
        here = "arn:${AWS::Partition}:%s:${AWS::Region}:${AWS::AccountId}:"
        for action in ("DescribeExecution", "StopExecution"):
            yield f"states:{action}", f"{here % 'states'}execution:${{{child}.Name}}:*"
        for action in ("PutTargets", "PutRule", "DescribeRule"):
            yield f"events:{action}", f"{here % 'events'}rule/StepFunctionsGetEventsForStepFunctionsExecutionRule"
    yield _call(name, integration, arguments)


def _call(name: str, integration: str, arguments: Mapping[str, Any]) -> tuple[str, str]:
    integration = re.sub(r"\.(sync|sync:2|waitForTaskToken)$", "", integration)
    match integration.removeprefix("aws-sdk:").split(":"):
        case ["lambda", "invoke"]:
            return "lambda:InvokeFunction", _literal(name, arguments["FunctionName"])
        case ["dynamodb", action] if action in _DYNAMODB:
            table = _literal(name, arguments["TableName"])
            index = arguments.get("IndexName")
            return _DYNAMODB[action], f"{table}/index/{index}" if index else table
        case ["sqs", "sendMessage"]:
            return "sqs:SendMessage", _literal(name, arguments["QueueUrl"])
        case ["sfn" | "states", "startExecution"]:
            return "states:StartExecution", _literal(name, arguments["StateMachineArn"])
        case ["sfn", "startSyncExecution"]:
            return "states:StartSyncExecution", _literal(name, arguments["StateMachineArn"])
    raise AssertionError(f"state {name} calls {integration}, which this checker does not know; teach it")


def _literal(name: str, resource: str) -> str:
    assert not resource.startswith("{%"), f"state {name} computes its resource, so no policy can be exact: {resource}"
    # A Ref of a table is its name, the ARN of a function its attribute: the policy names both by the ARN.
    return resource.removesuffix(".Arn}") + "}" if resource.endswith(".Arn}") else resource


def policy_resource(resource: str) -> str:
    """A resource as a policy names it, in the form in which ``calls`` names it."""
    return re.sub(r"\.(Arn|TableArn|QueueArn)\}", "}", resource, count=1)


def role_problems(definition: State, permissions: set[tuple[str, str]]) -> list[str]:
    """Permissions that a role lacks for the definition's calls, and those that it has beyond them."""
    needed = calls(definition)
    granted = {(action, policy_resource(resource)) for action, resource in permissions}
    return [
        *(f"missing: {action} on {resource}" for action, resource in sorted(needed - granted)),
        *(f"superfluous: {action} on {resource}" for action, resource in sorted(granted - needed)),
    ]
