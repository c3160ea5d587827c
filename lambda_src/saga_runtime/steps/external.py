"""The external step: a function asks a provider outside to act, and the saga log knows before it does."""

from __future__ import annotations

import contextlib
import functools
import uuid
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from typing import Any, ClassVar, Final, Generic, overload

from botocore.exceptions import ClientError

from saga_runtime.errors import (
    Invalid,
    PermanentError,
    ProtocolMismatch,
    SagaFenced,
    StepInDoubt,
    TransientError,
    code_of,
)
from saga_runtime.protocol import OUTPUT_FIELD, CallField, CallMode, StepStatus
from saga_runtime.saga_log.external_rows import Entry, UndoEntry, entry_of, is_over, undo_entry_of
from saga_runtime.saga_log.row_write import write_row
from saga_runtime.saga_log.rows import LogRow
from saga_runtime.saga_log.transaction import Committed, RowRefused
from saga_runtime.shared import aws, clock, telemetry
from saga_runtime.steps.atomic import Answer, read_row, replay_or_fence
from saga_runtime.steps.external_call import (
    ExternalCall,
    Given,
    Invocation,
    ask,
    call_out,
    recorded_refusal,
    require_refusal,
    still_in_doubt,
    undecided,
)
from saga_runtime.steps.step import StepCall, decode_output, require_def
from saga_runtime.steps.verdict import Applied, NotApplied, Verdict

Act = Callable[[ExternalCall], Mapping[str, Any]]
Verify = Callable[[ExternalCall], Verdict]

LOOKS: Final = 8
"""Most reads of one row: a row changes less often than that; more means that something is wrong."""


class ProviderStep(ABC, Generic[Given]):
    """A step whose effect is at a provider: what its compensation and a verification need.

    Attributes:
        decorator: name of its decorator.
        verify: queries the provider for the outcome of the step, if it can be queried.
    """

    decorator: ClassVar[str]

    def __init__(self, verify: Callable[[Given], Verdict] | None) -> None:
        require_def(verify, "call")
        self.verify = verify

    @abstractmethod
    def given(self, invocation: Invocation, *, undo: bool = False) -> Given:
        """The call of the functions that act and verify, or with ``undo`` of those that compensate and verify that."""

    @abstractmethod
    def repeat(self, invocation: Invocation, row: LogRow) -> None:
        """Act again, only to learn the outcome of the step; read the row again afterwards."""

    def check(self, invocation: Invocation) -> None:
        """Refuse a saga that relies on what this function does not have.

        Raises:
            ProtocolMismatch: if the saga declares ``verify`` and the function has none.
        """
        if invocation.provider.verify and self.verify is None:
            raise ProtocolMismatch(
                f"the saga declares that step {invocation.call.step} can be verified, and its function cannot: write "
                f"{self.decorator}(verify=...), or declare Provider(idempotent_for=...) without verify"
            )

    def ask(self, invocation: Invocation) -> Any:
        """Determine the step's outcome, without applying it if possible; return its output if it is applied."""
        call, mine = invocation.call, invocation.holder
        for _ in range(LOOKS):
            row = read_row(call)
            if row is None:
                write_row(mine.bury(clock.now_ms()), remaining_ms=invocation.remaining_ms)
            elif row.status is StepStatus.INTENT:
                self.learn(invocation, row)
            else:
                telemetry.event("step_outcome_queried", saga_id=call.saga_id, step=call.row_name, found=row.status)
                return decode_output(row.output) if row.status is StepStatus.DONE else {}
        raise TransientError(f"the row of step {call.step} keeps changing")

    def learn(self, invocation: Invocation, row: LogRow) -> None:
        """Determine the outcome of a step in doubt, and write it into the row; read the row again afterwards.

        Raises:
            StepInDoubt: it is too early, or the provider is not done yet.
            ManualResolutionRequired: the outcome cannot be determined.
        """
        call, mine = invocation.call, invocation.holder
        entry = undo_entry_of(row, mine=mine, now_ms=call.now_ms, provider=invocation.provider)
        if entry is UndoEntry.WAIT:
            raise still_in_doubt(call, row)
        if entry is UndoEntry.VERIFY:
            verdict = self.ask_provider(invocation)
            if isinstance(verdict, Applied):
                self.write_verified(invocation, row, verdict)
            else:
                write_row(mine.not_applied(row, clock.now_ms()), remaining_ms=invocation.remaining_ms)
        elif entry is UndoEntry.REPEAT:
            self.repeat(invocation, row)
        else:
            raise undecided(call)

    def ask_provider(self, invocation: Invocation) -> Applied | NotApplied:
        """Ask the provider under the step's own key: ``Applied`` or ``NotApplied``."""
        return ask(self.verify, invocation, self.given(invocation))

    def write_verified(self, invocation: Invocation, row: LogRow, verdict: Applied) -> Committed | RowRefused:
        """Record the verified outcome of the attempt that was read."""
        output = _kept(invocation, verdict.output)
        entry = invocation.holder.done(output, clock.now_ms(), held=row.attempt)
        return write_row(entry, remaining_ms=invocation.remaining_ms)

    def _take_over(self, invocation: Invocation, row: LogRow) -> Committed | RowRefused:
        """Take over the row, unless another attempt took it over since it was read."""
        result = write_row(invocation.holder.take_over(row, clock.now_ms()), remaining_ms=invocation.remaining_ms)
        if isinstance(result, Committed):
            telemetry.event("step_taken_over", saga_id=invocation.call.saga_id, step=invocation.call.row_name)
        return result


class ExternalStep(ProviderStep[ExternalCall]):
    """A Lambda handler of an external step; made by ``external_step``.

    Attributes:
        function: calls the provider.
        verify: queries the provider for the outcome, if it can be queried.
    """

    __name__: str
    decorator = "external_step"

    def __init__(self, function: Act, verify: Verify | None) -> None:
        require_def(function, "call")
        super().__init__(verify)
        functools.update_wrapper(self, function)
        self.function = function

    def __call__(self, event: Any, context: Any) -> Answer:
        """Handle one call by the state machine."""
        aws.check_protocol()
        call = StepCall.from_event(event, attempt=uuid.uuid4().hex, now_ms=clock.now_ms())
        invocation = Invocation.begin(call, event, context.get_remaining_time_in_millis)
        self.check(invocation)
        mode = event.get(CallField.MODE)
        if mode not in (None, CallMode.VERIFY):
            raise ProtocolMismatch(f"an external step is called to act or to {CallMode.VERIFY}, got mode={mode!r}")
        try:
            return {OUTPUT_FIELD: self.ask(invocation) if mode else self._act(invocation)}
        except ClientError as error:
            refusal = aws.service_refusal(error)
            # Without a row the provider was not called: with one, the call may have been applied.
            if refusal is None or read_row(call) is not None:
                raise
            raise refusal from error
        finally:
            telemetry.flush()

    def given(self, invocation: Invocation, *, undo: bool = False) -> ExternalCall:
        """The functions' call."""
        return invocation.of_undo() if undo else invocation.of_step()

    def _act(self, invocation: Invocation) -> Any:
        call, mine = invocation.call, invocation.holder
        row: LogRow | None = None
        for _ in range(LOOKS):
            entry = entry_of(row, mine=mine, now_ms=call.now_ms, provider=invocation.provider)
            if row is None or entry is Entry.CLAIM:
                result = write_row(mine.intent(clock.now_ms()), remaining_ms=invocation.remaining_ms)
                if isinstance(result, Committed):
                    return self.call_provider(invocation, nobody_else=True)
            elif entry is Entry.CALL_AGAIN:
                result = self._take_over(invocation, row)
                if isinstance(result, Committed):
                    nobody_else = is_over(row, call.now_ms, invocation.provider)
                    return self.call_provider(invocation, nobody_else=nobody_else)
            elif entry is Entry.VERIFY:
                verdict = self.ask_provider(invocation)
                if isinstance(verdict, Applied):
                    result = self.write_verified(invocation, row, verdict)
                    if isinstance(result, Committed):
                        return decode_output(_kept(invocation, verdict.output))
                else:
                    result = self._take_over(invocation, row)
                    if isinstance(result, Committed):
                        return self.call_provider(invocation, nobody_else=True)
            else:
                return _settled(call, row, entry)
            row = result.row
        raise TransientError(f"the row of step {call.step} keeps changing")

    def repeat(self, invocation: Invocation, row: LogRow) -> None:
        """Call again: an idempotent provider returns the outcome of the first call."""
        if isinstance(self._take_over(invocation, row), Committed):
            # Refused, or decided by another attempt meanwhile: either way, the row decides.
            with contextlib.suppress(PermanentError, SagaFenced):
                self.call_provider(invocation, nobody_else=is_over(row, invocation.call.now_ms, invocation.provider))

    def call_provider(self, invocation: Invocation, *, nobody_else: bool) -> Any:
        """Call the provider once, and record the outcome. The row must be held.

        Args:
            invocation: holds the row.
            nobody_else: whether no request of an earlier attempt can still arrive. If one can, a
                refusal does not decide: the other request may be applied.

        Raises:
            PermanentError: the provider refused, and the row has the refusal.
            StepInDoubt: the provider refused, and an earlier request may yet be applied.
        """
        call = invocation.call
        try:
            output = _kept(invocation, call_out(self.function, invocation, self.given(invocation)))
        except PermanentError as refusal:
            require_refusal(refusal, invocation)
            if not nobody_else:
                raise StepInDoubt(
                    f"step {call.step} was refused while an earlier request may be on its way"
                ) from refusal
            entry = invocation.holder.failed(type(refusal).__name__, refusal.message, clock.now_ms())
            result = write_row(entry, remaining_ms=invocation.remaining_ms)
            if isinstance(result, RowRefused):
                return self._overtaken(invocation, result)
            telemetry.event("step_refused", saga_id=call.saga_id, step=call.row_name, code=code_of(refusal))
            raise
        result = write_row(invocation.holder.done(output, clock.now_ms()), remaining_ms=invocation.remaining_ms)
        if isinstance(result, RowRefused):
            return self._overtaken(invocation, result)
        telemetry.event("step_done", saga_id=call.saga_id, step=call.row_name)
        return decode_output(output)

    def _overtaken(self, invocation: Invocation, refused: RowRefused) -> Any:
        """Another attempt wrote the row during this one's call: the row decides, and nothing more is sent."""
        call, row = invocation.call, refused.row or read_row(invocation.call)
        entry = entry_of(row, mine=invocation.holder, now_ms=call.now_ms, provider=invocation.provider)
        if row is None or entry not in (Entry.REPLAY, Entry.REFUSED, Entry.FENCED):
            raise still_in_doubt(call, row)
        return _settled(call, row, entry)


def _settled(call: StepCall, row: LogRow, entry: Entry) -> Any:
    """Answer, or end, by the row alone."""
    match entry:
        case Entry.REFUSED:
            telemetry.event("step_refusal_replayed", saga_id=call.saga_id, step=call.row_name)
            raise recorded_refusal(row)
        case Entry.WAIT:
            raise still_in_doubt(call, row)
        case Entry.UNDECIDED:
            raise undecided(call)
        case Entry.FOREIGN:
            raise ProtocolMismatch(
                f"step {call.step} was run as a read-only step and is run as an external one now; "
                "recover the saga under the definition that it began with"
            )
        case _:
            return replay_or_fence(call, row)


def _kept(invocation: Invocation, output: Any) -> str:
    """The output as stored. It comes from an applied call, so an invalid output is not a refusal."""
    call = invocation.call
    try:
        # In a compensation only the compensating function receives the output: its size among others does not matter.
        return call.encode(output, alone=invocation.undoing)
    except Invalid as error:
        raise StepInDoubt(f"step {call.step} took effect, and its output cannot be kept: {error.message}") from error


@overload
def external_step(function: Act, /) -> ExternalStep: ...
@overload
def external_step(*, verify: Verify | None = None) -> Callable[[Act], ExternalStep]: ...
def external_step(
    function: Act | None = None, /, *, verify: Verify | None = None
) -> ExternalStep | Callable[[Act], ExternalStep]:
    """Make a Lambda handler of a function that asks a provider outside to act.

    The function is given an ``ExternalCall``, asks the provider under ``call.provider_key`` with a client timeout of
    ``call.timeout_seconds``, and returns the output. It raises ``Declined``, or a ``PermanentError`` of its own that
    the step's ``refusals`` name, when the provider clearly refused, and only then: a timeout, a broken connection, an
    answer that the key is in use or that it was used with other parameters are not refusals. Let such an exception out.
    Every other error leaves the step in doubt, whatever its class: ``Invalid`` and the ledger's errors, too.

    ``verify`` queries the provider for the call's outcome under the same key, and returns ``Applied(output=...)``,
    ``NotApplied()``, ``Pending()`` or ``Unknown()``. Without it, the saga must declare
    ``Provider(idempotent_for=...)``.

    Guaranteed: the provider is asked once per invocation at most, and never by two at a time. It is asked again only
    when every attempt before is certainly dead, and either it still knows the key or it reported not applied and
    no request could still arrive. The outcome is recorded once, and replayed from then on.

    Not guaranteed: anything, where a request travels for longer than ``Provider(grace=...)`` after its sender died, or
    where the provider does not keep what was declared of it.

    Args:
        function: calls the provider.
        verify: queries the provider for the outcome.

    Raises:
        TypeError: if a function is async, a generator, or takes other arguments: its call would do nothing.

    Raises (from the handler):
        PermanentError: the provider refused; nothing happened.
        StepInDoubt: not known yet; invoke again.
        ManualResolutionRequired: the outcome cannot be determined; operator action is required.
        TransientError: the saga log did not answer; invoke again.
        ServiceRefused: AWS refused to write the saga log for good; the provider was not asked.
        SagaFenced: the step was compensated.

    Example:
        >>> from saga_runtime import Applied, ExternalCall, NotApplied, external_step
        >>> payments: dict[str, str] = {}
        >>> def find(call: ExternalCall) -> Applied | NotApplied:
        ...     payment = payments.get(call.provider_key)
        ...     return Applied(output={"payment": payment}) if payment else NotApplied()
        >>> @external_step(verify=find)
        ... def charge(call: ExternalCall) -> dict[str, str]:
        ...     return {"payment": payments.setdefault(call.provider_key, f"payment-{len(payments)}")}
    """
    if function is not None:
        return ExternalStep(function, verify)
    return lambda act: ExternalStep(act, verify)
