"""Calling what a user wrote for a provider: with a client timeout, and until the last thread of it has ended."""

from __future__ import annotations

import threading
from collections.abc import AsyncGenerator, Awaitable, Callable, Coroutine, Generator
from dataclasses import dataclass, fields
from typing import Any, Final, TypeVar

from saga_runtime.errors import Declined, ManualResolutionRequired, PermanentError, Rejected, SagaError, StepInDoubt
from saga_runtime.idempotency.identity import step_key_of
from saga_runtime.protocol import CLIENT_SHARE, ErrorName, StepStatus
from saga_runtime.saga_log.external_rows import Holder
from saga_runtime.saga_log.provider import ProviderSettings
from saga_runtime.saga_log.rows import LogRow
from saga_runtime.shared import clock, telemetry
from saga_runtime.steps.step import StepCall
from saga_runtime.steps.verdict import Applied, NotApplied, Pending, Unknown, Verdict

Result = TypeVar("Result")

_THREAD_SECONDS: Final = 2.0
"""A thread that lives so long after its function is named in the log."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ExternalCall(StepCall):
    """One call of a function that talks to a provider.

    Attributes:
        timeout_seconds: how long a client may wait for the provider, all in all, in real seconds: give it to the HTTP
            client. It ends so long before the invocation does that the outcome can still be stored.
    """

    timeout_seconds: float


Given = TypeVar("Given", bound=ExternalCall)


@dataclass(frozen=True, slots=True, kw_only=True)
class Invocation:
    """One invocation of an external step or of its compensation.

    Attributes:
        call: the call that it is for.
        provider: what the saga declares of the provider.
        remaining_ms: how much time is left.
        deadline: epoch milliseconds at which this invocation is certainly dead.
        undoing: whether it is one of the compensation: what it learns of the step does not travel.
    """

    call: StepCall
    provider: ProviderSettings
    remaining_ms: Callable[[], int]
    deadline: int
    undoing: bool = False

    @classmethod
    def begin(cls, call: StepCall, event: Any, remaining_ms: Callable[[], int], *, undoing: bool = False) -> Invocation:
        """Begin one: its end is certain when its time is over, by any observer's clock, with a margin."""
        provider = ProviderSettings.from_event(event)
        left = remaining_ms()  # read before the clock: what passes in between makes the deadline later, not earlier
        deadline = _certainly_dead_at(clock.now_ms(), left, provider.margin_ms)
        return cls(call=call, provider=provider, remaining_ms=remaining_ms, deadline=deadline, undoing=undoing)

    @property
    def holder(self) -> Holder:
        """The attempt, as the saga log knows it."""
        call = self.call
        return Holder(
            table=call.log_table,
            saga_id=call.saga_id,
            row_name=call.row_name,
            side=call.side,
            attempt=call.attempt,
            deadline=self.deadline,
            keep_days=call.log_days,
        )

    @property
    def step_key(self) -> str:
        """The step's key, also in a compensation."""
        return step_key_of(self.call.saga_id, self.call.step, item_key=self.call.item_key)

    def of_step(self) -> ExternalCall:
        """The call of the functions that act and verify: with the step's key, also in a compensation."""
        return external_call_of(ExternalCall, self.call, self.step_key, self.remaining_ms)

    def of_undo(self) -> ExternalCall:
        """The call of the functions that compensate and verify a compensation."""
        return external_call_of(ExternalCall, self.call, self.call.key, self.remaining_ms)


def external_call_of(
    kind: type[Given], call: StepCall, key: str, remaining_ms: Callable[[], int], **more: str
) -> Given:
    """A call as a function that talks to a provider is given it, under a key."""
    own = call.anew()
    # Unchanged: what is in the payload bucket is read on access.
    given = {field.name: object.__getattribute__(own, field.name) for field in fields(StepCall)}
    seconds = clock.real_seconds(remaining_ms() * CLIENT_SHARE / 1_000)
    given |= {"key": key, "timeout_seconds": seconds, **more}
    return kind(**given)


def _certainly_dead_at(now_ms: int, remaining_ms: int, margin_ms: int) -> int:
    return now_ms + remaining_ms + margin_ms


def to_the_end(function: Callable[..., Result], *arguments: Any) -> Result:
    """Call a user's function and wait for every thread that it started.

    A thread that outlived its invocation would be frozen, and thaw in the next one: it could act for a step that was
    compensated long ago. So the invocation does not end before it. If it never ends, the invocation's timeout ends
    the sandbox, threads and all, by the deadline in the row; the log names the thread.

    Raises:
        StepInDoubt: what it returned would have to be awaited or iterated first: it has not done anything.
    """
    before = set(threading.enumerate())
    try:
        found = function(*arguments)
        if isinstance(found, Awaitable | Generator | AsyncGenerator):
            if isinstance(found, Coroutine | Generator):
                found.close()
            raise StepInDoubt(
                f"{getattr(function, '__name__', 'a function')} returned a {type(found).__name__}, and has not run; "
                "write def, and return the result"
            )
        return found
    finally:
        while started := [thread for thread in threading.enumerate() if thread not in before]:
            started[0].join(_THREAD_SECONDS)
            if started[0].is_alive():
                # What ended the invocation would not be seen otherwise: its timeout is all that is logged.
                telemetry.event("thread_awaited", threads=sorted(thread.name for thread in started))
                started[0].join()


def call_out(function: Callable[..., Result], invocation: Invocation, *arguments: Any) -> Result:
    """Call a user's function that talks to a provider.

    A state machine matches errors by their names, and another package's error may have the name of one of ours.

    Raises:
        StepInDoubt: the function raised an error that has such a name, and is not a ``SagaError``.
    """
    try:
        return to_the_end(function, *arguments)
    except Exception as error:
        if isinstance(error, SagaError) or type(error).__name__ not in {*ErrorName, *invocation.provider.refusals}:
            raise
        raise StepInDoubt(
            f"the function of step {invocation.call.step} raised {type(error).__name__}, which is not a PermanentError"
        ) from error


def require_refusal(error: PermanentError, invocation: Invocation) -> None:
    """Require that an error is the provider's refusal: ``Declined``, or one whose name the step declares.

    A function may raise after the provider acted. So an error of this package's own checks is never a refusal,
    whatever the step declares, and neither is a name that it does not declare.

    Raises:
        StepInDoubt: it is not a refusal.
    """
    kind = type(error)
    ours = kind.__module__.partition(".")[0] == __name__.partition(".")[0] and "recorded" not in vars(kind)
    named = kind.__name__ in {Declined.__name__, *invocation.provider.refusals}
    if not named or (ours and kind not in (Declined, Rejected)):
        raise StepInDoubt(
            f"the function of step {invocation.call.step} raised {kind.__name__}, which is not a refusal of its "
            f"provider: {error.message}; raise Declined, or a class of your own that the step's refusals name"
        ) from error


def ask(function: Callable[..., Verdict] | None, invocation: Invocation, *arguments: Any) -> Applied | NotApplied:
    """Query the provider for the outcome of a call; a pending one is an error.

    Args:
        function: the query; never None here, because both sides were compared before.
        invocation: the invocation that queries.
        arguments: the function's arguments, the call first.

    Raises:
        StepInDoubt: the provider is still processing, or could not be queried.
        ManualResolutionRequired: the provider cannot answer.
    """
    call, verdict = invocation.call, verdict_of(function, invocation, *arguments)
    match verdict:
        case Applied() | NotApplied():
            return verdict
        case Pending():
            raise StepInDoubt(f"the provider is not done with step {call.step} yet")
        case Unknown():
            raise nobody_knows(call, verdict)


def nobody_knows(call: StepCall, verdict: Unknown) -> ManualResolutionRequired:
    """Build the error of a provider that cannot answer."""
    why = f": {verdict.reason}" if verdict.reason.strip() else ""
    return ManualResolutionRequired(f"the provider cannot report the outcome of step {call.step}{why}")


def verdict_of(function: Callable[..., Verdict] | None, invocation: Invocation, *arguments: Any) -> Verdict:
    """Query the provider for the outcome of a call.

    Raises:
        StepInDoubt: the provider could not be queried.
        ManualResolutionRequired: there is no query function.
    """
    call = invocation.call
    if function is None:
        raise undecided(call)
    try:
        verdict = call_out(function, invocation, *arguments)
    except PermanentError as error:
        # A failed query is not an outcome: it must not be taken for a refusal of the step.
        raise StepInDoubt(f"the provider of step {call.step} did not report the outcome: {error.message}") from error
    telemetry.event("step_verified", saga_id=call.saga_id, step=call.row_name, verdict=type(verdict).__name__)
    if isinstance(verdict, Verdict):
        return verdict
    raise StepInDoubt(
        f"verify of step {call.step} returned {type(verdict).__name__}; return Applied, NotApplied, Pending or Unknown"
    )


def still_in_doubt(call: StepCall, row: LogRow | None) -> StepInDoubt:
    """Error of a caller that must wait for the outcome of the step, or of its compensation."""
    undoing = row is not None and row.status is StepStatus.COMPENSATING
    what = f"the compensation of step {call.step}" if undoing else f"step {call.step}"
    return StepInDoubt(f"the outcome of {what} is not known yet")


def undecided(call: StepCall) -> ManualResolutionRequired:
    """Build the error of an outcome that waiting cannot determine."""
    return ManualResolutionRequired(
        f"whether step {call.step} took effect cannot be found out: its provider no longer knows the key, "
        "and cannot be asked"
    )


def recorded_refusal(row: LogRow) -> PermanentError:
    """The refusal that a row keeps: an error of the recorded name, which is what Lambda reports and a saga matches."""
    return refusal_named(row.error or PermanentError.__name__, row.detail or "refused")


def refusal_named(name: str, message: str) -> PermanentError:
    """A refusal whose class has this name, whether or not this process knows such a class."""
    base = _known(name)
    members = {"__init__": SagaError.__init__, "code": base.code, "__module__": __name__, "recorded": True}
    kind: type[PermanentError] = type(name, (base,), members)
    return kind(message)


def _known(name: str) -> type[PermanentError]:
    """The class of that name, if this process has it: then ``except`` works for a replayed refusal, too."""
    waiting: list[type[PermanentError]] = [PermanentError]
    while waiting:
        kind = waiting.pop()
        if kind.__name__ == name and "recorded" not in vars(kind):
            return kind
        waiting += kind.__subclasses__()
    return PermanentError
