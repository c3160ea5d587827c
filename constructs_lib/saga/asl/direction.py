"""Giving up: which way a saga goes when a step fails for good. Decided by writes, never by a read."""

from __future__ import annotations

from typing import Final

from constructs_lib.saga.asl.compensation import chain_from
from constructs_lib.saga.asl.ending import LOOK_AT_DIRECTION, LOOK_AT_RECORD, TRY_AGAIN, park_of
from constructs_lib.saga.asl.failures import found_at
from constructs_lib.saga.asl.fence import fence_states
from constructs_lib.saga.asl.flow import Flow
from constructs_lib.saga.asl.outputs import read_outputs
from constructs_lib.saga.asl.plan import CompiledGroup, CompiledStep, Node, SagaPlan, State
from constructs_lib.saga.asl.states import call, now, record_update, refused_write
from constructs_lib.saga.steps.jsonata import expression
from saga_runtime.idempotency.record import OWNED
from saga_runtime.protocol import Direction, RecordAttribute

COMPENSATE: Final = "Set direction to compensate"
FORWARD: Final = "Set direction to forward"


def give_up_name(plan: SagaPlan, index: int) -> str:
    """State at which a failed node, up to the last pivot, ends."""
    node = plan.steps[index]
    return f"Pivot passed before {node.name}?" if _pivots_passed(plan, index) else _way_back_name(plan, index)


def _way_back_name(plan: SagaPlan, index: int) -> str:
    """State at which the compensation begins: the pivot is fenced first."""
    if plan.alongside:
        ahead = [step for node in plan.steps[index:] for step in node.leaves if step.pivot]
        return f"Fence {ahead[0].name}" if ahead else COMPENSATE
    node = plan.steps[index]
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
    """Test whether one condition literally negates the other and reads only the request, which cannot change."""
    if one is None or other is None or "$outputs" in one + other:
        return False
    return one == f"$not({other})" or other == f"$not({one})"


def _compensate_name(node: Node) -> str:
    return f"Begin compensation at {node.name}"


def go_again(node: Node) -> State:
    """Assignment with which a node is tried again, after a while."""
    return {"again": node.name, "tries": expression(f'$exists($again) and $again = "{node.name}" ? $tries + 1 : 1')}


def wait_name(group: CompiledGroup) -> str:
    """State from which a group is tried again where there is only forward."""
    return f"Retries left for {group.name}?"


def giving_up(plan: SagaPlan, flow: Flow, index: int, *, outputs: str | None) -> dict[str, State]:
    """States that decide the direction when node ``index``, up to the pivot, has failed.

    Args:
        plan: the plan.
        flow: the saga's own flow.
        index: which node.
        outputs: value of ``$outputs`` if the node is the pivot and is applied; None for a group, which runs again
            for its remaining results.
    """
    if plan.alongside:
        return _no_way_back(plan, index)
    node = plan.steps[index]
    compensate = _compensate_name(node)
    turn = direct(plan, Direction.COMPENSATE, chain_from(plan, index))
    if plan.pivots:
        turn["Catch"] = [refused_write(LOOK_AT_DIRECTION) | {"Assign": go_again(node)}]
    states = {compensate: turn} | _no_way_back(plan, index)
    pivot = _pivot_of(node)
    if pivot is None:
        return states
    forward = f"Continue forward at {pivot.name}"
    if outputs is None and isinstance(node, CompiledGroup):
        ahead = direct(plan, Direction.FORWARD, wait_name(node)) | {"Assign": go_again(node)}
    else:
        ahead = direct(plan, Direction.FORWARD, flow.following(index)) | {"Assign": {flow.variable: outputs}}
    fence = fence_states(
        plan,
        flow,
        pivot,
        name=_way_back_name(plan, index),
        buried=compensate,
        stands=forward,
        stuck=park_of(plan),
        known=flow.known(index) if isinstance(node, CompiledStep) else None,
    )
    return states | fence | {forward: ahead}


def compensating(plan: SagaPlan) -> tuple[str, dict[str, State]]:
    """From a written direction to the compensations, from the last step: another execution may have run steps ahead.

    Returns:
        Name of the first state, and the states: this execution reads the outputs that it may not have seen.
    """
    return read_outputs(plan, plan.named_to_undo, chain_from(plan, len(plan.steps) - 1))


def alongside_states(plan: SagaPlan, flow: Flow) -> dict[str, State]:
    """Fence every pivot ahead, then compensate: other executions of the saga may run.

    If one is applied, the failed step is tried again: the result needs its output.
    """
    back, states = compensating(plan)
    turn = direct(plan, Direction.COMPENSATE, back)
    # Executions may give up for different reasons: each of them continues with the one that the record keeps.
    turn["Arguments"]["ReturnValues"] = "UPDATED_NEW"
    turn["Assign"] = {"failure": expression(f"$parse($states.result.Attributes.{RecordAttribute.FAILURE}.S)")}
    if plan.pivots:
        turn["Catch"] = [refused_write(LOOK_AT_DIRECTION)]
    states |= {
        COMPENSATE: turn,
        FORWARD: direct(plan, Direction.FORWARD, TRY_AGAIN if plan.standard_arn is None else park_of(plan)),
    }
    for pivot, following in zip(plan.pivots, [*plan.pivots[1:], None], strict=False):
        states |= fence_states(
            plan,
            flow,
            pivot,
            name=f"Fence {pivot.name}",
            buried=f"Fence {following.name}" if following is not None else COMPENSATE,
            stands=FORWARD,
            stuck=park_of(plan),
        )
    return states


def _no_way_back(plan: SagaPlan, index: int) -> dict[str, State]:
    """With several pivots one may have been applied already: then nothing is compensated, and the saga is parked.

    A pivot that this execution has passed is applied, and its output is known. One that is not on this request's path
    was never invoked, and needs no fence.
    """
    pivots = _pivots_passed(plan, index)
    if not pivots:
        return {}
    node = plan.steps[index]
    stuck = f"Pivot applied before {node.name}"
    passed = " or ".join(f"$exists($outputs.{pivot.name})" for pivot in pivots)
    reason = found_at(node.name, "PivotAlreadyApplied", "the step failed after an applied pivot")
    return {
        give_up_name(plan, index): {
            "Type": "Choice",
            "Choices": [{"Condition": expression(passed), "Next": stuck}],
            "Default": _way_back_name(plan, index),
        },
        stuck: direct(plan, Direction.FORWARD, park_of(plan)) | {"Assign": reason},
    }


def direct(plan: SagaPlan, direction: Direction, following: str) -> State:
    """Write the direction: once, and only while this execution owns the record.

    ``compensate`` includes the reason, so that the execution that settles the saga responds with it.
    """
    a = RecordAttribute
    names = {"#direction": a.DIRECTION, "#updated_at": a.UPDATED_AT}
    values: dict[str, State] = {":direction": {"S": direction}, ":now": now()}
    update = "SET #direction = :direction, #updated_at = :now"
    if direction is Direction.COMPENSATE:
        update += ", #failure = if_not_exists(#failure, :failure)"
        names["#failure"] = a.FAILURE
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
