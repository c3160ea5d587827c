"""Evaluating a definition's expressions, with what Step Functions adds to JSONata."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from jsonata import Jsonata

EXECUTION = "aaaaaaaaaaaaaaaaaaaaaaaaaa-1"
REQUEST_ID = "aaaaaaaaaaaaaaaaaaaaaaaaaa"


def compiled(expression: str) -> Jsonata:
    """The expression, compiled.

    Raises:
        jsonata.jexception.JException: if it is none.
    """
    program = Jsonata(expression)
    program.register_lambda("parse", json.loads)
    program.register_lambda("uuid", lambda: "00000000-0000-4000-8000-000000000000")
    return program


def evaluate(expression: str, *, states: Mapping[str, Any] | None = None, **variables: Any) -> Any:
    """The value of an expression, with or without its delimiters.

    Args:
        expression: what stands in the definition.
        states: members of ``$states`` beside the context, e.g. ``errorOutput`` or ``result``.
        **variables: what was assigned.
    """
    bare = expression.removeprefix("{%").removesuffix("%}").strip()
    program = compiled(bare)
    program.assign("states", {"context": context(), **(states or {})})
    for name, value in variables.items():
        program.assign(name, value)
    return program.evaluate(None)


def context(*, saga_id: str = EXECUTION, request: str = "{}", execution: str = EXECUTION) -> dict[str, Any]:
    """What ``$states.context`` holds."""
    given = {"saga_id": saga_id, "request_id": REQUEST_ID, "request": request, "definition": "d", "protocol": 1}
    return {
        "Execution": {"Name": execution, "Input": given, "StartTime": "2026-01-01T00:00:00.000Z", "RedriveCount": 0},
        "State": {"EnteredTime": "2026-01-01T00:00:01.000Z", "RetryCount": 0},
        "Task": {"Token": "token"},
    }


def evaluated(value: Any, *, states: Mapping[str, Any] | None = None, **variables: Any) -> Any:
    """A whole structure, with every expression in it replaced by its value.

    Raises:
        AssertionError: if an expression evaluates to nothing, which fails an execution.
    """
    if isinstance(value, Mapping):
        return {name: evaluated(item, states=states, **variables) for name, item in value.items()}
    if isinstance(value, list):
        return [evaluated(item, states=states, **variables) for item in value]
    if isinstance(value, str) and value.startswith("{%") and value.endswith("%}"):
        result = evaluate(value, states=states, **variables)
        assert result is not None, f"evaluates to nothing: {value}"
        return result
    return value
