"""Entries of the operators' queue that no operator needs any more.

Those about sagas that are not parked any more, about recorded late effects that are compensated, and about
conflicting outcomes that an operator has acknowledged.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any, Final

from botocore.exceptions import BotoCoreError, ClientError

from saga_runtime.callbacks.decisions import APPLIED_LATE, CONTRADICTED, OPERATOR_ERRORS, acknowledgement
from saga_runtime.callbacks.rows import JobId
from saga_runtime.idempotency.identity import is_saga_id, request_id_from
from saga_runtime.idempotency.record import RequestRecord
from saga_runtime.protocol import LogAttribute, RecordAttribute, StepStatus
from saga_runtime.recovery.hold import Hold
from saga_runtime.recovery.saga_reconciler import Served
from saga_runtime.recovery.takeover import may_have_forgotten
from saga_runtime.shared import aws, clock, telemetry
from saga_runtime.shared.decisions import Decision

if TYPE_CHECKING:
    from mypy_boto3_sqs import SQSClient

HELD_SECONDS: Final = 60
"""For so long an entry that was received is hidden, at most."""
RUN_MS: Final = 40_000
"""How long entries are received, at most: before the first ones are visible again, and the operators' function ends."""
SPARE_MS: Final = 5_000
"""Time left for what was received last."""
_AT_ONCE: Final = 10


@dataclass(frozen=True, slots=True, kw_only=True)
class ParkEntry:
    """An entry about a parked saga: which one, and the execution that parks it."""

    saga_id: str
    execution: str

    @classmethod
    def from_body(cls, body: str) -> ParkEntry | None:
        """Read a message; None: it is about something else, for example a contradicted outcome, or a late effect."""
        try:
            found = json.loads(body)
        except ValueError:
            return None
        if not isinstance(found, Mapping) or found.get("late"):
            return None  # what compensates late effects never owns a record, and the saga may have settled before
        saga_id, execution, reason = found.get("saga_id"), found.get("execution"), found.get("parked_reason")
        if not isinstance(saga_id, str) or not is_saga_id(saga_id) or not isinstance(execution, str) or not execution:
            return None
        error: Any = reason.get("error") if isinstance(reason, Mapping) else None
        return None if error in OPERATOR_ERRORS else cls(saga_id=saga_id, execution=execution)

    @property
    def request_id(self) -> str:
        """Key of the saga's record."""
        return request_id_from(self.saga_id)

    def is_over(self, record: RequestRecord | None) -> bool:
        """Test whether an operator needs the entry no more.

        An entry is sent before its record is marked as parked, so the mark alone does not decide: as long as the
        execution owns the saga, it may be about to park it. What resumes a saga gives it another owner. Without a
        record of the saga nothing is known: several stacks may share a queue, and read only their own tables.

        Args:
            record: under the saga's key, read strongly; None: it does not exist.
        """
        if record is None or record.saga_id != self.saga_id:
            return False
        return record.settled or record.owner != self.execution


@dataclass(frozen=True, slots=True, kw_only=True)
class LateEntry:
    """An entry about a late effect that is recorded, or about those of a saga that an execution could not undo.

    That about one is over when its row is ``COMPENSATED``, or ``DONE``, because its saga continues with it: no row ever
    leaves the former, and none is late after either. So a stale read keeps an entry, and deletes none. That of an
    execution is sent after it read the rows: it is over when none of the saga's is left to undo.

    Attributes:
        saga_id: the saga.
        row_name: sort key of the row; None: any of the saga, because an execution reports a state and no row.
    """

    saga_id: str
    row_name: str | None

    @classmethod
    def from_body(cls, body: str) -> LateEntry | None:
        """Read a message; None: it is about something else."""
        try:
            found = json.loads(body)
        except ValueError:
            return None
        saga_id = found.get("saga_id") if isinstance(found, Mapping) else None
        if not isinstance(saga_id, str) or not is_saga_id(saga_id):
            return None
        if found.get("late") is True:
            return cls(saga_id=saga_id, row_name=None)
        reason = found.get("parked_reason")
        if not isinstance(reason, Mapping) or reason.get("error") != APPLIED_LATE:
            return None
        row_name = reason.get("step")
        return cls(saga_id=saga_id, row_name=row_name) if isinstance(row_name, str) and row_name else None


@dataclass(frozen=True, slots=True, kw_only=True)
class ConflictEntry:
    """An entry about an outcome that contradicts the kept one of its job.

    It is over when a decision in the record of the job's saga acknowledges this outcome; nothing removes decisions.
    """

    job_id: str
    conflict_id: str

    @classmethod
    def from_body(cls, body: str) -> ConflictEntry | None:
        """Read a message; None: it is about something else, or does not name the outcome."""
        try:
            found = json.loads(body)
        except ValueError:
            return None
        reason = found.get("parked_reason") if isinstance(found, Mapping) else None
        if not isinstance(reason, Mapping) or reason.get("error") != CONTRADICTED:
            return None
        about = found.get("conflict")
        job_id, outcome = (about.get("job"), about.get("outcome")) if isinstance(about, Mapping) else (None, None)
        if not isinstance(job_id, str) or JobId.parse(job_id) is None or not isinstance(outcome, str):
            return None
        return cls(job_id=job_id, conflict_id=outcome)


Entry = ParkEntry | LateEntry | ConflictEntry


@dataclass(slots=True, kw_only=True)
class OperatorsQueue:
    """The operators' queue of some sagas.

    Guaranteed: an entry about a saga that is parked, or is about to be, stays; so does one that is about something
    else. An entry that is received while another process reads it is left to the next run.

    Attributes:
        sqs: client of SQS.
        url: of the queue.
        read: the record under a request id, read strongly; None: it does not exist.
        undone: whether the late effect of an entry is compensated.
        acknowledged: whether an operator has acknowledged the outcome of an entry.
        wait_seconds: how long a receive waits for an entry.
        deleted: how many entries were deleted.
        left: how many were read and stay.
        complete: whether all were read that no other process was reading.
    """

    sqs: SQSClient
    url: str
    read: Callable[[str], RequestRecord | None]
    undone: Callable[[LateEntry], bool]
    acknowledged: Callable[[ConflictEntry], bool]
    wait_seconds: int = 1
    deleted: int = 0
    left: int = 0
    complete: bool = False

    def clear(self, may_continue: Callable[[], bool] = lambda: True) -> None:
        """Delete the entries that are over, and second copies; release the others.

        Args:
            may_continue: whether there is time for ten more.
        """
        kept: dict[str, str] = {}
        needed: dict[Entry, str] = {}
        until_ms = clock.now_ms() + RUN_MS
        try:
            while clock.now_ms() < until_ms and may_continue():
                fresh = [message for message in self._received() if message["MessageId"] not in kept]
                if not fresh:
                    self.complete = True
                    return
                for message in fresh:
                    entry, name = _entry_of(message["Body"]), message["MessageId"]
                    kept[name] = message["ReceiptHandle"]
                    if entry is None:
                        continue
                    other = needed.get(entry)
                    if other is not None:
                        # What is sent at least once may be there twice. The one with the least id stays: two processes
                        # could each delete what the other one keeps.
                        self._delete(kept.pop(max(name, other)))
                        needed[entry] = min(name, other)
                    elif self._is_over(entry):
                        self._delete(kept.pop(name))
                    else:
                        needed[entry] = name
        finally:
            self.left = len(kept)
            for batch in _batches(list(kept.values())):
                self.sqs.change_message_visibility_batch(QueueUrl=self.url, Entries=batch)

    def _delete(self, receipt: str) -> None:
        self.sqs.delete_message(QueueUrl=self.url, ReceiptHandle=receipt)
        self.deleted += 1

    def _is_over(self, entry: Entry) -> bool:
        match entry:
            case LateEntry():
                return self.undone(entry)
            case ConflictEntry():
                return self.acknowledged(entry)
            case ParkEntry():
                return entry.is_over(self.read(entry.request_id))

    def _received(self) -> list[Any]:
        answer: Any = self.sqs.receive_message(
            QueueUrl=self.url,
            MaxNumberOfMessages=_AT_ONCE,
            VisibilityTimeout=HELD_SECONDS,
            WaitTimeSeconds=self.wait_seconds,
        )
        return list(answer.get("Messages", []))


def clear_queues(served: Iterable[Served], hold: Hold, remaining_ms: Callable[[], int]) -> int:
    """Delete entries of the operators' queues of some sagas that are over; how many.

    A queue that cannot be read is left to the next run. Nothing is deleted while the sagas are held: what their records
    state may be restored.

    Args:
        served: the sagas.
        hold: the switch that keeps the reconciler from acting.
        remaining_ms: time that is left.
    """
    queues: dict[str, list[Served]] = {}
    for saga in served:
        if saga.operators:
            queues.setdefault(saga.operators, []).append(saga)

    def may_continue() -> bool:
        return remaining_ms() >= SPARE_MS and hold.read() is None

    deleted = 0
    for url, sagas in queues.items():
        queue = queue_of(url, sagas, wait_seconds=0)
        try:
            queue.clear(may_continue)
        except (ClientError, BotoCoreError, ValueError) as error:
            name, code = type(error).__name__, aws.error_code(error)
            telemetry.event("operators_queue_not_cleared", url=url, error=name, code=code)
        deleted += queue.deleted
    if deleted:
        telemetry.event("operators_queue_cleared", deleted=deleted)
    return deleted


def queue_of(url: str, served: Iterable[Served], *, wait_seconds: int = 1) -> OperatorsQueue:
    """The operators' queue of some sagas, which reads their tables."""
    sagas = list(served)
    requests = list(dict.fromkeys(saga.requests for saga in sagas))
    return OperatorsQueue(
        sqs=aws.sqs(),
        url=url,
        read=partial(record_in, requests),
        acknowledged=partial(acknowledged_in, requests),
        undone=partial(undone_in, sagas),
        wait_seconds=wait_seconds,
    )


def undone_in(served: Iterable[Served], entry: LateEntry) -> bool:
    """Test whether one of some sagas' logs has compensated what an entry is about, with no late effect left."""
    return any(_is_undone(saga, entry) for saga in {(saga.log, saga.requests): saga for saga in served}.values())


def _is_undone(saga: Served, entry: LateEntry) -> bool:
    statuses = _statuses(saga.log, entry)
    if entry.row_name is not None:
        return not statuses.isdisjoint((StepStatus.COMPENSATED, StepStatus.DONE))
    left = {StepStatus.APPLIED_LATE, StepStatus.COMPENSATING}
    if StepStatus.COMPENSATED not in statuses or not left.isdisjoint(statuses):
        return False
    # Of several rows one may have expired. Read after the rows: then none had when they were read.
    record = record_in([saga.requests], request_id_from(entry.saga_id))
    if record is None or record.saga_id != entry.saga_id:
        return False
    return not may_have_forgotten(record, clock.now_ms(), saga.days)


def _statuses(table: str, entry: LateEntry) -> set[str]:
    """Statuses of an entry's rows, read strongly. A query: the reconciler may not get items of a saga log."""
    a = LogAttribute
    one_row = entry.row_name is not None
    asked: dict[str, Any] = {
        "TableName": table,
        "ConsistentRead": True,
        "KeyConditionExpression": f"#saga_id = :saga_id{' AND #step = :step' if one_row else ''}",
        "ProjectionExpression": "#status",
        "ExpressionAttributeNames": {f"#{name}": name for name in (a.SAGA_ID, a.STATUS, *([a.STEP] * one_row))},
        "ExpressionAttributeValues": {
            ":saga_id": {"S": entry.saga_id},
            **({":step": {"S": entry.row_name}} if one_row else {}),
        },
    }
    pages = aws.dynamodb().get_paginator("query").paginate(**asked)
    return {item[a.STATUS]["S"] for page in pages for item in page["Items"]}


def acknowledged_in(tables: Iterable[str], entry: ConflictEntry) -> bool:
    """Test whether a decision in one of some tables acknowledges an entry's outcome, read strongly."""
    request_id = request_id_from(entry.job_id.partition("#")[0])
    what = acknowledgement(entry.job_id, entry.conflict_id)
    return any(one.what == what for item in _items_in(tables, request_id) for one in Decision.all_of(item))


def record_in(tables: Iterable[str], request_id: str) -> RequestRecord | None:
    """A saga's record in one of some tables, read strongly; None: it does not exist."""
    return next(map(RequestRecord.from_item, _items_in(tables, request_id)), None)


def _items_in(tables: Iterable[str], request_id: str) -> Iterator[Mapping[str, Any]]:
    key: dict[str, dict[str, str]] = {RecordAttribute.ID: {"S": request_id}}
    for table in tables:
        item = aws.dynamodb().get_item(TableName=table, Key=key, ConsistentRead=True).get("Item")
        if item is not None and RecordAttribute.SAGA_ID in item:
            yield item


def _entry_of(body: str) -> Entry | None:
    return ParkEntry.from_body(body) or LateEntry.from_body(body) or ConflictEntry.from_body(body)


def _batches(receipts: list[str]) -> Iterator[Any]:
    """Entries of the calls that make messages visible again."""
    for start in range(0, len(receipts), _AT_ONCE):
        yield [
            {"Id": str(place), "ReceiptHandle": receipt, "VisibilityTimeout": 0}
            for place, receipt in enumerate(receipts[start : start + _AT_ONCE])
        ]
