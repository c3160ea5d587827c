"""One state, computed here: what AWS's TestState is expected to answer."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from random import Random
from typing import Any, Final

from constructs_lib.testing.simulator.aws.states.expressions import ExpressionError, Moment, evaluate
from constructs_lib.testing.simulator.aws.states.failures import QUERY, StateFailedError, delay_of, matching

VARIES: Final = "<varies>"
"""In place of a value that depends on time or chance: it is not compared."""
_MOMENTS: Final = (Moment(1_767_225_600_123, Random(1)), Moment(1_798_761_599_987, Random(2)))
_WORKING: Final = frozenset({"Task", "Parallel", "Map"})


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
    return Expected(
        status=first.status,
        next_state=first.next_state,
        output=_common(first.output, second.output),
        assigned=_common(first.assigned, second.assigned),
        error=first.error,
        retry=first.retry,
        catch=first.catch,
    )


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
            return self._work(mock) if self._state["Type"] in _WORKING else self._plain()
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
