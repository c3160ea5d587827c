"""The way back: fences, the direction, and the chain of compensations."""

from __future__ import annotations

from typing import Final

from constructs_lib.saga.asl.ending import ASK_THE_LOG, FENCED, LOOK_AT_DIRECTION, LOOK_AT_RECORD, park_of
from constructs_lib.saga.asl.failures import broken, found_at, thrown_at
from constructs_lib.saga.asl.flow import Flow, item_of, row_name
from constructs_lib.saga.asl.outputs import read_outputs
from constructs_lib.saga.asl.plan import CompiledGroup, CompiledStep, GroupKind, Node, SagaPlan, State
from constructs_lib.saga.asl.states import (
    EXECUTION,
    REQUEST,
    bind_all,
    call,
    expression,
    found_item,
    now,
    payload,
    reached_from,
    record_update,
    refused_write,
    row_key,
    seconds_from_now,
    step_retries,
    transaction_retries,
)
from saga_runtime.protocol import (
    NOTHING_STANDS,
    CallField,
    CallMode,
    Direction,
    ErrorName,
    LogAttribute,
    RecordAttribute,
    StepStatus,
)
from saga_runtime.record import OWNED

_DAY_SECONDS: Final = 86_400
_KNOWN: Final = "($exists($outputs) ? $outputs : {})"
"""What is known on the way back: nothing, if the saga turned round before its first step answered."""


def give_up_name(plan: SagaPlan, index: int) -> str:
    """State at which a node, not later than the last pivot, is given up."""
    node = plan.steps[index]
    return f"Give up {node.name}?" if _pivots_passed(plan, index) else _way_back_name(node)


def _way_back_name(node: Node) -> str:
    """State at which the way back begins: the pivot is fenced first."""
    pivot = _pivot_of(node)
    return f"Fence {pivot.name}" if pivot is not None else _compensate_name(node)


def _pivot_of(node: Node) -> CompiledStep | None:
    return next((step for step in node.leaves if step.pivot), None)


def _pivots_passed(plan: SagaPlan, index: int) -> list[CompiledStep]:
    """Pivots that may lie behind a saga that is at node ``index``; not those whose condition is its negation."""
    when = plan.steps[index].when
    return [
        step
        for node in plan.steps[:index]
        for step in node.leaves
        if step.pivot and not _exclude(node.when or step.when, when)
    ]


def _exclude(one: str | None, other: str | None) -> bool:
    """Whether one condition is, to the letter, the other's negation, over the request alone: it cannot change."""
    if one is None or other is None or "$outputs" in one + other:
        return False
    return one == f"$not({other})" or other == f"$not({one})"


def _compensate_name(node: Node) -> str:
    return f"Compensate from {node.name}"


def go_again(node: Node) -> State:
    """Assignment with which a node is tried again, after a while."""
    return {"again": node.name, "tries": expression(f'$exists($again) and $again = "{node.name}" ? $tries + 1 : 1')}


def wait_name(group: CompiledGroup) -> str:
    """State from which a group is tried again where there is only forward."""
    return f"Try {group.name} again?"


def giving_up(plan: SagaPlan, flow: Flow, index: int, *, outputs: str | None) -> dict[str, State]:
    """States that decide the direction when node ``index``, not later than the pivot, is given up.

    Args:
        plan: the plan.
        flow: the saga's own flow.
        index: which node.
        outputs: what ``$outputs`` becomes when the node is the pivot and stands; None for a group, which is run again
            for the rest of its answers.
    """
    node = plan.steps[index]
    compensate = _compensate_name(node)
    turn = direct(plan, Direction.COMPENSATE, chain_from(plan, index))
    if plan.pivots:
        turn["Catch"] = [refused_write(LOOK_AT_DIRECTION) | {"Assign": go_again(node)}]
    states = {compensate: turn} | _no_way_back(plan, index)
    pivot = _pivot_of(node)
    if pivot is None:
        return states
    forward = f"Forward from {pivot.name}"
    if outputs is None and isinstance(node, CompiledGroup):
        ahead = direct(plan, Direction.FORWARD, wait_name(node)) | {"Assign": go_again(node)}
    else:
        ahead = direct(plan, Direction.FORWARD, flow.following(index)) | {"Assign": {flow.variable: outputs}}
    fence = fence_states(
        plan,
        flow,
        pivot,
        name=_way_back_name(node),
        buried=compensate,
        stands=forward,
        stuck=park_of(plan),
        known=flow.known(index) if isinstance(node, CompiledStep) else None,
    )
    return states | fence | {forward: ahead}


def _no_way_back(plan: SagaPlan, index: int) -> dict[str, State]:
    """Of several pivots one may have happened already: then nothing is compensated, and a person is asked.

    A pivot that this execution has passed stands, and its output is known. One that is not on this request's way was
    never invoked by anybody, and needs no fence.
    """
    pivots = _pivots_passed(plan, index)
    if not pivots:
        return {}
    node = plan.steps[index]
    stuck = f"No way back from {node.name}"
    passed = " or ".join(f"$exists($outputs.{pivot.name})" for pivot in pivots)
    reason = found_at(node.name, "NoWayBack", "the step was given up behind a pivot that stands")
    return {
        give_up_name(plan, index): {
            "Type": "Choice",
            "Choices": [{"Condition": expression(passed), "Next": stuck}],
            "Default": _way_back_name(node),
        },
        stuck: direct(plan, Direction.FORWARD, park_of(plan)) | {"Assign": reason},
    }


def fence_states(
    plan: SagaPlan,
    flow: Flow,
    step: CompiledStep,
    *,
    name: str,
    buried: str,
    stands: str,
    stuck: str,
    known: str | None = None,
    instead: str | None = None,
    buried_outputs: State | None = None,
    standing_outputs: State | None = None,
) -> dict[str, State]:
    """Put a tombstone on a step's row: the write, not a read, decides whether the step happened.

    A row in doubt is decided first, by the step's own function, which asks the provider.

    Args:
        plan: the plan.
        flow: the flow in which the step stands.
        step: whose row.
        name: name of the first state.
        buried: where to go when the step did not happen and now never will.
        stands: where to go when it happened.
        stuck: where to go when that cannot be known.
        known: expression of the outputs that the function is asked with: a provider's call may have been made of them.
            None where they are not at hand: then they are read from the log.
        instead: output (JSON) that the tombstone keeps for a step that is passed over: another run of the saga finds
            it there, and passes the step over, too.
        buried_outputs: what the outputs become in the first case, if anything.
        standing_outputs: what they become in the second.
    """
    look, decide, ask = f"{name}: look", f"{name}: stands?", f"{name}: ask"
    status = f"${flow.row}.{LogAttribute.STATUS.value}.S"
    nothing = ", ".join(f'"{status.value}"' for status in (*NOTHING_STANDS, StepStatus.UNDOING))
    unread = flow.tells(found_at(step.name, "StepUndecided", "its row says neither yes nor no"))
    undecided = {**unread, flow.failure: broken(step.name)}
    states: dict[str, State] = {
        name: _tombstone(plan, flow, step, instead)
        | {"Catch": [refused_write(look)], "Next": buried}
        | _assign(buried_outputs),
        look: _look(plan, flow, step, decide),
        decide: {
            "Type": "Choice",
            "Choices": [
                {"Condition": expression(f'{status} = "{StepStatus.DONE.value}"'), "Next": stands}
                | _assign(standing_outputs),
                {"Condition": expression(f"{status} in [{nothing}]"), "Next": buried} | _assign(buried_outputs),
            ],
            "Default": stuck,
            "Assign": undecided,
        },
    }
    if step.provider is not None:
        in_doubt = expression(f'{status} = "{StepStatus.INTENT.value}"')
        reading = f"{name}: outputs"
        states[decide]["Choices"].append({"Condition": in_doubt, "Next": ask if known is not None else reading})
        if known is None:
            states[reading] = read_outputs(plan, ask)
        sent = payload(plan, step, known or "$outputs", item=item_of(flow))
        sent |= {CallField.MODE.value: CallMode.ASK.value}
        states[ask] = {
            "Type": "Task",
            "Resource": "arn:aws:states:::lambda:invoke",
            "Arguments": {"FunctionName": step.function_arn, "Payload": sent},
            "TimeoutSeconds": step.task_seconds,
            "Retry": step_retries((), step.retry, no_way_back=True, transient=step.transient_errors),
            "Catch": [
                {
                    "ErrorEquals": ["States.ALL"],
                    "Next": stuck,
                    "Assign": {**flow.tells(thrown_at(step.name)), flow.failure: broken(step.name)},
                }
            ],
            "Next": look,
        }
    return states


def _assign(outputs: State | None) -> State:
    return {"Assign": outputs} if outputs is not None else {}


def _look(plan: SagaPlan, flow: Flow, step: CompiledStep, following: str) -> State:
    return {
        **call("dynamodb:getItem"),
        "Arguments": {"TableName": plan.log_table, "Key": row_key(row_name(flow, step)), "ConsistentRead": True},
        "Assign": {flow.row: found_item()},
        "Next": following,
    }


def _tombstone(plan: SagaPlan, flow: Flow, step: CompiledStep, instead: str | None) -> State:
    a = LogAttribute
    kept: State = {a.OUTPUT.value: {"S": instead}} if instead is not None else {}
    return {
        **call("dynamodb:putItem"),
        "Arguments": {
            "TableName": plan.log_table,
            "Item": {
                **row_key(row_name(flow, step)),
                a.STATUS.value: {"S": StepStatus.TOMBSTONE.value},
                **kept,
                a.SIDE.value: {"S": plan.side_of(step).value},
                a.ATTEMPT.value: {"S": expression(EXECUTION)},
                a.CREATED_AT.value: now(),
                a.UPDATED_AT.value: now(),
                a.EXPIRATION.value: seconds_from_now(plan.log_days * _DAY_SECONDS),
            },
            "ConditionExpression": "attribute_not_exists(#saga_id)",
            "ExpressionAttributeNames": {"#saga_id": a.SAGA_ID.value},
        },
    }


def direct(plan: SagaPlan, direction: Direction, following: str) -> State:
    """Write the direction: once, and only while this execution owns the record.

    With ``compensate`` goes the reason, so that whoever ends the saga answers with it.
    """
    a = RecordAttribute
    names = {"#direction": a.DIRECTION.value, "#updated_at": a.UPDATED_AT.value}
    values: dict[str, State] = {":direction": {"S": direction.value}, ":now": now()}
    update = "SET #direction = :direction, #updated_at = :now"
    if direction is Direction.COMPENSATE:
        update += ", #failure = if_not_exists(#failure, :failure)"
        names["#failure"] = a.FAILURE.value
        values[":failure"] = {"S": expression("$string($failure)")}
    return {
        **call("dynamodb:updateItem"),
        "Arguments": record_update(
            plan,
            update,
            condition=f"{OWNED} AND (attribute_not_exists(#direction) OR #direction = :direction)",
            names=names,
            values=values,
        ),
        "Catch": [refused_write(LOOK_AT_RECORD)],
        "Next": following,
    }


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
            undo = (
                _undo_items(plan, unit, following) if isinstance(unit, CompiledGroup) else _undo(plan, unit, following)
            )
            chained = undo | chained
            following = _undo_name(unit)
        states |= chained
    return states


def _units(node: Node) -> list[Node]:
    """What a node's compensation is made of: the items of a map together, every other step by itself."""
    if not node.compensated:
        return []
    if isinstance(node, CompiledStep) or node.kind is GroupKind.MAP:
        return [node]
    return [step for step in node.leaves if step.compensated]


def _undo_name(node: Node) -> str:
    return f"Undo {node.name}"


_SAGA: Final = Flow(nodes=(), end="")


def _undo(plan: SagaPlan, step: CompiledStep, following: str) -> dict[str, State]:
    park = park_of(plan)
    return undo_states(
        plan, _SAGA, step, following=following, fenced=FENCED, stuck=park, stuck_assign=thrown_at(_undo_name(step))
    )


def undo_states(
    plan: SagaPlan, flow: Flow, step: CompiledStep, *, following: str, fenced: str, stuck: str, stuck_assign: State
) -> dict[str, State]:
    """States that undo one step: its row decides, so running them is always safe."""
    if step.compensate_arn is None:
        return _undo_writes(plan, flow, step, following=following, stuck=stuck, stuck_assign=stuck_assign)
    undo = {
        "Type": "Task",
        "Resource": "arn:aws:states:::lambda:invoke",
        "Arguments": {
            "FunctionName": step.compensate_arn,
            # A call whose outcome is not known may have to be repeated, and with the same arguments.
            "Payload": payload(plan, step, _KNOWN if step.provider is not None else "{}", item=item_of(flow)),
        },
        "TimeoutSeconds": step.compensate_task_seconds,
        "Retry": step_retries((), step.retry, no_way_back=True, transient=step.transient_errors),
        "Catch": [
            {"ErrorEquals": [ErrorName.FENCED.value], "Next": fenced},
            {"ErrorEquals": ["States.ALL"], "Next": stuck, "Assign": stuck_assign},
        ],
        "Next": following,
    }
    return {_undo_name(step): undo}


def _undo_writes(
    plan: SagaPlan, flow: Flow, step: CompiledStep, *, following: str, stuck: str, stuck_assign: State
) -> dict[str, State]:
    """The undo of writes straight from the state machine: bury the step, or undo it together with its row."""
    if step.writes is None:
        raise TypeError(f"{step.name} has nothing that undoes it")
    name, a = _undo_name(step), LogAttribute
    undoing, again = f"{name}: writes", f"{name}: done?"
    item = item_of(flow)
    text = f'"{step.name}"' if item is None else f'"{step.name}[" & {item[0]} & "]"'
    row = {
        "Update": {
            "TableName": plan.log_table,
            "Key": row_key(row_name(flow, step)),
            "UpdateExpression": "SET #status = :undone, #attempt = :attempt, #updated_at = :now",
            "ConditionExpression": "#status = :done",
            "ExpressionAttributeNames": {f"#{n.value}": n.value for n in (a.STATUS, a.ATTEMPT, a.UPDATED_AT)},
            "ExpressionAttributeValues": {
                ":undone": {"S": StepStatus.UNDONE.value},
                ":done": {"S": StepStatus.DONE.value},
                ":attempt": {"S": expression(EXECUTION)},
                ":now": now(),
            },
        }
    }
    output = f" $output := $parse(${flow.row}.output.S);"
    entries = bind_all(list(step.writes.compensate), _KNOWN, row=f'({text} & "#undo")', also=output)
    canceled = {"ErrorEquals": ["States.ALL"], "Next": f"{again} look"}
    status = f"${flow.row}.{a.STATUS.value}.S"
    reason = found_at(row_name(flow, step) if flow.inner else name, "TransactionCanceled", "the undo was refused")
    refused = {flow.failure: reason["stuck"]} if flow.inner else reason
    return {
        **fence_states(plan, flow, step, name=name, buried=following, stands=undoing, stuck=stuck),
        undoing: {
            **call("aws-sdk:dynamodb:transactWriteItems"),
            "Arguments": {"TransactItems": [row, *entries]},
            "Retry": transaction_retries(step.retry, no_way_back=True),
            "Catch": [canceled | {"Assign": stuck_assign}],
            "Next": following,
        },
        # The transaction may have been written without an answer: then the row says so.
        f"{again} look": _look(plan, flow, step, again),
        again: {
            "Type": "Choice",
            "Choices": [{"Condition": expression(f'{status} = "{StepStatus.UNDONE.value}"'), "Next": following}],
            "Default": stuck,
            "Assign": refused,
        },
    }


def items_of(group: CompiledGroup, known: str, *, strict: bool) -> str:
    """A map's items as an array of keys and values.

    Strictly, bad items are an error: nothing has happened yet. On the way back they are none: with bad items the map
    never began.
    """
    bad = '$error("the items of the map are not an array of distinct keys within its limit")' if strict else "[]"
    outputs = "" if known == "$outputs" else f" $outputs := {known};"
    return (
        # In brackets of their own: an array that is written out would become one item of another array.
        f"($request := $parse({REQUEST});{outputs} $all := [({group.items})];"
        f' $keyed := [$map($all, function($item) {{ {{"key": $string({group.key}), "value": $item}} }})];'
        f" $good := $count($keyed) <= {group.max_items} and $count($distinct($keyed.key)) = $count($keyed)"
        # Not an anchored match: whether "$" also matches before a newline differs between engines.
        " and $count($keyed[$length(key) > 0 and $length(key) <= 64 and"
        " $not($contains(key, /[^A-Za-z0-9._:\\/@+=,-]/))]) = $count($keyed);"
        f" $good ? $keyed : {bad})"
    )


def _undo_items(plan: SagaPlan, group: CompiledGroup, following: str) -> dict[str, State]:
    """Every item's compensations, last step first; one that is stuck does not keep the others from being undone."""
    flow = Flow(nodes=(), end="", variable="own", base=_KNOWN, of_map=group)
    done, stuck, fenced = (f"Undo {group.name}: {what}" for what in ("item undone", "item stuck", "item fenced"))
    over = f"Undo {group.name}: over?"
    states: dict[str, State] = {}
    ahead = done
    for step in group.leaves:
        if step.compensated:
            undo = undo_states(
                plan, flow, step, following=ahead, fenced=fenced, stuck=stuck, stuck_assign=thrown_in(flow, step)
            )
            states = undo | states
            ahead = _undo_name(step)
    states |= {
        done: {"Type": "Pass", "Output": {"ok": True}, "End": True},
        stuck: {
            "Type": "Pass",
            "Output": {"ok": False, "fenced": False, "stuck": expression(f"${flow.failure}")},
            "End": True,
        },
        fenced: {"Type": "Pass", "Output": {"ok": False, "fenced": True}, "End": True},
    }
    name = _undo_name(group)
    return {
        name: {
            "Type": "Map",
            "Items": expression(items_of(group, _KNOWN, strict=False)),
            "MaxConcurrency": group.max_concurrency,
            "ItemProcessor": {
                "ProcessorConfig": {"Mode": "INLINE"},
                "StartAt": ahead,
                "States": reached_from(ahead, states),
            },
            "Assign": {
                "all_undone": expression("$not(false in $states.result.ok)"),
                "undo_fenced": expression("true in $states.result.fenced"),
                "undo_stuck": expression("($s := [$states.result.stuck]; $count($s) > 0 ? $s[0] : {})"),
            },
            "Catch": [{"ErrorEquals": ["States.ALL"], "Next": park_of(plan), "Assign": thrown_at(name)}],
            "Next": over,
        },
        over: {
            "Type": "Choice",
            "Choices": [
                {"Condition": expression("$all_undone"), "Next": following},
                {"Condition": expression("$undo_fenced"), "Next": FENCED},
            ],
            "Default": park_of(plan),
            "Assign": {"stuck": expression("$undo_stuck")},
        },
    }


def thrown_in(flow: Flow, step: CompiledStep) -> State:
    """Inside an item: what the item's answer tells, and the saga passes on to operators."""
    thrown: State = thrown_at(row_name(flow, step))["stuck"]
    return {flow.failure: thrown}
