"""Finds interrupted sagas in two ways: they are due, or their execution failed.

``saga_reconciler`` reconciles each. Two reconcilers at once, or one that crashes between any two calls, are harmless;
the next check does what was not done.
"""

from __future__ import annotations

import os
import random
import threading
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any, Final

from saga_runtime.callbacks.rows import JobId
from saga_runtime.idempotency.identity import request_id_from
from saga_runtime.idempotency.record import AttributeMap
from saga_runtime.protocol import DUE_INDEX, TOKEN_DUE_SHARDS, Env, Metric, RecordAttribute
from saga_runtime.recovery import sweep as sweeping
from saga_runtime.recovery.decisions import Need, saga_of_execution, was_owner
from saga_runtime.recovery.hold import Hold, hold_of_env
from saga_runtime.recovery.late_effects import LateFinding
from saga_runtime.recovery.running import Running
from saga_runtime.recovery.saga_reconciler import Caretaker, Seen, Served, served_of
from saga_runtime.recovery.sweep import Crew, Part, Start, Sweep, Threads
from saga_runtime.recovery.takeover import Finding
from saga_runtime.shared import aws, clock, telemetry

__all__ = ["PAGE", "Reconciled", "Reconciler", "Served", "served_of"]

PAGE: Final = 1_000
"""Keys of one shard that are held at once, and checked in a random order.

What fails stays due, and is the first of its shard again in the next check. In the index' order, some thousand sagas
that nothing can start would take the time of every check, and those behind them would not be recovered.
"""
_ACTIONS: Final = (Need.START, Need.STOP, Need.TAKE_OVER, Need.PARK)


@dataclass(slots=True, kw_only=True)
class Reconciled:
    """Result of a sweep.

    Attributes:
        looked_at: records that were due.
        started: executions that were missing, and were started.
        taken_over: sagas whose owner was dead, and that were handed to a recovery.
        parked: sagas that were left to a person now.
        waiting: those that are parked.
        late: sagas with late effects that are not compensated yet.
        foreign: due records of sagas of other reconcilers.
        failed: sagas that could not be reconciled; the next sweep retries them.
        broken: those of them for which that will not help: their record cannot be read, or a call is refused for good.
        slowed: how often AWS refused for the moment, and everything was slowed down.
        listed: sagas whose owners were found in a list of what runs, and not asked for.
        pages: of such lists that were read.
        held_seconds: for how long nothing may be changed; 0: it may be.
        needed: sagas that would have been started, taken over or parked, had that been allowed.
        overdue_seconds: for how long the oldest has been due, of those that were found to be.
        complete: whether everything that is due was checked.
    """

    looked_at: int = 0
    started: int = 0
    taken_over: int = 0
    parked: int = 0
    waiting: int = 0
    late: int = 0
    foreign: int = 0
    failed: int = 0
    broken: int = 0
    slowed: int = 0
    listed: int = 0
    pages: int = 0
    held_seconds: int = 0
    needed: int = 0
    overdue_seconds: int = 0
    complete: bool = True


@dataclass(slots=True, kw_only=True)
class Reconciler:
    """Finds interrupted sagas, and reconciles them.

    To reconcile a single saga, use ``saga_reconciler``.

    Attributes:
        caretaker: reconciles one saga.
        remaining_ms: time that is left.
        hold: the switch under which it checks and measures, and changes nothing; only rows of open sagas, and what a
            late effect is compensated with, are kept for longer.
        workers: how many sagas a sweep reconciles concurrently.
        crew: runs the workers.
    """

    caretaker: Caretaker
    remaining_ms: Callable[[], int]
    hold: Hold = field(default_factory=Hold)
    workers: int = sweeping.WORKERS
    crew: Crew = field(default_factory=Threads)
    _done: Reconciled = field(default_factory=Reconciled)
    _late: set[str] = field(default_factory=set)
    _mine: threading.Lock = field(default_factory=threading.Lock)

    @classmethod
    def from_env(cls, remaining_ms: Callable[[], int]) -> Reconciler:
        """The reconciler that the environment describes."""
        caretaker = Caretaker(
            served=served_of(os.environ[Env.RECONCILED]),
            limit=int(os.environ[Env.RECOVERIES_LIMIT]),
            longest_look_ms=int(os.environ[Env.LONGEST_LOOK]) * 1_000,
        )
        return cls(caretaker=caretaker, remaining_ms=remaining_ms, hold=hold_of_env(), workers=sweeping.WORKERS)

    def sweep(self) -> Reconciled:
        """Reconcile every due saga, in every shard of every table, and every late effect.

        Several are reconciled at once, one of each shard in turn, more slowly while AWS refuses. It ends before the
        function does, and no thread is left then.
        """
        done, now_ms = self._done, clock.now_ms()
        held = self.hold.read()
        done.held_seconds = 0 if held is None else max(1, (now_ms - held.since_ms) // 1_000)
        for make in (aws.dynamodb, aws.step_functions_once, aws.sqs):
            make()  # before several want it at once
        running = Running(step_functions=aws.step_functions_once, remaining_ms=self.remaining_ms, lock=self.crew.lock())
        caretaker = replace(self.caretaker, step_functions=aws.step_functions_once, runs=running.includes)
        sweep = Sweep(
            parts=self._parts(caretaker, now_ms),
            remaining_ms=self.remaining_ms,
            failed=self._failed,
            workers=self.workers,
            crew=self.crew,
        )
        done.complete = sweep.run()
        done.slowed, done.late = sweep.brake.pulled, len(self._late)
        done.listed, done.pages = running.known, running.pages
        telemetry.gauge(Metric.RECONCILE_FAILED, done.broken)
        telemetry.seconds(Metric.HOLD_AGE, done.held_seconds)
        telemetry.gauge(Metric.LOOK_INCOMPLETE, not done.complete)
        telemetry.seconds(Metric.OLDEST_OVERDUE, done.overdue_seconds)
        return done

    def execution_ended(self, name: str) -> None:
        """Reconcile the saga of a failed execution; the record decides whether that execution owns it.

        Raises:
            ClientError, BotoCoreError: it could not be reconciled.
            ValueError: its record cannot be read.
        """
        saga_id = saga_of_execution(name)
        if saga_id is None:
            telemetry.event("unknown_execution", execution=name)
            return
        for table in dict.fromkeys(saga.requests for saga in self.caretaker.served):
            found = self.caretaker.read(table, request_id_from(saga_id))
            if found is not None and found.record.saga_id == saga_id:
                saga = self.caretaker.saga_of(table, found.record)
                seen = self.caretaker.look(saga, found, clock.now_ms()) if saga is not None else None
                if seen is not None and not self._holds(seen):
                    self.caretaker.carry_out(seen)
                return
        if was_owner(name):
            telemetry.count(Metric.RECORD_MISSING, saga_id=saga_id)
            telemetry.event("request_record_missing", saga_id=saga_id, execution=name)

    def _parts(self, caretaker: Caretaker, now_ms: int) -> deque[Part]:
        """Every shard of every table; not the same one first each time, in case there is no time for all of them."""
        shards: dict[str, int] = {}
        for saga in caretaker.served:
            shards[saga.requests] = max(saga.shards, shards.get(saga.requests, 0))
        tokens = dict.fromkeys((table for saga in caretaker.served for table in saga.tokens), TOKEN_DUE_SHARDS)
        found = [
            Part(
                name=f"{table} {shard:02d}",
                page=partial(page, table, shard, now_ms),
                look=partial(look, caretaker, table, now_ms),
            )
            for counts, page, look in (
                (shards, self._due_page, self._look_at),
                (tokens, _page, self._look_at_late_job),
            )
            for table, count in counts.items()
            for shard in range(count)
        ]
        parts = deque(found)
        parts.rotate(-(now_ms // 60_000))
        return parts

    def _due_page(self, table: str, shard: int, now_ms: int, start: Start) -> tuple[Sequence[str], Start | None]:
        """Keys of one page of due records, in a random order; how long those of our sagas have been due is kept."""
        a = RecordAttribute
        machines = {saga.machine for saga in self.caretaker.served if saga.requests == table}
        items, following = _due_items(table, shard, now_ms, start, a.EXECUTION_ARN)
        ours = (item for item in items if _machine(item) in machines)
        oldest = min((int(item[a.DUE_AT]["N"]) for item in ours), default=now_ms)
        with self._mine:
            self._done.overdue_seconds = max(self._done.overdue_seconds, (now_ms - oldest) // 1_000)
        return _keys_of(items), following

    def _look_at(self, caretaker: Caretaker, table: str, now_ms: int, request_id: str, again: bool) -> None:
        found = caretaker.read(table, request_id)
        if found is None or not (again or found.is_due(now_ms)):
            return  # the index lagged: the saga was reconciled
        saga = caretaker.saga_of(table, found.record)
        if saga is None:
            with self._mine:
                self._done.foreign += 1
            return
        seen = caretaker.look(saga, found, now_ms)
        if seen is None:
            return
        held = self._holds(seen)
        if held:
            caretaker.keep_rows(seen)
        did = not held and caretaker.carry_out(seen)
        with self._mine:
            self._done.needed += held and seen.decision.need in _ACTIONS
            self._count(seen, did)

    def _holds(self, seen: Seen) -> bool:
        """Test whether nothing may be done; a saga's own switch is read only if something is to be done."""
        if seen.decision.need in _ACTIONS:
            return self.hold.holds(seen.found.record.saga_id)
        return self.hold.read() is not None

    def _count(self, seen: Seen, did: bool) -> None:
        done, need = self._done, seen.decision.need
        done.looked_at += 1
        done.waiting += seen.finding is Finding.PARKED
        done.started += did and need is Need.START
        done.taken_over += did and need is Need.TAKE_OVER
        done.parked += did and need is Need.PARK

    def _look_at_late_job(self, caretaker: Caretaker, table: str, now_ms: int, row_id: str, _again: bool) -> None:
        """A job's row is due until its late effect is undone, also when its saga has long been settled."""
        job = JobId.parse(row_id)
        with self._mine:
            if job is not None and job.saga_id in self._late:
                return  # all late effects of a saga were handled together
        late = caretaker.look_late(table, row_id)
        if late is None:
            return
        if self.hold.read() is not None:
            # Responses are removed again as soon as the hold is over, perhaps before the next check.
            caretaker.keep_whole(late, now_ms)
            finding = LateFinding.RUNNING
        elif self.hold.holds(late.job.saga_id):
            caretaker.keep_whole(late, now_ms)
            finding = LateFinding.EXHAUSTED  # only its operator can release it
        else:
            finding = caretaker.undo(late, now_ms).finding
        with self._mine:
            first = late.job.saga_id not in self._late
            self._late.add(late.job.saga_id)
        if first and finding is LateFinding.EXHAUSTED:
            telemetry.count(Metric.LATE_STANDS, saga_id=late.job.saga_id)

    def _failed(self, name: str, error: Exception, for_good: bool) -> None:
        with self._mine:
            self._done.failed += 1
            self._done.broken += for_good
        code = aws.error_code(error)
        telemetry.event("reconcile_failed", row_id=name, error=type(error).__name__, code=code, for_good=for_good)


def _machine(item: AttributeMap) -> str:
    """The name of the state machine that an item of the index names; empty: it names none."""
    arn = str(item.get(RecordAttribute.EXECUTION_ARN, {}).get("S", ""))
    return arn.rpartition(":")[0].rpartition(":")[2]


def _page(table: str, shard: int, now_ms: int, start: Start) -> tuple[Sequence[str], Start | None]:
    """Keys of one page of what is due in a shard, in a random order."""
    items, following = _due_items(table, shard, now_ms, start)
    return _keys_of(items), following


def _keys_of(items: Sequence[AttributeMap]) -> Sequence[str]:
    return [str(item[RecordAttribute.ID]["S"]) for item in random.sample(items, len(items))]


def _due_items(
    table: str, shard: int, now_ms: int, start: Start, *more: RecordAttribute
) -> tuple[Sequence[AttributeMap], Start | None]:
    """One page of what is due in a shard, the oldest first. The index may lag: every key is read again strongly.

    Args:
        table: the table.
        shard: of its index.
        now_ms: the time.
        start: where the page begins.
        more: attributes that are read in addition to the key and ``due_at``.
    """
    a = RecordAttribute
    names = {f"#{name}": name for name in (a.ID, a.DUE_AT, *more)}
    asked: dict[str, Any] = {
        "TableName": table,
        "IndexName": DUE_INDEX,
        "KeyConditionExpression": "#shard = :shard AND #due_at <= :now",
        "ProjectionExpression": ", ".join(names),
        "ExpressionAttributeNames": {**names, "#shard": a.DUE_SHARD},
        "ExpressionAttributeValues": {":shard": {"S": f"{shard:02d}"}, ":now": {"N": str(now_ms)}},
        "Limit": PAGE,
        **({"ExclusiveStartKey": start} if start else {}),
    }
    answer: Mapping[str, Any] = aws.dynamodb().query(**asked)
    return answer["Items"], answer.get("LastEvaluatedKey")
