"""Dispatch of one message: a job is dispatched to its provider once, or a wait is announced; the task is registered.

The order makes it safe. First the saga log: a decided outcome is delivered at once, and the possible call is
recorded before it is made. Then the task's registration, so that no outcome can precede it. Then the provider. A crash
in between leaves a row with the progress so far, and the message is redelivered.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from contextlib import suppress
from typing import Any

from saga_runtime.callbacks import (
    Callback,
    Failed,
    Outcome,
    Registration,
    Succeeded,
    Waiting,
    adopt_alias,
    adopt_unknown,
    answer_of,
    receive,
    register,
    send_directly,
)
from saga_runtime.callbacks.message import Accepted, CallbackCall, Message, job_entry_of
from saga_runtime.callbacks.receipt import Unserved
from saga_runtime.callbacks.store import read_token
from saga_runtime.callbacks.task_tokens import nobody_waits
from saga_runtime.errors import (
    Invalid,
    JobStillPending,
    PermanentError,
    ProtocolMismatch,
    SagaError,
    StepInDoubt,
    TransientError,
    WaitTimedOut,
    code_of,
)
from saga_runtime.saga_log.external_rows import Entry, is_over
from saga_runtime.saga_log.row_write import write_row
from saga_runtime.saga_log.rows import LogRow
from saga_runtime.saga_log.transaction import Committed
from saga_runtime.shared import clock, telemetry
from saga_runtime.steps.atomic import read_row
from saga_runtime.steps.external import LOOKS
from saga_runtime.steps.external_call import (
    Invocation,
    call_out,
    external_call_of,
    nobody_knows,
    require_refusal,
    still_in_doubt,
    to_the_end,
    undecided,
    verdict_of,
)
from saga_runtime.steps.verdict import Applied, NotApplied, Pending, Unknown, Verdict

HandOver = Callable[[CallbackCall], Accepted | None]
VerifyJob = Callable[[CallbackCall], Verdict]


class EarlierAttempt(StepInDoubt):
    """An earlier attempt may be alive, or its request on its way: this delivery only has to come again."""


def job_call(invocation: Invocation, *, undo: bool = False) -> CallbackCall:
    """The call that a job's functions receive."""
    key = invocation.call.key if undo else invocation.step_key
    return external_call_of(CallbackCall, invocation.call, key, invocation.remaining_ms, job_id=invocation.step_key)


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Job:
    """One delivery of a job.

    Attributes:
        message: what was delivered.
        invocation: the attempt.
        hand_over: dispatches the job to its provider.
        verify: queries the provider for the outcome.
    """

    message: Message
    invocation: Invocation
    hand_over: HandOver
    verify: VerifyJob | None

    def dispatch(self) -> None:
        """Ensure that the provider has the job, or deliver its outcome to the waiting task.

        Raises:
            StepInDoubt: an earlier attempt may be alive, or its request on its way; deliver the message again.
            TransientError: AWS did not respond; deliver the message again.
        """
        waiting, invocation = self.message.waiting, self.invocation
        result = write_row(invocation.holder.intent(clock.now_ms()), remaining_ms=invocation.remaining_ms)
        row = None if isinstance(result, Committed) else self._there(result.row)
        if row is not None and _replayed(waiting, row):
            return
        # Before the provider is asked: its answer may be quicker than whatever comes after that.
        registration = register(waiting)
        if registration in (Registration.OLD, Registration.ANSWERED):
            telemetry.event("stale_message_dropped", job_id=waiting.job_id, registration=registration)
        elif row is None:
            if not self._is_given_up():
                self._hand_over(nobody_else=True)
        else:
            self._go_on(row, registration)

    def _go_on(self, row: LogRow, registration: Registration) -> None:
        """Continue a job that an earlier attempt dispatched, or was about to."""
        for _ in range(LOOKS):
            asked = registration is Registration.SAME and self._asked_since_registered(row)
            there = self._go_on_from(row, asked=asked)
            if there is None or _replayed(self.message.waiting, there):
                return
            row = there
        raise TransientError(f"the row of step {self.invocation.call.step} keeps changing")

    def _go_on_from(self, row: LogRow, *, asked: bool) -> LogRow | None:
        """Continue from the row as read; return the current row if another attempt changed it."""
        call, provider = self.invocation.call, self.invocation.provider
        entry = job_entry_of(row, asked=asked, mine=self.invocation.holder, now_ms=call.now_ms, provider=provider)
        match entry:
            case None:
                if not asked:
                    self._waits_on()
            case Entry.CALL_AGAIN:
                return self._call_again(row, nobody_else=is_over(row, call.now_ms, provider))
            case Entry.VERIFY:
                verdict = verdict_of(self.verify, self.invocation, job_call(self.invocation))
                if isinstance(verdict, NotApplied):
                    return self._call_again(row, nobody_else=True)
                self._verified(row, verdict)
            case Entry.UNDECIDED:
                self._give_up(undecided(call))
            case _:
                raise EarlierAttempt(still_in_doubt(call, row).message)
        return None

    def _asked_since_registered(self, row: LogRow) -> bool:
        """Test whether the provider was called since this task waits; a delivery that crashed earlier does not count.

        Without the row this is unknown, and a query is harmless.
        """
        token = read_token(self.message.waiting.job_id) if row.accepted_at else None
        return token is not None and 0 < token.waiting_since <= row.accepted_at

    def _call_again(self, row: LogRow, *, nobody_else: bool) -> LogRow | None:
        """Take over the row and dispatch the job again, if there is time; otherwise return the current row."""
        if self._is_given_up():
            return None
        taken = self.invocation.holder.take_over(row, clock.now_ms())
        result = write_row(taken, remaining_ms=self.invocation.remaining_ms)
        if not isinstance(result, Committed):
            return self._there(result.row)
        telemetry.event("job_taken_over", job_id=self.message.waiting.job_id)
        self._hand_over(nobody_else=nobody_else)
        return None

    def _there(self, row: LogRow | None) -> LogRow:
        if row is None:
            raise TransientError(f"the row of step {self.invocation.call.step} keeps changing")
        return row

    def _verified(self, row: LogRow, verdict: Applied | Pending | Unknown) -> None:
        call = self.invocation.call
        match verdict:
            case Applied(output=output, job_id=own):
                # Before what is stored under its own id: of contradicting outcomes the success counts.
                self._say_done(output)
                self._know_as(own)
            case Pending(job_id=own):
                self._know_as(own)
                if self._waits_on():
                    # Refused: the outcome has arrived meanwhile, or another attempt continues.
                    accepted = self.invocation.holder.accepted(clock.now_ms(), held=row.attempt)
                    write_row(accepted, remaining_ms=self.invocation.remaining_ms)
            case Unknown():
                self._give_up(nobody_knows(call, verdict))

    def _waits_on(self) -> bool:
        """Return whether the task keeps waiting for the provider. If its time is up, it is failed.

        Nothing is written before that, or the task would be marked as notified when it was not.
        """
        if self._is_given_up():
            return False
        telemetry.event("job_pending", job_id=self.message.waiting.job_id)
        return True

    def _is_given_up(self) -> bool:
        """Test whether the step's time is up; then the task is failed, and the job is not dispatched any more.

        The state machine does not know: each of its attempts has its own timeout.
        """
        waiting = self.message.waiting
        if not self.message.is_overdue(clock.now_ms()):
            return False
        detail = f"step {self.invocation.call.step} has waited {waiting.timeout_seconds} s for an answer"
        self._give_up(JobStillPending(detail))
        return True

    def _give_up(self, error: SagaError) -> None:
        """Fail the waiting task: waiting longer cannot yield the outcome."""
        told = send_directly(self.message.waiting.token, Outcome.failure(type(error).__name__, error.message))
        telemetry.event("job_failed", job_id=self.message.waiting.job_id, error=type(error).__name__, delivered=told)

    def _hand_over(self, *, nobody_else: bool) -> None:
        """Call the provider once, and record that it accepted or refused the job. The row must be held.

        Args:
            nobody_else: whether no request of an earlier attempt can still arrive. If one can, a
                refusal does not determine the outcome.

        Raises:
            StepInDoubt: the provider refused, and the job may yet be done.
        """
        step, job_id = self.invocation.call.step, self.message.waiting.job_id
        try:
            accepted: object = call_out(self.hand_over, self.invocation, job_call(self.invocation))
        except PermanentError as refusal:
            require_refusal(refusal, self.invocation)
            if not nobody_else:
                raise StepInDoubt(f"job {job_id} was refused while an earlier request may be on its way") from refusal
            # Before the refusal is recorded: if it does the job after all, it reports that under its own id.
            self._know_as(getattr(refusal, "job_id", None))
            self._say(Failed(type(refusal).__name__, refusal.message))
            telemetry.event("job_refused", job_id=job_id, code=code_of(refusal))
            return
        if accepted is not None and not isinstance(accepted, Accepted):
            raise StepInDoubt(
                f"step {step} was dispatched, and its function returned {type(accepted).__name__}; "
                "return Accepted(job_id=...), or nothing if the provider uses call.job_id"
            )
        self._know_as(accepted.job_id if accepted is not None else None)
        # Refused: the provider has answered meanwhile.
        taken_on = self.invocation.holder.accepted(clock.now_ms())
        write_row(taken_on, remaining_ms=self.invocation.remaining_ms)
        telemetry.event("job_dispatched", job_id=job_id)

    def _know_as(self, own: str | None) -> None:
        """Keep the provider's own id for the job, if it has one."""
        if own not in (None, self.message.waiting.job_id):
            _adopt(self.invocation.call.step, str(own), self.message.waiting)

    def _say(self, outcome: Succeeded | Failed) -> None:
        """Treat the provider's immediate outcome as a callback."""
        event_id = f"dispatch:{self.invocation.call.attempt}"
        receive(Callback(job_id=self.message.waiting.job_id, event_id=event_id, outcome=outcome))

    def _say_done(self, output: Any) -> None:
        step = self.invocation.call.step
        try:
            self._say(Succeeded(output))
        except Invalid as error:
            raise StepInDoubt(f"step {step} took effect, and its output cannot be kept: {error.message}") from error


def _replayed(waiting: Waiting, row: LogRow) -> bool:
    """Test whether the row decides; then its outcome is delivered.

    No task is registered for a decided job. What was reported before its saga was served is adopted here.
    """
    answer = answer_of(row)
    if answer is None:
        return False
    with suppress(Unserved):  # the saga is long over: it stays an unknown job's
        adopt_unknown(waiting.job_id, waiting.keep_days)
    told = send_directly(waiting.token, answer)
    if not told:
        nobody_waits(waiting.job_id, waiting.request_table)
    telemetry.event("outcome_replayed", job_id=waiting.job_id, found=row.status, delivered=told)
    return True


def _adopt(step: str, provider_id: str, waiting: Waiting) -> None:
    try:
        adopt_alias(provider_id, waiting.job_id, waiting.keep_days)
    except Invalid as error:
        raise StepInDoubt(
            f"step {step} was dispatched, and its provider's id cannot be stored: {error.message}"
        ) from error


def announce(message: Message, function: HandOver | None, remaining_ms: Callable[[], int]) -> None:
    """Register a task that waits for an occurrence, and announce the wait.

    There is no effect, so nothing is written before. The function is called for each attempt that waits, at
    least once.

    Raises:
        TransientError: AWS did not respond; deliver the message again.
        ProtocolMismatch: the step was run as a job.
    """
    call, waiting = message.call, message.waiting
    row = read_row(call)
    if row is not None:
        if not _replayed(waiting, row):
            raise ProtocolMismatch(
                f"step {call.step} was run as a job and waits for no provider now; "
                "recover the saga under the definition that it began with"
            )
        return
    registration = register(waiting)
    if registration in (Registration.OLD, Registration.ANSWERED):
        telemetry.event("stale_message_dropped", job_id=waiting.job_id, registration=registration)
        return
    if message.is_overdue(clock.now_ms()):
        detail = f"what step {call.step} waits for has not happened within {waiting.timeout_seconds} s"
        told = send_directly(waiting.token, Outcome.failure(WaitTimedOut.__name__, detail))
        telemetry.event("wait_timed_out", job_id=waiting.job_id, delivered=told)
        return
    if function is not None:
        announced: object = to_the_end(
            function, external_call_of(CallbackCall, call, call.key, remaining_ms, job_id=waiting.job_id)
        )
        if isinstance(announced, Accepted) and announced.job_id not in (None, waiting.job_id):
            _adopt(call.step, str(announced.job_id), waiting)
    telemetry.event("wait_announced", job_id=waiting.job_id)
