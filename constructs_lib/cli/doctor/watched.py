"""The doctor's read of watched state machines: failed executions that were not reported. Changes nothing."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial
from typing import Any

from constructs_lib.cli.doctor.aws import Aws, all_of
from constructs_lib.cli.doctor.findings import Finding, Kind, Severity
from constructs_lib.cli.doctor.record_findings import NOBODY_CAME_MS, UNREADABLE, unreadable
from constructs_lib.cli.doctor.scan import Scan
from constructs_lib.cli.shared.manifest import Watch
from saga_runtime.protocol import DUE_INDEX, WATCH_DUE_SHARDS, WATCH_LIST_PREFIX, WatchAttribute, WatchStatus
from saga_runtime.watch.rows import EndRow, ListRow, list_id


@dataclass(frozen=True, slots=True, kw_only=True)
class Watched:
    """Rows of a function that watches state machines."""

    aws: Aws
    watch: Watch
    now_ms: int

    @property
    def table(self) -> str:
        """Where."""
        return self.watch.table

    def look(self, scan: Scan | None = None) -> Iterator[Finding]:
        """Findings from its sparse index, due or not, and from the progress of lists; with a scan, from every row."""
        ids = [one for part in all_of(self._due, range(WATCH_DUE_SHARDS)) for one in part]
        if scan is not None:
            ids += [
                item[WatchAttribute.ID]["S"]
                for item in scan.items(self.table, (WatchAttribute.ID, WatchAttribute.STATUS))
                if item.get(WatchAttribute.STATUS, {}).get("S") == WatchStatus.DEAD_LETTERED
            ]
        overdue: list[int] = []
        ends = [one for one in dict.fromkeys(ids) if not one.startswith(WATCH_LIST_PREFIX)]
        keys: list[dict[str, dict[str, str]]] = [{WatchAttribute.ID: {"S": one}} for one in ends]
        for item in self.aws.read_all(self.table, keys):
            try:
                row = EndRow.from_item(item)
            except UNREADABLE as error:
                yield unreadable(self.table, str(item[WatchAttribute.ID]["S"]), error)
                continue
            if row.due_at and row.due_at <= self.now_ms - NOBODY_CAME_MS:
                overdue.append(row.due_at)
            if (finding := _of_end(row)) is not None:
                yield finding
        for unlisted in self._unlisted():
            if isinstance(unlisted, Finding):
                yield unlisted
            else:
                overdue.append(unlisted)
        if overdue:
            yield Finding(
                kind=Kind.NOT_MONITORED,
                severity=Severity.OPERATOR,
                id=self.watch.function,
                what=f"ends of watched machines due for more than {NOBODY_CAME_MS // 60_000} min, and not checked",
                then="find out why this function does not look: its schedule, its logs, its alarms",
                since=min(overdue),
            )

    def _due(self, shard: int) -> list[str]:
        a = WatchAttribute
        pages: Any = self.aws.client("dynamodb").get_paginator("query")
        found = pages.paginate(
            TableName=self.table,
            IndexName=DUE_INDEX,
            KeyConditionExpression="#shard = :shard",
            ProjectionExpression="#id",
            ExpressionAttributeNames={"#shard": a.DUE_SHARD, "#id": a.ID},
            ExpressionAttributeValues={":shard": {"S": f"{shard:02d}"}},
        )
        return [str(item[a.ID]["S"]) for page in found for item in page["Items"]]

    def _unlisted(self) -> Iterator[int | Finding]:
        """Due times of unread lists, and findings of what cannot be read."""
        ids = [list_id(one.machine, end) for one in self.watch.watched for end in sorted(one.ends)]
        keys: list[dict[str, dict[str, str]]] = [{WatchAttribute.ID: {"S": one}} for one in ids]
        for item in self.aws.read_all(self.table, keys):
            try:
                row = ListRow.from_item(item)
            except UNREADABLE as error:
                yield unreadable(self.table, str(item[WatchAttribute.ID]["S"]), error)
                continue
            if row.due_at <= self.now_ms - NOBODY_CAME_MS:
                yield row.due_at


def _of_end(row: EndRow) -> Finding | None:
    about = partial(Finding, id=row.execution_arn.rpartition(":")[2], since=row.stopped_at)
    calls = "once" if row.attempt == 1 else f"{row.attempt} times"
    if row.status is WatchStatus.DEAD_LETTERED:
        return about(
            kind=Kind.END_STUCK,
            severity=Severity.OPERATOR,
            what=f"it {row.end}, and its function was called {calls} in vain, at last with {row.error or 'no answer'}",
            then="fix that function, then redrive its entry in the dead-letter queue",
        )
    if row.status is WatchStatus.PENDING and row.error:
        return about(
            kind=Kind.END_NOT_NOTIFIED,
            severity=Severity.SOON,
            what=f"it {row.end}, and its function was called {calls} in vain, at last with {row.error}",
            then="its function is called again",
        )
    return None
