"""From declared steps to Amazon States Language (JSONata). Pure: plain data in, plain data out.

The happy path is one state per step and one that settles. Everything else hangs off Catch, and costs nothing until it
happens::

    Debit --> Credit (pivot) --> Settle completed
      |          |
      | gives up | gives up --> Fence Credit (tombstone) --> Compensate from Credit
      v          (its row says DONE: Forward from Credit)        |
    Compensate from Debit (direction) --> Undo Debit --> ... <---+
                                              |
                                     Ask the log --> Settle failed
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from constructs_lib.saga.retry import Retry
from saga_runtime.protocol import (
    NOTHING_STANDS,
    OUTPUT_FIELD,
    PROTOCOL_VERSION,
    SETTLED,
    TRANSIENT_ERRORS,
    CallField,
    Direction,
    ErrorName,
    LogAttribute,
    RecordAttribute,
    RecordStatus,
    StartField,
    StepStatus,
)
from saga_runtime.record import OWNED, OWNED_NAMES

State = dict[str, Any]

_INPUT: Final = "$states.context.Execution.Input"
_SAGA_ID: Final = f"{_INPUT}.{StartField.SAGA_ID.value}"
_REQUEST_ID: Final = f"{_INPUT}.{StartField.REQUEST_ID.value}"
_EXECUTION: Final = "$states.context.Execution.Name"
_CONDITION_FAILED: Final = "DynamoDB.ConditionalCheckFailedException"
_LOG_SECONDS_PER_DAY: Final = 86_400
_CALL_SECONDS: Final = 30
"""How long a state machine waits for DynamoDB."""

SETTLE_COMPLETED: Final = "Settle completed"
SETTLE_FAILED: Final = "Settle failed"
ASK_THE_LOG: Final = "Ask the log"
NOTHING_LEFT: Final = "Nothing stands?"
LOOK_AT_RECORD: Final = "Look at the record"
WHO_SETTLED: Final = "Who settled?"
ALREADY_SETTLED: Final = "Already settled"
FENCED: Final = "Fenced"
PARK: Final = "Park"
PARKED: Final = "Parked"


@dataclass(frozen=True, slots=True, kw_only=True)
class CompiledStep:
    """A step as the generator sees it: names and numbers."""

    name: str
    function_arn: str
    task_seconds: int
    permanent_errors: tuple[str, ...]
    retry: Retry
    when: str | None = None
    compensate_arn: str | None = None
    compensate_task_seconds: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class SagaPlan:
    """Everything that a definition is made of."""

    steps: Sequence[CompiledStep]
    pivot: int
    request_table: str
    log_table: str
    log_days: int
    retention_seconds: int
    timeout_seconds: int
    result: str
    failure_status: Mapping[str, int]
    refused_status: int
    comment: str

    @property
    def conditional(self) -> bool:
        """Whether a step may be passed over."""
        return any(step.when for step in self.steps)


def definition_of(plan: SagaPlan) -> State:
    """The state machine's definition."""
    states: dict[str, State] = {}
    for index, step in enumerate(plan.steps):
        if step.when:
            states[f"{step.name}?"] = _condition(plan, index)
        states[step.name] = _forward(plan, index)
        states |= _giving_up(plan, index)
    for index, step in enumerate(plan.steps[: plan.pivot + 1]):
        if step.compensate_arn:
            states[_undo_name(step)] = _undo(plan, index)
    states |= _ending(plan)
    return {
        "Comment": plan.comment,
        "QueryLanguage": "JSONata",
        "StartAt": _entry(plan, 0),
        "TimeoutSeconds": plan.timeout_seconds,
        "States": states,
    }


def _entry(plan: SagaPlan, index: int) -> str:
    """Name of the state at which step ``index`` begins; behind the last step, the saga settles."""
    if index >= len(plan.steps):
        return SETTLE_COMPLETED
    step = plan.steps[index]
    return f"{step.name}?" if step.when else step.name


def _condition(plan: SagaPlan, index: int) -> State:
    step = plan.steps[index]
    outputs: State = {} if index else {"Assign": {"outputs": {}}}
    request = f"$request := $parse({_INPUT}.{StartField.REQUEST.value})"
    prelude = f"{request};" if index else f"{request}; $outputs := {{}};"
    return {
        "Type": "Choice",
        "Choices": [{"Condition": _expression(f"({prelude} {step.when})"), "Next": step.name, **outputs}],
        "Default": _entry(plan, index + 1),
        **outputs,
    }


def _forward(plan: SagaPlan, index: int) -> State:
    step = plan.steps[index]
    first = index == 0 and not step.when
    output = f'{{"{step.name}": $states.result.Payload.{OUTPUT_FIELD}}}'
    outputs = output if first else f"$merge([$outputs, {output}])"
    give_up = PARK if index > plan.pivot else _giving_up_name(plan, index)
    return {
        "Type": "Task",
        "Resource": "arn:aws:states:::lambda:invoke",
        "Arguments": {
            "FunctionName": step.function_arn,
            "Payload": _payload(plan, step, "{}" if first else "$outputs"),
        },
        "TimeoutSeconds": step.task_seconds,
        "Assign": {"outputs": _expression(outputs)},
        "Retry": _step_retries(step.permanent_errors, step.retry, after_pivot=index > plan.pivot),
        "Catch": [
            {"ErrorEquals": [ErrorName.FENCED.value], "Next": FENCED},
            {"ErrorEquals": list(step.permanent_errors), "Next": give_up, "Assign": _refused(plan, step)},
            {"ErrorEquals": ["States.ALL"], "Next": give_up, "Assign": _broken(step)},
        ],
        "Next": _entry(plan, index + 1),
    }


def _payload(plan: SagaPlan, step: CompiledStep, outputs: str) -> State:
    return {
        CallField.PROTOCOL.value: PROTOCOL_VERSION,
        CallField.SAGA_ID.value: _expression(_SAGA_ID),
        CallField.STEP.value: step.name,
        CallField.LOG_TABLE.value: plan.log_table,
        CallField.LOG_DAYS.value: plan.log_days,
        CallField.REQUEST.value: _expression(f"{_INPUT}.{StartField.REQUEST.value}"),
        CallField.OUTPUTS.value: _expression(outputs),
        CallField.EXECUTION.value: _expression(_EXECUTION),
    }


def _step_retries(permanent: Sequence[str], retry: Retry, *, after_pivot: bool) -> list[State]:
    """Refusals never; transient failures with jitter; the rest without, so that the delays outlast a living attempt.

    After the pivot there is no way back: what is in doubt is tried for much longer before a person is asked.
    """
    return [
        {"ErrorEquals": [ErrorName.FENCED.value, *permanent], "MaxAttempts": 0},
        {
            "ErrorEquals": [str(name) for name in TRANSIENT_ERRORS],
            "IntervalSeconds": retry.transient_interval,
            "BackoffRate": retry.transient_rate,
            "MaxDelaySeconds": retry.transient_cap,
            "MaxAttempts": retry.transient_attempts,
            "JitterStrategy": "FULL",
        },
        {
            "ErrorEquals": ["States.ALL"],
            "IntervalSeconds": retry.in_doubt_interval,
            "BackoffRate": retry.in_doubt_rate,
            "MaxDelaySeconds": 300 if after_pivot else retry.in_doubt_cap,
            "MaxAttempts": 20 if after_pivot else retry.in_doubt_attempts,
        },
    ]


def _refused(plan: SagaPlan, step: CompiledStep) -> State:
    """What a refusal leaves: the error's name and its safe message, never the trace that came with them."""
    error = "$states.errorOutput.Error"
    status = str(plan.refused_status)
    if plan.failure_status:
        table = ", ".join(f'"{name}": {code}' for name, code in sorted(plan.failure_status.items()))
        status = f"($s := $lookup({{{table}}}, {error}); $exists($s) ? $s : {plan.refused_status})"
    message = (
        '($m := $match($states.errorOutput.Cause, /"errorMessage":\\s*("(?:[^\\\\"]|\\\\.)*")/, 1);'
        ' $exists($m) ? $parse($m[0].groups[0]) : "")'
    )
    return {
        "failure": {
            "step": step.name,
            "error": _expression(error),
            "detail": _expression(message),
            "status": _expression(status),
            "title": "The request was refused, and nothing of it stands",
            "kind": "saga-refused",
        }
    }


def _broken(step: CompiledStep) -> State:
    """What any other failure leaves: nothing that the function said; it may hold internals."""
    return {
        "failure": {
            "step": step.name,
            "error": "StepFailed",
            "detail": "the step could not be completed",
            "status": 500,
            "title": "The request failed, and nothing of it stands",
            "kind": "saga-failed",
        }
    }


def _giving_up_name(plan: SagaPlan, index: int) -> str:
    step = plan.steps[index]
    return f"Fence {step.name}" if index == plan.pivot else f"Compensate from {step.name}"


def _giving_up(plan: SagaPlan, index: int) -> dict[str, State]:
    """States that decide the direction when step ``index`` is given up. After the pivot there is none to decide."""
    if index > plan.pivot:
        return {}
    step = plan.steps[index]
    chain = _chain_from(plan, index if index < plan.pivot else index - 1)
    compensate = _direct(plan, Direction.COMPENSATE, chain)
    states = {f"Compensate from {step.name}": compensate}
    if index < plan.pivot:
        return states
    return states | {
        f"Fence {step.name}": _fence(plan, step),
        f"Look at {step.name}": _look_at_row(plan, step),
        f"{step.name} stands?": _stands(step),
        f"Forward from {step.name}": _direct(plan, Direction.FORWARD, _entry(plan, index + 1))
        | {"Assign": {"outputs": _replayed(plan, index)}},
    }


def _replayed(plan: SagaPlan, index: int) -> str:
    """Outputs, with the pivot's taken from its row. ``row`` was assigned when the row was looked at."""
    step = plan.steps[index]
    output = f'{{"{step.name}": $parse($row.{LogAttribute.OUTPUT.value}.S)}}'
    return _expression(output if index == 0 and not step.when else f"$merge([$outputs, {output}])")


def _fence(plan: SagaPlan, step: CompiledStep) -> State:
    """Put a tombstone on the pivot's row: the write, not a read, decides whether the pivot happened."""
    a = LogAttribute
    now = _expression("$string($millis())")
    keep = plan.log_days * _LOG_SECONDS_PER_DAY
    return {
        **_call("dynamodb:putItem"),
        "Arguments": {
            "TableName": plan.log_table,
            "Item": {
                **_row_key(step.name),
                a.STATUS.value: {"S": StepStatus.TOMBSTONE.value},
                a.ATTEMPT.value: {"S": _expression(_EXECUTION)},
                a.CREATED_AT.value: {"N": now},
                a.UPDATED_AT.value: {"N": now},
                a.EXPIRATION.value: {"N": _expression(f"$string($floor($millis() / 1000) + {keep})")},
            },
            "ConditionExpression": "attribute_not_exists(#saga_id)",
            "ExpressionAttributeNames": {"#saga_id": a.SAGA_ID.value},
        },
        "Catch": [_refused_write(f"Look at {step.name}")],
        "Next": f"Compensate from {step.name}",
    }


def _look_at_row(plan: SagaPlan, step: CompiledStep) -> State:
    return {
        **_call("dynamodb:getItem"),
        "Arguments": {"TableName": plan.log_table, "Key": _row_key(step.name), "ConsistentRead": True},
        "Assign": {"row": _expression("$states.result.Item")},
        "Next": f"{step.name} stands?",
    }


def _stands(step: CompiledStep) -> State:
    status = f"$row.{LogAttribute.STATUS.value}.S"
    nothing = ", ".join(f'"{name.value}"' for name in NOTHING_STANDS)
    return {
        "Type": "Choice",
        "Choices": [
            {"Condition": _expression(f'{status} = "{StepStatus.DONE.value}"'), "Next": f"Forward from {step.name}"},
            {"Condition": _expression(f"{status} in [{nothing}]"), "Next": f"Compensate from {step.name}"},
        ],
        "Default": PARK,
    }


def _direct(plan: SagaPlan, direction: Direction, following: str) -> State:
    """Write the direction: once, and only while this execution owns the record."""
    a = RecordAttribute
    condition = f"{OWNED} AND (attribute_not_exists(#direction) OR #direction = :direction)"
    return {
        **_call("dynamodb:updateItem"),
        "Arguments": _record_update(
            plan,
            "SET #direction = :direction, #updated_at = :now",
            condition=condition,
            names={"#direction": a.DIRECTION.value, "#updated_at": a.UPDATED_AT.value},
            values={":direction": {"S": direction.value}, ":now": _now()},
        ),
        "Catch": [_refused_write(LOOK_AT_RECORD)],
        "Next": following,
    }


def _chain_from(plan: SagaPlan, index: int) -> str:
    """First compensation at or before step ``index``; with none left, the log is asked."""
    for step in reversed(plan.steps[: index + 1]):
        if step.compensate_arn:
            return _undo_name(step)
    return ASK_THE_LOG


def _undo_name(step: CompiledStep) -> str:
    return f"Undo {step.name}"


def _undo(plan: SagaPlan, index: int) -> State:
    step = plan.steps[index]
    return {
        "Type": "Task",
        "Resource": "arn:aws:states:::lambda:invoke",
        "Arguments": {"FunctionName": step.compensate_arn, "Payload": _payload(plan, step, "{}")},
        "TimeoutSeconds": step.compensate_task_seconds,
        "Retry": _step_retries((), step.retry, after_pivot=True),
        "Catch": [
            {"ErrorEquals": [ErrorName.FENCED.value], "Next": FENCED},
            {"ErrorEquals": ["States.ALL"], "Next": PARK},
        ],
        "Next": _chain_from(plan, index - 1),
    }


def _ending(plan: SagaPlan) -> dict[str, State]:
    """How a saga ends: settled, fenced, or parked in front of a person."""
    return {
        SETTLE_COMPLETED: _settle(plan, RecordStatus.COMPLETED, http_status="200", body=_completed_body(plan)),
        LOOK_AT_RECORD: _look_at_record(plan),
        WHO_SETTLED: _who_settled(),
        ALREADY_SETTLED: {"Type": "Succeed"},
        FENCED: {"Type": "Fail", "Error": ErrorName.FENCED.value, "Cause": "another execution owns this saga"},
        PARK: _park(plan),
        PARKED: {"Type": "Fail", "Error": "SagaParked", "Cause": "the saga waits for a person"},
        ASK_THE_LOG: _ask_the_log(plan),
        NOTHING_LEFT: _nothing_left(),
        SETTLE_FAILED: _settle(
            plan, RecordStatus.FAILED, http_status=_expression("$string($failure.status)"), body=_failed_body()
        ),
    }


def _settle(plan: SagaPlan, status: RecordStatus, *, http_status: str, body: str) -> State:
    """Write the final answer, straight from the state machine, and end: the happy path's last transition."""
    a = RecordAttribute
    names = (a.HTTP_STATUS, a.BODY, a.UPDATED_AT, a.EXPIRATION, a.DUE_AT, a.DUE_SHARD)
    return {
        **_call("dynamodb:updateItem"),
        "Arguments": _record_update(
            plan,
            "SET #status = :settled, #http_status = :http_status, #body = :body, #updated_at = :now, "
            "#expiration = :expiration REMOVE #due_at, #due_shard",
            names={f"#{name.value}": name.value for name in names},
            values={
                ":settled": {"S": status.value},
                ":http_status": {"N": http_status},
                ":body": {"S": _expression(body)},
                ":now": _now(),
                ":expiration": {"N": _expression(f"$string($floor($millis() / 1000) + {plan.retention_seconds})")},
            },
        ),
        "Catch": [_refused_write(LOOK_AT_RECORD)],
        "Output": {"saga_id": _expression(_SAGA_ID), "status": status.value},
        "End": True,
    }


def _completed_body(plan: SagaPlan) -> str:
    return f'$string({{"saga_id": {_SAGA_ID}, "status": "{RecordStatus.COMPLETED.value}", "result": ({plan.result})}})'


def _failed_body() -> str:
    """A problem document (RFC 9457), made of the failure that the Catch kept."""
    return (
        '$string({"type": "urn:cdk-sagas:problem:" & $failure.kind, "title": $failure.title, '
        '"status": $failure.status, "detail": $failure.detail, "error": $failure.error, '
        f'"step": $failure.step, "saga_id": {_SAGA_ID}}})'
    )


def _ask_the_log(plan: SagaPlan) -> State:
    """Before a saga settles FAILED, its log must say that nothing stands."""
    a = LogAttribute
    values = {f":s{n}": {"S": status.value} for n, status in enumerate(NOTHING_STANDS)}
    return {
        **_call("aws-sdk:dynamodb:query"),
        "Arguments": {
            "TableName": plan.log_table,
            "ConsistentRead": True,
            "Select": "COUNT",
            "KeyConditionExpression": "#saga_id = :saga_id",
            "FilterExpression": f"NOT #status IN ({', '.join(values)})",
            "ExpressionAttributeNames": {"#saga_id": a.SAGA_ID.value, "#status": a.STATUS.value},
            "ExpressionAttributeValues": {":saga_id": {"S": _expression(_SAGA_ID)}, **values},
        },
        "Assign": {
            "nothing_stands": _expression("$states.result.Count = 0 and $not($exists($states.result.LastEvaluatedKey))")
        },
        "Next": NOTHING_LEFT,
    }


def _nothing_left() -> State:
    return {
        "Type": "Choice",
        "Choices": [{"Condition": _expression("$nothing_stands"), "Next": SETTLE_FAILED}],
        "Default": PARK,
    }


def _look_at_record(plan: SagaPlan) -> State:
    """A refused write: who refused it? Reached only then."""
    return {
        **_call("dynamodb:getItem"),
        "Arguments": {"TableName": plan.request_table, "Key": _record_key(), "ConsistentRead": True},
        "Assign": {"record": _expression("$states.result.Item")},
        "Next": WHO_SETTLED,
    }


def _who_settled() -> State:
    a = RecordAttribute
    settled = ", ".join(f'"{status.value}"' for status in SETTLED)
    ours = f"$record.{a.SAGA_ID.value}.S = {_SAGA_ID}"
    owned = f'$record.{a.STATUS.value}.S = "{RecordStatus.IN_PROGRESS.value}" and $record.{a.OWNER.value}.S'
    return {
        "Type": "Choice",
        "Choices": [
            {
                "Condition": _expression(f"{ours} and $record.{a.STATUS.value}.S in [{settled}]"),
                "Next": ALREADY_SETTLED,
            },
            {"Condition": _expression(f"{ours} and {owned} = {_EXECUTION}"), "Next": PARK},
        ],
        "Default": FENCED,
    }


def _park(plan: SagaPlan) -> State:
    """Leave the saga to a person: the record stays in progress, and says so."""
    a = RecordAttribute
    names = (a.PARKED, a.PARKED_AT, a.UPDATED_AT)
    return {
        **_call("dynamodb:updateItem"),
        "Arguments": _record_update(
            plan,
            "SET #parked = :execution, #parked_at = :now, #updated_at = :now",
            names={f"#{name.value}": name.value for name in names},
            values={":execution": {"S": _expression(_EXECUTION)}, ":now": _now()},
        ),
        "Catch": [_refused_write(FENCED)],
        "Next": PARKED,
    }


def _record_update(
    plan: SagaPlan, update: str, *, condition: str = OWNED, names: Mapping[str, str], values: Mapping[str, State]
) -> State:
    """An update of the request record. Every one has the same condition: no update ever creates an item."""
    return {
        "TableName": plan.request_table,
        "Key": _record_key(),
        "UpdateExpression": update,
        "ConditionExpression": condition,
        "ExpressionAttributeNames": {**OWNED_NAMES, **names},
        "ExpressionAttributeValues": {
            ":in_progress": {"S": RecordStatus.IN_PROGRESS.value},
            ":owner": {"S": _expression(_EXECUTION)},
            **values,
        },
    }


def _record_key() -> State:
    return {RecordAttribute.ID.value: {"S": _expression(_REQUEST_ID)}}


def _row_key(step: str) -> State:
    return {LogAttribute.SAGA_ID.value: {"S": _expression(_SAGA_ID)}, LogAttribute.STEP.value: {"S": step}}


def _call(action: str) -> State:
    """A call of DynamoDB: everything is tried again, but for a refusal by a condition."""
    return {
        "Type": "Task",
        "Resource": f"arn:aws:states:::{action}",
        "TimeoutSeconds": _CALL_SECONDS,
        "Retry": [
            {"ErrorEquals": [_CONDITION_FAILED], "MaxAttempts": 0},
            {
                "ErrorEquals": ["States.ALL"],
                "IntervalSeconds": 1,
                "BackoffRate": 2,
                "MaxDelaySeconds": 60,
                "MaxAttempts": 10,
                "JitterStrategy": "FULL",
            },
        ],
    }


def _refused_write(following: str) -> State:
    return {"ErrorEquals": [_CONDITION_FAILED], "Next": following}


def _now() -> State:
    return {"N": _expression("$string($millis())")}


def _expression(jsonata: str) -> str:
    return f"{{% {jsonata} %}}"
