"""Sends a saga's notifications, each under its step key.

The log row is read before, and written after the send: after a crash in between the step sends again, which the
queue deduplicates for five minutes. A row never claims a message that was not sent.
"""

from __future__ import annotations

import uuid
from collections.abc import Mapping
from typing import Any

from saga_runtime.errors import ProtocolMismatch, accepted_text
from saga_runtime.idempotency.identity import request_id_from
from saga_runtime.protocol import OUTPUT_FIELD, CallField
from saga_runtime.saga_log.rows import done_put
from saga_runtime.saga_log.transaction import RowRefused, commit
from saga_runtime.shared import aws, clock, telemetry
from saga_runtime.steps.atomic import read_row, replay_or_fence
from saga_runtime.steps.step import StepCall, decode_output, encode_output


def handler(event: Mapping[str, Any], context: Any) -> dict[str, Any]:
    """Send one notification, unless the saga log has its row."""
    aws.check_protocol()
    call = StepCall.from_event(event, attempt=uuid.uuid4().hex, now_ms=clock.now_ms())
    queue_url, message = event.get(CallField.QUEUE_URL), event.get(CallField.MESSAGE)
    if not isinstance(queue_url, str) or not isinstance(message, str) or not queue_url or not message:
        raise ProtocolMismatch(f"step {call.step} came without a queue or without a message")
    try:
        row = read_row(call)
        if row is not None:
            return {OUTPUT_FIELD: replay_or_fence(call, row)}
        sent = aws.sqs().send_message(
            QueueUrl=queue_url,
            MessageBody=accepted_text(message),  # refused, it would keep the saga from ever settling
            MessageGroupId=request_id_from(call.saga_id),
            MessageDeduplicationId=call.key,
        )
        output = encode_output({"message_id": sent["MessageId"]})
        result = commit(lambda: (_row(call, output), ()), remaining_ms=context.get_remaining_time_in_millis)
        if isinstance(result, RowRefused):
            return {OUTPUT_FIELD: replay_or_fence(call, result.row or read_row(call))}
        telemetry.event("notified", saga_id=call.saga_id, step=call.step)
        return {OUTPUT_FIELD: decode_output(output)}
    finally:
        telemetry.flush()


def _row(call: StepCall, output: str) -> Any:
    return done_put(
        table=call.log_table,
        saga_id=call.saga_id,
        step=call.row_name,
        side=call.side,
        attempt=call.attempt,
        output=output,
        now_ms=call.now_ms,
        keep_days=call.log_days,
    )
