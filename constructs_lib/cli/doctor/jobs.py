"""Token tables and watched state machines, as the doctor reads them: outcomes, waits and failures left behind.

Rows are read first, then what is known of their sagas, then the rows again: a saga that runs at this moment moves its
rows before it settles, so a row that is as it was although its saga had ended by then has been left behind. Changes
nothing, and reads no token.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any, Final, TypeVar

from constructs_lib.cli.callbacks.rows import SHOWN, JobView, TokenRows, job_parts, reason_of
from constructs_lib.cli.callbacks.rows import Kind as RowKind
from constructs_lib.cli.doctor.findings import NOBODY_CAME_MS, Finding, Kind, Saga, Severity, unreadable
from constructs_lib.cli.doctor.records import Records, watcher
from constructs_lib.cli.shared.manifest import Watch
from constructs_lib.cli.shared.reads import UNREADABLE, Aws, Item, Scan, all_of
from constructs_lib.cli.shared.saga import PLACEHOLDER
from saga_runtime.callbacks.decisions import acknowledgement
from saga_runtime.callbacks.notices import contradicting_outcome
from saga_runtime.callbacks.rows import TokenRow
from saga_runtime.idempotency.identity import request_id_from
from saga_runtime.idempotency.record import RequestRecord
from saga_runtime.protocol import (
    DELIVERING_SECONDS,
    WATCH_DUE_SHARDS,
    WATCH_LIST_PREFIX,
    LogAttribute,
    RecordAttribute,
    StepStatus,
    TokenStatus,
    WatchAttribute,
    WatchStatus,
)
from saga_runtime.recovery.late_effects import LateFinding, late_log, late_name, undo_late
from saga_runtime.recovery.repairs import Repair
from saga_runtime.recovery.saga_reconciler import LateSeen
from saga_runtime.saga_log.rows import log_key
from saga_runtime.shared.decisions import Decision
from saga_runtime.watch.rows import EndRow, ListRow, list_id

R = TypeVar("R")
_YOUNG_MS: Final = 15 * 60_000
"""Age of an outcome of an unknown job before it is reported: its dispatcher may be about to register it."""
_THEN_BY_SWEEPER: Final = {
    Repair.DELIVER: "the sweeper of tokens delivers it",
    Repair.SWEEP: "the sweeper notifies its dead-letter queue",
    None: "the sweeper notifies its dead-letter queue, when it is due",
}
_THEN_BY_REPAIR: Final = {
    Repair.DELIVER: "--repair delivers it",
    Repair.SWEEP: "--repair notifies its dead-letter queue, as the sweeper would",
    None: "have its sweeper look when it is due: it is switched off, or it fails",
}
_STANDS_LATE: Final = (StepStatus.APPLIED_LATE, StepStatus.COMPENSATING)
_UNDECIDED: Final = (None, StepStatus.INTENT)
"""States of a log row over which an answer has not counted."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Tokens:
    """A token table, and the sagas whose jobs it knows.

    Attributes:
        records: how request records are read.
        table: the token table.
        swept: whether its sweeper works.
        integration: path of an integration, for commands; empty: they need none.
    """

    records: Records
    table: str
    swept: bool
    integration: str = ""
    _overdue: list[int] = field(default_factory=list)

    def look(self, scan: Scan | None = None) -> list[Finding]:
        """Findings from the sparse index, due or not; with a scan, from every row."""
        aws, what, broken = self.records.aws, f"table {self.table}", dict[str, Finding]()

        def is_broken(row_id: str, error: Exception) -> None:
            broken[row_id] = unreadable(self.table, row_id, error)

        rows = TokenRows(dynamodb=aws.dynamodb, table=self.table, unreadable=is_broken)
        ids = aws.allowed(what, rows.due) or []
        found = aws.allowed(what, lambda: rows.of(ids)) or []
        notices = aws.allowed(what, lambda: rows.notices(ids)) or []
        indexed = {row.job_id for row in found}
        if scan is not None:
            everything = {row.job_id: row for row in rows.views(aws.gathered(what, scan.items(self.table, SHOWN)))}
            found = [*found, *(row for job_id, row in everything.items() if job_id not in indexed)]
        suspects = all_of(partial(self._readable, indexed), found)
        findings = [(row, finding) for row, finding in zip(found, suspects, strict=True) if finding is not None]
        again = aws.allowed(what, lambda: rows.of([row.job_id for row, _ in findings])) or []
        if any(row.reported_id for row, _ in findings):
            again += aws.allowed(what, rows.open) or []  # their keys are not the ids that their providers use
        as_they_were = {(row.job_id, row.kind, row.since) for row in again}
        stand = [finding for row, finding in findings if (row.job_id, row.kind, row.since) in as_they_were]
        contradicted = {row.job_id for row, finding in findings if finding.kind is Kind.CONTRADICTED}
        left = [one for one in notices if one.job_id not in contradicted or not _is_sent(one)]
        told = [finding for one in left if (finding := self._of_notice(one)) is not None]
        return [*broken.values(), *stand, *told, *self._nobody_looks()]

    def _of_notice(self, notice: TokenRow) -> Finding | None:
        """A contradicting outcome that is not acknowledged, or an entry that operators' queue does not have."""
        made = partial(
            Finding,
            severity=Severity.OPERATOR,
            since=notice.created_at,
            id=notice.job_id,
            saga_id=job_parts(notice.job_id)[0],
            table=self.table,
        )
        reported, outcome = reason_of(notice), contradicting_outcome(notice)
        if not _is_sent(notice):
            if notice.created_at > self.records.now_ms - NOBODY_CAME_MS:
                return None
            queue = notice.queue_url.rpartition("/")[2]
            what = f"{reported}, and the entry about that is not in operators' queue {queue} yet"
            then = "find out why its sweeper cannot send it: sweep_failed in its log, the queue, the queue's key"
            return made(kind=Kind.NOT_MONITORED, what=what, then=then)
        if self._is_acknowledged(notice.job_id, outcome, notice.request_table):
            return None
        then = "ask its provider which one is true, then acknowledge it"
        words = ["callbacks", "--acknowledge", notice.job_id, outcome, "--reason", PLACEHOLDER]
        return made(kind=Kind.CONTRADICTED, what=reported, then=then, command=self._command(*words))

    def _command(self, *words: str) -> str:
        return self.records.command(*words, *(["--integration", self.integration] if self.integration else []))

    def _nobody_looks(self) -> Iterator[Finding]:
        if self._overdue:
            rows = "one row is" if len(self._overdue) == 1 else f"{len(self._overdue)} rows are"
            what = f"{rows} due for more than {NOBODY_CAME_MS // 60_000} min, and not swept"
            then = "find out why its sweeper does not: its schedule, its logs, its alarms"
            overdue = min(self._overdue)
            yield Finding(Kind.NOT_MONITORED, Severity.OPERATOR, what, then, overdue, id=self.table, table=self.table)

    def _readable(self, indexed: set[str], row: JobView) -> Finding | None:
        try:
            return self.records.aws.allowed(f"something of job {row.job_id}", lambda: self._suspected(indexed, row))
        except UNREADABLE as error:  # of its saga
            return unreadable(row.request_table or self.table, row.job_id, error)

    def _suspected(self, indexed: set[str], row: JobView) -> Finding | None:
        now_ms = self.records.now_ms
        match row.kind:
            case RowKind.DELIVERING if now_ms - row.since >= DELIVERING_SECONDS * 1_000:
                due_at = row.since + DELIVERING_SECONDS * 1_000
                return self._by_sweeper(
                    row, Kind.NOT_DELIVERED, f"{row.outcome}, and it is not delivered", due_at, Repair.DELIVER
                )
            case RowKind.WAITING if row.saga_id:
                return self._waiting(row, row.job_id in indexed)
            case RowKind.EARLY if row.saga_id:
                return self._early(row)
            case RowKind.UNKNOWN if now_ms - row.since >= _YOUNG_MS:
                return self._unknown(row, f"{row.outcome or 'an outcome'}, of an unknown job")
            case RowKind.CONFLICT if row.reported_id:
                return self._unknown(row, f"{row.outcome}, and then {row.conflict}, of an unknown job")
            case RowKind.CONFLICT if not self._is_acknowledged(row.job_id, row.conflict_id, row.request_table):
                what = f"{row.outcome}, and then {row.conflict}: the first one counts"
                then = "ask its provider which one is true, then acknowledge it"
                return self._of_person(row, Kind.CONTRADICTED, what, then)
            case RowKind.LATE:
                return self._late(row)
            case _:
                return None

    def _unknown(self, row: JobView, what: str) -> Finding:
        then = "ask its provider what it was about, then forget it"
        words = ["callbacks", "--forget", row.job_id, row.reported_id, "--reason", PLACEHOLDER]
        found = self._about(row, Kind.ORPHANED_OUTCOME, Severity.OPERATOR, what, then)
        return replace(found, command=self._command(*words))

    def _waiting(self, row: JobView, indexed: bool) -> Finding | None:
        home = self._home(row)
        if home is not None and not home[1].settled:
            return None
        ended = "is settled" if home is not None else "has no record any more"
        what = f"it is waited for since then, and its saga {ended}"
        if not indexed:
            then = "nothing: no task waits any more, and the row expires"
            return self._about(row, Kind.ORPHANED_WAIT, Severity.OK, what, then)
        # It is checked when an outcome is late; before its saga has settled it is left as it is.
        times = (row.expected_at, home[1].updated_at if home is not None else None)
        due_at = max(time for time in times if time is not None) if None not in times else None
        is_due = row.expected_at is not None and row.expected_at <= self.records.now_ms
        return self._by_sweeper(row, Kind.ORPHANED_WAIT, what, due_at, Repair.SWEEP if is_due else None)

    def _early(self, row: JobView) -> Finding | None:
        home = self._home(row)
        if home is not None and not home[1].settled:
            return None
        if self._log_status(row, home[0] if home is not None else None) not in _UNDECIDED:
            return None  # its saga was answered from its log
        ended = "is settled" if home is not None else "has no record any more"
        what = f"{row.outcome}, and no task ever waited for it: its saga {ended}"
        if row.outcome == "done":
            return self._of_person(row, Kind.ORPHANED_OUTCOME, what, "ask its provider, and have it undone there")
        return self._about(row, Kind.ORPHANED_OUTCOME, Severity.OK, what, "nothing: nothing was done")

    def _late(self, row: JobView) -> Finding | None:
        what = "it was treated as not applied, and was applied"
        saga = next((one for one in self.records.sagas if one.served.log == row.log_table), None)
        late = self.records.caretaker(saga).look_late(self.table, row.job_id) if saga is not None else None
        home = self._home(row)
        if saga is not None and late is not None:
            return self._undone_by_itself(row, saga, late, what)
        saga = home[0] if home is not None else saga
        status = self._log_status(row, saga)
        if status is None:
            return self._lost(row, what)
        if status not in _STANDS_LATE:
            return None  # it is undone
        if home is None:
            return self._of_person(row, Kind.LATE, f"{what}; its record is gone", "have it undone at its provider")
        if late_log(watcher(self.records.aws, home[0]), home[1], _log_table(row, saga)).needed:
            what = f"{what}; its saga is in progress, and may need it"
            return self._about(row, Kind.LATE, Severity.OK, what, "nothing until it is settled", saga=home[0])
        words = ["resolve", row.saga_id, row.step, "--compensation", "--applied"]
        return replace(
            self._of_person(
                row, Kind.LATE, f"{what}, and is not compensated automatically", "compensate it, and record it"
            ),
            command=self.records.command(*words),
        )

    def _undone_by_itself(self, row: JobView, saga: Saga, late: LateSeen, what: str) -> Finding:
        if late.record is None:
            return self._of_person(row, Kind.LATE, f"{what}; its record is gone", "have it undone at its provider")
        undo = undo_late(watcher(self.records.aws, saga), late.record, saga.served.log, self.records.now_ms)
        if late.lost and undo.finding is not LateFinding.RUNNING:
            return self._lost(row, what)
        name = f"-{str(undo.execution).rpartition('-')[2]}"
        if undo.finding is LateFinding.RUNNING:
            return self._about(row, Kind.LATE, Severity.OK, f"{what}; {name} is undoing it", "nothing", saga=saga)
        if undo.finding is LateFinding.EXHAUSTED:
            why, then = "it was tried again and again to undo it", "correct the cause"
            command = ["recover", row.saga_id, "--again"]
            if late.record.tombstone:
                why, then, command = "its request was removed", "undo it by hand", ["inspect", row.saga_id]
            return replace(
                self._of_person(row, Kind.LATE, f"{what}; {why}", then),
                command=self.records.command(*command),
                saga=saga,
            )
        if undo.execution == late_name(row.saga_id, 1) and self.records.now_ms - row.since >= NOBODY_CAME_MS:
            self.records.nobody_came(saga, row.since)
        then = f"the reconciler undoes it, by {name}"
        return self._about(row, Kind.LATE, Severity.SOON, what, then, saga=saga, repair=Repair.COMPENSATE_LATE)

    def _lost(self, row: JobView, what: str) -> Finding:
        what = f"{what}; its row of the saga log is gone, so whether it is undone is not known"
        return self._of_person(row, Kind.LATE, what, "ask its provider, and have it undone there")

    def _is_acknowledged(self, job_id: str, outcome: str, request_table: str) -> bool:
        """Test whether the record of the job's saga has a decision about a conflicting outcome."""
        found = self._record_of(job_parts(job_id)[0], request_table) if outcome else None
        what = acknowledgement(job_id, outcome)
        return found is not None and any(one.what == what for one in Decision.all_of(found[1]))

    def _home(self, row: JobView) -> tuple[Saga, RequestRecord] | None:
        """The saga of a row, and its record, read strongly; None: it has none any more."""
        found = self._record_of(row.saga_id, row.request_table)
        if found is None:
            return None
        record = RequestRecord.from_item(found[1])
        return self.records.saga_at(found[0], record.execution_arn), record

    def _record_of(self, saga_id: str, request_table: str) -> tuple[str, Item] | None:
        """The table and the item of a saga's record, read strongly; None: it has none any more."""
        tables = [request_table] if request_table else [saga.served.requests for saga in self.records.sagas]
        key: dict[str, dict[str, str]] = {RecordAttribute.ID: {"S": request_id_from(saga_id)}}
        for table in dict.fromkeys(tables):
            item = self.records.aws.read(table, key)
            if item is None or RecordAttribute.SAGA_ID not in item:
                continue
            self.records.remember(item)
            if RequestRecord.from_item(item).saga_id == saga_id:
                return table, item
        return None

    def _log_status(self, row: JobView, saga: Saga | None) -> StepStatus | None:
        """Status of the row in the saga log; None: without a row, or if its log is unknown."""
        item = self._log_item(row, saga)
        return None if item is None else StepStatus(item[LogAttribute.STATUS]["S"])

    def _log_item(self, row: JobView, saga: Saga | None) -> Item | None:
        table = _log_table(row, saga)
        return self.records.aws.read(table, log_key(row.saga_id, row.step)) if table else None

    def _by_sweeper(
        self, row: JobView, kind: Kind, what: str, due_at: int | None, repair: Repair | None = None
    ) -> Finding:
        severity = Severity.SOON
        then = _THEN_BY_SWEEPER[repair]
        overdue = due_at is not None and due_at <= self.records.now_ms - NOBODY_CAME_MS
        if overdue:
            self._overdue.append(due_at or 0)
        if overdue or not self.swept:
            severity = Severity.REPAIR if repair else Severity.OPERATOR
            then = _THEN_BY_REPAIR[repair]
        return self._about(row, kind, severity, what, then, repair=repair)

    def _of_person(self, row: JobView, kind: Kind, what: str, then: str) -> Finding:
        saga = ["--saga", row.saga_id] if row.saga_id else []
        command = self._command("callbacks", *saga, "--all")
        return replace(self._about(row, kind, Severity.OPERATOR, what, then), command=command)

    def _about(self, row: JobView, kind: Kind, severity: Severity, what: str, then: str, **more: Any) -> Finding:
        about = {"id": row.job_id, "saga_id": row.saga_id, "table": self.table, **more}
        return Finding(kind, severity, what, then, row.since, **about)


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
        ids = list(self.aws.due(self.table, WATCH_DUE_SHARDS))
        if scan is not None:
            ids += [
                item[WatchAttribute.ID]["S"]
                for item in scan.items(self.table, (WatchAttribute.ID, WatchAttribute.STATUS))
                if item.get(WatchAttribute.STATUS, {}).get("S") == WatchStatus.DEAD_LETTERED
            ]
        ends = [one for one in dict.fromkeys(ids) if not one.startswith(WATCH_LIST_PREFIX)]
        lists = [list_id(one.machine, end) for one in self.watch.watched for end in sorted(one.ends)]
        overdue: list[int] = []
        for row in (*self._rows(EndRow.from_item, ends), *self._rows(ListRow.from_item, lists)):
            if isinstance(row, Finding):
                yield row
                continue
            if row.due_at and row.due_at <= self.now_ms - NOBODY_CAME_MS:
                overdue.append(row.due_at)
            if isinstance(row, EndRow) and (finding := _of_end(row)) is not None:
                yield finding
        if overdue:
            what = f"ends of watched machines due for more than {NOBODY_CAME_MS // 60_000} min, and not checked"
            then = "find out why this function does not look: its schedule, its logs, its alarms"
            yield Finding(Kind.NOT_MONITORED, Severity.OPERATOR, what, then, min(overdue), id=self.watch.function)

    def _rows(self, row_of: Callable[[Item], R], ids: Sequence[str]) -> Iterator[R | Finding]:
        """Rows, and findings of what cannot be read."""
        for item in self.aws.read_ids(self.table, ids):
            try:
                yield row_of(item)
            except UNREADABLE as error:
                yield unreadable(self.table, str(item[WatchAttribute.ID]["S"]), error)


def _log_table(row: JobView, saga: Saga | None) -> str:
    return row.log_table or (saga.served.log if saga is not None else "")


def _is_sent(notice: TokenRow) -> bool:
    """Test whether the queue of operators has a notice's entry."""
    return notice.status is TokenStatus.NOTIFIED


def _of_end(row: EndRow) -> Finding | None:
    about = partial(Finding, since=row.stopped_at, id=row.execution_arn.rpartition(":")[2])
    calls = "once" if row.attempt == 1 else f"{row.attempt} times"
    what = f"it {row.end}, and its function was called {calls} in vain, at last with {row.error or 'no answer'}"
    if row.status is WatchStatus.DEAD_LETTERED:
        then = "fix that function, then redrive its entry in the dead-letter queue"
        return about(Kind.END_STUCK, Severity.OPERATOR, what, then)
    if row.status is WatchStatus.PENDING and row.error:
        return about(Kind.END_NOT_NOTIFIED, Severity.SOON, what, "its function is called again")
    return None
