"""The recovery machine: it decides the saga's direction by writes, then compensates, or starts the forward machine.

A recovery is started under a name that the record was given as its owner. What the first execution left behind (a
function that still runs, a settle that still travels) is fenced by rows, owner and direction; nothing waits for it.
"""

from __future__ import annotations

from typing import Final

from constructs_lib.saga.asl.compensation import chain, chain_from, direct, fence_states
from constructs_lib.saga.asl.ending import FENCED, fenced_or_parked, settle_failed
from constructs_lib.saga.asl.plan import SagaPlan, State
from constructs_lib.saga.asl.states import EXECUTION, INPUT, SAGA_ID, call, expression, found_item, machine, record_key
from saga_runtime.protocol import Direction, RecordAttribute, RecordStatus

READ_DIRECTION: Final = "Read the direction"
WHICH_DIRECTION: Final = "Which direction?"
COMPENSATE: Final = "Compensate"
FORWARD: Final = "Forward"
GO_FORWARD: Final = "Start forward"
HANDED_OVER: Final = "Handed over"

_INTERRUPTED: Final = (
    '{"step": "", "error": "SagaInterrupted", "detail": "the request was interrupted", "status": 500, '
    '"title": "The request failed, and nothing of it stands", "kind": "saga-failed"}'
)


def recovery_of(plan: SagaPlan, forward_machine_arn: str) -> State:
    """The recovery machine's definition."""
    pivots = [step for step in plan.steps if step.pivot]
    fences: dict[str, State] = {}
    for step, following in zip(pivots, [*pivots[1:], None], strict=True):
        fences |= fence_states(
            plan,
            step,
            name=f"Fence {step.name}",
            buried=f"Fence {following.name}" if following else COMPENSATE,
            stands=FORWARD,
        )
    states = {
        READ_DIRECTION: _read_direction(plan),
        WHICH_DIRECTION: _which_direction(plan, first_fence=f"Fence {pivots[0].name}"),
        **fences,
        COMPENSATE: direct(plan, Direction.COMPENSATE, chain_from(plan, len(plan.steps) - 1)),
        FORWARD: direct(plan, Direction.FORWARD, GO_FORWARD),
        GO_FORWARD: _go_forward(forward_machine_arn),
        HANDED_OVER: {"Type": "Succeed"},
        **chain(plan),
        **settle_failed(plan),
        **fenced_or_parked(plan),
    }
    return machine(plan, f"{plan.comment}, recovery", READ_DIRECTION, states)


def _read_direction(plan: SagaPlan) -> State:
    failure = f"$states.result.Item.{RecordAttribute.FAILURE.value}.S"
    return {
        **call("dynamodb:getItem"),
        "Arguments": {"TableName": plan.request_table, "Key": record_key(), "ConsistentRead": True},
        "Assign": {
            "record": found_item(),
            "failure": expression(f"$exists({failure}) ? $parse({failure}) : {_INTERRUPTED}"),
        },
        "Next": WHICH_DIRECTION,
    }


def _which_direction(plan: SagaPlan, *, first_fence: str) -> State:
    """A direction that was written stays. Whoever no longer owns the record touches nothing."""
    a = RecordAttribute
    direction = f"$record.{a.DIRECTION.value}.S"
    mine = (
        f"$record.{a.SAGA_ID.value}.S = {SAGA_ID} and $record.{a.OWNER.value}.S = {EXECUTION} "
        f'and $record.{a.STATUS.value}.S = "{RecordStatus.IN_PROGRESS.value}"'
    )
    compensating = chain_from(plan, len(plan.steps) - 1)
    return {
        "Type": "Choice",
        "Choices": [
            {"Condition": expression(f"$not({mine})"), "Next": FENCED},
            {"Condition": expression(f'{direction} = "{Direction.FORWARD.value}"'), "Next": GO_FORWARD},
            {"Condition": expression(f'{direction} = "{Direction.COMPENSATE.value}"'), "Next": compensating},
        ],
        "Default": first_fence,
    }


def _go_forward(forward_machine_arn: str) -> State:
    """Going forward is the forward machine again, under the same name: the record's owner."""
    exists = "Sfn.ExecutionAlreadyExistsException"
    start = call("aws-sdk:sfn:startExecution")
    return {
        **start,
        "Arguments": {
            "StateMachineArn": forward_machine_arn,
            "Name": expression(EXECUTION),
            "Input": expression(f"$string({INPUT})"),
        },
        "Retry": [{"ErrorEquals": [exists], "MaxAttempts": 0}, *start["Retry"]],
        "Catch": [{"ErrorEquals": [exists], "Next": HANDED_OVER}],
        "Next": HANDED_OVER,
    }
