"""The fence: a tombstone on a step's row. The write, not a read, decides whether the step happened."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from constructs_lib.saga.asl.failures import broken, found_at, thrown_at
from constructs_lib.saga.asl.flow import Flow, item_of, row_name, share_of
from constructs_lib.saga.asl.outputs import outputs_in_the_log
from constructs_lib.saga.asl.plan import CompiledStep, SagaPlan, State, task_seconds
from constructs_lib.saga.asl.states import (
    EXECUTION,
    call,
    found_item,
    now,
    payload,
    refused_write,
    row_key,
    seconds_from_now,
    step_retries,
)
from constructs_lib.saga.steps.jsonata import expression
from saga_runtime.protocol import NOTHING_STANDS, CallField, CallMode, ErrorName, LogAttribute, StepStatus

_DAY_SECONDS: Final = 86_400


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
    again: str | None = None,
    buried_outputs: State | None = None,
    standing_outputs: State | None = None,
) -> dict[str, State]:
    """Put a tombstone on a step's row: the write, not a read, decides whether the step happened.

    A row in doubt is decided first, by the step's own function, which asks the provider.

    Args:
        plan: the plan.
        flow: the step's flow.
        step: whose row.
        name: name of the first state.
        buried: next state if the step was not applied and now never will be.
        stands: next state if the step was applied.
        stuck: where to go when that cannot be known.
        known: expression of the outputs that are at hand; None where none are.
        instead: output (JSON) that the tombstone keeps for a skipped step: another run of the saga finds it there, and
            skips the step too.
        again: next state if the row has a refusal that no attempt was answered with before its time was over: the
            refusal decides. None: the one that led here is in the row, or none is.
        buried_outputs: what the outputs become in the first case, if anything.
        standing_outputs: what they become in the second, and where another execution's tombstone keeps an output.
    """
    look, decide, ask = f"{name} - read row", f"{name} - applied?", f"{name} - verify"
    status = f"${flow.row}.{LogAttribute.STATUS}.S"
    awaited = step.wait is not None and not step.job
    stand = [StepStatus.DONE, StepStatus.RECORDED] if awaited else [StepStatus.DONE]
    # A late effect is not the effect that the saga relies on: it is compensated.
    fall = (*NOTHING_STANDS, StepStatus.COMPENSATING, *([StepStatus.APPLIED_LATE] if step.job else []))
    standing, nothing = _listed(stand), _listed([status for status in fall if status not in stand])
    unread = flow.tells(found_at(step.name, "ManualResolutionRequired", "its outcome is in doubt"))
    undecided = {**unread, flow.failure: broken(step.name)}
    skipped: list[State] = []
    if instead is not None:
        # Another execution may have been refused by another error: the row decides which route the saga took.
        kept = f'{status} = "{StepStatus.TOMBSTONE}" and $exists(${flow.row}.{LogAttribute.OUTPUT}.S)'
        skipped = [{"Condition": expression(kept), "Next": buried} | _assign(standing_outputs)]
    if again is not None:
        other = f'${flow.row}.{LogAttribute.ERROR}.S != "{ErrorName.CALLBACK_TIMED_OUT}"'
        skipped.append({"Condition": expression(f'{status} = "{StepStatus.REFUSED}" and {other}'), "Next": again})
    states: dict[str, State] = {
        name: _tombstone(plan, flow, step, instead)
        | {"Catch": [refused_write(look)], "Next": buried}
        | _assign(buried_outputs),
        look: look_at_row(plan, flow, step, decide),
        decide: {
            "Type": "Choice",
            "Choices": [
                *skipped,
                {"Condition": expression(f"{status} {standing}"), "Next": stands} | _assign(standing_outputs),
                {"Condition": expression(f"{status} {nothing}"), "Next": buried} | _assign(buried_outputs),
            ],
            "Default": stuck,
            "Assign": undecided,
        },
    }
    if step.provider is not None:
        in_doubt = expression(f'{status} = "{StepStatus.INTENT}"')
        states[decide]["Choices"].append({"Condition": in_doubt, "Next": ask})
        # A provider's call may have been made of the outputs that the step saw.
        sent = payload(plan, step, "{}", item=item_of(flow)) | outputs_in_the_log(plan, flow, step, known)
        sent |= share_of(flow, step) | {CallField.MODE: CallMode.VERIFY}
        states[ask] = {
            "Type": "Task",
            "Resource": "arn:aws:states:::lambda:invoke",
            "Arguments": {"FunctionName": step.function_arn, "Payload": sent},
            "TimeoutSeconds": task_seconds(step.function),
            "Retry": step_retries((), step.retry, no_way_back=True, transient=step.transient),
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


def _listed(statuses: Sequence[StepStatus]) -> str:
    """JSONata condition of being one of these."""
    texts = [f'"{status}"' for status in statuses]
    return f"= {texts[0]}" if len(texts) == 1 else f"in [{', '.join(texts)}]"


def _assign(outputs: State | None) -> State:
    return {"Assign": outputs} if outputs is not None else {}


def look_at_row(plan: SagaPlan, flow: Flow, step: CompiledStep, following: str) -> State:
    """Read a step's row into ``$row``."""
    return {
        **call("dynamodb:getItem"),
        "Arguments": {"TableName": plan.log_table, "Key": row_key(row_name(flow, step)), "ConsistentRead": True},
        "Assign": {flow.row: found_item()},
        "Next": following,
    }


def first_row(plan: SagaPlan, flow: Flow, step: CompiledStep, status: StepStatus, output: str | None) -> State:
    """A step's row that the state machine itself writes; output: JSON text, or its expression."""
    a = LogAttribute
    return {
        **row_key(row_name(flow, step)),
        a.STATUS: {"S": status},
        **({a.OUTPUT: {"S": output}} if output is not None else {}),
        a.SIDE: {"S": plan.side_of(step)},
        a.ATTEMPT_ID: {"S": expression(EXECUTION)},
        a.CREATED_AT: now(),
        a.UPDATED_AT: now(),
        a.EXPIRATION: seconds_from_now(plan.log_days * _DAY_SECONDS),
    }


def _tombstone(plan: SagaPlan, flow: Flow, step: CompiledStep, instead: str | None) -> State:
    return {
        **call("dynamodb:putItem"),
        "Arguments": {
            "TableName": plan.log_table,
            "Item": first_row(plan, flow, step, StepStatus.TOMBSTONE, instead),
            "ConditionExpression": "attribute_not_exists(#saga_id)",
            "ExpressionAttributeNames": {"#saga_id": LogAttribute.SAGA_ID},
        },
    }
