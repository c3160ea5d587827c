"""Finds failed executions of watched state machines, and processes ends that are due.

Step Functions lists executions of one status with the most recent ones first. So a list is read until a whole page of
it is older than what is known; and once a day to its end, for it may be behind, or in the order of what was started
last. A list that is too long for one sweep is read on by the next one.
"""

from __future__ import annotations

import json
import random
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Final, TypeVar

from botocore.exceptions import BotoCoreError, ClientError

from saga_runtime.protocol import (
    DUE_INDEX,
    WATCH_DUE_SHARDS,
    FailedStatus,
    Metric,
    WatchAttribute,
    WatchMessageField,
    WatchStatus,
)
from saga_runtime.shared import aws, clock, telemetry
from saga_runtime.watch.decisions import QUEUED_MS, Execution, begin_again, first_list, is_last, looks_back_to, read_on
from saga_runtime.watch.rows import ListRow, Watched, list_id, list_put, list_update, queued_update
from saga_runtime.watch.watcher import SPARE_MS, Watcher

SWEEP_MS: Final = 50_000
"""Shorter than the minute after which the next sweep begins."""
PAGE: Final = 1_000
"""Executions of one page of a list: Step Functions' most."""

Result = TypeVar("Result")


@dataclass(slots=True, kw_only=True)
class Looked:
    """Result of a sweep.

    Attributes:
        listed: entries of lists that were read.
        found: ends that were not known.
        queued: ends that are due, and were put into the queue.
        oldest_seconds: for how long the longest of those is overdue; 0: none is.
        foreign: due ends of machines that are not watched any more.
        failed: lists, shards or ends that failed; the next sweep retries them.
        complete: whether everything that is due was processed.
    """

    listed: int = 0
    found: int = 0
    queued: int = 0
    oldest_seconds: int = 0
    foreign: int = 0
    failed: int = 0
    complete: bool = True


@dataclass(slots=True, kw_only=True)
class Sweep:
    """One check of the lists that are due, and of every end that is due.

    Attributes:
        watcher: its watcher.
        looked: what it found.
    """

    watcher: Watcher
    looked: Looked = field(default_factory=Looked)

    def run(self) -> Looked:
        """Put every end that is due into the queue, and read the lists that are due."""
        looked, now_ms = self.looked, clock.now_ms()
        for row_id in self._due(now_ms):
            if not self._go_on():
                break
            self._guarded(row_id, partial(self._queue_up, row_id, now_ms))
        seen = looked.complete  # how old the oldest is: lists have no part in that
        for watched in self.watcher.watched:
            for end in sorted(watched.ends):
                if self._go_on():
                    self._guarded(list_id(watched.machine, end), partial(self._read_list, watched, end))
        if seen and not looked.failed:  # missing data breaches: the age of unchecked ends is unknown
            telemetry.seconds(Metric.OLDEST_BAD_END, looked.oldest_seconds)
        return looked

    def _go_on(self) -> bool:
        if self.watcher.remaining_ms() < SPARE_MS:
            self.looked.complete = False
        return self.looked.complete

    def _guarded(self, name: str, look: Callable[[], Result]) -> Result | None:
        """A failure does not block the rest; throttling slows all of it down."""
        try:
            return self.watcher.patiently(look)
        except (ClientError, BotoCoreError, ValueError) as error:
            self.looked.failed += 1
            code = aws.error_code(error)
            telemetry.event("watch_failed", row_id=name, error=type(error).__name__, code=code)
            return None

    def _read_list(self, watched: Watched, end: FailedStatus) -> None:
        """Keep every end that a list shows; what was kept before stays as it is."""
        row_id = list_id(watched.machine, end)
        item = self.watcher.item(row_id)
        row = ListRow.from_item(item) if item is not None else first_list(row_id, clock.now_ms())
        if item is None and not self.watcher.put(list_put(row)):
            return  # another process has begun
        if row.due_at > clock.now_ms():
            return
        while self._go_on():
            scan_started_at = row.scan_started_at or clock.now_ms()
            page = self._page(watched, end, row)
            if page is None:
                after = begin_again(row)
            else:
                listed = [Execution.of(said) for said in page["executions"]]
                for execution in listed:
                    if execution.stopped_at >= looks_back_to(row, scan_started_at):
                        self.looked.found += self.watcher.keep(watched, execution)
                self.looked.listed += len(listed)
                token = None if is_last(listed, row, scan_started_at) else page.get("nextToken")
                after = read_on(row, scan_started_at, token, clock.now_ms())
            if not self.watcher.updated(list_update(row, after)) or not after.scan_started_at:
                return  # another process continues; or it was the last page
            row = after

    def _page(self, watched: Watched, end: FailedStatus, row: ListRow) -> Mapping[str, Any] | None:
        """A page of a list; None: its token has expired."""
        asked: Any = {"stateMachineArn": watched.machine, "statusFilter": end, "maxResults": PAGE}
        if row.page_token is not None:
            asked["nextToken"] = row.page_token
        try:
            answer: Mapping[str, Any] = aws.step_functions().list_executions(**asked)
        except ClientError as error:
            if aws.error_code(error) != "InvalidToken" or row.page_token is None:
                raise
            return None
        return answer

    def _due(self, now_ms: int) -> Iterator[str]:
        """Ids of what is due. A shard that does not answer does not keep the others from it."""
        # Not the same one first each time, however rare looks are: one with many rows would keep the others waiting.
        first = random.randrange(WATCH_DUE_SHARDS)
        for number in range(WATCH_DUE_SHARDS):
            shard = f"{(first + number) % WATCH_DUE_SHARDS:02d}"
            start: Mapping[str, Any] | None = {}
            while start is not None and self._go_on():
                page = self._guarded(shard, partial(self._due_page, shard, start, now_ms))
                if page is None:
                    break
                yield from (str(item[WatchAttribute.ID]["S"]) for item in page["Items"])
                start = page.get("LastEvaluatedKey")

    def _due_page(self, shard: str, start: Mapping[str, Any], now_ms: int) -> Mapping[str, Any]:
        a = WatchAttribute
        asked: dict[str, Any] = {
            "TableName": self.watcher.table,
            "IndexName": DUE_INDEX,
            "KeyConditionExpression": "#shard = :shard AND #due_at <= :now",
            "ExpressionAttributeNames": {"#shard": a.DUE_SHARD, "#due_at": a.DUE_AT},
            "ExpressionAttributeValues": {":shard": {"S": shard}, ":now": {"N": str(now_ms)}},
            **({"ExclusiveStartKey": start} if start else {}),
        }
        answer: Mapping[str, Any] = aws.dynamodb().query(**asked)
        return answer

    def _queue_up(self, row_id: str, now_ms: int) -> None:
        row = self.watcher.row(row_id)
        if row is None or row.status is not WatchStatus.PENDING or row.due_at > now_ms:
            return  # the index lagged: it was processed
        watched = self.watcher.machine_of(row.execution_arn)
        if watched is None:
            self.looked.foreign += 1
        elif not row.redriven:
            late = now_ms - row.stopped_at - watched.grace_ms
            self.looked.oldest_seconds = max(self.looked.oldest_seconds, late // 1_000)
        if watched is not None:
            # Queued before that is recorded: at least once.
            message = json.dumps({WatchMessageField.DUE: row.id})
            aws.sqs().send_message(QueueUrl=self.watcher.queue, MessageBody=message)
            self.looked.queued += 1
        self.watcher.updated(queued_update(row.id, row.due_at, now_ms + QUEUED_MS))
