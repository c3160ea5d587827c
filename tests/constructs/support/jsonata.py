"""Evaluating a definition's expressions, with what Step Functions adds to JSONata."""

from __future__ import annotations

import json
import marshal
import re
from collections.abc import Mapping
from functools import lru_cache
from typing import Any

from jsonata import Jsonata

from constructs_lib.testing.emulator.corrections.reference_numbers import correct_the_library, doubles, parse

correct_the_library()
_NAME = re.compile(r"\$(\w+)")
_MEMBER = re.compile(r"\$states((?:\.\w+)*)")
_OTHERWISE = re.compile(r"\$(?:now|millis|random|uuid)\b")
_BY_VALUE = 2
"""Version of marshal's format in which equal values have equal bytes: later ones depend on what is interned."""
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
    read = {name: value for name, value in given.items() if name in named}
    if "states" in named:
        read["states"] = _part(given["states"], _paths(bare))
    return marshal.loads(_value(bare, _dumped(read)))


@lru_cache(maxsize=4_096)
def _named(bare: str) -> frozenset[str] | None:
    """Names of the variables that an expression may read; None: its value depends on more than those."""
    return None if _OTHERWISE.search(bare) else frozenset(_NAME.findall(bare))


@lru_cache(maxsize=4_096)
def _paths(bare: str) -> tuple[tuple[str, ...], ...]:
    """Members of ``$states`` that an expression may read; an empty path means all of them."""
    paths = {tuple(path.split(".")[1:]) for path in _MEMBER.findall(bare)}
    return tuple(path for path in paths if not any(path[:length] in paths for length in range(len(path))))


def _part(states: Mapping[str, Any], paths: tuple[tuple[str, ...], ...]) -> Mapping[str, Any]:
    """These members alone: what an expression does not read does not distinguish its values."""
    if () in paths:
        return states
    part: dict[str, Any] = {}
    for path in paths:
        value, inside = states, part
        for depth, name in enumerate(path, 1):
            if name not in value:
                break
            if depth == len(path) or not isinstance(value[name], dict):
                inside[name] = value[name]
                break
            value, inside = value[name], inside.setdefault(name, {})
    return part


@lru_cache(maxsize=50_000)
def _value(bare: str, given: bytes) -> bytes:
    """The value of an expression. A saga that is stopped at each of its calls evaluates the same ones again."""
    return _dumped(_evaluated(bare, marshal.loads(given)))


def _dumped(value: Any) -> bytes:
    """A value of JSON as bytes: a third of the time that text takes."""
    try:
        return marshal.dumps(value, _BY_VALUE)
    except ValueError:  # subclasses of the types of JSON
        return marshal.dumps(json.loads(json.dumps(value)), _BY_VALUE)


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
    if isinstance(value, str):
        return _value_of_text(value, states, variables)
    if isinstance(value, dict):
        return {name: evaluated(item, states=states, **variables) for name, item in value.items()}
    if isinstance(value, list):
        return [evaluated(item, states=states, **variables) for item in value]
    return value


def _value_of_text(text: str, states: Mapping[str, Any] | None, variables: Mapping[str, Any]) -> Any:
    if not (text.startswith("{%") and text.endswith("%}")):
        return text
    result = evaluate(text, states=states, **variables)
    if result is None:
        raise EvaluatesToNothing(f"evaluates to nothing: {text}")
    return result
