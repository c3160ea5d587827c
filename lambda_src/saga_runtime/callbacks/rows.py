"""A provider's reports of a job, and the rows of the token table. Pure: data in, data out.

::

    (no row) --registered--> WAITING --received--> DELIVERING --delivered--> DELIVERED
    (no row) --received--> EARLY --registered--> DELIVERING --no task waits--> UNDELIVERED
    WAITING --registered again--> WAITING         DELIVERING, DELIVERED, UNDELIVERED --registered again--> DELIVERING

The saga log has the job's outcome; the token row only has its waiting task, and the outcome to deliver.
``decisions`` decides, ``writes`` makes the conditional writes.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Any, Final

from saga_runtime.errors import Invalid, PermanentError, ProtocolMismatch
from saga_runtime.idempotency.identity import is_saga_id, row_name_of
from saga_runtime.protocol import (
    ALIAS_PREFIX,
    EVENT_ID_PATTERN,
    EVENT_PREFIX,
    JOB_ID_PATTERN,
    PERMANENT_ERRORS,
    ErrorName,
    OutcomeField,
    TaskField,
    TokenAttribute,
    TokenStatus,
)
from saga_runtime.saga_log.external_rows import MAX_DETAIL
from saga_runtime.steps.step import encode_output

_EVENT_ID: Final = re.compile(EVENT_ID_PATTERN)
_JOB_ID: Final = re.compile(JOB_ID_PATTERN)
_ERROR_NAME: Final = re.compile(r"^[A-Za-z_][A-Za-z0-9_]{0,127}$")
_ROW_NAME: Final = re.compile(r"^([^\[]+)(?:\[(.+)\])?$")
_NO_REFUSALS: Final = frozenset(ErrorName) - frozenset(PERMANENT_ERRORS) - {ErrorName.CALLBACK_TIMED_OUT}
"""Names that mean something else to a saga than a refusal of a job."""
_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_ENTERED: Final = 2
"""Which part of an attempt's order is the time at which the state was entered."""


@dataclass(frozen=True, slots=True)
class Succeeded:
    """The job was done.

    Attributes:
        output: the step's output: a JSON object, under the rules of every step's output. It never travels by
            reference.

    Raises:
        Invalid: if a step must not have such an output.
    """

    output: Mapping[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        encode_output(self.output)


@dataclass(frozen=True, slots=True)
class Failed:
    """The job was not done, and will not be.

    Attributes:
        error: name of the refusal, like the name of a ``PermanentError``'s class. The step names it in its
            ``refusals``, unless it is one of ours.
        detail: why; shown to clients. More than 1,000 characters are cut off.

    Raises:
        Invalid: if ``error`` is not a name, or one with another meaning than a refused job.
    """

    error: str
    detail: str = ""

    def __post_init__(self) -> None:
        if not _is_text(self.error, _ERROR_NAME):
            raise Invalid(f"an error is named like a class, OutOfStock for example, got {self.error!r}")
        if self.error in _NO_REFUSALS:
            raise Invalid(
                f"{self.error} does not mean that a job was refused; use {PermanentError.__name__}, "
                f"{ErrorName.DECLINED} or a name of your own"
            )
        if not isinstance(self.detail, str):
            raise Invalid(f"the detail of a failed job is text, got {type(self.detail).__name__}")
        try:
            self.detail.encode("utf-8")
        except UnicodeEncodeError:
            raise Invalid(
                "the detail of a failed job holds half of a surrogate pair, which is not a character"
            ) from None


@dataclass(frozen=True, slots=True)
class Heartbeat:
    """The job is neither done nor refused: the task keeps waiting."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Callback:
    """A provider's report of a job.

    Attributes:
        job_id: the job: the id that the provider was given (``CallbackCall.job_id``), or the provider's own.
        event_id: what the provider sends again under the same id is the same event. None: a webhook's event is known
            again by the bytes of its body, EventBridge's by its ``id``; a direct call needs an id.
        outcome: ``Succeeded(output)``, ``Failed(error, detail)`` or ``Heartbeat()``.

    Raises:
        Invalid: if an id is blank, longer than 255 characters, or holds other than visible ASCII characters.
    """

    job_id: str
    event_id: str | None = None
    outcome: Succeeded | Failed | Heartbeat

    def __post_init__(self) -> None:
        check_job_id(self.job_id)
        if self.event_id is not None and not _is_text(self.event_id, _EVENT_ID):
            raise Invalid(
                f"event_id must match {EVENT_ID_PATTERN}, got {_shown(self.event_id)}; leave it out if there is none",
                job_id=self.job_id,
            )
        if not isinstance(self.outcome, Succeeded | Failed | Heartbeat):
            raise Invalid(
                f"an outcome is Succeeded, Failed or Heartbeat, got {type(self.outcome).__name__}; "
                "return None for an event that is not of interest",
                job_id=self.job_id,
            )


def callback_of(event: object) -> Callback:
    """Read a callback that came as JSON: ``job_id``, ``event_id``, and an ``outcome`` in one of three shapes.

    ``{"ok": true, "output": {...}}``, ``{"ok": false, "error": "...", "detail": "..."}``, or ``{"heartbeat": true}``,
    which needs no ``event_id``.

    Raises:
        Invalid: if it has another shape, or a part of it is not what it must be.
    """
    given: Mapping[str, Any] = event if isinstance(event, Mapping) else {}
    said: Any = given.get("outcome")
    fields = frozenset(said) if isinstance(said, Mapping) else frozenset()
    outcome: Succeeded | Failed | Heartbeat
    if fields == {"heartbeat"} and said["heartbeat"] is True:
        return Callback(job_id=given.get("job_id", ""), outcome=Heartbeat())
    if {"ok"} <= fields <= {"ok", "output"} and said["ok"] is True:
        outcome = Succeeded(said.get("output", {}))
    elif {"ok", "error"} <= fields <= {"ok", "error", "detail"} and said["ok"] is False:
        outcome = Failed(said["error"], said.get("detail", ""))
    else:
        raise Invalid(
            'an outcome is {"ok": true, "output": {...}}, {"ok": false, "error": "...", "detail": "..."} '
            'or {"heartbeat": true}'
        )
    return Callback(job_id=given.get("job_id", ""), event_id=given.get("event_id", ""), outcome=outcome)


def check_job_id(job_id: object) -> None:
    """Refuse what cannot be the id of a job.

    Raises:
        Invalid: if it is not 1 to 255 visible ASCII characters.
    """
    if not _is_text(job_id, _JOB_ID):
        raise Invalid(f"a job's id must match {JOB_ID_PATTERN}, got {_shown(job_id)}")


def _is_text(value: object, pattern: re.Pattern[str]) -> bool:
    return isinstance(value, str) and pattern.fullmatch(value) is not None


def _shown(value: object) -> str:
    return ascii(value)[:80]


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """Outcome of a job, as stored and delivered.

    Attributes:
        ok: whether it was done.
        output: of a job that was done: its output, JSON text.
        error, detail: of one that was not: why.
    """

    ok: bool
    output: str = ""
    error: str = ""
    detail: str = ""

    @classmethod
    def success(cls, output: str) -> Outcome:
        """The job was done; ``output`` is JSON text, as a saga log row keeps it."""
        return cls(ok=True, output=output)

    @classmethod
    def failure(cls, error: str, detail: str) -> Outcome:
        """The job was not done, or the saga must not continue."""
        return cls(ok=False, error=error, detail=detail[:MAX_DETAIL])

    @classmethod
    def of(cls, said: Succeeded | Failed) -> Outcome:
        """Convert a provider's outcome."""
        if isinstance(said, Succeeded):
            return cls.success(encode_output(said.output))
        return cls.failure(said.error, said.detail)

    def encode(self) -> str:
        """As it is stored."""
        f = OutcomeField
        fields: dict[str, Any] = {f.OK: self.ok}
        fields |= {f.OUTPUT: self.output} if self.ok else {f.ERROR: self.error, f.DETAIL: self.detail}
        return json.dumps(fields, sort_keys=True, separators=(",", ":"), ensure_ascii=False)

    @classmethod
    def decode(cls, text: str) -> Outcome:
        """Read what ``encode`` wrote.

        Raises:
            ValueError: for any other text.
        """
        f = OutcomeField
        try:
            fields = json.loads(text)
            if fields[f.OK] is True:
                return cls.success(str(fields[f.OUTPUT]))
            return cls.failure(str(fields[f.ERROR]), str(fields[f.DETAIL]))
        except (KeyError, TypeError, ValueError) as error:
            raise ValueError(f"not a stored outcome: {type(error).__name__}") from None


@dataclass(frozen=True, slots=True, kw_only=True)
class JobId:
    """A job's id, taken apart.

    Attributes:
        saga_id: the saga.
        step: the step's name.
        row_name: sort key of its row in the saga log: the step's name, with the item's key in a map.
    """

    saga_id: str
    step: str
    row_name: str

    @classmethod
    def parse(cls, text: str) -> JobId | None:
        """Take a step key apart; None if it is not one of a step: perhaps a provider's own id."""
        saga_id, _, row_name = text.partition("#")
        found = _ROW_NAME.fullmatch(row_name)
        if found is None or not is_saga_id(saga_id):
            return None
        step, item_key = found.groups()
        try:
            row_name_of(step, item_key)
        except ValueError:
            return None
        return cls(saga_id=saga_id, step=step, row_name=row_name)


def alias_of(integration: str, provider_id: str) -> str:
    """Id of the row of a provider's own id. Providers know nothing of each other's ids: two may use the same one."""
    return f"{ALIAS_PREFIX}{integration}#{provider_id}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Marker:
    """The row of a received event.

    A provider may use one event id for two things: an object's id, a counter for each order. So an event is a
    duplicate only if its job and its outcome are the same, too.

    Attributes:
        integration: which integration received it; two providers may use one id.
        event_id: the event's id, as it was sent.
        job_id: the job's id, as it was sent.
        ok: whether the event reports a success.
        reused: whether the id was used for something else before.
    """

    integration: str
    event_id: str
    job_id: str
    ok: bool
    reused: bool = False

    @property
    def id(self) -> str:
        """Id of the row: the event's id; of a reused id, all of the event's members."""
        text = f"{self.integration}#{self.event_id}"
        if self.reused:
            text = json.dumps([self.integration, self.event_id, self.job_id, self.ok])
        return f"{EVENT_PREFIX}{hashlib.sha256(text.encode()).hexdigest()}"

    def is_in(self, item: Mapping[str, Mapping[str, Any]] | None) -> bool:
        """Test whether a marker's item is of the same event, job and outcome."""
        a = TokenAttribute
        found = item or {}
        return found.get(a.JOB_ID) == {"S": self.job_id} and found.get(a.OK) == {"BOOL": self.ok}


def order_of(task: Mapping[str, Any]) -> str:
    """Text that compares as the age of an attempt does: execution's start, redrives, state's entry, retries.

    Args:
        task: ``TaskField`` as the state machine sends them: two ISO 8601 times and two counts.

    Raises:
        ProtocolMismatch: if a field is missing, or is not what it must be.
    """
    f = TaskField
    redriven, retried = (task.get(name, 0) for name in (f.REDRIVEN, f.RETRIED))
    if any(type(count) is not int or not 0 <= count <= 999_999 for count in (redriven, retried)):
        raise ProtocolMismatch(f"redrives and retries are counts, got {redriven!r} and {retried!r}")
    started, entered = (_milliseconds(task.get(name)) for name in (f.STARTED, f.ENTERED))
    return f"{started:015d}.{redriven:06d}.{entered:015d}.{retried:06d}"


def entered_at_of(order: str) -> int:
    """When the state was entered in which an attempt waits, epoch milliseconds: a part of its order."""
    return int(order.split(".")[_ENTERED])


def _milliseconds(text: object) -> int:
    try:
        moment = datetime.fromisoformat(str(text))
        return (moment - _EPOCH) // timedelta(milliseconds=1)
    except (TypeError, ValueError):
        raise ProtocolMismatch(f"a time is in ISO 8601 with a zone, got {_shown(text)}") from None


@dataclass(frozen=True, slots=True, kw_only=True)
class TokenRow:
    """A row of the token table, read back. Times are epoch milliseconds; 0: unknown.

    Attributes:
        token: who waits; never shown, never logged.
        order: of which attempt that is; empty: no task has waited yet.
        outcome: what is delivered to the waiting task.
        event_id: the event that the outcome came with.
        job_id: of an alias: its job.
        conflict: an outcome that contradicts the one that counts.
        applied_late_at: time of the late effect.
        dead_letters: of a job, the queue to notify if it is never reported.
        reported_unanswered_at: when that queue was notified.
        max_output: bytes that the job's output may have; 0: unknown.
        entry, queue_url: of a notice, what is sent to operators, and where.
        forgotten_at: of an outcome of an unknown job, when an operator closed it.
        decisions: of the same, the decisions of operators to close it, as they are stored; None: none.
        expiration: when the row expires, in epoch seconds; 0: never.
    """

    id: str
    status: TokenStatus
    updated_at: int
    token: str = field(default="", repr=False)
    order: str = ""
    outcome: Outcome | None = None
    event_id: str = ""
    log_table: str = ""
    request_table: str = ""
    execution: str = ""
    job_id: str = ""
    waiting_since: int = 0
    expected_at: int = 0
    wait_expires_at: int = 0
    heartbeat_at: int = 0
    dispatches: int = 0
    dispatch_error: str = ""
    conflict: Outcome | None = None
    applied_late_at: int = 0
    dead_letters: str = ""
    reported_unanswered_at: int = 0
    max_output: int = 0
    entry: str = ""
    queue_url: str = ""
    forgotten_at: int = 0
    decisions: Mapping[str, Any] | None = None
    created_at: int = 0
    due_at: int = 0
    expiration: int = 0

    @property
    def is_unknown(self) -> bool:
        """True if it has the outcome of a job that no saga has registered."""
        return self.status is TokenStatus.EARLY and self.id.startswith(ALIAS_PREFIX)

    def has_room_for(self, outcome: Outcome) -> bool:
        """Test whether a state of its saga has room for an outcome's output, with all others."""
        return not self.max_output or len(outcome.output.encode()) <= self.max_output

    @property
    def time_is_up_at(self) -> int:
        """When the step's time is up, all its attempts together; its dispatcher fails it then."""
        return entered_at_of(self.order) + self.wait_expires_at - self.waiting_since

    @classmethod
    def from_item(cls, item: Mapping[str, Mapping[str, Any]]) -> TokenRow:
        """Read an item.

        Raises:
            ValueError: if the item is not a row of a token table, or has an outcome that could not be delivered.
        """
        a = TokenAttribute

        def text(name: str) -> str:
            return str(item[name]["S"]) if name in item else ""

        def number(name: str) -> int:
            return int(item[name]["N"]) if name in item else 0

        def said(name: str) -> Outcome | None:
            return Outcome.decode(item[name]["S"]) if name in item else None

        try:
            row = cls(
                id=item[a.ID]["S"],
                status=TokenStatus(item[a.STATUS]["S"]),
                updated_at=int(item[a.UPDATED_AT]["N"]),
                token=text(a.TOKEN),
                order=text(a.ATTEMPT_ORDER),
                outcome=said(a.OUTCOME),
                event_id=text(a.EVENT_ID),
                log_table=text(a.LOG_TABLE),
                request_table=text(a.REQUEST_TABLE),
                execution=text(a.EXECUTION),
                job_id=text(a.JOB_ID),
                waiting_since=number(a.WAITING_SINCE),
                expected_at=number(a.EXPECTED_AT),
                wait_expires_at=number(a.WAIT_EXPIRES_AT),
                heartbeat_at=number(a.HEARTBEAT_AT),
                dispatches=number(a.FAILED_DISPATCHES),
                dispatch_error=text(a.DISPATCH_ERROR),
                conflict=said(a.CONFLICT),
                applied_late_at=number(a.APPLIED_LATE_AT),
                dead_letters=text(a.DEAD_LETTER_QUEUE_URL),
                reported_unanswered_at=number(a.REPORTED_UNANSWERED_AT),
                max_output=number(a.MAX_OUTPUT),
                entry=text(a.ENTRY),
                queue_url=text(a.QUEUE_URL),
                forgotten_at=number(a.FORGOTTEN_AT),
                decisions=item.get(a.DECISIONS),
                created_at=number(a.CREATED_AT),
                due_at=number(a.DUE_AT),
                expiration=number(a.EXPIRATION),
            )
        except KeyError as error:
            raise ValueError(f"not a row of a token table: attribute {error} is missing") from error
        waits = row.status in (TokenStatus.WAITING, TokenStatus.DELIVERING)
        if waits and not (row.token and row.order):
            raise ValueError(f"a row that is {row.status} needs a token and its order; neither may be empty")
        answered = row.status in (
            TokenStatus.EARLY,
            TokenStatus.DELIVERING,
            TokenStatus.DELIVERED,
            TokenStatus.UNDELIVERED,
        )
        if answered and row.outcome is None:
            raise ValueError(f"a row that is {row.status} needs an outcome")
        if row.status is TokenStatus.ALIAS and not row.job_id:
            raise ValueError("an alias needs its job")
        if row.status is TokenStatus.NOTICE and not (row.entry and row.queue_url):
            raise ValueError("a notice needs its entry and its queue; neither may be empty")
        return row
