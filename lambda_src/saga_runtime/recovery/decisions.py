"""Reconciliation decisions for interrupted sagas, and their conditional updates. Pure: data in, data out.

::

    found                                     done
    settled, and still due                    not due any more
    parked                                    left; checked again later
    no such execution                         started, by the same name and with the same stored bytes
    the same, and an operator cancelled it    taken over, when no Express execution of it can run
    no such execution, and its name expired   parked
    its owner succeeded                       parked
    its owner may not be asked for, for long  parked
    nothing runs, and rows may be gone        parked
    running, or being redriven                checked again later
    the same, and an operator cancelled it    stopped
    ended without settling                    taken over; after too many recoveries parked

Every update requires that the record is as it was read, so each may be repeated, concurrently too.
``reconciler`` does the calls.
"""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, Final

from saga_runtime.idempotency.identity import is_saga_id
from saga_runtime.idempotency.record import OWNED, AttributeMap, RequestRecord, owned
from saga_runtime.protocol import LEAST_LOG_DAYS, RecordAttribute, RecordStatus
from saga_runtime.recovery.audit import NOTHING, Appended
from saga_runtime.recovery.takeover import Finding, express_ends_in, rows_are_kept_until
from saga_runtime.shared.expressions import update, when

LOOK_MS: Final = 60_000
"""Recheck interval of a young saga."""
LONGEST_LOOK_MS: Final = 15 * 60_000
"""Recheck interval of an old or parked saga, unless a deployment declares another one."""
DENIED_MS: Final = 15 * 60_000
"""Rights may be missing for a moment after a deployment. A saga that has been due for so long has been denied since."""
LONGEST_PAUSE_MS: Final = 3_600_000
"""Between recoveries that die, one after the other."""

STILL_IN_PROGRESS: Final = f"{OWNED} AND #due_at = :was"
STILL_SETTLED: Final = "#saga_id = :saga_id AND #status = :found AND #due_at = :was"
MAY_PARK: Final = f"{OWNED} AND attribute_not_exists(#parked_by) AND attribute_not_exists(#late_outcome_at)"
"""A callback that found no waiting task decided something that the parking execution does not know."""
MUST_PARK: Final = f"{OWNED} AND attribute_not_exists(#parked_by)"
"""For reasons that no callback changes: a saga made due by one would else be neither parked nor recovered."""
STILL_OPEN: Final = "#saga_id = :saga_id AND #status = :in_progress"

_DAY_MS: Final = 86_400_000
_DAY_SECONDS: Final = 86_400
_NAME: Final = re.compile(r"(?P<saga>[^-]+-[^-]+)(?:-.+)?")
_OWNER: Final = re.compile(r"[^-]+-[^-]+(?:-r[0-9]+)?")


class Need(StrEnum):
    """Actions for a saga."""

    NOTHING = "NOTHING"
    CLEAR = "CLEAR"
    """It need not be checked any more."""
    LOOK_LATER = "LOOK_LATER"
    START = "START"
    STOP = "STOP"
    """An operator cancelled it."""
    TAKE_OVER = "TAKE_OVER"
    PARK = "PARK"


class ParkedFor(StrEnum):
    """Why a saga is left to a person; the ``error`` of the record's ``parked_reason``."""

    RECOVERIES_EXHAUSTED = "RecoveriesExhausted"
    NAME_EXPIRED = "ExecutionNameExpired"
    OWNER_UNKNOWN = "OwnerUnknown"
    OWNER_SUCCEEDED = "OwnerSucceeded"
    ROWS_EXPIRED = "SagaLogExpired"


_SAID: Final = {
    ParkedFor.RECOVERIES_EXHAUSTED: "its recoveries ended without settling it, as often as is allowed",
    ParkedFor.NAME_EXPIRED: "its execution does not exist, and it may have run before",
    ParkedFor.OWNER_UNKNOWN: "its owner's execution may not be described: the record names another recovery machine",
    ParkedFor.OWNER_SUCCEEDED: "its owner succeeded, and so settled it: this record was restored, or edited",
    ParkedFor.ROWS_EXPIRED: "rows of its log may be gone, without which its steps could happen twice",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Found:
    """A request record, read strongly, with the attributes that only the reconciler needs.

    Attributes:
        record: the record.
        parked_at: epoch milliseconds since when it is parked; None: it is not.
        answered: whether a callback decided something since its owner last read.
    """

    record: RequestRecord
    parked_at: int | None = None
    answered: bool = False

    @classmethod
    def from_item(cls, item: AttributeMap) -> Found | None:
        """Read an item; None if it is not a saga's."""
        a = RecordAttribute
        if a.SAGA_ID not in item:
            return None
        return cls(
            record=RequestRecord.from_item(item),
            parked_at=int(item[a.PARKED_AT]["N"]) if a.PARKED_AT in item else None,
            answered=a.LATE_OUTCOME_AT in item,
        )

    def is_due(self, now_ms: int) -> bool:
        """Test whether it is due."""
        return self.record.due_at is not None and self.record.due_at <= now_ms


@dataclass(frozen=True, slots=True, kw_only=True)
class Decision:
    """Action for a saga.

    Attributes:
        need: the action.
        after_ms: delay until the next check (LOOK_LATER, STOP, TAKE_OVER).
        reason: reason of parking.
    """

    need: Need
    after_ms: int = 0
    reason: ParkedFor | None = None


def decide(found: Found, finding: Finding, *, now_ms: int, limit: int, longest_ms: int = LONGEST_LOOK_MS) -> Decision:
    """Decide the action for a saga.

    Before it is due, a saga is only started, taken over for the first time, or parked: another process checks it, or
    has just done so. A failed recovery is followed by the next one when the record is due, ever later.

    Args:
        found: the record.
        finding: what was found of its owner.
        now_ms: the time.
        limit: recoveries before it is parked.
        longest_ms: recheck interval of an old or parked saga.
    """
    record, due = found.record, found.is_due(now_ms)
    match finding:
        case Finding.SETTLED:
            return Decision(need=Need.CLEAR if due else Need.NOTHING)
        case Finding.PARKED:
            return _later(longest_ms, due=due)
        case Finding.RUNNING | Finding.NOT_STARTED if record.cancelled:
            return _of_cancelled(record, finding, now_ms, due=due)
        case Finding.RUNNING:
            return _later(look_again_after(now_ms - record.created_at, longest_ms), due=due)
        case Finding.NOT_STARTED:
            return Decision(need=Need.START)
        case Finding.NAME_EXPIRED:
            return Decision(need=Need.PARK, reason=ParkedFor.NAME_EXPIRED)
        case Finding.OWNER_UNKNOWN:
            return Decision(need=Need.PARK, reason=ParkedFor.OWNER_UNKNOWN)
        case Finding.OWNER_SUCCEEDED:
            return Decision(need=Need.PARK, reason=ParkedFor.OWNER_SUCCEEDED)
        case Finding.ROWS_EXPIRED:
            return Decision(need=Need.PARK, reason=ParkedFor.ROWS_EXPIRED)
        case Finding.DEAD if record.recoveries and not due:
            return Decision(need=Need.NOTHING)
        case Finding.DEAD if record.recoveries >= limit and not found.answered:
            return Decision(need=Need.PARK, reason=ParkedFor.RECOVERIES_EXHAUSTED)
        case Finding.DEAD:
            return Decision(need=Need.TAKE_OVER, after_ms=pause_after(record.recoveries + 1))


def _of_cancelled(record: RequestRecord, finding: Finding, now_ms: int, *, due: bool) -> Decision:
    """Decide about a cancelled saga: its first execution is stopped, or never started."""
    if finding is Finding.RUNNING:
        return Decision(need=Need.STOP, after_ms=LOOK_MS)
    if express_ms := express_ends_in(record, now_ms):
        return _later(express_ms, due=due)
    return Decision(need=Need.TAKE_OVER, after_ms=pause_after(record.recoveries + 1))


def _later(after_ms: int, *, due: bool) -> Decision:
    return Decision(need=Need.LOOK_LATER, after_ms=after_ms) if due else Decision(need=Need.NOTHING)


def look_again_after(age_ms: int, longest_ms: int = LONGEST_LOOK_MS) -> int:
    """Delay until the next check of a running saga: status events are faster, unless one is lost."""
    return max(LOOK_MS, min(age_ms // 10, longest_ms))


def pause_after(number: int) -> int:
    """Delay until the check after the n-th recovery started: its cause of failure may last for a while."""
    if number < 1:
        raise ValueError(f"recoveries are numbered from 1, got {number}")
    return int(min(LOOK_MS * 2 ** min(number - 1, 30), LONGEST_PAUSE_MS))


def saga_of_execution(name: str) -> str | None:
    """The saga of an execution, by its name; None: it is not a saga's.

    The first execution has the saga's id for a name; names of recoveries, children and compensations of late effects
    have a suffix.
    """
    match = _NAME.fullmatch(name)
    if match is None or not is_saga_id(match["saga"]):
        return None
    return match["saga"]


def was_owner(name: str) -> bool:
    """Test whether an execution of this name owns its saga, or did: the first one, or a recovery.

    Such a saga has a record for as long as it is in progress: without one, it was deleted. Compensations of
    late effects run when it may long have expired; children own nothing.
    """
    return _OWNER.fullmatch(name) is not None


def look_later_update(record: RequestRecord, now_ms: int, after_ms: int) -> dict[str, Any]:
    """Arguments of the update that postpones a saga's check; on condition that it was not made due meanwhile."""
    a = RecordAttribute
    as_read = owned(record.owner, STILL_IN_PROGRESS, was={"N": str(record.due_at)})
    return {"Key": {a.ID: {"S": record.request_id}}, **update(as_read, {a.DUE_AT: {"N": str(now_ms + after_ms)}})}


def clear_update(record: RequestRecord, more: Appended = NOTHING) -> dict[str, Any]:
    """Arguments of the update that removes a settled saga from the index; unless it was made due meanwhile."""
    a = RecordAttribute
    as_read = when(
        STILL_SETTLED, saga_id={"S": record.saga_id}, found={"S": record.status}, was={"N": str(record.due_at)}
    )
    change = update(as_read, more[0], removes=(a.DUE_AT, a.DUE_SHARD), values=more[1])
    return {"Key": {a.ID: {"S": record.request_id}}, **change}


def parked_reason_of(reason: ParkedFor) -> dict[str, str]:
    """Stored reason of a parked saga; it names no step."""
    return {"step": "", "error": reason, "detail": _SAID[reason]}


def park_update(record: RequestRecord, reason: ParkedFor, now_ms: int, more: Appended = NOTHING) -> dict[str, Any]:
    """Arguments of the update that leaves a saga to a person."""
    a = RecordAttribute
    now = {"N": str(now_ms)}
    change = update(
        owned(record.owner, MAY_PARK if reason is ParkedFor.RECOVERIES_EXHAUSTED else MUST_PARK),
        {
            a.PARKED_BY: {"S": record.owner},
            a.PARKED_AT: now,
            a.PARKED_REASON: {"S": json.dumps(parked_reason_of(reason))},
            a.UPDATED_AT: now,
            **more[0],
        },
        values=more[1],
    )
    return {"Key": {a.ID: {"S": record.request_id}}, **change}


def operators_entry(found: Found, reason: ParkedFor) -> str:
    """The entry in the operators' queue, in the form in which a state machine writes it.

    In ASCII: SQS refuses some characters that the reason of a failure may hold, and a saga would never be parked.
    """
    record = found.record
    entry = {
        "saga_id": record.saga_id,
        "request_id": record.request_id,
        "execution": record.owner,
        "parked_reason": parked_reason_of(reason),
        "failure": json.loads(record.failure or "{}"),
    }
    return json.dumps(entry, separators=(",", ":"))


def keeps_ahead_days(log_days: int) -> int:
    """Days before its end at which a row of an open saga is extended.

    Whenever a saga ends, so much of its rows' time is left, at least: for redriven executions, messages and answers
    that come after it.
    """
    return max(1, log_days // 2)


def may_forget(record: RequestRecord, now_ms: int) -> bool:
    """Test whether rows of an open saga are to be read again.

    Executions and queued jobs keep the ``log_days`` with which they began, so how long a row is kept when it is
    written is unknown, except that it is ``LEAST_LOG_DAYS``. Each is read, and extended, before half of these are over.
    """
    now, certain = now_ms // 1_000, LEAST_LOG_DAYS * _DAY_SECONDS
    until = rows_are_kept_until(record, LEAST_LOG_DAYS)
    return now >= until - certain // 2 or until > now + certain


def kept_until(now_ms: int, log_days: int) -> tuple[int, int]:
    """Rows that end before the first of these are extended to the second; epoch seconds.

    The first leaves ``keeps_ahead_days`` until the next time that they are read. It is ``LEAST_LOG_DAYS`` away or more.
    """
    ahead, unread = keeps_ahead_days(log_days) * _DAY_SECONDS, LEAST_LOG_DAYS * _DAY_SECONDS // 2
    now = now_ms // 1_000
    before = now + min(ahead + unread, log_days * _DAY_SECONDS)
    return before, max(before, now + 2 * ahead)


def rows_kept_update(record: RequestRecord, now_ms: int) -> dict[str, Any]:
    """Arguments of the update that records until when all rows of a saga are kept, after those that are there are.

    ``LEAST_LOG_DAYS``, and no longer: a row that is written next may have so many, whatever is deployed. On condition
    that it is the same saga, and open. A concurrent extension records the same.
    """
    a, until = RecordAttribute, now_ms // 1_000 + LEAST_LOG_DAYS * _DAY_SECONDS
    is_open = when(STILL_OPEN, saga_id={"S": record.saga_id}, in_progress={"S": RecordStatus.IN_PROGRESS})
    return {"Key": {a.ID: {"S": record.request_id}}, **update(is_open, {a.LOG_EXPIRES_AT: {"N": str(until)}})}
