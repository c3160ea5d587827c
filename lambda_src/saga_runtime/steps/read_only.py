"""The read-only step: it changes nothing, so nothing guards it; what it answered may be recorded."""

from __future__ import annotations

import functools
import uuid
from collections.abc import Callable, Mapping
from typing import Any

from botocore.exceptions import ClientError

from saga_runtime.errors import ProtocolMismatch
from saga_runtime.protocol import OUTPUT_FIELD, CallField, LogAttribute, Metric, StepStatus
from saga_runtime.saga_log.row_write import write_row
from saga_runtime.saga_log.rows import LogRow, row_put
from saga_runtime.saga_log.transaction import RowRefused
from saga_runtime.shared import aws, clock, telemetry
from saga_runtime.steps.atomic import Answer, LambdaHandler, read_row
from saga_runtime.steps.step import StepCall, decode_output, require_def


def read_only_step(function: Callable[[StepCall], Mapping[str, Any]]) -> LambdaHandler:
    """Make a Lambda handler of a function that reads, computes, or queries a model.

    Recorded or not is the saga's choice: ``Step.read_only(..., record=True)``. If it is recorded, the runtime reads the
    row, calls the function only without an output, and writes the output on condition that the row has none.
    Reading first costs half a read unit in vain on the first run, and saves a call that may cost money (a model's) on
    every later one. Without recording there is neither read nor write, and every run calls the function.

    Guaranteed, if recorded: every run that gets an answer gets the same one, the first that was written down, also
    when the function would answer differently each time.

    Not guaranteed: that the function is called once. Two runs at a time may both call it; so may a run after one that
    was cut off. It must change nothing. A refusal (``PermanentError``) is not recorded.

    Raises:
        TypeError: if the function is async, a generator, or takes other arguments: its call would do nothing.

    Raises (from the handler):
        PermanentError: what ``function`` raised.
        ServiceRefused: AWS refused a call for good, of the function or of the saga log; nothing was changed.

    Example:
        >>> from saga_runtime import StepCall, read_only_step
        >>> @read_only_step
        ... def quote(call: StepCall) -> dict[str, str]:
        ...     return {"price": str(call.request["pieces"] * 250)}
    """
    require_def(function, "call")

    @functools.wraps(function)
    def handler(event: Any, context: Any) -> Answer:
        aws.check_protocol()
        call = StepCall.from_event(event, attempt=uuid.uuid4().hex, now_ms=clock.now_ms())
        record = event.get(CallField.RECORD, False)
        if not isinstance(record, bool):
            raise ProtocolMismatch(f"whether a step is recorded is true or false, got {record!r}")
        try:
            if record:
                return {OUTPUT_FIELD: _recorded(function, call, context.get_remaining_time_in_millis)}
            return {OUTPUT_FIELD: decode_output(_answer(function, call))}
        except ClientError as error:
            refusal = aws.service_refusal(error)
            if refusal is None:
                raise
            raise refusal from error
        finally:
            telemetry.flush()

    return handler


def _recorded(
    function: Callable[[StepCall], Mapping[str, Any]], call: StepCall, remaining_ms: Callable[[], int]
) -> Any:
    row = read_row(call)
    if (answer := _answer_of(row)) is not None:
        return _replay(call, answer)
    output = _answer(function, call)
    if row is None:
        result = write_row(_read_put(call, output), remaining_ms=remaining_ms)
        # The first writer wins: every run must continue with the same output.
        if isinstance(result, RowRefused) and (first := _answer_of(result.row or read_row(call))) is not None:
            return _replay(call, first)
    return decode_output(output)


def _answer_of(row: LogRow | None) -> str | None:
    """Output in the row. A fenced step may still run: it has no effect to fence."""
    if row is None or row.status is not StepStatus.RECORDED:
        return row.answer if row is not None else None
    return row.output or "{}"


def _replay(call: StepCall, answer: str) -> Any:
    telemetry.count(Metric.STEP_REPLAYED)
    telemetry.event("step_replayed", saga_id=call.saga_id, step=call.row_name)
    return decode_output(answer)


def _answer(function: Callable[[StepCall], Mapping[str, Any]], call: StepCall) -> str:
    output = call.encode(function(call))
    telemetry.event("step_read", saga_id=call.saga_id, step=call.row_name)
    return output


def _read_put(call: StepCall, output: str) -> Any:
    extra = {LogAttribute.OUTPUT: {"S": output}}
    return row_put(
        call.log_table,
        call.saga_id,
        call.row_name,
        StepStatus.RECORDED,
        call.side,
        clock.now_ms(),
        call.log_days,
        call.attempt,
        extra,
    )
