"""A state that waits: a job, and the token by which its answer finds back, go to a queue; nothing runs meanwhile."""

from __future__ import annotations

from typing import Final

from constructs_lib.saga.asl.plan import CompiledStep, SagaPlan, State
from constructs_lib.saga.asl.states import step_retries
from constructs_lib.saga.steps.jsonata import bare, expression, sendable_json
from saga_runtime.protocol import OUTPUT_FIELD, CallField, ErrorName, TaskField, WaitField

NOT_IN_TIME: Final = ("States.HeartbeatTimeout", "States.Timeout")
"""Names of an attempt that ended without an answer.

Recordings of AWS show a lost heartbeat as ``States.Timeout``, in the history and as the execution's error; AWS's page
on errors allows the first name in Retry and Catch. So neither shows whether the step's time is up.
"""
ANSWERED: Final = f"$states.result.{OUTPUT_FIELD}"
"""JSONata expression of what the answer brought."""


def waiting_fields(plan: SagaPlan, step: CompiledStep, call: State) -> State:
    """Fields of the state that puts a job into the queue and waits.

    Args:
        plan: the plan.
        step: which one.
        call: what a function would be called with.
    """
    if step.wait is None:
        raise TypeError(f"{step.name} waits for nothing")
    context = "$states.context"
    # Together these order the attempts: the time at which a state was entered does not change between its retries.
    task = {
        TaskField.STARTED: f"{context}.Execution.StartTime",
        TaskField.REDRIVEN: f"$exists({context}.Execution.RedriveCount) ? {context}.Execution.RedriveCount : 0",
        TaskField.ENTERED: f"{context}.State.EnteredTime",
        TaskField.RETRIED: f"{context}.State.RetryCount",
    }
    call = call | {CallField.OUTPUTS: expression(_sendable(bare(call[CallField.OUTPUTS])))}
    if CallField.ITEM in call:
        call[CallField.ITEM] = expression(sendable_json(bare(call[CallField.ITEM])))
    return {
        "Type": "Task",
        "Resource": "arn:aws:states:::sqs:sendMessage.waitForTaskToken",
        "Arguments": {
            "QueueUrl": step.queue_url,
            "MessageBody": {
                **call,
                CallField.REQUEST_TABLE: plan.request_table,
                CallField.TOKEN: expression(f"{context}.Task.Token"),
                CallField.TASK: {field: expression(text) for field, text in task.items()},
                CallField.WAIT: {
                    WaitField.HEARTBEAT: step.wait.heartbeat,
                    WaitField.TIMEOUT: step.wait.timeout,
                },
            },
        },
        "HeartbeatSeconds": step.wait.heartbeat,
        "TimeoutSeconds": step.wait.timeout,
    }


def _sendable(outputs: str) -> str:
    """Expression of outputs; of their JSON text, if they have a character that SQS refuses: a value cannot escape it.

    As text they take more room, so others do not travel so.
    """
    sent = sendable_json("$text")
    return f"($sent := {outputs}; $text := $string($sent); {sent} = $text ? $sent : {sent})"


def waiting_retries(step: CompiledStep, *, no_way_back: bool) -> list[State]:
    """A lost answer is asked for, as often as fits into the time that the step has.

    Whether that time is up is decided by the dispatcher, from when the state was entered: it answers
    ``JobStillPending`` or ``WaitTimedOut``, which are not retried.
    """
    if step.wait is None:
        raise TypeError(f"{step.name} waits for nothing")
    lost = {
        "ErrorEquals": list(NOT_IN_TIME),
        "IntervalSeconds": 1,
        "BackoffRate": 1,
        "MaxAttempts": step.wait.attempts,
    }
    final = (ErrorName.OVERDUE, *step.permanent_errors)
    return [lost, *step_retries(final, step.retry, no_way_back=no_way_back, transient=step.transient)]
