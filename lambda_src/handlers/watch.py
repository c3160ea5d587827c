"""Watches state machines: finds failed executions, by a schedule and by status events, and calls functions."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import asdict
from typing import Any

from botocore.exceptions import BotoCoreError, ClientError

from saga_runtime.protocol import WatchAttribute, WatchMessageField
from saga_runtime.shared import aws, telemetry
from saga_runtime.shared.arns import execution_of
from saga_runtime.watch.notify import Teller
from saga_runtime.watch.sweep import SWEEP_MS, Sweep
from saga_runtime.watch.watcher import Watcher


def handler(event: Any, context: Any) -> dict[str, Any]:
    """Process a batch of messages from the queue, or else one check of lists and due ends.

    Returns:
        Of a batch: the messages to redeliver. Of a check: what was found, in numbers.
    """
    aws.check_protocol()
    left: Callable[[], int] = context.get_remaining_time_in_millis
    try:
        if isinstance(event, dict) and "Records" in event:
            teller = Teller(watcher=Watcher.from_env(left))
            failed = [message["messageId"] for message in event["Records"] if not _handled(teller, message)]
            return {"batchItemFailures": [{"itemIdentifier": message_id} for message_id in failed]}
        # The function lives for as long as it may have to wait for another one; a sweep does not.
        beyond = max(left() - SWEEP_MS, 0)
        looked = asdict(Sweep(watcher=Watcher.from_env(lambda: left() - beyond)).run())
        telemetry.event("watched", **looked)
        return looked
    finally:
        telemetry.flush()


def _handled(teller: Teller, message: dict[str, Any]) -> bool:
    """Test whether a message is done with; one that cannot be read ends in the dead-letter queue."""
    f = WatchMessageField
    try:
        match json.loads(message["body"]):
            case {f.ENDED: {"stateMachineArn": str(machine_arn), "name": str(name)}}:
                teller.ended(execution_of(machine_arn, name))
            case {f.DUE: str(row_id)}:
                teller.look_at(row_id)
            case {f.EXECUTION: {WatchAttribute.ID: str(row_id)}}:
                teller.try_anew(row_id)
            case _:
                raise ValueError("a message names an end, in one of three ways")
    except (ClientError, BotoCoreError, ValueError) as error:
        code = aws.error_code(error)
        telemetry.event("watch_message_failed", message_id=message["messageId"], error=type(error).__name__, code=code)
        return False
    return True
