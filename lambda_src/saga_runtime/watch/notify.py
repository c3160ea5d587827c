"""Reports a failed execution: one message of the queue, one end."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, Final

from botocore.exceptions import BotoCoreError, ClientError

from saga_runtime.protocol import Metric, WatchAttribute, WatchMessageField
from saga_runtime.shared import aws, clock, telemetry
from saga_runtime.watch.decisions import (
    LONGEST_PAUSE_MS,
    PAUSE_MS,
    Execution,
    Need,
    decide,
    event_of,
    is_callable,
    pause_after,
)
from saga_runtime.watch.rows import (
    EndRow,
    Watched,
    again_update,
    dead_lettered_update,
    failed_update,
    later_update,
    lease_update,
    over_update,
    told_update,
)
from saga_runtime.watch.watcher import SPARE_MS, Watcher

_LEAST_MS: Final = 1_000
"""A client is made per patience; rounded down, invocations share a few."""
_LONGEST_NAME: Final = 200


@dataclass(frozen=True, slots=True, kw_only=True)
class Failure:
    """A call that was not answered as it should be.

    Attributes:
        error: its name.
        over: whether the function is certainly not at it any more.
    """

    error: str
    over: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Teller:
    """Keeps ends, calls their functions, and reports them to operators.

    Attributes:
        watcher: its watcher.
    """

    watcher: Watcher

    def ended(self, execution_arn: str) -> None:
        """Keep the end of a status event, if it is one: the event may be late, or duplicated.

        Raises:
            ClientError, BotoCoreError: it could not be read.
        """
        watched = self.watcher.machine_of(execution_arn)
        said = self.watcher.patiently(partial(self.watcher.described, execution_arn)) if watched is not None else None
        if watched is None or said is None:
            telemetry.event("unknown_execution", execution=execution_arn)
            return
        self.watcher.keep(watched, Execution.of(said))

    def look_at(self, row_id: str) -> None:
        """Process an end that is due.

        Raises:
            ClientError, BotoCoreError: it could not be processed.
        """
        self.watcher.patiently(partial(self._look_at, row_id))

    def try_anew(self, row_id: str) -> None:
        """Retry an end that was reported to operators.

        Raises:
            ClientError, BotoCoreError: it could not be written.
        """
        self.watcher.patiently(partial(self.watcher.updated, again_update(row_id, clock.now_ms())))

    def _look_at(self, row_id: str) -> None:
        row, now_ms = self.watcher.row(row_id), clock.now_ms()
        if row is None or not is_callable(row, now_ms):
            return  # it was processed, or is
        watched = self.watcher.machine_of(row.execution_arn)
        if watched is None:
            return
        said = self.watcher.described(row.execution_arn)
        execution = Execution.of(said) if said is not None else None
        match decide(row, execution, watched, now_ms):
            case Need.OVER:
                self.watcher.updated(over_update(row, now_ms))
            case Need.FOLLOW if execution is not None:
                self.watcher.keep(watched, execution)
                self.watcher.updated(over_update(row, now_ms))
            case Need.STUCK:
                self._leave_to_a_person(row)
            case Need.TELL if said is not None:
                self._tell(watched, row, said)
            case _:
                runs = execution is not None and execution.redrives > row.redrives
                after = LONGEST_PAUSE_MS if runs else PAUSE_MS
                self.watcher.updated(later_update(row, now_ms, now_ms + after, redriven=runs))

    def _tell(self, watched: Watched, row: EndRow, said: Mapping[str, Any]) -> None:
        """Lease the end, call its function, and record the result; after a crash here the next call follows."""
        now_ms = clock.now_ms()
        mine = replace(row, attempt=row.attempt + 1, not_before=now_ms + watched.lease_ms)
        if not self.watcher.updated(lease_update(row, now_ms, mine.not_before)):
            return  # another process calls
        failure = self._call(watched.function, event_of(mine, said))
        now_ms = clock.now_ms()
        if failure is None:
            if self.watcher.patiently(partial(self.watcher.updated, told_update(mine, now_ms))):
                telemetry.count(Metric.BAD_ENDS_TOLD, row_id=row.id)
            return
        telemetry.event("notification_failed", row_id=row.id, error=failure.error, attempt=mine.attempt)
        if mine.attempt >= watched.attempts:
            self._leave_to_a_person(replace(mine, error=failure.error))
            return
        until = wait_expires_at(mine, now_ms, over=failure.over)
        self.watcher.updated(failed_update(mine, now_ms, until, failure.error))

    def _call(self, function: str, event: Mapping[str, Any]) -> Failure | None:
        """Call a function and wait for its answer; None: it answered. Its client never sends a call again."""
        left_ms = clock.real_seconds(max(self.watcher.remaining_ms() - SPARE_MS, _LEAST_MS) / 1_000) * 1_000
        client = aws.functions(max(int(left_ms) // _LEAST_MS * _LEAST_MS, _LEAST_MS))
        try:
            answer = client.invoke(FunctionName=function, Payload=json.dumps(event).encode("utf-8"))
            body = answer["Payload"].read()
        except ClientError as error:
            status = error.response.get("ResponseMetadata", {}).get("HTTPStatusCode", 500)
            return Failure(error=str(aws.error_code(error)), over=status < 500)
        except (BotoCoreError, OSError) as error:
            return Failure(error=type(error).__name__, over=False)
        if answer.get("FunctionError"):
            return Failure(error=_error_type(body), over=True)
        return None

    def _leave_to_a_person(self, row: EndRow) -> None:
        """Send the entry before the row is marked: at least once."""
        entry = {
            WatchAttribute.ID: row.id,
            WatchAttribute.EXECUTION_STATUS: row.end,
            WatchAttribute.ATTEMPT: row.attempt,
            WatchAttribute.ERROR: row.error,
        }
        message = json.dumps({WatchMessageField.EXECUTION: entry})
        aws.sqs().send_message(QueueUrl=self.watcher.dead_letters, MessageBody=message)
        if self.watcher.updated(dead_lettered_update(row, clock.now_ms())):
            telemetry.count(Metric.BAD_ENDS_STUCK, row_id=row.id)


def wait_expires_at(row: EndRow, now_ms: int, *, over: bool) -> int:
    """When a function is called again: one of which nothing was heard may be at it for as long as its lease holds."""
    until = now_ms + pause_after(row.attempt)
    return until if over else max(until, row.not_before)


def _error_type(body: bytes) -> str:
    """Name of a function's error. Its message may contain anything, and stays in the function's own log."""
    try:
        said = json.loads(body)
    except ValueError:
        said = None
    name = said.get("errorType") if isinstance(said, dict) else None
    return name[:_LONGEST_NAME] if isinstance(name, str) and name else "Unknown"
