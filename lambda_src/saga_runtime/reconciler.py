"""Looking after every saga that is due, and after those whose executions ended: what ``reconciliation`` decides.

Nothing here is a promise by itself: each call is conditional, and repeatable. Two reconcilers at once, or one that dies
between any two calls, do no harm; what was not done is done by the next look.
"""

from __future__ import annotations

import json
import os
import random
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Final, TypeVar

from botocore.exceptions import BotoCoreError, ClientError

from saga_runtime import aws, clock, telemetry
from saga_runtime.callback_rows import JobId
from saga_runtime.identity import request_id_from
from saga_runtime.late import LateFinding, late_rows, undo_late
from saga_runtime.protocol import (
    DUE_INDEX,
    TOKEN_DUE_SHARDS,
    Env,
    LogAttribute,
    Metric,
    ReconciledField,
    RecordAttribute,
    TokenAttribute,
)
from saga_runtime.reconciliation import (
    Decision,
    Found,
    Need,
    ParkedFor,
    clear_update,
    decide,
    keep_row_update,
    kept_until,
    look_later_update,
    may_forget,
    operators_entry,
    park_update,
    saga_of_execution,
)
from saga_runtime.record import RequestRecord
from saga_runtime.recovery import Recoverer, machine_of, recovery_name, take_over_update, what_to_do
from saga_runtime.retry import Backoff
from saga_runtime.saga_log import log_key

SPARE_MS: Final = 10_000
"""A sweep ends by itself before its function does: what the last saga needs fits in, unless AWS is very slow."""
BACKOFF: Final = Backoff(attempts=4, base_ms=200, cap_ms=3_000)
"""For a saga whose calls were throttled; the next sweep tries again, too."""

Result = TypeVar("Result")


@dataclass(frozen=True, slots=True, kw_only=True)
class Served:
    """A saga that is looked after.

    Attributes:
        machine: name of its forward state machine.
        requests: table of its requests' records.
        shards: of that table's sparse index.
        log: its saga log.
        days: how long that log's rows are kept.
        operators: URL of its operators' queue.
        tokens: steps whose jobs can be undone when they took effect late, by the token table that knows of it.
    """

    machine: str
    requests: str
    shards: int
    log: str
    days: int
    operators: str
    tokens: Mapping[str, tuple[str, ...]] = field(default_factory=dict)


def served_of(text: str) -> tuple[Served, ...]:
    """Read ``Env.RECONCILED``."""
    f = ReconciledField
    return tuple(
        Served(
            machine=entry[f.MACHINE],
            requests=entry[f.REQUESTS],
            shards=entry[f.SHARDS],
            log=entry[f.LOG],
            days=entry[f.DAYS],
            operators=entry[f.OPERATORS],
            tokens={table: tuple(steps) for table, steps in entry[f.TOKENS].items()},
        )
        for entry in json.loads(text)
    )


@dataclass(slots=True, kw_only=True)
class Reconciled:
    """What a sweep found, and did.

    Attributes:
        looked_at: records that were due.
        started: executions that were missing, and were started.
        taken_over: sagas whose owner was dead, and that were handed to a recovery.
        parked: sagas that were left to a person now.
        waiting: sagas that wait for a person.
        late: sagas with effects that nobody counts on any more, and that are not undone yet.
        oldest_seconds: age of the oldest saga that is due and in progress; 0: there is none.
        oldest_parked_seconds: for how long the longest has waited for a person; 0: none does.
        foreign: due records of sagas that somebody else looks after.
        failed: sagas that could not be looked after; the next sweep tries again.
        complete: whether everything that is due was looked at.
    """

    looked_at: int = 0
    started: int = 0
    taken_over: int = 0
    parked: int = 0
    waiting: int = 0
    late: int = 0
    oldest_seconds: int = 0
    oldest_parked_seconds: int = 0
    foreign: int = 0
    failed: int = 0
    complete: bool = True


@dataclass(slots=True, kw_only=True)
class Reconciler:
    """Looks after sagas.

    Attributes:
        served: the sagas.
        limit: recoveries of one saga after which a person decides.
        remaining_ms: time that is left.
    """

    served: Sequence[Served]
    limit: int
    remaining_ms: Callable[[], int]
    _done: Reconciled = field(default_factory=Reconciled)
    _late: set[str] = field(default_factory=set)

    @classmethod
    def from_env(cls, remaining_ms: Callable[[], int]) -> Reconciler:
        """The reconciler that the environment describes."""
        return cls(
            served=served_of(os.environ[Env.RECONCILED]),
            limit=int(os.environ[Env.RECOVERIES_LIMIT]),
            remaining_ms=remaining_ms,
        )

    def sweep(self) -> Reconciled:
        """Look after every saga that is due, in every shard of every table, and after what took effect late."""
        done, now_ms = self._done, clock.now_ms()
        for table, request_id in self._due_records(now_ms):
            if not self._go_on():
                break
            self._guarded(request_id, partial(self._look_at, table, request_id, now_ms))
        for table, row_id in self._late_jobs(now_ms):
            if not self._go_on():
                break
            self._guarded(row_id, partial(self._look_at_late_job, table, row_id))
        telemetry.seconds(Metric.OLDEST_IN_FLIGHT, done.oldest_seconds)
        telemetry.seconds(Metric.OLDEST_PARKED, done.oldest_parked_seconds)
        return done

    def execution_ended(self, name: str) -> None:
        """Look after the saga whose execution ended otherwise than well; whether it owns the saga, the record says.

        Raises:
            ClientError, BotoCoreError: it could not be looked after.
        """
        saga_id = saga_of_execution(name)
        if saga_id is None:
            telemetry.event("execution_of_nobody", execution=name)
            return
        for table in dict.fromkeys(saga.requests for saga in self.served):
            found = self._read(table, request_id_from(saga_id))
            if found is not None and found.record.saga_id == saga_id:
                saga = self._saga_of(table, found.record)
                if saga is not None:
                    self._reconcile(saga, found, clock.now_ms())
                return

    def _go_on(self) -> bool:
        if self.remaining_ms() < SPARE_MS:
            self._done.complete = False
        return self._done.complete

    def _guarded(self, name: str, look: Callable[[], Result]) -> Result | None:
        """A saga that cannot be looked after does not keep the others from it; throttling slows all of them down."""
        for failures in range(1, BACKOFF.attempts + 1):
            try:
                return look()
            except (ClientError, BotoCoreError, ValueError) as error:
                delay = BACKOFF.delay_ms(failures, random.random())
                last = failures == BACKOFF.attempts or self.remaining_ms() < SPARE_MS + delay
                if last or not aws.is_transient(error):
                    self._done.failed += 1
                    code = aws.error_code(error)
                    telemetry.event("reconcile_failed", row_id=name, error=type(error).__name__, code=code)
                    return None
                time.sleep(delay / 1_000)
        return None

    def _due_records(self, now_ms: int) -> Iterator[tuple[str, str]]:
        shards: dict[str, int] = {}
        for saga in self.served:
            shards[saga.requests] = max(saga.shards, shards.get(saga.requests, 0))
        yield from self._due(shards, now_ms)

    def _late_jobs(self, now_ms: int) -> Iterator[tuple[str, str]]:
        tables = dict.fromkeys((table for saga in self.served for table in saga.tokens), TOKEN_DUE_SHARDS)
        yield from self._due(tables, now_ms)

    def _due(self, shards: Mapping[str, int], now_ms: int) -> Iterator[tuple[str, str]]:
        """Tables, and keys of what is due in them. A shard that does not answer does not keep the others from it."""
        parts = [(table, shard) for table, count in shards.items() for shard in range(count)]
        # Not the same one first each time: one with many rows would keep the others waiting.
        first = now_ms // 60_000 % len(parts) if parts else 0
        for table, shard in parts[first:] + parts[:first]:
            start: Mapping[str, Any] | None = {}
            while start is not None and self._go_on():
                page = self._guarded(f"{table} {shard:02d}", partial(_page, table, shard, start, now_ms))
                if page is None:
                    break
                yield from ((table, str(item[RecordAttribute.ID.value]["S"])) for item in page["Items"])
                start = page.get("LastEvaluatedKey")

    def _look_at(self, table: str, request_id: str, now_ms: int) -> None:
        found = self._read(table, request_id)
        if found is None or not found.is_due(now_ms):
            return  # the index was behind: somebody has looked after it
        saga = self._saga_of(table, found.record)
        if saga is None:
            self._done.foreign += 1
            return
        self._done.looked_at += 1
        self._reconcile(saga, found, now_ms)

    def _read(self, table: str, request_id: str) -> Found | None:
        key = {RecordAttribute.ID.value: {"S": request_id}}
        item = aws.dynamodb().get_item(TableName=table, Key=key, ConsistentRead=True).get("Item")
        return None if item is None else Found.from_item(item)

    def _saga_of(self, table: str, record: RequestRecord) -> Served | None:
        machine = machine_of(record.execution_arn).rpartition(":")[2]
        return next((saga for saga in self.served if (saga.requests, saga.machine) == (table, machine)), None)

    def _reconcile(self, saga: Served, found: Found, now_ms: int) -> None:
        record, recoverer = found.record, _recoverer(saga)
        status = None
        if not record.settled and record.parked is None:
            status = recoverer.owner_status(record)
            if status == "SUCCEEDED":
                # It settled since the record was read, or handed over to the forward machine since that was asked.
                again = self._read(saga.requests, record.request_id)
                if again is None:
                    return
                found, record = again, again.record
                status = recoverer.owner_status(record)
        finding = what_to_do(record, status, now_ms)
        self._measure(record, found, now_ms)
        decision = decide(found, finding, now_ms=now_ms, limit=self.limit)
        self._carry_out(saga, found, decision, now_ms)
        if decision.need is Need.TAKE_OVER and status == "SUCCEEDED":
            telemetry.count(Metric.UNSETTLED, saga_id=record.saga_id)
        if not record.settled and may_forget(record, now_ms, saga.days):
            keep_rows(saga, record, now_ms)

    def _measure(self, record: RequestRecord, found: Found, now_ms: int) -> None:
        done = self._done
        if record.settled:
            return
        if record.parked is None:
            done.oldest_seconds = max(done.oldest_seconds, (now_ms - record.created_at) // 1_000)
            return
        if found.is_due(now_ms):
            telemetry.count(Metric.PARKED, saga_id=record.saga_id)
            done.waiting += 1
        since = found.parked_at or record.updated_at
        done.oldest_parked_seconds = max(done.oldest_parked_seconds, (now_ms - since) // 1_000)

    def _carry_out(self, saga: Served, found: Found, decision: Decision, now_ms: int) -> None:
        record = found.record
        match decision.need:
            case Need.NOTHING:
                return
            case Need.CLEAR:
                _updated(saga.requests, clear_update(record))
            case Need.LOOK_LATER:
                _updated(saga.requests, look_later_update(record, now_ms, decision.after_ms))
            case Need.START:
                telemetry.count(Metric.ORPHANS, saga_id=record.saga_id)
                first = record.owner == record.saga_id
                machine = machine_of(record.execution_arn) if first else record.recovery_machine_arn
                _recoverer(saga).start(machine, record.owner, record.input)
                self._done.started += 1
            case Need.TAKE_OVER:
                self._take_over(saga, record, decision.after_ms, now_ms)
            case Need.PARK if decision.reason is not None:
                self._park(saga, found, decision.reason, now_ms)

    def _take_over(self, saga: Served, record: RequestRecord, after_ms: int, now_ms: int) -> None:
        """One update, then the start by the name that it gave. Somebody else's update to that name is as good."""
        telemetry.count(Metric.ORPHANS, saga_id=record.saga_id)
        name = recovery_name(record.saga_id, record.recoveries + 1)
        if _updated(saga.requests, take_over_update(record, now_ms, after_ms)):
            telemetry.count(Metric.RECOVERIES, saga_id=record.saga_id)
            self._done.taken_over += 1
        else:
            again = self._read(saga.requests, record.request_id)
            if again is None or again.record.settled or again.record.parked is not None or again.record.owner != name:
                return
        _recoverer(saga).start(record.recovery_machine_arn, name, record.input)

    def _park(self, saga: Served, found: Found, reason: ParkedFor, now_ms: int) -> None:
        """The entry before the record says so: rather twice than never."""
        aws.sqs().send_message(QueueUrl=saga.operators, MessageBody=operators_entry(found, reason))
        if _updated(saga.requests, park_update(found.record, reason, now_ms)):
            self._done.parked += 1

    def _look_at_late_job(self, table: str, row_id: str) -> None:
        """A job's row is due until its late effect is undone, also when its saga has long been settled."""
        job = JobId.parse(row_id)
        if job is None or job.saga_id in self._late:
            return
        log_table = _late_log_table(table, row_id)
        saga = next((saga for saga in self.served if saga.log == log_table), None)
        if saga is None or job.step not in saga.tokens.get(table, ()):
            return  # the operators were told of a step that nothing undoes when it took effect
        found = self._read(saga.requests, request_id_from(job.saga_id))
        if found is None or found.record.saga_id != job.saga_id:
            # Its record is gone, and with it what an undo would need.
            telemetry.count(Metric.LATE_STANDS, saga_id=job.saga_id)
        else:
            recoverer = _recoverer(saga)
            if job.row_name not in late_rows(recoverer, found.record, saga.log):
                return  # it is undone; what stands beside it may be what nothing undoes
            if undo_late(recoverer, found.record, saga.log).finding is LateFinding.EXHAUSTED:
                telemetry.count(Metric.LATE_STANDS, saga_id=job.saga_id)
        self._late.add(job.saga_id)
        self._done.late += 1


def keep_rows(saga: Served, record: RequestRecord, now_ms: int) -> None:
    """Keep the rows of a saga's log for longer that come near their end: without them, its steps could happen twice."""
    a = LogAttribute
    before, until = kept_until(now_ms, saga.days)
    asked: dict[str, Any] = {
        "TableName": saga.log,
        "ConsistentRead": True,
        "KeyConditionExpression": "#saga_id = :saga_id",
        "FilterExpression": "#expiration < :before",
        "ProjectionExpression": "#step, #expiration",
        "ExpressionAttributeNames": {f"#{name.value}": name.value for name in (a.SAGA_ID, a.STEP, a.EXPIRATION)},
        "ExpressionAttributeValues": {":saga_id": {"S": record.saga_id}, ":before": {"N": str(before)}},
    }
    for page in aws.dynamodb().get_paginator("query").paginate(**asked):
        for item in page["Items"]:
            key = log_key(record.saga_id, item[a.STEP.value]["S"])
            _updated(saga.log, keep_row_update(key, int(item[a.EXPIRATION.value]["N"]), until))


def _recoverer(saga: Served) -> Recoverer:
    return Recoverer(table=saga.requests, dynamodb=aws.dynamodb(), step_functions=aws.step_functions())


def _updated(table: str, arguments: Mapping[str, Any]) -> bool:
    """Whether a conditional update took effect; refused, somebody else has looked after it."""
    try:
        aws.dynamodb().update_item(TableName=table, **arguments)
    except ClientError as error:
        if aws.error_code(error) != aws.CONDITION_FAILED:
            raise
        return False
    return True


def _page(table: str, shard: int, start: Mapping[str, Any], now_ms: int) -> Mapping[str, Any]:
    """Keys of one page of what is due in a shard. The index may be behind: every key is looked up strongly."""
    a = RecordAttribute
    asked: dict[str, Any] = {
        "TableName": table,
        "IndexName": DUE_INDEX,
        "KeyConditionExpression": "#shard = :shard AND #due_at <= :now",
        "ExpressionAttributeNames": {"#shard": a.DUE_SHARD.value, "#due_at": a.DUE_AT.value},
        "ExpressionAttributeValues": {":shard": {"S": f"{shard:02d}"}, ":now": {"N": str(now_ms)}},
        **({"ExclusiveStartKey": start} if start else {}),
    }
    answer: Mapping[str, Any] = aws.dynamodb().query(**asked)
    return answer


def _late_log_table(table: str, row_id: str) -> str | None:
    """The saga log of a job that took effect late; None: this one did not. Its token is not read."""
    a = TokenAttribute
    item = (
        aws.dynamodb()
        .get_item(
            TableName=table,
            Key={a.ID.value: {"S": row_id}},
            ConsistentRead=True,
            ProjectionExpression="#log_table, #applied_late_at",
            ExpressionAttributeNames={f"#{name.value}": name.value for name in (a.LOG_TABLE, a.APPLIED_LATE_AT)},
        )
        .get("Item")
    )
    return item[a.LOG_TABLE.value]["S"] if item is not None and a.APPLIED_LATE_AT.value in item else None
