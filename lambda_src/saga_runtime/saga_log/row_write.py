"""Conditional write of one saga log row.

The row is written, or refused with the existing row. After a lost response it is sent again, by the SDK and
here; a writer that is refused by its own row gets "written".
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from saga_runtime.protocol import LogAttribute
from saga_runtime.saga_log.rows import LogRow
from saga_runtime.saga_log.transaction import BACKOFF, Committed, RowRefused
from saga_runtime.shared import writes
from saga_runtime.shared.backoff import Retry


def write_row(entry: Any, *, remaining_ms: Callable[[], int]) -> Committed | RowRefused:
    """Send ``entry`` (``{"Put": ...}`` or ``{"Update": ...}`` with a condition), trying again while there is time.

    Raises:
        TransientError: throttled, or no answer, more often than was tried: it is unknown whether it is written.
    """
    refused = writes.write(entry, retry=Retry(backoff=BACKOFF, remaining_ms=remaining_ms))
    if refused is None:
        return Committed()
    if not refused.item:
        return RowRefused(row=None)
    row = LogRow.from_item(refused.item)
    status, attempt = _wanted(entry)
    return Committed() if (row.status, row.attempt) == (status, attempt) else RowRefused(row=row)


def _wanted(entry: Any) -> tuple[str, str]:
    a = LogAttribute
    if "Put" in entry:
        item = entry["Put"]["Item"]
        return item[a.STATUS]["S"], item[a.ATTEMPT_ID]["S"]
    values = entry["Update"]["ExpressionAttributeValues"]
    return values[f":{a.STATUS}"]["S"], values[f":{a.ATTEMPT_ID}"]["S"]
