"""A small interpreter of definitions: it walks from state to state, evaluates every expression, and calls nothing.

Not Step Functions: no retries, no waiting, no parallel branches. It shows which way an execution takes, what it sends
on the way, and what it ends with.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from tests.constructs.support.jsonata import context, evaluate, evaluated


@dataclass(frozen=True, slots=True)
class Failure(Exception):
    """A task failed, after its last retry."""

    error: str
    cause: str = ""


Answer = Callable[[str, Any], Any]
"""Given a state's name and its evaluated arguments, what the task results in; or raises ``Failure``."""


@dataclass(slots=True)
class Run:
    """What an execution did."""

    trace: list[str] = field(default_factory=list)
    sent: dict[str, Any] = field(default_factory=dict)
    variables: dict[str, Any] = field(default_factory=dict)
    status: str = "RUNNING"
    output: Any = None
    error: str | None = None


def run(
    definition: Mapping[str, Any], answer: Answer, *, request: str = "{}", given: Mapping[str, Any] | None = None
) -> Run:
    """Walk a definition to its end.

    Args:
        definition: what to walk.
        answer: what tasks result in.
        request: the request's body, as text.
        given: members of ``$states.context`` other than the usual.
    """
    done = Run()
    around = {"context": {**context(request=request), **(given or {})}}
    name: str | None = definition["StartAt"]
    while name is not None:
        assert len(done.trace) < 200, f"the execution does not end: {done.trace}"
        done.trace.append(name)
        name = _step(definition["States"][name], name, answer, around, done)
    return done


def _step(state: Mapping[str, Any], name: str, answer: Answer, around: dict[str, Any], done: Run) -> str | None:
    match state["Type"]:
        case "Task":
            return _task(state, name, answer, around, done)
        case "Choice":
            for rule in state["Choices"]:
                met = evaluate(rule["Condition"], states=around, **done.variables)
                assert isinstance(met, bool), f"a condition of {name} is neither true nor false: {met!r}"
                if met:
                    _assign(rule, around, done)
                    return str(rule["Next"])
            _assign(state, around, done)
            return str(state["Default"])
        case "Wait":
            evaluated(state["Seconds"], states=around, **done.variables)
            _assign(state, around, done)
            return _next(state, done)
        case "Pass":
            _assign(state, around, done)
            done.output = evaluated(state.get("Output"), states=around, **done.variables)
            return _next(state, done)
        case "Succeed":
            done.status = "SUCCEEDED"
            return None
        case "Fail":
            done.status, done.error = "FAILED", state["Error"]
            return None
    raise AssertionError(f"state {name} is a {state['Type']}, which this interpreter does not know; teach it")


def _task(state: Mapping[str, Any], name: str, answer: Answer, around: dict[str, Any], done: Run) -> str | None:
    try:
        arguments = done.sent[name] = evaluated(state["Arguments"], states=around, **done.variables)
        result = {**around, "result": answer(name, arguments)}
        # Everything is evaluated with the variables that the state began with.
        output = evaluated(state.get("Output"), states=result, **done.variables)
        _assign(state, result, done)
        done.output = output
    except Failure as failure:
        for rule in state.get("Catch", ()):
            if failure.error in rule["ErrorEquals"] or rule["ErrorEquals"] == ["States.ALL"]:
                _assign(rule, {**around, "errorOutput": {"Error": failure.error, "Cause": failure.cause}}, done)
                return str(rule["Next"])
        done.status, done.error = "FAILED", failure.error
        return None
    return _next(state, done)


def _next(state: Mapping[str, Any], done: Run) -> str | None:
    if state.get("End"):
        done.status = "SUCCEEDED"
        return None
    return str(state["Next"])


def _assign(holder: Mapping[str, Any], around: Mapping[str, Any], done: Run) -> None:
    done.variables |= evaluated(holder.get("Assign", {}), states=around, **done.variables)
