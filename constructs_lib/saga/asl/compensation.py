"""The chain of compensations, last step first. Each one asks its row, so running it is always safe."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from typing import Final

from constructs_lib.saga.asl.ending import ASK_THE_LOG, FENCED, park_of
from constructs_lib.saga.asl.failures import UNEVALUATED, found_at, thrown_at
from constructs_lib.saga.asl.fence import fence_states, look_at_row
from constructs_lib.saga.asl.flow import Flow, item_of, row_name, row_text
from constructs_lib.saga.asl.items import items_of, may_throw
from constructs_lib.saga.asl.outputs import KNOWN_ON_THE_WAY_BACK, known_on_the_way_back, outputs_in_the_log
from constructs_lib.saga.asl.plan import CompiledGroup, CompiledStep, Node, SagaPlan, State, task_seconds
from constructs_lib.saga.asl.states import (
    EXECUTION,
    bind_all,
    call,
    now,
    payload,
    reached_from,
    row_key,
    step_retries,
    transaction_retries,
)
from constructs_lib.saga.description.kind import Mutation, plain_kind
from constructs_lib.saga.steps.jsonata import expression
from saga_runtime.protocol import UNDO_STATE, CallField, CallMode, ErrorName, LogAttribute, StepStatus


def chain_from(plan: SagaPlan, index: int) -> str:
    """First compensation at or before node ``index``; with none left, the log is asked."""
    for node in reversed(plan.steps[: index + 1]):
        units = _units(node)
        if units:
            return _undo_name(units[-1])
    return ASK_THE_LOG


def chain(plan: SagaPlan) -> dict[str, State]:
    """Every compensation, last step first."""
    states: dict[str, State] = {}
    for index, node in reversed(list(enumerate(plan.steps))):
        following = chain_from(plan, index - 1) if index else ASK_THE_LOG
        chained: dict[str, State] = {}
        for unit in _units(node):
            chained = _undo(plan, unit, _Way(following=following, fenced=FENCED, stuck=park_of(plan))) | chained
            following = _undo_name(unit)
        states |= chained
    return states


def late_chain(plan: SagaPlan, *, over: str, fenced: str, stuck: str) -> tuple[str, dict[str, State]]:
    """Compensations of jobs that were applied late, last step first.

    Their rows decide: a step without a late effect is not compensated.

    Returns:
        Name of the first state, and the states; ``over`` and no states, if the saga has no such jobs.
    """
    states: dict[str, State] = {}
    following = over
    way = _Way(following=following, fenced=fenced, stuck=stuck, late=True)
    for node in plan.steps:
        for unit in _units(node):
            if any(step.job for step in unit.leaves):
                states |= _undo(plan, unit, dataclasses.replace(way, following=following))
                following = _undo_name(unit, late=True)
    return following, states


@dataclass(frozen=True, slots=True, kw_only=True)
class _Way:
    """Exits of a compensation, and whether it compensates only late effects."""

    following: str
    fenced: str
    stuck: str
    late: bool = False


def _units(node: Node) -> list[Node]:
    """Units of a node's compensation: the items of a map together, every other step separately."""
    if not node.compensated:
        return []
    if isinstance(node, CompiledStep) or node.per_item:
        return [node]
    return [step for step in node.leaves if step.compensated]


def _undo_name(node: Node, *, late: bool = False) -> str:
    return f"{UNDO_STATE}late {node.name}" if late else f"{UNDO_STATE}{node.name}"


_SAGA: Final = Flow(nodes=(), end="")


def _undo(plan: SagaPlan, unit: Node, way: _Way) -> dict[str, State]:
    if isinstance(unit, CompiledGroup):
        return _undo_items(plan, unit, way)
    return _undo_step(plan, _SAGA, unit, way, stuck_assign=thrown_at(_undo_name(unit)))


def _undo_step(plan: SagaPlan, flow: Flow, step: CompiledStep, way: _Way, *, stuck_assign: State) -> dict[str, State]:
    """States that undo one step: its row decides, so running them is always safe."""
    if plain_kind(step.kind).mutation is Mutation.BY_MACHINE:
        return _undo_writes(plan, flow, step, following=way.following, stuck=way.stuck, stuck_assign=stuck_assign)
    # A call whose outcome is not known may have to be repeated, and with the same arguments.
    seen = outputs_in_the_log(plan, flow, step, known_on_the_way_back(flow.of_map)) if step.provider is not None else {}
    only_late: State = {CallField.MODE: CallMode.LATE} if way.late else {}
    undo = {
        "Type": "Task",
        "Resource": "arn:aws:states:::lambda:invoke",
        "Arguments": {
            "FunctionName": step.compensate_arn,
            "Payload": payload(plan, step, "{}", item=item_of(flow)) | seen | only_late,
        },
        "TimeoutSeconds": task_seconds(step.compensation),
        "Retry": step_retries((), step.retry, no_way_back=True, transient=step.transient),
        "Catch": [
            {"ErrorEquals": [ErrorName.FENCED], "Next": way.fenced},
            {"ErrorEquals": ["States.ALL"], "Next": way.stuck, "Assign": stuck_assign},
        ],
        "Next": way.following,
    }
    return {_undo_name(step, late=way.late): undo}


def _undo_writes(
    plan: SagaPlan, flow: Flow, step: CompiledStep, *, following: str, stuck: str, stuck_assign: State
) -> dict[str, State]:
    """Compensate writes of the state machine: write a tombstone, or undo them together with the row."""
    if step.transaction is None:
        raise TypeError(f"{step.name} has nothing that undoes it")
    name, a = _undo_name(step), LogAttribute
    undoing, look, again = f"{name} - write", f"{name} - read written row", f"{name} - written?"
    row = {
        "Update": {
            "TableName": plan.log_table,
            "Key": row_key(row_name(flow, step)),
            "UpdateExpression": "SET #status = :undone, #attempt_id = :attempt, #updated_at = :now",
            "ConditionExpression": "#status = :done",
            "ExpressionAttributeNames": {f"#{n}": n for n in (a.STATUS, a.ATTEMPT_ID, a.UPDATED_AT)},
            "ExpressionAttributeValues": {
                ":undone": {"S": StepStatus.COMPENSATED},
                ":done": {"S": StepStatus.DONE},
                ":attempt": {"S": expression(EXECUTION)},
                ":now": now(),
            },
        }
    }
    output = f" $output := $parse(${flow.row}.output.S);"
    entries = bind_all(
        step.transaction.entries(undo=True),
        known_on_the_way_back(flow.of_map),
        row=f'({row_text(flow, step)} & "#undo")',
        also=output,
    )
    canceled = {"ErrorEquals": ["States.ALL"], "Next": look}
    status = f"${flow.row}.{a.STATUS}.S"
    reason = found_at(row_name(flow, step) if flow.inner else name, "TransactionCanceled", "the undo was refused")
    refused = {flow.failure: reason["parked_reason"]} if flow.inner else reason
    return {
        **fence_states(plan, flow, step, name=name, buried=following, stands=undoing, stuck=stuck),
        undoing: {
            **call("aws-sdk:dynamodb:transactWriteItems"),
            "Arguments": {"TransactItems": [row, *entries]},
            "Retry": transaction_retries(step.retry, no_way_back=True),
            "Catch": [canceled | {"Assign": stuck_assign}],
            "Next": following,
        },
        # The transaction may have been written although its response was lost: the row shows it.
        look: look_at_row(plan, flow, step, again),
        again: {
            "Type": "Choice",
            "Choices": [{"Condition": expression(f'{status} = "{StepStatus.COMPENSATED}"'), "Next": following}],
            "Default": stuck,
            "Assign": refused,
        },
    }


def _undo_items(plan: SagaPlan, group: CompiledGroup, way: _Way) -> dict[str, State]:
    """Every item's compensations, last step first; one that is stuck does not keep the others from being undone."""
    flow = Flow(nodes=(), end="", variable="own", base=KNOWN_ON_THE_WAY_BACK, of_map=group)
    name = _undo_name(group, late=way.late)
    done, stuck, fenced = (f"{name} - {what}" for what in ("item compensated", "item parked", "item fenced"))
    over = f"{name} - result"
    items = items_of(group, KNOWN_ON_THE_WAY_BACK, strict=False)
    guard, each = _guarded(name, way, items) if may_throw(group) else ({}, name)
    states: dict[str, State] = {}
    ahead = done
    for step in group.leaves:
        if step.compensated and (step.job or not way.late):
            item = _Way(following=ahead, fenced=fenced, stuck=stuck, late=way.late)
            states = _undo_step(plan, flow, step, item, stuck_assign=thrown_in(flow, step)) | states
            ahead = _undo_name(step, late=way.late)
    states |= {
        done: {"Type": "Pass", "Output": {"ok": True}, "End": True},
        stuck: {
            "Type": "Pass",
            "Output": {"ok": False, "fenced": False, "parked_reason": expression(f"${flow.failure}")},
            "End": True,
        },
        fenced: {"Type": "Pass", "Output": {"ok": False, "fenced": True}, "End": True},
    }
    return {
        **guard,
        each: {
            "Type": "Map",
            "Items": expression(items),
            "MaxConcurrency": group.max_concurrency,
            "ItemProcessor": {
                "ProcessorConfig": {"Mode": "INLINE"},
                "StartAt": ahead,
                "States": reached_from(ahead, states),
            },
            "Assign": {
                "all_undone": expression("$not(false in $states.result.ok)"),
                "undo_fenced": expression("true in $states.result.fenced"),
                "undo_parked_reason": expression("($s := [$states.result.parked_reason]; $count($s) > 0 ? $s[0] : {})"),
            },
            "Catch": [{"ErrorEquals": ["States.ALL"], "Next": way.stuck, "Assign": thrown_at(name)}],
            "Next": over,
        },
        over: {
            "Type": "Choice",
            "Choices": [
                {"Condition": expression("$all_undone"), "Next": way.following},
                {"Condition": expression("$undo_fenced"), "Next": way.fenced},
            ],
            "Default": way.stuck,
            "Assign": {"parked_reason": expression("$undo_parked_reason")},
        },
    }


def _guarded(name: str, way: _Way, items: str) -> tuple[dict[str, State], str]:
    """Evaluate a map's items apart from it: where that fails, the map never began, and has no effects.

    Inside of the map, the same error may be of an item after others were compensated.

    Returns:
        The state, and the name of the map behind it.
    """
    each, check = f"{name} - each item", f"{name} - items"
    nothing = {"ErrorEquals": [UNEVALUATED], "Next": way.following}
    stuck = {"ErrorEquals": ["States.ALL"], "Next": way.stuck, "Assign": thrown_at(name)}
    counted = {"Type": "Pass", "Output": expression(f"$count({items})"), "End": True}
    branch = {"StartAt": check, "States": {check: counted}}
    return {name: {"Type": "Parallel", "Branches": [branch], "Catch": [nothing, stuck], "Next": each}}, each


def thrown_in(flow: Flow, step: CompiledStep) -> State:
    """Fields of an item's failure, which the saga passes on to operators."""
    thrown: State = thrown_at(row_name(flow, step))["parked_reason"]
    return {flow.failure: thrown}
