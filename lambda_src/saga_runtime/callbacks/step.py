"""The callback step: a function hands a job to a provider, and the state machine waits for the provider's word."""

from __future__ import annotations

import contextlib
import functools
import os
import uuid
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final, overload

from botocore.exceptions import BotoCoreError, ClientError

from saga_runtime.callbacks import record_dispatch_error
from saga_runtime.callbacks.dispatch import EarlierAttempt, HandOver, Job, VerifyJob, announce, job_call
from saga_runtime.callbacks.message import CallbackCall, Message
from saga_runtime.callbacks.subscriptions import served
from saga_runtime.callbacks.unanswered import is_unanswered_entry
from saga_runtime.errors import ProtocolMismatch, SagaError, StepInDoubt, TransientError
from saga_runtime.protocol import OUTPUT_FIELD, CallField, CallMode, Env, Metric
from saga_runtime.saga_log.rows import LogRow
from saga_runtime.shared import aws, clock, telemetry
from saga_runtime.steps.atomic import Answer
from saga_runtime.steps.external import ProviderStep
from saga_runtime.steps.external_call import Invocation, undecided
from saga_runtime.steps.step import StepCall, require_def

BEGIN_SHARE: Final = 0.5
"""A message is begun with so much of the time at least that it would have had if all had ended in theirs."""


class CallbackStep(ProviderStep[CallbackCall]):
    """A Lambda handler of a callback step's queue; made by ``callback_step``.

    Attributes:
        function: dispatches a job to the provider, or announces a wait; None: waits need no announcement.
        verify: queries the provider for a job's outcome, if it can be queried.
    """

    __name__: str
    decorator = "callback_step"

    def __init__(self, function: HandOver | None, verify: VerifyJob | None) -> None:
        require_def(function, "call")
        super().__init__(verify)
        if function is not None:
            functools.update_wrapper(self, function)
        self.function = function

    def __call__(self, event: Any, context: Any) -> Answer:
        """Handle a batch of the queue's messages, or a question of the state machine."""
        aws.check_protocol()
        remaining_ms: Callable[[], int] = context.get_remaining_time_in_millis
        try:
            if isinstance(event, Mapping) and "Records" in event:
                return {"batchItemFailures": self._batch(_deliveries(event), remaining_ms)}
            return {OUTPUT_FIELD: self._answer(event, remaining_ms)}
        finally:
            telemetry.flush()

    def given(self, invocation: Invocation, *, undo: bool = False) -> CallbackCall:
        """The call that the functions receive."""
        return job_call(invocation, undo=undo)

    def repeat(self, invocation: Invocation, row: LogRow) -> None:
        """A provider that accepts a job once more does not report its outcome.

        Raises:
            ManualResolutionRequired: always; the provider's report, or an operator's answer, decides.
        """
        telemetry.event("job_unverifiable", saga_id=row.saga_id, step=row.step)
        raise undecided(invocation.call)

    def _answer(self, event: Any, remaining_ms: Callable[[], int]) -> Any:
        call = StepCall.from_event(event, attempt=uuid.uuid4().hex, now_ms=clock.now_ms())
        invocation = Invocation.begin(call, event, remaining_ms)
        self.check(invocation)
        mode = event.get(CallField.MODE)
        if mode != CallMode.VERIFY:
            raise ProtocolMismatch(
                f"a callback step is called to {CallMode.VERIFY}, got mode={mode!r}; its jobs come from a queue"
            )
        return self.ask(invocation)

    def _batch(self, deliveries: Sequence[Delivery], remaining_ms: Callable[[], int]) -> list[dict[str, str]]:
        """Dispatch each message in its share of the time; those that have to come again."""
        failed: list[Delivery] = []
        least = BEGIN_SHARE * remaining_ms() / max(len(deliveries), 1)
        for index, delivery in enumerate(deliveries):
            share = remaining_ms() // (len(deliveries) - index)
            if share < least:
                telemetry.event("dispatch_deferred", message_id=delivery.message_id)
                failed.append(delivery)
            elif not self._dispatched(delivery, remaining_ms, share):
                failed.append(delivery)
        return [{"itemIdentifier": delivery.message_id} for delivery in failed]

    def _dispatched(self, delivery: Delivery, remaining_ms: Callable[[], int], share: int) -> bool:
        message: Message | None = None
        if is_unanswered_entry(delivery.body):
            # All dead letters were redriven into the queue; this one is an entry about a job, and not a job.
            telemetry.event("unanswered_entry_dropped", message_id=delivery.message_id)
            return True
        try:
            message = Message.parse(
                delivery.body,
                attempt=uuid.uuid4().hex,
                now_ms=clock.now_ms(),
                dead_letters=os.environ.get(Env.DEAD_LETTERS, ""),
            )
            self._dispatch(message, remaining_ms, share)
        except Exception as error:  # noqa: BLE001  # whatever it is, this message is redelivered, and the others continue
            _report(delivery, message, error)
            return False
        return True

    def _dispatch(self, message: Message, remaining_ms: Callable[[], int], share: int) -> None:
        until = remaining_ms() - share

        def in_its_share() -> int:
            return max(remaining_ms() - until, 0)

        if not message.job:
            announce(message, self.function, in_its_share)
            return
        if self.function is None:
            raise ProtocolMismatch(
                f"step {message.call.step} is a job, and no function dispatches it; give the integration "
                "CallbackIntegration(fn=...) with a function that callback_step decorates"
            )
        if not served(message.call.step, log=message.call.log_table):
            # Its step was renamed: a recovery, which does not know it, could neither fence it nor undo it.
            raise TransientError(
                f"step {message.call.step} must be one of the saga's, got a job of a step that it does not have; "
                "deploy functions and state machine together, or delete the message if the step was renamed"
            )
        # What counts for its deadline is when the invocation is dead, not when the share is over.
        invocation = Invocation.begin(message.call, message.event, remaining_ms)
        self.check(invocation)
        in_share = replace(invocation, remaining_ms=in_its_share)
        Job(message=message, invocation=in_share, hand_over=self.function, verify=self.verify).dispatch()


@dataclass(frozen=True, slots=True, kw_only=True)
class Delivery:
    """A message of the queue, as it was delivered.

    Attributes:
        message_id: the queue's name for it.
        body: what was put into the queue; it holds a token, so it is never shown.
        receives: how often it was delivered.
    """

    message_id: str
    body: object
    receives: int

    def __repr__(self) -> str:
        return f"Delivery(message_id={self.message_id!r}, receives={self.receives})"

    @property
    def is_last(self) -> bool:
        """True if it ends in the dead-letter queue if it fails."""
        most = os.environ.get(Env.MAX_RECEIVES, "")
        return most.isdecimal() and self.receives >= int(most)


def _deliveries(event: Mapping[str, Any]) -> list[Delivery]:
    records = event["Records"]
    try:
        return [
            Delivery(
                message_id=str(record["messageId"]),
                body=record["body"],
                receives=int(record["attributes"]["ApproximateReceiveCount"]),
            )
            for record in records
        ]
    except (KeyError, TypeError, ValueError):
        # Not a word of what they are: without ids no single message could be reported, so all come again.
        raise ProtocolMismatch(
            "a callback step's records are messages of an SQS queue; let nothing else invoke it"
        ) from None


def _report(delivery: Delivery, message: Message | None, error: Exception) -> None:
    """Log why a message is redelivered. Of an unknown error only its name is safe to show."""
    name = StepInDoubt.__name__ if isinstance(error, EarlierAttempt) else type(error).__name__
    text = f"{name}: {error.message}" if isinstance(error, SagaError) else name
    job_id = message.waiting.job_id if message is not None else ""
    telemetry.event("dispatch_failed", message_id=delivery.message_id, job_id=job_id, error=name, last=delivery.is_last)
    if delivery.is_last or not isinstance(error, StepInDoubt):
        telemetry.count(Metric.DISPATCH_FAILED, job_id=job_id, error=name)
    if message is not None:
        # It is only logged; that it could not be stored changes nothing for the message.
        with contextlib.suppress(SagaError, ClientError, BotoCoreError):
            in_doubt = isinstance(error, EarlierAttempt)
            record_dispatch_error(message.waiting.job_id, text, in_doubt=in_doubt)


@overload
def callback_step(function: HandOver, /) -> CallbackStep: ...
@overload
def callback_step(*, verify: VerifyJob | None = None) -> Callable[[HandOver], CallbackStep]: ...
def callback_step(
    function: HandOver | None = None, /, *, verify: VerifyJob | None = None
) -> CallbackStep | Callable[[HandOver], CallbackStep]:
    """Make a Lambda handler of a function that dispatches a job to an asynchronous provider.

    The handler takes batches of the queue of a ``CallbackIntegration`` and reports each message to redeliver
    individually. The function receives a ``CallbackCall``: it sends the provider the job's id (``call.job_id``), calls
    it under ``call.provider_key`` with a client timeout of ``call.timeout_seconds``, and returns nothing, or
    ``Accepted(job_id=...)`` if the provider speaks of the job under an id of its own. It raises ``Declined``,
    or a ``PermanentError`` of its own that the step's ``refusals`` name, when the provider clearly refused the job, and
    only then; any other exception lets the message come again.

    ``verify`` queries the provider for the outcome: ``Applied(output=...)``, ``NotApplied()``, ``Pending()`` while
    it is working, or ``Unknown()``. It runs after an interrupted dispatch, after a lost outcome, and before a
    compensation. Without it, a job whose outcome never arrives is parked.

    For a step that only waits (``Step.wait_for``), the function announces the wait, a mail with a link for example; it
    is called at least once for each attempt, and nothing is recorded of it.

    Guaranteed: the saga log states that the provider may be called, and the token table has the task, before it is
    called. The provider is asked once per delivery at most, and never by two at a time. It is asked again only when
    every attempt before is certainly dead, and either it still knows the key or it reported not applied and no request
    could still arrive. A known outcome of the job is delivered at once.

    Not guaranteed: anything, where a request travels for longer than ``Provider(grace=...)`` after its sender died, or
    where the provider does not keep what was declared of it.

    Args:
        function: dispatches the job.
        verify: queries the provider for the outcome.

    Raises:
        TypeError: if a function is async, a generator, or takes other arguments: its call would do nothing.

    Raises (from the handler, when it is called to ask):
        StepInDoubt: not known yet; invoke again.
        ManualResolutionRequired: the outcome cannot be determined; operator action is required.
        TransientError: the saga log did not answer; invoke again.

    Example:
        >>> from saga_runtime import Accepted, Applied, CallbackCall, NotApplied, Pending, Verdict, callback_step
        >>> picks: dict[str, dict[str, str]] = {}
        >>> def find(call: CallbackCall) -> Verdict:
        ...     pick = picks.get(call.job_id)
        ...     if not pick:
        ...         return NotApplied()
        ...     return Applied(output=pick) if "parcel" in pick else Pending()
        >>> @callback_step(verify=find)
        ... def pick(call: CallbackCall) -> Accepted | None:
        ...     picks.setdefault(call.job_id, {"order": call.provider_key})
        ...     return None
    """
    if function is not None:
        return CallbackStep(function, verify)
    return lambda hand_over: CallbackStep(hand_over, verify)
