"""Every JSONata expression of a saga: where it is, what it may speak of, and whether it can work."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from constructs_lib.saga.description.kind import plain_kind
from constructs_lib.saga.steps.group import StepGroup
from constructs_lib.saga.steps.jsonata import CHANGING, bare, is_expression
from constructs_lib.saga.steps.routes import Notify
from constructs_lib.saga.steps.step import Step
from constructs_lib.saga.validation.jsonata_reads import TOKEN, BadExpressionError, Path, Reads, reads_of
from saga_runtime.protocol import MAX_EXPRESSION_LEVELS

_REQUEST: Final[Mapping[str, Path | None]] = {"request": ("request",), "outputs": ("outputs",)}
_STEP: Final[Mapping[str, Path | None]] = {**_REQUEST, "saga_id": None, "step_key": None}
_FAILURE: Final = frozenset({"step", "error", "detail", "status", "title", "kind"})
_STATES: Final = frozenset({"context", "input"})
_WITH_RESULT: Final = _STATES | {"result"}
_WITH_ERROR: Final = _WITH_RESULT | {"errorOutput"}
_STEADY_CONTEXT: Final = frozenset({"Execution", "Map"})
_NOT_ONE_OUTPUT: Final = re.compile(r"\$outputs\b(?!\s*\.\s*[A-Za-z])")
_ITEM: Final = re.compile(r"\$item\b")
_NOT_STEADY: Final = re.compile(
    r"\$states\b(?!\s*\.\s*context\s*\.\s*"
    r"(Execution\s*\.\s*Input\s*\.\s*(request|request_id|saga_id)\b|Map\s*\.\s*Item\s*\.\s*(Index|Value)\b))"
)


@dataclass(frozen=True, slots=True)
class Expression:
    """An expression, without its ``{% %}``, and where it is.

    Attributes:
        where: ``when of step Charge``.
        text: the expression.
        names: variables that it may read, except ``$states``, and their values, or None for something computed.
        steps: names of the steps whose outputs are known there.
        states: members of ``$states`` that are there.
        decides: whether it decides which effects the saga has: every run of the saga must come to the same.
        repeated: whether one state evaluates it twice, and must come to the same.
    """

    where: str
    text: str
    names: Mapping[str, Path | None]
    steps: frozenset[str]
    states: frozenset[str] = _STATES
    decides: bool = False
    repeated: bool = False


@dataclass(frozen=True, slots=True)
class RequestRead:
    """A member of the request that an expression reads."""

    where: str
    text: str
    members: tuple[str, ...]


def checked_reads(
    steps: Sequence[Step | StepGroup], *, result: str | None, on_failed: Notify | None
) -> tuple[RequestRead, ...]:
    """Refuse expressions that cannot work: what they read of the request is returned, and known to a schema only.

    Raises:
        ValueError: for an expression that is not JSONata, or that reads a variable, a function, or the output of a
            step that it cannot know; naming where it is, the expression and the remedy.
    """
    every = frozenset(step.name for node in steps for step in node.steps)
    rowless = frozenset(step.name for node in steps for step in node.steps if not step.recorded)
    read: dict[RequestRead, None] = {}
    for found in _all(steps, every, result, on_failed):
        paths = _reads(found, found.names, every, rowless)
        read |= {RequestRead(found.where, found.text, path[1:]): None for path in sorted(paths) if path[0] == "request"}
    return tuple(read)


def _reads(
    found: Expression, names: Mapping[str, Path | None], every: frozenset[str], rowless: frozenset[str]
) -> frozenset[Path]:
    if not found.text:
        raise ValueError(f"{found.where} must be a JSONata expression, got ''; leave it out for the default")
    try:
        reads = reads_of(found.text, {**names, "states": ("states",)})
        paths = reads.paths
        if reads.levels > MAX_EXPRESSION_LEVELS:
            raise BadExpressionError(
                f"which nests {reads.levels} levels deep, each operator of a chain being one: AWS evaluates few more "
                f"than {MAX_EXPRESSION_LEVELS}",
                "divide it by $sum, $join or $map, or let a step answer it",
            )
        for path in sorted(paths):
            _check_members(found, path, every)
        if found.repeated:
            _check_functions(
                reads, "has another value each time", "take it from the request, or let a Step.read_only answer it"
            )
        if found.decides:
            _check_steady(found.text, reads, rowless & found.steps)
    except BadExpressionError as bad:
        raise ValueError(
            f"{found.where} must be a JSONata expression that can work, got {found.text!r}, {bad}; {bad.remedy}"
        ) from None
    return paths


def _check_members(found: Expression, path: Path, every: frozenset[str]) -> None:
    if len(path) < 2:
        return
    variable, member = path[:2]
    if variable == "outputs" and member not in found.steps:
        if member in every:
            raise BadExpressionError(
                f"where step {member} has not run yet", "read the output of an earlier step, or move one of the two"
            )
        known = ", ".join(sorted(found.steps)) or "none"
        raise BadExpressionError(f"where no step is called {member}", f"name one of the steps before it: {known}")
    if variable == "states" and member not in found.states:
        raise BadExpressionError(f"where $states has no {member}", f"it has {', '.join(sorted(found.states))}")
    if variable == "failure" and member not in _FAILURE:
        raise BadExpressionError(f"where $failure has no {member}", f"it has {', '.join(sorted(_FAILURE))}")


def _check_functions(reads: Reads, why: str, remedy: str) -> None:
    """Refuse functions of time and chance."""
    for name in sorted(reads.functions & CHANGING):
        raise BadExpressionError(f"where ${name} {why}", remedy)


def _check_steady(text: str, reads: Reads, rowless: frozenset[str]) -> None:
    """Refuse what may come out otherwise in a recovery: the saga would go two ways."""
    remedy = "let a Step.read_only answer it, and read its output, which is recorded"
    if TOKEN.search(text):
        raise BadExpressionError("where a token may have another value after each deployment", f"write it, or {remedy}")
    _check_functions(reads, "is another one in each run of the saga", remedy)
    for path in sorted(reads.paths):
        match path:
            case ("outputs", name, *_) if name in rowless:
                raise BadExpressionError(f"where the output of step {name} is not recorded", remedy)
            case ("states", "context", "Execution", name, *_) if name != "Input":
                raise BadExpressionError(f"where {name} is another one in each run of the saga", remedy)
            case ("states", "context", name, *_) if name not in _STEADY_CONTEXT:
                raise BadExpressionError(f"where {name} is another one in each run of the saga", remedy)
    # As a whole, or by a computed name, also what is not the same in each run would be read.
    if _NOT_STEADY.search(text):
        raise BadExpressionError(
            "where $states must be read as $states.context.Execution.Input.request, .request_id or .saga_id, or as "
            "$states.context.Map.Item.Index or .Value",
            remedy,
        )
    if rowless and _NOT_ONE_OUTPUT.search(text):
        raise BadExpressionError("where $outputs must be read step by step, as $outputs.Step", remedy)


def _all(
    steps: Sequence[Step | StepGroup], every: frozenset[str], result: str | None, on_failed: Notify | None
) -> Iterator[Expression]:
    before: frozenset[str] = frozenset()
    for node in steps:
        if isinstance(node, StepGroup):
            yield from _of_group(node, before)
            for branch in node.branches:
                own = before
                for step in branch:
                    yield from _of_step(step, own)
                    own |= {step.name}
        else:
            yield from _of_step(node, before)
        before |= {step.name for step in node.steps}
    if result is not None:
        yield Expression("result", bare(result), {"outputs": ("outputs",)}, every)
    if on_failed is not None:
        yield from _of_notice("message of on_failed", on_failed)


def _of_group(group: StepGroup, before: frozenset[str]) -> Iterator[Expression]:
    if group.when is not None:
        yield Expression(f"when of {group.name}", group.when, _REQUEST, before, decides=True)
    if group.items is None or group.key is None:
        return
    items = Expression(f"items of {group.name}", group.items, _REQUEST, before, decides=True)
    yield items
    item = reads_of(group.items, {**_REQUEST, "states": ("states",)}).value  # the caller has just checked it
    yield Expression(f"key of {group.name}", group.key, {**_REQUEST, "item": item}, before, decides=True)
    if group.max_items > 1 and not _ITEM.search(group.key):
        raise ValueError(
            f"key of {group.name} must be a JSONata expression that reads $item, got {group.key!r}, which is the same "
            "for all items; read what differs, as $item.id does"
        )


def _of_step(step: Step, before: frozenset[str]) -> Iterator[Expression]:
    def at(argument: str, value: object, names: Mapping[str, Path | None], states: frozenset[str] = _STATES) -> Any:
        for text in _inside(value):
            yield Expression(f"{argument} of step {step.name}", text, names, known, states)

    known = before
    if step.when is not None:
        yield Expression(f"when of step {step.name}", step.when, _REQUEST, before, decides=True)
    if step.message is not None:
        yield Expression(f"message of step {step.name}", step.message, _REQUEST, before)
    if step.direct is not None:
        own = {**_STEP, **dict.fromkeys(_assigned(step.direct.fields))}
        inside = _WITH_ERROR if plain_kind(step.kind).own_state else _STATES
        for argument, value in step.direct.written.items():
            yield from at(argument, value, own, inside)
        yield Expression(f"output of step {step.name}", step.direct.output, own, before, _WITH_RESULT)
    if step.transaction is not None:
        yield from at("writes", step.transaction.writes, _STEP)
        # Evaluated for the row, and again for what the execution continues with.
        yield Expression(f"output of step {step.name}", step.transaction.output, _STEP, before, repeated=True)
        known = before | {step.name}
        yield from at("compensate", step.transaction.compensate, {**_STEP, "output": None})
    for error, route in step.on_error.items():
        if isinstance(route, Notify):
            yield from _of_notice(f"message of on_error[{error!r}] of step {step.name}", route)


def _of_notice(where: str, notify: Notify) -> Iterator[Expression]:
    if notify.message is not None:
        yield Expression(where, bare(notify.message), {"failure": ("failure",)}, frozenset())


def _inside(value: object) -> Iterator[str]:
    """Expressions in a structure: texts with ``{% %}``."""
    if isinstance(value, str):
        if is_expression(value.strip()):
            yield bare(value)
    elif isinstance(value, Mapping):
        for item in value.values():
            yield from _inside(item)
    elif isinstance(value, list | tuple):
        for item in value:
            yield from _inside(item)


def _assigned(state: object) -> Iterator[str]:
    """Names that a state of the user's own assigns, or states in it."""
    if isinstance(state, Mapping):
        assign = state.get("Assign")
        if isinstance(assign, Mapping):
            yield from (str(name) for name in assign)
        for item in state.values():
            yield from _assigned(item)
    elif isinstance(state, list | tuple):
        for item in state:
            yield from _assigned(item)
