"""A queue's message of a job, and the call that a user's functions receive. Pure."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from saga_runtime.callbacks.rows import entered_at_of, order_of
from saga_runtime.callbacks.writes import Waiting
from saga_runtime.errors import ProtocolMismatch
from saga_runtime.protocol import JOB_ID_PATTERN, CallField, WaitField
from saga_runtime.saga_log.external_rows import Entry, Holder, entry_of, is_over
from saga_runtime.saga_log.provider import ProviderSettings
from saga_runtime.saga_log.rows import LogRow
from saga_runtime.steps.external_call import ExternalCall
from saga_runtime.steps.step import Share, StepCall

_SECOND_MS: Final = 1_000


@dataclass(frozen=True, slots=True, kw_only=True)
class CallbackCall(ExternalCall):
    """One call of a function that hands a job to a provider, asks for it, undoes it, or announces a wait.

    Attributes:
        job_id: the job, by the id under which its provider must speak of it: the step key. Give it to the provider as
            a reference, unless the provider has ids of its own (``Accepted``). It holds a ``#``: quote it in a URL.
    """

    job_id: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Accepted:
    """The provider took the job on.

    Attributes:
        job_id: the provider's own id for it, under which it will speak of it; None: it speaks of ``call.job_id``.
    """

    job_id: str | None = None

    def __post_init__(self) -> None:
        if self.job_id is not None and not str(self.job_id).strip():
            raise ValueError(
                f"a provider's id of a job must match {JOB_ID_PATTERN}, got {self.job_id!r}; "
                "leave it out if the provider uses call.job_id"
            )


@dataclass(frozen=True, slots=True, kw_only=True)
class Message:
    """A job, or a wait, that a state machine sent to the queue.

    Attributes:
        event: a step function's event, and more.
        call: the call that it is for.
        waiting: the waiting task.
        entered_at: when the task's state was entered, epoch milliseconds.
        job: whether the provider works for the saga; otherwise the saga waits for an occurrence.
    """

    event: Mapping[str, Any] = field(repr=False)
    call: StepCall
    waiting: Waiting
    entered_at: int
    job: bool

    @classmethod
    def parse(cls, body: object, *, attempt: str, now_ms: int, dead_letters: str = "") -> Message:
        """Read a message's body.

        Args:
            body: what was delivered.
            attempt: who dispatches it.
            now_ms: the time.
            dead_letters: URL of the queue to notify if a job is never reported; empty: none.

        Raises:
            ProtocolMismatch: if it was not sent by a saga, or by one that speaks another protocol.
            Invalid: if it names an item by a key that no row can have.
        """
        f = CallField
        event = _object(body)
        call = StepCall.from_event(event, attempt=attempt, now_ms=now_ms)
        task, wait = event.get(f.TASK), event.get(f.WAIT)
        if not isinstance(task, Mapping) or not isinstance(wait, Mapping):
            raise ProtocolMismatch(f"a message of step {call.step} has neither a token nor a timeout; {_REMEDY}")
        order, job = order_of(task), event.get(f.PROVIDER) is not None
        waiting = Waiting(
            job_id=call.key,
            saga_id=call.saga_id,
            row_name=call.row_name,
            token=_text(event, f.TOKEN),
            order=order,
            log_table=call.log_table,
            request_table=_text(event, f.REQUEST_TABLE),
            execution=_text(event, f.EXECUTION),
            heartbeat_seconds=_seconds(wait, WaitField.HEARTBEAT),
            timeout_seconds=_seconds(wait, WaitField.TIMEOUT),
            keep_days=call.log_days,
            max_output=(call.share or Share()).most(call.outputs),
            dead_letters=dead_letters if job else "",
        )
        return cls(event=event, call=call, waiting=waiting, entered_at=entered_at_of(order), job=job)

    def is_overdue(self, now_ms: int) -> bool:
        """Test whether the time is up for which the step waits, all its attempts together."""
        return now_ms >= self.entered_at + self.waiting.timeout_seconds * _SECOND_MS


_REMEDY: Final = "declare the step with Step.callback or Step.wait_for, and deploy functions and state machine together"


def _object(body: object) -> Mapping[str, Any]:
    try:
        event = json.loads(body) if isinstance(body, str) else None
    except (ValueError, RecursionError):
        event = None
    if not isinstance(event, Mapping):
        # Its contents are not shown: they may be anything, a token included.
        raise ProtocolMismatch(f"a message of this queue is a JSON object that a saga sent; {_REMEDY}")
    return event


def _text(event: Mapping[str, Any], name: CallField) -> str:
    value = event.get(name)
    if not isinstance(value, str) or not value.strip():
        raise ProtocolMismatch(f"a message's {name} is text that is not blank; {_REMEDY}")
    return value


def _seconds(wait: Mapping[str, Any], name: WaitField) -> int:
    value = wait.get(name)
    if type(value) is not int or value < 1:
        raise ProtocolMismatch(f"a message's {name} is a number of whole seconds, 1 or more, got {value!r}; {_REMEDY}")
    return value


def job_entry_of(row: LogRow, *, asked: bool, mine: Holder, now_ms: int, provider: ProviderSettings) -> Entry | None:
    """Decide the dispatcher's action for a job in doubt: ``INTENT``, of another attempt.

    Args:
        row: the row.
        asked: whether the provider accepted the job, or was called, since the waiting task began to wait. If
            not, an earlier task waited, and ended without an outcome or a heartbeat.
        mine: the dispatcher's attempt.
        now_ms: the time.
        provider: what the saga declares of the provider.

    Returns:
        None: the provider has the job, and will answer.
    """
    if not row.accepted_at:
        return entry_of(row, mine=mine, now_ms=now_ms, provider=provider)
    if asked or not provider.verify:
        # Dispatching a job again that the provider has would yield nothing: it would accept it once more.
        return None
    return Entry.VERIFY if is_over(row, now_ms, provider) else Entry.WAIT
