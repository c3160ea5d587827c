"""SQS: dead letters are moved back."""

from __future__ import annotations

import contextvars
import json
from collections.abc import Callable
from typing import Any, Final

from ministack.core import iam_actions, iam_evaluator
from ministack.core.responses import new_uuid
from ministack.services import sqs

from constructs_lib.testing.emulator.corrections import Correction, Emulator, replace

_START: Final = "StartMessageMoveTask"
_LIST: Final = "ListMessageMoveTasks"
#: Permissions that a move needs, besides its own, on the queue that it takes the messages from.
_SOURCE_ACTIONS: Final = ("ReceiveMessage", "DeleteMessage", "GetQueueAttributes")
_MOST_TASKS_LISTED: Final = 10

Body = dict[str, Any]

#: Where the messages of the present request are moved to.
_destinations: contextvars.ContextVar[tuple[str, ...]] = contextvars.ContextVar("destinations", default=())
_tasks: list[Body] = []


def message_moves(_emulator: Emulator) -> None:
    """Dead letters are moved back to where they came from, or elsewhere, as new messages.

    The emulator knows no such action. A move takes the visible messages, all at once, where AWS takes its time.
    """

    def make_extract(original: Callable[..., str]) -> Callable[..., str]:
        def extract(service: str, method: str, path: str, headers: Any, body: Any, *args: Any) -> str:
            if service == "sqs" and str(headers.get("x-amz-target", "")).endswith((f".{_START}", f".{_LIST}")):
                asked = json.loads(body)
                source = str(asked.get("SourceArn", ""))
                _destinations.set((asked["DestinationArn"],) if "DestinationArn" in asked else _origins_of(source))
                return source
            return original(service, method, path, headers, body, *args)

        return extract

    def make_enforce(original: Callable[..., Any]) -> Callable[..., Any]:
        def enforce(access_key: Any, action: str, *args: Any, **options: Any) -> Any:
            denied = original(access_key, action, *args, **options)
            if denied or action != f"sqs:{_START}":
                return denied
            needed = [(f"sqs:{one}", options.get("resource_arn")) for one in _SOURCE_ACTIONS]
            needed += [("sqs:SendMessage", destination) for destination in _destinations.get()]
            answers = (original(access_key, one, *args, **{**options, "resource_arn": arn}) for one, arn in needed)
            return next((answer for answer in answers if answer), None)

        return enforce

    replace(iam_actions, "extract_resource_arn", make_extract)
    replace(iam_evaluator, "enforce", make_enforce)
    sqs._HANDLERS.update({_START: _start, _LIST: _list})


def _origins_of(source: str) -> tuple[str, ...]:
    """The queues whose dead letters a queue takes."""
    queues = list(sqs._queues.all_values())
    return tuple(
        str(queue["attributes"]["QueueArn"])
        for queue in queues
        if json.loads(queue["attributes"].get("RedrivePolicy") or "{}").get("deadLetterTargetArn") == source
    )


def _start(data: Body, _url: str) -> Body:
    arn, elsewhere = str(data.get("SourceArn", "")), data.get("DestinationArn")
    source = sqs._queue_by_arn(arn)
    if source is None or (elsewhere and sqs._queue_by_arn(elsewhere) is None):
        raise sqs._Err("ResourceNotFoundException", "The resource that you specified for a queue doesn't exist.")
    if not _origins_of(arn):
        raise sqs._Err("InvalidParameterValue", "Source queue must be configured as a Dead Letter Queue.")
    with sqs._queues_lock:
        now = sqs.time.time()
        moving = [message for message in source["messages"] if message["visible_at"] <= now]
        moved = 0
        for message in moving:
            destination = sqs._queue_by_arn(elsewhere or message["sys"].get("DeadLetterQueueSourceArn", ""))
            if destination is not None:
                source["messages"].remove(message)
                destination["messages"].append(_as_new(message, now))
                moved += 1
    sqs.esm_wake.set()
    task = {
        "TaskHandle": new_uuid(),
        "Status": "COMPLETED" if moved == len(moving) else "FAILED",
        "SourceArn": arn,
        **({"DestinationArn": elsewhere} if elsewhere else {}),
        "ApproximateNumberOfMessagesMoved": moved,
        "ApproximateNumberOfMessagesToMove": len(moving),
        "StartedTimestamp": int(now * 1000),
    }
    _tasks.insert(0, task)
    return {"TaskHandle": task["TaskHandle"]}


def _as_new(message: Body, now: float) -> Body:
    attributes = {name: value for name, value in message["sys"].items() if name != "DeadLetterQueueSourceArn"}
    return {
        **message,
        "id": new_uuid(),
        "sys": {**attributes, "SentTimestamp": str(int(now * 1000))},
        "receipt_handle": None,
        "sent_at": now,
        "visible_at": now,
        "receive_count": 0,
        "first_receive_at": None,
    }


def _list(data: Body, _url: str) -> Body:
    known = [task for task in _tasks if task["SourceArn"] == data.get("SourceArn")]
    most = min(int(data.get("MaxResults") or 1), _MOST_TASKS_LISTED)
    # A task that is over has no handle any more.
    return {"Results": [{name: task[name] for name in task if name != "TaskHandle"} for task in known[:most]]}


CORRECTIONS: Final[tuple[Correction, ...]] = (message_moves,)
