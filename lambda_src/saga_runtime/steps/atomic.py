"""The atomic step: a function returns data, and the runtime commits it with the saga log row, once."""

from __future__ import annotations

import functools
import uuid
from collections.abc import Callable, Sequence
from typing import Any

from botocore.exceptions import ClientError

from saga_runtime.errors import PermanentError, SagaFenced, ServiceRefused, code_of
from saga_runtime.protocol import OUTPUT_FIELD, LogAttribute, Metric
from saga_runtime.saga_log.rows import LogRow, StepEntry, done_put, entry_of, log_key
from saga_runtime.saga_log.transaction import RowRefused, commit
from saga_runtime.saga_log.write import Write
from saga_runtime.shared import aws, clock, telemetry
from saga_runtime.steps.step import Commit, StepCall, decode_output, require_commit, require_def

Answer = dict[str, Any]
LambdaHandler = Callable[[Any, Any], Answer]


def atomic_step(function: Callable[[StepCall], Commit]) -> LambdaHandler:
    """Make a Lambda handler of a function that returns a step's writes.

    Guaranteed: the writes of one step key are applied at most once, and exactly when the saga log has ``DONE``,
    however often the function is invoked, killed, or invoked twice at once. A step that already happened answers
    with its stored output. A step that was compensated before it ran can never run.

    Not guaranteed: that ``function`` itself is called once. It may be called again after a conflict or a retry, so it
    must do nothing but read and return data.

    Raises:
        TypeError: if the function is async, a generator, or takes other arguments: its call would do nothing.

    Raises (from the handler):
        PermanentError: a condition that ``function`` or one of its writes names was not met; nothing was written.
        TransientError: nothing was written, or it is unknown; invoke again.
        ServiceRefused: AWS refused a call for good; nothing was written.
        SagaFenced: the step was compensated.

    Example:
        >>> from saga_runtime import Commit, StepCall, atomic_step
        >>> @atomic_step
        ... def handler(call: StepCall) -> Commit:
        ...     return Commit(output={"greeting": f"hello {call.request['name']}"})
    """
    require_def(function, "call")

    @functools.wraps(function)
    def handler(event: Any, context: Any) -> Answer:
        aws.check_protocol()
        call = StepCall.from_event(event, attempt=uuid.uuid4().hex, now_ms=clock.now_ms())
        try:
            return {OUTPUT_FIELD: _run(function, call, context.get_remaining_time_in_millis)}
        finally:
            telemetry.flush()

    return handler


def _run(function: Callable[[StepCall], Commit], call: StepCall, remaining_ms: Callable[[], int]) -> Any:
    output, planned = "", False

    def plan() -> tuple[Any, Sequence[Write]]:
        nonlocal output, planned
        planned = False
        wanted = require_commit(function(call.anew()), "an atomic step")
        output = call.encode(wanted.output)
        planned = True
        row = done_put(
            table=call.log_table,
            saga_id=call.saga_id,
            step=call.row_name,
            side=call.side,
            attempt=call.attempt,
            output=output,
            now_ms=call.now_ms,
            keep_days=call.log_days,
        )
        return row, wanted.writes

    try:
        result = commit(plan, remaining_ms=remaining_ms)
    except Exception as error:
        refusal = _refusal_of(error)
        if refusal is None and planned:
            raise  # the database failed: it is unknown whether the row is there
        # An earlier attempt may have succeeded, and changed the very state over which this one fails.
        row = read_row(call)
        if row is not None:
            return replay_or_fence(call, row)
        if refusal is None:
            raise
        telemetry.event("step_refused", saga_id=call.saga_id, step=call.row_name, code=code_of(refusal))
        raise refusal from error if refusal is not error else None
    if isinstance(result, RowRefused):
        return replay_or_fence(call, result.row or read_row(call))
    telemetry.event("step_done", saga_id=call.saga_id, step=call.row_name)
    return decode_output(output)


def _refusal_of(error: Exception) -> PermanentError | ServiceRefused | None:
    if isinstance(error, PermanentError):
        return error
    return aws.service_refusal(error) if isinstance(error, ClientError) else None


def replay_or_fence(call: StepCall, row: LogRow | None) -> Any:
    """Return the stored output of the existing row, or end an attempt that is too late.

    Raises:
        SagaFenced: if the step was compensated.
    """
    if row is not None and entry_of(row) is StepEntry.REPLAY:
        if row.attempt == call.attempt:  # this invocation's: its answer was lost
            telemetry.event("step_done", saga_id=call.saga_id, step=call.row_name)
        else:
            telemetry.count(Metric.STEP_REPLAYED)
            telemetry.event("step_replayed", saga_id=call.saga_id, step=call.row_name)
        return decode_output(row.answer)
    telemetry.count(Metric.STEP_FENCED)
    telemetry.event("step_fenced", saga_id=call.saga_id, step=call.row_name)
    raise SagaFenced(f"step {call.step} of saga {call.saga_id} was compensated")


def read_row(call: StepCall) -> LogRow | None:
    """The step's row, read strongly."""
    answer = aws.dynamodb().get_item(
        TableName=call.log_table,
        Key=log_key(call.saga_id, call.row_name),
        ConsistentRead=True,
        ExpressionAttributeNames={f"#{n}": n for n in _READ},
        ProjectionExpression=",".join(f"#{n}" for n in _READ),
    )
    return LogRow.from_item(answer["Item"]) if "Item" in answer else None


_READ = tuple(
    a
    for a in (
        LogAttribute.SAGA_ID,
        LogAttribute.STEP,
        LogAttribute.STATUS,
        LogAttribute.OUTPUT,
        LogAttribute.UPDATED_AT,
        LogAttribute.ATTEMPT_ID,
        LogAttribute.DEADLINE,
        LogAttribute.FIRST_ATTEMPT_AT,
        LogAttribute.ERROR,
        LogAttribute.DETAIL,
        LogAttribute.ACCEPTED_AT,
        LogAttribute.SUBSTITUTE,
    )
)
