"""The conditional writes to the token table, as entries of a transaction. Pure: data in, data out.

Each one requires that the data is as read. A refused one changes nothing, and its writer reads
again and decides again.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from saga_runtime.callbacks.rows import Marker, Outcome, TokenRow
from saga_runtime.idempotency.identity import due_shard_of
from saga_runtime.protocol import (
    DELIVERING_SECONDS,
    MAX_OUTPUT_BYTES,
    TOKEN_DUE_SHARDS,
    TokenAttribute,
    TokenStatus,
)
from saga_runtime.saga_log.rows import SAME_END, longer_end
from saga_runtime.shared.expressions import RETURNS_ITEM, Arguments, update, when

MARKER_DAYS: Final = 430
"""For so long a redelivered event is recognized: longer than a reviewer's decision is kept (400
days), which is applied again if it is found without a receipt."""
UNKNOWN_DAYS: Final = 400
"""For so long an outcome of an unknown job is kept."""
MAX_DISPATCH_ERROR: Final = 1_000

ABSENT: Final = "attribute_not_exists(#id)"
SAME_ATTEMPT: Final = "#status = :found AND #attempt_order = :held"
"""Still in the state, and still of the attempt, that was read."""
NOBODY_YET: Final = "#status = :found AND attribute_not_exists(#attempt_order)"
NOT_LATE: Final = "attribute_not_exists(#applied_late_at)"
STILL_LATE: Final = "#applied_late_at = :late"

_DAY_SECONDS: Final = 86_400
Value = Mapping[str, Any] | None


def token_key(row_id: str) -> dict[str, dict[str, str]]:
    """Primary key of a token row."""
    return {TokenAttribute.ID: {"S": row_id}}


def marker_put(table: str, marker: Marker, now_ms: int) -> Any:
    """Record that an event was received; on condition that its id was not."""
    a = TokenAttribute
    more: dict[TokenAttribute, Value] = {
        a.EVENT_ID: {"S": marker.event_id},
        a.JOB_ID: {"S": marker.job_id},
        a.OK: {"BOOL": marker.ok},
    }
    return token_put(table, marker.id, TokenStatus.EVENT, now_ms, MARKER_DAYS, more)


def token_put(
    table: str, row_id: str, status: TokenStatus, now_ms: int, keep_days: int, more: Mapping[TokenAttribute, Value]
) -> Any:
    """A row's first write, on condition that it does not exist."""
    item = token_item(row_id, status, now_ms, keep_days, more)
    return {"Put": {"TableName": table, "Item": item, **when(ABSENT), **RETURNS_ITEM}}


def token_item(
    row_id: str, status: TokenStatus, now_ms: int, keep_days: int, more: Mapping[TokenAttribute, Value]
) -> dict[str, Value]:
    """A new row."""
    a = TokenAttribute
    return {
        **token_key(row_id),
        a.STATUS: {"S": status},
        **{name: value for name, value in more.items() if value is not None},
        a.CREATED_AT: {"N": str(now_ms)},
        a.UPDATED_AT: {"N": str(now_ms)},
        a.EXPIRATION: {"N": str(now_ms // 1000 + keep_days * _DAY_SECONDS)},
    }


@dataclass(frozen=True, slots=True, kw_only=True)
class Waiting:
    """A task that waits for a job.

    Attributes:
        job_id: the job, by its step key.
        saga_id, row_name: the job's row in the saga log.
        token: completes the task; never shown, never logged.
        order: which attempt at the job this is (``order_of``).
        log_table, request_table: the saga's.
        execution: name of the execution that waits.
        heartbeat_seconds: how long it waits without a heartbeat.
        timeout_seconds: how long it waits.
        keep_days: how long the row is kept: as long as the saga log's.
        dead_letters: of a job, URL of the queue to notify if it is never reported; empty: none.
        max_output: bytes that its output may have: with all others it must fit into a state.
    """

    job_id: str
    saga_id: str
    row_name: str
    token: str
    order: str
    log_table: str
    request_table: str
    execution: str
    heartbeat_seconds: int
    timeout_seconds: int
    keep_days: int
    dead_letters: str = ""
    max_output: int = MAX_OUTPUT_BYTES

    def __repr__(self) -> str:
        return f"Waiting(job_id={self.job_id!r}, order={self.order!r})"

    def put(self, table: str, now_ms: int) -> Any:
        """Register the first task; on condition that no task waited, and no outcome is known."""
        return token_put(table, self.job_id, TokenStatus.WAITING, now_ms, self.keep_days, self._waits(now_ms))

    def replace(self, table: str, found: TokenRow, now_ms: int) -> Any:
        """Wait in the place of an older attempt; on condition that it still waits."""
        return token_update(table, found, TokenStatus.WAITING, now_ms, self._waits_in(found, now_ms))

    def wait_anew(self, table: str, found: TokenRow, now_ms: int) -> Any:
        """Wait again after an operator resolved the delivered outcome."""
        a = TokenAttribute
        changes = self._waits_in(found, now_ms) | {a.OUTCOME: None, a.EVENT_ID: None}
        return token_update(table, found, TokenStatus.WAITING, now_ms, changes)

    def answer(self, table: str, found: TokenRow, told: Outcome, now_ms: int) -> Any:
        """Register with a known outcome; on condition that it is being delivered, or was, to the same attempt."""
        a = TokenAttribute
        settling = due_change(self.job_id, now_ms + DELIVERING_SECONDS * 1000) | {a.OUTCOME: {"S": told.encode()}}
        changes = self._waits_in(found, now_ms) | settling | {a.EXPECTED_AT: None}
        return token_update(table, found, TokenStatus.DELIVERING, now_ms, changes)

    def _waits_in(self, found: TokenRow, now_ms: int) -> dict[TokenAttribute, Value]:
        """A row that there was is kept for as long as a new one."""
        return self._waits(now_ms) | kept_change(found, now_ms, self.keep_days)

    def _waits(self, now_ms: int) -> dict[TokenAttribute, Value]:
        a = TokenAttribute
        expected_at = now_ms + self.heartbeat_seconds * 1000
        return {
            a.TOKEN: {"S": self.token},
            a.ATTEMPT_ORDER: {"S": self.order},
            a.LOG_TABLE: {"S": self.log_table},
            a.REQUEST_TABLE: {"S": self.request_table},
            a.EXECUTION: {"S": self.execution},
            a.WAITING_SINCE: {"N": str(now_ms)},
            a.EXPECTED_AT: {"N": str(expected_at)},
            a.WAIT_EXPIRES_AT: {"N": str(now_ms + self.timeout_seconds * 1000)},
            a.HEARTBEAT_AT: None,
            a.DEAD_LETTER_QUEUE_URL: {"S": self.dead_letters} if self.dead_letters else None,
            a.REPORTED_UNANSWERED_AT: None,
            a.MAX_OUTPUT: {"N": str(self.max_output)},
            **due_change(self.job_id, expected_at),
        }


def early_put(
    *,
    table: str,
    row_id: str,
    outcome: Outcome,
    event_id: str,
    now_ms: int,
    keep_days: int,
    late: bool = False,
    more: Mapping[TokenAttribute, Value] | None = None,
) -> Any:
    """Store an outcome for which no task waits yet; on condition that there is no row."""
    said: dict[TokenAttribute, Value] = {
        TokenAttribute.OUTCOME: {"S": outcome.encode()},
        TokenAttribute.EVENT_ID: {"S": event_id},
    }
    due = late_change(row_id, now_ms) if late else {}
    return token_put(table, row_id, TokenStatus.EARLY, now_ms, keep_days, {**said, **(more or {}), **due})


def settling_changes(found: TokenRow, told: Outcome, event_id: str, now_ms: int) -> dict[TokenAttribute, Value]:
    """Attributes of ``DELIVERING``."""
    a = TokenAttribute
    return {
        a.OUTCOME: {"S": told.encode()},
        a.EVENT_ID: {"S": event_id},
        a.EXPECTED_AT: None,
        **due_change(found.id, now_ms + DELIVERING_SECONDS * 1000),
    }


def told_update(table: str, found: TokenRow, status: TokenStatus, now_ms: int) -> Any:
    """Record a delivery (DELIVERED), or that no task waits (UNDELIVERED).

    On condition that the row still holds the token that was used. The token is removed. The row stays due after a
    late effect, until that is compensated.
    """
    a = TokenAttribute
    changes: dict[TokenAttribute, Value] = {a.TOKEN: None}
    if not found.applied_late_at:
        changes |= {a.DUE_AT: None, a.DUE_SHARD: None}
    return token_update(table, found, status, now_ms, changes)


def heartbeat_update(table: str, found: TokenRow, now_ms: int) -> Any:
    """Record a heartbeat; on condition that the same task still waits."""
    a = TokenAttribute
    expected_at = now_ms + found.expected_at - (found.heartbeat_at or found.waiting_since)
    changes: dict[TokenAttribute, Value] = {
        a.HEARTBEAT_AT: {"N": str(now_ms)},
        a.EXPECTED_AT: {"N": str(expected_at)},
        **due_change(found.id, expected_at),
    }
    return token_update(table, found, found.status, now_ms, changes)


def not_due_update(table: str, found: TokenRow, now_ms: int) -> Any:
    """Remove a row from the index; on condition that it is as it was read."""
    a = TokenAttribute
    changes: dict[TokenAttribute, Value] = {a.DUE_AT: None, a.DUE_SHARD: None, a.APPLIED_LATE_AT: None}
    return token_update(table, found, found.status, now_ms, changes)


def unanswered_update(table: str, found: TokenRow, now_ms: int) -> Any:
    """Record that a job was reported as unanswered; on condition that the same task waits, without an outcome.

    The row leaves the index; an outcome that arrives after all finds it as it is.
    """
    a = TokenAttribute
    changes: dict[TokenAttribute, Value] = {
        a.REPORTED_UNANSWERED_AT: {"N": str(now_ms)},
        a.DUE_AT: None,
        a.DUE_SHARD: None,
    }
    return token_update(table, found, found.status, now_ms, changes)


def adopted_update(table: str, found: TokenRow, job_id: str, now_ms: int) -> Any:
    """Record the job of a provider's own id, and that the job has the outcomes stored under it.

    On condition that it had no job, and that the other outcome is as read. An operator may have forgotten it since it
    was read: the outcomes are still there.
    """
    a = TokenAttribute
    sets: dict[TokenAttribute, Any] = {
        a.JOB_ID: {"S": job_id},
        a.STATUS: {"S": TokenStatus.ALIAS},
        a.UPDATED_AT: {"N": str(now_ms)},
    }
    removes = (a.OUTCOME, a.CONFLICT, a.DUE_AT, a.DUE_SHARD, a.FORGOTTEN_AT)
    unknown, values = _unknown_as_read(found)
    change = update(when(unknown, **values), sets, removes=removes)
    return {"Update": {"TableName": table, "Key": token_key(found.id), **change}}


def forgotten_update(table: str, found: TokenRow, decisions: Mapping[str, Any], now_ms: int) -> Any:
    """Take what was reported of an unknown job out of the index, and keep who decided that.

    On condition that it has no job, so that its first outcome is as read, and that the other one and the decisions are.
    The outcomes stay: a job that registers later receives them.
    """
    a = TokenAttribute
    unknown, values = _unknown_as_read(found)
    before = "attribute_not_exists(#decisions)"
    if found.decisions is not None:
        before = "#decisions = :before"
        values["before"] = found.decisions
    condition = when(f"{unknown} AND {before}", **values)
    sets: dict[TokenAttribute, Any] = {
        a.FORGOTTEN_AT: {"N": str(now_ms)},
        a.DECISIONS: decisions,
        a.UPDATED_AT: {"N": str(now_ms)},
    }
    change = update(condition, sets, removes=(a.DUE_AT, a.DUE_SHARD))
    return {"Update": {"TableName": table, "Key": token_key(found.id), **change}}


def _unknown_as_read(found: TokenRow) -> tuple[str, dict[str, Any]]:
    """Condition that a row is still an unknown job's, and that no other outcome was stored since it was read."""
    values: dict[str, Any] = {"found": {"S": TokenStatus.EARLY}}
    contradicts = "attribute_not_exists(#conflict)"
    if found.conflict is not None:
        contradicts = "#conflict = :contradicts"
        values["contradicts"] = {"S": found.conflict.encode()}
    return f"#status = :found AND {contradicts}", values


def token_update(
    table: str, found: TokenRow, status: TokenStatus, now_ms: int, changes: Mapping[TokenAttribute, Value]
) -> Any:
    """Change a row; on condition that its state, its attempt, its late effect, and a new expiration are as read."""
    a = TokenAttribute
    changes = {**changes, a.STATUS: {"S": status}, a.UPDATED_AT: {"N": str(now_ms)}}
    sets = {name: value for name, value in changes.items() if value is not None}
    removes = [name for name, value in changes.items() if value is None]
    change = update(_as_read(found, end=a.EXPIRATION in changes) | RETURNS_ITEM, sets, removes=removes)
    return {"Update": {"TableName": table, "Key": token_key(found.id), **change}}


def keep_update(table: str, found: TokenRow, now_ms: int) -> Any | None:
    """Keep a row that operators need for as long as it is due; None: it is kept for long enough.

    On condition that it exists, and was not extended meanwhile. Repeated until it is not due any
    more, each time long before it expires.
    """
    until = longer_end(found.expiration, now_ms)
    if until is None:
        return None
    condition = when(SAME_END, ends={"N": str(found.expiration)})
    change = update(condition, {TokenAttribute.EXPIRATION: {"N": str(until)}})
    return {"Update": {"TableName": table, "Key": token_key(found.id), **change}}


def kept_change(found: TokenRow, now_ms: int, keep_days: int) -> dict[TokenAttribute, Value]:
    """The expiration of a row that has to be kept for so many days from now; none if it is, or never expires."""
    until = now_ms // 1000 + keep_days * _DAY_SECONDS
    return {TokenAttribute.EXPIRATION: {"N": str(until)}} if 0 < found.expiration < until else {}


def token_check(table: str, row_id: str, found: TokenRow | None) -> Any:
    """Change nothing, on condition that the row is as it was read; None: that it does not exist."""
    condition = when(ABSENT) if found is None else _as_read(found)
    return {"ConditionCheck": {"TableName": table, "Key": token_key(row_id), **condition}}


def _as_read(found: TokenRow, *, end: bool = False) -> Arguments:
    values: dict[str, dict[str, str]] = {"found": {"S": found.status}}
    same, late = NOBODY_YET, NOT_LATE
    if found.order:
        same = SAME_ATTEMPT
        values["held"] = {"S": found.order}
    if found.applied_late_at:
        late = STILL_LATE
        values["late"] = {"N": str(found.applied_late_at)}
    if end:
        late = f"{late} AND {SAME_END}"
        values["ends"] = {"N": str(found.expiration)}
    return when(f"{same} AND {late}", **values)


def conflict_change(outcome: Outcome) -> dict[TokenAttribute, Value]:
    """Attributes of an outcome that contradicts the kept one."""
    return {TokenAttribute.CONFLICT: {"S": outcome.encode()}}


def unknown_entry(
    *, table: str, row_id: str, found: TokenRow | None, outcomes: Sequence[Outcome], event_id: str, now_ms: int
) -> Any:
    """Store outcomes of an unknown job with what is stored of it; on condition that this is as it was read.

    Operators see both outcomes if they contradict each other, also if they have forgotten the first one. Both are kept
    for as long from now as the first one was. A row of an earlier job's outcomes, which that job has, is used again.
    """
    kept = found.outcome if found is not None else None
    first, *others = outcomes if kept is None else [kept, *outcomes]
    opposite = next((one for one in others if one.ok != first.ok), None)
    listed = listed_change(row_id, now_ms, UNKNOWN_DAYS)
    contradicts = {} if opposite is None else conflict_change(opposite)
    if found is None:
        more = {**listed, **contradicts}
        return early_put(
            table=table,
            row_id=row_id,
            outcome=first,
            event_id=event_id,
            now_ms=now_ms,
            keep_days=UNKNOWN_DAYS,
            more=more,
        )
    if kept is not None and opposite in (None, found.conflict):
        return token_check(table, row_id, found)
    a = TokenAttribute
    said: dict[TokenAttribute, Value] = {a.OUTCOME: {"S": first.encode()}, a.EVENT_ID: {"S": event_id}}
    changes = {**contradicts, **listed, **kept_change(found, now_ms, UNKNOWN_DAYS), a.FORGOTTEN_AT: None}
    return token_update(table, found, TokenStatus.EARLY, now_ms, {**(said if kept is None else {}), **changes})


def late_change(row_id: str, now_ms: int) -> dict[TokenAttribute, Value]:
    """Attributes of a late effect: the row is due from now on, until it is compensated."""
    return {TokenAttribute.APPLIED_LATE_AT: {"N": str(now_ms)}, **due_change(row_id, now_ms)}


def listed_change(row_id: str, now_ms: int, keep_days: int) -> dict[TokenAttribute, Value]:
    """Attributes of a row for operators only: it is in the index, and due when it expires."""
    return due_change(row_id, now_ms + keep_days * _DAY_SECONDS * 1000)


def due_change(row_id: str, due_at: int) -> dict[TokenAttribute, Value]:
    """Attributes of a row in the index."""
    a = TokenAttribute
    return {a.DUE_AT: {"N": str(due_at)}, a.DUE_SHARD: {"S": due_shard_of(row_id, TOKEN_DUE_SHARDS)}}


def dispatch_error_update(table: str, job_id: str, text: str, now_ms: int, *, in_doubt: bool = False) -> Any:
    """Count a failed dispatch, and record the last one's error; on condition that the job is registered.

    Keep the earlier error if this delivery only found another attempt in progress.
    """
    a = TokenAttribute
    change = update(
        when("attribute_exists(#id)"),
        {
            a.DISPATCH_ERROR: "if_not_exists(#dispatch_error, :error)" if in_doubt else ":error",
            a.UPDATED_AT: {"N": str(now_ms)},
        },
        adds={a.FAILED_DISPATCHES: {"N": "1"}},
        values={"error": {"S": text[:MAX_DISPATCH_ERROR]}},
    )
    return {"Update": {"TableName": table, "Key": token_key(job_id), **change}}
