"""Reconciles one saga: reads it, describes its owner's execution, and does what ``decisions`` decides.

Reading and doing are separate: ``look`` changes nothing, and returns what ``carry_out`` would do. For information use
``read``, ``saga_of`` and ``look``; a repair passes what was seen to ``carry_out``. Likewise ``look_late`` and
``undo`` for late effects.

Each call is conditional, and repeatable. Two at once, or one that crashes between any
two calls, are harmless.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, Final

from botocore.exceptions import ClientError

from saga_runtime.callbacks.rows import JobId
from saga_runtime.callbacks.saga_writes import LATE_DAYS, SagaRecord
from saga_runtime.idempotency.identity import request_id_from
from saga_runtime.idempotency.record import RequestRecord
from saga_runtime.protocol import LogAttribute, Metric, ReconciledField, RecordAttribute, TokenAttribute
from saga_runtime.recovery.decisions import (
    DENIED_MS,
    LONGEST_LOOK_MS,
    Decision,
    Found,
    Need,
    ParkedFor,
    clear_update,
    decide,
    kept_until,
    look_later_update,
    may_forget,
    operators_entry,
    park_update,
    rows_kept_update,
)
from saga_runtime.recovery.late_effects import LateFinding, LateUndo, give_up_update, late_log, undo_late
from saga_runtime.recovery.takeover import (
    TAKEN_OVER,
    Finding,
    Owner,
    Recoverer,
    may_have_forgotten,
    recovery_name,
    take_over_update,
    what_to_do,
)
from saga_runtime.saga_log.rows import kept_update, longer_end
from saga_runtime.shared import aws, telemetry, writes
from saga_runtime.shared.arns import execution_of, machine_of
from saga_runtime.shared.decisions import Audit

if TYPE_CHECKING:
    from mypy_boto3_stepfunctions import SFNClient

_DAY_MS: Final = 86_400_000


@dataclass(frozen=True, slots=True, kw_only=True)
class Served:
    """A reconciler's saga.

    Attributes:
        machine: name of its forward state machine.
        requests: table of its requests' records.
        shards: of that table's sparse index.
        log: its saga log.
        days: how long that log's rows are kept.
        operators: URL of its operators' queue.
        tokens: steps whose late effects can be compensated, by the token table of their jobs.
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


@dataclass(frozen=True, slots=True, kw_only=True)
class Seen:
    """Assessment of a saga. Nothing was done.

    Attributes:
        saga: which one it is.
        found: its record, as it was read last.
        status: of its owner's execution; None: it does not exist, or was not described.
        finding: what that is.
        decision: what is to be done.
        now_ms: when it was; epoch milliseconds.
    """

    saga: Served
    found: Found
    status: str | None
    finding: Finding
    decision: Decision
    now_ms: int


@dataclass(frozen=True, slots=True, kw_only=True)
class LateSeen:
    """A late effect of a job that is not compensated. Nothing was done.

    Attributes:
        saga: which one it belongs to.
        job: which one it is.
        record: of that saga; None: it is gone, and with it the input of a compensation.
        rows: sort keys of everything of that saga's log that is to be undone.
        ends: of every row of that log, when it expires, in epoch seconds; 0: never.
        lost: whether the job's row is gone: it is not known whether the effect is undone.
    """

    saga: Served
    job: JobId
    record: RequestRecord | None
    rows: tuple[str, ...] = ()
    ends: Mapping[str, int] = field(default_factory=dict)
    lost: bool = False


def _unknown(_machine_arn: str, _name: str) -> bool:
    return False


def _count(metric: Metric, saga_id: str) -> None:
    telemetry.count(metric, saga_id=saga_id)


@dataclass(frozen=True, slots=True, kw_only=True)
class Caretaker:
    """Reconciles one saga at a time; threads may share it.

    Guaranteed: ``read``, ``saga_of``, ``look`` and ``look_late`` change nothing. ``carry_out`` and ``undo`` do what a
    look saw to be needed, if nothing has changed since in a way that matters, and otherwise nothing; both may be
    repeated.

    Each of them raises ClientError or BotoCoreError if AWS refuses a call, and ValueError for what cannot
    be read.

    It calls AWS with the clients of ``saga_runtime.shared.aws``: a command selects these first.

    Attributes:
        served: the sagas; of others nothing is known.
        limit: recoveries of one saga before it is parked.
        longest_look_ms: recheck interval of an old or parked saga.
        step_functions: the client of Step Functions.
        runs: whether an execution of a state machine is known to run; it is not asked for then.
        count: called with the metric and the saga's id, once it is certain.
        audit: the operator whose decisions these are, and why; None: the reconciler itself.
    """

    served: Sequence[Served]
    limit: int
    longest_look_ms: int = LONGEST_LOOK_MS
    step_functions: Callable[[], SFNClient] = aws.step_functions
    runs: Callable[[str, str], bool] = _unknown
    count: Callable[[Metric, str], None] = _count
    audit: Audit | None = None

    def read(self, table: str, request_id: str) -> Found | None:
        """Read a request's record strongly; None: it does not exist.

        Raises:
            ValueError: if the item is not a saga's.
        """
        key: dict[str, dict[str, str]] = {RecordAttribute.ID: {"S": request_id}}
        item = aws.dynamodb().get_item(TableName=table, Key=key, ConsistentRead=True).get("Item")
        if item is None:
            return None
        found = Found.from_item(item)
        if found is None:
            raise ValueError(f"item {request_id!r} of table {table} is not a saga's: it has no saga id")
        return found

    def saga_of(self, table: str, record: RequestRecord) -> Served | None:
        """Return the saga of a table's record; None: another reconciler's."""
        machine = machine_of(record.execution_arn).rpartition(":")[2]
        return next((saga for saga in self.served if (saga.requests, saga.machine) == (table, machine)), None)

    def look(self, saga: Served, found: Found, now_ms: int) -> Seen | None:
        """Find out what a saga needs, and change nothing; None: its record is gone by now.

        Args:
            saga: which one it is.
            found: its record, as it was read.
            now_ms: the time.
        """
        record, recoverer, owner = found.record, self._recoverer(saga), Owner()
        if not record.settled and record.parked_by is None:
            try:
                owner = recoverer.owner(record)
            except ClientError as error:
                if not _is_of_another(recoverer, error, record, now_ms):
                    raise
                finding = Finding.OWNER_UNKNOWN
                decision = decide(found, finding, now_ms=now_ms, limit=self.limit, longest_ms=self.longest_look_ms)
                return Seen(saga=saga, found=found, status=None, finding=finding, decision=decision, now_ms=now_ms)
            if owner.status == "SUCCEEDED":
                # It may have settled since the record was read; or another recovery owns it by now.
                again = self.read(saga.requests, record.request_id)
                if again is None:
                    return None
                if again.record.owner != record.owner:
                    owner = recoverer.owner(again.record)
                found, record = again, again.record
        finding = what_to_do(record, owner, now_ms, log_days=saga.days)
        decision = decide(found, finding, now_ms=now_ms, limit=self.limit, longest_ms=self.longest_look_ms)
        return Seen(saga=saga, found=found, status=owner.status, finding=finding, decision=decision, now_ms=now_ms)

    def carry_out(self, seen: Seen) -> bool:
        """Do what an assessment found to be needed, and extend the saga's log before it is settled.

        Returns:
            Whether this call did what was needed; False: another process has, or nothing was.
        """
        try:
            self.keep_rows(seen)
        finally:  # neither waits for the other: each may be refused for as long as rows are kept
            done = self._carry_out(seen)
        return done

    def keep_rows(self, seen: Seen) -> None:
        """Extend the log of a saga that is not settled, if it is known; do nothing else: also of one that is held."""
        record = seen.found.record
        if seen.saga.log and not record.settled and may_forget(record, seen.now_ms):
            _keep_rows(seen.saga, record, seen.now_ms)

    def look_late(self, table: str, row_id: str) -> LateSeen | None:
        """Find out whether a token table's row has a late effect, and change nothing.

        Returns:
            None: it does not, or nothing undoes its step, or it is undone, or its saga may need it.
        """
        job = JobId.parse(row_id)
        undone = [saga for saga in self.served if job is not None and job.step in saga.tokens.get(table, ())]
        if job is None or not undone:
            return None  # the operators were notified of a step without a compensation when it was applied
        log = _late_log(table, row_id)
        saga = next((saga for saga in undone if saga.log == log), None)
        if saga is None:
            return None
        found = self.read(saga.requests, request_id_from(job.saga_id))
        if found is None or found.record.saga_id != job.saga_id:
            return LateSeen(saga=saga, job=job, record=None)
        read = late_log(self._recoverer(saga), found.record, saga.log)
        lost = job.row_name not in read.ends
        if job.row_name not in read.late and not lost:
            return None  # it is compensated, or its saga may need it; another row may have no compensation
        return LateSeen(saga=saga, job=job, record=found.record, rows=read.late, ends=read.ends, lost=lost)

    def undo(self, late: LateSeen, now_ms: int) -> LateUndo:
        """Start the compensation of late effects; if that is impossible, ``EXHAUSTED``.

        What could not be compensated is postponed, as parked sagas are: its executions are described again after a
        while. The record of a settled saga is kept whole until then, and so are the rows of its log: an undo is started
        with what the saga was started with, and reads what its steps returned.
        """
        record = late.record
        if record is None or (record.late_at is not None and record.late_at > now_ms):
            return LateUndo(finding=LateFinding.EXHAUSTED, rows=late.rows)
        _keep_whole(late.saga, record, now_ms)
        _keep_late_rows(late, now_ms)
        undo = undo_late(self._recoverer(late.saga), record, late.saga.log, now_ms)
        if late.lost and undo.finding is LateFinding.NOTHING:
            return replace(undo, finding=LateFinding.EXHAUSTED)
        if undo.finding is LateFinding.EXHAUSTED and undo.tried:
            _updated(late.saga.requests, give_up_update(record, undo.tried, at_ms=now_ms + self.longest_look_ms))
        return undo

    def keep_whole(self, late: LateSeen, now_ms: int) -> None:
        """Keep what late effects are compensated with, and start nothing: their saga is held."""
        if late.record is not None:
            _keep_whole(late.saga, late.record, now_ms)
            _keep_late_rows(late, now_ms)

    def _recoverer(self, saga: Served) -> Recoverer:
        return Recoverer(
            table=saga.requests,
            dynamodb=aws.dynamodb(),
            step_functions=self.step_functions(),
            runs=self.runs,
            audit=self.audit,
        )

    def _carry_out(self, seen: Seen) -> bool:
        saga, record, decision, now_ms = seen.saga, seen.found.record, seen.decision, seen.now_ms
        recoverer = self._recoverer(saga)
        match decision.need:
            case Need.NOTHING:
                return False
            case Need.CLEAR:
                noted = recoverer.noted("not due any more", record, now_ms)
                return _updated(saga.requests, clear_update(record, noted))
            case Need.LOOK_LATER:
                return _updated(saga.requests, look_later_update(record, now_ms, decision.after_ms))
            case Need.START:
                if not recoverer.begins_owner(record, now_ms):
                    return False
                self.count(Metric.ORPHANS, record.saga_id)
                return True
            case Need.STOP:
                recoverer.stop(record)
                if seen.found.is_due(now_ms):
                    _updated(saga.requests, look_later_update(record, now_ms, decision.after_ms))
                return True
            case Need.TAKE_OVER:
                return self._take_over(seen)
            case Need.PARK:
                return decision.reason is not None and self._park(seen, decision.reason)

    def _take_over(self, seen: Seen) -> bool:
        """One update, then the start by the name that it wrote. Another process's update to that name is equivalent."""
        saga, record, recoverer = seen.saga, seen.found.record, self._recoverer(seen.saga)
        name = recovery_name(record.saga_id, record.recoveries + 1)
        noted = recoverer.noted(TAKEN_OVER, record, seen.now_ms)
        done = _updated(saga.requests, take_over_update(record, seen.now_ms, seen.decision.after_ms, noted))
        if done:
            self.count(Metric.ORPHANS, record.saga_id)
            self.count(Metric.RECOVERIES, record.saga_id)
        else:
            again = self.read(saga.requests, record.request_id)
            if (
                again is None
                or again.record.settled
                or again.record.parked_by is not None
                or again.record.owner != name
            ):
                return False
        recoverer.start(record.recovery_machine_arn, name, record.input)
        return done

    def _park(self, seen: Seen, reason: ParkedFor) -> bool:
        """Send the entry before the record is marked as parked: at least once."""
        saga, found = seen.saga, seen.found
        aws.sqs().send_message(QueueUrl=saga.operators, MessageBody=operators_entry(found, reason))
        noted = self._recoverer(saga).noted("parked", found.record, seen.now_ms)
        done = _updated(saga.requests, park_update(found.record, reason, seen.now_ms, noted))
        if done and reason is ParkedFor.OWNER_SUCCEEDED:
            self.count(Metric.UNSETTLED, found.record.saga_id)
        return done


def _is_of_another(recoverer: Recoverer, error: ClientError, record: RequestRecord, now_ms: int) -> bool:
    """Test whether a record names a recovery machine that is not its saga's, or not any more: it cannot be described.

    So it is if the recovery's execution may not be described, and the forward machine's may: else rights are missing,
    which is an error. And it has been so for long: a record that cannot be reconciled stays due.
    """
    overdue = record.due_at is not None and now_ms - record.due_at >= DENIED_MS
    if record.owner == record.saga_id or not overdue or aws.error_code(error) not in aws.NO_RIGHTS:
        return False
    recoverer.described(execution_of(machine_of(record.execution_arn), record.owner))
    return True


def _keep_rows(saga: Served, record: RequestRecord, now_ms: int) -> None:
    """Rows of a saga's log that come near their end are kept for longer: without them, steps could happen twice."""
    a = LogAttribute
    before, until = kept_until(now_ms, saga.days)
    asked: dict[str, Any] = {
        "TableName": saga.log,
        "ConsistentRead": True,
        "KeyConditionExpression": "#saga_id = :saga_id",
        "ProjectionExpression": "#step, #expiration",
        "ExpressionAttributeNames": {f"#{name}": name for name in (a.SAGA_ID, a.STEP, a.EXPIRATION)},
        "ExpressionAttributeValues": {":saga_id": {"S": record.saga_id}},
    }
    for page in aws.dynamodb().get_paginator("query").paginate(**asked):
        for item in page["Items"]:
            end = int(item[a.EXPIRATION]["N"]) if a.EXPIRATION in item else before
            if end < before:
                # Refused, another process has extended it: at least for as long.
                writes.write(kept_update(saga.log, record.saga_id, item[a.STEP]["S"], end, until))
    if not may_have_forgotten(record, now_ms, saga.days):
        # All that were ever written are there, and none ends before.
        _updated(saga.requests, rows_kept_update(record, now_ms))


def _keep_whole(saga: Served, record: RequestRecord, now_ms: int) -> None:
    """A settled record whose response will expire before long is kept for longer; a tombstone stays one."""
    ends = record.response_expires_at
    if record.tombstone or ends is None or ends * 1_000 >= now_ms + LATE_DAYS * _DAY_MS // 2:
        return
    found = SagaRecord(
        request_id=record.request_id,
        saga_id=record.saga_id,
        status=record.status,
        expiration=record.expiration or 0,
        response_expires_at=ends,
    )
    kept = found.kept(saga.requests, now_ms)
    if kept is not None:
        # Refused: another process has extended it, or the response was removed meanwhile.
        _updated(saga.requests, {name: value for name, value in kept["Update"].items() if name != "TableName"})


def _keep_late_rows(late: LateSeen, now_ms: int) -> None:
    """Rows of a saga with a late effect are kept until it is undone. Refused: another process has extended them."""
    for step, end in late.ends.items():
        if (until := longer_end(end, now_ms)) is not None:
            writes.write(kept_update(late.saga.log, late.job.saga_id, step, end, until))


def _updated(table: str, arguments: Mapping[str, Any]) -> bool:
    """Test whether a conditional update was applied; refused, another process has reconciled it."""
    return writes.write({"Update": {"TableName": table, **arguments}}) is None


def _late_log(table: str, row_id: str) -> str | None:
    """The saga log of a job with a late effect; None: it has none. Its token is not read."""
    a = TokenAttribute
    item = (
        aws.dynamodb()
        .get_item(
            TableName=table,
            Key={a.ID: {"S": row_id}},
            ConsistentRead=True,
            ProjectionExpression="#log_table, #applied_late_at",
            ExpressionAttributeNames={f"#{name}": name for name in (a.LOG_TABLE, a.APPLIED_LATE_AT)},
        )
        .get("Item")
    )
    return item[a.LOG_TABLE]["S"] if item is not None and a.APPLIED_LATE_AT in item else None
