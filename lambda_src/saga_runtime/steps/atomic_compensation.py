"""The compensation of an atomic step. The step's row decides, so running it is always safe."""

from __future__ import annotations

import functools
import uuid
from collections.abc import Callable, Sequence
from typing import Any

from saga_runtime.errors import PermanentError, ProtocolMismatch, TransientError
from saga_runtime.protocol import OUTPUT_FIELD, CallField, CallMode
from saga_runtime.saga_log.rows import LogRow, UndoEntry, is_late, tombstone_put, undo_entry_of, undone_update
from saga_runtime.saga_log.transaction import Committed, commit
from saga_runtime.saga_log.write import Write
from saga_runtime.shared import aws, clock, telemetry
from saga_runtime.steps.atomic import Answer, LambdaHandler, read_row
from saga_runtime.steps.step import Commit, StepCall, require_commit, require_def

_READS_AGAIN = 3
"""A row changes at most twice under a compensation (to DONE, to COMPENSATED); a third look is certain."""


class CompensationRefused(TransientError):
    """A compensation was refused on business grounds, which must not happen: it is tried again, then parked."""

    code = "COMPENSATION_REFUSED"


def compensation(function: Callable[[StepCall, Any], Commit]) -> LambdaHandler:
    """Make a Lambda handler of a function that compensates a step.

    ``function`` is given the call (``call.key`` ends with ``#undo``) and the output that the step recorded. It is
    called only for an applied step. Any other step is fenced: a tombstone in its row stops any attempt
    of it that comes later.

    Guaranteed: the compensation of one step key is applied at most once, and exactly when the log has ``COMPENSATED``.
    A compensation must not fail on business grounds: a refund to a closed account goes to a suspense account.

    Raises:
        TypeError: if the function is async, a generator, or takes other arguments: its call would do nothing.

    Example:
        >>> from saga_runtime import Commit, StepCall, compensation
        >>> @compensation
        ... def handler(call: StepCall, output: dict[str, str]) -> Commit:
        ...     return Commit()
    """
    require_def(function, "call", "output")

    @functools.wraps(function)
    def handler(event: Any, context: Any) -> Answer:
        aws.check_protocol()
        call = StepCall.from_event(event, attempt=uuid.uuid4().hex, now_ms=clock.now_ms(), undo=True)
        mode = event.get(CallField.MODE)
        if mode not in (None, CallMode.LATE):
            raise ProtocolMismatch(f"a compensation is called to undo or to undo {CallMode.LATE}, got mode={mode!r}")
        try:
            done = _run(function, call, context.get_remaining_time_in_millis, only_late=mode is not None)
            telemetry.event("compensation", saga_id=call.saga_id, step=call.row_name, found=done)
            return {OUTPUT_FIELD: {}}
        finally:
            telemetry.flush()

    return handler


def _run(
    function: Callable[[StepCall, Any], Commit], call: StepCall, remaining_ms: Callable[[], int], *, only_late: bool
) -> UndoEntry:
    for _ in range(_READS_AGAIN):
        row = read_row(call)
        if only_late and not is_late(row):
            return UndoEntry.NOTHING
        entry = undo_entry_of(row)
        if entry is UndoEntry.NOTHING:
            return entry
        if entry is UndoEntry.FOREIGN:
            raise ProtocolMismatch(
                f"step {call.step} was begun as an external step and is compensated as an atomic one; "
                "deploy the compensation that belongs to the step as it ran, and recover the saga"
            )
        plan = _bury(call) if row is None else _undo(function, call, row)
        try:
            result = commit(plan, remaining_ms=remaining_ms)
            if isinstance(result, Committed) or (result.row is not None and result.row.attempt == call.attempt):
                return entry  # written now, or by this invocation's try whose answer was lost
        except PermanentError as refusal:
            # An earlier try may have undone the step without an answer, and changed the very state that refuses now.
            if undo_entry_of(read_row(call)) is UndoEntry.NOTHING:
                return entry
            raise CompensationRefused(f"the compensation of {call.step} was refused: {refusal.message}") from refusal
    raise TransientError(f"the row of step {call.step} keeps changing")


def _bury(call: StepCall) -> Callable[[], tuple[Any, Sequence[Write]]]:
    row = tombstone_put(
        table=call.log_table,
        saga_id=call.saga_id,
        step=call.row_name,
        side=call.side,
        attempt=call.attempt,
        now_ms=call.now_ms,
        keep_days=call.log_days,
    )
    return lambda: (row, ())


def _undo(
    function: Callable[[StepCall, Any], Commit], call: StepCall, found: LogRow
) -> Callable[[], tuple[Any, Sequence[Write]]]:
    row = undone_update(
        table=call.log_table,
        saga_id=call.saga_id,
        step=call.row_name,
        found=found.status,
        attempt=call.attempt,
        now_ms=call.now_ms,
    )
    return lambda: (
        row,
        require_commit(function(call.anew(), call.decode(found.output)), "an atomic step's compensation").writes,
    )
