"""Step Functions: JSONata fields that the emulator ignores, and the context object."""

from __future__ import annotations

import time
from collections.abc import Callable
from datetime import UTC, datetime
from types import SimpleNamespace
from typing import Any, Final

from ministack.services import stepfunctions as states

from constructs_lib.testing.emulator.corrections import Correction, Emulator, replace
from constructs_lib.testing.emulator.corrections.reference_numbers import correct_the_library, doubles, parse
from constructs_lib.testing.expression_levels import EVALUATION_LEVELS

_EXPRESSION_MILLISECONDS: Final = 10_000


def is_jsonata(state: dict[str, Any], context: Any) -> bool:
    """Return whether a state is written in JSONata."""
    return bool(states._state_query_language(state, context) == "JSONata")


def succeed_output(_emulator: Emulator) -> None:
    """A Succeed state's Output is what the execution returns. The emulator ignores the field."""

    def make(original: Callable[..., Any]) -> Callable[..., Any]:
        def apply(state: dict[str, Any], data: Any, context: Any = None) -> Any:
            if state.get("Type") == "Succeed" and is_jsonata(state, context):
                return states._apply_jsonata_output(state, data, context, default=data)
            return original(state, data, context)

        return apply

    replace(states, "_apply_output_path", make)


def choice_default_output(_emulator: Emulator) -> None:
    """A Choice state's own Output applies when no rule matches. The emulator ignores the field."""

    def make(original: Callable[..., Any]) -> Callable[..., Any]:
        def choose(state: dict[str, Any], raw_input: Any, context: Any = None) -> Any:
            if "Output" not in state or "Default" not in state or not is_jsonata(state, context):
                return original(state, raw_input, context)
            try:
                return original({**state, "Default": None}, raw_input, context)
            except states._ExecutionError as error:
                if error.error != "States.NoChoiceMatched":
                    raise
            output = states._apply_jsonata_output(state, raw_input, context, default=raw_input)
            states._apply_state_assign(state, raw_input, context)
            return output, state["Default"]

        return choose

    replace(states, "_execute_choice", make)


def choice_conditions(_emulator: Emulator) -> None:
    """A Choice rule's Condition is true or false; the emulator takes any value for its truth.

    States.QueryEvaluationError is what Step Functions documents for every expression of a wrong type.
    """

    def make(original: Callable[..., bool]) -> Callable[..., bool]:
        def matches(rule: dict[str, Any], raw_input: Any, context: Any) -> bool:
            condition = rule.get("Condition")
            if not (isinstance(condition, str) and condition.startswith("{%") and condition.endswith("%}")):
                return original(rule, raw_input, context)
            value = states._evaluate_jsonata(condition[2:-2].strip(), raw_input, context)
            if not isinstance(value, bool):
                raise states._ExecutionError("States.QueryEvaluationError", f"the Condition evaluated to {value!r}")
            return value

        return matches

    replace(states, "_evaluate_jsonata_choice_rule", make)


def context_object(_emulator: Emulator) -> None:
    """``$states.context`` has what AWS puts there: also RoleArn and RedriveCount, and no internals of the emulator."""

    def make(original: Callable[..., Any]) -> Callable[..., Any]:
        def evaluate(
            expression: str, raw_input: Any, ctx: Any = None, result: Any = None, error_output: Any = None
        ) -> Any:
            return original(expression, raw_input, _Context(ctx or {}), result, error_output)

        return evaluate

    replace(states, "_evaluate_jsonata", make)


class _Context(dict[str, Any]):
    """The context as expressions see it; the emulator still finds its variables."""

    def __init__(self, context: dict[str, Any]) -> None:
        super().__init__({key: value for key, value in context.items() if key not in {"variables", "QueryLanguage"}})
        self._variables = context.get("variables", {})
        if "Execution" in self:
            machine = states._state_machines.get(self.get("StateMachine", {}).get("Id", "")) or {}
            self["Execution"] = {"RedriveCount": 0, "RoleArn": machine.get("roleArn", ""), **self["Execution"]}

    def get(self, key: str, default: Any = None) -> Any:
        return self._variables if key == "variables" else super().get(key, default)


def jsonata_numbers(_emulator: Emulator) -> None:
    """Every number is a double, and ``$string`` keeps 15 significant digits of it, as in JSONata 2.0.6.

    The emulator keeps integers exact: more permissive than AWS, where an amount of more digits changes.
    """
    correct_the_library()
    replace(states, "_sfn_jsonata_parse", lambda _original: parse)

    def make(original: Callable[..., Any]) -> Callable[..., Any]:
        def evaluate(
            expression: str, raw_input: Any, ctx: Any = None, result: Any = None, error_output: Any = None
        ) -> Any:
            given = (doubles(value) for value in (raw_input, ctx, result, error_output))
            return doubles(original(expression, *given))

        return evaluate

    replace(states, "_evaluate_jsonata", make)


def jsonata_time(emulator: Emulator) -> None:
    """``$now()`` and ``$millis()`` show emulator time, so that times stored by a definition fit the others."""
    clock = emulator.clock

    def make(original: Callable[..., Any]) -> Callable[..., Any]:
        def register(expression: Any) -> None:
            original(expression)
            expression.register_lambda("millis", lambda: int(clock.now() * 1000))
            expression.register_lambda("now", _now(clock.now))

        return register

    replace(states, "_register_sfn_jsonata_functions", make)


def _now(seconds: Callable[[], float]) -> Callable[..., Any]:
    from jsonata import functions

    def now(picture: str | None = None, timezone: str | None = None) -> Any:
        moment = seconds()
        if picture is None and timezone is None:
            text = datetime.fromtimestamp(moment, UTC).isoformat(timespec="milliseconds")
            return text.replace("+00:00", "Z")
        return functions.Functions.datetime_from_millis(int(moment * 1000), picture, timezone)

    return now


def assign_together(_emulator: Emulator) -> None:
    """Every expression of an Assign sees the variables that its state began with.

    The emulator assigns one after the other, so that a later expression sees what an earlier one assigned.
    """

    def make(_original: Callable[..., Any]) -> Callable[..., Any]:
        def assign(
            state: dict[str, Any], raw_input: Any, context: Any, result: Any = None, error_output: Any = None
        ) -> None:
            expressions = state.get("Assign")
            if context is None or not isinstance(expressions, dict) or not is_jsonata(state, context):
                return
            values = {
                name: states._apply_jsonata_template(
                    template, raw_input, context, result=result, error_output=error_output
                )
                for name, template in expressions.items()
            }
            context.setdefault("variables", {}).update(values)

        return assign

    replace(states, "_apply_state_assign", make)


def expression_patience(_emulator: Emulator) -> None:
    """An expression may take ten seconds of the processor.

    The emulator allows one second of real time, in an interpreter much slower than that of AWS: on a busy machine an
    innocent expression fails. An endless one still does, only later.

    A model: AWS documents no such limit; no expression that is generated here comes near ten seconds.
    """
    from jsonata import timebox

    # An expression is evaluated by one thread: what others do meanwhile is not its time.
    replace(timebox.Timebox, "current_milli_time", lambda _original: staticmethod(_thread_milliseconds))
    real = states.jsonata

    def compile_expression(text: str, **options: Any) -> Any:
        return real.Jsonata.jsonata(text, **{**options, "timeout": _EXPRESSION_MILLISECONDS})

    patient = SimpleNamespace(Jsonata=SimpleNamespace(jsonata=compile_expression), utils=real.utils)
    replace(states, "jsonata", lambda _original: patient)


def expression_levels(_emulator: Emulator) -> None:
    """An expression that nests deeper than 100 levels fails, and each operator of a chain is a level.

    The emulator has no such limit. Measured on AWS: floci-io/floci issue 2737.
    """
    real = states.jsonata

    def compile_expression(text: str, **options: Any) -> Any:
        return real.Jsonata.jsonata(text, **{**options, "stack": EVALUATION_LEVELS})

    shallow = SimpleNamespace(Jsonata=SimpleNamespace(jsonata=compile_expression), utils=real.utils)
    replace(states, "jsonata", lambda _original: shallow)


def _thread_milliseconds() -> int:
    """Return the processor time of this thread."""
    return round(time.thread_time() * 1000)


CORRECTIONS: Final[tuple[Correction, ...]] = (
    succeed_output,
    choice_default_output,
    choice_conditions,
    context_object,
    jsonata_numbers,
    jsonata_time,
    assign_together,
    expression_patience,
    expression_levels,
)
