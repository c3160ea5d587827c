"""One small hierarchy. A class's name is the error name that the state machine matches (``protocol.ErrorName``)."""

from __future__ import annotations

from typing import ClassVar


class SagaError(Exception):
    """Base of everything that the runtime raises on purpose.

    The message is shown to clients and stored in records: write nothing into it that a client may not see.

    Attributes:
        retryable: whether the same call may succeed later without anybody changing anything.
        code: stable code of the failure for clients and dashboards.
    """

    retryable: ClassVar[bool] = False
    code: ClassVar[str] = "ERROR"

    def __init__(self, message: str) -> None:
        if not message.strip():
            raise ValueError(f"an error needs a message, got {message!r}; say what is wrong and what would be right")
        super().__init__(message)

    @property
    def message(self) -> str:
        """The safe message."""
        return str(self.args[0])


class SagaFenced(SagaError):
    """Another execution owns this saga, or this step was compensated: stop, change nothing, claim nothing."""

    code = "FENCED"


class TransientError(SagaError):
    """Nothing was written, or it is unknown; the same call may succeed later, and its log row keeps it single."""

    retryable = True
    code = "THROTTLED"


class Conflict(TransientError):
    """Concurrent transactions met on one item; nothing of this one was written."""

    code = "CONFLICT"


class NotYet(TransientError):
    """A thing that this depends on does not exist yet; the same call may succeed later.

    An event for which a plan raises it is kept, and comes again.
    """

    code = "NOT_YET"


class StepInDoubt(SagaError):
    """True if the step took effect is not known yet; its log row will tell."""

    retryable = True
    code = "IN_DOUBT"


class StepUndecided(SagaError):
    """True if the step, or its undo, took effect cannot be found out by the machine: a person has to look."""

    code = "UNDECIDED"


class CallbackOverdue(SagaError):
    """A job's answer has not come within the time that its step declares; the provider is asked what became of it."""

    code = "OVERDUE"


class ServiceRefused(SagaError):
    """AWS refused a call of a step for what it asks, or for the role that asks; nothing was written.

    Raised under the service's own name (``protocol.SERVICE_REFUSALS``): ``AWS.ValidationException``, for example. The
    same call is refused again until code or permissions change.
    """

    code = "SERVICE_REFUSED"


class ProtocolMismatch(SagaError):
    """A function was called by a state machine of another release, or not by one of ours. Counts as in doubt."""

    retryable = True
    code = "PROTOCOL_MISMATCH"


class PermanentError(SagaError):
    """A refusal: nothing was written, and trying again with the same input is pointless.

    Subclass it for refusals of your own, and name each subclass in the step's ``refusals``: an error name that the
    state machine does not know counts as in doubt. Of an external step or a job, only ``Declined`` and the names in
    ``refusals`` are refusals.

    Attributes:
        job_id: of a job that a provider refused: its own id for it, if it has one. Should it do the job after all, and
            say so under that id, it is known what it speaks of.
    """

    code = "REFUSED"

    def __init__(self, message: str, *, job_id: str | None = None) -> None:
        super().__init__(message)
        if job_id is not None and not job_id.strip():
            raise ValueError(f"a provider's id of a job must not be blank, got {job_id!r}; leave it out if it has none")
        self.job_id = job_id


class Invalid(PermanentError):
    """The request itself is wrong."""

    code = "INVALID"


class CallbackTimedOut(PermanentError):
    """What a step waits for has not happened within the time that it declares; nothing was done that could stand."""

    code = "TIMED_OUT"


class Declined(PermanentError):
    """A provider outside clearly refused: nothing happened there, and nothing will."""

    code = "DECLINED"


class Rejected(PermanentError):
    """A person was asked to approve, and rejected. Every ``Step.wait_for`` knows it."""

    code = "REJECTED"
