"""Declarations of calls that the state machine makes itself: any AWS service, events, states of the user's own."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from typing import Any, Final

from aws_cdk import Duration
from aws_cdk import aws_events as events
from aws_cdk import aws_iam as iam

from constructs_lib.saga.steps.direct import CALL_SECONDS, DirectCall, Effect
from constructs_lib.shared.arguments import require_match, require_seconds

_SERVICE: Final = r"^[a-z][a-z0-9]*$"
_ACTION: Final = r"^[a-z][A-Za-z0-9]*$"
_DYNAMODB_READS: Final = r"(batchGet|describe|get|list|query|scan|transactGet)(?![a-z])"
_WRITES: Final = (
    r"(batch|transact)?([Cc]opy|[Cc]reate|[Dd]elete|[Ii]nvoke|[Pp]ublish|[Pp]ut|[Ss]end|[Ss]tart|[Uu]pdate|[Ww]rite)"
    r"(?![a-z])"
)
"""First words of actions that write, send, or run something; ``lookupEvents`` and the like have others."""
_CUSTOM_TYPES: Final = ("Map", "Parallel", "Pass", "Task", "Wait")
_OURS: Final = ("Catch", "End", "Next")
_PATHS: Final = {
    "InputPath",
    "ItemsPath",
    "MaxConcurrencyPath",
    "OutputPath",
    "Parameters",
    "ResultPath",
    "ResultSelector",
    "SecondsPath",
    "TimeoutSecondsPath",
    "TimestampPath",
    "HeartbeatSecondsPath",
    "ToleratedFailureCountPath",
    "ToleratedFailurePercentagePath",
}
"""Fields of JSONPath, which a state in JSONata must not have (states-language.net/spec.html)."""
_UNKNOWN_SECONDS: Final = 60
"""Budgeted seconds of a state without a declared duration."""


def sdk_call(
    *,
    step: str,
    service: str,
    action: str,
    parameters: Mapping[str, Any],
    effect: Effect,
    policies: tuple[iam.PolicyStatement, ...],
    output: str,
    timeout: Duration | None,
) -> DirectCall:
    """A call of ``aws-sdk:<service>:<action>``."""
    require_match(f"service of step {step}", service, _SERVICE, "write it as in aws-sdk:<service>:<action>, e.g. s3")
    require_match(f"action of step {step}", action, _ACTION, "write it in camelCase, e.g. getObject")
    if service == "dynamodb" and effect is not Effect.READ:
        raise ValueError(
            f"step {step} writes to DynamoDB without its saga log row; use Step.dynamodb, which writes both at once"
        )
    if effect is Effect.READ and _writes(service, action):
        instead = (
            "use Step.dynamodb, which writes the saga log row, too"
            if service == "dynamodb"
            else "declare Effect.IDEMPOTENT if it is, and place it after the pivot, or use Step.external"
        )
        raise ValueError(f"action of step {step} must only read, as its effect declares, got {action!r}; {instead}")
    seconds = require_seconds(
        f"timeout of step {step}", timeout or Duration.seconds(CALL_SECONDS), at_least=1, at_most=86_400
    )
    fields = {"Type": "Task", "Resource": f"arn:aws:states:::aws-sdk:{service}:{action}", "Arguments": dict(parameters)}
    return DirectCall(
        fields=fields | {"TimeoutSeconds": seconds},
        effect=effect,
        output=output,
        written={"parameters": parameters},
        policies=policies,
        timeout=seconds,
    )


def _writes(service: str, action: str) -> bool:
    """True if an action is known to change something by its first word, or is not known to read DynamoDB."""
    if service == "dynamodb":
        return re.match(_DYNAMODB_READS, action) is None
    return re.match(_WRITES, action) is not None


def event_call(*, step: str, bus: events.IEventBus, source: str, detail_type: str, detail: str | None) -> DirectCall:
    """One event, put by the optimized integration: an entry that EventBridge refuses fails the task."""
    for name, text in (("source", source), ("detail_type", detail_type)):
        if not text.strip() or len(text) > 128:
            raise ValueError(f"{name} of step {step} must have 1 to 128 characters, got {text!r}; choose a name")
    if source.startswith("aws."):  # PutEvents refuses it: NotAuthorizedForSourceException
        raise ValueError(f"source of step {step} must not begin with aws., got {source!r}; use a name like shop.orders")
    document = detail or '{"saga_id": $saga_id, "outputs": $outputs}'
    entry = {
        "EventBusName": bus.event_bus_name,
        "Source": source,
        "DetailType": detail_type,
        "Detail": f'{{% $merge([({document}), {{"event_id": $step_key}}]) %}}',
    }
    return DirectCall(
        fields={
            "Type": "Task",
            "Resource": "arn:aws:states:::events:putEvents",
            "Arguments": {"Entries": [entry]},
            "TimeoutSeconds": CALL_SECONDS,
        },
        effect=Effect.IDEMPOTENT,
        output="{}",
        written={
            "source": source,
            "detail_type": detail_type,
            "detail": f"{{% {detail} %}}" if detail is not None else "",
        },
        policies=(iam.PolicyStatement(actions=["events:PutEvents"], resources=[bus.event_bus_arn]),),
        bus=bus,
    )


def custom_state(
    *,
    step: str,
    state: Mapping[str, Any],
    effect: Effect,
    policies: tuple[iam.PolicyStatement, ...],
    output: str,
) -> DirectCall:
    """A state of the user's own."""
    kind = state.get("Type")
    if kind not in _CUSTOM_TYPES:
        raise ValueError(f"state of step {step} must be one of {list(_CUSTOM_TYPES)}, got Type {kind!r}")
    taken = [name for name in _OURS if name in state]
    if taken:
        raise ValueError(f"state of step {step} must not have {taken}: the saga decides where it leads; remove it")
    if state.get("QueryLanguage", "JSONata") != "JSONata":
        raise ValueError(f"state of step {step} must be in JSONata, got {state['QueryLanguage']!r}; rewrite it")
    try:
        json.dumps(state)
    except TypeError as error:
        raise ValueError(f"state of step {step} must be plain JSON: {error}") from None
    for name, inner in _with_nested("state", state):
        if paths := sorted(_PATHS & inner.keys()):
            raise ValueError(
                f"{name} of step {step} must be in JSONata, got {paths} of JSONPath; use Arguments, Output and Assign"
            )
        _check_waiting(f"{name} of step {step}", inner)
    seconds = state.get("Seconds" if kind == "Wait" else "TimeoutSeconds")
    known = seconds if isinstance(seconds, int) else _UNKNOWN_SECONDS
    return DirectCall(
        fields=dict(state),
        effect=effect,
        output=output,
        written={"state": state},
        policies=policies,
        timeout=known,
    )


def _with_nested(name: str, state: Mapping[str, Any]) -> Iterator[tuple[str, Mapping[str, Any]]]:
    yield name, state
    inside = [*state.get("Branches", ()), *(state[k] for k in ("ItemProcessor", "Iterator") if k in state)]
    for flow in inside:
        for inner_name, inner in flow.get("States", {}).items():
            yield from _with_nested(f"state {inner_name!r}", inner)


def _check_waiting(name: str, state: Mapping[str, Any]) -> None:
    """A task that waits for ever is the one failure that nothing reports."""
    if state.get("Type") != "Task":
        return
    seconds = state.get("TimeoutSeconds", 0)
    if not isinstance(seconds, int) or seconds < 1:
        raise ValueError(
            f"{name} is a Task and needs TimeoutSeconds, got {seconds!r}: a task without one can "
            "hang for a year; add it"
        )
    if str(state.get("Resource", "")).endswith(".waitForTaskToken") and "HeartbeatSeconds" not in state:
        raise ValueError(
            f"{name} waits for a callback and needs HeartbeatSeconds, got none: a callback that is lost would be "
            "noticed at its timeout only; add it"
        )
