"""Repairs of ``cdk-sagas doctor --repair``: those of the deployed functions, by their code, and one more.

Each repair reads again, decides again and writes conditionally: whatever was found, what is done is right for what is
there by then. Two doctors at once, or a doctor and a reconciler, do what one does.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Final

from botocore.exceptions import BotoCoreError, ClientError

from constructs_lib.cli.doctor.aws import all_of
from constructs_lib.cli.doctor.findings import Finding, Kind, Repair, Saga, Severity
from constructs_lib.cli.doctor.record_findings import UNREADABLE, Item, RecordFindings, shard_for
from constructs_lib.cli.doctor.records import Records
from constructs_lib.cli.doctor.stack import System
from constructs_lib.cli.shared.aws import NO_RIGHTS, environment
from constructs_lib.cli.shared.moments import moment
from saga_runtime.callbacks.store import read_token
from saga_runtime.callbacks.sweeper import look_after
from saga_runtime.callbacks.task_tokens import settle_row
from saga_runtime.errors import SagaError
from saga_runtime.idempotency.identity import request_id_from
from saga_runtime.idempotency.record import OWNED, RequestRecord, owned
from saga_runtime.protocol import Env, RecordAttribute, TokenStatus
from saga_runtime.recovery.decisions import Need, ParkedFor
from saga_runtime.recovery.hold import Held, hold_key
from saga_runtime.recovery.late_effects import LateFinding, LateUndo, undo_late
from saga_runtime.recovery.operators_queue import OperatorsQueue
from saga_runtime.recovery.takeover import Finding as Finds
from saga_runtime.recovery.takeover import MachineGone, Recoverer, recovery_name
from saga_runtime.shared import aws as runtime
from saga_runtime.shared import writes
from saga_runtime.shared.expressions import update

_BY_ONE_THREAD: Final = (Repair.DELIVER, Repair.SWEEP)
"""A variable of the process names the table."""
_SOMEBODY: Final = "done by another process"
_GONE: Final = "its record is gone by now"


def make_due_update(record: RequestRecord, item: Item, shard: str, now_ms: int) -> dict[str, Any]:
    """Arguments of the update that makes a record due; on condition that it is as it was read."""
    a = RecordAttribute
    conditions, was = [OWNED], {}
    for name in (a.DUE_AT, a.DUE_SHARD):
        if name in item:
            conditions.append(f"#{name} = :was_{name}")
            was[f"was_{name}"] = item[name]
        else:
            conditions.append(f"attribute_not_exists(#{name})")
    as_read = owned(record.owner, " AND ".join(conditions), **was)
    change = update(as_read, {a.DUE_AT: {"N": str(now_ms)}, a.DUE_SHARD: {"S": shard}})
    return {"Key": {a.ID: {"S": record.request_id}}, **change}


@dataclass(frozen=True, slots=True, kw_only=True)
class Repairer:
    """Repairs what was found; with the clients of ``saga_runtime.shared.aws``, which are a session's of the command.

    Attributes:
        records: how request records are read.
        system: what is repaired.
        done: ids of findings about which something was done, or that were found to need nothing any more.
    """

    records: Records
    system: System
    done: list[str] = field(default_factory=list)

    def repair(self, findings: Sequence[Finding]) -> list[Finding]:
        """Repair those findings that can be repaired, and record what was done.

        What is wrong with one saga is repaired one after the other: a repair that saw another one's write would leave
        it unrepaired.
        """
        sagas: dict[str, list[int]] = {}
        for place, one in enumerate(findings):
            sagas.setdefault(one.saga_id or one.id, []).append(place)
        repaired = list(findings)

        def of_one_saga(places: list[int]) -> None:
            for place in places:
                if findings[place].repair not in _BY_ONE_THREAD:
                    repaired[place] = self._repaired(findings[place])

        try:
            for place, one in enumerate(findings):
                if one.repair in _BY_ONE_THREAD:
                    repaired[place] = self._repaired(one)
            all_of(of_one_saga, sagas.values())
        except KeyboardInterrupt:
            wanted = sum(one.repair is not None for one in findings)
            sys.stderr.write(
                f"interrupted: {len(self.done)} of {wanted} repairs were made; repeat this for the others\n"
            )
            raise
        return repaired

    def _repaired(self, finding: Finding) -> Finding:
        if finding.repair is None:
            return finding
        try:
            if (held := self._held(finding)) is not None:
                then = f"an operator holds this saga since {moment(held.since_ms)}: {held.reason}; nothing is repaired"
                return replace(finding, severity=Severity.OPERATOR, then=then, repair=None)
            repaired = replace(finding, repaired=self._repair(finding, finding.repair))
        except MachineGone as gone:
            return replace(finding, severity=Severity.OPERATOR, then=f"NOT repaired: {gone}")
        except (ClientError, BotoCoreError, SagaError, *UNREADABLE) as error:
            code = runtime.error_code(error) or type(error).__name__
            then = f"NOT repaired, {code}: repeat this"
            if code in NO_RIGHTS and isinstance(error, ClientError):
                then = f"NOT repaired, {code}: ask for the right to {error.operation_name}, and repeat this"
            return replace(finding, severity=Severity.OPERATOR, then=then)
        self.done.append(finding.id)
        return repaired

    def _held(self, finding: Finding) -> Held | None:
        """The hold of the one saga that a finding is about."""
        if finding.saga is None or not finding.saga.hold or not finding.saga_id:
            return None
        item = self.records.aws.read(finding.saga.hold, hold_key(finding.saga_id))
        return Held.from_item(item) if item is not None else None

    def _repair(self, finding: Finding, repair: Repair) -> str:
        match repair:
            case Repair.RECONCILE:
                return self._look_after(finding)
            case Repair.MAKE_DUE:
                return self._make_due(finding)
            case Repair.DELIVER:
                return _tell(finding)
            case Repair.SWEEP:
                return self._sweep(finding)
            case Repair.COMPENSATE_LATE:
                return self._undo_late(finding)
            case Repair.CLEAR:
                return self._clear(finding.table)

    def _clear(self, url: str) -> str:
        """Delete entries of an operators' queue that are over."""
        tables = dict.fromkeys(saga.served.requests for saga in self.system.sagas if saga.served.operators == url)

        def read(request_id: str) -> RequestRecord | None:
            key: dict[str, dict[str, str]] = {RecordAttribute.ID: {"S": request_id}}
            for table in tables:
                item = self.records.aws.read(table, key)
                if item is not None and RecordAttribute.SAGA_ID in item:
                    return RequestRecord.from_item(item)
            return None

        queue = OperatorsQueue(sqs=runtime.sqs(), url=url, read=read)
        queue.clear()
        return f"{queue.deleted} deleted, {queue.left} left"

    def _look_after(self, finding: Finding) -> str:
        saga = _saga(finding)
        caretaker = self.records.caretaker(saga)
        found = caretaker.read(saga.served.requests, request_id_from(finding.saga_id))
        if found is None or found.record.saga_id != finding.saga_id:
            return _GONE
        seen = caretaker.look(saga.served, found, self.records.now_ms)
        if seen is None:
            return _GONE
        record, need = seen.found.record, seen.decision.need
        reason = seen.decision.reason
        # An owner that may not be described here may be described by the reconciler.
        if need is Need.PARK and (reason is ParkedFor.OWNER_UNKNOWN or not saga.served.operators):
            return ""
        if not saga.served.log:  # its log is unknown: its rows cannot be extended
            seen = replace(seen, found=replace(seen.found, record=replace(record, log_expires_at=None)))
        done = caretaker.carry_out(seen)
        if finding.kind is Kind.ROWS_END:
            return "its rows are kept for longer"
        match need:
            case Need.CLEAR if done:
                return "not due any more"
            case Need.START:
                return f"started {record.owner}"
            case Need.STOP:
                return "stopped: an operator cancelled it"
            case Need.TAKE_OVER if done:
                return f"handed to {recovery_name(record.saga_id, record.recoveries + 1)}, which is started"
            case Need.PARK if done:
                return "parked, and the operators were notified"
            case Need.NOTHING if record.due_at is not None and seen.finding is Finds.DEAD:
                return f"left as it is until {moment(record.due_at)}: a recovery has just died"
            case _:
                return _SOMEBODY

    def _make_due(self, finding: Finding) -> str:
        saga = _saga(finding)
        key: dict[str, dict[str, str]] = {RecordAttribute.ID: {"S": request_id_from(finding.saga_id)}}
        item = self.records.aws.read(saga.served.requests, key)
        if item is None or item.get(RecordAttribute.SAGA_ID, {}).get("S") != finding.saga_id:
            return _GONE
        record = RequestRecord.from_item(item)
        now_ms = self.records.now_ms
        about = RecordFindings(saga=saga, record=record, item=item, now_ms=now_ms, command=self.records.command)
        if about.not_due() is None:
            return _SOMEBODY
        update = make_due_update(record, item, shard_for(saga, record.request_id), now_ms)
        if writes.write({"Update": {"TableName": saga.served.requests, **update}}) is not None:
            return _SOMEBODY
        return "due now: the next look finds it"

    def _sweep(self, finding: Finding) -> str:
        """Process a due row, as the sweeper of tokens does."""
        with environment({Env.TOKEN_TABLE: finding.table}):
            before = read_token(finding.id)
            if before is None or before.status is not TokenStatus.WAITING or before.reported_unanswered_at:
                return _SOMEBODY
            if not before.due_at or before.due_at > self.records.now_ms:
                return ""  # it will be due: until then, its answer may come
            swept = look_after(finding.id, self.records.now_ms)
            return "its dead-letter queue was notified" if swept.unanswered else "not due any more"

    def _undo_late(self, finding: Finding) -> str:
        saga = _saga(finding)
        caretaker = self.records.caretaker(saga)
        if finding.table:
            late = caretaker.look_late(finding.table, finding.id)
            return "it is undone by now" if late is None else _undo_said(caretaker.undo(late, self.records.now_ms))
        found = caretaker.read(saga.served.requests, request_id_from(finding.saga_id))
        if found is None or found.record.saga_id != finding.saga_id:
            return ""
        recoverer = Recoverer(
            table=saga.served.requests, dynamodb=runtime.dynamodb(), step_functions=runtime.step_functions()
        )
        return _undo_said(undo_late(recoverer, found.record, saga.served.log))


def _undo_said(undo: LateUndo) -> str:
    match undo.finding:
        case LateFinding.NOTHING:
            return "it is undone by now"
        case LateFinding.STARTED:
            return f"being undone by {undo.execution}, which is started"
        case LateFinding.RUNNING:
            return f"being undone by {undo.execution}"
        case LateFinding.EXHAUSTED:
            return ""


def _tell(finding: Finding) -> str:
    """Deliver an outcome, as the sweeper of tokens does."""
    with environment({Env.TOKEN_TABLE: finding.table}):
        row = read_token(finding.id)
        if row is None or row.status is not TokenStatus.DELIVERING:
            return _SOMEBODY
        receipt = settle_row(row)
    told = {"DELIVERED": "delivered", "UNDELIVERED": "delivered: no task waited any more"}
    return told[receipt] if receipt is not None else _SOMEBODY


def _saga(finding: Finding) -> Saga:
    if finding.saga is None:
        raise ValueError(f"{finding.id} is at home nowhere")
    return finding.saga
