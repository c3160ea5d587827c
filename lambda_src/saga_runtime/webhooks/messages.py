"""Messages of kept and parked events: every byte of an event, in characters that SQS takes. Pure.

A message that would be too large is compressed. So the largest webhook fits, random bytes included, and so does nearly
every largest message of another queue, and change of a table.
"""

from __future__ import annotations

import base64
import json
import zlib
from collections.abc import Mapping
from typing import Any, Final

from saga_runtime.errors import Invalid
from saga_runtime.idempotency.identity import TooLarge, parse_json
from saga_runtime.protocol import MAX_MESSAGE_BYTES, EventField
from saga_runtime.webhooks.receiver import WebhookEvent
from saga_runtime.webhooks.signatures import HeaderValues

_ROOM_BYTES: Final = MAX_MESSAGE_BYTES - 1_024
"""Of a message's body: the reason is an attribute, and counts, too."""
UNPACKED_BYTES: Final = 6 * 6 * 1_048_576
"""An invocation brings 6 MB (Lambda's quotas); as JSON in ASCII each byte has at most 6."""
_DISCARDED: Final = "DDBStreamBatchInfo"
"""Member of the message in which Lambda names changes that it discarded.

docs.aws.amazon.com/lambda, "Retaining discarded batches for a DynamoDB event source".
"""
_IMAGES: Final = frozenset({"OldImage", "NewImage"})


def of_webhook(event: WebhookEvent) -> str:
    """A webhook's event; its signature was verified."""
    kept = {
        EventField.BODY: event.body.decode("utf-8", errors="surrogateescape"),
        EventField.HEADERS: dict(event.headers),
        EventField.QUERY: dict(event.query),
        EventField.RECEIVED_AT: event.received_at,
    }
    return _packed({EventField.WEBHOOK: kept})


def of_message(text: str) -> str:
    """Another queue's message: whatever it has inside, it is not a webhook's event.

    Raises:
        TooLarge: it fits into no message.
    """
    return _packed({EventField.MESSAGE: text})


def of_change(record: Mapping[str, Any]) -> str:
    """A change of a table.

    Raises:
        TooLarge: it fits into no message.
    """
    return _packed(record)


def naming(record: Mapping[str, Any]) -> str:
    """A change that fits into no message: without its images, and with its place in the stream."""
    change = {name: value for name, value in record["dynamodb"].items() if name not in _IMAGES}
    return _packed({EventField.TOO_LARGE: {**record, "dynamodb": change}})


def event_in(body: str) -> Any:
    """The event in a message: a webhook's, or a document as its sender published it.

    Raises:
        Invalid: the message is not a JSON object, or names changes that it does not hold.
    """
    document = object_of(body)
    if EventField.PACKED in document:
        document = object_of(_unpacked(document[EventField.PACKED]))
    if EventField.MESSAGE in document:
        return object_of(str(document[EventField.MESSAGE]))
    if _DISCARDED in document or EventField.TOO_LARGE in document:
        raise Invalid("the message names changes of a table by their place in the stream; read them there")
    webhook = document.get(EventField.WEBHOOK)
    if webhook is None:
        return document
    return WebhookEvent(
        body=webhook[EventField.BODY].encode("utf-8", errors="surrogateescape"),
        headers=HeaderValues({name: (value,) for name, value in webhook[EventField.HEADERS].items()}),
        query=webhook[EventField.QUERY],
        received_at=webhook[EventField.RECEIVED_AT],
    )


def object_of(text: str) -> dict[str, Any]:
    """A JSON object; fractions are ``Decimal``, as of a webhook's event.

    Raises:
        Invalid: the text is not one.
    """
    document = parse_json(text)
    if not isinstance(document, dict):
        raise Invalid(f"a message must be a JSON object, got {type(document).__name__}")
    return document


def _packed(document: Mapping[str, Any]) -> str:
    # In ASCII: SQS refuses some characters (its API's reference, "SendMessage"), and each character is one byte.
    text = json.dumps(document, separators=(",", ":"))
    if len(text) > _ROOM_BYTES:
        text = json.dumps({EventField.PACKED: base64.b85encode(zlib.compress(text.encode(), 9)).decode()})
    if len(text) > _ROOM_BYTES:
        raise TooLarge(f"a message must have at most {_ROOM_BYTES} bytes, got {len(text)}")
    return text


def _unpacked(packed: object) -> str:
    unzip = zlib.decompressobj()
    try:
        text = unzip.decompress(base64.b85decode(str(packed)), UNPACKED_BYTES).decode("utf-8")
    except (ValueError, zlib.error) as error:
        raise Invalid("a packed message must be base85 of compressed JSON, got something else") from error
    if not unzip.eof:
        raise Invalid(f"a packed message must be whole, of at most {UNPACKED_BYTES} bytes, got another one")
    return text
