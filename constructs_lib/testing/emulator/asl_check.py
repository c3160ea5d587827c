"""Finds what Step Functions would refuse in a definition. Pure: a definition in, its first problem out.

The rules are those of the Amazon States Language specification that a generator can violate; not the full schema.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Final

_TYPES: Final = frozenset({"Pass", "Task", "Choice", "Wait", "Succeed", "Fail", "Parallel", "Map"})
_WITHOUT_TRANSITION: Final = frozenset({"Choice", "Succeed", "Fail"})
#: Fields of the other query language.
_JSONPATH_FIELDS: Final = ("InputPath", "OutputPath", "Parameters", "ResultPath", "ResultSelector")
_JSONATA_FIELDS: Final = ("Arguments", "Output")

State = Mapping[str, Any]


def first_problem(definition: Mapping[str, Any]) -> str | None:
    """Return the first thing in a definition that AWS refuses, or None.

    Args:
        definition: The definition, read from its JSON.
    """
    language = definition.get("QueryLanguage", "JSONPath")
    return next(_problems_of_machine(definition, language, ""), None)


def _problems_of_machine(machine: Mapping[str, Any], language: str, path: str) -> Iterator[str]:
    states: Mapping[str, State] = machine.get("States") or {}
    start = machine.get("StartAt")
    if not states:
        yield f"SCHEMA_VALIDATION_FAILED: States must not be empty at {path or '/'}"
        return
    if start not in states:
        yield f"MISSING_TRANSITION_TARGET: Missing 'StartAt' target: {start} at {path}/StartAt"
    reachable = {start}
    for name, state in states.items():
        where = f"{path}/States/{name}"
        yield from _problems_of_state(state, language, where)
        for target in _targets(state):
            reachable.add(target)
            if target not in states:
                yield f"MISSING_TRANSITION_TARGET: Missing 'Next' target: {target} at {where}"
    for name in states:
        if name not in reachable:
            yield f'MISSING_TRANSITION_TARGET: State "{name}" is not reachable. at {path}/States/{name}'


def _problems_of_state(state: State, language: str, where: str) -> Iterator[str]:
    kind = state.get("Type")
    if kind not in _TYPES:
        yield f"SCHEMA_VALIDATION_FAILED: unknown Type {kind} at {where}"
        return
    own_language = state.get("QueryLanguage", language)
    foreign = _JSONPATH_FIELDS if own_language == "JSONata" else _JSONATA_FIELDS
    for field in foreign:
        if field in state:
            yield f"SCHEMA_VALIDATION_FAILED: {field} is not supported for query language {own_language} at {where}"
    if kind not in _WITHOUT_TRANSITION and ("Next" in state) == (state.get("End") is True):
        yield f"SCHEMA_VALIDATION_FAILED: exactly one of Next and End is needed at {where}"
    if kind in _WITHOUT_TRANSITION and ("Next" in state or "End" in state):
        yield f"SCHEMA_VALIDATION_FAILED: a {kind} state has neither Next nor End at {where}"
    if kind == "Task" and not state.get("Resource"):
        yield f"SCHEMA_VALIDATION_FAILED: a Task needs a Resource at {where}"
    timeout, heartbeat = state.get("TimeoutSeconds"), state.get("HeartbeatSeconds")
    if isinstance(timeout, int) and isinstance(heartbeat, int) and heartbeat >= timeout:
        yield f"SCHEMA_VALIDATION_FAILED: HeartbeatSeconds must be smaller than TimeoutSeconds at {where}"
    yield from _problems_of_handlers(state, where)
    for index, branch in enumerate(state.get("Branches") or []):
        yield from _problems_of_machine(branch, own_language, f"{where}/Branches[{index}]")
    for field in ("ItemProcessor", "Iterator"):
        if field in state:
            yield from _problems_of_machine(state[field], own_language, f"{where}/{field}")


def _problems_of_handlers(state: State, where: str) -> Iterator[str]:
    for field in ("Retry", "Catch"):
        handlers = state.get(field) or []
        for index, handler in enumerate(handlers):
            names = handler.get("ErrorEquals") or []
            if not names:
                yield f"SCHEMA_VALIDATION_FAILED: ErrorEquals must not be empty at {where}/{field}[{index}]"
            if "States.ALL" in names and (len(names) > 1 or index < len(handlers) - 1):
                yield f"SCHEMA_VALIDATION_FAILED: States.ALL must be alone and last at {where}/{field}[{index}]"


def _targets(state: State) -> Iterator[str]:
    for field in ("Next", "Default"):
        if field in state:
            yield state[field]
    for field in ("Choices", "Catch"):
        yield from (entry["Next"] for entry in state.get(field) or [] if "Next" in entry)
