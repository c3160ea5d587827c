"""Reconciles interrupted sagas: due ones, by a schedule, and those whose executions failed, at once.

By a schedule of its own it adds up what is in flight, and removes responses that have expired.
"""

from __future__ import annotations

import json
import os
from dataclasses import asdict
from typing import Any

from saga_runtime.protocol import Env, Look, LookField
from saga_runtime.recovery.expired_responses import remove_expired
from saga_runtime.recovery.hold import hold_of_env
from saga_runtime.recovery.in_flight import OutOfTime, measure
from saga_runtime.recovery.operators_queue import clear_queues
from saga_runtime.recovery.reconciler import Reconciler, served_of
from saga_runtime.shared import aws, telemetry


def handler(event: Any, context: Any) -> dict[str, Any]:
    """Process a batch of status events, or a measurement of what is in flight, or else one check of what is due.

    Returns:
        Of a batch: the messages to redeliver. Of a check or a measurement: what was found, in numbers; empty,
        if there was no time to measure all of it.
    """
    aws.check_protocol()
    try:
        if isinstance(event, dict) and event.get(LookField.LOOK) == Look.IN_FLIGHT:
            return _measured(context)
        reconciler = Reconciler.from_env(context.get_remaining_time_in_millis)
        if isinstance(event, dict) and "Records" in event:
            failed = [message["messageId"] for message in event["Records"] if not _handled(reconciler, message)]
            return {"batchItemFailures": [{"itemIdentifier": message_id} for message_id in failed]}
        done = asdict(reconciler.sweep())
        telemetry.event("reconciled", **done)
        return done
    finally:
        telemetry.flush()


def _measured(context: Any) -> dict[str, Any]:
    """Measure what is in flight. What cannot be read in time is not retried at once: it would take as long again.

    Then, in the time that is left, responses that have expired are removed, and entries of operators' queues about
    sagas that are not parked any more.
    """
    found: dict[str, Any] = {}
    try:
        found = asdict(measure(context.get_remaining_time_in_millis))
    except OutOfTime as error:
        telemetry.event("in_flight_not_measured", reached=str(error))
    telemetry.flush()  # queues that do not respond may take all the time that is left
    served = served_of(os.environ[Env.RECONCILED])
    remove_expired(served, context.get_remaining_time_in_millis)
    clear_queues(served, hold_of_env(), context.get_remaining_time_in_millis)
    return found


def _handled(reconciler: Reconciler, message: dict[str, Any]) -> bool:
    """Test whether a status event was processed; one that cannot be read is dead-lettered, alone."""
    try:
        reconciler.execution_ended(str(json.loads(message["body"])["detail"]["name"]))
    except aws.OF_ONE_ITEM as error:
        code = aws.error_code(error)
        telemetry.event("status_event_failed", message_id=message["messageId"], error=type(error).__name__, code=code)
        return False
    return True
