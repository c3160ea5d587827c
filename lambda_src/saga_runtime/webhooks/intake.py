"""Events that begin something: a provider's webhook, or an event of a bus, as the request of a direct operation.

An event is applied by one transaction: the record under its business key, and the writes. So a redelivery, and another
event of the same happening, meet the record. What can come of an event:

* applied: record and writes exist;
* a duplicate: the record exists;
* not of interest: the function that reads events returns None, and nothing is written;
* not yet: what the event is about does not exist yet (``NotYet``). The event is put into the queue of kept events, and
  comes again from there;
* refused: no redelivery changes that (a ``PermanentError``, or the key was used for another request). The event is put
  into the queue of parked events, for the operators. No record is written: an event that they redrive is applied;
* anything else: nothing is known. The sender gets no 2xx, and sends the event again.
"""

from __future__ import annotations

import functools
import json
import os
import uuid
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from functools import lru_cache
from typing import Any, Final

from saga_runtime.errors import Invalid, NotYet, PermanentError, TransientError
from saga_runtime.http.direct_operation import DirectCall, response_of
from saga_runtime.http.operation import read_record
from saga_runtime.http.response import HttpAnswer, Problem, answer, problem
from saga_runtime.idempotency.identity import canonical_json, fingerprint_of, request_id_of, saga_id_of, scope_of
from saga_runtime.idempotency.record import DirectRecord, RequestRecord, direct_put
from saga_runtime.protocol import MAX_BODY_BYTES, MAX_KEY_LENGTH, Env, EventField, Metric, RecordStatus
from saga_runtime.saga_log.transaction import Committed, commit_first
from saga_runtime.saga_log.write import Write
from saga_runtime.shared import aws, clock, telemetry
from saga_runtime.steps.step import Commit
from saga_runtime.webhooks.receiver import HeaderValues, WebhookEvent, log_failure, scheme, signed, unavailable

CALLER: Final = "event"
"""Kind of the caller in the scope of an event's record: a client's key is never an event's."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Begin:
    """The request that an event makes.

    Attributes:
        key: business key of the happening: the same in every event that reports it, e.g. ``pi_1/succeeded``. 1 to 255
            printable ASCII characters.
        request: a JSON object; the same in every event that reports the happening. So take the amount and the customer
            into it, and not the event's id or time.
        event_id: the event's own id, for logs.
    """

    key: str
    request: Mapping[str, Any]
    event_id: str | None = None

    def __post_init__(self) -> None:
        printable = self.key.isascii() and self.key.isprintable() and bool(self.key.strip())
        if not printable or len(self.key) > MAX_KEY_LENGTH:
            raise Invalid(
                f"key must be 1 to {MAX_KEY_LENGTH} printable ASCII characters, got {len(self.key)} others; use the id "
                "of what happened"
            )


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


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """Settings of an ``EventIntake``."""

    operation: str
    request_table: str
    due_shards: int
    replay_seconds: int
    remember_seconds: int
    kept: str
    parked: str

    @classmethod
    def from_env(cls, env: Mapping[str, str]) -> Settings:
        """Read the environment; a missing variable is a KeyError at cold start."""
        return cls(
            operation=env[Env.OPERATION],
            request_table=env[Env.REQUEST_TABLE],
            due_shards=int(env[Env.DUE_SHARDS]),
            replay_seconds=int(env[Env.REPLAY_SECONDS]),
            remember_seconds=int(env[Env.REMEMBER_SECONDS]),
            kept=env[Env.KEPT_EVENTS],
            parked=env[Env.PARKED_EVENTS],
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


class EventOperation:
    """A Lambda handler behind an ``EventIntake``; made by ``event_operation``.

    Attributes:
        read: reads events.
        function: plans what an event does.
    """

    __name__: str

    def __init__(self, read: ReadEvent, function: Callable[[DirectCall], Commit]) -> None:
        functools.update_wrapper(self, function)
        self.read = read
        self.function = function

    def __call__(self, event: Any, context: Any) -> dict[str, Any]:
        """Answer one webhook, or handle a batch of messages: kept events, and events of a bus."""
        taken = _Taken(settings(), self.read, self.function, context.get_remaining_time_in_millis)
        try:
            if "Records" in event:
                failed = [record["messageId"] for record in event["Records"] if not taken.from_queue(record)]
                return {"batchItemFailures": [{"itemIdentifier": message_id} for message_id in failed]}
            return signed(event, scheme(), taken.from_webhook, refused=Metric.EVENT_REFUSED).to_proxy()
        finally:
            telemetry.flush()


class _Taken:
    """The events of one invocation."""

    def __init__(
        self,
        config: Settings,
        read: ReadEvent,
        function: Callable[[DirectCall], Commit],
        remaining_ms: Callable[[], int],
    ) -> None:
        self._config = config
        self._read = read
        self._function = function
        self._remaining_ms = remaining_ms
        self._owner = uuid.uuid4().hex

    def from_webhook(self, event: WebhookEvent) -> HttpAnswer:
        """Answer a provider; its signature was right. A 2xx comes after whatever it promises was written."""
        try:
            result, code = self._begin(event)
            if result is Begun.KEPT:
                self._send(self._config.kept, _to_message(event), code)
            elif result is Begun.PARKED:
                self._send(self._config.parked, _to_message(event), code)
        except Invalid as error:
            _failed("webhook", error)
            return problem(Problem.BAD_BODY, error.message)
        except Exception as error:  # noqa: BLE001  # whatever it is, the provider sends it again
            _failed("webhook", error)
            return unavailable()
        _count(result)
        return answer(202 if result in {Begun.KEPT, Begun.PARKED} else 200, {"received": True})

    def from_queue(self, record: Mapping[str, Any]) -> bool:
        """Handle a message.

        Returns:
            Whether it is done with, and is to be deleted. Otherwise it comes again; too often, and it is parked.
        """
        try:
            result, code = self._begin(_from_message(record["body"]))
            if result is Begun.PARKED:
                self._send(self._config.parked, record["body"], code)
        except Invalid as error:
            _failed("queue", error)
            return self._parked(record["body"], error.code)
        except Exception as error:  # noqa: BLE001  # whatever it is, the message comes again
            _failed("queue", error)
            return False
        _count(result)
        return result is not Begun.KEPT

    def _parked(self, body: str, code: str) -> bool:
        try:
            self._send(self._config.parked, body, code)
        except Exception as error:  # noqa: BLE001  # as above
            _failed("queue", error)
            return False
        _count(Begun.PARKED)
        return True

    def _begin(self, event: Any) -> tuple[Begun, str]:
        """Apply an event.

        Returns:
            What came of it; and the error's code, if it is to be kept or parked: no write of it has taken effect.

        Raises:
            Invalid: by the function that reads events.
            Exception: whatever the plan raises, and what AWS answers. Nothing is known of the event.
        """
        begin = self._read(event)
        if begin is None:
            return Begun.IGNORED, ""
        if not isinstance(begin, Begin):
            raise TypeError(f"a function that reads events must return a Begin or None, got {type(begin).__name__}")
        text = canonical_json(begin.request, max_bytes=MAX_BODY_BYTES)
        scope = scope_of(self._config.operation, (CALLER, self._config.operation))
        request_id, now_ms = request_id_of(scope, begin.key), clock.now_ms()
        fingerprint = fingerprint_of(self._config.operation, text)
        call = DirectCall(
            key=saga_id_of(request_id, now_ms), idempotency_key=begin.key, request=begin.request, now_ms=now_ms
        )

        def plan() -> tuple[Any, Sequence[Write]]:
            wanted = self._function(call)
            record = DirectRecord(
                request_id=request_id,
                saga_id=call.key,
                scope=scope,
                operation=self._config.operation,
                fingerprint=fingerprint,
                owner=self._owner,
                status=RecordStatus.COMPLETED,
                http_status=200,
                body=response_of(call.key, wanted.output),
                now_ms=now_ms,
                replay_seconds=self._config.replay_seconds,
                remember_seconds=self._config.remember_seconds,
                due_shards=self._config.due_shards,
            )
            return {"Put": {"TableName": self._config.request_table, **direct_put(record)}}, wanted.writes

        code, refused = "", Begun.PARKED
        try:
            result = commit_first(plan, remaining_ms=self._remaining_ms)
            if isinstance(result, Committed):
                telemetry.event("event_applied", saga_id=call.key, event_id=begin.event_id)
                return Begun.APPLIED, ""
            found = RequestRecord.from_item(result.item) if result.item is not None else None
        except NotYet as error:
            code, refused = error.code, Begun.KEPT
            found = read_record(self._config.request_table, request_id)
        except PermanentError as error:
            code = error.code
            found = read_record(self._config.request_table, request_id)
        if found is None or found.forgotten(now_ms):
            telemetry.event("event_refused", code=code, event_id=begin.event_id, kept=refused is Begun.KEPT)
            return refused, code
        if found.fingerprint != fingerprint:
            telemetry.event("event_refused", code="KEY_REUSED", event_id=begin.event_id, kept=False)
            return Begun.PARKED, "KEY_REUSED"
        return (Begun.APPLIED if found.owner == self._owner else Begun.DUPLICATE), ""

    @staticmethod
    def _send(queue: str, body: str, code: str) -> None:
        aws.sqs().send_message(
            QueueUrl=queue,
            MessageBody=body,
            MessageAttributes={EventField.REASON.value: {"DataType": "String", "StringValue": code}},
        )


def _count(result: Begun) -> None:
    if result in _COUNTED:
        telemetry.count(_COUNTED[result])


def _failed(receiver: str, error: Exception) -> None:
    """Log a failure; count it, unless it is AWS that did not answer."""
    log_failure(receiver, error, None)
    if not (isinstance(error, TransientError) or aws.is_transient(error)):
        reason = "INVALID" if isinstance(error, Invalid) else "FAILED"
        telemetry.count(Metric.EVENT_REFUSED, reason=reason)


def _to_message(event: WebhookEvent) -> str:
    """A webhook's event as a message."""
    kept = {
        EventField.BODY.value: event.body.decode("utf-8", errors="surrogateescape"),
        EventField.HEADERS.value: dict(event.headers),
        EventField.QUERY.value: dict(event.query),
        EventField.RECEIVED_AT.value: event.received_at,
    }
    return json.dumps({EventField.WEBHOOK.value: kept}, separators=(",", ":"))


def _from_message(body: str) -> Any:
    """The event in a message: a webhook's that was kept, or one of a bus as it was published."""
    document = json.loads(body)
    kept = document.get(EventField.WEBHOOK.value)
    if kept is None:
        return document
    return WebhookEvent(
        body=kept[EventField.BODY.value].encode("utf-8", errors="surrogateescape"),
        headers=HeaderValues({name: (value,) for name, value in kept[EventField.HEADERS.value].items()}),
        query=kept[EventField.QUERY.value],
        received_at=kept[EventField.RECEIVED_AT.value],
    )
