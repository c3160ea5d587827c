"""An event's row: a write of the transaction whose effect the event reports. Pure."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final, Protocol

from saga_runtime.errors import Invalid, PermanentError
from saga_runtime.idempotency.identity import TooLarge, canonical_json
from saga_runtime.protocol import MAX_EVENT_BYTES, Env, OutboxAttribute
from saga_runtime.saga_log.write import Write
from saga_runtime.shared.expressions import when

EVENT_ID: Final = "event_id"
_TYPE_LENGTH: Final = 128
"""Of an event's type, EventBridge's most (its API's reference, "PutEventsRequestEntry")."""


class Call(Protocol):
    """A step's call, or a direct operation's."""

    @property
    def key(self) -> str:
        """The step key, or the operation's id."""
        ...

    @property
    def now_ms(self) -> int:
        """Time of the call."""
        ...


class EventExists(PermanentError):
    """An event of this id waits to be published: a call has one event."""

    code = "EVENT_EXISTS"


@dataclass(frozen=True, slots=True, kw_only=True)
class Outbox:
    """Table in which events wait until they are published.

    Guaranteed: an event whose write committed is published at least once, always with the same ``event_id``; one whose
    transaction did not commit is never published.
    Not guaranteed: once, and order. Consumers recognize a repetition by ``event_id``, and read the present state.

    Example:
        >>> from saga_runtime import Commit, Outbox, StepCall, atomic_step
        >>> outbox = Outbox(table="outbox")
        >>> @atomic_step
        ... def commit(call: StepCall) -> Commit:
        ...     return Commit(writes=[outbox.event(call, "OrderPlaced", {"order": call.saga_id})])

    Attributes:
        table: name of the table.
    """

    table: str

    def __post_init__(self) -> None:
        table: object = self.table
        if not isinstance(table, str) or not table.strip():
            raise Invalid(f"table of an outbox must be a table's name, got {table!r}; use Outbox.from_env()")

    @classmethod
    def from_env(cls) -> Outbox:
        """The outbox that the function's environment names; a missing variable is a KeyError at cold start."""
        return cls(table=os.environ[Env.OUTBOX_TABLE])

    def event(self, call: Call, type: str, detail: Mapping[str, Any]) -> Write:
        """The write that has an event published once its transaction has committed.

        Args:
            call: the step's call, or the direct operation's. Its key is the event's id: so there is one event per call.
            type: the event's type, e.g. ``OrderPlaced``; 1 to 128 characters. It is the ``detail-type``.
            detail: a JSON object, of at most 65,536 bytes; ``event_id`` is added.

        Raises:
            Invalid: for a wrong argument, naming it, its value and the remedy.
        """
        key: object = getattr(call, "key", None)
        at: object = getattr(call, "now_ms", None)
        if not isinstance(key, str) or not key.strip():
            raise Invalid(f"key of a call must be text that is not blank, got {key!r}; pass the step's call")
        if isinstance(at, bool) or not isinstance(at, int):
            raise Invalid(f"now_ms of a call must be an integer of milliseconds, got {at!r}; pass the step's call")
        name: object = type
        document: object = detail
        if not isinstance(name, str) or not name.strip() or len(name) > _TYPE_LENGTH:
            raise Invalid(f"type of an event must be 1 to {_TYPE_LENGTH} characters, got {name!r}; name what happened")
        if not isinstance(document, Mapping):
            raise Invalid(f"detail of event {type} must be a JSON object, got {document!r}; use a mapping")
        if EVENT_ID in detail:
            raise Invalid(f"detail of event {type} must leave {EVENT_ID} to the outbox, got it; leave it out")
        try:
            text = canonical_json({**detail, EVENT_ID: call.key}, max_bytes=MAX_EVENT_BYTES)
        except TooLarge as error:
            raise Invalid(f"detail of event {type} is too large: {error}; refer to the data by its id") from None
        item = {
            OutboxAttribute.ID: {"S": call.key},
            OutboxAttribute.TYPE: {"S": type},
            OutboxAttribute.DETAIL: {"S": text},
            OutboxAttribute.PUT_AT: {"N": str(call.now_ms)},
        }
        put = {"TableName": self.table, "Item": item, **when("attribute_not_exists(#id)")}
        exists = EventExists("an event of this call waits to be published; give each event a call of its own")
        own: dict[str, Any] = {OutboxAttribute.ID: item[OutboxAttribute.ID]}
        return Write(action={"Put": put}, refusal=lambda _: exists, key=own)
