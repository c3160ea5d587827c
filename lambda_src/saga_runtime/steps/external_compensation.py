"""The compensation of an external step. The step's row decides, so running it is always safe."""

from __future__ import annotations

import functools
import uuid
from collections.abc import Callable
from typing import Any, Generic

from saga_runtime.errors import PermanentError, ProtocolMismatch, StepInDoubt, TransientError
from saga_runtime.payloads.claim_check import copied
from saga_runtime.protocol import OUTPUT_FIELD, CallField, CallMode, StepStatus
from saga_runtime.saga_log.external_rows import UndoEntry, is_over, undo_entry_of
from saga_runtime.saga_log.row_write import write_row
from saga_runtime.saga_log.rows import LogRow, is_late
from saga_runtime.saga_log.transaction import Committed
from saga_runtime.shared import aws, clock, telemetry
from saga_runtime.steps.atomic import Answer, read_row
from saga_runtime.steps.atomic_compensation import CompensationRefused
from saga_runtime.steps.external import LOOKS, ProviderStep
from saga_runtime.steps.external_call import (
    Given,
    Invocation,
    ask,
    call_out,
    still_in_doubt,
    undecided,
)
from saga_runtime.steps.step import StepCall, require_def
from saga_runtime.steps.verdict import Applied, Verdict


class ExternalCompensation(Generic[Given]):
    """A Lambda handler of the compensation of a step at a provider; made by ``external_compensation``.

    Attributes:
        function: calls the provider to compensate.
        of: the step that it undoes.
        verify_undo: queries the provider for the outcome of the compensation, if it can be queried.
    """

    __name__: str

    def __init__(
        self,
        function: Callable[[Given, Any], object],
        of: ProviderStep[Given],
        verify_undo: Callable[[Given, Any], Verdict] | None,
    ) -> None:
        require_def(function, "call", "output")
        require_def(verify_undo, "call", "output")
        functools.update_wrapper(self, function)
        self.function = function
        self.of = of
        self.verify_undo = verify_undo

    def __call__(self, event: Any, context: Any) -> Answer:
        """Handle one call by the state machine."""
        aws.check_protocol()
        call = StepCall.from_event(event, attempt=uuid.uuid4().hex, now_ms=clock.now_ms(), undo=True)
        invocation = Invocation.begin(call, event, context.get_remaining_time_in_millis, undoing=True)
        self.of.check(invocation)
        if invocation.provider.verify_undo and self.verify_undo is None:
            raise ProtocolMismatch(
                f"the saga declares that the undo of step {call.step} can be verified, and its function cannot: write "
                "external_compensation(of=..., verify_undo=...), or declare the provider without verify_undo"
            )
        mode = event.get(CallField.MODE)
        if mode not in (None, CallMode.LATE):
            raise ProtocolMismatch(f"a compensation is called to undo or to undo {CallMode.LATE}, got mode={mode!r}")
        try:
            done = self._run(invocation, only_late=mode is not None)
            telemetry.event("compensation", saga_id=call.saga_id, step=call.row_name, found=done)
            return {OUTPUT_FIELD: {}}
        finally:
            telemetry.flush()

    def _run(self, invocation: Invocation, *, only_late: bool) -> UndoEntry:
        call, mine = invocation.call, invocation.holder
        for _ in range(LOOKS):
            row = read_row(call)
            if only_late and not is_late(row):
                return UndoEntry.NOTHING
            entry = undo_entry_of(row, mine=mine, now_ms=call.now_ms, provider=invocation.provider)
            if row is None:
                buried = write_row(mine.bury(clock.now_ms()), remaining_ms=invocation.remaining_ms)
                if isinstance(buried, Committed):
                    return entry
            elif entry is UndoEntry.NOTHING:
                return entry
            elif row.status is StepStatus.INTENT:
                self.of.learn(invocation, row)
            elif self._undo(invocation, row, entry):
                return entry
        raise TransientError(f"the row of step {call.step} keeps changing")

    def _undo(self, invocation: Invocation, row: LogRow, entry: UndoEntry) -> bool:
        """Compensate an applied step, or continue a begun compensation; return whether it is compensated now."""
        call, mine = invocation.call, invocation.holder
        if entry is UndoEntry.WAIT:
            raise still_in_doubt(call, row)
        if entry is UndoEntry.UNDECIDED:
            raise undecided(call)
        output = call.decode(row.output)
        if entry is UndoEntry.VERIFY_UNDO:
            if isinstance(
                ask(self.verify_undo, invocation, self.of.given(invocation, undo=True), copied(output)), Applied
            ):
                return self._write_undone(invocation)
            if not is_over(row, call.now_ms, invocation.provider):
                raise still_in_doubt(call, row)
        now_ms = clock.now_ms()
        held = mine.undoing(now_ms, found=row.status) if entry is UndoEntry.UNDO else mine.take_over(row, now_ms)
        if not isinstance(write_row(held, remaining_ms=invocation.remaining_ms), Committed):
            return False
        try:
            found = call_out(self.function, invocation, self.of.given(invocation, undo=True), output)
        except PermanentError as refusal:
            raise CompensationRefused(f"the compensation of {call.step} was refused: {refusal.message}") from refusal
        if isinstance(found, Verdict) and not isinstance(found, Applied):
            raise StepInDoubt(
                f"the compensation of {call.step} returned {type(found).__name__}, which does not mean that it was "
                "applied; return nothing once it is, and let verify_undo return verdicts"
            )
        return self._write_undone(invocation)

    def _write_undone(self, invocation: Invocation) -> bool:
        entry = invocation.holder.undone(clock.now_ms())
        return isinstance(write_row(entry, remaining_ms=invocation.remaining_ms), Committed)


def external_compensation(
    *, of: ProviderStep[Given], verify_undo: Callable[[Given, Any], Verdict] | None = None
) -> Callable[[Callable[[Given, Any], object]], ExternalCompensation[Given]]:
    """Make a Lambda handler of a function that asks a provider outside to undo a step.

    The function is given a call (``call.key`` ends with ``#undo``, and ``call.provider_key`` is that key's) and the
    output that the step recorded. It is called only for an applied step. An unknown outcome is determined first:
    by the step's ``verify``, or, at an idempotent provider that cannot be asked, by repeating the step's own call,
    which is why the step comes along as ``of``. A step that was not applied is fenced: a tombstone in its row stops
    any attempt of it that comes later.

    ``verify_undo`` queries the provider for the outcome of an interrupted compensation. Needed if the provider is not
    idempotent on the compensation's key; without either, such a saga is parked.

    A late effect is compensated likewise, by an execution that does nothing else.

    Guaranteed: as for ``external_step``, of the undo. A compensation must not fail on business grounds: one that
    raises a ``PermanentError`` is tried again (``CompensationRefused``), and parked in the end.

    Args:
        of: the step that it undoes: of ``external_step`` or of ``callback_step``. Of the latter, the function is given
            a ``CallbackCall``.
        verify_undo: queries the provider for the outcome of the compensation: ``Applied()`` means compensated.

    Raises:
        TypeError: if ``of`` is neither an external step nor a callback step; or if a function is async, a
            generator, or takes other arguments: its call would do nothing.

    Example:
        >>> from saga_runtime import ExternalCall, external_compensation, external_step
        >>> payments: dict[str, str] = {}
        >>> @external_step
        ... def charge(call: ExternalCall) -> dict[str, str]:
        ...     return {"payment": payments.setdefault(call.provider_key, "charged")}
        >>> @external_compensation(of=charge)
        ... def refund(call: ExternalCall, output: dict[str, str]) -> None:
        ...     payments[call.provider_key] = f"refund of {output['payment']}"
    """
    if not isinstance(of, ProviderStep):
        raise TypeError(
            f"of must be an external step or a callback step, got {of!r}; decorate it with external_step or "
            "callback_step, and nothing after that"
        )
    return lambda function: ExternalCompensation(function, of, verify_undo)
