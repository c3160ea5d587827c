"""One small hierarchy. A class's name is the error name that the state machine matches (``protocol.ErrorName``)."""

from __future__ import annotations

import re
from enum import Enum
from typing import Any, ClassVar, Final

_MAX_CODE: Final = 100
_REFUSED: Final = re.compile("[\x00-\x08\x0b\x0c\x0e-\x1f\ud800-\udfff\ufffe\uffff]")


def accepted_text(text: str) -> str:
    """A text that every service takes, with question marks for other characters.

    Lambda and DynamoDB refuse half of a surrogate pair; SQS, what XML 1.0 does: U+FFFE, U+FFFF, and control characters
    other than tabs and ends of lines.
    """
    return _REFUSED.sub("?", text)


class SagaError(Exception):
    """Base of everything that the runtime raises on purpose.

    The message is shown to clients and stored in records: write nothing into it that a client may not see.

    Attributes:
        retryable: whether the same call may succeed later without anybody changing anything.
        code: stable code of the failure for clients and dashboards.
    """

    retryable: ClassVar[bool] = False
    code: ClassVar[str] = "ERROR"

    def __init_subclass__(cls, **more: Any) -> None:
        super().__init_subclass__(**more)
        code: object = cls.code
        if not isinstance(code, str) or not code.strip():
            raise TypeError(f"code of {cls.__name__} must be text that is not blank, got {code!r}; name the failure")

    def __init__(self, message: str) -> None:
        given: object = message  # a write's refusal gets an item: its class alone is not one
        if not isinstance(given, str):
            raise TypeError(f'an error\'s message must be text, got {given!r:.60}; write {type(self).__name__}("…")')
        if not message.strip():
            raise ValueError(f"an error needs a message, got {message!r}; state the problem and the remedy")
        # A text of a provider or client may hold what a service refuses: the refusal that repeats it would be in doubt,
        # and its saga could not settle while a queue refuses the notice of it.
        super().__init__(accepted_text(message))

    @property
    def message(self) -> str:
        """The safe message; the class's name where a subclass's ``__init__`` gives none."""
        return str(self.args[0]) if self.args else type(self).__name__


def code_of(error: SagaError) -> str:
    """An error's code, as text that every service takes: an instance's own may be anything, e.g. a provider's number.

    Without a printable character in it: the class's code.
    """
    for code in (error.code, type(error).code):
        value: object = code.value if isinstance(code, Enum) else code
        text = "" if value is None else str(value)
        printable = "".join(letter if letter.isprintable() else " " for letter in text[:_MAX_CODE]).strip()
        if printable:
            return printable
    return SagaError.code


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
    """The step's outcome is not known yet; its log row will have it."""

    retryable = True
    code = "IN_DOUBT"


class ManualResolutionRequired(SagaError):
    """The outcome of the step, or of its compensation, cannot be determined automatically: an operator must."""

    code = "UNDECIDED"


class JobStillPending(SagaError):
    """A job's outcome has not arrived within its step's timeout; the provider is queried."""

    code = "OVERDUE"


class ServiceRefused(SagaError):
    """AWS refused a call of a step for what it asks, or for the role that asks; nothing was written.

    Raised under the service's own name (``protocol.SERVICE_REFUSALS``): ``AWS.ValidationException``, for example. The
    same call is refused again until code or permissions change.
    """

    code = "SERVICE_REFUSED"


class ProtocolMismatch(SagaError):
    """A function was called by a state machine of another release, or not by a saga's. Treated as in doubt."""

    retryable = True
    code = "PROTOCOL_MISMATCH"


class PermanentError(SagaError):
    """A refusal: nothing was written, and trying again with the same input is pointless.

    Subclass it for refusals of your own, and name each subclass in the step's ``refusals``: an error name that the
    state machine does not know is in doubt. Of an external step or a job, only ``Declined`` and the names in
    ``refusals`` are refusals.

    Attributes:
        job_id: of a job that a provider refused: its own id for it, if it has one. If it does the job after all, and
            reports that under that id, the job is recognized.
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


class WaitTimedOut(PermanentError):
    """An awaited occurrence has not happened within the step's timeout; nothing was applied."""

    code = "TIMED_OUT"


class Declined(PermanentError):
    """A provider outside clearly refused: nothing happened there, and nothing will."""

    code = "DECLINED"


class Rejected(PermanentError):
    """A person was asked to approve, and rejected. Every ``Step.wait_for`` knows it."""

    code = "REJECTED"
