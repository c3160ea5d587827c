"""The way back: fences, the direction, and the chain of compensations."""

from __future__ import annotations

from typing import Final

from constructs_lib.saga.asl.ending import ASK_THE_LOG, FENCED, LOOK_AT_RECORD, PARK
from constructs_lib.saga.asl.plan import CompiledStep, SagaPlan, State
from constructs_lib.saga.asl.states import (
    EXECUTION,
    call,
    expression,
    found_item,
    now,
    payload,
    record_update,
    refused_write,
    row_key,
    seconds_from_now,
    step_retries,
)
from saga_runtime.protocol import (
    NOTHING_STANDS,
    Direction,
    ErrorName,
    LogAttribute,
    RecordAttribute,
    StepStatus,
)
from saga_runtime.record import OWNED

_DAY_SECONDS: Final = 86_400


def give_up_name(plan: SagaPlan, index: int) -> str:
    """State at which a step, not later than the last pivot, is given up."""
    step = plan.steps[index]
    return f"Give up {step.name}?" if _pivots_passed(plan, index) else _way_back_name(step)


def _way_back_name(step: CompiledStep) -> str:
    """State at which the way back begins: the pivot is fenced first."""
    return f"Fence {step.name}" if step.pivot else _compensate_name(step)


def _pivots_passed(plan: SagaPlan, index: int) -> list[CompiledStep]:
    """Pivots that may lie behind a saga that is at step ``index``; not those whose condition is its negation."""
    when = plan.steps[index].when
    return [step for step in plan.steps[:index] if step.pivot and not _exclude(step.when, when)]


def _exclude(one: str | None, other: str | None) -> bool:
    """Whether one condition is, to the letter, the other's negation, over the request alone: it cannot change."""
    if one is None or other is None or "$outputs" in one + other:
        return False
    return one == f"$not({other})" or other == f"$not({one})"


def _compensate_name(step: CompiledStep) -> str:
    return f"Compensate from {step.name}"


def giving_up(plan: SagaPlan, index: int, *, forward_to: str, outputs: str) -> dict[str, State]:
    """States that decide the direction when step ``index``, not later than the pivot, is given up."""
    step = plan.steps[index]
    compensate = _compensate_name(step)
    states = {compensate: direct(plan, Direction.COMPENSATE, chain_from(plan, index))} | _no_way_back(plan, index)
    if not step.pivot:
        return states
    forward = f"Forward from {step.name}"
    return (
        states
        | fence_states(plan, step, name=_way_back_name(step), buried=compensate, stands=forward)
        | {forward: direct(plan, Direction.FORWARD, forward_to) | {"Assign": {"outputs": outputs}}}
    )


def _no_way_back(plan: SagaPlan, index: int) -> dict[str, State]:
    """Of several pivots one may have happened already: then nothing is compensated, and a person is asked.

    A pivot that this execution has passed stands, and its output is known. One that is not on this request's way was
    never invoked by anybody, and needs no fence.
    """
    pivots = _pivots_passed(plan, index)
    if not pivots:
        return {}
    step = plan.steps[index]
    stuck = f"No way back from {step.name}"
    passed = " or ".join(f"$exists($outputs.{pivot.name})" for pivot in pivots)
    return {
        give_up_name(plan, index): {
            "Type": "Choice",
            "Choices": [{"Condition": expression(passed), "Next": stuck}],
            "Default": _way_back_name(step),
        },
        stuck: direct(plan, Direction.FORWARD, PARK),
    }


def fence_states(
    plan: SagaPlan,
    step: CompiledStep,
    *,
    name: str,
    buried: str,
    stands: str,
    instead: str | None = None,
    buried_outputs: str | None = None,
    standing_outputs: str | None = None,
) -> dict[str, State]:
    """Put a tombstone on a step's row: the write, not a read, decides whether the step happened.

    Args:
        plan: the plan.
        step: whose row.
        name: name of the first state.
        buried: where to go when the step did not happen and now never will.
        stands: where to go when it happened.
        instead: output (JSON) that the tombstone keeps for a step that is passed over: another run of the saga finds
            it there, and passes the step over, too.
        buried_outputs: what ``$outputs`` becomes in the first case, if anything.
        standing_outputs: what it becomes in the second.
    """
    look, decide = f"{name}: look", f"{name}: stands?"
    status = f"$row.{LogAttribute.STATUS.value}.S"
    nothing = ", ".join(f'"{status.value}"' for status in NOTHING_STANDS)
    return {
        name: _tombstone(plan, step, instead)
        | {"Catch": [refused_write(look)], "Next": buried}
        | _assign(buried_outputs),
        look: {
            **call("dynamodb:getItem"),
            "Arguments": {"TableName": plan.log_table, "Key": row_key(step.name), "ConsistentRead": True},
            "Assign": {"row": found_item()},
            "Next": decide,
        },
        decide: {
            "Type": "Choice",
            "Choices": [
                {"Condition": expression(f'{status} = "{StepStatus.DONE.value}"'), "Next": stands}
                | _assign(standing_outputs),
                {"Condition": expression(f"{status} in [{nothing}]"), "Next": buried} | _assign(buried_outputs),
            ],
            "Default": PARK,
        },
    }


def _assign(outputs: str | None) -> State:
    return {"Assign": {"outputs": outputs}} if outputs is not None else {}


def _tombstone(plan: SagaPlan, step: CompiledStep, instead: str | None) -> State:
    a = LogAttribute
    kept: State = {a.OUTPUT.value: {"S": instead}} if instead is not None else {}
    return {
        **call("dynamodb:putItem"),
        "Arguments": {
            "TableName": plan.log_table,
            "Item": {
                **row_key(step.name),
                a.STATUS.value: {"S": StepStatus.TOMBSTONE.value},
                **kept,
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
    """First compensation at or before step ``index``; with none left, the log is asked."""
    for step in reversed(plan.steps[: index + 1]):
        if step.compensate_arn:
            return _undo_name(step)
    return ASK_THE_LOG


def chain(plan: SagaPlan) -> dict[str, State]:
    """Every compensation, last step first."""
    return {
        _undo_name(step): _undo(plan, index)
        for index, step in reversed(list(enumerate(plan.steps)))
        if step.compensate_arn
    }


def _undo_name(step: CompiledStep) -> str:
    return f"Undo {step.name}"


def _undo(plan: SagaPlan, index: int) -> State:
    step = plan.steps[index]
    return {
        "Type": "Task",
        "Resource": "arn:aws:states:::lambda:invoke",
        "Arguments": {"FunctionName": step.compensate_arn, "Payload": payload(plan, step, "{}")},
        "TimeoutSeconds": step.compensate_task_seconds,
        "Retry": step_retries((), step.retry, no_way_back=True),
        "Catch": [
            {"ErrorEquals": [ErrorName.FENCED.value], "Next": FENCED},
            {"ErrorEquals": ["States.ALL"], "Next": PARK},
        ],
        "Next": chain_from(plan, index - 1) if index else ASK_THE_LOG,
    }
