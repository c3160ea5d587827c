"""The recovery machine: it decides the saga's direction by writes, then compensates, or starts the forward machine.

A recovery is started under a name that the record was given as its owner. What the first execution left behind (a
function that still runs, a settle that still travels) is fenced by rows, owner and direction; nothing waits for it.
"""

from __future__ import annotations

from typing import Final

from constructs_lib.saga.asl.begin import given_by_recovery
from constructs_lib.saga.asl.compatible import (
    COMPATIBLE,
    RAN_UNDER,
    READ_ROWS,
    fits,
    other_names,
    rows_that_fit,
    same_ways,
)
from constructs_lib.saga.asl.compensation import chain, chain_from, late_chain
from constructs_lib.saga.asl.direction import direct
from constructs_lib.saga.asl.ending import FENCED, LOOK_AT_RECORD, fenced_or_parked, park_of, settle_failed
from constructs_lib.saga.asl.failures import DEFINITION_CHANGED, found_at, interrupted, jsonata_object
from constructs_lib.saga.asl.fence import fence_states
from constructs_lib.saga.asl.forward import saga_flow
from constructs_lib.saga.asl.outputs import next_page, pages, read_outputs
from constructs_lib.saga.asl.plan import PHASES_AT, SagaPlan, State
from constructs_lib.saga.asl.states import (
    EXECUTION,
    INPUT,
    REQUEST_ID,
    SAGA_ID,
    call,
    found_item,
    machine,
    now,
    record_key,
    record_update,
    refused_write,
)
from constructs_lib.saga.steps.jsonata import expression
from saga_runtime.protocol import (
    WAYS_AT,
    Direction,
    RecordAttribute,
    RecordStatus,
    StartField,
)

READ_DIRECTION: Final = "Read direction"
WHICH_DIRECTION: Final = "Select direction"
COMPENSATE: Final = "Set direction to compensate"
FORWARD: Final = "Set direction to forward"
GO_FORWARD: Final = "Start forward execution"
HANDED_OVER: Final = "Forward execution started"
OUTLIVE: Final = "Wait for earlier functions to end"
NOTE_DEFINITION: Final = "Note definition"
SAME_WAYS: Final = "Same conditions?"
LATE_UNDONE: Final = "Late effects compensated"
TELL_OF_LATE: Final = "Notify operators (late)"
LATE_STUCK: Final = "End late not compensated"


def recovery_of(plan: SagaPlan, forward_machine_arn: str) -> State:
    """The recovery machine's definition."""
    pivots = plan.pivots
    fences: dict[str, State] = {}
    for step, following in zip(pivots, [*pivots[1:], None][: len(pivots)], strict=True):
        fences |= fence_states(
            plan,
            saga_flow(plan),
            step,
            name=f"Fence {step.name}",
            buried=f"Fence {following.name}" if following else COMPENSATE,
            stands=FORWARD,
            stuck=park_of(plan),
        )
    first_late, late = _late(plan)
    back, reading = read_outputs(plan, plan.named_to_undo, chain_from(plan, len(plan.steps) - 1))
    states = {
        READ_DIRECTION: _read_direction(plan),
        WHICH_DIRECTION: _which_direction(
            plan,
            undecided=f"Fence {pivots[0].name}" if pivots else COMPENSATE,
            compensating=back,
            first_late=first_late,
        ),
        **_compatible(plan),
        **fences,
        COMPENSATE: direct(plan, Direction.COMPENSATE, back),
        **reading,
        FORWARD: direct(plan, Direction.FORWARD, SAME_WAYS),
        SAME_WAYS: _same_ways(plan),
        GO_FORWARD: _go_forward(plan, forward_machine_arn),
        HANDED_OVER: {"Type": "Succeed"},
        **late,
        **chain(plan),
        **settle_failed(plan, again=chain_from(plan, len(plan.steps) - 1)),
        **fenced_or_parked(plan),
    }
    seconds = plan.timeout_seconds + max(plan.outlived_seconds, plan.phases_outlived_seconds)
    return machine(plan, f"{plan.comment}, recovery", READ_DIRECTION, states, seconds=seconds)


def _has_jobs(plan: SagaPlan) -> bool:
    return any(step.job and step.compensated for step in plan.leaves)


def _late(plan: SagaPlan) -> tuple[str | None, dict[str, State]]:
    """Compensate late effects: the record is unchanged, settled or not.

    Returns:
        Name of the first state, and the states; None and no states, if the saga has no jobs with a compensation.
    """
    if not _has_jobs(plan):
        return None, {}
    stuck = LATE_STUCK if plan.operators is None else TELL_OF_LATE
    first, states = late_chain(plan, over=LATE_UNDONE, fenced=FENCED, stuck=stuck)
    first, reading = read_outputs(plan, plan.named_to_undo, first, label=" of late")
    body = (
        f'$string({{"saga_id": {SAGA_ID}, "request_id": {REQUEST_ID}, "execution": {EXECUTION}, '
        '"parked_reason": $exists($parked_reason) ? $parked_reason : {}, "late": true})'
    )
    told: dict[str, State] = {}
    if plan.operators is not None:
        told[TELL_OF_LATE] = {
            **call("sqs:sendMessage"),
            "Arguments": {"QueueUrl": plan.operators, "MessageBody": expression(body)},
            "Catch": [{"ErrorEquals": ["States.ALL"], "Next": LATE_STUCK}],
            "Next": LATE_STUCK,
        }
    return first, {
        **reading,
        **states,
        LATE_UNDONE: {"Type": "Succeed"},
        **told,
        LATE_STUCK: {
            "Type": "Fail",
            "Error": "LateEffectNotCompensated",
            "Cause": "a late effect could not be compensated; operator action is required",
        },
    }


def _compatible(plan: SagaPlan) -> dict[str, State]:
    """The rows of a saga must fit this definition, which may differ from its last owner's.

    A row of a step that this definition does not know would be ignored; one that has changed sides of the pivot would
    make a saga compensate that may only go forward. Then the saga is parked. A renamed step may have no row yet while
    its function still runs, and nothing here would fence it: so under another definition than the record's, the
    recovery first outlives every function that the last owner invoked, and then records the definition under which the
    saga runs.
    """
    noted = f'"{plan.fingerprint[:WAYS_AT]}" & $substring({RAN_UNDER}, {WAYS_AT})'
    over = f"$number($record.{RecordAttribute.UPDATED_AT}.N) + 1000 * {_outlived(plan)}"
    return {
        OUTLIVE: {
            "Type": "Wait",
            # Since the take-over, which came after the last owner's end. Of a lost time nothing is left to wait for.
            "Seconds": expression(f"$max([0, $ceil(({over} - $millis()) / 1000)])"),
            "Next": READ_ROWS,
        },
        **pages(
            READ_ROWS,
            rows_that_fit(plan),
            {"compatible": expression(fits(plan))},
            over=COMPATIBLE,
        ),
        COMPATIBLE: {
            "Type": "Choice",
            "Choices": [
                next_page(READ_ROWS, while_="$compatible"),
                {"Condition": expression(f"$compatible and {other_names(plan)}"), "Next": NOTE_DEFINITION},
                {"Condition": expression("$compatible"), "Next": WHICH_DIRECTION},
            ],
            "Default": park_of(plan),
            "Assign": found_at(
                COMPATIBLE, DEFINITION_CHANGED, "the saga ran under a definition whose steps do not fit this one"
            ),
        },
        NOTE_DEFINITION: {
            **call("dynamodb:updateItem"),
            "Arguments": record_update(
                plan,
                "SET #definition = :definition, #updated_at = :now",
                names={
                    "#definition": RecordAttribute.DEFINITION,
                    "#updated_at": RecordAttribute.UPDATED_AT,
                },
                values={":definition": {"S": expression(noted)}, ":now": now()},
            ),
            "Catch": [refused_write(LOOK_AT_RECORD)],
            "Next": WHICH_DIRECTION,
        },
    }


def _outlived(plan: SagaPlan) -> str:
    """Seconds after its owner's end in which what it invoked may still be at work.

    A phase may be, too, but matters only if one of its steps was renamed.
    """
    longest = max(plan.outlived_seconds, plan.phases_outlived_seconds)
    if longest == plan.outlived_seconds:
        return str(longest)
    phases = f"$substring({RAN_UNDER}, {PHASES_AT}, {WAYS_AT - PHASES_AT})"
    return f'({phases} = "{plan.fingerprint[PHASES_AT:WAYS_AT]}" ? {plan.outlived_seconds} : {longest})'


def _same_ways(plan: SagaPlan) -> State:
    """Let a saga that only goes forward continue by the conditions by which it began; else park it.

    By others it could go another way in addition to the first one: two ways of paying, of which a request takes one,
    would both be taken. What a recovery notes of its definition leaves the conditions as they were. Compensation does
    not depend on them: rows decide.
    """
    return {
        "Type": "Choice",
        "Choices": [{"Condition": expression(same_ways(plan)), "Next": GO_FORWARD}],
        "Default": park_of(plan),
        "Assign": found_at(
            SAME_WAYS, DEFINITION_CHANGED, "conditions, or keys of a map's items, are not those by which the saga ran"
        ),
    }


def _read_direction(plan: SagaPlan) -> State:
    failure = f"$states.result.Item.{RecordAttribute.FAILURE}.S"
    return {
        **call("dynamodb:getItem"),
        "Arguments": {"TableName": plan.request_table, "Key": record_key(), "ConsistentRead": True},
        "Assign": {
            "record": found_item(),
            "failure": expression(f"$exists({failure}) ? $parse({failure}) : {jsonata_object(interrupted())}"),
        },
        "Next": WHICH_DIRECTION,
    }


def _which_direction(plan: SagaPlan, *, undecided: str, compensating: str, first_late: str | None) -> State:
    """Keep a written direction. An execution that no longer owns the record changes nothing."""
    a = RecordAttribute
    direction = f"$record.{a.DIRECTION}.S"
    mine = (
        f"$record.{a.SAGA_ID}.S = {SAGA_ID} and $record.{a.OWNER}.S = {EXECUTION} "
        f'and $record.{a.STATUS}.S = "{RecordStatus.IN_PROGRESS}"'
    )
    unread = "$not($exists($compatible))"
    late = {"Condition": expression(f"$exists({INPUT}.{StartField.LATE})"), "Next": first_late}
    return {
        "Type": "Choice",
        "Choices": [
            *([late] if first_late is not None else []),
            {"Condition": expression(f"$not({mine})"), "Next": FENCED},
            {"Condition": expression(f"{unread} and {other_names(plan)}"), "Next": OUTLIVE},
            {"Condition": expression(unread), "Next": READ_ROWS},
            {"Condition": expression(f'{direction} = "{Direction.FORWARD}"'), "Next": SAME_WAYS},
            {"Condition": expression(f'{direction} = "{Direction.COMPENSATE}"'), "Next": compensating},
        ],
        "Default": undecided,
    }


def _go_forward(plan: SagaPlan, forward_machine_arn: str) -> State:
    """Going forward is the forward machine again, under the same name: the record's owner."""
    exists = "Sfn.ExecutionAlreadyExistsException"
    start = call("aws-sdk:sfn:startExecution")
    return {
        **start,
        "Arguments": {
            "StateMachineArn": forward_machine_arn,
            "Name": expression(EXECUTION),
            "Input": expression(given_by_recovery(plan)),
        },
        "Retry": [{"ErrorEquals": [exists], "MaxAttempts": 0}, *start["Retry"]],
        "Catch": [{"ErrorEquals": [exists], "Next": HANDED_OVER}],
        "Next": HANDED_OVER,
    }
