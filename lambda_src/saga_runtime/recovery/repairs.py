"""Repairs of one saga that ``cdk-sagas doctor --repair`` asks for: what the reconciler does, and two more.

Each reads again, decides again and writes conditionally: whatever was found, what is done is right for what is there
by then. Two at once, or a repair and a reconciler, do what one does.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, Final

from saga_runtime.callbacks.rows import JobId
from saga_runtime.errors import Conflict
from saga_runtime.idempotency.identity import due_shard_of, request_id_from
from saga_runtime.idempotency.record import OWNED, AttributeMap, RequestRecord, owned
from saga_runtime.protocol import RecordAttribute
from saga_runtime.recovery.audit import NOTHING, Appended
from saga_runtime.recovery.decisions import Need, ParkedFor
from saga_runtime.recovery.late_effects import LateFinding, LateUndo, undo_late
from saga_runtime.recovery.operators_queue import queue_of
from saga_runtime.recovery.saga_reconciler import Caretaker, Served
from saga_runtime.recovery.takeover import Finding, Recoverer, recovery_name
from saga_runtime.shared import aws, writes
from saga_runtime.shared.clock import moment
from saga_runtime.shared.expressions import update

BY_ANOTHER: Final = "done by another process"
_LEFT: Final = re.compile(r"(\d+) left")
_NOTHING_LATE: Final = "it is undone by now"
GONE: Final = "its record is gone by now"


class Repair(StrEnum):
    """Repairs of ``--repair``."""

    RECONCILE = "reconcile"
    """What the reconciler does for the saga."""
    MAKE_DUE = "make due"
    DELIVER = "deliver"
    """Deliver the outcome."""
    SWEEP = "sweep"
    """What the sweeper does for a row of its table that is due."""
    COMPENSATE_LATE = "compensate late"
    CLEAR = "clear"
    """Delete entries of the operators' queue about sagas that are not parked any more."""


def is_looked_at(item: AttributeMap, shards: int) -> bool:
    """Test whether a reconciler ever finds a record in progress when it is due."""
    shard = str(item.get(RecordAttribute.DUE_SHARD, {}).get("S", ""))
    return RecordAttribute.DUE_AT in item and len(shard) == 2 and shard.isdecimal() and int(shard) < shards


def make_due_update(
    record: RequestRecord, item: AttributeMap, shard: str, now_ms: int, more: Appended = NOTHING
) -> dict[str, Any]:
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
    sets: dict[RecordAttribute, Any] = {a.DUE_AT: {"N": str(now_ms)}, a.DUE_SHARD: {"S": shard}, **more[0]}
    change = update(as_read, sets, values=more[1])
    return {"Key": {a.ID: {"S": record.request_id}}, **change}


@dataclass(frozen=True, slots=True, kw_only=True)
class Repairs:
    """Repairs one saga, with the clients of ``saga_runtime.shared.aws``; each returns in words what was done.

    Attributes:
        reconciler: reconciles it, in the name of the operator whose decisions these are.
        saga: where it is at home.
        now_ms: the time.
    """

    reconciler: Caretaker
    saga: Served
    now_ms: int

    def reconcile(self, saga_id: str, *, rows_end: bool = False) -> str:
        """Do what the reconciler does for the saga; empty: nothing can be done.

        Args:
            saga_id: which one it is.
            rows_end: whether it was found because rows of its log expire soon.
        """
        found = self.reconciler.read(self.saga.requests, request_id_from(saga_id))
        if found is None or found.record.saga_id != saga_id:
            return GONE
        seen = self.reconciler.look(self.saga, found, self.now_ms)
        if seen is None:
            return GONE
        record, need = seen.found.record, seen.decision.need
        # An owner that may not be described here may be described by the reconciler.
        if need is Need.PARK and (seen.decision.reason is ParkedFor.OWNER_UNKNOWN or not self.saga.operators):
            return ""
        done = self.reconciler.carry_out(seen)
        if rows_end:
            return "its rows are kept for longer"
        match need:
            case Need.CLEAR if done:
                return "not due any more"
            case Need.START if done:
                return f"started {record.owner}"
            case Need.STOP:
                return "stopped: an operator cancelled it"
            case Need.TAKE_OVER if done:
                return f"handed to {recovery_name(record.saga_id, record.recoveries + 1)}, which is started"
            case Need.PARK if done:
                return "parked, and the operators were notified"
            case Need.NOTHING if record.due_at is not None and seen.finding is Finding.DEAD:
                return f"left as it is until {moment(record.due_at)}: a recovery has just died"
            case _:
                return BY_ANOTHER

    def make_due(self, saga_id: str) -> str:
        """Make a record due that no reconciler would find."""
        request_id = request_id_from(saga_id)
        key: dict[str, dict[str, str]] = {RecordAttribute.ID: {"S": request_id}}
        item = aws.dynamodb().get_item(TableName=self.saga.requests, Key=key, ConsistentRead=True).get("Item")
        if item is None or item.get(RecordAttribute.SAGA_ID, {}).get("S") != saga_id:
            return GONE
        record = RequestRecord.from_item(item)
        if record.settled or is_looked_at(item, self.saga.shards):
            return BY_ANOTHER
        noted = self._recoverer().noted("made due", record, self.now_ms)
        change = make_due_update(record, item, due_shard_of(request_id, self.saga.shards), self.now_ms, noted)
        if writes.write({"Update": {"TableName": self.saga.requests, **change}}) is not None:
            return BY_ANOTHER
        return "due now: the next look finds it"

    def compensate_late(self, saga_id: str, *, tokens: str = "", job: str = "") -> str:
        """Start the compensation of the saga's late effects; empty: it is impossible.

        Args:
            saga_id: which one it is.
            tokens: token table, of a job's effect.
            job: id of that job's row.

        Raises:
            ValueError: if it is another saga's job, or in a table of none that is compensated.
        """
        if tokens:
            parsed = JobId.parse(job)
            if parsed is None or parsed.saga_id != saga_id:
                raise ValueError(f"job must be one of saga {saga_id}, got {job!r}; run cdk-sagas doctor again")
            if tokens not in self.saga.tokens:
                raise ValueError(
                    f"tokens must be a token table of jobs that saga {saga_id} compensates, got {tokens!r}; run "
                    "cdk-sagas doctor again"
                )
            late = self.reconciler.look_late(tokens, job)
            return _NOTHING_LATE if late is None else _undone(lambda: self.reconciler.undo(late, self.now_ms))
        found = self.reconciler.read(self.saga.requests, request_id_from(saga_id))
        if found is None or found.record.saga_id != saga_id:
            return ""
        record = found.record
        return _undone(lambda: undo_late(self._recoverer(), record, self.saga.log, self.now_ms))

    def _recoverer(self) -> Recoverer:
        return Recoverer(
            table=self.saga.requests,
            dynamodb=aws.dynamodb(),
            step_functions=aws.step_functions(),
            audit=self.reconciler.audit,
        )


def clear(url: str, served: Iterable[Served]) -> str:
    """Delete entries of an operators' queue that are over; returns in words how many.

    Args:
        url: of the queue.
        served: all sagas; those of the queue are chosen.
    """
    queue = queue_of(url, (saga for saga in served if saga.operators == url))
    queue.clear()
    more = "" if queue.complete else ", and there are more: repeat this"
    return f"{queue.deleted} deleted, {queue.left} left{more}"


def left_in(cleared: str) -> int | None:
    """The number of entries that are left, in the words of ``clear``; None: another release has others."""
    told = _LEFT.search(cleared)
    return int(told[1]) if told is not None else None


def _undone(act: Callable[[], LateUndo]) -> str:
    try:
        undo = act()
    except Conflict:
        return BY_ANOTHER
    match undo.finding:
        case LateFinding.NOTHING:
            return _NOTHING_LATE
        case LateFinding.STARTED:
            return f"being undone by {undo.execution}, which is started"
        case LateFinding.RUNNING:
            return f"being undone by {undo.execution}"
        case LateFinding.EXHAUSTED:
            return ""
