"""Contradictions of a saga's record: an execution, its log, or the ledger. Changes nothing.

An execution succeeds only after it has settled its record, a completed saga has a row of each step that every request
takes, and a posting and its row are one transaction. Where that is not so, a table was restored to another moment, or
edited by hand. What lists and scans suggest is read again strongly before it is reported.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import islice
from typing import Any, Final, TypeVar

from constructs_lib.cli.doctor.aws import Item
from constructs_lib.cli.doctor.findings import Finding, Kind, Saga, Severity
from constructs_lib.cli.doctor.record_findings import UNREADABLE
from constructs_lib.cli.doctor.records import Records
from constructs_lib.cli.doctor.scan import Scan
from saga_runtime.idempotency.identity import is_saga_id, request_id_from
from saga_runtime.idempotency.record import RequestRecord
from saga_runtime.protocol import LedgerAttribute, LogAttribute, RecordAttribute, RecordStatus, StepStatus
from saga_runtime.recovery.decisions import saga_of_execution, was_owner
from saga_runtime.saga_log.rows import log_key
from saga_runtime.shared.arns import execution_of, machine_of

_BATCH: Final = 100
_DAY_MS: Final = 86_400_000
_RESTORED_DAYS: Final = 36
"""A restore to a point in time reaches back 35 days: entries of the ledger that are older were compared before."""
_REMEMBERED_DAYS: Final = 90
"""For so long does Step Functions know what succeeded."""
_SKEW_MS: Final = 5 * 60_000
_ENTRY: Final = re.compile(r"(?P<saga>[^#]+)#(?P<row>[^#]+)(?P<undo>#undo)?")
_POSTED: Final = (StepStatus.DONE, StepStatus.APPLIED_LATE, StepStatus.COMPENSATING, StepStatus.COMPENSATED)
"""States of a step whose effect was committed once."""
_LEDGER_NAMES: Final = (LedgerAttribute.ENTRY_ID, LedgerAttribute.POSTED_AT)
_THEN: Final = "a table was restored or edited: find out which of the two is right before anything is resumed"


T = TypeVar("T")


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
            completed = item[a.STATUS]["S"] == RecordStatus.COMPLETED and item[a.DEFINITION]["S"] == saga.definition
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
            if saga.arn:  # also where not a single record is left
                self._machines.setdefault(saga.served.requests, {})[saga.arn] = saga
        for table, machines in self._machines.items():
            for arn, saga in machines.items():
                yield from aws.gathered(f"executions of {arn}", self._of_executions(table, arn, saga))
        yield from aws.gathered("completed sagas", self._of_completed())
        for ledger in self.ledgers:
            yield from aws.gathered(f"table {ledger}", self._of_ledger(ledger))

    # Executions that succeeded.

    def _of_executions(self, table: str, arn: str, saga: Saga) -> Iterator[Finding]:
        suspects = (one for one in self._succeeded(arn, saga) if self._owners.get(one.saga_id) != one.name)
        for batch in _batches(suspects):
            homes = self._homes(table, [one.saga_id for one in batch])
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
            found = set(self._steps(saga.served.log, saga_id))
            record = self._record(saga.served.requests, saga_id)
            missing = [step for step in sorted(saga.always) if step not in found]
            if missing and record is not None and record.status is RecordStatus.COMPLETED:
                what = f"COMPLETED, and its log has no row of {', '.join(missing)}, which every request takes"
                yield self._finding(Kind.RECORD_WRONG, saga, saga_id, what, _THEN, record.updated_at)

    def _steps(self, log: str, saga_id: str) -> Iterator[str]:
        a = LogAttribute
        pages: Any = self.records.aws.client("dynamodb").get_paginator("query")
        found = pages.paginate(
            TableName=log,
            ConsistentRead=True,
            KeyConditionExpression="#saga_id = :saga_id",
            ProjectionExpression="#step",
            ExpressionAttributeNames={f"#{name}": name for name in (a.SAGA_ID, a.STEP)},
            ExpressionAttributeValues={":saga_id": {"S": saga_id}},
        )
        yield from (item[a.STEP]["S"] for page in found for item in page["Items"])

    # Entries of a ledger.

    def _of_ledger(self, ledger: str) -> Iterator[Finding]:
        keys = dict.fromkeys(self._posted(ledger))
        for batch in _batches(keys):
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
            names = (a.SAGA_ID, a.STEP, a.STATUS)
            for item in self.records.aws.read_all(log, [log_key(*key) for key in sorted(keys)], names):
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
                yield self.records.saga_of(table, record), record.updated_at
        states = self.records.aws.step_functions
        for machines in self._machines.values():
            for arn, saga in machines.items():
                try:
                    states.describe_execution(executionArn=execution_of(arn, saga_id))
                except states.exceptions.ExecutionDoesNotExist:
                    continue
                yield saga, None

    def _record(self, table: str, saga_id: str) -> RequestRecord | None:
        item = self._homes(table, [saga_id]).get(request_id_from(saga_id))
        record = RequestRecord.from_item(item) if item is not None else None
        return record if record is not None and record.saga_id == saga_id else None

    def _homes(self, table: str, saga_ids: Iterable[str]) -> dict[str, Item]:
        a = RecordAttribute
        keys: list[dict[str, dict[str, str]]] = [
            {a.ID: {"S": key}} for key in sorted({request_id_from(saga_id) for saga_id in saga_ids})
        ]
        found = {item[a.ID]["S"]: item for item in self.records.aws.read_all(table, keys) if a.SAGA_ID in item}
        for item in found.values():
            self.records.remember(item)
        return found

    def _finding(self, kind: Kind, saga: Saga, saga_id: str, what: str, then: str, since: int | None) -> Finding:
        return Finding(
            kind=kind,
            severity=Severity.OPERATOR,
            id=saga_id,
            what=what,
            then=then,
            since=since,
            command=self.records.command("inspect", saga_id) if kind is Kind.RECORD_WRONG else "",
            saga_id=saga_id,
            saga=saga,
        )


def _batches(things: Iterable[T]) -> Iterator[list[T]]:
    ahead = iter(things)
    while batch := list(islice(ahead, _BATCH)):
        yield batch
