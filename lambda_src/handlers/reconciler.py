"""Looks after interrupted sagas: those that are due, by a schedule, and those whose executions ended badly, at once."""

from __future__ import annotations

import json
from dataclasses import asdict
from typing import Any

from botocore.exceptions import BotoCoreError, ClientError

from saga_runtime import aws, telemetry
from saga_runtime.reconciler import Reconciler


def handler(event: Any, context: Any) -> dict[str, Any]:
    """A batch of status events from the queue, or else one look at everything that is due.

    Returns:
        Of a batch: the messages that have to come again. Of a look: what was found, in numbers.
    """
    aws.check_protocol()
    reconciler = Reconciler.from_env(context.get_remaining_time_in_millis)
    try:
        if isinstance(event, dict) and "Records" in event:
            failed = [message["messageId"] for message in event["Records"] if not _handled(reconciler, message)]
            return {"batchItemFailures": [{"itemIdentifier": message_id} for message_id in failed]}
        done = asdict(reconciler.sweep())
        telemetry.event("reconciled", **done)
        return done
    finally:
        telemetry.flush()


def _handled(reconciler: Reconciler, message: dict[str, Any]) -> bool:
    """Whether a status event was looked after; one that cannot be read ends in the dead-letter queue."""
    try:
        reconciler.execution_ended(str(json.loads(message["body"])["detail"]["name"]))
    except (ClientError, BotoCoreError, ValueError, KeyError, TypeError) as error:
        code = aws.error_code(error)
        telemetry.event("status_event_failed", message_id=message["messageId"], error=type(error).__name__, code=code)
        return False
    return True
