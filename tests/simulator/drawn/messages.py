"""Messages that begin drawn sagas under the operations and keys of clients."""

from __future__ import annotations

import json
from collections.abc import Mapping
from random import Random
from typing import Any, Final

from constructs_lib.testing.invariants import Invariant
from constructs_lib.testing.simulator import World
from constructs_lib.testing.simulator.engine.kernel import SECOND
from saga_runtime.idempotency.identity import canonical_json, parse_json, request_id_of, scope_of
from saga_runtime.protocol import INLINE_BODY_BYTES, RecordAttribute, StartField

from .names import aside_of, operation_of, queue_of

KEYS: Final = 3
"""Business keys of a saga's messages; clients use the same ones, and are not met by messages."""
_TIMES: Final = 3
"""Messages of a key with one request."""
_CONTRADICTED: Final = 0.3
"""Share of keys under which a message with another request is sent."""
_DAY: Final = 86_400 * SECOND
_DELAYS: Final = (0, 0, SECOND // 10, SECOND, 30 * SECOND, 90 * SECOND, 600 * SECOND, _DAY)
"""Before, while and after its saga runs, and releases are deployed."""


def shared_key(number: int) -> str:
    """One of the keys that clients and messages use."""
    return f"shared-{number}"


class Messages:
    """Messages of one run, and a check of their results."""

    def __init__(self, world: World) -> None:
        self._world = world
        self._waiting = 0
        self._sent: dict[tuple[int, str], set[str]] = {}

    def begin(self, number: int, body: Mapping[str, Any], key: str, random: Random) -> None:
        """Send messages that begin a saga: several with one request, and perhaps one with another."""
        for _ in range(_TIMES):
            self._send(number, key, body, random)
        if random.random() < _CONTRADICTED:
            self._send(number, key, {**body, "other": True}, random)

    def _send(self, number: int, key: str, body: Mapping[str, Any], random: Random) -> None:
        sent = self._sent.setdefault((number, key), set())
        message = {
            "id": f"{key}-{len(sent)}-{random.getrandbits(32)}",
            "key": key,
            "request": body,
            "behave": random.choice((None, None, "crash", "slow")),
        }
        sent.add(_text(body))
        text, address = json.dumps(message), self._world.output(queue_of(number))

        def send() -> None:
            self._world.queues.send(address, text)
            self._waiting -= 1

        self._waiting += 1
        self._world.kernel.after(random.choice(_DELAYS), send)

    @property
    def all_sent(self) -> bool:
        """True if no message is to be sent any more."""
        return self._waiting == 0

    def audit(self) -> Invariant:
        """Check that the messages of each key begin one saga, by one of their requests, and that the others are aside.

        What failed too often may have begun it.
        """
        records = {
            record[RecordAttribute.ID]["S"]: record
            for table in self._world.parts.requests
            for record in self._world.records(table)
        }
        wrong: list[str] = []
        for (number, key), requests in self._sent.items():
            parked, dead = (self._of(name, key) for name in aside_of(number))
            operation = operation_of(number)
            record = records.get(request_id_of(scope_of(operation, ("event", operation)), key))
            begun = (
                _text(parse_json(json.loads(record[RecordAttribute.INPUT]["S"])[StartField.REQUEST]))
                if record
                else None
            )
            small = {request for request in requests if len(request) <= INLINE_BODY_BYTES}
            if begun is not None and begun not in small:
                wrong.append(f"{key} of {operation} began a request that no message has")
            wrong += [
                f"a message of {key} of {operation} is neither begun nor aside"
                for request in requests - {begun}
                if request not in parked | dead
            ]
            if begun in parked:
                wrong.append(f"{key} of {operation} was begun, and is parked")
        return Invariant(name="messages begin one saga per key", checked=len(self._sent), violations=tuple(wrong))

    def _of(self, output: str, key: str) -> set[str]:
        """Requests of messages in a queue that have a key."""
        messages = self._world.queues.queue(self._world.output(output)).messages
        return {_text(found["request"]) for found in map(_own, messages) if found["key"] == key}


def _own(message: Any) -> dict[str, Any]:
    """A message as it was sent: a parked one is wrapped."""
    body = json.loads(message.body)
    wrapped = body.get("cdk_sagas_message", body)
    found: dict[str, Any] = json.loads(wrapped) if isinstance(wrapped, str) else wrapped
    return found


def _text(body: Any) -> str:
    return canonical_json(body)
