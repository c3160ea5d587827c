"""Unanswered jobs: their entries in the dead-letter queue of their integration.

An entry holds what an operator needs to ask the provider: the job, its saga, since when, how its dispatch ended,
and the state of the saga. It never holds a token.
"""

from __future__ import annotations

import json
from typing import Any

from saga_runtime.callbacks.rows import JobId, TokenRow
from saga_runtime.callbacks.saga_writes import SagaRecord
from saga_runtime.protocol import UNANSWERED_FIELD, UnansweredField
from saga_runtime.saga_log.rows import LogRow


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
