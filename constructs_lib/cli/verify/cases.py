"""Cases of a definition: each state with each way in which its work may end."""

from __future__ import annotations

import hashlib
import json
from collections import deque
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final

from constructs_lib.cli.verify.one_state import VARIES, WORKING, Expected, Mocked, expected_of
from constructs_lib.testing.simulator.aws.states.failures import QUERY
from constructs_lib.testing.simulator.deployment.blueprint import MachineSpec

_ERROR: Final = "Verify.Unknown"
"""An error that no definition names: only rules for all errors match it."""
_WILDCARDS: Final = frozenset({"States.ALL", "States.TaskFailed"})
_WAYS: Final = 6
_WAITS: Final = ".waitForTaskToken"
_INPUT: Final = {
    "saga_id": "verify-aaaaaaaaaaaaaaaaaaaaaaaaaa",
    "request_id": "aaaaaaaaaaaaaaaaaaaaaaaaaa",
    "request": "{}",
    "definition": "d",
    "protocol": 1,
    "outputs": {},
}
_RESULTS: Final[dict[str, Any]] = {
    "getItem": {"Item": {}},
    "invoke": {"ExecutedVersion": "$LATEST", "Payload": {"output": {}}, "StatusCode": 200},
    "putItem": {},
    "query": {"Count": 0, "Items": [], "ScannedCount": 0},
    "sendMessage": {"MD5OfMessageBody": "00000000000000000000000000000000", "MessageId": "verify"},
    "startSyncExecution": {"Output": "{}", "Status": "SUCCEEDED"},
    "updateItem": {"Attributes": {}},
}
"""Smallest results of integrations, by action."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Case:
    """One call of TestState, and what it is expected to answer.

    Attributes:
        machine: the state machine's name.
        state: the state's name.
        situation: how its work ends, for people.
        request: arguments of the call.
        expected: the answer that was computed here.
    """

    machine: str
    state: str
    situation: str
    request: Mapping[str, Any]
    expected: Expected

    @property
    def id(self) -> str:
        """Digest of the call: a changed definition has other cases, another expectation has not."""
        text = json.dumps([self.machine, self.request], sort_keys=True)
        return hashlib.sha256(text.encode()).hexdigest()[:16]


@dataclass(frozen=True, slots=True)
class _Visit:
    """A state that is reached, with what it finds there."""

    flow: Mapping[str, Any]
    state: str
    given: Any
    variables: Mapping[str, Any]


def cases_of(machine: MachineSpec, role_arn: str | None = None) -> Iterator[Case]:
    """Every state that can be reached, with each way in which its work may end.

    Inputs and results are the smallest of their kind: an expression that fails on them must fail on AWS, too.

    Args:
        machine: the state machine.
        role_arn: a role for states without a mock; None: the call names none.
    """
    text = json.dumps(machine.definition, sort_keys=True, separators=(",", ":"))
    for visits in _visits(machine).values():
        visit = min(visits, key=lambda one: _blocked(machine, one))
        state = visit.flow["States"][visit.state]
        context = _context(machine, visit.state, state)
        for situation, mock in _situations(state):
            yield Case(
                machine=machine.name,
                state=visit.state,
                situation=situation,
                request=_request(text, visit, state, context, mock, role_arn),
                expected=expected_of(state, visit.given, visit.variables, context, mock),
            )


def _visits(machine: MachineSpec) -> dict[str, list[_Visit]]:
    """Some ways to each state that differ in the variables that are assigned before."""
    waiting = deque([_Visit(machine.definition, machine.definition["StartAt"], _INPUT, {})])
    found: dict[str, list[_Visit]] = {}
    while waiting:
        visit = waiting.popleft()
        others = found.setdefault(visit.state, [])
        if len(others) == _WAYS or any(visit.variables.keys() == other.variables.keys() for other in others):
            continue
        others.append(visit)
        state = visit.flow["States"][visit.state]
        context = _context(machine, visit.state, state)
        following: dict[str, tuple[Any, Mapping[str, Any]]] = {}
        for _, mock in _situations(state):
            expected = expected_of(state, visit.given, visit.variables, context, mock)
            if expected.next_state is not None:
                following.setdefault(expected.next_state, (expected.output, expected.assigned))
        for rule in _rules(state):
            # A condition that is not met here is met elsewhere: by what it assigns, if that can be evaluated.
            plain = {name: rule[name] for name in ("Assign", "Output") if name in rule}
            met = expected_of({"Type": "Pass", **plain}, visit.given, visit.variables, context, Mocked())
            output, assigned = following.get(rule["Next"], (met.output, met.assigned))
            variables = {**visit.variables, **_known(assigned)}
            waiting.append(_Visit(visit.flow, rule["Next"], _known(output), variables))
        for flow in _inner(state):
            waiting.append(_Visit(flow, flow["StartAt"], visit.given, visit.variables))
    return found


def _blocked(machine: MachineSpec, visit: _Visit) -> int:
    """Count the situations in which an expression fails: fewer show more."""
    state = visit.flow["States"][visit.state]
    context = _context(machine, visit.state, state)
    ends = (expected_of(state, visit.given, visit.variables, context, mock) for _, mock in _situations(state))
    return sum(end.error == QUERY for end in ends)


def _known(value: Any) -> Any:
    """A value with an example of what varies."""
    if isinstance(value, Mapping):
        return {name: _known(part) for name, part in value.items()}
    if isinstance(value, list):
        return [_known(part) for part in value]
    return "1767225600" if value == VARIES else value


def _context(machine: MachineSpec, name: str, state: Mapping[str, Any]) -> dict[str, Any]:
    context: dict[str, Any] = {
        "Execution": {
            "Id": machine.arn.replace(":stateMachine:", ":execution:") + ":verify",
            "Input": _INPUT,
            "Name": "verify-aaaaaaaaaaaaaaaaaaaaaaaaaa",
            "StartTime": "2026-01-01T00:00:00.000Z",
            "RedriveCount": 0,
        },
        "State": {"EnteredTime": "2026-01-01T00:00:01.000Z", "Name": name, "RetryCount": 0},
        "StateMachine": {"Id": machine.arn, "Name": machine.name},
    }
    if str(state.get("Resource", "")).endswith(_WAITS):
        context["Task"] = {"Token": "verify"}
    return context


def _situations(state: Mapping[str, Any]) -> Iterator[tuple[str, Mocked]]:
    if state["Type"] not in WORKING:
        yield "as it is", Mocked()
        return
    yield "succeeds", Mocked(result=_result(state))
    errors = {_ERROR: 0}
    for kind in ("Retry", "Catch"):
        for rule in state.get(kind, ()):
            name = next((one for one in rule["ErrorEquals"] if one not in _WILDCARDS), _ERROR)
            errors[name] = max(errors.get(name, 0), int(rule.get("MaxAttempts", 3)) if kind == "Retry" else 0)
    for name, attempts in errors.items():
        yield f"fails with {name}", Mocked(error=name)
        if attempts:
            yield f"fails with {name} after its retries", Mocked(error=name, retries=attempts)


def _result(state: Mapping[str, Any]) -> Any:
    if state["Type"] == "Parallel":
        return [{} for _ in state["Branches"]]
    if state["Type"] == "Map":
        return [{}]
    resource = str(state["Resource"])
    if resource.endswith(_WAITS):
        return {}
    if ".sync" in resource:
        return {"Output": {}, "Status": "SUCCEEDED"}
    return _RESULTS.get(resource.rpartition(":")[2], {})


def _request(
    definition: str,
    visit: _Visit,
    state: Mapping[str, Any],
    context: Mapping[str, Any],
    mock: Mocked,
    role_arn: str | None,
) -> dict[str, Any]:
    request: dict[str, Any] = {
        "definition": definition,
        "stateName": visit.state,
        "input": json.dumps(visit.given),
        "variables": json.dumps(visit.variables),
        "context": json.dumps(context),
        "inspectionLevel": "DEBUG",
    }
    if state["Type"] in WORKING:
        if mock.error is None:
            request["mock"] = {"result": json.dumps(mock.result), "fieldValidationMode": "NONE"}
        else:
            request["mock"] = {"errorOutput": {"error": mock.error, "cause": mock.error}}
            if state.get("Retry"):
                request["stateConfiguration"] = {"retrierRetryCount": mock.retries}
    elif role_arn is not None:
        request["roleArn"] = role_arn
    return request


def _rules(state: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    """Every rule by which another state follows; a Choice's default is one."""
    default = [{**state, "Next": state["Default"]}] if "Default" in state else []
    return [rule for rule in (state, *state.get("Choices", ()), *state.get("Catch", ()), *default) if "Next" in rule]


def _inner(state: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    return [*state.get("Branches", ()), *([state["ItemProcessor"]] if "ItemProcessor" in state else [])]
