"""Evaluating a definition's expressions, with what Step Functions adds to JSONata."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from functools import lru_cache
from typing import Any

from jsonata import Jsonata

from constructs_lib.testing.emulator.corrections.reference_numbers import correct_the_library, doubles, parse

correct_the_library()
_NAME = re.compile(r"\$(\w+)")
_OTHERWISE = re.compile(r"\$(?:now|millis|random|uuid)\b")
EXECUTION = "aaaaaaaaaaaaaaaaaaaaaaaaaa-1"
REQUEST_ID = "aaaaaaaaaaaaaaaaaaaaaaaaaa"


@lru_cache(maxsize=4_096)
def compiled(expression: str) -> Jsonata:
    """The compiled expression, shared by all callers: bind variables when it is evaluated.

    Raises:
        jsonata.jexception.JException: if it is invalid.
    """
    program = Jsonata(expression)
    program.register_lambda("parse", parse)
    program.register_lambda("uuid", lambda: "00000000-0000-4000-8000-000000000000")
    return program


def evaluate(expression: str, *, states: Mapping[str, Any] | None = None, **variables: Any) -> Any:
    """The value of an expression, with or without its delimiters.

    Args:
        expression: text of the definition.
        states: members of ``$states`` in addition to the context, e.g. ``errorOutput`` or ``result``.
        **variables: assigned variables.
    """
    bare = expression.removeprefix("{%").removesuffix("%}").strip()
    given = {"states": {"context": context(), **(states or {})}, **variables}
    named = _named(bare)
    if named is None:
        return _evaluated(bare, given)
    return json.loads(_value(bare, json.dumps({name: value for name, value in given.items() if name in named})))


@lru_cache(maxsize=4_096)
def _named(bare: str) -> frozenset[str] | None:
    """Names of the variables that an expression may read; None: its value depends on more than those."""
    return None if _OTHERWISE.search(bare) else frozenset(_NAME.findall(bare))


@lru_cache(maxsize=50_000)
def _value(bare: str, given: str) -> str:
    """The value of an expression as JSON. A saga that is stopped at each of its calls evaluates the same ones again."""
    return json.dumps(_evaluated(bare, json.loads(given)))


def _evaluated(bare: str, given: Mapping[str, Any]) -> Any:
    """Evaluate a program: the library uses the environment of the program that it compiled last, unless it is set."""
    program = compiled(bare)
    Jsonata.CURRENT.jsonata = program
    return doubles(program.evaluate(None, doubles(given)))


def context(*, saga_id: str = EXECUTION, request: str = "{}", execution: str = EXECUTION) -> dict[str, Any]:
    """Value of ``$states.context``."""
    given = {"saga_id": saga_id, "request_id": REQUEST_ID, "request": request, "definition": "d", "protocol": 1}
    return {
        "Execution": {"Name": execution, "Input": given, "StartTime": "2026-01-01T00:00:00.000Z", "RedriveCount": 0},
        "State": {"EnteredTime": "2026-01-01T00:00:01.000Z", "RetryCount": 0},
        "Task": {"Token": "token"},
    }


class EvaluatesToNothing(AssertionError):
    """An expression without a value."""


def evaluated(value: Any, *, states: Mapping[str, Any] | None = None, **variables: Any) -> Any:
    """A whole structure, with every expression in it replaced by its value.

    Raises:
        EvaluatesToNothing: if an expression evaluates to nothing, which fails an execution.
    """
    if isinstance(value, Mapping):
        return {name: evaluated(item, states=states, **variables) for name, item in value.items()}
    if isinstance(value, list):
        return [evaluated(item, states=states, **variables) for item in value]
    if isinstance(value, str) and value.startswith("{%") and value.endswith("%}"):
        result = evaluate(value, states=states, **variables)
        if result is None:
            raise EvaluatesToNothing(f"evaluates to nothing: {value}")
        return result
    return value
