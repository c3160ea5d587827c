"""Reading the rows that callbacks are about; all reads are strong."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import replace
from typing import Final

from saga_runtime.callbacks.rows import Callback, JobId, Marker, TokenRow, alias_of
from saga_runtime.callbacks.saga_writes import SagaRecord
from saga_runtime.callbacks.writes import token_key
from saga_runtime.errors import Invalid
from saga_runtime.idempotency.identity import request_id_from
from saga_runtime.protocol import Env, RecordAttribute
from saga_runtime.saga_log.rows import LogRow, log_key
from saga_runtime.shared import writes
from saga_runtime.shared.backoff import PATIENT
from saga_runtime.shared.writes import Item

LOOKS: Final = 8
"""Most reads of one row: rows change less often than that; more means that something is wrong."""


def token_table() -> str:
    """Name of the token table."""
    return os.environ[Env.TOKEN_TABLE]


def alias_id(provider_id: str) -> str:
    """Id of the row of an id that the provider of this function's integration uses."""
    return alias_of(_integration(), provider_id)


def marker_of(callback: Callback, *, ok: bool) -> Marker:
    """The row of an event that this function's integration received.

    Raises:
        Invalid: if the event has no id.
    """
    if callback.event_id is None:
        raise Invalid("event_id must be set, got None; only a webhook and an event rule derive an id")
    return Marker(integration=_integration(), event_id=callback.event_id, job_id=callback.job_id, ok=ok)


def is_received(callback: Callback, *, ok: bool) -> bool:
    """Test whether this function's integration received an event."""
    marker = marker_of(callback, ok=ok)
    item = _read(token_table(), token_key(marker.id))
    if item is None or marker.is_in(item):
        return item is not None
    return _read(token_table(), token_key(replace(marker, reused=True).id)) is not None


def _integration() -> str:
    return os.environ.get(Env.INTEGRATION, "")


def read_token(row_id: str) -> TokenRow | None:
    """A row of the token table."""
    item = _read(token_table(), token_key(row_id))
    return None if item is None else TokenRow.from_item(item)


def read_log(table: str, job: JobId) -> LogRow | None:
    """A job's row in the saga log."""
    item = _read(table, log_key(job.saga_id, job.row_name))
    return None if item is None else LogRow.from_item(item)


def read_both(job_id: str, job: JobId, log: str) -> tuple[TokenRow | None, LogRow | None]:
    """A job's token row, and its row in a saga log: in one call, not as of one moment.

    What is decided by both is written on condition that both are as read.
    """
    key = log_key(job.saga_id, job.row_name)
    found = writes.read_all({token_table(): [token_key(job_id)], log: [key]}, retry=PATIENT)
    (tokens, rows) = found.values()
    return (TokenRow.from_item(tokens[0]) if tokens else None), (LogRow.from_item(rows[0]) if rows else None)


def read_record(table: str, saga_id: str) -> SagaRecord | None:
    """A saga's request record; None if its key is another saga's by now, or free."""
    item = _read(table, {RecordAttribute.ID: {"S": request_id_from(saga_id)}})
    record = None if item is None else SagaRecord.from_item(item)
    return record if record is not None and record.saga_id == saga_id else None


def _read(table: str, key: Mapping[str, Mapping[str, str]]) -> Item | None:
    return writes.read({"TableName": table, "Key": key}, retry=PATIENT)
