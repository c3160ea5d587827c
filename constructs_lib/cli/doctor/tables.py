"""Whole tables, as the doctor reads them: records outside the index, rows without a live saga, and contradictions.

Rows are read first, then their sagas' records, then those rows again: a saga that runs at this moment closes its rows
before it settles, so a row that is still open after its record was seen to be settled, or gone, has been left behind.
A record is gone for good when it is: it is reserved before the first row is written, and is kept for `remember_for`
after it settled.

An execution succeeds only after it has settled its record, a completed saga has a row of each step that every request
takes, and a posting and its row are one transaction. Where that is not so, a table was restored to another moment, or
edited by hand: the record contradicts an execution, its log, or the ledger. What lists and scans suggest is read again
strongly before it is reported. Changes nothing.
"""

from __future__ import annotations

import json
import re
import shlex
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Final

from constructs_lib.cli.doctor.findings import Finding, Kind, Saga, Severity, unreadable
from constructs_lib.cli.doctor.records import Records, watcher
from constructs_lib.cli.shared.reads import UNREADABLE, Item, Scan, batches, read_all, rows_of
from saga_runtime.idempotency.identity import is_saga_id, provider_key_of, request_id_from
from saga_runtime.idempotency.record import RequestRecord
from saga_runtime.protocol import LedgerAttribute, LogAttribute, RecordAttribute, RecordStatus, StepStatus
from saga_runtime.recovery.decisions import saga_of_execution, was_owner
from saga_runtime.recovery.late_effects import LateFinding, undo_late
from saga_runtime.recovery.repairs import Repair, is_looked_at
from saga_runtime.saga_log.rows import log_key
from saga_runtime.shared.arns import execution_of, machine_of

_ROW_NAMES: Final = (
    LogAttribute.SAGA_ID,
    LogAttribute.STEP,
    LogAttribute.STATUS,
    LogAttribute.CREATED_AT,
    LogAttribute.UPDATED_AT,
)
_RECORD_NAMES: Final = (
    RecordAttribute.ID,
    RecordAttribute.SAGA_ID,
    RecordAttribute.STATUS,
    RecordAttribute.DUE_AT,
    RecordAttribute.DUE_SHARD,
    RecordAttribute.OWNER,
    RecordAttribute.DEFINITION,
    RecordAttribute.EXECUTION_ARN,
    RecordAttribute.RECOVERY_MACHINE_ARN,
    RecordAttribute.CREATED_AT,
)
_OPEN: Final = (StepStatus.INTENT, StepStatus.COMPENSATING, StepStatus.APPLIED_LATE)
_SKEW_MS: Final = 5 * 60_000
"""Clocks of functions differ by less."""
_DONE_AND_LOST: Final = "done, and the saga has no record, which cannot have expired yet"


@dataclass(frozen=True, slots=True, kw_only=True)
class _Row:
    saga_id: str
    step: str
    status: StepStatus
    created_at: int
    updated_at: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Deep:
    """A read of whole tables."""

    records: Records
    scan: Scan
    contradictions: Contradictions

    def look(self) -> list[Finding]:
        """Request tables and saga logs of the system, each once."""
        sagas = self.records.sagas
        found: list[Finding] = []
        for table in dict.fromkeys(saga.served.requests for saga in sagas):
            found += self.records.aws.gathered(f"table {table}", self._not_due(table))
        for log in dict.fromkeys(saga.served.log for saga in sagas if saga.served.log):
            found += _joined(self.records.aws.gathered(f"table {log}", self._log(log)))
        return [*found, *self.contradictions.look()]

    def tables(self) -> list[str]:
        """Tables that it reads whole."""
        names = [name for saga in self.records.sagas for name in (saga.served.requests, saga.served.log) if name]
        return list(dict.fromkeys([*names, *self.contradictions.ledgers]))

    def _not_due(self, table: str) -> Iterator[Finding]:
        """Records in progress that no checked part of an index holds."""
        a = RecordAttribute
        shards = [saga.served.shards for saga in self.records.sagas if saga.served.requests == table]
        suspects = []
        for item in self.scan.items(table, _RECORD_NAMES):
            if a.SAGA_ID not in item:
                continue
            self.contradictions.saw(table, item)
            if item.get(a.STATUS, {}).get("S") == RecordStatus.IN_PROGRESS and not is_looked_at(item, max(shards)):
                suspects.append(str(item[a.ID]["S"]))
        for batch in batches(suspects):
            yield from self.records.look_at(table, batch)

    def _log(self, log: str) -> Iterator[Finding]:
        for batch in batches(self._suspects(log)):
            yield from self._of_rows(log, batch)

    def _suspects(self, log: str) -> Iterator[_Row]:
        for item in self.scan.items(log, _ROW_NAMES):
            if (row := _row(item)) is not None:
                self.contradictions.saw_row(row.saga_id, row.step)
                if self._suspicious(log, row):
                    yield row

    def _suspicious(self, log: str, row: _Row) -> bool:
        if row.status in _OPEN:
            return True
        return row.status is StepStatus.DONE and self._has_record(log, row) is not False

    def _has_record(self, log: str, row: _Row) -> bool | None:
        """Test whether a row's saga certainly has a record still; None: unknown."""
        kept = self._kept_ms(log)
        return None if kept is None else self.records.now_ms - row.created_at < kept

    def _kept_ms(self, log: str) -> int | None:
        """Milliseconds after a row's first write for which its saga's record certainly exists; None: unknown."""
        kept = [saga.remember_seconds for saga in self.records.sagas if saga.served.log == log]
        known = [seconds for seconds in kept if seconds is not None]
        return min(known) * 1_000 - _SKEW_MS if known and len(known) == len(kept) else None

    def _of_rows(self, log: str, rows: list[_Row]) -> Iterator[Finding]:
        """Rows, whose records are read now, and then they themselves again."""
        homes = self._homes(log, {row.saga_id for row in rows})
        left = [row for row in rows if self._left_behind(log, row, homes)]
        again = self._rows_again(log, left)
        for row in left:
            if again.get((row.saga_id, row.step)) == row.status:
                yield from self._readable(log, row, homes)

    def _left_behind(self, log: str, row: _Row, homes: Mapping[str, Item]) -> bool:
        home = homes.get(row.saga_id)
        if home is None:
            return row.status in _OPEN or self._has_record(log, row) is True
        status = home.get(RecordAttribute.STATUS, {}).get("S")
        if row.status is StepStatus.DONE:
            return status == RecordStatus.FAILED
        return status != RecordStatus.IN_PROGRESS

    def _homes(self, log: str, saga_ids: Iterable[str]) -> dict[str, Item]:
        """Records by saga; of sagas that have one."""
        tables = dict.fromkeys(saga.served.requests for saga in self.records.sagas if saga.served.log == log)
        homes = (item for table in tables for item in self.records.homes(table, saga_ids))
        return {item[RecordAttribute.SAGA_ID]["S"]: item for item in homes}

    def _rows_again(self, log: str, rows: Iterable[_Row]) -> dict[tuple[str, str], StepStatus]:
        keys = (log_key(row.saga_id, row.step) for row in rows)
        items = read_all(self.records.aws.dynamodb, log, keys, _ROW_NAMES)
        again = (row for item in items if (row := _row(item)) is not None)
        return {(row.saga_id, row.step): row.status for row in again}

    def _readable(self, log: str, row: _Row, homes: Mapping[str, Item]) -> Iterator[Finding]:
        try:
            yield from self.records.aws.gathered(f"something of saga {row.saga_id}", self._about(log, row, homes))
        except UNREADABLE as error:
            yield unreadable(self._requests(log), row.saga_id, error)

    def _requests(self, log: str) -> str:
        """The request table of a log's sagas."""
        return next(saga.served.requests for saga in self.records.sagas if saga.served.log == log)

    def _about(self, log: str, row: _Row, homes: Mapping[str, Item]) -> Iterator[Finding]:
        home = homes.get(row.saga_id)
        if home is None:
            yield self._lost(log, row)
            return
        record = RequestRecord.from_item(home)
        saga = self.records.saga_at(self._requests(log), record.execution_arn)
        if row.status is StepStatus.DONE:
            yield self._finding(
                Kind.RECORD_WRONG,
                row,
                f"its saga is {record.status}, and it is {row.status}: it was never compensated",
                "record or log were restored or edited: find out which is right, and undo it by hand if it exists",
                command=self.records.command("inspect", row.saga_id),
                saga=saga,
            )
            return
        if row.status is StepStatus.INTENT:
            yield self._finding(
                Kind.ROW_OPEN,
                row,
                f"its saga is {record.status}, and whether it happened is not known",
                f"ask its provider, by the key {provider_key_of(f'{row.saga_id}#{row.step}')}",
                command=self.records.command("inspect", row.saga_id),
                saga=saga,
            )
            return
        undo = undo_late(watcher(self.records.aws, saga), record, log, self.records.now_ms)
        what = f"its saga is {record.status}, and it is applied: {row.status}"
        if undo.finding is LateFinding.RUNNING:
            yield replace(
                self._finding(Kind.LATE, row, what, f"{undo.execution} is undoing it", saga=saga), severity=Severity.OK
            )
            return
        if undo.finding is LateFinding.EXHAUSTED or not _undoable(saga, row.step):
            words = ["resolve", row.saga_id, row.step, "--compensation", "--applied"]
            then = "compensate it by hand, and record that"
            yield self._finding(Kind.LATE, row, what, then, command=self.records.command(*words), saga=saga)
            return
        # The check of late effects finds it by its token's row; this one may have none.
        yield replace(
            self._finding(Kind.LATE, row, what, "--repair has it undone", saga=saga, repair=Repair.COMPENSATE_LATE),
            severity=Severity.REPAIR,
        )

    def _lost(self, log: str, row: _Row) -> Finding:
        if row.status is StepStatus.DONE:
            what = _DONE_AND_LOST
            then = "find out who deleted it; restore it, or undo what the saga did by hand"
        else:
            what = f"its saga has no record, and its row is {row.status}"
            then = f"ask its provider, by the key {provider_key_of(f'{row.saga_id}#{row.step}')}"
        words = ["aws", "dynamodb", "query", "--table-name", log, "--key-condition-expression", "saga_id = :s"]
        values = f'{{":s":{{"S":"{row.saga_id}"}}}}'
        command = shlex.join([*words, "--expression-attribute-values", values])
        return self._finding(Kind.RECORD_LOST, row, what, then, command=command)

    def _finding(self, kind: Kind, row: _Row, what: str, then: str, **more: Any) -> Finding:
        about = {"id": f"{row.saga_id}#{row.step}", "saga_id": row.saga_id, **more}
        return Finding(kind, Severity.OPERATOR, what, then, row.updated_at, **about)


def _joined(findings: Iterable[Finding]) -> list[Finding]:
    """Merge findings of a saga without a record into one, however many rows it has."""
    done: dict[str, list[Finding]] = {}
    others = []
    for one in findings:
        if one.kind is Kind.RECORD_LOST and one.what == _DONE_AND_LOST:
            done.setdefault(one.saga_id, []).append(one)
        else:
            others.append(one)
    for saga_id, rows in done.items():
        steps = sorted(one.id.partition("#")[2] for one in rows)
        what = f"{', '.join(steps)}: {_DONE_AND_LOST}"
        others.append(replace(rows[0], id=saga_id, what=what, since=min(one.since or 0 for one in rows)))
    return others


def _undoable(saga: Saga, row_name: str) -> bool:
    step = row_name.partition("[")[0]
    return any(step in steps for steps in saga.served.tokens.values())


def _row(item: Mapping[str, Any]) -> _Row | None:
    """A row of a saga log; None: something else in its table."""
    a = LogAttribute
    try:
        row = _Row(
            saga_id=item[a.SAGA_ID]["S"],
            step=item[a.STEP]["S"],
            status=StepStatus(item[a.STATUS]["S"]),
            created_at=int(item[a.CREATED_AT]["N"]),
            updated_at=int(item[a.UPDATED_AT]["N"]),
        )
    except UNREADABLE:
        return None
    return row if is_saga_id(row.saga_id) else None


_DAY_MS: Final = 86_400_000
_RESTORED_DAYS: Final = 36
"""A restore to a point in time reaches back 35 days: entries of the ledger that are older were compared before."""
_REMEMBERED_DAYS: Final = 90
"""For so long does Step Functions know what succeeded."""
_ENTRY: Final = re.compile(r"(?P<saga>[^#]+)#(?P<row>[^#]+)(?P<undo>#undo)?")
_POSTED: Final = (StepStatus.DONE, StepStatus.APPLIED_LATE, StepStatus.COMPENSATING, StepStatus.COMPENSATED)
"""States of a step whose effect was committed once."""
_LEDGER_NAMES: Final = (LedgerAttribute.ENTRY_ID, LedgerAttribute.POSTED_AT)
_THEN: Final = "a table was restored or edited: find out which of the two is right before anything is resumed"


@dataclass(frozen=True, slots=True)
class _Ended:
    """An execution that succeeded."""

    machine_arn: str
    name: str
    saga_id: str
    stopped_ms: int


@dataclass(slots=True, kw_only=True)
class Contradictions:
    """Finds them after records and rows were scanned; ``saw`` and ``saw_row`` receive each.

    Attributes:
        records: how request records are read.
        scan: how tables are read whole.
        ledgers: tables of ledgers.
    """

    records: Records
    scan: Scan
    ledgers: Sequence[str] = ()
    _owners: dict[str, str] = field(default_factory=dict)
    _machines: dict[str, dict[str, Saga]] = field(default_factory=dict)
    _rows_left: dict[str, tuple[Saga, int]] = field(default_factory=dict)

    def saw(self, table: str, item: Item) -> None:
        """A request record, as the scan had it."""
        a = RecordAttribute
        try:
            saga_id, arn = item[a.SAGA_ID]["S"], item[a.EXECUTION_ARN]["S"]
            saga = self.records.saga_at(table, arn)
            self._owners[saga_id] = item[a.OWNER]["S"]
            for machine in (machine_of(arn), item[a.RECOVERY_MACHINE_ARN]["S"]):
                self._machines.setdefault(table, {})[machine] = saga
            young = self.records.now_ms - int(item[a.CREATED_AT]["N"]) < saga.served.days * _DAY_MS
            fingerprint = saga.deployed.definition if saga.deployed is not None else ""
            completed = item[a.STATUS]["S"] == RecordStatus.COMPLETED and item[a.DEFINITION]["S"] == fingerprint
        except UNREADABLE:
            return  # reported elsewhere
        if completed and young and saga.always:
            self._rows_left[saga_id] = saga, len(saga.always)

    def saw_row(self, saga_id: str, step: str) -> None:
        """A row of a saga log, as the scan had it."""
        known = self._rows_left.get(saga_id)
        if known is not None and step in known[0].always:
            self._rows_left[saga_id] = known[0], known[1] - 1

    def look(self) -> Iterator[Finding]:
        """Whatever contradicts a record."""
        aws = self.records.aws
        for saga in self.records.sagas:
            if saga.deployed is not None:  # also where not a single record is left
                self._machines.setdefault(saga.served.requests, {})[saga.deployed.arn] = saga
        for table, machines in self._machines.items():
            for arn, saga in machines.items():
                yield from aws.gathered(f"executions of {arn}", self._of_executions(table, arn, saga))
        yield from aws.gathered("completed sagas", self._of_completed())
        for ledger in self.ledgers:
            yield from aws.gathered(f"table {ledger}", self._of_ledger(ledger))

    # Executions that succeeded.

    def _of_executions(self, table: str, arn: str, saga: Saga) -> Iterator[Finding]:
        suspects = (one for one in self._succeeded(arn, saga) if self._owners.get(one.saga_id) != one.name)
        for batch in batches(suspects):
            homes = {
                item[RecordAttribute.ID]["S"]: item
                for item in self.records.homes(table, [one.saga_id for one in batch])
            }
            for one in batch:
                yield from self._of_execution(saga, one, homes.get(request_id_from(one.saga_id)))

    def _succeeded(self, arn: str, saga: Saga) -> Iterator[_Ended]:
        since = self._kept_since(saga)
        pages: Any = self.records.aws.client("stepfunctions").get_paginator("list_executions")
        for page in pages.paginate(stateMachineArn=arn, statusFilter="SUCCEEDED"):
            ended = [(one["name"], int(one["stopDate"].timestamp() * 1_000)) for one in page["executions"]]
            for name, stopped_ms in ended:
                saga_id = saga_of_execution(name)
                if saga_id is not None and was_owner(name) and stopped_ms > since:
                    yield _Ended(arn, name, saga_id, stopped_ms)
            if ended and max(stopped_ms for _, stopped_ms in ended) <= since:
                return  # what was most recent comes first

    def _kept_since(self, saga: Saga) -> int:
        """Sagas that ended after this have their records, epoch milliseconds."""
        seconds = saga.remember_seconds
        kept_ms = _REMEMBERED_DAYS * _DAY_MS if seconds is None else seconds * 1_000 - _SKEW_MS
        return self.records.now_ms - kept_ms

    def _of_execution(self, saga: Saga, ended: _Ended, home: Item | None) -> Iterator[Finding]:
        record = RequestRecord.from_item(home) if home is not None else None
        if record is not None and (record.saga_id != ended.saga_id or record.owner == ended.name):
            return  # a later saga has the key; or it is as it should be by now
        verdict = self._verdict(ended)
        if record is None:
            if saga.remember_seconds is not None:
                what = "its execution SUCCEEDED, and it has no record, which cannot have expired yet"
                then = "find out who deleted it; its client may ask again, and it would be done again"
                yield self._finding(Kind.RECORD_LOST, saga, ended.saga_id, what, then, ended.stopped_ms)
        elif verdict not in (None, record.status):
            what = f"{ended.name} settled it as {verdict}, and its record is {record.status}, owned by {record.owner}"
            yield self._finding(Kind.RECORD_WRONG, saga, ended.saga_id, what, _THEN, record.updated_at)

    def _verdict(self, ended: _Ended) -> str | None:
        """Outcome with which an execution settled its saga; None: it was superseded."""
        described = self.records.aws.step_functions.describe_execution(
            executionArn=execution_of(ended.machine_arn, ended.name)
        )
        try:
            output = json.loads(described.get("output", "{}"))
        except ValueError:
            return None
        status = output.get("status") if isinstance(output, Mapping) else None
        return status if status in set(RecordStatus) else None

    # Completed sagas whose rows are not there.

    def _of_completed(self) -> Iterator[Finding]:
        suspects = [(saga_id, saga) for saga_id, (saga, left) in self._rows_left.items() if left > 0]
        for saga_id, saga in suspects:
            rows = rows_of(self.records.aws.dynamodb, saga.served.log, saga_id, (LogAttribute.STEP,))
            found = {row[LogAttribute.STEP]["S"] for row in rows}
            record = self._record(saga.served.requests, saga_id)
            missing = [step for step in sorted(saga.always) if step not in found]
            if missing and record is not None and record.status is RecordStatus.COMPLETED:
                what = f"COMPLETED, and its log has no row of {', '.join(missing)}, which every request takes"
                yield self._finding(Kind.RECORD_WRONG, saga, saga_id, what, _THEN, record.updated_at)

    # Entries of a ledger.

    def _of_ledger(self, ledger: str) -> Iterator[Finding]:
        keys = dict.fromkeys(self._posted(ledger))
        for batch in batches(keys):
            rows = self._rows({(saga_id, row) for saga_id, row, _ in batch})
            for saga_id, row, undo in batch:
                status = rows.get((saga_id, row))
                fits = status is StepStatus.COMPENSATED if undo else status in _POSTED
                if not fits:
                    yield from self._of_entry(ledger, saga_id, row, undo, status)

    def _posted(self, ledger: str) -> Iterator[tuple[str, str, bool]]:
        a = LedgerAttribute
        days = min([_RESTORED_DAYS, *(saga.served.days - 1 for saga in self.records.sagas)])
        for item in self.scan.items(ledger, _LEDGER_NAMES):
            match = _ENTRY.fullmatch(item.get(a.ENTRY_ID, {}).get("S", ""))
            posted_at = item.get(a.POSTED_AT, {}).get("N", "0")
            young = int(posted_at) > self.records.now_ms - days * _DAY_MS if posted_at.isdecimal() else False
            if match is not None and young and is_saga_id(match["saga"]):
                yield match["saga"], match["row"], match["undo"] is not None

    def _rows(self, keys: set[tuple[str, str]]) -> dict[tuple[str, str], StepStatus]:
        a = LogAttribute
        found: dict[tuple[str, str], StepStatus] = {}
        for log in dict.fromkeys(saga.served.log for saga in self.records.sagas if saga.served.log):
            wanted = (log_key(*key) for key in sorted(keys))
            for item in read_all(self.records.aws.dynamodb, log, wanted, (a.SAGA_ID, a.STEP, a.STATUS)):
                found[item[a.SAGA_ID]["S"], item[a.STEP]["S"]] = StepStatus(item[a.STATUS]["S"])
        return found

    def _of_entry(
        self, ledger: str, saga_id: str, row: str, undo: bool, status: StepStatus | None
    ) -> Iterator[Finding]:
        home = next(self._found_at(saga_id), None)
        if home is None:
            return  # its saga is unknown here: the ledger may have sagas of other stacks
        saga, since = home
        entry = "the entry of its undo" if undo else "its entry"
        says = f"its row is {status}" if status is not None else "it has no row"
        what = f"{row}: ledger {ledger} has {entry}, and {says}"
        yield self._finding(Kind.RECORD_WRONG, saga, saga_id, what, _THEN, since)

    def _found_at(self, saga_id: str) -> Iterator[tuple[Saga, int | None]]:
        """Home of a saga, by its record, or by its first execution."""
        for table in dict.fromkeys(saga.served.requests for saga in self.records.sagas):
            record = self._record(table, saga_id)
            if record is not None:
                yield self.records.saga_at(table, record.execution_arn), record.updated_at
        states = self.records.aws.step_functions
        for machines in self._machines.values():
            for arn, saga in machines.items():
                try:
                    states.describe_execution(executionArn=execution_of(arn, saga_id))
                except states.exceptions.ExecutionDoesNotExist:
                    continue
                yield saga, None

    def _record(self, table: str, saga_id: str) -> RequestRecord | None:
        item = next(self.records.homes(table, [saga_id]), None)
        record = RequestRecord.from_item(item) if item is not None else None
        return record if record is not None and record.saga_id == saga_id else None

    def _finding(self, kind: Kind, saga: Saga, saga_id: str, what: str, then: str, since: int | None) -> Finding:
        command = self.records.command("inspect", saga_id) if kind is Kind.RECORD_WRONG else ""
        return Finding(
            kind, Severity.OPERATOR, what, then, since, id=saga_id, saga_id=saga_id, saga=saga, command=command
        )
