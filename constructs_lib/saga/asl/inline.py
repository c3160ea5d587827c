"""Definitions of a saga that runs inline: Express first, Standard alongside it.

Both own the record by the saga's name, and rows decide what each of them finds applied. Neither waits for the other.
An Express execution delegates to Standard what it cannot decide at once.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from constructs_lib.saga.asl.direction import compensating, give_up_name
from constructs_lib.saga.asl.ending import (
    ALREADY_SETTLED,
    SETTLE_COMPLETED,
    SETTLE_FAILED,
    START_STANDARD,
    mine,
)
from constructs_lib.saga.asl.failures import thrown_at
from constructs_lib.saga.asl.plan import SagaPlan, State
from constructs_lib.saga.asl.states import EXECUTION, SAGA_ID
from constructs_lib.saga.steps.jsonata import expression
from saga_runtime.protocol import MAX_INLINE_SECONDS, Direction, RecordAttribute

_ANY: Final = "States.ALL"
_ATTEMPTS: Final = 2
"""Number of quick retries of an Express execution."""
_DEFAULT_ATTEMPTS: Final = 3
"""Of a retrier that declares none (docs.aws.amazon.com/step-functions, "Handling errors")."""


def joining(plan: SagaPlan) -> list[State]:
    """Rules of an owner that was fenced, or refused: it follows the execution that got ahead of it.

    By a written direction it compensates. A tombstone without one was written by an execution that may be dead: then
    it gives up the step at which it found it.
    """
    back, _ = compensating(plan)
    direction = f"$record.{RecordAttribute.DIRECTION}.S"
    undecided = f"{mine()} and $not($exists({direction}))"
    compensates = f'{mine()} and {direction} = "{Direction.COMPENSATE}"'
    entries: dict[str, list[str]] = {}
    for index, node in enumerate(plan.steps[: plan.last_pivot + 1]):
        entries.setdefault(give_up_name(plan, index), []).append(f'"{node.name}"')
    return [
        {"Condition": expression(compensates), "Next": back},
        *(
            {"Condition": expression(f"{undecided} and $again in [{', '.join(names)}]"), "Next": entry}
            for entry, names in entries.items()
        ),
    ]


def express(definition: State) -> State:
    """The definition of an Express machine: the saga's id is its executions' name, retries are few and quick.

    The settled record is part of the output, as DynamoDB returned it: responses are made of nothing else.
    """
    states: dict[str, State] = {name: _quick(name, state) for name, state in definition["States"].items()}
    for name in (SETTLE_COMPLETED, SETTLE_FAILED):
        if name in states:
            settle = states[name]
            settle["Arguments"] = {**settle["Arguments"], "ReturnValues": "UPDATED_NEW"}
            settle["Output"] = {"record": expression("$states.result.Attributes")}
    if ALREADY_SETTLED in states:
        states[ALREADY_SETTLED] = {**states[ALREADY_SETTLED], "Output": {"record": expression("$record")}}
    by_saga_id: State = _by_saga_id({**definition, "TimeoutSeconds": MAX_INLINE_SECONDS, "States": states})
    return by_saga_id


def _quick(name: str, state: Mapping[str, Any]) -> State:
    """A state with quick retries, which delegates whatever it cannot do."""
    quick = _with_quick_retries(state)
    catches = quick.get("Catch", ())
    if quick["Type"] == "Task" and name != START_STANDARD and not any(_ANY in one["ErrorEquals"] for one in catches):
        quick["Catch"] = [*catches, {"ErrorEquals": [_ANY], "Next": START_STANDARD, "Assign": thrown_at(name)}]
    return quick


def _with_quick_retries(state: Mapping[str, Any]) -> State:
    """A state with quick retries, its branches' states included: these report what they cannot do."""
    quick = dict(state)
    if "Retry" in quick:
        quick["Retry"] = [_quickly(retry) for retry in quick["Retry"]]
    if "Branches" in quick:
        quick["Branches"] = [_with_quick_states(branch) for branch in quick["Branches"]]
    if "ItemProcessor" in quick:
        quick["ItemProcessor"] = _with_quick_states(quick["ItemProcessor"])
    return quick


def _with_quick_states(branch: Mapping[str, Any]) -> State:
    states = {name: _with_quick_retries(state) for name, state in branch["States"].items()}
    return {**branch, "States": states}


def _quickly(retry: Mapping[str, Any]) -> State:
    declared = retry.get("MaxAttempts", _DEFAULT_ATTEMPTS)
    if declared == 0:
        return dict(retry)
    spread = {name: retry[name] for name in ("JitterStrategy",) if name in retry}
    return {
        "ErrorEquals": retry["ErrorEquals"],
        "IntervalSeconds": 1,
        "BackoffRate": 1,
        "MaxAttempts": min(declared, _ATTEMPTS),
        **spread,
    }


def _by_saga_id(value: Any) -> Any:
    if isinstance(value, str):
        return value.replace(EXECUTION, SAGA_ID)
    if isinstance(value, Mapping):
        return {name: _by_saga_id(item) for name, item in value.items()}
    return [_by_saga_id(item) for item in value] if isinstance(value, list) else value
