"""Receipt of a callback: one transaction of event marker, token row and saga log row; then the outcome is delivered."""

from __future__ import annotations

import uuid
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

from botocore.exceptions import BotoCoreError, ClientError

from saga_runtime.callbacks.decisions import (
    Decision,
    LogChange,
    Receipt,
    TokenChange,
    contradiction_of,
    notice_of,
    receipt_of,
)
from saga_runtime.callbacks.notices import Notice
from saga_runtime.callbacks.rows import Callback, Heartbeat, JobId, Marker, Outcome, TokenRow
from saga_runtime.callbacks.saga_writes import LogPlace, SagaRecord
from saga_runtime.callbacks.store import (
    LOOKS,
    alias_id,
    marker_of,
    read_both,
    read_log,
    read_record,
    read_token,
    token_table,
)
from saga_runtime.callbacks.subscriptions import ServedStepOf, served
from saga_runtime.callbacks.task_tokens import heartbeat_row, parked_over, settle_row
from saga_runtime.callbacks.writes import (
    adopted_update,
    conflict_change,
    early_put,
    kept_change,
    late_change,
    marker_put,
    settling_changes,
    token_check,
    token_update,
    unknown_entry,
)
from saga_runtime.errors import Invalid, TransientError
from saga_runtime.protocol import Metric, RecordStatus, TokenAttribute, TokenStatus
from saga_runtime.saga_log.rows import LogRow
from saga_runtime.shared import aws, clock, telemetry
from saga_runtime.shared.backoff import PATIENT
from saga_runtime.shared.writes import transact


def receive(callback: Callback) -> Receipt:
    """Store a provider's report of a job, and deliver it to the waiting task.

    Guaranteed: the outcome, the fact that its event was received, and what operators have to know are written in one
    transaction, or not at all; the sweeper sends it to their queue. The same event changes nothing when redelivered,
    and its outcome is delivered if it was not. An event id that was used for another job, or for the opposite outcome,
    does not make it the same event. What contradicts the kept outcome is stored separately. An outcome of an unknown
    job is stored under its id. A success is never lost:
    the saga log has ``DONE``, ``RECORDED``, or ``APPLIED_LATE`` if the job was treated as not applied.

    Not guaranteed: delivery when this returns ``RECEIVED``; it follows.

    Raises:
        Invalid: an outcome has no event id, or an output that its saga has no room for; nothing is written.
        TransientError: nothing is written, or it is unknown; receive the same event again.
    """
    if isinstance(callback.outcome, Heartbeat):
        return heartbeat(callback.job_id)
    outcome = Outcome.of(callback.outcome)
    marker = marker_of(callback, ok=outcome.ok)
    for _ in range(LOOKS):
        try:
            receipt = _receive(callback, outcome, marker)
        except _Reused:
            telemetry.count(Metric.EVENT_ID_REUSED, job_id=callback.job_id)
            marker = replace(marker, reused=True)
            continue
        if receipt is not None:
            return receipt
    raise TransientError(f"the rows of job {callback.job_id} keep changing")


def heartbeat(job_id: str) -> Receipt:
    """Record a heartbeat.

    Returns:
        ``HEARTBEAT``: the task keeps waiting. ``UNDELIVERED``: no task waits any more. ``DUPLICATE``: its outcome is
        known. ``UNKNOWN``: no task has waited for it yet, or it is not a job; nothing is written.

    Raises:
        TransientError: Step Functions or the database did not answer, or the integration does not serve the saga that
            waits; call again.
    """
    row = read_token(job_id if JobId.parse(job_id) else alias_id(job_id))
    if row is not None and row.status is TokenStatus.ALIAS:
        row = read_token(row.job_id)
    if row is None:
        return Receipt.UNKNOWN
    job = JobId.parse(row.id)
    if job is not None and _saga_of(job, row) is None:
        raise _not_served(job)
    return heartbeat_row(row)


class NotServed(TransientError):
    """The function serves no saga that has the job for which a task waits: it stays so until a deployment."""


class Unserved(TransientError):
    """An outcome of an unknown job cannot be adopted: the function serves no saga that has the job."""


class _Reused(Exception):
    """The event's id was used for another job, or for the opposite outcome."""


def _receive(callback: Callback, outcome: Outcome, marker: Marker) -> Receipt | None:
    """Read the rows once, and try one write; None: something changed in between."""
    job_id, job = callback.job_id, JobId.parse(callback.job_id)
    if job is None:
        alias = read_token(alias_id(job_id))
        if alias is None or alias.status is not TokenStatus.ALIAS:
            return _receive_unknown(callback, outcome, marker, alias)
        job_id = alias.job_id
        job = _parsed(job_id)
    subject = Subject.read(job_id, job)
    if subject is None:
        return _receive_unknown(callback, outcome, marker, read_token(alias_id(job_id)))
    guard = marker_put(token_table(), marker, clock.now_ms())
    return subject.write(outcome, marker.event_id, guard, marker)


def _not_served(job: JobId) -> NotServed:
    """Another integration's job, in a table that both share; or a function that was deployed before its saga."""
    return NotServed(f"this function does not serve step {job.step} of the saga that waits; deploy it")


def _parsed(job_id: str) -> JobId:
    job = JobId.parse(job_id)
    if job is None:
        raise ValueError(f"not a job's id: {job_id!r}")
    return job


def _saga_of(job: JobId, token: TokenRow | None) -> ServedStepOf | None:
    """The saga that the job is of: the one that waits, or the one whose request it is.

    None also if several may be it: sagas that share a request table. Its outcome is kept as an unknown job's until a
    task registers.
    """
    if token is not None and token.log_table:
        found = served(job.step, log=token.log_table)
        return found[0] if found else None
    found = served(job.step)
    tables = dict.fromkeys(one.requests for one in found)
    home = next((table for table in tables if read_record(table, job.saga_id)), None)
    of_request = [one for one in found if one.requests == home]
    return of_request[0] if len(of_request) == 1 else None


def _receive_unknown(callback: Callback, outcome: Outcome, marker: Marker, found: TokenRow | None) -> Receipt | None:
    """Store an outcome of an unknown job, under its id."""
    table, now_ms, row_id = token_table(), clock.now_ms(), alias_id(callback.job_id)
    entry = unknown_entry(
        table=table, row_id=row_id, found=found, outcomes=[outcome], event_id=marker.event_id, now_ms=now_ms
    )
    # A task may register right now: its registration reads this row after its own write.
    nobody = [token_check(table, callback.job_id, None)] if JobId.parse(callback.job_id) else []
    refused = transact([marker_put(table, marker, now_ms), entry, *nobody], retry=PATIENT)
    if refused is not None and 0 in refused.items:
        if not marker.is_in(refused.item):
            raise _Reused
        telemetry.count(Metric.CALLBACK_DUPLICATE)
        return Receipt.DUPLICATE
    if refused is not None:
        return None
    telemetry.count(Metric.CALLBACK_UNKNOWN, job_id=callback.job_id)
    return Receipt.UNKNOWN


@dataclass(frozen=True, slots=True, kw_only=True)
class Subject:
    """A job, and what was read of it.

    Attributes:
        saga: the step as its saga declares it, and the saga's tables.
        token: its token row.
        log: its row in the saga log.
    """

    job_id: str
    job: JobId
    saga: ServedStepOf
    token: TokenRow | None
    log: LogRow | None

    @classmethod
    def read(cls, job_id: str, job: JobId) -> Subject | None:
        """Read a job's rows; None: it is unknown.

        The token row names the saga log. If all sagas with a step of this name have one log, both are read at once.

        Raises:
            TransientError: the database did not answer, or the integration does not serve the saga that waits.
        """
        logs = {one.log for one in served(job.step)}
        log: LogRow | None = None
        if len(logs) == 1:
            token, log = read_both(job_id, job, *logs)
        else:
            token = read_token(job_id)
        saga = _saga_of(job, token)
        if saga is None and token is not None:
            raise _not_served(job)
        if saga is None:
            return None
        if len(logs) > 1:
            log = read_log(saga.log, job)
        return cls(job_id=job_id, job=job, token=token, saga=saga, log=log)

    def write(
        self,
        outcome: Outcome,
        event_id: str,
        guard: Any,
        marker: Marker | None = None,
        *,
        refusal: Outcome | None = None,
    ) -> Receipt | None:
        """Decide, and write all of it at once.

        Args:
            outcome: the reported outcome.
            event_id: by which event.
            guard: the write that keeps this from being done twice.
            marker: the event's marker, if that is the guard.
            refusal: of an unknown job that was done: a refusal that was reported, too.

        Returns:
            None: something has changed since it was read.

        Raises:
            _Reused: the marker is there, of another job or outcome.
            Invalid: the saga has no room for the output.
        """
        now_ms = clock.now_ms()
        decision = receipt_of(self.token, self.log, outcome, job=self.saga.step.job, refusal=refusal)
        if decision.told is outcome:
            self._require_room(outcome)
        late = decision.log is LogChange.APPLIED_LATE
        # Of a task that registered, the delivery resumes the saga.
        early = self.token is None and decision.log is not LogChange.NONE
        record = read_record(self._requests, self.job.saga_id) if late or early else None
        place = LogPlace(
            table=self.saga.log,
            job=self.job,
            side=self.saga.step.side,
            attempt=uuid.uuid4().hex,
            keep_days=self.saga.days,
        )
        log = place.entry(decision.log, self.log, outcome, now_ms)
        conflict = refusal if decision.against else outcome if decision.contradicts else None
        token = self._token_entry(decision, event_id, now_ms, conflict)
        notices = self._notices(decision, outcome, now_ms, recorded=record is not None)
        if refusal is not None and decision.against and refusal != self._conflict:
            notices = [*notices, *self._entries(contradiction_of(refusal, decision.against), refusal, now_ms)]
        refused = transact([guard, token, log, *self._record_entry(record, now_ms, late=late), *notices], retry=PATIENT)
        if refused is not None and 0 in refused.items:
            if marker is not None and not marker.is_in(refused.item):
                raise _Reused
            return self._again()
        return self._written(decision, now_ms) if refused is None else None

    def _require_room(self, outcome: Outcome) -> None:
        """Refuse an output with which the saga's outputs exceeded a state: no execution could continue with it.

        What is known of a late effect is stored whatever its size. Before a task waits, the room is not known.
        """
        if self.token is not None and not self.token.has_room_for(outcome):
            raise Invalid(
                f"the output of job {self.job_id} must have at most {self.token.max_output} bytes, which the saga's "
                f"other outputs leave, got {len(outcome.output.encode())}; report less, or lower max_items of its map",
                job_id=self.job_id,
            )

    @property
    def _requests(self) -> str:
        return (self.token.request_table if self.token is not None else "") or self.saga.requests

    def _token_entry(self, decision: Decision, event_id: str, now_ms: int, conflict: Outcome | None) -> Any:
        table, late = token_table(), decision.log is LogChange.APPLIED_LATE
        beside = conflict_change(conflict) if conflict is not None else {}
        if self.token is None:
            tables = {
                TokenAttribute.LOG_TABLE: {"S": self.saga.log},
                TokenAttribute.REQUEST_TABLE: {"S": self.saga.requests},
            }
            return early_put(
                table=table,
                row_id=self.job_id,
                outcome=decision.told,
                event_id=event_id,
                now_ms=now_ms,
                keep_days=self.saga.days,
                late=late,
                more={**tables, **beside},
            )
        status, changes = self.token.status, dict(beside)
        if decision.token is TokenChange.SETTLE:
            status = TokenStatus.DELIVERING
            changes |= settling_changes(self.token, decision.told, event_id, now_ms)
        if late:
            changes |= late_change(self.job_id, now_ms)
            changes |= kept_change(self.token, now_ms, self.saga.days)
        if not changes:
            return token_check(table, self.job_id, self.token)
        return token_update(table, self.token, status, now_ms, changes)

    def _record_entry(self, record: SagaRecord | None, now_ms: int, *, late: bool) -> Sequence[Any]:
        """Entry for a late effect: its saga must be checked, and must still exist then.

        And for what no task has waited for: the saga need not wait for an operator, if it is parked at this step.
        """
        if record is None:
            return []
        in_progress = record.status is RecordStatus.IN_PROGRESS
        if not late:
            resumes = in_progress and parked_over(record, self.job)
            return [record.due(self._requests, now_ms, unpark=True, answered=True)] if resumes else []
        if in_progress:
            return [record.due(self._requests, now_ms)]
        kept = record.kept(self._requests, now_ms)
        return [] if kept is None else [kept]

    def _again(self) -> Receipt:
        """The event is a duplicate: its outcome is delivered if it was not.

        A row without an outcome was read before the event was received: it has one by now.
        """
        row = self.token
        if row is None or row.status is TokenStatus.WAITING:
            row = read_token(self.job_id)
        if row is not None and row.status is TokenStatus.DELIVERING:
            telemetry.count(Metric.CALLBACK_SENT_AGAIN, job_id=self.job_id)
            _told(row)
        telemetry.count(Metric.CALLBACK_DUPLICATE)
        return Receipt.DUPLICATE

    def _written(self, decision: Decision, now_ms: int) -> Receipt:
        telemetry.count(Metric.CALLBACK_RECEIVED, job_id=self.job_id)
        told = self._tell(decision, now_ms)
        for metric in decision.metrics:
            telemetry.count(metric)
        return told if decision.receipt is None else decision.receipt

    def _tell(self, decision: Decision, written_at: int) -> Receipt:
        if self.token is None:
            return Receipt.EARLY
        row = self.token
        if decision.log is LogChange.APPLIED_LATE:
            row = replace(row, applied_late_at=written_at)
        if decision.token is TokenChange.SETTLE:
            row = replace(row, status=TokenStatus.DELIVERING, outcome=decision.told)
        return _told(row) if row.status is TokenStatus.DELIVERING else Receipt.RECEIVED

    @property
    def _conflict(self) -> Outcome | None:
        return self.token.conflict if self.token is not None else None

    def _is_told(self, decision: Decision, outcome: Outcome) -> bool:
        """A notice was stored with this conflict."""
        return self._conflict == outcome and decision.log is LogChange.NONE

    def _notices(self, decision: Decision, outcome: Outcome, now_ms: int, *, recorded: bool) -> Sequence[Any]:
        """Entries of the transaction for operators: none, or one."""
        notice = notice_of(decision, self.log, outcome, recorded=recorded, undo=self.saga.step.undo)
        if notice is None or self._is_told(decision, outcome):
            return []
        return self._entries(notice, outcome, now_ms)

    def _entries(self, notice: tuple[str, str], outcome: Outcome, now_ms: int) -> Sequence[Any]:
        if not self.saga.operators:
            return []
        error, detail = notice
        execution = self.token.execution if self.token is not None else ""
        made = Notice(
            job_id=self.job_id,
            job=self.job,
            error=error,
            detail=detail,
            outcome=outcome,
            requests=self._requests,
            execution=execution,
        )
        return [made.store(token_table(), self.saga.operators, now_ms, self.saga.days)]


def _told(row: TokenRow) -> Receipt:
    """Deliver what is written, or leave it to the sweeper: it is stored, so the provider need not send it again."""
    try:
        return settle_row(row) or Receipt.DELIVERED
    except (TransientError, ClientError, BotoCoreError) as error:
        telemetry.event(
            "callback_delivery_deferred", job_id=row.id, error=type(error).__name__, code=aws.error_code(error)
        )
        return Receipt.RECEIVED


def adopt(found: TokenRow, job_id: str) -> None:
    """Make what was reported under a provider's own id its job's, if the row is as read; then read it again.

    Both outcomes are written at once if there are two. Who dies writes nothing, and finds them again, or writes both.

    Raises:
        Unserved: the function does not serve the job's saga, or its record is gone.
        Invalid: the saga has no room for the output.
        TransientError: nothing is written, or it is unknown; call again.
    """
    said, refusal = _success_first(found)
    job = _parsed(job_id)
    subject = Subject.read(job_id, job)
    if subject is None:
        raise Unserved(_not_served(job).message)
    guard = adopted_update(token_table(), found, job_id, clock.now_ms())
    subject.write(said, found.event_id, guard, refusal=refusal)


def _success_first(found: TokenRow) -> tuple[Outcome, Outcome | None]:
    """The outcome of an unknown job that counts, and the refusal that contradicts it.

    A success counts, whichever came first: a refusal after it is only a conflict to report.
    """
    if found.outcome is None:
        raise ValueError(f"a row that is {found.status} needs an outcome")
    if found.conflict is not None and found.conflict.ok:
        return found.conflict, found.outcome
    return found.outcome, found.conflict
