"""The worker: passes of the table that move what the phase wants moved, and compare what is in both items.

A pass may die anywhere, and several may run at once: every move is conditional on what was read, and of two runs that
report the same page one is counted. A run of a phase before may pull the other way for a while: safe, and it ends.
"""

from __future__ import annotations

import random
import time
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Final

from botocore.exceptions import ClientError

from saga_runtime.migration.layout import Concern, Place
from saga_runtime.migration.moves import Move, entries, next_move, removable, removal
from saga_runtime.migration.places import Item, place_of, same
from saga_runtime.migration.progress import Job, Pass, Phase, Progress
from saga_runtime.migration.store import BACKOFF, Store
from saga_runtime.protocol import Metric, MigrationAttribute
from saga_runtime.shared import aws, clock, telemetry, writes

SPARE_MS: Final = 10_000
"""Time that is left for a customer, and for reporting."""
PAGE_ITEMS: Final = 500
"""Items of the table that a page passes by; its customers fit into an invocation."""
PAGE_MS: Final = 240_000
"""Longest time between the read of the phase and a move: a machine that was asleep must not move by an old phase."""
MOST_EXAMPLES: Final = 10
_A: Final = MigrationAttribute


def _name(job: Job, segment: int, segments: int) -> str:
    """Sort key of a job's progress: the cursor of a segment has no meaning among another number of segments."""
    return f"{job}#{segment}of{segments}"


def read_progress(store: Store, job: Job, segment: int, segments: int) -> Progress:
    """Progress of a job in a segment, read strongly."""
    key = store.own(_name(job, segment, segments))
    return Progress.from_item(aws.dynamodb().get_item(TableName=store.table, Key=key, ConsistentRead=True).get("Item"))


class _Late(Exception):
    """The phase of a page was read too long ago to move by it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Page:
    """Phase of a page, the end of its time, and its counts."""

    phase: Phase
    until_ms: int
    tally: Counter[str] = field(default_factory=Counter)
    different: list[str] = field(default_factory=list)


@dataclass(frozen=True, slots=True, kw_only=True)
class Worker:
    """Runs a job over a segment of the table.

    Attributes:
        store: the table.
        job: what is done.
        segment, segments: of the scan.
        remaining_ms: time that is left.
        page_items: items that a page passes by.
        report: called after each page.
    """

    store: Store
    job: Job
    segment: int
    segments: int
    remaining_ms: Callable[[], int]
    page_items: int = PAGE_ITEMS
    report: Callable[[Progress], None] = lambda _: None

    def run(self) -> Pass | None:
        """Continue the pass in progress until it is complete; None: time ran out, or another run was faster.

        Guaranteed: a complete pass has seen, in one phase, every customer that existed when it began.
        """
        while self.remaining_ms() > SPARE_MS:
            progress = self._write_page()
            if progress is None:
                return None
            self.report(progress)
            if progress.cursor is None and progress.last is not None:
                self._measure(progress.last)
                return progress.last
        return None

    def _write_page(self) -> Progress | None:
        read = read_progress(self.store, self.job, self.segment, self.segments)
        until_ms = clock.now_ms() + PAGE_MS
        phase = self.store.phase()
        if read.cursor is None or read.changes != phase.changes:
            # A pass that saw another phase does not count for this one.
            now = clock.now_ms()
            progress = Progress(
                version=read.version, phase=phase.number, changes=phase.changes, began_at_ms=now, last=read.last
            )
        else:
            progress = read
        page = _Page(phase=phase, until_ms=until_ms)
        tally, different = page.tally, page.different
        answer = self._scan(progress.cursor)
        for item in answer["Items"]:
            if self.remaining_ms() <= SPARE_MS // 2 or clock.now_ms() > until_ms:
                return None
            try:
                self._customer(item, page)
            except _Late:
                return None
        after = replace(
            progress,
            version=read.version + 1,
            cursor=answer.get("LastEvaluatedKey"),
            seen=progress.seen + len(answer["Items"]),
            moved=progress.moved + tally["moved"],
            left=progress.left + tally["left"],
            compared=progress.compared + tally["compared"],
            different=progress.different + len(different),
            examples=(*progress.examples, *different)[:MOST_EXAMPLES],
        )
        if after.cursor is None:
            after = replace(after, last=_complete(after, self.store.phase() == phase))
        return after if self._put(read, after) else None

    def _scan(self, cursor: Mapping[str, Any] | None) -> Any:
        layout = self.store.layout
        request: dict[str, Any] = {
            "TableName": self.store.table,
            "ConsistentRead": True,
            "Limit": self.page_items,
            "FilterExpression": "#sk = :old",
            "ExpressionAttributeNames": {"#sk": layout.sort_key},
            "ExpressionAttributeValues": {":old": {"S": layout.old_item}},
        }
        if self.segments > 1:
            request |= {"Segment": self.segment, "TotalSegments": self.segments}
        if cursor is not None:
            request["ExclusiveStartKey"] = dict(cursor)
        return aws.dynamodb().scan(**request)

    def _put(self, read: Progress, after: Progress) -> bool:
        """Write the progress, unless another run of this job did."""
        fresh = read == Progress()
        condition: dict[str, Any] = {
            "ConditionExpression": "attribute_not_exists(#v)" if fresh else "#v = :v",
            "ExpressionAttributeNames": {"#v": _A.VERSION},
            **({} if fresh else {"ExpressionAttributeValues": {":v": {"N": str(read.version)}}}),
        }
        name = _name(self.job, self.segment, self.segments)
        item = {**self.store.own(name), **after.attributes()}
        return writes.write({"Put": {"TableName": self.store.table, "Item": item, **condition}}) is None

    # -- one customer ----------------------------------------------------------------------------------------------

    def _customer(self, old: Item, page: _Page) -> None:
        customer = str(old[self.store.layout.partition_key]["S"])
        for concern in self.store.layout.concerns:
            if self.job is Job.VERIFY:
                if place_of(concern, old, None) is Place.DUAL:
                    self._compare(customer, concern, page)
            else:
                self._move(customer, concern, old, page)
        if self.job is Job.BACKFILL and page.phase.number >= self.store.layout.last:
            self._remove(customer, page)

    def _compare(self, customer: str, concern: Concern, page: _Page) -> None:
        pair = self._pair(customer, concern)
        if pair is None:
            page.tally["left"] += 1
            return
        old, new = pair
        if old is None or place_of(concern, old, new) is not Place.DUAL:
            return
        page.tally["compared"] += 1
        if new is None or not same(concern, old, new):
            page.different.append(customer)
            telemetry.count(Metric.MIGRATION_DIFFERENCE, concern=concern.name)

    def _move(self, customer: str, concern: Concern, old: Item, page: _Page) -> None:
        """Move a concern to its target. The old item as the scan found it is tried first: it spares a read."""
        target = self.store.layout.target(page.phase.number, concern, customer)
        known: tuple[Item | None, Item | None] | None = (old, None)
        for failures in range(1, BACKOFF.attempts + 1):
            if known is None:
                break
            was, new = known
            move = next_move(concern, was, new, target)
            if move is None or was is None:
                return
            if new is None and move is Move.UNSEAL:
                known = self._pair(customer, concern)
                continue
            if self._commit(entries(self.store.layout, self.store.table, concern, move, was, new), page):
                page.tally["moved"] += 1
                telemetry.count(Metric.MIGRATED, concern=concern.name)
            else:
                time.sleep(BACKOFF.delay_ms(failures, random.random()) / 1_000)
            known = self._pair(customer, concern)
        page.tally["left"] += 1

    def _remove(self, customer: str, page: _Page) -> None:
        old = self.store.items(customer, []).get(self.store.layout.old_item)
        if old is None:
            return
        layout = self.store.layout
        if removable(layout, old) and self._commit(removal(layout, self.store.table, customer), page):
            page.tally["moved"] += 1
        else:
            page.tally["left"] += 1

    def _pair(self, customer: str, concern: Concern) -> tuple[Item | None, Item | None] | None:
        """Both items; None: a writer held one of them at each try."""
        for failures in range(1, BACKOFF.attempts + 1):
            try:
                return self.store.pair(customer, concern)
            except ClientError as error:
                if aws.error_code(error) != aws.TRANSACTION_CANCELED:
                    raise
            time.sleep(BACKOFF.delay_ms(failures, random.random()) / 1_000)
        return None

    def _commit(self, moved: list[Any], page: _Page) -> bool:
        """Send a move; False: a condition, or a writer, refused it, and the next pass comes again.

        Raises:
            _Late: the page's time is over; nothing is sent.
        """
        if clock.now_ms() > page.until_ms:
            raise _Late
        try:
            return writes.transact(moved) is None
        except ClientError as error:
            if aws.error_code(error) == aws.TRANSACTION_CANCELED:
                return False
            raise

    def _measure(self, done: Pass) -> None:
        if self.job is Job.BACKFILL:
            telemetry.gauge(Metric.MIGRATION_LEFT, done.left)
        elif done.clean_since_ms is not None:
            telemetry.seconds(Metric.MIGRATION_CLEAN, (done.ended_at_ms - done.clean_since_ms) // 1_000)
        telemetry.event(
            "migration_passed",
            job=self.job,
            phase=done.phase,
            seen=done.seen,
            moved=done.moved,
            left=done.left,
            compared=done.compared,
            different=done.different,
        )


def _complete(progress: Progress, same_phase: bool) -> Pass | None:
    """The pass that a last page completes; the one before if the phase changed under it."""
    if not same_phase:
        return progress.last
    before = progress.last
    clean = not progress.different and not progress.left
    since = before.clean_since_ms if before is not None and before.changes == progress.changes else None
    return Pass(
        phase=progress.phase,
        changes=progress.changes,
        began_at_ms=progress.began_at_ms,
        ended_at_ms=clock.now_ms(),
        seen=progress.seen,
        moved=progress.moved,
        left=progress.left,
        compared=progress.compared,
        different=progress.different,
        clean_since_ms=(since or progress.began_at_ms) if clean else None,
    )
