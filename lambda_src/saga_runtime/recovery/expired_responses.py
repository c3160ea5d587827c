"""Removes responses that have expired, with the requests that they answer. What is left of a record is a tombstone.

Nothing depends on when that happens: the record has the expiry of its response, and its key is refused from
then on, removed or not.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Final

from saga_runtime.idempotency.record import remove_response_update
from saga_runtime.protocol import RESPONSE_INDEX, RecordAttribute
from saga_runtime.recovery import sweep as sweeping
from saga_runtime.recovery.hold import Hold, hold_of_env
from saga_runtime.recovery.saga_reconciler import Served
from saga_runtime.recovery.sweep import Crew, Part, Start, Sweep, Threads
from saga_runtime.shared import aws, clock, telemetry, writes

PAGE: Final = 50
"""Keys of one shard that are held at once."""


@dataclass(slots=True, kw_only=True)
class Remover:
    """Removes expired responses.

    Guaranteed: a response that is still to be replayed, and a request of a saga in progress, stay, however old the
    index is, and concurrently too; so does what a held saga has. It ends before the function does.
    Not guaranteed: that everything that has expired is removed in one run.

    Attributes:
        tables: request tables, each with the number of its shards.
        remaining_ms: time that is left.
        workers: how many records are written at once.
        crew: the threads that do it.
        removed: how many responses were removed.
        complete: whether there was time for all that had expired.
        hold: the switches that keep the reconciler from acting, on all sagas or on one.
    """

    tables: dict[str, int]
    remaining_ms: Callable[[], int]
    workers: int = sweeping.WORKERS
    crew: Crew = field(default_factory=Threads)
    removed: int = 0
    complete: bool = True
    hold: Hold = field(default_factory=hold_of_env)
    _mine: threading.Lock = field(default_factory=threading.Lock)

    def run(self) -> int:
        """Remove what has expired; how many responses that were."""
        now_ms = clock.now_ms()
        parts = deque(
            Part(
                name=f"{table} {shard:02d}",
                page=partial(_page, table, shard, now_ms),
                look=partial(self._remove, table, now_ms),
            )
            for table, shards in self.tables.items()
            for shard in range(shards)
        )
        parts.rotate(-(now_ms // 60_000))  # another one first each time, in case there is no time for all of them
        aws.dynamodb()  # before several want it at once
        sweep = Sweep(parts=parts, remaining_ms=self.remaining_ms, failed=_failed, workers=self.workers, crew=self.crew)
        self.complete = sweep.run()
        return self.removed

    def _remove(self, table: str, now_ms: int, request_id: str, _again: bool) -> None:
        """The condition decides: the index may be behind, and the key may be another saga's by now."""
        if self.hold.read() is not None or self._is_held(table, request_id):
            return
        if writes.write({"Update": {"TableName": table, **remove_response_update(request_id, now_ms)}}) is not None:
            return
        with self._mine:
            self.removed += 1

    def _is_held(self, table: str, request_id: str) -> bool:
        """Test whether the saga is held: late effects of it may still have to be compensated with its request."""
        if self.hold.table is None:
            return False
        a = RecordAttribute
        found: Any = aws.dynamodb().get_item(
            TableName=table,
            Key={a.ID: {"S": request_id}},
            ProjectionExpression="#saga_id",
            ExpressionAttributeNames={"#saga_id": a.SAGA_ID},
        )
        item = found.get("Item", {})
        return a.SAGA_ID in item and self.hold.holds(item[a.SAGA_ID]["S"])


def remove_expired(served: Iterable[Served], remaining_ms: Callable[[], int]) -> int:
    """Remove what has expired of the request tables of some sagas; how many responses that were."""
    tables: dict[str, int] = {}
    for saga in served:
        tables[saga.requests] = max(saga.shards, tables.get(saga.requests, 0))
    remover = Remover(tables=tables, remaining_ms=remaining_ms)
    removed = remover.run()
    if removed or not remover.complete:
        telemetry.event("responses_removed", removed=removed, complete=remover.complete)
    return removed


def _failed(name: str, error: Exception, _for_good: bool) -> None:
    telemetry.event("remove_failed", row_id=name, error=type(error).__name__, code=aws.error_code(error))


def _page(table: str, shard: int, now_ms: int, start: Start) -> tuple[Sequence[str], Start | None]:
    """Keys of one page of the records of a shard whose responses have expired, and have not been removed."""
    a = RecordAttribute
    names = (a.RESPONSE_SHARD, a.RESPONSE_EXPIRES_AT, a.ID)
    asked: dict[str, Any] = {
        "TableName": table,
        "IndexName": RESPONSE_INDEX,
        "KeyConditionExpression": "#response_shard = :shard AND #response_expires_at <= :now",
        "ProjectionExpression": "#id",
        "ExpressionAttributeNames": {f"#{name}": name for name in names},
        "ExpressionAttributeValues": {":shard": {"S": f"{shard:02d}"}, ":now": {"N": str(now_ms // 1_000)}},
        "Limit": PAGE,
        **({"ExclusiveStartKey": start} if start else {}),
    }
    found: Any = aws.dynamodb().query(**asked)
    return [str(item[a.ID]["S"]) for item in found["Items"]], found.get("LastEvaluatedKey")
