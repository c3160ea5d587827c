"""Reading and writing the rows that callbacks are about.

Reads are strong. A write is committed, or refused because something is not as it was read: then the writer reads
again. A lost answer is sent again, by the SDK and here; a writer that is refused by its own write finds, when it reads
again, that nothing is left to do.
"""

from __future__ import annotations

import os
import random
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any, Final, TypeVar

from botocore.exceptions import BotoCoreError, ClientError

from saga_runtime.callbacks.rows import Callback, JobId, Marker, TokenRow, alias_of
from saga_runtime.callbacks.saga_writes import SagaRecord
from saga_runtime.callbacks.writes import token_key
from saga_runtime.errors import Invalid, TransientError
from saga_runtime.idempotency.identity import request_id_from
from saga_runtime.protocol import Env, RecordAttribute
from saga_runtime.saga_log.rows import LogRow, log_key
from saga_runtime.saga_log.transaction import BACKOFF
from saga_runtime.shared import aws

Result = TypeVar("Result")

Item = Mapping[str, Mapping[str, Any]]

LOOKS: Final = 8
"""Most reads of one row: rows change less often than that; more means that something is wrong."""
_REFUSED: Final = "ConditionalCheckFailed"


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


def read_record(table: str, saga_id: str) -> SagaRecord | None:
    """A saga's request record; None if its key is another saga's by now, or free."""
    item = _read(table, {RecordAttribute.ID: {"S": request_id_from(saga_id)}})
    record = None if item is None else SagaRecord.from_item(item)
    return record if record is not None and record.saga_id == saga_id else None


def _read(table: str, key: Mapping[str, Mapping[str, str]]) -> Item | None:
    asked: Any = {"TableName": table, "Key": key, "ConsistentRead": True}
    found: Any = _tried(lambda: aws.dynamodb().get_item(**asked))
    item: Item | None = found.get("Item")
    return item


def write(entry: Any) -> Item | bool | None:
    """Send one conditional write.

    Returns:
        True: it is written. Otherwise the item that refused it, if it was asked for, or None.

    Raises:
        TransientError: throttled, or no answer, more often than was tried: it is unknown whether it is written.
    """

    def send() -> Item | bool | None:
        try:
            if "Put" in entry:
                aws.dynamodb().put_item(**entry["Put"])
            else:
                aws.dynamodb().update_item(**entry["Update"])
        except ClientError as error:
            if aws.error_code(error) != aws.CONDITION_FAILED:
                raise
            answer: Any = error.response
            item: Item | None = answer.get("Item")
            return item
        return True

    return _tried(send)


def transact(entries: Sequence[Any]) -> Mapping[int, Item | None]:
    """Write all entries, or none.

    Returns:
        Empty: all are written. Otherwise which ones were refused, each with the item that refused it, if it was asked
        for.

    Raises:
        TransientError: conflicts, throttles, or no answer, more often than was tried.
    """

    def send() -> Mapping[int, Item | None]:
        try:
            aws.dynamodb().transact_write_items(TransactItems=list(entries))
        except ClientError as error:
            reasons = enumerate(aws.cancellation_reasons(error))
            refused = {index: reason.get("Item") for index, reason in reasons if reason.get("Code") == _REFUSED}
            if not refused:
                raise
            return refused
        return {}

    return _tried(send)


_PASSES: Final = frozenset({"TransactionConflict", "ThrottlingError", "ProvisionedThroughputExceeded"})


def _tried(send: Callable[[], Result]) -> Result:
    last = TransientError("the database is busy")
    for failures in range(1, BACKOFF.attempts + 1):
        try:
            return send()
        except ClientError as error:
            if not _passes(error):
                raise
        except BotoCoreError:
            last = TransientError("the database did not answer")
        if failures < BACKOFF.attempts:
            time.sleep(BACKOFF.delay_ms(failures, random.random()) / 1_000)
    raise last


def _passes(error: ClientError) -> bool:
    code = aws.error_code(error)
    if code == aws.TRANSACTION_CANCELED:
        return bool(_PASSES.intersection(str(reason.get("Code")) for reason in aws.cancellation_reasons(error)))
    return code == aws.TRANSACTION_CONFLICT or aws.is_transient(error)
