"""Waiting for a saga's response: reads of its record, and no write."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Final

from botocore.exceptions import BotoCoreError, ClientError

from saga_runtime.http.operation import read_record
from saga_runtime.idempotency.record import RequestRecord
from saga_runtime.shared import aws, clock, telemetry

_FIRST_PAUSE_MS: Final = 200
_LONGEST_PAUSE_MS: Final = 1_000
_GROWTH: Final = 1.5
_ENOUGH_MS: Final = 3_000
"""Left to the invocation before a read: as long as one lost packet costs."""


def settled_in_time(
    request_table: str, request_id: str, saga_id: str, until: int, remaining_ms: Callable[[], int]
) -> RequestRecord | None:
    """Read the record of a saga until it is settled, or until a time in epoch milliseconds.

    The first read comes after 200 ms, the last one when the time is over; between two reads are 200 ms to 1 s.

    Returns:
        The settled record; None if the time is over, if the database does not answer, or if the key is not this saga's.
    """
    pause: float = _FIRST_PAUSE_MS
    while (left := until - clock.now_ms()) > 0 and remaining_ms() >= _ENOUGH_MS + min(pause, left):
        time.sleep(min(pause, left) / 1_000)
        pause = min(pause * _GROWTH, _LONGEST_PAUSE_MS)
        try:
            record = read_record(request_table, request_id)
        except (ClientError, BotoCoreError) as error:
            telemetry.event("wait_ended", saga_id=saga_id, error=type(error).__name__, code=aws.error_code(error))
            return None
        if record is None or record.saga_id != saga_id:
            return None
        if record.settled:
            return record
    return None
