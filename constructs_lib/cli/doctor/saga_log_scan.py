"""The doctor's read of whole tables: records outside the index, and rows of a saga log without a live saga.

Rows are read first, then their sagas' records, then those rows again: a saga that runs at this moment closes its rows
before it settles, so a row that is still open after its record was seen to be settled, or gone, has been left behind.
A record is gone for good when it is: it is reserved before the first row is written, and is kept for `remember_for`
after it settled. Changes nothing.
"""

from __future__ import annotations

import shlex
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any, Final

from constructs_lib.cli.doctor.aws import Item
from constructs_lib.cli.doctor.contradictions import Contradictions
from constructs_lib.cli.doctor.dry_run import watcher
from constructs_lib.cli.doctor.findings import Finding, Kind, Repair, Saga, Severity
from constructs_lib.cli.doctor.record_findings import UNREADABLE, unreadable
from constructs_lib.cli.doctor.records import Records
from constructs_lib.cli.doctor.scan import Scan
from saga_runtime.idempotency.identity import is_saga_id, provider_key_of, request_id_from
from saga_runtime.idempotency.record import RequestRecord
from saga_runtime.protocol import LogAttribute, RecordAttribute, RecordStatus, StepStatus
from saga_runtime.recovery.late_effects import LateFinding, undo_late
from saga_runtime.saga_log.rows import log_key

_ROW: Final = (
    LogAttribute.SAGA_ID,
    LogAttribute.STEP,
    LogAttribute.STATUS,
    LogAttribute.CREATED_AT,
    LogAttribute.UPDATED_AT,
)
_ROW_NAMES: Final = tuple(_ROW)
_RECORD: Final = (
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
_RECORD_NAMES: Final = tuple(_RECORD)
_OPEN: Final = (StepStatus.INTENT, StepStatus.COMPENSATING, StepStatus.APPLIED_LATE)
_SKEW_MS: Final = 5 * 60_000
"""Clocks of functions differ by less."""
_BATCH: Final = 100
_DONE_AND_LOST: Final = "done, and the saga has no record, which cannot have expired yet"


@dataclass(frozen=True, slots=True, kw_only=True)
class _Row:
    saga_id: str
    step: str
    status: StepStatus
    created_at: int
    updated_at: int

    @property
    def key(self) -> dict[str, dict[str, str]]:
        return log_key(self.saga_id, self.step)


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
            if item.get(a.STATUS, {}).get("S") == RecordStatus.IN_PROGRESS and not _found_by_index(item, max(shards)):
                suspects.append(str(item[a.ID]["S"]))
        for start in range(0, len(suspects), _BATCH):
            yield from self.records.look_at(table, suspects[start : start + _BATCH])

    def _log(self, log: str) -> Iterator[Finding]:
        batch: list[_Row] = []
        for item in self.scan.items(log, _ROW_NAMES):
            row = _row(item)
            if row is not None:
                self.contradictions.saw_row(row.saga_id, row.step)
            if row is not None and self._suspicious(log, row):
                batch.append(row)
            if len(batch) >= _BATCH:
                yield from self._of_rows(log, batch)
                batch = []
        yield from self._of_rows(log, batch)

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
        if not rows:
            return
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
        a = RecordAttribute
        found: dict[str, Item] = {}
        keys: list[dict[str, dict[str, str]]] = [
            {a.ID: {"S": key}} for key in sorted({request_id_from(saga_id) for saga_id in saga_ids})
        ]
        for table in dict.fromkeys(saga.served.requests for saga in self.records.sagas if saga.served.log == log):
            for item in self.records.aws.read_all(table, keys):
                if a.SAGA_ID in item:
                    self.records.remember(item)
                    found[item[a.SAGA_ID]["S"]] = item
        return found

    def _rows_again(self, log: str, rows: Iterable[_Row]) -> dict[tuple[str, str], StepStatus]:
        keys = [row.key for row in rows]
        items = self.records.aws.read_all(log, keys, _ROW_NAMES)
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
        saga = self.records.saga_of(self._requests(log), record)
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
        undo = undo_late(watcher(self.records.aws, saga), record, log)
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

    def _finding(
        self,
        kind: Kind,
        row: _Row,
        what: str,
        then: str,
        *,
        command: str = "",
        saga: Saga | None = None,
        repair: Repair | None = None,
    ) -> Finding:
        return Finding(
            kind=kind,
            severity=Severity.OPERATOR,
            id=f"{row.saga_id}#{row.step}",
            what=what,
            then=then,
            since=row.updated_at,
            command=command,
            repair=repair,
            saga_id=row.saga_id,
            saga=saga,
        )


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


def _found_by_index(item: Item, shards: int) -> bool:
    a = RecordAttribute
    shard = str(item.get(a.DUE_SHARD, {}).get("S", ""))
    return a.DUE_AT in item and len(shard) == 2 and shard.isdecimal() and int(shard) < shards


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
