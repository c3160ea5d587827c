"""The pieces that states are made of: expressions, keys, calls of DynamoDB, updates of the record."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any, Final

from constructs_lib.saga.asl.nested import states_of
from constructs_lib.saga.asl.plan import CompiledStep, SagaPlan, State
from constructs_lib.saga.description.kind import plain_kind
from constructs_lib.saga.description.retry import Retry
from constructs_lib.saga.steps.jsonata import bare, expression, is_expression
from saga_runtime.idempotency.record import OWNED, OWNED_NAMES
from saga_runtime.protocol import (
    PROTOCOL_VERSION,
    TRANSIENT_ERRORS,
    CallField,
    ErrorName,
    LogAttribute,
    RecordAttribute,
    RecordStatus,
    StartField,
)

INPUT: Final = "$states.context.Execution.Input"
SAGA_ID: Final = f"{INPUT}.{StartField.SAGA_ID}"
REQUEST_ID: Final = f"{INPUT}.{StartField.REQUEST_ID}"
REQUEST: Final = f"{INPUT}.{StartField.REQUEST}"
EXECUTION: Final = "$states.context.Execution.Name"
CONDITION_FAILED: Final = "DynamoDB.ConditionalCheckFailedException"
CANCELED: Final = "DynamoDb.TransactionCanceledException"
"""Of an SDK integration: the optimized ones spell the service differently."""

_CALL_SECONDS: Final = 30
"""How long a state machine waits for an AWS service."""
LONG_ATTEMPTS: Final = 20
"""Number of retries where the saga only goes forward."""
LONG_CAP_SECONDS: Final = 300
MAX_STATE_NAME: Final = 80
"""Longest name of a state, in characters (Step Functions quotas)."""


def now() -> State:
    """The time as a DynamoDB number, in milliseconds."""
    return {"N": expression("$string($millis())")}


def seconds_from_now(seconds: int) -> State:
    """A TTL as a DynamoDB number, in seconds."""
    return {"N": expression(f"$string($floor($millis() / 1000) + {seconds})")}


def record_key() -> State:
    """Key of the request record."""
    return {RecordAttribute.ID: {"S": expression(REQUEST_ID)}}


def row_key(row: str) -> State:
    """Key of a saga log row, by its sort key."""
    return {LogAttribute.SAGA_ID: {"S": expression(SAGA_ID)}, LogAttribute.STEP: {"S": row}}


def call(action: str) -> State:
    """Build a call of an AWS service: everything is retried, except a refusal by a condition."""
    return {
        "Type": "Task",
        "Resource": f"arn:aws:states:::{action}",
        "TimeoutSeconds": _CALL_SECONDS,
        "Retry": [
            {"ErrorEquals": [CONDITION_FAILED], "MaxAttempts": 0},
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


def found_item() -> str:
    """The item that a read found, or an empty one: an expression that evaluates to nothing fails the execution."""
    return expression("$exists($states.result.Item) ? $states.result.Item : {}")


def refused_write(following: str) -> State:
    """Build the catch of a write refused by a condition."""
    return {"ErrorEquals": [CONDITION_FAILED], "Next": following}


def record_update(
    plan: SagaPlan, update: str, *, condition: str = OWNED, names: Mapping[str, str], values: Mapping[str, State]
) -> State:
    """An update of the request record. Every one has the same condition: no update ever creates an item."""
    return {
        "TableName": plan.request_table,
        "Key": record_key(),
        "UpdateExpression": update,
        "ConditionExpression": condition,
        "ExpressionAttributeNames": {**OWNED_NAMES, **names},
        "ExpressionAttributeValues": {
            ":in_progress": {"S": RecordStatus.IN_PROGRESS},
            ":owner": {"S": expression(EXECUTION)},
            **values,
        },
    }


def payload(plan: SagaPlan, step: CompiledStep, outputs: str, *, item: State) -> State:
    """Build the event of a step function; ``item`` has the item that it works on, if any."""
    call = {
        CallField.PROTOCOL: PROTOCOL_VERSION,
        CallField.SAGA_ID: expression(SAGA_ID),
        CallField.STEP: step.name,
        CallField.SIDE: plan.side_of(step),
        CallField.LOG_TABLE: plan.log_table,
        CallField.LOG_DAYS: plan.log_days,
        CallField.REQUEST: expression(REQUEST),
        CallField.OUTPUTS: expression(outputs),
        CallField.EXECUTION: expression(EXECUTION),
    }
    if step.recorded and plain_kind(step.kind).keeps_answer:
        call[CallField.RECORD] = True
    if step.provider is not None:
        call[CallField.PROVIDER] = step.provider.to_event()
    if plan.payloads is not None:
        call[CallField.PAYLOADS] = plan.payloads
        if step.inline:
            call[CallField.INLINE] = True
    return call | item


def bound(jsonata: str, known: str, *, row: str = "", also: str = "") -> str:
    """A user's expression with what it may speak of: the request, the outputs, the saga's id, the step's key."""
    outputs = "" if known == "$outputs" else f" $outputs := {known};"
    names = f' $saga_id := {SAGA_ID}; $step_key := {SAGA_ID} & "#" & {row};' if row else ""
    return f"($request := $parse({REQUEST});{outputs}{names}{also} {jsonata})"


def bind_all(value: Any, known: str, *, row: str, also: str = "") -> Any:
    """Bind every expression in a user's structure; other values are unchanged."""
    if isinstance(value, str):
        return expression(bound(bare(value), known, row=row, also=also)) if is_expression(value.strip()) else value
    if isinstance(value, Mapping):
        return {name: bind_all(item, known, row=row, also=also) for name, item in value.items()}
    if isinstance(value, list | tuple):
        return [bind_all(item, known, row=row, also=also) for item in value]
    return value


def step_retries(
    permanent: Sequence[str], retry: Retry, *, no_way_back: bool, transient: Sequence[str] = ()
) -> list[State]:
    """Refusals never; transient failures with jitter; the rest without, so that the delays outlast a living attempt.

    Where the saga only goes forward (after the pivot, in a compensation), what is in doubt is retried for much longer
    before the saga is parked; never for less than declared.
    """
    long_cap, long_attempts = (LONG_CAP_SECONDS, LONG_ATTEMPTS) if no_way_back else (0, 0)
    return [
        {"ErrorEquals": [ErrorName.FENCED, ErrorName.UNDECIDED, *permanent], "MaxAttempts": 0},
        {
            "ErrorEquals": [*(str(name) for name in TRANSIENT_ERRORS), *transient],
            "IntervalSeconds": retry.transient_interval,
            "BackoffRate": _plain(retry.transient_rate),
            "MaxDelaySeconds": max(retry.transient_cap, long_cap),
            "MaxAttempts": max(retry.transient_attempts, long_attempts),
            "JitterStrategy": "FULL",
        },
        {
            "ErrorEquals": ["States.ALL"],
            "IntervalSeconds": retry.in_doubt_interval,
            "BackoffRate": _plain(retry.in_doubt_rate),
            "MaxDelaySeconds": max(retry.in_doubt_cap, long_cap),
            "MaxAttempts": max(retry.in_doubt_attempts, long_attempts),
        },
    ]


def _plain(number: float) -> float:
    """Normalize a number: 2 and not 2.0."""
    return int(number) if number == int(number) else number


def transaction_retries(retry: Retry, *, no_way_back: bool) -> list[State]:
    """A canceled transaction may be a conflict, which passes, or a refusal, which does not: a few tries for both.

    Then the row is read: it shows whether the transaction was written and only its response lost.
    """
    canceled = {
        "ErrorEquals": [CANCELED],
        "IntervalSeconds": 1,
        "BackoffRate": 2,
        "MaxDelaySeconds": 30 if no_way_back else 10,
        "MaxAttempts": 8 if no_way_back else 3,
        "JitterStrategy": "FULL",
    }
    return [canceled, *step_retries((), retry, no_way_back=no_way_back)[1:]]


def reached_from(start: str, states: Mapping[str, State]) -> dict[str, State]:
    """The states that can be reached: Step Functions refuses a definition that holds others."""
    reached: set[str] = set()
    ahead = [start]
    while ahead:
        name = ahead.pop()
        if name not in reached:
            reached.add(name)
            ahead += _targets(states[name])
    return {name: state for name, state in states.items() if name in reached}


def machine(plan: SagaPlan, comment: str, start: str, states: Mapping[str, State], *, seconds: int = 0) -> State:
    """A definition of the states that can be reached.

    Raises:
        ValueError: if two states have one name, or a name is too long; states inside of a user's own state count, too.
    """
    definition: State = {
        "Comment": comment,
        "QueryLanguage": "JSONata",
        "StartAt": start,
        "TimeoutSeconds": seconds or plan.timeout_seconds,
        "States": {name: _in_partition(plan, state) for name, state in reached_from(start, states).items()},
    }
    names = Counter(name for name, _ in states_of(definition))
    for name in names:
        if len(name) > MAX_STATE_NAME:
            raise ValueError(
                f"a state's name must have at most {MAX_STATE_NAME} characters, got {name!r} ({len(name)}); "
                "shorten the step's name, or the error's, in it"
            )
    twice = sorted(name for name, number in names.items() if number > 1)
    if twice:
        raise ValueError(f"states of one state machine must have different names, got {twice} twice; rename yours")
    return definition


def _in_partition(plan: SagaPlan, state: State) -> State:
    """The state with its integration's ARN in the stack's partition: GovCloud's and China's have other names."""
    state = dict(state)
    resource = state.get("Resource")
    if isinstance(resource, str) and resource.startswith("arn:aws:states:::"):
        state["Resource"] = f"arn:{plan.partition}:{resource.split(':', 2)[2]}"
    if "Branches" in state:
        state["Branches"] = [_flow_in_partition(plan, branch) for branch in state["Branches"]]
    if "ItemProcessor" in state:
        state["ItemProcessor"] = _flow_in_partition(plan, state["ItemProcessor"])
    return state


def _flow_in_partition(plan: SagaPlan, flow: State) -> State:
    return flow | {"States": {name: _in_partition(plan, state) for name, state in flow["States"].items()}}


def _targets(state: State) -> list[str]:
    branches = [*state.get("Catch", ()), *state.get("Choices", ())]
    return [branch["Next"] for branch in branches] + [state[key] for key in ("Next", "Default") if key in state]
