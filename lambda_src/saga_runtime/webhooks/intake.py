"""Events that begin something: a provider's webhook, or an event of a bus, as the request of an operation.

An event of a direct operation is applied by one transaction: the record under its business key, and the writes. An
event of a saga reserves the record, and starts the saga; an inline one begins in an asynchronous Express execution, so
that no message waits for it. So a redelivery, and another event of the same happening, meet
the record. What can come of an event:

* applied: record and writes exist, or the record and its saga;
* a duplicate: the record exists;
* not of interest: the function that reads events returns None, and nothing is written;
* not yet: what the event is about does not exist yet (``NotYet``). The event is put into the queue of kept events, and
  comes again from there;
* refused: no redelivery changes that (a ``PermanentError``, or the key was used for another request). The event is put
  into the queue of parked events, for the operators. No record is written: an event that they redrive is applied;
* anything else, also a refusal after a try that was not answered: nothing is known. The sender gets no 2xx, and sends
  the event again.
"""

from __future__ import annotations

import functools
import json
import os
import uuid
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from functools import lru_cache
from typing import Any, Final

from botocore.exceptions import BotoCoreError, ClientError

from saga_runtime.errors import Conflict, Invalid, NotYet, PermanentError, TransientError, code_of
from saga_runtime.http.direct_operation import DirectCall, response_of
from saga_runtime.http.inline import begin as begin_express
from saga_runtime.http.operation import read_record
from saga_runtime.http.response import HttpAnswer, Problem, answer, problem
from saga_runtime.http.starting import SagaSettings, reserve, start
from saga_runtime.idempotency.identity import (
    TooLarge,
    canonical_json,
    fingerprint_of,
    parse_json,
    request_id_of,
    saga_id_of,
    scope_of,
)
from saga_runtime.idempotency.record import DirectRecord, Met, RequestRecord, Reservation, direct_put, what_was_met
from saga_runtime.payloads.claim_check import copied
from saga_runtime.payloads.references import has_reserved_member
from saga_runtime.payloads.request_paths import refuse_inexact
from saga_runtime.protocol import (
    INLINE_BODY_BYTES,
    MAX_KEY_LENGTH,
    REFERENCE_FIELD,
    Env,
    EventField,
    Metric,
    RecordStatus,
)
from saga_runtime.saga_log.transaction import Committed, commit_first
from saga_runtime.saga_log.write import Write
from saga_runtime.shared import aws, clock, telemetry, writes
from saga_runtime.shared.arns import execution_of
from saga_runtime.shared.backoff import Backoff
from saga_runtime.steps.step import Commit, require_commit, require_def
from saga_runtime.webhooks import messages
from saga_runtime.webhooks.receiver import WebhookEvent, log_failure, scheme, signed, unavailable

CALLER: Final = "event"
"""Kind of the caller in the scope of an event's record: a client's key is never an event's."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Begin:
    """The request that an event makes.

    Attributes:
        key: business key of what happened: the same in every event that reports it, e.g. ``pi_1/succeeded``. 1 to 255
            printable ASCII characters.
        request: a JSON object; the same in every event that reports it. So take the amount and the customer
            into it, and not the event's id or time.
        event_id: the event's own id, for logs.
    """

    key: str
    request: Mapping[str, Any]
    event_id: str | None = None

    def __post_init__(self) -> None:
        if not isinstance(self.key, str):
            raise Invalid(f"key must be text, got {type(self.key).__name__}; write the id as text")
        if not isinstance(self.request, Mapping):
            raise Invalid(f"request must be a JSON object, got {type(self.request).__name__}; use a mapping")
        printable = self.key.isascii() and self.key.isprintable() and bool(self.key.strip())
        if not printable or len(self.key) > MAX_KEY_LENGTH:
            found = "another" if not printable else f"a longer one, of {len(self.key)}"
            found = found if self.key.strip() else "an empty or blank one"
            raise Invalid(
                f"key must be 1 to {MAX_KEY_LENGTH} printable ASCII characters, got {found}; use the id of what "
                "happened"
            )


_SPARE_MS: Final = 3_000
"""Of a batch, nothing is begun with less time left."""
_NO_CODE: Final = "UNNAMED"
"""Reason of an event without an error's code: SQS takes no empty attribute."""
_TOO_LARGE: Final = "TOO_LARGE"
"""Reason of a change that fits into no message."""


class Begun(StrEnum):
    """Outcomes of an event."""

    APPLIED = "APPLIED"
    DUPLICATE = "DUPLICATE"
    IGNORED = "IGNORED"
    KEPT = "KEPT"
    PARKED = "PARKED"


_COUNTED: Final = {
    Begun.APPLIED: Metric.EVENT_APPLIED,
    Begun.DUPLICATE: Metric.EVENT_DUPLICATE,
    Begun.KEPT: Metric.EVENT_KEPT,
    Begun.PARKED: Metric.EVENT_PARKED,
}
ReadEvent = Callable[[Any], Begin | None]
"""Reads a ``WebhookEvent``, or an event of a bus."""
Beginning = Callable[[Any], tuple[Begun, str]]
"""Begins what an event reports. Returns the outcome; and the error's code, if it is to be kept or parked: no write of
it has taken effect. Raises ``Invalid`` for what is not an event, and anything else if nothing is known."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DirectSettings:
    """Settings of an ``EventIntake`` whose events are direct operations."""

    replay_seconds: int
    remember_seconds: int
    backoff: Backoff

    @classmethod
    def from_env(cls, env: Mapping[str, str]) -> DirectSettings:
        """Read the environment; a missing variable is a KeyError at cold start."""
        return cls(
            replay_seconds=int(env[Env.REPLAY_SECONDS]),
            remember_seconds=int(env[Env.REMEMBER_SECONDS]),
            backoff=Backoff.from_json(env.get(Env.CONFLICT_BACKOFF)),
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """Settings of an ``EventIntake``: those of what its events begin are in ``begins``."""

    operation: str
    request_table: str
    due_shards: int
    kept: str
    parked: str
    begins: DirectSettings | SagaSettings

    @classmethod
    def from_env(cls, env: Mapping[str, str]) -> Settings:
        """Read the environment; a missing variable is a KeyError at cold start."""
        return cls(
            operation=env[Env.OPERATION],
            request_table=env[Env.REQUEST_TABLE],
            due_shards=int(env[Env.DUE_SHARDS]),
            kept=env[Env.KEPT_EVENTS],
            parked=env[Env.PARKED_EVENTS],
            begins=SagaSettings.from_env(env) if Env.STATE_MACHINE_ARN in env else DirectSettings.from_env(env),
        )


@lru_cache(maxsize=1)
def settings() -> Settings:
    """This function's settings, read once."""
    aws.check_protocol()
    return Settings.from_env(os.environ)


def event_operation(read: ReadEvent) -> Callable[[Callable[[DirectCall], Commit]], EventOperation]:
    """Make a Lambda handler of a function that reads events, and one that plans what each of them does.

    Guaranteed: of all events with one key, the writes of one take effect, together with the record that counts the
    others as duplicates. An event that was answered with a 2xx, or deleted from its queue, is applied, a duplicate, not
    of interest, kept, or parked. A function that fails leaves no record: the redelivery counts.

    Not guaranteed: order. A plan that needs another event first raises ``NotYet``.

    Args:
        read: returns what an event begins, or None if it is not of interest. It does nothing but read.

    Raises:
        TypeError: if a function is async, a generator, or takes other arguments: its call would do nothing.

    Example:
        >>> from saga_runtime import Begin, Commit, DirectCall, WebhookEvent, event_operation
        >>> def read(event: WebhookEvent) -> Begin | None:
        ...     found = event.json
        ...     if found["type"] != "paid":
        ...         return None
        ...     return Begin(key=found["payment"], request={"amount": found["amount"]}, event_id=found["id"])
        >>> @event_operation(read)
        ... def handler(call: DirectCall) -> Commit:
        ...     return Commit(output={"credited": call.request["amount"]})
    """
    return functools.partial(EventOperation, read)


def event_saga(read: ReadEvent) -> EventSaga:
    """Make a Lambda handler of a function that reads events, each of which begins a saga.

    Guaranteed: of all events with one key, one saga starts. An event that was answered with a 2xx, or deleted from its
    queue, has its record, is not of interest, kept, or parked.

    Not guaranteed: order. A reader may read strongly, and raise ``NotYet`` if another event has to come first.

    Raises:
        TypeError: if the function is async, a generator, or takes other arguments: its call would do nothing.

    Example:
        >>> from saga_runtime import Begin, WebhookEvent, event_saga
        >>> @event_saga
        ... def handler(event: WebhookEvent) -> Begin | None:
        ...     found = event.json
        ...     return Begin(key=found["order"], request={"order": found["order"]}, event_id=found["id"])
    """
    return EventSaga(read)


class _EventHandler:
    """A Lambda handler behind an ``EventIntake``: it answers a webhook, or takes a batch of messages or changes.

    Attributes:
        read: reads events.
    """

    __name__: str

    def __init__(self, read: ReadEvent) -> None:
        require_def(read, "event")
        self.read = read

    def __call__(self, event: Any, context: Any) -> dict[str, Any]:
        """Answer one webhook, or take a batch: kept events, messages of another queue, changes of a table."""
        config = settings()
        remaining_ms = context.get_remaining_time_in_millis
        taken = _Taken(config, self._beginning(config, remaining_ms), remaining_ms)
        try:
            if "Records" in event:
                return {"batchItemFailures": [{"itemIdentifier": each} for each in taken.from_batch(event["Records"])]}
            return signed(event, scheme(), taken.from_webhook, refused=Metric.EVENT_REFUSED).to_proxy()
        finally:
            telemetry.flush()

    def _beginning(self, config: Settings, remaining_ms: Callable[[], int]) -> Beginning:
        raise NotImplementedError


class EventOperation(_EventHandler):
    """A Lambda handler that applies events; made by ``event_operation``.

    Attributes:
        read: reads events.
        function: plans what an event does.
    """

    def __init__(self, read: ReadEvent, function: Callable[[DirectCall], Commit]) -> None:
        super().__init__(read)
        require_def(function, "call")
        functools.update_wrapper(self, function)
        self.function = function

    def _beginning(self, config: Settings, remaining_ms: Callable[[], int]) -> Beginning:
        if not isinstance(config.begins, DirectSettings):
            raise TypeError("the events of this EventIntake begin sagas; make its handler with event_saga")
        return _Applied(config, config.begins, self.read, self.function, remaining_ms).begin


class EventSaga(_EventHandler):
    """A Lambda handler that begins a saga by each event; made by ``event_saga``.

    Attributes:
        read: reads events.
    """

    def __init__(self, read: ReadEvent) -> None:
        super().__init__(read)
        functools.update_wrapper(self, read)

    def _beginning(self, config: Settings, remaining_ms: Callable[[], int]) -> Beginning:
        del remaining_ms
        if not isinstance(config.begins, SagaSettings):
            raise TypeError(
                "the events of this EventIntake are direct operations; make its handler with event_operation"
            )
        return _Started(config, config.begins, self.read).begin


class _Taken:
    """The events of one invocation."""

    def __init__(self, config: Settings, begin: Beginning, remaining_ms: Callable[[], int]) -> None:
        self._config = config
        self._begin = begin
        self._remaining_ms = remaining_ms

    def from_webhook(self, event: WebhookEvent) -> HttpAnswer:
        """Answer a provider; its signature was right. A 2xx comes after whatever it promises was written."""
        try:
            result, code = self._begin(event)
            if result in {Begun.KEPT, Begun.PARKED}:
                self._send(self._queue_of(result), messages.of_webhook(event), code)
        except Invalid as error:
            _failed("webhook", error)
            return problem(Problem.BAD_BODY, error.message)
        except Exception as error:  # noqa: BLE001  # whatever it is, the provider sends it again
            _failed("webhook", error)
            return unavailable()
        _count(result)
        return answer(202 if result in {Begun.KEPT, Begun.PARKED} else 200, {"received": True})

    def from_batch(self, records: Sequence[Mapping[str, Any]]) -> list[str]:
        """Take a batch of one source, for as long as there is time.

        Returns:
            Ids of the records that Lambda is to deliver again. Of a table's changes it delivers all from the first one
            on, and of a FIFO queue's group it must, so neither continues behind a failure
            (docs.aws.amazon.com/lambda, "Reporting batch item failures").
        """
        again: list[str] = []
        held_back: set[str] = set()
        for number, record in enumerate(records):
            # A function that dies reports nothing, and gets the whole batch again: so the rest is given back before.
            in_time = number == 0 or self._remaining_ms() > _SPARE_MS
            if record.get("eventSource") == "aws:dynamodb":
                if not in_time or not self._from_table(record):
                    return [record["dynamodb"]["SequenceNumber"]]
                continue
            group = _group_of(record)
            if not in_time or group in held_back or not self._from_queue(record):
                again.append(record["messageId"])
                if group is not None:
                    held_back.add(group)
        return again

    def _from_queue(self, record: Mapping[str, Any]) -> bool:
        """Take a message.

        Returns:
            Whether it is done with, and is to be deleted. Otherwise it comes again; too often, and it is parked.
        """
        text = record["body"]
        own = _is_from(self._config.kept, record)
        try:
            # Another queue's message is never read as a webhook's event, whose signature was verified.
            result, code = self._begin(messages.event_in(text) if own else messages.object_of(text))
        except Invalid as error:
            _failed("queue", error)
            result, code = Begun.PARKED, code_of(error)
        except Exception as error:  # noqa: BLE001  # whatever it is, the message comes again
            _failed("queue", error)
            return False
        try:
            if result is Begun.PARKED or (result is Begun.KEPT and not own):
                self._send(self._queue_of(result), text if own else messages.of_message(text), code)
        except Exception as error:  # noqa: BLE001  # as above
            _failed("queue", error)
            return False
        _count(result)
        return result is not Begun.KEPT or not own

    def _from_table(self, record: Mapping[str, Any]) -> bool:
        """Take a change of a table. One that fails is kept: it would hold back all changes behind it.

        Returns:
            Whether it is done with. Otherwise neither DynamoDB nor the queue took it, and Lambda delivers it again.
        """
        try:
            # Lambda's own numbers of a change, its time, are floats; a reader may put them into a request.
            result, code = self._begin(parse_json(json.dumps(record)))
        except Invalid as error:
            _failed("stream", error)
            result, code = Begun.PARKED, code_of(error)
        except Exception as error:  # noqa: BLE001  # whatever it is, the change comes again from the queue
            _failed("stream", error)
            result, code = Begun.KEPT, type(error).__name__
        try:
            if result in {Begun.KEPT, Begun.PARKED}:
                result = self._set_aside(record, result, code)
        except Exception as error:  # noqa: BLE001  # as above
            _failed("stream", error)
            return False
        _count(result)
        return True

    def _set_aside(self, record: Mapping[str, Any], result: Begun, code: str) -> Begun:
        """Keep or park a change; one that fits into no message is named in the queue of parked events."""
        try:
            body = messages.of_change(record)
        except TooLarge as error:
            _failed("stream", error)
            self._send(self._config.parked, messages.naming(record), _TOO_LARGE)
            return Begun.PARKED
        self._send(self._queue_of(result), body, code)
        return result

    def _queue_of(self, result: Begun) -> str:
        return self._config.kept if result is Begun.KEPT else self._config.parked

    @staticmethod
    def _send(queue: str, body: str, code: str) -> None:
        aws.sqs().send_message(
            QueueUrl=queue,
            MessageBody=body,
            MessageAttributes={EventField.REASON: {"DataType": "String", "StringValue": code or _NO_CODE}},
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class _Keyed:
    """An event's request under its business key."""

    begin: Begin
    text: str
    scope: str
    request_id: str
    fingerprint: str
    now_ms: int
    saga_id: str
    """Id of the operation, or of the saga, that this invocation would begin."""


def _begin_of(read: ReadEvent, event: Any) -> Begin | tuple[Begun, str]:
    """Read what an event begins, or its outcome if it begins nothing."""
    try:
        begin: object = read(event)
    except NotYet as error:
        return _refused(None, Begun.KEPT, code_of(error))
    except Invalid:
        raise
    except PermanentError as error:
        return _refused(None, Begun.PARKED, code_of(error))
    except Exception as error:
        _count_users(error)
        raise
    if begin is None:
        return Begun.IGNORED, ""
    if not isinstance(begin, Begin):
        raise TypeError(f"a function that reads events must return a Begin or None, got {type(begin).__name__}")
    return begin


def _keyed(config: Settings, begin: Begin) -> _Keyed:
    try:
        text = canonical_json(begin.request, max_bytes=INLINE_BODY_BYTES)
    except TooLarge as error:
        raise Invalid(str(error)) from None
    if has_reserved_member(text):
        raise Invalid(f"request must not have a member {REFERENCE_FIELD}; rename it")
    scope, now_ms = scope_of(config.operation, (CALLER, config.operation)), clock.now_ms()
    request_id = request_id_of(scope, begin.key)
    return _Keyed(
        begin=begin,
        text=text,
        scope=scope,
        request_id=request_id,
        fingerprint=fingerprint_of(config.operation, text),
        now_ms=now_ms,
        saga_id=saga_id_of(request_id, now_ms, config.request_table),
    )


class _Applied:
    """Events that are applied by one transaction each."""

    def __init__(
        self,
        config: Settings,
        direct: DirectSettings,
        read: ReadEvent,
        function: Callable[[DirectCall], Commit],
        remaining_ms: Callable[[], int],
    ) -> None:
        self._config = config
        self._direct = direct
        self._read = read
        self._function = function
        self._remaining_ms = remaining_ms

    def begin(self, event: Any) -> tuple[Begun, str]:
        """Apply an event."""
        begin = _begin_of(self._read, event)
        if not isinstance(begin, Begin):
            return begin
        keyed = _keyed(self._config, begin)
        owner = uuid.uuid4().hex
        call = DirectCall(key=keyed.saga_id, idempotency_key=begin.key, request=begin.request, now_ms=keyed.now_ms)

        planning = False

        def plan() -> tuple[Any, Sequence[Write]]:
            nonlocal planning
            planning = True
            wanted = require_commit(self._function(replace(call, request=copied(begin.request))), "an event operation")
            planning = False
            record = DirectRecord(
                request_id=keyed.request_id,
                saga_id=call.key,
                scope=keyed.scope,
                operation=self._config.operation,
                fingerprint=keyed.fingerprint,
                owner=owner,
                status=RecordStatus.COMPLETED,
                http_status=200,
                body=response_of(call.key, wanted.output),
                now_ms=keyed.now_ms,
                replay_seconds=self._direct.replay_seconds,
                remember_seconds=self._direct.remember_seconds,
                due_shards=self._config.due_shards,
            )
            return {"Put": {"TableName": self._config.request_table, **direct_put(record)}}, wanted.writes

        code, refused, tries = "", Begun.PARKED, writes.Tries()
        try:
            result = commit_first(
                plan,
                remaining_ms=self._remaining_ms,
                backoff=self._direct.backoff,
                throttles=False,
                tries=tries,
            )
            if isinstance(result, Committed):
                telemetry.event("event_applied", saga_id=call.key, event_id=begin.event_id)
                return Begun.APPLIED, ""
            found = RequestRecord.from_item(result.item) if result.item is not None else None
        except NotYet as error:
            code, refused = code_of(error), Begun.KEPT
            found = read_record(self._config.request_table, keyed.request_id)
        except PermanentError as error:
            code = code_of(error)
            found = read_record(self._config.request_table, keyed.request_id)
        except Exception as error:
            # The plan of an event that was applied may fail by now: the record decides.
            found = read_record(self._config.request_table, keyed.request_id)
            if found is None or found.forgotten(keyed.now_ms):
                if planning or not (error is tries.unsure or isinstance(error, Conflict | ClientError | BotoCoreError)):
                    _count_users(error)
                raise
        if found is None or found.forgotten(keyed.now_ms):
            if tries.unsure is not None:  # what was not answered may still arrive, and apply what is refused now
                raise tries.unsure
            return _refused(begin, refused, code)
        if found.fingerprint != keyed.fingerprint:
            return _refused(begin, Begun.PARKED, "KEY_REUSED")
        return (Begun.APPLIED if found.owner == owner else Begun.DUPLICATE), ""


class _Started:
    """Events that begin a saga each."""

    def __init__(self, config: Settings, saga: SagaSettings, read: ReadEvent) -> None:
        self._config = config
        self._saga = saga
        self._read = read

    def begin(self, event: Any) -> tuple[Begun, str]:
        """Reserve and start; a record that exists is a duplicate's."""
        begin = _begin_of(self._read, event)
        if not isinstance(begin, Begin):
            return begin
        keyed = _keyed(self._config, begin)
        request = parse_json(keyed.text)
        reservation = Reservation(
            request_id=keyed.request_id,
            saga_id=keyed.saga_id,
            scope=keyed.scope,
            operation=self._config.operation,
            fingerprint=keyed.fingerprint,
            request=keyed.text,
            definition=self._saga.definition,
            recovery_machine_arn=self._saga.recovery_machine_arn,
            execution_arn=execution_of(self._saga.state_machine_arn, keyed.saga_id),
            alias=self._saga.alias,
            now_ms=keyed.now_ms,
            due_after_ms=self._saga.due_after_ms,
            due_shards=self._config.due_shards,
            money=self._saga.money.read(request) if self._saga.money is not None else None,
            express=self._saga.express_machine_arn is not None,
        )
        try:
            refuse_inexact(request, self._saga.expression_paths)
        except Invalid:
            # Expressions of an earlier release may have read less of an event that it began: the record decides.
            record = read_record(self._config.request_table, keyed.request_id)
            if record is None or record.forgotten(keyed.now_ms):
                raise
        else:
            record = reserve(self._config.request_table, reservation)
        if record is None:
            self._begin(reservation)
            telemetry.event("event_applied", saga_id=keyed.saga_id, event_id=begin.event_id)
            return Begun.APPLIED, ""
        met = what_was_met(record, reservation)
        if met is Met.RUNNING and record.due_at is not None and record.due_at > keyed.now_ms and not record.express:
            # A provider that gets a 2xx does not send the event again: this one may be the last to start the saga.
            # Of an inline saga the reconciler is: a Standard execution alongside Express would cost as much as both.
            met = what_was_met(record, replace(reservation, now_ms=record.due_at))
        if met is Met.OTHER_BODY:
            return _refused(begin, Begun.PARKED, "KEY_REUSED")
        if met is Met.OWN:
            self._begin(record)
        elif met is Met.RUNNING_DUE:
            _start(record)
        return (Begun.APPLIED if met is Met.OWN else Begun.DUPLICATE), ""

    def _begin(self, reserved: Reservation | RequestRecord) -> None:
        """Start what this invocation reserved: in Standard if it is not inline, or Express is refused."""
        express = self._saga.express_machine_arn
        if express is None or not begin_express(express, reserved.saga_id, reserved.start_input).started:
            _start(reserved)


def _start(reserved: Reservation | RequestRecord) -> None:
    """Start a reserved saga.

    Raises:
        TransientError: Step Functions refuses the start for good. The record stays, and the event has to come again.
    """
    if not start(reserved):
        raise TransientError("the saga cannot be started")


def _refused(begin: Begin | None, result: Begun, code: str) -> tuple[Begun, str]:
    event_id = begin.event_id if begin is not None else None
    if result is Begun.KEPT:
        telemetry.event("event_kept", code=code, event_id=event_id)
    else:
        telemetry.event("event_parked", code=code, event_id=event_id)
    return result, code


def _count(result: Begun) -> None:
    if result in _COUNTED:
        telemetry.count(_COUNTED[result])


def _failed(receiver: str, error: Exception) -> None:
    """Log a failure; count it, unless it is AWS that did not answer."""
    log_failure(receiver, error, None)
    if not _passes(error):
        reason = "INVALID" if isinstance(error, Invalid) else "FAILED"
        telemetry.count(Metric.EVENT_REFUSED, reason=reason)


def _count_users(error: Exception) -> None:
    """Count what the user's code raised, if ``_failed`` takes it for AWS that did not answer."""
    if _passes(error):
        telemetry.count(Metric.EVENT_REFUSED, reason="FAILED")


def _passes(error: Exception) -> bool:
    if isinstance(error, ClientError | BotoCoreError):
        return writes.passes(error)
    return isinstance(error, TransientError)


def _is_from(queue_url: str, record: Mapping[str, Any]) -> bool:
    """True if a message was delivered from this queue: its URL and its ARN end with account and name."""
    arn: str = record["eventSourceARN"]
    return arn.split(":")[-2:] == queue_url.split("/")[-2:]


def _group_of(record: Mapping[str, Any]) -> str | None:
    """The group of a message of a FIFO queue; a standard queue's groups have no order."""
    if not record["eventSourceARN"].endswith(".fifo"):
        return None
    return str(record["attributes"]["MessageGroupId"])
