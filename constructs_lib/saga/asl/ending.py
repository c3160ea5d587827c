"""Ends of a saga: settled, fenced, or parked."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from constructs_lib.saga.asl.failures import (
    CONDITION_NOT_BOOLEAN,
    DEFINITION_CHANGED,
    UNEVALUATED,
    found_at,
    interrupted,
    jsonata_object,
    thrown_at,
)
from constructs_lib.saga.asl.outputs import next_page, pages
from constructs_lib.saga.asl.plan import CompiledGroup, Notice, SagaPlan, State
from constructs_lib.saga.asl.states import (
    EXECUTION,
    INPUT,
    LONG_ATTEMPTS,
    LONG_CAP_SECONDS,
    REQUEST_ID,
    SAGA_ID,
    call,
    found_item,
    now,
    record_key,
    record_update,
    refused_write,
    seconds_from_now,
)
from constructs_lib.saga.steps.jsonata import bare, expression, message_of
from saga_runtime.idempotency.record import OWNED
from saga_runtime.protocol import (
    FIRST_SHARD,
    NOTHING_STANDS,
    PROBLEM_TYPES,
    RESULT_FAILED,
    SAGA_DELEGATED,
    SETTLED,
    Direction,
    ErrorName,
    LogAttribute,
    Ran,
    RecordAttribute,
    RecordStatus,
    StepStatus,
)

SETTLE_COMPLETED: Final = "Settle completed"
SETTLE_FAILED: Final = "Settle failed"
ASK_THE_LOG: Final = "Query saga log"
NOTHING_LEFT: Final = "All compensated?"
WHOM_TO_TELL: Final = "Select notification"
TELL_OF_FAILURE: Final = "Notify failure"
LOOK_AT_RECORD: Final = "Read record"
WHO_SETTLED: Final = "Check owner"
ALREADY_SETTLED: Final = "Already settled"
FENCED: Final = "End fenced"
TELL_OPERATORS: Final = "Notify operators"
PARK: Final = "Park saga"
PARKED: Final = "End parked"
LOOK_AT_DIRECTION: Final = "Check direction"
ONLY_FORWARD: Final = "Direction is forward?"
TRY_AGAIN: Final = "Retries left?"
WAIT: Final = "Wait before retry"
GO_ON: Final = "Select step to retry"
START_STANDARD: Final = "Start Standard"
DELEGATED: Final = "End delegated"
_DETAIL: Final = 500
"""Characters of an error of an expression that the entry of a parked saga has."""
# Every name has a space or a mark in it, which a step's name never has: no step can be taken for one of them.


def park_of(plan: SagaPlan) -> str:
    """State that parks the saga. ``$parked_reason`` has the reason; the state that leads there assigns it.

    An Express execution never parks: it delegates.
    """
    if plan.standard_arn is not None:
        return START_STANDARD
    return PARK if plan.operators is None else TELL_OPERATORS


def waiting(plan: SagaPlan, asked: str, wait: str, back: str) -> dict[str, State]:
    """Wait for longer before each retry of a step that may only go forward, and park after many retries.

    Args:
        plan: the plan.
        asked: name of the first state; the state that leads there has assigned ``$again`` and ``$tries``.
        wait: name of the state that waits.
        back: state to continue at.
    """
    return {
        asked: {
            "Type": "Choice",
            "Choices": [
                *_the_same_again(plan),
                {"Condition": expression(f"$tries <= {LONG_ATTEMPTS}"), "Next": wait},
            ],
            "Default": park_of(plan),
            "Assign": found_at(
                # Of a group, the step in it that failed: who looks for it, or answers for it late, knows no groups.
                expression("$exists($failure.step) ? $failure.step : $again"),
                "StepFailed",
                "failed on every retry, and the saga only goes forward",
            ),
        },
        wait: {
            "Type": "Wait",
            "Seconds": expression(f"$min([{LONG_CAP_SECONDS}, 5 * $power(2, $tries)])"),
            "Next": back,
        },
    }


def _the_same_again(plan: SagaPlan) -> list[State]:
    """Park at once for what lasts: a condition that is neither true nor false, a phase of another definition."""
    lasting = [CONDITION_NOT_BOOLEAN] if plan.has_conditions else []
    if any(isinstance(node, CompiledGroup) and node.machine is not None for node in plan.steps):
        lasting.append(DEFINITION_CHANGED)
    stuck = found_at(expression("$failure.step"), expression("$failure.error"), expression("$failure.detail"))
    met = " or ".join(f'$failure.error = "{error}"' for error in lasting)
    return [{"Condition": expression(met), "Next": park_of(plan), "Assign": stuck}] if lasting else []


def settle_completed(plan: SagaPlan) -> dict[str, State]:
    """The happy path's last transition. A ``result`` that fails to evaluate parks the saga: no retry can help it."""
    body = f'$string({{"saga_id": {SAGA_ID}, "status": "{RecordStatus.COMPLETED}", "result": ({plan.result})}})'
    state = _settle(plan, RecordStatus.COMPLETED, http_status="200", body=body)
    if plan.alongside:
        # Another execution of the saga may compensate it.
        arguments = state["Arguments"]
        arguments["ConditionExpression"] += " AND (attribute_not_exists(#direction) OR #direction = :forward)"
        arguments["ExpressionAttributeNames"]["#direction"] = RecordAttribute.DIRECTION
        arguments["ExpressionAttributeValues"][":forward"] = {"S": Direction.FORWARD}
    state["Retry"] = [{"ErrorEquals": [UNEVALUATED], "MaxAttempts": 0}, *state["Retry"]]
    cause = f'($c := $states.errorOutput.Cause; $exists($c) ? $substring($c, 0, {_DETAIL}) : "")'
    failed = found_at(SETTLE_COMPLETED, RESULT_FAILED, expression(cause))
    state["Catch"].append({"ErrorEquals": [UNEVALUATED], "Next": park_of(plan), "Assign": failed})
    return {SETTLE_COMPLETED: state}


def settle_failed(plan: SagaPlan, *, again: str) -> dict[str, State]:
    """From the last compensation to a settled failure. The state that leads here has assigned ``$failure``.

    Args:
        plan: the plan.
        again: first compensation: next state if a job was applied while the saga was compensated.
    """
    # A problem document (RFC 9457), made of the failure that the Catch kept.
    body = (
        f'$string({{"type": "{PROBLEM_TYPES}" & $failure.kind, "title": $failure.title, '
        '"status": $failure.status, "detail": $failure.detail, "error": $failure.error, '
        f'"step": $failure.step, "saga_id": {SAGA_ID}}})'
    )
    status = expression("$string($failure.status)")
    told, tell = _tell(plan)
    late = any(step.job and step.compensated for step in plan.leaves)
    return {
        **_ask_the_log(plan, late=late),
        NOTHING_LEFT: {
            "Type": "Choice",
            "Choices": [
                next_page(ASK_THE_LOG, while_="($nothing_stands or $only_late)" if late else "$nothing_stands"),
                {"Condition": expression("$nothing_stands"), "Next": told},
                # Each row becomes late at most once, so this ends.
                *([{"Condition": expression("$only_late"), "Next": again}] if late else []),
            ],
            "Default": park_of(plan),
            "Assign": found_at(
                ASK_THE_LOG, "EffectsNotCompensated", "a step is applied, or in doubt, after the compensations"
            ),
        },
        **tell,
        SETTLE_FAILED: _settle(plan, RecordStatus.FAILED, http_status=status, body=body),
    }


def fenced_or_parked(plan: SagaPlan, joins: Sequence[State] = ()) -> dict[str, State]:
    """States after a refused write, and for outcomes that cannot be determined.

    Args:
        plan: the plan.
        joins: rules of an execution that owns the record, where another one may have changed it.
    """
    look = look_at_record(plan, WHO_SETTLED)
    if joins:
        failure = f"$record.{RecordAttribute.FAILURE}.S"
        look["Assign"] |= {
            "failure": expression(
                f"($record := ({bare(found_item())}); $exists({failure}) ? $parse({failure}) :"
                f" ($exists($failure) ? $failure : {jsonata_object(interrupted())}))"
            )
        }
    return {
        LOOK_AT_RECORD: look,
        WHO_SETTLED: who_settled(plan, joins=joins),
        ALREADY_SETTLED: {"Type": "Succeed"},
        FENCED: {"Type": "Fail", "Error": ErrorName.FENCED, "Cause": "another execution owns this saga"},
        **(_delegate(plan) if plan.standard_arn is not None else _to_park(plan)),
    }


def _to_park(plan: SagaPlan) -> dict[str, State]:
    return {
        **_tell_operators(plan),
        PARK: _park(plan),
        PARKED: {"Type": "Fail", "Error": "SagaParked", "Cause": "the saga waits for a person"},
    }


def _delegate(plan: SagaPlan) -> dict[str, State]:
    """Start Standard by the saga's name, with the saga's input, and fail: the machine's metrics count it.

    Once it exists, it decides; it replays what is applied.
    """
    exists = "Sfn.ExecutionAlreadyExistsException"
    start = call("aws-sdk:sfn:startExecution")
    reason = "$exists($parked_reason) ? $parked_reason : ($exists($failure) ? $failure : {})"
    return {
        START_STANDARD: {
            **start,
            "Arguments": {
                "StateMachineArn": plan.standard_arn,
                "Name": expression(SAGA_ID),
                "Input": expression(f"$string({INPUT})"),
            },
            "Retry": [{"ErrorEquals": [exists], "MaxAttempts": 0}, *start["Retry"]],
            "Catch": [{"ErrorEquals": [exists], "Next": DELEGATED}],
            "Next": DELEGATED,
        },
        DELEGATED: {
            "Type": "Fail",
            "Error": SAGA_DELEGATED,
            "Cause": expression(f'($r := {reason}; $string({{"step": $r.step, "error": $r.error}}))'),
        },
    }


def _settle(plan: SagaPlan, status: RecordStatus, *, http_status: str, body: str) -> State:
    """Write the final answer, straight from the state machine, and end."""
    a = RecordAttribute
    names = [a.HTTP_STATUS, a.RESPONSE, a.UPDATED_AT, a.EXPIRATION, a.RESPONSE_EXPIRES_AT, a.DUE_AT, a.DUE_SHARD]
    listed, shard = "", {}
    if plan.remember_seconds > plan.replay_seconds:
        # It is found again when its response expires, in the shard in which its reservation put it.
        names.append(a.RESPONSE_SHARD)
        listed, shard = ", #response_shard = if_not_exists(#due_shard, :shard)", {":shard": {"S": FIRST_SHARD}}
    ran: State = {}
    if plan.alongside:
        names.append(a.RAN)
        listed += f", #{a.RAN} = :ran"
        ran = {":ran": {"S": (Ran.STANDARD if plan.standard_arn is None else Ran.EXPRESS).value}}
    return {
        **call("dynamodb:updateItem"),
        "Arguments": record_update(
            plan,
            "SET #status = :settled, #http_status = :http_status, #response = :body, #updated_at = :now, "
            f"#expiration = :expiration, #response_expires_at = :response_expires_at{listed} "
            "REMOVE #due_at, #due_shard",
            names={f"#{name}": name for name in names},
            values={
                ":settled": {"S": status},
                ":http_status": {"N": http_status},
                ":body": {"S": expression(body)},
                ":now": now(),
                ":expiration": seconds_from_now(plan.remember_seconds),
                ":response_expires_at": seconds_from_now(plan.replay_seconds),
                **shard,
                **ran,
            },
        ),
        "Catch": [refused_write(LOOK_AT_RECORD)],
        "Output": {"saga_id": expression(SAGA_ID), "status": status},
        "End": True,
    }


def _ask_the_log(plan: SagaPlan, *, late: bool) -> dict[str, State]:
    """Before a saga settles FAILED, its log must have no remaining effect."""
    a = LogAttribute
    values = {f":s{n}": {"S": status} for n, status in enumerate(NOTHING_STANDS)}
    # Another execution may be compensating a late effect; wait for it or take over.
    turned = ", ".join(f'"{status}"' for status in (StepStatus.APPLIED_LATE, StepStatus.COMPENSATING))
    tests = {"nothing_stands": "$states.result.Count = 0"}
    if late:
        tests["only_late"] = f"$not($exists($states.result.Items[$not({a.STATUS}.S in [{turned}])]))"
    arguments = {
        "TableName": plan.log_table,
        "ConsistentRead": True,
        **({"ProjectionExpression": "#status"} if late else {"Select": "COUNT"}),
        "KeyConditionExpression": "#saga_id = :saga_id",
        "FilterExpression": f"NOT #status IN ({', '.join(values)})",
        "ExpressionAttributeNames": {"#saga_id": a.SAGA_ID, "#status": a.STATUS},
        "ExpressionAttributeValues": {":saga_id": {"S": expression(SAGA_ID)}, **values},
    }
    return pages(
        ASK_THE_LOG,
        arguments,
        {name: expression(test) for name, test in tests.items()},
        over=NOTHING_LEFT,
        again={name: expression(f"${name} and {test}") for name, test in tests.items()},
    )


def _tell(plan: SagaPlan) -> tuple[str, dict[str, State]]:
    """States that send notices of a failure, and the name of the first. Sent before the saga settles: not lost."""
    states: dict[str, State] = {}
    by_error: dict[str, str] = {}
    for error, notice in sorted(plan.on_error.items()):
        name = f"Notify {error}"
        by_error[error] = name
        states[name] = _send(plan, notice)
    general = SETTLE_FAILED
    if plan.on_failed is not None:
        states[TELL_OF_FAILURE] = _send(plan, plan.on_failed)
        general = TELL_OF_FAILURE
    if not by_error:
        return general, states
    choices = [
        {"Condition": expression(f'$failure.error = "{error}"'), "Next": name} for error, name in by_error.items()
    ]
    return WHOM_TO_TELL, {WHOM_TO_TELL: {"Type": "Choice", "Choices": choices, "Default": general}, **states}


def _send(plan: SagaPlan, notice: Notice) -> State:
    default = (
        f'{{"saga_id": {SAGA_ID}, "status": "{RecordStatus.FAILED}", "step": $failure.step, '
        '"error": $failure.error, "detail": $failure.detail}'
    )
    return {
        **call("sqs:sendMessage"),
        "Arguments": {
            "QueueUrl": notice.queue_url,
            "MessageBody": expression(message_of(notice.message, default)),
            "MessageGroupId": expression(REQUEST_ID),
            "MessageDeduplicationId": expression(f'{SAGA_ID} & "#failed"'),
        },
        "Catch": [
            {"ErrorEquals": ["States.ALL"], "Next": park_of(plan), "Assign": thrown_at(TELL_OF_FAILURE)},
        ],
        "Next": SETTLE_FAILED,
    }


def look_at_record(plan: SagaPlan, following: str) -> State:
    """A refused write: who refused it? Reached only then."""
    return {
        **call("dynamodb:getItem"),
        "Arguments": {"TableName": plan.request_table, "Key": record_key(), "ConsistentRead": True},
        "Assign": {"record": found_item()},
        "Next": following,
    }


def mine() -> str:
    """JSONata condition: the record that was read is in progress, and this execution owns it."""
    a = RecordAttribute
    return (
        f"$record.{a.SAGA_ID}.S = {SAGA_ID}"
        f' and $record.{a.STATUS}.S = "{RecordStatus.IN_PROGRESS}"'
        f" and $record.{a.OWNER}.S = {EXECUTION}"
    )


def who_settled(plan: SagaPlan, *, goes_on_at: str | None = None, joins: Sequence[State] = ()) -> State:
    """Decide who refused a write.

    Args:
        plan: the plan.
        goes_on_at: where to go when it was refused because the saga only goes forward.
        joins: rules of an owner, where another execution may have changed the record.
    """
    a = RecordAttribute
    settled = ", ".join(f'"{status}"' for status in SETTLED)
    ours = f"$record.{a.SAGA_ID}.S = {SAGA_ID}"
    status = f"$record.{a.STATUS}.S"
    ahead = f'{mine()} and $record.{a.DIRECTION}.S = "{Direction.FORWARD}"'
    refused = found_at(LOOK_AT_RECORD, "DirectionConflict", "the record refused a write that its owner may make")
    return {
        "Type": "Choice",
        "Choices": [
            {"Condition": expression(f"{ours} and {status} in [{settled}]"), "Next": ALREADY_SETTLED},
            *([{"Condition": expression(ahead), "Next": goes_on_at}] if goes_on_at else []),
            *joins,
            {"Condition": expression(mine()), "Next": park_of(plan), "Assign": refused},
        ],
        "Default": FENCED,
    }


def _tell_operators(plan: SagaPlan) -> dict[str, State]:
    """Send an entry to the operator queue before the record is marked as parked: at least once."""
    if plan.operators is None:
        return {}
    body = (
        f'$string({{"saga_id": {SAGA_ID}, "request_id": {REQUEST_ID}, "execution": {EXECUTION}, '
        '"parked_reason": $exists($parked_reason) ? $parked_reason : {}, "failure": $exists($failure) ? $failure : {}})'
    )
    return {
        TELL_OPERATORS: {
            **call("sqs:sendMessage"),
            "Arguments": {"QueueUrl": plan.operators, "MessageBody": expression(body)},
            "Catch": [{"ErrorEquals": ["States.ALL"], "Next": PARK}],
            "Next": PARK,
        }
    }


def _park(plan: SagaPlan) -> State:
    """Park the saga: the record stays in progress, marked as parked."""
    a = RecordAttribute
    names = [a.PARKED_BY, a.PARKED_AT, a.PARKED_REASON, a.UPDATED_AT]
    condition = OWNED
    if any(step.wait is not None for step in plan.leaves):
        # A callback that found no waiting task may just have resolved the cause: then the write is refused, the
        # execution ends, and the reconciler recovers the saga.
        names.append(a.LATE_OUTCOME_AT)
        condition = f"{OWNED} AND attribute_not_exists(#{a.LATE_OUTCOME_AT})"
    return {
        **call("dynamodb:updateItem"),
        "Arguments": record_update(
            plan,
            "SET #parked_by = :owner, #parked_at = :now, #parked_reason = :parked_reason, #updated_at = :now",
            condition=condition,
            names={f"#{name}": name for name in names},
            values={
                ":now": now(),
                ":parked_reason": {"S": expression("$string($exists($parked_reason) ? $parked_reason : {})")},
            },
        ),
        "Catch": [refused_write(FENCED)],
        "Next": PARKED,
    }
