"""Unanswered jobs: their entries in the dead-letter queue of their integration.

An entry holds what an operator needs to ask the provider: the job, its saga, since when, how its dispatch ended,
and the state of the saga. It never holds a token.
"""

from __future__ import annotations

import json
from typing import Any, Final

from botocore.exceptions import BotoCoreError, ClientError

from saga_runtime.callbacks.rows import JobId, TokenRow
from saga_runtime.callbacks.saga_writes import SagaRecord
from saga_runtime.errors import TransientError
from saga_runtime.protocol import UNANSWERED_FIELD, UnansweredField
from saga_runtime.saga_log.rows import LogRow
from saga_runtime.shared import aws, telemetry

_NO_QUEUE: Final = frozenset({"AWS.SimpleQueueService.NonExistentQueue", "QueueDoesNotExist"})


def unanswered_entry(row: TokenRow, job: JobId, log: LogRow | None, record: SagaRecord | None, now_ms: int) -> str:
    """The entry: JSON text with the member ``unanswered`` alone. Pure."""
    f = UnansweredField
    fields: dict[UnansweredField, Any] = {
        f.JOB_ID: row.id,
        f.SAGA_ID: job.saga_id,
        f.STEP: job.row_name,
        f.EXECUTION: row.execution,
        f.FOUND_AT: now_ms,
        f.WAITING_SINCE: row.waiting_since,
        f.EXPECTED_AT: row.expected_at,
        f.HEARTBEAT_AT: row.heartbeat_at,
        f.FAILED_DISPATCHES: row.dispatches,
        f.DISPATCH_ERROR: row.dispatch_error,
        f.LOG_STATUS: log.status if log is not None else "",
        f.FIRST_ATTEMPT_AT: log.first_attempt_at if log is not None else 0,
        f.ACCEPTED_AT: log.accepted_at if log is not None else 0,
        f.RECORD_STATUS: record.status if record is not None else "",
        f.LOG_TABLE: row.log_table,
        f.REQUEST_TABLE: row.request_table,
    }
    entry = {UNANSWERED_FIELD: dict(fields)}
    return json.dumps(entry, separators=(",", ":"), ensure_ascii=False)


def is_unanswered_entry(body: object) -> bool:
    """Test whether a message is an entry of an unanswered job; it is not a job itself."""
    try:
        found = json.loads(body) if isinstance(body, str) else None
    except (ValueError, RecursionError):
        return False
    return isinstance(found, dict) and found.keys() == {UNANSWERED_FIELD}


def tell_unanswered(url: str, entry: str, job_id: str) -> None:
    """Send an entry to a dead-letter queue; if that queue is gone with its integration, to the log.

    Raises:
        TransientError: the queue did not respond: it is unknown whether it has the entry.
    """
    try:
        aws.sqs().send_message(QueueUrl=url, MessageBody=entry)
    except (ClientError, BotoCoreError) as error:
        if aws.error_code(error) in _NO_QUEUE:
            telemetry.event("dead_letter_queue_missing", job_id=job_id)
            return
        if aws.is_transient(error):
            raise TransientError("the dead-letter queue did not answer") from error
        raise
