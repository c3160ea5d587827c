"""Compensation of late effects, whether or not their saga is settled.

An execution of the recovery machine of its own undoes just those rows, by names that are counted up: ``{saga id}-l1``,
``-l2`` when the first one died, or when more took effect after it was over, and so on. Two who start it at once start
one; the rows keep every undo single.

When many of them could not, the record notes the last one's number: nothing asks for those again, and only an operator
starts the next one, when the cause is gone. So an effect that cannot be undone does not use up the quota of
``DescribeExecution``.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, Final

from saga_runtime.errors import Conflict
from saga_runtime.idempotency.record import RequestRecord
from saga_runtime.protocol import Direction, LogAttribute, RecordAttribute, Side, StartField, StepStatus
from saga_runtime.recovery.audit import NOTHING, Appended
from saga_runtime.recovery.takeover import Recoverer
from saga_runtime.shared.arns import execution_of
from saga_runtime.shared.expressions import update, when

MOST_TRIES: Final = 20
"""More executions than this that all died are a person's business."""
TRIES_GROW: Final = "#saga_id = :saga_id AND (attribute_not_exists(#late_tried) OR #late_tried <= :tried)"
_RUNNING: Final = frozenset({"RUNNING", "PENDING_REDRIVE"})


class LateFinding(StrEnum):
    """Results of a check for late effects."""

    NOTHING = "NOTHING"
    """No late effect, or it is compensated."""
    RUNNING = "RUNNING"
    """It is being undone."""
    STARTED = "STARTED"
    EXHAUSTED = "EXHAUSTED"
    """Twenty executions failed, or the request was removed: operator action is required."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LateUndo:
    """Result of a check.

    Attributes:
        finding: what was found.
        rows: rows with late effects.
        execution: name of the execution that undoes them.
        tried: number of the last execution that there was; 0: none was asked for.
    """

    finding: LateFinding
    rows: tuple[str, ...] = ()
    execution: str | None = None
    tried: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class LateLog:
    """Rows of a saga, as far as late effects need them.

    Attributes:
        late: sort keys of those with late effects.
        undone: how many are compensated.
        ends: of every row, when it expires, in epoch seconds; 0: never.
        needed: whether the saga may need late effects: then ``late`` has none.
    """

    late: tuple[str, ...]
    undone: int
    ends: Mapping[str, int]
    needed: bool = False


def undo_late(recoverer: Recoverer, record: RequestRecord, log_table: str, now_ms: int) -> LateUndo:
    """Find rows with late effects, and start the execution that compensates them.

    Safe at any time, any number of times, concurrently, next to any other execution of the saga.

    Args:
        recoverer: starts executions.
        record: the saga's record; unchanged, except for an operator's decision.
        log_table: the saga log.
        now_ms: the time.

    Raises:
        Conflict: an operator starts it, and the record changed since it was read. Nothing was written.
    """
    log = late_log(recoverer, record, log_table)
    rows = log.late
    if not rows:
        return LateUndo(finding=LateFinding.NOTHING)
    given_up, died = record.late_tried or 0, 0
    tried = given_up
    # An execution that succeeded compensated a row, and no row becomes late twice. Further ones compensate nothing:
    # their definition does not know the step any more.
    for number in range(given_up + 1, given_up + MOST_TRIES + log.undone + 1):
        name = late_name(record.saga_id, number)
        status = _status(recoverer, execution_of(record.recovery_machine_arn, name))
        if status in _RUNNING:
            return LateUndo(finding=LateFinding.RUNNING, rows=rows, execution=name)
        if status is None:
            if record.tombstone or (given_up and number == given_up + 1):
                break  # what it would be started with is gone; or an operator starts it
            if not recoverer.begins(record.recovery_machine_arn, name, late_input(record.input), record, now_ms):
                raise _changed(record)
            return LateUndo(finding=LateFinding.STARTED, rows=rows, execution=name)
        tried, died = number, died + (status != "SUCCEEDED")
        if died == MOST_TRIES:
            break
    return LateUndo(finding=LateFinding.EXHAUSTED, rows=rows, tried=tried)


def undo_again(recoverer: Recoverer, record: RequestRecord, log_table: str, now_ms: int) -> LateUndo:
    """Start the next execution after many failed to compensate late effects.

    An operator calls it when the cause is fixed. Before the limit, it does what ``undo_late`` does.
    Repeated, it starts the same execution: the record notes which ones could not before the next one is started, and
    with the same update the operator's decision.
    """
    undo = undo_late(recoverer, record, log_table, now_ms)
    if undo.finding is not LateFinding.EXHAUSTED or record.tombstone:
        return undo
    name = late_name(record.saga_id, undo.tried + 1)
    noted = recoverer.noted(f"started {name}, although {undo.tried} could not", record, now_ms)
    if not recoverer.updated(give_up_update(record, undo.tried, at_ms=None, more=noted)):
        raise _changed(record)
    recoverer.start(record.recovery_machine_arn, name, late_input(record.input))
    return LateUndo(finding=LateFinding.STARTED, rows=undo.rows, execution=name)


def _changed(record: RequestRecord) -> Conflict:
    return Conflict(f"the record of saga {record.saga_id} changed meanwhile; repeat this")


def give_up_update(record: RequestRecord, tried: int, *, at_ms: int | None, more: Appended = NOTHING) -> dict[str, Any]:
    """Arguments of the update that records which executions failed to compensate late effects.

    On condition that it is the same saga, and that no later one is recorded. Repeated, it writes the same.

    Args:
        record: as it was read.
        tried: number of the last one.
        at_ms: when it is checked again, epoch milliseconds; None: at the next check.
        more: what else is assigned, and its values.
    """
    a = RecordAttribute
    sets: dict[RecordAttribute, Any] = {a.LATE_TRIED: ":tried", **more[0]}
    if at_ms is not None:
        sets[a.LATE_AT] = {"N": str(at_ms)}
    grow = when(TRIES_GROW, saga_id={"S": record.saga_id}, tried={"N": str(tried)})
    change = update(grow, sets, removes=[a.LATE_AT] if at_ms is None else [], values=more[1])
    return {"Key": {a.ID: {"S": record.request_id}}, **change}


def late_name(saga_id: str, number: int) -> str:
    """Name of the n-th execution that compensates late effects."""
    if number < 1:
        raise ValueError(f"executions are numbered from 1, got {number}")
    return f"{saga_id}-l{number}"


def late_input(start_input: str) -> str:
    """Input of such an execution: the saga's input, with the mode for late effects."""
    return json.dumps(json.loads(start_input) | {StartField.LATE: True}, separators=(",", ":"))


def late_log(recoverer: Recoverer, record: RequestRecord, log_table: str) -> LateLog:
    """Read all rows of a saga strongly.

    Of a settled saga nothing else is undone any more: an undo that was begun and cut off is a late effect, too.
    """
    a = LogAttribute
    wanted = (StepStatus.APPLIED_LATE, *([StepStatus.COMPENSATING] if record.settled else []))
    found: list[str] = []
    ends: dict[str, int] = {}
    undone, beyond = 0, False
    asked: dict[str, Any] = {
        "TableName": log_table,
        "ConsistentRead": True,
        "KeyConditionExpression": "#saga_id = :saga_id",
        "ProjectionExpression": "#step, #status, #side, #expiration",
        "ExpressionAttributeNames": {f"#{name}": name for name in (a.SAGA_ID, a.STATUS, a.STEP, a.SIDE, a.EXPIRATION)},
        "ExpressionAttributeValues": {":saga_id": {"S": record.saga_id}},
    }
    for page in recoverer.dynamodb.get_paginator("query").paginate(**asked):
        for item in page["Items"]:
            step, status, side = item[a.STEP]["S"], item[a.STATUS]["S"], item.get(a.SIDE, {}).get("S")
            ends[step] = int(item[a.EXPIRATION]["N"]) if a.EXPIRATION in item else 0
            undone += status == StepStatus.COMPENSATED
            if status in wanted:
                found.append(step)
            # Of several pivots, one may be applied, and another one ahead.
            beyond |= side == Side.AFTER or (side == Side.PIVOT and status == StepStatus.DONE)
    needed = _may_need(record, beyond_a_pivot=beyond)
    return LateLog(late=() if needed else tuple(found), undone=undone, ends=ends, needed=needed)


def _may_need(record: RequestRecord, *, beyond_a_pivot: bool) -> bool:
    """Test whether a saga that only goes forward may need what a provider refused and did after all.

    Undone, it would keep the saga from ever settling. What the saga has skipped is undone when it has settled: one
    execution undoes all late effects of a saga. Behind a pivot, its direction may not be written yet.
    """
    if record.settled or record.direction is Direction.COMPENSATE:
        return False
    return record.direction is Direction.FORWARD or beyond_a_pivot


def _status(recoverer: Recoverer, execution_arn: str) -> str | None:
    try:
        return str(recoverer.step_functions.describe_execution(executionArn=execution_arn)["status"])
    except recoverer.step_functions.exceptions.ExecutionDoesNotExist:
        return None
