"""SQS: standard and FIFO queues, and the functions that receive from them."""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from constructs_lib.testing.simulator.aws.functions import Functions
from constructs_lib.testing.simulator.checks.trace import Trace
from constructs_lib.testing.simulator.deployment.blueprint import MappingSpec, QueueSpec
from constructs_lib.testing.simulator.engine.actors import NO_CHAIN, Actor
from constructs_lib.testing.simulator.engine.kernel import MILLISECOND, SECOND, Kernel
from constructs_lib.testing.simulator.errors import NotSimulatedError, ServiceError
from constructs_lib.testing.simulator.faults.climate import Event
from constructs_lib.testing.simulator.faults.weather import Weather

MOST_BYTES: Final = 1_048_576
_MOST_DELAY: Final = 900
_REFUSED: Final = re.compile("[^\t\n\r -\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")
"""Outside of what a message may contain ("SendMessage" in the Amazon SQS API Reference)."""
_DEDUPLICATION: Final = 300 * SECOND
_MOST_RECEIVED: Final = 10
_MOST_HIDDEN: Final = 43_200
_RECEIPT: Final = re.compile(r"r[0-9]{8,}")
_POLL: Final = 20 * MILLISECOND


@dataclass(slots=True, kw_only=True)
class Message:
    """A message.

    Attributes:
        id: its id.
        body: its text.
        sent: when it was sent.
        visible: when it can be received.
        chain: how often each function was invoked in the chain of requests that sent it.
        group: its message group, in a FIFO queue.
        receives: how often it was received.
        receipt: handle of the last receive.
        attributes: message attributes.
    """

    id: str
    body: str
    sent: int
    visible: int
    chain: Mapping[str, int]
    group: str | None = None
    receives: int = 0
    receipt: str = ""
    attributes: Mapping[str, Any] = field(default_factory=dict)


@dataclass(slots=True, kw_only=True)
class Queue:
    """A queue.

    Attributes:
        spec: what it is.
        messages: those that were not deleted, in the order in which they were sent.
        known: FIFO deduplication ids, with their message's id and when it was sent.
    """

    spec: QueueSpec
    messages: list[Message] = field(default_factory=list)
    known: dict[str, tuple[str, int]] = field(default_factory=dict)

    def receivable(self, now: int, most: int) -> list[Message]:
        """Messages that can be received; of a FIFO group none while an earlier one is hidden."""
        found: list[Message] = []
        blocked: set[str | None] = set()
        for message in self.messages:
            if len(found) == most:
                break
            if self.spec.fifo and message.group in blocked:
                continue
            if message.visible > now:
                if self.spec.fifo:
                    blocked.add(message.group)
                continue
            found.append(message)
        return found


class Queues:
    """Every queue of a run, and what receives from it.

    Attributes:
        queues: by name.
        refused: those to which no message can be sent, by name, with the reason.
    """

    def __init__(self, kernel: Kernel, functions: Functions, weather: Weather, trace: Trace) -> None:
        self.queues: dict[str, Queue] = {}
        self.refused: dict[str, str] = {}
        self._kernel = kernel
        self._functions = functions
        self._weather = weather
        self._trace = trace
        self._pollers: dict[str, _Poller] = {}
        self._number = 0

    def add(self, spec: QueueSpec) -> None:
        """Create a queue."""
        self.queues[spec.name] = Queue(spec=spec)

    def waiting(self) -> dict[str, int]:
        """Number of messages that wait for a function, by queue."""
        return {name: count for name in self._pollers if (count := len(self.queues[name].messages))}

    def map(self, spec: MappingSpec) -> None:
        """Let a function receive from a queue."""
        if spec.refused is None and spec.queue not in self._pollers:
            self._pollers[spec.queue] = _Poller(self, spec, self._kernel, self._functions, self._weather, self._trace)

    def queue(self, address: Any) -> Queue:
        """A queue, by URL, ARN or name.

        Raises:
            ServiceError: NonExistentQueue.
        """
        found = self.queues.get(str(address).rpartition("/")[2].rpartition(":")[2])
        if found is None:
            raise ServiceError("AWS.SimpleQueueService.NonExistentQueue", "The specified queue does not exist.")
        return found

    def call(self, operation: str, params: Mapping[str, Any], actor: Actor | None) -> dict[str, Any]:
        """The API."""
        queue = self.queue(params.get("QueueUrl") or params.get("QueueName"))
        match operation:
            case "SendMessage":
                return self._send(queue, params, NO_CHAIN if actor is None else actor.chain)
            case "SendMessageBatch":
                return self._send_batch(queue, params["Entries"], NO_CHAIN if actor is None else actor.chain)
            case "ReceiveMessage":
                return self._receive(queue, params)
            case "DeleteMessage":
                self._delete(queue, params)
                return {}
            case "DeleteMessageBatch":
                return _each(params["Entries"], lambda entry: self._delete(queue, entry))
            case "ChangeMessageVisibility":
                self._hide(queue, params)
                return {}
            case "ChangeMessageVisibilityBatch":
                return _each(params["Entries"], lambda entry: self._hide(queue, entry))
            case "GetQueueUrl":
                return {"QueueUrl": queue.spec.url}
            case "GetQueueAttributes":
                return {"Attributes": self._attributes(queue)}
            case "PurgeQueue":
                queue.messages.clear()
                return {}
        raise NotSimulatedError(f"sqs:{operation} is not simulated")

    def send(self, address: str, body: str, *, group: str | None = None) -> None:
        """Send a message as a service does: not as a call, and without refusals."""
        queue = self.queue(address)
        given = {"MessageBody": body}
        if queue.spec.fifo:
            given |= {"MessageGroupId": group or "events", "MessageDeduplicationId": self._next("d")}
        self._send(queue, given, NO_CHAIN)

    def delete(self, queue: Queue, receipt: str) -> None:
        """Delete the message of a receipt; it may be delivered once more all the same."""
        for number, message in enumerate(queue.messages):
            if message.receipt == receipt:
                if not queue.spec.fifo and self._weather.happens(Event.MESSAGE_TWICE, queue.spec.name):
                    message.visible = self._kernel.now + self._weather.long()
                    message.receipt = ""
                    self._wake(queue, message.visible)
                else:
                    del queue.messages[number]
                return

    def _delete(self, queue: Queue, params: Mapping[str, Any]) -> None:
        receipt = self._receipt(params)
        if queue.spec.fifo and any(
            message.receipt == receipt and message.visible <= self._kernel.now for message in queue.messages
        ):
            raise _invalid(f"Value {receipt} for parameter ReceiptHandle is invalid. Reason: it has expired.")
        self.delete(queue, receipt)

    def _receipt(self, params: Mapping[str, Any]) -> str:
        """The receipt handle of a request.

        Raises:
            ServiceError: if there is no such handle.
        """
        receipt = str(params["ReceiptHandle"])
        if not _RECEIPT.fullmatch(receipt):
            raise ServiceError("ReceiptHandleIsInvalid", f'The input receipt handle "{receipt}" is not valid.')
        return receipt

    def take(self, queue: Queue, most: int, hidden: int) -> list[Message]:
        """Receive messages, and hide them; those that were received too often go to the dead-letter queue."""
        now = self._kernel.now
        oldest = now - queue.spec.retention * SECOND
        if queue.messages and queue.messages[0].sent < oldest:
            queue.messages = [message for message in queue.messages if message.sent >= oldest]
        taken: list[Message] = []
        for message in queue.receivable(now, most):
            if queue.spec.dead_letters is not None and message.receives >= queue.spec.max_receives:
                queue.messages.remove(message)
                self._trace.note(queue.spec.name, f"message {message.id} goes to the dead-letter queue")
                self._move(message, self.queue(queue.spec.dead_letters))
                continue
            message.receives += 1
            message.receipt = self._next("r")
            message.visible = now + hidden
            taken.append(message)
        return taken

    def _move(self, message: Message, to: Queue) -> None:
        self._check_source(to)
        to.messages.append(
            Message(
                id=message.id,
                body=message.body,
                sent=message.sent,
                visible=self._kernel.now,
                group=message.group,
                attributes=message.attributes,
                chain=message.chain,
            )
        )
        self._wake(to, self._kernel.now)

    def _check_source(self, queue: Queue) -> None:
        """Refuse a message to a queue from which something receives that is not simulated.

        Raises:
            NotSimulatedError: with the reason.
        """
        if (reason := self.refused.get(queue.spec.name)) is not None:
            raise NotSimulatedError(reason)

    def _next(self, prefix: str) -> str:
        self._number += 1
        return f"{prefix}{self._number:08d}"

    def _send_batch(
        self, queue: Queue, entries: Sequence[Mapping[str, Any]], chain: Mapping[str, int]
    ) -> dict[str, Any]:
        if sum(len(str(entry["MessageBody"]).encode("utf-8", "replace")) for entry in entries) > MOST_BYTES:
            raise ServiceError(
                "AWS.SimpleQueueService.BatchRequestTooLong", "The messages are longer than a batch may be."
            )
        sent: list[dict[str, Any]] = []
        failed: list[dict[str, Any]] = []
        for entry in entries:
            try:
                sent.append({"Id": entry["Id"], **self._send(queue, entry, chain)})
            except ServiceError as refused:
                failed.append(
                    {"Id": entry["Id"], "SenderFault": True, "Code": refused.code, "Message": refused.message}
                )
        return {"Successful": sent, "Failed": failed}

    def _send(self, queue: Queue, params: Mapping[str, Any], chain: Mapping[str, int]) -> dict[str, Any]:
        self._check_source(queue)
        body = params["MessageBody"]
        if not isinstance(body, str) or not body:
            raise ServiceError("MissingParameter", "The request must contain the parameter MessageBody.")
        if (character := _REFUSED.search(body)) is not None:
            raise ServiceError(
                "InvalidMessageContents", f"The message contains {character[0]!a}, which is not allowed."
            )
        if len(body.encode()) > MOST_BYTES:
            raise ServiceError(
                "InvalidParameterValue",
                f"One or more parameters are invalid. Reason: Message must be shorter than {MOST_BYTES} bytes.",
            )
        delay = int(params.get("DelaySeconds") or 0)
        if not 0 <= delay <= (0 if queue.spec.fifo else _MOST_DELAY):
            raise ServiceError("InvalidParameterValue", f"Value {delay} for parameter DelaySeconds is invalid.")
        now = self._kernel.now
        group, told = params.get("MessageGroupId"), params.get("MessageDeduplicationId")
        message_id = self._next("m")
        digest = {"MD5OfMessageBody": hashlib.md5(body.encode(), usedforsecurity=False).hexdigest()}
        if queue.spec.fifo:
            if not group:
                raise ServiceError("MissingParameter", "The request must contain the parameter MessageGroupId.")
            if told is None:
                if not queue.spec.content_deduplication:
                    raise ServiceError(
                        "InvalidParameterValue",
                        "The queue should either have ContentBasedDeduplication enabled or MessageDeduplicationId "
                        "provided explicitly",
                    )
                told = hashlib.sha256(body.encode()).hexdigest()
            former = queue.known.get(told)
            if former is not None and now - former[1] < _DEDUPLICATION:
                return {"MessageId": former[0], **digest}
            queue.known[told] = (message_id, now)
        delay *= SECOND
        if self._weather.happens(Event.MESSAGE_LATE, queue.spec.name):
            delay += self._weather.long()
        message = Message(
            id=message_id,
            body=body,
            sent=now,
            visible=now + delay,
            group=group,
            attributes=params.get("MessageAttributes") or {},
            chain=chain,
        )
        queue.messages.append(message)
        self._wake(queue, message.visible)
        return {"MessageId": message_id, **digest}

    def _receive(self, queue: Queue, params: Mapping[str, Any]) -> dict[str, Any]:
        hidden, most = params.get("VisibilityTimeout"), int(params.get("MaxNumberOfMessages", 1))
        seconds = queue.spec.visibility if hidden is None else _hidden(hidden)
        if not 1 <= most <= _MOST_RECEIVED:
            raise _invalid(f"Value {most} for parameter MaxNumberOfMessages is invalid. Reason: 1 to {_MOST_RECEIVED}.")
        if not params.get("WaitTimeSeconds") and self._weather.happens(Event.MESSAGE_LATE, queue.spec.name):
            return {}  # a short poll asks some of the servers only
        taken = self.take(queue, most, seconds * SECOND)
        return {"Messages": [_received(message) for message in taken]} if taken else {}

    def _hide(self, queue: Queue, params: Mapping[str, Any]) -> None:
        receipt, seconds = self._receipt(params), _hidden(params["VisibilityTimeout"])
        for message in queue.messages:
            if message.receipt == receipt:
                if message.visible <= self._kernel.now:
                    raise ServiceError("MessageNotInflight", "The message is not in flight.")
                message.visible = self._kernel.now + seconds * SECOND
                self._wake(queue, message.visible)
                return
        raise _invalid(f"Value {receipt} for parameter ReceiptHandle is invalid. Reason: Message does not exist.")

    def _attributes(self, queue: Queue) -> dict[str, str]:
        now = self._kernel.now
        hidden = sum(message.visible > now for message in queue.messages)
        return {
            "QueueArn": queue.spec.arn,
            "ApproximateNumberOfMessages": str(len(queue.messages) - hidden),
            "ApproximateNumberOfMessagesNotVisible": str(hidden),
            "VisibilityTimeout": str(queue.spec.visibility),
        }

    def _wake(self, queue: Queue, at: int) -> None:
        poller = self._pollers.get(queue.spec.name)
        if poller is not None:
            poller.wake(at)


def _each(entries: Sequence[Mapping[str, Any]], do: Callable[[Mapping[str, Any]], None]) -> dict[str, Any]:
    """Do what each entry of a batch asks for, also if others fail."""
    done: list[dict[str, Any]] = []
    failed: list[dict[str, Any]] = []
    for entry in entries:
        try:
            do(entry)
        except ServiceError as error:
            failed.append({"Id": entry["Id"], "SenderFault": True, "Code": error.code, "Message": error.message})
        else:
            done.append({"Id": entry["Id"]})
    return {"Successful": done, "Failed": failed}


def _hidden(seconds: Any) -> int:
    """Seconds for which a message is hidden.

    Raises:
        ServiceError: if it is too long.
    """
    if not 0 <= int(seconds) <= _MOST_HIDDEN:
        raise _invalid(f"Value {seconds} for parameter VisibilityTimeout is invalid. Reason: 0 to {_MOST_HIDDEN}.")
    return int(seconds)


def _invalid(message: str) -> ServiceError:
    return ServiceError("InvalidParameterValue", message)


def _received(message: Message) -> dict[str, Any]:
    return {
        "MessageId": message.id,
        "ReceiptHandle": message.receipt,
        "Body": message.body,
        "Attributes": {
            "ApproximateReceiveCount": str(message.receives),
            "SentTimestamp": str(message.sent // MILLISECOND),
        },
        "MessageAttributes": dict(message.attributes),
    }


class _Poller:
    """An event source mapping: receives batches, invokes its function, deletes what was handled."""

    def __init__(
        self,
        queues: Queues,
        spec: MappingSpec,
        kernel: Kernel,
        functions: Functions,
        weather: Weather,
        trace: Trace,
    ) -> None:
        self._queues = queues
        self._spec = spec
        self._kernel = kernel
        self._functions = functions
        self._weather = weather
        self._trace = trace
        self._busy = 0
        self._due: set[int] = set()

    def wake(self, at: int) -> None:
        """Receive soon after a moment."""
        moment = max(at, self._kernel.now) + _POLL
        if moment not in self._due:
            self._due.add(moment)
            self._kernel.at(moment, lambda: self._poll(moment))

    def _poll(self, moment: int) -> None:
        self._due.discard(moment)
        queue = self._queues.queue(self._spec.queue)
        if self._busy >= self._spec.concurrency:
            return  # who ends wakes it
        hidden = queue.spec.visibility * SECOND
        batch = self._queues.take(queue, self._spec.batch, hidden)
        if not batch:
            return
        self._busy += 1
        for message in batch:
            self.wake(message.visible)
        receipts = {message.id: message.receipt for message in batch}
        event = json.dumps({"Records": [_record(message, queue.spec) for message in batch]})
        outcome = self._functions.invoke(self._spec.function, event, chain=_longest(batch))
        outcome.then(lambda: self._handled(queue, receipts, outcome.value()))
        if len(batch) == self._spec.batch:
            self.wake(self._kernel.now)

    def _handled(self, queue: Queue, receipts: Mapping[str, str], outcome: Any) -> None:
        self._busy -= 1
        failed = set(receipts) if outcome.error is not None else self._failed(receipts, outcome.payload)
        for message_id, receipt in receipts.items():
            # What Lambda has not deleted comes again, whatever the function returned: at least once.
            again = queue.spec.fifo and self._weather.happens(Event.MESSAGE_TWICE, queue.spec.name)
            if message_id not in failed and not again:
                self._queues.delete(queue, receipt)
        if failed:
            self._trace.note(queue.spec.name, f"{len(failed)} of {len(receipts)} messages come again")
        self.wake(self._kernel.now)

    def _failed(self, receipts: Mapping[str, str], payload: str) -> set[str]:
        """Messages that come again; all of them, if the answer names one that was not in the batch."""
        if not self._spec.partial:
            return set()
        answer = json.loads(payload)
        if not answer:
            return set()
        named = [failure.get("itemIdentifier") for failure in (answer.get("batchItemFailures") or ())]
        if any(name not in receipts for name in named):
            return set(receipts)
        return set(named)


def _longest(batch: Sequence[Message]) -> Mapping[str, int]:
    """The chain that an invocation with several messages continues: of each function the longest one."""
    found: dict[str, int] = {}
    for message in batch:
        for name, times in message.chain.items():
            found[name] = max(times, found.get(name, 0))
    return found


def _record(message: Message, spec: QueueSpec) -> dict[str, Any]:
    attributes = {
        "ApproximateReceiveCount": str(message.receives),
        "SentTimestamp": str(message.sent // MILLISECOND),
        "SenderId": "simulated",
        "ApproximateFirstReceiveTimestamp": str(message.sent // MILLISECOND),
    }
    if message.group is not None:
        attributes["MessageGroupId"] = message.group
    return {
        "messageId": message.id,
        "receiptHandle": message.receipt,
        "body": message.body,
        "attributes": attributes,
        "messageAttributes": dict(message.attributes),
        "md5OfBody": "",
        "eventSource": "aws:sqs",
        "eventSourceARN": spec.arn,
        "awsRegion": "us-east-1",
    }
