"""Conditional write of one saga log row.

The row is written, or refused with the existing row. After a lost response it is sent again, by the SDK and
here; a writer that is refused by its own row gets "written".
"""

from __future__ import annotations

import random
import time
from collections.abc import Callable
from typing import Any

from botocore.exceptions import BotoCoreError, ClientError

from saga_runtime.errors import TransientError
from saga_runtime.protocol import LogAttribute
from saga_runtime.saga_log.rows import LogRow
from saga_runtime.saga_log.transaction import BACKOFF, Committed, RowRefused
from saga_runtime.shared import aws


def write_row(entry: Any, *, remaining_ms: Callable[[], int]) -> Committed | RowRefused:
    """Send ``entry`` (``{"Put": ...}`` or ``{"Update": ...}`` with a condition), trying again while there is time.

    Raises:
        TransientError: throttled, or no answer, more often than was tried: it is unknown whether it is written.
    """
    last = TransientError("no time was left to try")
    for failures in range(1, BACKOFF.attempts + 1):
        try:
            _send(entry)
            return Committed()
        except ClientError as error:
            if aws.error_code(error) == aws.CONDITION_FAILED:
                return _refused(entry, error)
            if not aws.is_transient(error) and aws.error_code(error) != aws.TRANSACTION_CONFLICT:
                raise
            last = TransientError("the database is busy")
        except BotoCoreError:
            last = TransientError("the database did not answer")
        delay = BACKOFF.delay_ms(failures, random.random())
        if failures == BACKOFF.attempts or delay * 2 + 1_000 > remaining_ms():
            break
        time.sleep(delay / 1_000)
    raise last


def _send(entry: Any) -> None:
    if "Put" in entry:
        aws.dynamodb().put_item(**entry["Put"])
    else:
        aws.dynamodb().update_item(**entry["Update"])


def _refused(entry: Any, error: ClientError) -> Committed | RowRefused:
    item: Any = error.response.get("Item")
    if not item:
        return RowRefused(row=None)
    row = LogRow.from_item(item)
    status, attempt = _wanted(entry)
    return Committed() if (row.status, row.attempt) == (status, attempt) else RowRefused(row=row)


def _wanted(entry: Any) -> tuple[str, str]:
    a = LogAttribute
    if "Put" in entry:
        item = entry["Put"]["Item"]
        return item[a.STATUS]["S"], item[a.ATTEMPT]["S"]
    values = entry["Update"]["ExpressionAttributeValues"]
    return values[f":{a.STATUS}"]["S"], values[f":{a.ATTEMPT}"]["S"]
