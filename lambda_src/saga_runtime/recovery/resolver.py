"""Applies an operator's answer about a parked saga.

The row first; then ONE update of the record, from parked to the next recovery's name; then that recovery is started, by
its name. After a crash in between, repeat the command: what is written already is found written.
"""

from __future__ import annotations

import uuid
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final

from saga_runtime.idempotency.record import RequestRecord
from saga_runtime.protocol import LEAST_LOG_DAYS, WAYS_AT, LogAttribute, RecordAttribute, Side, StepStatus
from saga_runtime.recovery.audit import appended, decision_update
from saga_runtime.recovery.late_effects import late_log
from saga_runtime.recovery.proposals import Proposal, as_proposed, require_row
from saga_runtime.recovery.resolution import (
    ANSWERED,
    CannotResolve,
    Change,
    DeclaredStep,
    DeployedStep,
    Statement,
    Subject,
    decide,
    declared_in,
    is_answered,
    row_write,
    unpark_update,
)
from saga_runtime.recovery.takeover import Finding, Recoverer, may_have_forgotten, recovery_name, take_over_update
from saga_runtime.saga_log.rows import TOOK_EFFECT_AND_FELL, LogRow, log_key
from saga_runtime.shared import writes
from saga_runtime.shared.clock import moment
from saga_runtime.shared.decisions import Audit, Decision

RESUMED: Final = "resumed"
"""The decision to resume a saga."""
_DAY_SECONDS: Final = 86_400
_RESTORE: Final = "restore the saga log and the request table to one time when they were kept, or end the saga by hand"
_LOOKS: Final = 4
"""Only another person, or an execution that will be fenced, writes rows of a parked saga meanwhile."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Resumed:
    """Result of resuming a saga.

    Attributes:
        finding: what was found when the record was read; ``PARKED`` for a saga that was resumed.
        started: name of the execution that was started, if one was.
    """

    finding: Finding
    started: str | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Resolver:
    """Applies answers, and resumes a parked saga.

    Attributes:
        recoverer: reads records, starts recoveries.
        log_table: the saga log.
        audit: who decides, and why.
        log_days: how long its rows are kept; None if that is not known.
        ways: by what sagas of the deployed definition go their way, as of its fingerprint; None: that is not known.
        proposal: what is confirmed; None: one operator decides.
        most: bytes of the record's decisions before one that resumes the saga; as of ``appended``.
    """

    recoverer: Recoverer
    log_table: str
    audit: Audit
    log_days: int | None = None
    ways: str | None = None
    proposal: Proposal | None = None
    most: int | None = None

    def answer(
        self,
        record: RequestRecord,
        name: str,
        steps: Mapping[str, DeployedStep],
        statement: Statement,
        now_ms: int,
        *,
        writes_it: bool = True,
    ) -> tuple[Change, LogRow | None]:
        """Write an operator's answer about a step of the deployed definition, as ``resolve``.

        Args:
            record: the saga's record, read strongly.
            name: the row's sort key.
            steps: of the definition, by name; empty if it is not known.
            statement: the operator's answer.
            now_ms: the time.
            writes_it: False: only what would be written.

        Returns:
            The change, and the row before it.

        Raises:
            CannotResolve: if nothing can be written; nothing was.
        """
        declared = declared_in(steps, name)
        try:
            if not writes_it:
                subject, change = self._decided(record, name, declared, statement, now_ms)
                return change, subject.row
            return self.resolve(record, name, declared, statement, now_ms), None
        except CannotResolve as refusal:
            if not steps or name.partition("[")[0] in steps:
                raise
            # A row may be of a step that the definition no longer has; without one, it is a slip of the pen.
            raise CannotResolve(f"{refusal}; the saga's steps are {', '.join(steps)}") from None

    def resolve(
        self, record: RequestRecord, name: str, declared: DeclaredStep | None, statement: Statement, now_ms: int
    ) -> Change:
        """Write an operator's answer into a step's row. The saga stays parked until ``resume``.

        Args:
            record: the saga's record, read strongly.
            name: the row's sort key.
            declared: the step in the saga's definition, if it is there.
            statement: the operator's answer.
            now_ms: the time.

        Raises:
            CannotResolve: if nothing can be written; nothing was.
        """
        seen: tuple[str | None, ...] = ()
        for _ in range(_LOOKS):
            subject, change = self._decided(record, name, declared, statement, now_ms)
            found = subject.row.attempt if subject.row is not None else None
            if seen not in ((), (found,)) and not is_answered(subject, statement, change):
                raise CannotResolve(
                    f"{name} changed while this was written: inspect the saga, and ask the provider again"
                )
            if not change.written:
                return change
            seen = (found,)
            attempt = f"{ANSWERED}{uuid.uuid4().hex}"
            write = row_write(
                subject, change, table=self.log_table, saga_id=record.saga_id, attempt=attempt, now_ms=now_ms
            )
            what = f"{name}: {statement.text}"
            condition = as_proposed(record, self.proposal) if self.proposal is not None else None
            noted = decision_update(self.audit, what, record, now_ms, condition)
            refused = writes.transact(
                [write, {"Update": {"TableName": self.recoverer.table, **noted}}], client=self.recoverer.dynamodb
            )
            if refused is None:
                return change
            if 1 in refused.items and self.proposal is not None:
                raise CannotResolve(f"saga {record.saga_id} changed since proposal {self.proposal.number}; inspect it")
            if 1 in refused.items:
                raise CannotResolve(f"the key of saga {record.saga_id} is another request's by now; inspect that one")
        raise CannotResolve(f"{name} keeps changing: another process works on it; inspect the saga")

    def _decided(
        self, record: RequestRecord, name: str, declared: DeclaredStep | None, statement: Statement, now_ms: int
    ) -> tuple[Subject, Change]:
        """Read the row, and decide what the answer makes of it."""
        if not record.settled:  # nothing is run for an answer about a settled saga, and its row is there
            self._require_young(record, now_ms)
        subject = self.subject(record, name, declared)
        row = subject.row
        if self.proposal is not None:
            require_row(self.proposal, row)
        if not _of_settled_saga(row, statement):
            self.require_unsettled(record)
        decides_itself = record.parked_by is None and not record.settled and not _is_late(row)
        refusal = CannotResolve(
            f"saga {record.saga_id} is not parked, and decides for itself; recover it with cdk-sagas recover"
        )
        try:
            change = decide(subject, statement, now_ms)
        except CannotResolve:
            if decides_itself:  # whatever else is wrong, waiting does not help
                raise refusal from None
            raise
        if change.written and decides_itself:
            raise refusal
        return subject, change

    def subject(self, record: RequestRecord, name: str, declared: DeclaredStep | None) -> Subject:
        """Read a row strongly, and what its answers depend on."""
        row, side = self.row_of(record.saga_id, name)
        return Subject(
            name=name,
            row=row,
            side=side,
            declared=declared,
            direction=record.direction,
            settled=record.settled,
            same_ways=record.definition[WAYS_AT:] == self.ways,
            beyond_a_pivot=late_log(self.recoverer, record, self.log_table).needed,
        )

    def resume(self, record: RequestRecord, now_ms: int, log_days: int | None = None) -> Resumed:
        """Resume a parked saga, under its next recovery; one that is not parked is only read and recovered.

        Args:
            record: the record, read strongly.
            now_ms: the time.
            log_days: the operator's statement that rows of the saga's log were always kept for so many days, or more;
                None: without one.

        Raises:
            CannotResolve: if the saga is settled, or was parked again since it was read; if its rows may be gone.
            MachineGone: if its state machine was deleted. Nothing was written: it stays parked, with its reason.
        """
        self.require_unsettled(record)
        if record.parked_by is None:
            self.rows_end(record, now_ms, log_days)
            return self._recovered(record, now_ms)
        parked_at = self.proposal.parked_at if self.proposal is not None else None
        started = self.unpark(record, now_ms, parked_at=parked_at, log_days=log_days)
        if started is not None:
            return Resumed(finding=Finding.PARKED, started=started)
        # Another process did it in between, or this command's response was lost and the update was sent again.
        found = self.recoverer.read(record.request_id)
        if found is None or found.saga_id != record.saga_id or found.settled:
            return Resumed(finding=Finding.SETTLED, started=None)
        if found.parked_by is not None:
            raise CannotResolve(f"saga {record.saga_id} was resumed and parked again meanwhile; inspect it")
        return self._recovered(found, now_ms)

    def unpark(
        self,
        record: RequestRecord,
        now_ms: int,
        *,
        what: str = RESUMED,
        parked_at: int | None = None,
        before: Sequence[Decision] = (),
        log_days: int | None = None,
    ) -> str | None:
        """Resume a parked saga that is as it was read; the name of its recovery; None: it changed meanwhile.

        Args:
            record: the record, of a parked saga.
            now_ms: the time.
            what: the decision.
            parked_at: as of ``unpark_update``.
            before: decisions that are kept before it.
            log_days: as of ``resume``.

        Raises: as ``resume``; ValueError if the record's list of decisions is full.
        """
        rows_end = self.rows_end(record, now_ms, log_days)
        self.recoverer.require_machine(record.recovery_machine_arn)
        what = what if rows_end is None else f"{what}: rows of its log were always kept for {log_days} days"
        sets, values = appended(self.audit, what, record, now_ms, *before, most=self.most)
        if rows_end is not None:
            sets, values = (
                {**sets, RecordAttribute.LOG_EXPIRES_AT: ":rows_end"},
                {**values, "rows_end": {"N": str(rows_end)}},
            )
        change = unpark_update(record, now_ms, self.recoverer.due_after_ms, (sets, values), parked_at)
        return self._next(record) if self.recoverer.updated(change) else None

    def _recovered(self, record: RequestRecord, now_ms: int) -> Resumed:
        finding, started = replace(self.recoverer, audit=self.audit).recover(record, now_ms)
        if finding not in (Finding.NAME_EXPIRED, Finding.OWNER_SUCCEEDED):
            return Resumed(finding=finding, started=started)
        self.recoverer.require_machine(record.recovery_machine_arn)
        # An operator decided. Its owner does not run, or its history would be there; rows and owner keep it single.
        noted = appended(self.audit, RESUMED, record, now_ms, most=self.most)
        if not self.recoverer.updated(take_over_update(record, now_ms, self.recoverer.due_after_ms, noted)):
            return Resumed(finding=Finding.RUNNING, started=None)
        return Resumed(finding=finding, started=self._next(record))

    def _next(self, record: RequestRecord) -> str:
        name = recovery_name(record.saga_id, record.recoveries + 1)
        self.recoverer.start(record.recovery_machine_arn, name, record.input)
        return name

    def row_of(self, saga_id: str, name: str) -> tuple[LogRow | None, Side | None]:
        """Read a row strongly, and its step's position.

        Args:
            saga_id: the saga.
            name: the row's sort key.
        """
        answer = self.recoverer.dynamodb.get_item(
            TableName=self.log_table, Key=log_key(saga_id, name), ConsistentRead=True
        )
        item = answer.get("Item")
        if item is None:
            return None, None
        side = item.get(LogAttribute.SIDE)
        return LogRow.from_item(item), Side(side["S"]) if side else None

    def require_unsettled(self, record: RequestRecord) -> None:
        """Refuse a saga that has ended."""
        if record.settled:
            raise CannotResolve(f"saga {record.saga_id} is settled as {record.status}; nothing is left to decide")

    def rows_end(self, record: RequestRecord, now_ms: int, log_days: int | None) -> int | None:
        """Until when no row of a saga's log is deleted by an operator's statement; epoch seconds.

        Args:
            record: the record, read strongly.
            now_ms: the time.
            log_days: as of ``resume``.

        Returns:
            None: the record itself shows that they are kept.

        Raises:
            CannotResolve: if they may be gone, or will be before a reconciler extends them.
        """
        if log_days is None:
            self._require_young(record, now_ms)
            return None
        if not LEAST_LOG_DAYS <= log_days <= (self.log_days or log_days):
            raise CannotResolve(
                f"the days for which rows were kept must be {LEAST_LOG_DAYS} to {self.log_days}, which is the deployed "
                f"log_retention_days, got {log_days}; give the smallest that was deployed since the saga began"
            )
        if not may_have_forgotten(record, now_ms, self.log_days):
            return None
        ends = record.created_at // 1_000 + log_days * _DAY_SECONDS
        if now_ms // 1_000 + _DAY_SECONDS >= ends:
            raise CannotResolve(
                f"rows of saga {record.saga_id} must be kept for a day more, got rows that expire from "
                f"{moment(ends * 1_000)} on, {log_days} days after it began: without them its steps could happen "
                f"twice; {_RESTORE}"
            )
        return ends

    def _require_young(self, record: RequestRecord, now_ms: int) -> None:
        if may_have_forgotten(record, now_ms, self.log_days):
            raise CannotResolve(
                f"rows of saga {record.saga_id} must be kept, got a saga that is older than the {self.log_days} days "
                f"for which its rows are kept, or whose rows no reconciler has read for {LEAST_LOG_DAYS}: without them "
                f"its steps could happen twice; if the saga is younger than the smallest log_retention_days that was "
                f"deployed since it began, state that number with --resume --log-retention-days; else {_RESTORE}"
            )


def _of_settled_saga(row: LogRow | None, statement: Statement) -> bool:
    """Test whether the statement is about something that may be left to undo when a saga has ended."""
    return statement.undo and row is not None and row.status in TOOK_EFFECT_AND_FELL


def _is_late(row: LogRow | None) -> bool:
    """Such a row is not decided by the saga itself: an execution of its own compensates it, if something can."""
    return row is not None and row.status is StepStatus.APPLIED_LATE
