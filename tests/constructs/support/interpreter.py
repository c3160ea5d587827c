"""A small interpreter of definitions: it walks from state to state, evaluates every expression, and calls nothing.

Not Step Functions: no retries, no waiting, and branches and items run one after the other. It shows which way an
execution takes, what it sends on the way, and what it ends with. A branch that fails fails its Parallel or Map. What a
state sends, is answered, answers or assigns has a limit, as on AWS: beyond it the execution fails, whatever it catches.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from jsonata.jexception import JException

from saga_runtime.protocol import MAX_STATE_PAYLOAD
from tests.constructs.support.jsonata import EvaluatesToNothing, context, evaluate, evaluated

MANY = 5_000
_TEXT = json.JSONEncoder(ensure_ascii=False, separators=(",", ":"))


class TooLarge(Exception):
    """A state's data is larger than Step Functions lets it be; no state can catch that."""


@dataclass(frozen=True, slots=True)
class Failure(Exception):
    """A task failed, after its last retry."""

    error: str
    cause: str = ""


Answer = Callable[[str, Any], Any]
"""Given a state's name and its evaluated arguments, what the task results in; or raises ``Failure``."""


@dataclass(slots=True)
class Run:
    """Result of an execution, or of a branch."""

    trace: list[str] = field(default_factory=list)
    sent: dict[str, Any] = field(default_factory=dict)
    calls: list[tuple[str, Any]] = field(default_factory=list)
    variables: dict[str, Any] = field(default_factory=dict)
    status: str = "RUNNING"
    output: Any = None
    error: str | None = None


def run(
    definition: Mapping[str, Any],
    answer: Answer,
    *,
    request: str = "{}",
    given: Mapping[str, Any] | None = None,
    outputs: Mapping[str, Any] | None = None,
    defined: str | None = None,
    late: bool = False,
) -> Run:
    """Walk a definition to its end.

    Args:
        definition: what to walk.
        answer: what tasks result in.
        request: the request's body, as text.
        given: members of ``$states.context`` other than the usual.
        outputs: of the saga so far: what a phase is started with.
        defined: the definition in the input: the fingerprint of a saga, or a phase's shape; "d" by default.
        late: whether the execution is about late effects alone.
    """
    around = {"context": {**context(request=request), **(given or {})}}
    if late:
        around["context"]["Execution"]["Input"]["late"] = True
    if outputs is not None:
        around["context"]["Execution"]["Input"]["outputs"] = outputs
    if defined is not None:
        around["context"]["Execution"]["Input"]["definition"] = defined
    done = Run()
    try:
        return _walk(definition, answer, around, done)
    except TooLarge:
        done.status, done.error = "FAILED", "States.DataLimitExceeded"
        return done


def _fitting(value: Any) -> Any:
    """The value, if a state may hold it."""
    if len(_TEXT.encode(value).encode("utf-8")) > MAX_STATE_PAYLOAD:
        raise TooLarge
    return value


def _walk(flow: Mapping[str, Any], answer: Answer, around: dict[str, Any], done: Run) -> Run:
    name: str | None = flow["StartAt"]
    while name is not None:
        assert len(done.trace) < MANY, f"the execution does not end: {done.trace}"
        done.trace.append(name)
        name = _step(flow["States"][name], name, answer, around, done)
    return done


def _step(state: Mapping[str, Any], name: str, answer: Answer, around: dict[str, Any], done: Run) -> str | None:
    match state["Type"]:
        case "Task" | "Parallel" | "Map":
            return _work(state, name, answer, around, done)
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
            return _pass(state, around, done)
        case "Pass":
            return _pass(state, around, done)
        case "Succeed":
            done.status = "SUCCEEDED"
            return None
        case "Fail":
            done.status, done.error = "FAILED", state["Error"]
            return None
    raise AssertionError(f"state {name} is a {state['Type']}, which this interpreter does not know; teach it")


def _pass(state: Mapping[str, Any], around: dict[str, Any], done: Run) -> str | None:
    # Everything is evaluated with the variables that the state began with.
    output = _fitting(evaluated(state.get("Output"), states=around, **done.variables))
    _assign(state, around, done)
    done.output = output
    return _next(state, done)


def _work(state: Mapping[str, Any], name: str, answer: Answer, around: dict[str, Any], done: Run) -> str | None:
    """A state that can fail."""
    try:
        result = {**around, "result": _fitting(_result(state, name, answer, around, done))}
        output = _fitting(evaluated(state.get("Output"), states=result, **done.variables))
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


def _result(state: Mapping[str, Any], name: str, answer: Answer, around: dict[str, Any], done: Run) -> Any:
    if state["Type"] == "Parallel":
        return [_branch(branch, answer, around, done) for branch in state["Branches"]]
    if state["Type"] == "Map":
        items = _items(state, around, done)
        return [
            _branch(state["ItemProcessor"], answer, _at(around, index, item), done) for index, item in enumerate(items)
        ]
    try:
        arguments = done.sent[name] = _fitting(evaluated(state["Arguments"], states=around, **done.variables))
    except EvaluatesToNothing as nothing:
        if not any("States.QueryEvaluationError" in rule["ErrorEquals"] for rule in state.get("Catch", ())):
            raise  # nowhere else it is meant
        raise Failure("States.QueryEvaluationError", str(nothing)) from nothing
    except JException as error:
        raise Failure("States.QueryEvaluationError", str(error)) from error
    done.calls.append((name, arguments))
    return answer(name, arguments)


def _items(state: Mapping[str, Any], around: dict[str, Any], done: Run) -> list[Any]:
    try:
        items = evaluate(state["Items"], states=around, **done.variables)
    except JException as error:
        raise Failure("States.QueryEvaluationError", str(error)) from error
    if items is None:
        raise Failure("States.QueryEvaluationError", "the items evaluate to nothing")
    assert isinstance(items, list), f"a Map needs an array, got {items!r}"
    return list(_fitting(items))


def _at(around: dict[str, Any], index: int, item: Any) -> dict[str, Any]:
    return {**around, "context": {**around["context"], "Map": {"Item": {"Index": index, "Value": item}}}}


def _branch(flow: Mapping[str, Any], answer: Answer, around: dict[str, Any], outer: Run) -> Any:
    """Run a branch: it sees the variables outside; what it assigns stays inside, under names of its own."""
    scope = Run(trace=outer.trace, sent=outer.sent, calls=outer.calls, variables={**outer.variables})
    try:
        inside = _walk(flow, answer, around, scope)
    except JException as error:
        raise Failure("States.QueryEvaluationError", str(error)) from error
    changed = [name for name, value in outer.variables.items() if inside.variables[name] is not value]
    assert not changed, f"a scope inside assigned what is assigned outside: {changed}"
    if inside.status == "FAILED":
        raise Failure(inside.error or "States.BranchFailed")
    return inside.output


def _next(state: Mapping[str, Any], done: Run) -> str | None:
    if state.get("End"):
        done.status = "SUCCEEDED"
        return None
    return str(state["Next"])


def _assign(holder: Mapping[str, Any], around: Mapping[str, Any], done: Run) -> None:
    done.variables |= _fitting(evaluated(holder.get("Assign", {}), states=around, **done.variables))
