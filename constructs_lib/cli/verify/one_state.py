"""One state, computed here: what AWS's TestState is expected to answer, and where its answer differs."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from random import Random
from typing import Any, Final

from constructs_lib.testing.simulator.aws.states.expressions import ExpressionError, Moment, evaluate
from constructs_lib.testing.simulator.aws.states.failures import QUERY, StateFailedError, delay_of, matching

VARIES: Final = "<varies>"
"""In place of a value that depends on time or chance: it is not compared."""
_MOMENTS: Final = (Moment(1_767_225_600_123, Random(1)), Moment(1_798_761_599_987, Random(2)))
WORKING: Final = frozenset({"Task", "Parallel", "Map"})
"""Types of states that do work, which a mock replaces."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Mocked:
    """End of a Task, Parallel or Map, without its work.

    Attributes:
        result: its result; not used with an error.
        error: name of its error; None: it succeeds.
        retries: how often the rule of Retry that matches was used before.
    """

    result: Any = None
    error: str | None = None
    retries: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Expected:
    """Computed end of a state.

    Attributes:
        status: as TestState names it.
        next_state: the following state; None: the flow ends.
        output: what the following state receives.
        assigned: variables that it sets.
        error: the error's name.
        retry: index of the rule of Retry that matched, and seconds until the retry.
        catch: index of the rule of Catch that matched.
    """

    status: str
    next_state: str | None = None
    output: Any = None
    assigned: Mapping[str, Any] = field(default_factory=dict)
    error: str | None = None
    retry: tuple[int, float] | None = None
    catch: int | None = None


def expected_of(
    state: Mapping[str, Any], given: Any, variables: Mapping[str, Any], context: Mapping[str, Any], mock: Mocked
) -> Expected:
    """Compute a state twice, at different moments: what differs varies.

    Args:
        state: the state.
        given: its input.
        variables: what was assigned before.
        context: the context object.
        mock: what its work ends with.
    """
    first, second = (_Once(state, given, variables, context, moment).done(mock) for moment in _MOMENTS)
    if (first.status, first.next_state) != (second.status, second.next_state):
        return Expected(status=VARIES)
    output, assigned = _common(first.output, second.output), _common(first.assigned, second.assigned)
    return replace(first, output=output, assigned=assigned)


def _common(first: Any, second: Any) -> Any:
    if isinstance(first, Mapping) and isinstance(second, Mapping) and first.keys() == second.keys():
        return {name: _common(first[name], second[name]) for name in first}
    if isinstance(first, list) and isinstance(second, list) and len(first) == len(second):
        return [_common(*pair) for pair in zip(first, second, strict=True)]
    return first if first == second else VARIES


class _Once:
    """One computation of a state."""

    def __init__(
        self,
        state: Mapping[str, Any],
        given: Any,
        variables: Mapping[str, Any],
        context: Mapping[str, Any],
        moment: Moment,
    ) -> None:
        self._state = state
        self._given = given
        self._variables = variables
        self._states: dict[str, Any] = {"input": given, "context": context}
        self._moment = moment

    def done(self, mock: Mocked) -> Expected:
        """Compute the end of the state."""
        try:
            return self._work(mock) if self._state["Type"] in WORKING else self._plain()
        except StateFailedError as failure:
            return Expected(status="FAILED", error=failure.error)

    def _evaluated(self, template: Any) -> Any:
        try:
            return evaluate(template, self._states, self._variables, self._moment)
        except ExpressionError as error:
            raise StateFailedError(QUERY, str(error)) from None

    def _ended(self, rule: Mapping[str, Any], default: Any, **more: Any) -> Expected:
        assigned = self._evaluated(rule.get("Assign", {}))
        output = self._evaluated(rule["Output"]) if "Output" in rule else default
        status = {"status": "SUCCEEDED"} | more
        return Expected(next_state=rule.get("Next"), output=output, assigned=assigned, **status)

    def _plain(self) -> Expected:
        state = self._state
        match state["Type"]:
            case "Choice":
                return self._choice(state["Choices"])
            case "Fail":
                return Expected(status="FAILED", error=str(self._evaluated(state.get("Error", ""))))
            case "Wait":
                self._evaluated(state.get("Seconds", 0))
        return self._ended(state, self._given)

    def _choice(self, rules: Sequence[Mapping[str, Any]]) -> Expected:
        for rule in rules:
            met = self._evaluated(rule["Condition"])
            if not isinstance(met, bool):
                raise StateFailedError(QUERY, "not a boolean")
            if met:
                return self._ended(rule, self._given)
        if "Default" not in self._state:
            raise StateFailedError("States.NoChoiceMatched")
        return self._ended({**self._state, "Next": self._state["Default"]}, self._given)

    def _work(self, mock: Mocked) -> Expected:
        try:
            for name in ("Arguments", "Items", "TimeoutSeconds", "HeartbeatSeconds"):
                self._evaluated(self._state.get(name))
            if mock.error is not None:
                raise StateFailedError(mock.error, mock.error)
            self._states["result"] = mock.result
            return self._ended(self._state, mock.result)
        except StateFailedError as failure:
            self._states.pop("result", None)
            return self._failed(failure, mock.retries)

    def _failed(self, failure: StateFailedError, retries: int) -> Expected:
        retry, catch = self._state.get("Retry", []), self._state.get("Catch", [])
        rule = matching(retry, failure, heartbeat_matched=True)
        if rule is not None and retries < int(rule.get("MaxAttempts", 3)):
            again = (_index(retry, rule), delay_of(rule, retries, 1.0))
            return Expected(status="RETRIABLE", error=failure.error, retry=again)
        rule = matching(catch, failure, heartbeat_matched=True)
        if rule is None:
            raise failure
        self._states["errorOutput"] = output = {"Error": failure.error, "Cause": failure.cause}
        return self._ended(rule, output, status="CAUGHT_ERROR", error=failure.error, catch=_index(catch, rule))


def _index(rules: Sequence[Mapping[str, Any]], rule: Mapping[str, Any]) -> int:
    return next(number for number, one in enumerate(rules) if one is rule)


def differences(expected: Expected, answer: Mapping[str, Any]) -> Iterator[str]:
    """Sentences about what differs; none: both agree in all that was compared."""
    if expected.status == VARIES:
        return
    found = {"status": answer.get("status"), "nextState": answer.get("nextState"), "error": answer.get("error")}
    wanted = {"status": expected.status, "nextState": expected.next_state, "error": expected.error}
    for name, value in wanted.items():
        if found[name] != value:
            yield f"{name} is {found[name]!r} on AWS, {value!r} here"
    if expected.status in ("SUCCEEDED", "CAUGHT_ERROR") and answer.get("status") == expected.status:
        output = json.loads(answer.get("output", "null"))
        if not _agree(expected.output, output):
            yield f"output is {_short(output)} on AWS, {_short(expected.output)} here"
    inspected = answer.get("inspectionData", {})
    yield from _variables(expected, inspected.get("variables"))
    details = inspected.get("errorDetails", {})
    if expected.retry is not None and details:
        index, seconds = expected.retry
        if (details.get("retryIndex"), details.get("retryBackoffIntervalSeconds")) != (index, int(seconds)):
            yield f"the retry is {details} on AWS, rule {index} after {seconds} s here"
    if expected.catch is not None and details and details.get("catchIndex") != expected.catch:
        yield f"the catch is {details} on AWS, rule {expected.catch} here"


def gaps(expected: Expected, answer: Mapping[str, Any]) -> Iterator[str]:
    """Sentences about what could not be compared; none: everything was."""
    if expected.status == VARIES:
        yield "status and next state depend on time or chance"
        return
    for place in (*_varying("output", expected.output), *_varying("", expected.assigned)):
        yield f"{place} depends on time or chance"
    inspected = answer.get("inspectionData", {})
    if expected.assigned and inspected.get("variables") is None:
        yield "AWS returned no variables"
    if (expected.retry is not None or expected.catch is not None) and not inspected.get("errorDetails"):
        yield "AWS returned no error details"


def _varying(place: str, value: Any) -> Iterator[str]:
    if value == VARIES:
        yield place
    elif isinstance(value, Mapping):
        for name, part in value.items():
            yield from _varying(f"{place}.{name}" if place else f"${name}", part)
    elif isinstance(value, list):
        for index, part in enumerate(value):
            yield from _varying(f"{place}[{index}]", part)


def _variables(expected: Expected, answered: str | None) -> Iterator[str]:
    if answered is None:
        return
    variables = json.loads(answered)
    for name, value in expected.assigned.items():
        if not _agree(value, variables.get(name)):
            yield f"${name} is {_short(variables.get(name))} on AWS, {_short(value)} here"


def _agree(expected: Any, found: Any) -> bool:
    if expected == VARIES:
        return True
    if isinstance(expected, Mapping) and isinstance(found, Mapping):
        return expected.keys() == found.keys() and all(_agree(expected[name], found[name]) for name in expected)
    if isinstance(expected, list) and isinstance(found, list):
        return len(expected) == len(found) and all(map(_agree, expected, found))
    return bool(expected == found) and isinstance(expected, bool) == isinstance(found, bool)


def _short(value: Any) -> str:
    text = json.dumps(value, default=str)
    return text if len(text) <= 200 else f"{text[:200]}…"
