"""AWS's answer against the one that was computed here: what differs, and what was not compared."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from typing import Any

from constructs_lib.cli.verify.one_state import VARIES, Expected


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
