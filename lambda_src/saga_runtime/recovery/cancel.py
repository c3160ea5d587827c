"""Cancellation of a running saga before its pivot.

::

    operator      ONE conditional update: a reason of failure, a decision, due now; no direction
    then          the first execution is stopped, by the operator's command or by the reconciler
    recovery      as after any interruption: fences the pivot, compensates, and settles with that reason;
                  or finds the pivot applied, and goes forward

So the pivot's row decides: a cancellation interrupts the saga, and keeps the reason. An Express execution that runs
alongside cannot be stopped; rows and owner fence it.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Final

from saga_runtime.idempotency.record import OWNED, RequestRecord, owned
from saga_runtime.protocol import (
    SAGA_CANCELLED,
    Direction,
    LogAttribute,
    RecordAttribute,
    RecordStatus,
    Side,
    StepStatus,
)
from saga_runtime.recovery.audit import appended
from saga_runtime.recovery.takeover import Finding, Recoverer
from saga_runtime.shared.decisions import Audit
from saga_runtime.shared.expressions import Arguments, update

CANCELLED: Final = "cancelled"
"""The decision to cancel a saga."""
CANCELLABLE: Final = (
    f"{OWNED} AND attribute_not_exists(#parked_by) AND attribute_not_exists(#direction) "
    "AND attribute_not_exists(#failure)"
)
FAILURE: Final = {
    "step": "",
    "error": SAGA_CANCELLED,
    "detail": "the request was cancelled by an operator",
    "status": 422,
    "title": "The request was refused and has no remaining effects",
    "kind": "saga-refused",
}
"""Failure with which a recovery settles the saga: a client gets the problem document of a refusal."""
_WANTED: Final = "#side = :pivot AND #status = :done OR #status = :intent AND attribute_exists(#accepted_at)"
_UNDONE: Final = "what it did is undone by a request of its own"
_FORWARD: Final = f"saga {{}} only goes forward, behind its pivot; {_UNDONE}"


class CannotCancel(Exception):
    """The saga cannot be cancelled, and nothing was written; the message has the reason and the remedy."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Cancelled:
    """Result of a cancellation.

    Attributes:
        earlier: whether another call had cancelled the saga before.
        finding: what was found of its owner then.
        started: name of the execution that was started, if one was.
        jobs: rows of jobs without an outcome: each is compensated when its outcome is known.
    """

    earlier: bool
    finding: Finding
    started: str | None
    jobs: tuple[str, ...] = ()


def cancel_update(record: RequestRecord, audit: Audit, now_ms: int) -> Arguments:
    """Arguments of the ONE conditional update that cancels a saga, and makes it due.

    On condition that its first execution owns it, and neither a direction nor a failure is written.
    """
    a = RecordAttribute
    noted, values = appended(audit, CANCELLED, record, now_ms)
    now = {"N": str(now_ms)}
    change = update(
        owned(record.saga_id, CANCELLABLE),
        {a.FAILURE: {"S": json.dumps(FAILURE)}, a.DUE_AT: now, a.UPDATED_AT: now, **noted},
        values=values,
    )
    return {"Key": {a.ID: {"S": record.request_id}}, **change}


def cancel(recoverer: Recoverer, log_table: str, record: RequestRecord, audit: Audit, now_ms: int) -> Cancelled:
    """Cancel a saga, stop its execution, and recover it. To be repeated after a crash.

    Guaranteed: exactly one of the saga's cancellations is recorded. After it, the saga settles as failed without
    effects, or its pivot was applied and it goes forward, or it is parked. The reconciler continues what this call did
    not.

    Args:
        recoverer: reads and recovers.
        log_table: the saga log.
        record: the saga's record, read strongly.
        audit: who decides, and why.
        now_ms: the time.

    Raises:
        CannotCancel: if the saga was not cancelled before, and is settled, parked, taken over by a recovery, has a
            direction, or a pivot of it is applied already: nothing was written. If it was, and goes forward all the
            same, or has completed.
        MachineGone: if its state machine was deleted; it is cancelled then, if it is not refused.
    """
    earlier = record.was_cancelled
    if not earlier:
        _require_cancellable(record)
    pivot, jobs = _rows(recoverer, log_table, record.saga_id)
    if not earlier:
        if pivot:
            # Only to spare the saga an interruption: a pivot that is applied later is found by the recovery.
            raise CannotCancel(_FORWARD.format(record.saga_id))
        written = recoverer.updated(cancel_update(record, audit, now_ms))
        found = recoverer.read(record.request_id)
        if found is None or found.saga_id != record.saga_id:
            raise CannotCancel(f"the key of saga {record.saga_id} is another request's by now; inspect that one")
        record, earlier = found, not written
        if not written and not found.was_cancelled:
            _require_cancellable(found)
            raise CannotCancel(f"saga {record.saga_id} changed meanwhile; repeat this")
    finding, started = (Finding.SETTLED, None) if record.settled else recoverer.recover(record, now_ms)
    if finding is Finding.SETTLED and not record.settled:
        again = recoverer.read(record.request_id)
        if again is None or again.saga_id != record.saga_id or not again.settled:
            raise CannotCancel(f"saga {record.saga_id} changed meanwhile; repeat this")
        record = again
    if record.status is RecordStatus.COMPLETED:
        raise CannotCancel(f"saga {record.saga_id} was cancelled too late, and is settled as COMPLETED; {_UNDONE}")
    if record.direction is Direction.FORWARD:
        raise CannotCancel(f"saga {record.saga_id} was cancelled too late, behind its pivot; {_UNDONE}")
    return Cancelled(earlier=earlier, finding=finding, started=started, jobs=jobs)


def _rows(recoverer: Recoverer, log_table: str, saga_id: str) -> tuple[bool, tuple[str, ...]]:
    """Find an applied pivot, and rows of jobs that a provider accepted, and whose outcome is unknown."""
    a = LogAttribute
    answer = recoverer.dynamodb.query(
        TableName=log_table,
        ConsistentRead=True,
        KeyConditionExpression="#saga_id = :saga_id",
        FilterExpression=_WANTED,
        ProjectionExpression="#step, #status",
        ExpressionAttributeNames={f"#{name}": name for name in (a.SAGA_ID, a.STEP, a.SIDE, a.STATUS, a.ACCEPTED_AT)},
        ExpressionAttributeValues={
            ":saga_id": {"S": saga_id},
            ":pivot": {"S": Side.PIVOT},
            ":done": {"S": StepStatus.DONE},
            ":intent": {"S": StepStatus.INTENT},
        },
    )
    # Of a log of more than one page the rest is left to the recovery.
    jobs = tuple(item[a.STEP]["S"] for item in answer["Items"] if item[a.STATUS]["S"] == StepStatus.INTENT)
    return len(jobs) < len(answer["Items"]), jobs


def _require_cancellable(record: RequestRecord) -> None:
    saga = f"saga {record.saga_id}"
    if record.status is RecordStatus.COMPLETED:
        raise CannotCancel(f"{saga} is settled as COMPLETED; {_UNDONE}")
    if record.settled:
        raise CannotCancel(f"{saga} is settled as {record.status}: it has no effects to undo")
    if record.parked_by is not None:
        raise CannotCancel(f"{saga} is parked; resume it with cdk-sagas resolve: before its pivot it compensates")
    if record.direction is Direction.FORWARD:
        raise CannotCancel(_FORWARD.format(record.saga_id))
    if record.direction is Direction.COMPENSATE:
        raise CannotCancel(f"{saga} compensates already; wait until it is settled")
    if record.owner != record.saga_id:
        raise CannotCancel(f"{saga} was interrupted, and a recovery compensates it unless its pivot is applied; wait")
