"""A dead-letter queue, read without deleting anything; and its messages, redriven one by one."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import TYPE_CHECKING, Any, Final

from constructs_lib.cli.callbacks.rows import job_parts
from constructs_lib.cli.shared.process import CommandError, json_in
from constructs_lib.cli.shared.reads import batches
from saga_runtime.idempotency.identity import step_key_of
from saga_runtime.protocol import UNANSWERED_FIELD, CallField, UnansweredField

if TYPE_CHECKING:
    from mypy_boto3_sqs import SQSClient


HELD_SECONDS: Final = 120
"""Seconds for which a message that was read is hidden from others, at most: all are released after the last."""
POLL_SECONDS: Final = 1
"""A queue is asked at all of its places, not at some of them."""
MOST: Final = 10_000
"""Most messages that are read."""
_AT_ONCE: Final = 10


class DeadKind(StrEnum):
    """Kinds of dead-lettered messages."""

    JOB = "job"
    """A saga's job, or wait, that could not be dispatched."""
    UNANSWERED = "unanswered"
    """An entry of an unanswered job."""
    UNREADABLE = "unreadable"
    """No message of a saga."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DeadMessage:
    """A message, as it is shown: without its body, which holds a token.

    Attributes:
        sent_at: when the saga sent it, epoch milliseconds.
        receives: how often it was received, listings included.
        about: members of an entry of an unanswered job (``UnansweredField``).
    """

    kind: DeadKind
    message_id: str
    job_id: str
    saga_id: str
    step: str
    sent_at: int
    receives: int
    about: Mapping[str, Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class Held:
    """A message that is hidden from others for now.

    Attributes:
        shown: what people see of it.
        body, attributes, receipt: what it takes to move it; never shown.
    """

    shown: DeadMessage
    body: str = field(repr=False)
    attributes: Mapping[str, Any] = field(repr=False)
    receipt: str = field(repr=False)


def dead_message(message: Mapping[str, Any]) -> DeadMessage:
    """Fields of a message for display."""
    body = json_in(message["Body"])
    found: Mapping[str, Any] = body if isinstance(body, dict) else {}
    about = found.get(UNANSWERED_FIELD)
    kind, job_id = DeadKind.UNREADABLE, ""
    if found.keys() == {UNANSWERED_FIELD} and isinstance(about, dict):
        kind, job_id = DeadKind.UNANSWERED, str(about.get(UnansweredField.JOB_ID, ""))
    elif all(isinstance(found.get(name), str) for name in (CallField.SAGA_ID, CallField.STEP, CallField.TOKEN)):
        kind, job_id = DeadKind.JOB, _job_id(found)
    saga_id, step = job_parts(job_id)
    if kind is DeadKind.JOB and not saga_id:
        kind, job_id = DeadKind.UNREADABLE, ""
    known: Mapping[str, Any] = about if kind is DeadKind.UNANSWERED and isinstance(about, dict) else {}
    if kind is DeadKind.JOB:
        known = {name: found[name] for name in (UnansweredField.REQUEST_TABLE,) if name in found}
    system: Mapping[str, str] = message.get("Attributes", {})
    return DeadMessage(
        kind=kind,
        message_id=str(message["MessageId"]),
        job_id=job_id,
        saga_id=saga_id,
        step=step,
        sent_at=int(system.get("SentTimestamp", 0)),
        receives=int(system.get("ApproximateReceiveCount", 0)),
        about={name: known[name] for name in UnansweredField if name in known},
    )


def _job_id(found: Mapping[str, Any]) -> str:
    key = found.get(CallField.ITEM_KEY)
    try:
        return step_key_of(
            found[CallField.SAGA_ID], found[CallField.STEP], item_key=key if isinstance(key, str) else None
        )
    except ValueError:
        return ""


@dataclass(slots=True, kw_only=True)
class DeadLetters:
    """A dead-letter queue.

    Attributes:
        busy: how many messages another process was reading at the start.
        complete: whether all messages were read.
    """

    sqs: SQSClient
    url: str
    busy: int = 0
    complete: bool = False
    _held: dict[str, str] = field(default_factory=dict, repr=False)
    _seen: set[str] = field(default_factory=set, repr=False)

    def messages(self) -> Iterator[Held]:
        """Yield each message once that no other process is reading. ``let_go`` releases what is not deleted."""
        counted: Any = self.sqs.get_queue_attributes(
            QueueUrl=self.url, AttributeNames=["ApproximateNumberOfMessagesNotVisible"]
        )
        self.busy = int(counted["Attributes"]["ApproximateNumberOfMessagesNotVisible"])
        while len(self._seen) < MOST:
            answer: Any = self.sqs.receive_message(
                QueueUrl=self.url,
                MaxNumberOfMessages=_AT_ONCE,
                VisibilityTimeout=HELD_SECONDS,
                WaitTimeSeconds=POLL_SECONDS,
                AttributeNames=["SentTimestamp", "ApproximateReceiveCount"],
                MessageAttributeNames=["All"],
            )
            received = answer.get("Messages", [])
            fresh = [message for message in received if message["MessageId"] not in self._seen]
            for message in received:
                self._held[message["MessageId"]] = message["ReceiptHandle"]
            if not fresh:  # nothing more; or it took so long that the first messages have come back
                self.complete = not received
                return
            self._seen.update(message["MessageId"] for message in fresh)
            for message in fresh:
                yield Held(
                    shown=dead_message(message),
                    body=message["Body"],
                    attributes=message.get("MessageAttributes", {}),
                    receipt=message["ReceiptHandle"],
                )

    def delete(self, held: Held) -> None:
        """Take a message away."""
        self.sqs.delete_message(QueueUrl=self.url, ReceiptHandle=held.receipt)
        self._held.pop(held.shown.message_id, None)

    def let_go(self) -> None:
        """Release messages that were only read; one that cannot be released reappears two minutes later."""
        held = list(self._held.values())
        self._held.clear()
        for batch in batches(held, _AT_ONCE):
            entries: Any = [
                {"Id": str(number), "ReceiptHandle": receipt, "VisibilityTimeout": 0}
                for number, receipt in enumerate(batch)
            ]
            self.sqs.change_message_visibility_batch(QueueUrl=self.url, Entries=entries)

    def check_source(self, queue: str) -> None:
        """Refuse a queue whose messages do not end here: another one's readers would be given tokens.

        Raises:
            CommandError: if it is another one.
        """
        mine: Any = self.sqs.get_queue_attributes(QueueUrl=self.url, AttributeNames=["QueueArn"])
        policy: Any = self.sqs.get_queue_attributes(QueueUrl=queue, AttributeNames=["RedrivePolicy"])
        target = json.loads(policy.get("Attributes", {}).get("RedrivePolicy", "{}")).get("deadLetterTargetArn")
        if target != mine["Attributes"]["QueueArn"]:
            raise CommandError(
                f"--queue: what fails in {queue} does not end in {self.url}; name the queue of the same integration"
            )

    def move(self, held: Held, queue: str) -> None:
        """Send a message to the queue, then delete it here: after a crash in between it is in both."""
        attributes: Any = {
            name: {key: value for key, value in given.items() if key in ("DataType", "StringValue", "BinaryValue")}
            for name, given in held.attributes.items()
        }
        self.sqs.send_message(QueueUrl=queue, MessageBody=held.body, MessageAttributes=attributes)
        self.delete(held)
