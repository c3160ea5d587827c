"""The worker: passes of the table that move what the phase wants moved, and compare what is in both items.

A pass may die anywhere, and several may run at once: every move is conditional on what was read, and of two runs that
report the same page one is counted. A run of a phase before may pull the other way for a while: safe, and it ends.
"""

from __future__ import annotations

import json
import random
import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Final

from botocore.exceptions import ClientError

from saga_runtime.errors import Invalid
from saga_runtime.migration.history import copy_entries, copy_of
from saga_runtime.migration.layout import OWN, Concern, Layout, Place
from saga_runtime.migration.moves import Move, entries, next_move, removable, removal
from saga_runtime.migration.places import Item, alike, place_of, same
from saga_runtime.migration.progress import Example, Job, Pass, Phase, Progress, Reason
from saga_runtime.migration.store import BACKOFF, Store
from saga_runtime.protocol import Metric, MigrationAttribute
from saga_runtime.shared import aws, clock, telemetry, writes

SPARE_MS: Final = 10_000
"""Time that is left for a customer, and for reporting."""
PAGE_ITEMS: Final = 500
"""Items of the table that a page passes by; its customers fit into an invocation."""
PAGE_MS: Final = 240_000
"""Longest time between the read of the phase and a move: a machine that was asleep must not move by an old phase."""
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
    """Phase of a page, the end of its time, its counts, and the rows that cannot be copied."""

    phase: Phase
    until_ms: int
    tally: Counter[str] = field(default_factory=Counter)
    found: list[Example] = field(default_factory=list)
    unreadable: set[str] = field(default_factory=set)

    def leave(self, customer: str, concern: str, reason: Reason) -> None:
        """Count a concern that differs, or that stays where it is, and why."""
        self.tally["different" if reason is Reason.DIFFERENT else "left"] += 1
        self.found.append(Example(customer=customer, concern=concern, reason=reason))


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
        rows = self.job is Job.BACKFILL and self.store.layout.copies_rows(phase.number)
        answer = self._scan(progress.cursor, rows=rows)
        done = self._serve(answer["Items"], page)
        if done < len(answer["Items"]):
            if not done:
                return None
            # The pass continues behind the last item that is done, however long each one takes.
            keys = (self.store.layout.partition_key, self.store.layout.sort_key)
            cursor = {name: answer["Items"][done - 1][name] for name in keys}
        else:
            cursor = answer.get("LastEvaluatedKey")
        after = replace(
            progress,
            version=read.version + 1,
            cursor=cursor,
            seen=progress.seen + sum(self._is_old(item) for item in answer["Items"][:done]),
            moved=progress.moved + page.tally["moved"],
            left=progress.left + page.tally["left"],
            compared=progress.compared + page.tally["compared"],
            different=progress.different + page.tally["different"],
        ).with_examples(page.found)
        if after.cursor is None:
            after = replace(after, last=_complete(self.job, after, self.store.phase() == phase))
        if not self._put(read, after):
            return None
        reasons = Counter(one.reason for one in page.found if one.reason is not Reason.DIFFERENT)
        for reason, number in sorted(reasons.items()):
            telemetry.event("migration_left", job=self.job, phase=phase.number, reason=reason, concerns=number)
        return after

    def _is_old(self, item: Item) -> bool:
        return bool(item[self.store.layout.sort_key] == {"S": self.store.layout.old_item})

    def _serve(self, items: Sequence[Item], page: _Page) -> int:
        """Serve customers and rows while there is time, and return how many are done: at least one if any is left."""
        copies = self._copies([item for item in items if not self._is_old(item)], page)
        for done, item in enumerate(items):
            if self.remaining_ms() <= SPARE_MS // 2 or clock.now_ms() > page.until_ms:
                return done
            try:
                if self._is_old(item):
                    self._customer(item, page)
                elif _text(item) in copies:
                    self._copy(item, page)
            except _Late:
                if done:
                    return done
                # Alone it took all of the page's time: it must not be in the way of the others for ever.
                page.leave(_customer_of(item, self.store.layout), "", Reason.BUSY)
        return len(items)

    def _scan(self, cursor: Mapping[str, Any] | None, *, rows: bool) -> Any:
        layout = self.store.layout
        prefixes = {f":{n}": {"S": one.old_prefix} for n, one in enumerate(layout.histories)} if rows else {}
        wanted = ("#sk = :old", *(f"begins_with(#sk, {name})" for name in prefixes))
        request: dict[str, Any] = {
            "TableName": self.store.table,
            "ConsistentRead": True,
            "Limit": self.page_items,
            "FilterExpression": f"NOT begins_with(#pk, :own) AND ({' OR '.join(wanted)})",
            "ExpressionAttributeNames": {"#pk": layout.partition_key, "#sk": layout.sort_key},
            "ExpressionAttributeValues": {":own": {"S": OWN}, ":old": {"S": layout.old_item}, **prefixes},
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

    # -- rows of histories ------------------------------------------------------------------------------------------

    def _copies(self, rows: Sequence[Item], page: _Page) -> set[str]:
        """Rows that this phase copies, and that do not have their copy yet. Those that cannot have one are left."""
        layout = self.store.layout
        made: dict[str, Item] = {}
        for row in rows:
            if layout.copies_row(page.phase.number, _customer_of(row, layout)):
                try:
                    made[_text(row)] = copy_of(layout, row)
                except Invalid:
                    page.unreadable.add(_text(row))
        found = self._stored(list(made.values()))
        return page.unreadable | {row for row, copy in made.items() if not alike(found.get(self._key(copy)), copy)}

    def _key(self, item: Item) -> str:
        return _text({name: item[name] for name in (self.store.layout.partition_key, self.store.layout.sort_key)})

    def _stored(self, items: Sequence[Item]) -> dict[str, Item]:
        """Stored items that have the keys of some items, by ``_key``."""
        names = (self.store.layout.partition_key, self.store.layout.sort_key)
        return {
            self._key(one): one for one in self.store.stored({name: item[name] for name in names} for item in items)
        }

    def _copy(self, row: Item, page: _Page) -> None:
        layout = self.store.layout
        customer, sort_key = _customer_of(row, layout), row[layout.sort_key]["S"]
        if _text(row) in page.unreadable:
            page.leave(customer, sort_key, Reason.UNREADABLE)
            return
        copy, reason = copy_of(layout, row), Reason.BUSY
        for failures in range(1, BACKOFF.attempts + 1):
            refused = self._commit(copy_entries(layout, self.store.table, row), page)
            if refused is None:
                page.tally["moved"] += 1
                telemetry.count(Metric.MIGRATED, concern="history")
                return
            if refused is Reason.RACED:
                found = self._stored([row, copy])
                if self._key(row) not in found or alike(found.get(self._key(copy)), copy):
                    return  # the row was deleted, or another run was faster
                if self._key(copy) in found:
                    reason = Reason.KEY_TAKEN
                    break
            elif refused is Reason.REFUSED:
                reason = refused
                break
            time.sleep(BACKOFF.delay_ms(failures, random.random()) / 1_000)
        page.leave(customer, sort_key, reason)

    # -- one customer ----------------------------------------------------------------------------------------------

    def _customer(self, old: Item, page: _Page) -> None:
        customer = _customer_of(old, self.store.layout)
        for concern in self.store.layout.concerns:
            try:
                if self.job is Job.BACKFILL:
                    self._move(customer, concern, old, page)
                elif place_of(concern, old, None) is Place.DUAL:
                    self._compare(customer, concern, page)
            except Invalid:
                page.leave(customer, concern.name, Reason.UNEXPECTED)
        if self.job is Job.BACKFILL and page.phase.number >= self.store.layout.last:
            self._remove(customer, page)

    def _compare(self, customer: str, concern: Concern, page: _Page) -> None:
        pair = self._pair(customer, concern)
        if pair is None:
            page.leave(customer, concern.name, Reason.BUSY)
            return
        old, new = pair
        if old is None or place_of(concern, old, new) is not Place.DUAL:
            return
        page.tally["compared"] += 1
        if new is None or not same(concern, old, new):
            page.leave(customer, concern.name, Reason.DIFFERENT)
            telemetry.count(Metric.MIGRATION_DIFFERENCE, concern=concern.name)

    def _move(self, customer: str, concern: Concern, old: Item, page: _Page) -> None:
        """Move a concern to its target. The old item as the scan found it is tried first: it spares a read."""
        target = self.store.layout.target(page.phase.number, concern, customer)
        known: tuple[Item | None, Item | None] | None = (old, None)
        stale, reason = True, Reason.BUSY
        for failures in range(1, BACKOFF.attempts + 1):
            if known is None:
                break
            was, new = known
            move = next_move(concern, was, new, target)
            if move is None or was is None:
                return
            if new is None and move is Move.UNSEAL and stale:
                known, stale = self._pair(customer, concern), False
                continue
            refused = self._commit(entries(self.store.layout, self.store.table, concern, move, was, new), page)
            if refused is None:
                page.tally["moved"] += 1
                telemetry.count(Metric.MIGRATED, concern=concern.name)
            elif refused is Reason.REFUSED:
                reason = refused
                break
            else:
                time.sleep(BACKOFF.delay_ms(failures, random.random()) / 1_000)
            before, known = known, self._pair(customer, concern)
            if refused is Reason.RACED and not stale and known == before:
                # No writer and no run was faster: these items refuse the move until an operator corrects them.
                reason = Reason.KEY_TAKEN if move is Move.COPY else Reason.UNEXPECTED
                break
            stale = False
        page.leave(customer, concern.name, reason)

    def _remove(self, customer: str, page: _Page) -> None:
        layout = self.store.layout
        for failures in range(1, BACKOFF.attempts + 1):
            old = self.store.items(customer, []).get(layout.old_item)
            if old is None:
                return
            if not removable(layout, old):
                others = set(old) - {layout.partition_key, layout.sort_key, *(one.mark for one in layout.concerns)}
                page.leave(customer, "", Reason.OTHER_ATTRIBUTES if others else Reason.BUSY)
                return
            if self._commit(removal(layout, self.store.table, customer), page) is None:
                page.tally["moved"] += 1
                return
            time.sleep(BACKOFF.delay_ms(failures, random.random()) / 1_000)
        page.leave(customer, "", Reason.BUSY)

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

    def _commit(self, moved: list[Any], page: _Page) -> Reason | None:
        """Send a move; a reason: nothing is written.

        Raises:
            _Late: the page's time is over; nothing is sent.
            ClientError: AWS refused the call for another reason than these items.
            BotoCoreError: no answer; the next run finds what it did.
        """
        if clock.now_ms() > page.until_ms:
            raise _Late
        try:
            return None if writes.transact(moved) is None else Reason.RACED
        except ClientError as error:
            if writes.passes(error):
                return Reason.BUSY
            if aws.error_code(error) in {aws.TRANSACTION_CANCELED, aws.VALIDATION}:
                return Reason.REFUSED
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


def _text(item: Item) -> str:
    """A name of an item, of its values: to find it among those of a page."""
    return json.dumps(item, sort_keys=True, default=str)


def _customer_of(item: Item, layout: Layout) -> str:
    return str(item[layout.partition_key]["S"])


def _complete(job: Job, progress: Progress, same_phase: bool) -> Pass | None:
    """The pass that a last page completes; the one before if the phase changed under it."""
    if not same_phase:
        return progress.last
    before, now = progress.last, clock.now_ms()
    since = before.clean_since_ms if before is not None and before.changes == progress.changes else None
    if since is None:
        since = progress.began_at_ms
    if job is Job.BACKFILL and progress.moved:
        since = now
    return Pass(
        phase=progress.phase,
        changes=progress.changes,
        began_at_ms=progress.began_at_ms,
        ended_at_ms=now,
        seen=progress.seen,
        moved=progress.moved,
        left=progress.left,
        compared=progress.compared,
        different=progress.different,
        clean_since_ms=None if progress.different or progress.left else since,
    )
