"""Sweep of due token rows: undelivered outcomes, notices, unanswered jobs, and late effects."""

from __future__ import annotations

import random
import threading
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import nullcontext
from dataclasses import dataclass, field, fields
from functools import partial
from operator import itemgetter
from typing import Any, Final

from saga_runtime.callbacks.decisions import acknowledgement
from saga_runtime.callbacks.notices import contradicting_outcome, notice_delete, send_entry
from saga_runtime.callbacks.rows import JobId, TokenRow
from saga_runtime.callbacks.saga_writes import SagaRecord
from saga_runtime.callbacks.store import read_log, read_record, read_token, token_table
from saga_runtime.callbacks.task_tokens import settle_row
from saga_runtime.callbacks.unanswered import unanswered_entry
from saga_runtime.callbacks.writes import keep_update, not_due_update, token_update, unanswered_update
from saga_runtime.errors import SagaError, TransientError
from saga_runtime.idempotency.identity import request_id_from
from saga_runtime.protocol import (
    DUE_INDEX,
    NOTICE_PREFIX,
    TOKEN_DUE_SHARDS,
    Metric,
    RecordAttribute,
    RecordStatus,
    StepStatus,
    TokenAttribute,
    TokenStatus,
)
from saga_runtime.saga_log.rows import LogRow, kept_update, longer_end
from saga_runtime.shared import aws, clock, telemetry
from saga_runtime.shared.backoff import PATIENT
from saga_runtime.shared.decisions import Decision
from saga_runtime.shared.writes import Item, read, write

WORKERS: Final = aws.CONNECTIONS
"""As many as there are connections for."""
_NEWEST: Final = 500
"""Rows that are processed first: those that became due in the last minutes, also on a day with very many."""
_SPARE_MS = 12_000
"""A sweep ends this long before its function does: longer than a call that is not answered."""
_FOR_NOTICES_MS = 12_000
"""What a backlog of other rows leaves to notices."""
_UNDECIDED_MS = 3_600_000
"""A late effect that is compensated automatically is compensated within minutes of its saga's end."""


@dataclass(slots=True, kw_only=True)
class Swept:
    """Result of a sweep.

    Attributes:
        oldest_seconds: longest wait of those that have waited longer than expected, or longest
            time that a failing row has been due; 0: none.
        told: outcomes that were delivered now.
        notices: entries that operators' queues got now.
        waiting: tasks that wait longer than expected.
        unanswered: jobs that were abandoned without an outcome, and reported now.
        late: late effects that are not compensated yet.
        undecided: those of them that are an hour old, and whose sagas are settled.
        contradicted: contradicting outcomes that no operator has acknowledged yet.
        failed: rows that could not be processed; the next sweep retries them.
        complete: whether every due row was processed.
    """

    oldest_seconds: int = 0
    told: int = 0
    notices: int = 0
    waiting: int = 0
    unanswered: int = 0
    late: int = 0
    undecided: int = 0
    contradicted: int = 0
    failed: int = 0
    complete: bool = True

    def add(self, one: Swept) -> None:
        """Add what was found of one row."""
        self.oldest_seconds = max(self.oldest_seconds, one.oldest_seconds)
        for name in _COUNTS:
            setattr(self, name, getattr(self, name) + getattr(one, name))


_COUNTS: Final = tuple(one.name for one in fields(Swept) if one.name not in {"oldest_seconds", "complete"})
_Due = tuple[str, int]
"""Id of a row, and since when it is due."""


def sweep(*, remaining_ms: Callable[[], int]) -> Swept:
    """Process every due row, and emit the age of the oldest overdue one.

    Every action is conditional, and repeatable: two sweeps at once, or one that crashes anywhere, are harmless. A row
    that cannot be processed does not block the others. Several rows are processed at once. Notices are last, and a
    queue that does not respond is left alone until the next sweep: no task waits for an entry. A backlog of other rows
    leaves time for them.

    A late job stays due until it is reported, and a contradicting outcome until it is acknowledged. So the order is not
    the index': what became due last is first, among it an outcome that was not delivered; then everything else in a
    random order. If there is no time for all rows, each has its turn in one of the next sweeps.
    """
    swept, now_ms, queues, mine = Swept(), clock.now_ms(), _Queues(), threading.Lock()
    for make in (aws.dynamodb, aws.step_functions, aws.sqs):
        make()  # before several threads want it at once

    def process(row_id: str, due_at: int) -> None:
        found = Swept()
        try:
            _look_after(row_id, now_ms, found, queues)
        except (*aws.OF_ONE_ITEM, SagaError) as error:
            # No other component checks it: it is overdue, whatever its state.
            found = Swept(failed=1, oldest_seconds=(now_ms - due_at) // 1000)
            telemetry.event("sweep_failed", row_id=row_id, error=type(error).__name__, code=aws.error_code(error))
        with mine:
            swept.add(found)

    def leave(due_at: int) -> None:
        """Leave a row, and those after it, to the next sweep: they are overdue, whatever their state."""
        swept.complete = False
        swept.oldest_seconds = max(swept.oldest_seconds, (now_ms - due_at) // 1000)

    rows, notices = list[_Due](), list[_Due]()
    # Not the same shard first each time, in case there is no time to read all of them.
    first = now_ms // 60_000
    for shard in range(TOKEN_DUE_SHARDS):
        for row_id, due_at in _due(f"{(first + shard) % TOKEN_DUE_SHARDS:02d}", now_ms):
            if remaining_ms() < _SPARE_MS + _FOR_NOTICES_MS:
                leave(due_at)
                break
            (notices if row_id.startswith(NOTICE_PREFIX) else rows).append((row_id, due_at))
    for due, spare_ms in ((rows, _SPARE_MS + _FOR_NOTICES_MS), (notices, _SPARE_MS)):
        for _, due_at in _worked_off(_in_turn(due), process, partial(_goes_on, remaining_ms, spare_ms)):
            leave(due_at)
    telemetry.seconds(Metric.OLDEST_WAITING, swept.oldest_seconds)
    for metric, count in ((Metric.CONTRADICTIONS, swept.contradicted), (Metric.LATE_OPEN, swept.undecided)):
        if count or swept.complete:  # none was found, and not everything was read: how many there are is not known
            telemetry.gauge(metric, count)
    return swept


def _in_turn(rows: list[_Due]) -> deque[_Due]:
    """Rows in the order in which they are processed."""
    rows.sort(key=itemgetter(1), reverse=True)
    others = rows[_NEWEST:]
    random.shuffle(others)
    return deque([*rows[:_NEWEST], *others])


def _goes_on(remaining_ms: Callable[[], int], spare_ms: int) -> bool:
    return remaining_ms() >= spare_ms


def _worked_off(rows: deque[_Due], process: Callable[[str, int], None], goes_on: Callable[[], bool]) -> Sequence[_Due]:
    """Process rows, several at once, while there is time; those for which there was none.

    No thread is left afterwards. An error that is not of one row ends all of them, and is raised again.
    """

    def work() -> None:
        try:
            while rows and goes_on():
                try:
                    row = rows.popleft()
                except IndexError:
                    return  # another worker has taken the last one
                process(*row)
        except BaseException:
            rows.clear()
            raise

    workers = min(WORKERS, len(rows))
    if workers > 1 and goes_on():
        with ThreadPoolExecutor(workers - 1, thread_name_prefix="sweep") as pool:
            others = [pool.submit(work) for _ in range(workers - 1)]
            work()
        for other in others:
            other.result()
    elif workers == 1:
        work()
    return rows


def _due(shard: str, now_ms: int) -> Iterator[tuple[str, int]]:
    """Ids of the rows of a shard that are due, and since when: both are in the index."""
    a = TokenAttribute
    pages: Any = (
        aws.dynamodb()
        .get_paginator("query")
        .paginate(
            TableName=token_table(),
            IndexName=DUE_INDEX,
            KeyConditionExpression="#shard = :shard AND #due_at <= :now",
            ExpressionAttributeNames={"#shard": a.DUE_SHARD, "#due_at": a.DUE_AT},
            ExpressionAttributeValues={":shard": {"S": shard}, ":now": {"N": str(now_ms)}},
        )
    )
    for page in pages:
        for item in page["Items"]:
            yield str(item[a.ID]["S"]), int(item[a.DUE_AT]["N"])


def look_after(row_id: str, now_ms: int) -> Swept:
    """Process one row, if it is due, as a sweep does: conditional, and repeatable.

    Returns:
        What was found and done.

    Raises:
        TransientError, ClientError, BotoCoreError: it could not be done; it may be tried again.
        ValueError: the row, or what it belongs to, cannot be read.
    """
    swept = Swept()
    _look_after(row_id, now_ms, swept, _Queues())
    return swept


@dataclass(slots=True)
class _Queues:
    """Queues of operators, during one sweep. Threads may share it."""

    _silent: set[str] = field(default_factory=set)
    _answered: set[str] = field(default_factory=set)
    _first: threading.Lock = field(default_factory=threading.Lock)

    def send(self, url: str, entry: str, job_id: str) -> None:
        """Send an entry, except to a queue that did not respond before.

        Raises:
            TransientError: the queue did not respond.
        """
        # Until a queue has responded, one thread tries it and the others wait for what it learns.
        with nullcontext() if url in self._answered else self._first:
            if url in self._silent:
                raise TransientError("this queue of operators did not answer in this sweep")
            try:
                send_entry(url, entry, job_id)
            except TransientError:
                self._silent.add(url)
                raise
            self._answered.add(url)


def _look_after(row_id: str, now_ms: int, swept: Swept, queues: _Queues) -> None:
    row = read_token(row_id)
    if row is None or not row.due_at or row.due_at > now_ms:
        return  # the index lagged: the row was processed
    if row.status is TokenStatus.DELIVERING:
        telemetry.count(Metric.CALLBACK_SENT_AGAIN, job_id=row.id)
        settle_row(row)
        swept.told += 1
    elif row.status is TokenStatus.NOTICE:
        _keep(row, now_ms)
        # Sent before that is recorded: at least once.
        queues.send(row.queue_url, row.entry, row.job_id)
        stays = contradicting_outcome(row)
        change = token_update(token_table(), row, TokenStatus.NOTIFIED, now_ms, {}) if stays else None
        write(change or notice_delete(token_table(), row.id), retry=PATIENT)
        swept.notices += 1
    elif row.status is TokenStatus.NOTIFIED:
        if _is_acknowledged(row):
            write(notice_delete(token_table(), row.id), retry=PATIENT)
        else:
            swept.contradicted += 1
            _keep(row, now_ms)
    elif row.status is TokenStatus.WAITING:
        _look_after_waiting(row, now_ms, swept, queues)
    elif row.applied_late_at and _stands_late(log := _log_of(row)):
        swept.late += 1
        _keep(row, now_ms)
        _keep_log(row, log, now_ms)
        swept.undecided += _is_undecided(row, now_ms)
    else:
        write(not_due_update(token_table(), row, now_ms), retry=PATIENT)


def _look_after_waiting(row: TokenRow, now_ms: int, swept: Swept, queues: _Queues) -> None:
    """A task waited for longer than expected: it still does, or the saga has left the step without an outcome."""
    job = JobId.parse(row.id)
    log = read_log(row.log_table, job) if job is not None else None
    record = read_record(row.request_table, job.saga_id) if job is not None else None
    if _is_expected(row, log, record, now_ms):
        swept.waiting += 1
        swept.oldest_seconds = max(swept.oldest_seconds, (now_ms - row.waiting_since) // 1000)
    elif job is None or not row.dead_letters or row.reported_unanswered_at:
        write(not_due_update(token_table(), row, now_ms), retry=PATIENT)
    else:
        # Notified before that is recorded: at least once.
        queues.send(row.dead_letters, unanswered_entry(row, job, log, record, now_ms), row.id)
        # Refused: it was answered, or a newer attempt waits.
        write(unanswered_update(token_table(), row, now_ms), retry=PATIENT)
        telemetry.count(Metric.CALLBACK_UNANSWERED, job_id=row.id)
        swept.unanswered += 1


def _is_expected(row: TokenRow, log: LogRow | None, record: SagaRecord | None, now_ms: int) -> bool:
    """Test whether a saga still expects the job's outcome: it is in progress, and the job is not decided.

    A wait has no row in the saga's log. It is expected for as long as a task waits for it.
    """
    if log is None and now_ms >= row.wait_expires_at:
        return False
    if log is not None and log.status is not StepStatus.INTENT:
        return False
    return record is not None and record.status is RecordStatus.IN_PROGRESS


def _is_acknowledged(notice: TokenRow) -> bool:
    """Test whether an operator has acknowledged a contradicting outcome, or its saga's record, is gone."""
    record = _record_of(notice.request_table, notice.job_id)
    if record is None:
        return True
    what = acknowledgement(notice.job_id, contradicting_outcome(notice))
    return any(one.what == what for one in Decision.all_of(record))


def _is_undecided(row: TokenRow, now_ms: int) -> bool:
    """Test whether only an operator's decision can close a late effect, as far as is known an hour later.

    A saga in progress compensates its late effects before it settles, or is parked. Without a record no decision can be
    kept. A record whose request was removed keeps one.
    """
    if now_ms - row.applied_late_at < _UNDECIDED_MS:
        return False
    record = _record_of(row.request_table, row.id)
    return record is not None and record.get(RecordAttribute.STATUS) != {"S": RecordStatus.IN_PROGRESS}


def _record_of(table: str, job_id: str) -> Item | None:
    """The record of a job's saga, whole or not; None: it is gone, or its key is another saga's."""
    job = JobId.parse(job_id)
    if job is None:
        return None
    record = read({"TableName": table, "Key": {RecordAttribute.ID: {"S": request_id_from(job.saga_id)}}}, retry=PATIENT)
    return record if record is not None and record.get(RecordAttribute.SAGA_ID) == {"S": job.saga_id} else None


def _log_of(row: TokenRow) -> LogRow | None:
    job = JobId.parse(row.id)
    return read_log(row.log_table, job) if job is not None else None


def _stands_late(log: LogRow | None) -> bool:
    """Test whether a late effect may not be compensated yet: without its row that is not known."""
    if log is None:
        return True
    return log.status in (StepStatus.APPLIED_LATE, StepStatus.COMPENSATING)


def _keep(row: TokenRow, now_ms: int) -> None:
    """Keep a row for as long as it is due. Refused: another sweep has done so."""
    change = keep_update(token_table(), row, now_ms)
    if change is not None:
        write(change, retry=PATIENT)


def _keep_log(row: TokenRow, log: LogRow | None, now_ms: int) -> None:
    """Keep the saga log's row of a late effect until it is compensated. Refused: another process has done so."""
    if log is not None and (until := longer_end(log.expiration, now_ms)) is not None:
        write(kept_update(row.log_table, log.saga_id, log.step, log.expiration, until), retry=PATIENT)
