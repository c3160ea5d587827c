"""Stored forms of callbacks, for fixed inputs; a part of ``formats``."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from saga_runtime.callbacks.decisions import CONTRADICTED, LogChange
from saga_runtime.callbacks.notices import Notice, notice_delete
from saga_runtime.callbacks.rows import JobId, Marker, Outcome, TokenRow, alias_of, order_of
from saga_runtime.callbacks.saga_writes import LogPlace, SagaRecord, log_check
from saga_runtime.callbacks.unanswered import unanswered_entry
from saga_runtime.callbacks.writes import (
    Waiting,
    adopted_update,
    conflict_change,
    dispatch_error_update,
    early_put,
    heartbeat_update,
    keep_update,
    kept_change,
    late_change,
    listed_change,
    marker_put,
    not_due_update,
    settling_changes,
    token_check,
    token_put,
    token_update,
    told_update,
    unanswered_update,
)
from saga_runtime.idempotency.identity import step_key_of
from saga_runtime.protocol import RecordStatus, Side, StepStatus, TaskField, TokenAttribute, TokenStatus
from saga_runtime.saga_log.rows import LogRow, kept_update
from tests.unit.support.samples import NOW_MS, REQUEST_ID, SAGA_ID

JOB_ID = step_key_of(SAGA_ID, "Pick", item_key="sku-1")
JOB = JobId(saga_id=SAGA_ID, step="Pick", row_name="Pick[sku-1]")
TASK: dict[str, Any] = {
    TaskField.STARTED: "2023-11-14T22:13:20.123Z",
    TaskField.REDRIVEN: 1,
    TaskField.ENTERED: "2023-11-14T23:13:21.045+01:00",
    TaskField.RETRIED: 12,
}
DONE = Outcome.success('{"parcel":"p-1"}')
REFUSED = Outcome.failure("OutOfStock", "none left")
MARKER = Marker(integration="Shop-Warehouse", event_id="evt_1", job_id="pk_77", ok=True)
WAITING = Waiting(
    job_id=JOB_ID,
    saga_id=SAGA_ID,
    row_name=JOB.row_name,
    token="token-1",
    order=order_of(TASK),
    log_table="log",
    request_table="requests",
    execution=SAGA_ID,
    heartbeat_seconds=600,
    timeout_seconds=3_600,
    keep_days=400,
    dead_letters="https://sqs.example/dead",
)
NOTICE = Notice(
    job_id=JOB_ID,
    job=JOB,
    error=CONTRADICTED,
    detail="the row stays",
    outcome=REFUSED,
    requests="requests",
    execution=SAGA_ID,
)
FOUND = TokenRow(
    id=JOB_ID,
    status=TokenStatus.WAITING,
    updated_at=NOW_MS,
    token="token-0",
    order=f"{0:015d}.{0:06d}.{0:015d}.{0:06d}",
    waiting_since=NOW_MS - 5,
    expected_at=NOW_MS + 600_000 - 5,
)
EARLY = TokenRow(id=alias_of("Shop-Warehouse", "their-1"), status=TokenStatus.EARLY, updated_at=NOW_MS, outcome=DONE)
EXPIRING = replace(FOUND, expiration=NOW_MS // 1_000 + 1)
LATE = TokenRow(
    id=JOB_ID, status=TokenStatus.DELIVERING, updated_at=NOW_MS, token="t", order="o", applied_late_at=NOW_MS - 1
)


def callback_formats() -> dict[str, Any]:
    """All formats of callbacks, as the code makes them now."""
    return {**_tokens(), **_saga()}


def _tokens() -> dict[str, Any]:
    table, at = "tokens", NOW_MS + 5
    settling = settling_changes(FOUND, DONE, "evt_1", at)
    return {
        "order": order_of(TASK),
        "outcome, done": DONE.encode(),
        "outcome, refused": REFUSED.encode(),
        "waiting": WAITING.put(table, at),
        "waiting, newer": WAITING.replace(table, FOUND, at),
        "waiting, newer, and kept": WAITING.replace(table, EXPIRING, at),
        "waiting, again": WAITING.wait_anew(table, FOUND, at),
        "answered": WAITING.answer(table, FOUND, DONE, at),
        "marker": marker_put(table, MARKER, at),
        "marker, of an id that was used": marker_put(table, replace(MARKER, reused=True), at),
        "early": early_put(table=table, row_id=JOB_ID, outcome=DONE, event_id="evt_1", now_ms=at, keep_days=400),
        "unknown": early_put(
            table=table,
            row_id=alias_of("Shop-Warehouse", "their-1"),
            outcome=DONE,
            event_id="evt_1",
            now_ms=at,
            keep_days=400,
            more=listed_change(alias_of("Shop-Warehouse", "their-1"), at, 400),
        ),
        "notice": NOTICE.store(table, "https://sqs.example/operators", at, 400),
        "notice, sent": notice_delete(table, NOTICE.id),
        "unanswered, reported": unanswered_entry(FOUND, JOB, None, None, at),
        "early, and late": early_put(
            table=table, row_id=JOB_ID, outcome=REFUSED, event_id="evt_1", now_ms=at, keep_days=400, late=True
        ),
        "settling": token_update(table, FOUND, TokenStatus.DELIVERING, at, settling),
        "settling, and late": token_update(
            table, FOUND, TokenStatus.DELIVERING, at, {**settling, **late_change(JOB_ID, at)}
        ),
        "kept, and late": token_update(
            table, EXPIRING, EXPIRING.status, at, {**late_change(JOB_ID, at), **kept_change(EXPIRING, at, 400)}
        ),
        "kept for longer": keep_update(table, EXPIRING, at),
        "contradicted": token_update(table, LATE, LATE.status, at, conflict_change(REFUSED)),
        "settled": told_update(table, FOUND, TokenStatus.DELIVERED, at),
        "late, and due": told_update(table, LATE, TokenStatus.UNDELIVERED, at),
        "heartbeat": heartbeat_update(table, FOUND, at),
        "not due": not_due_update(table, LATE, at),
        "unanswered": unanswered_update(table, FOUND, at),
        "alias": token_put(
            table,
            alias_of("Shop-Warehouse", "their-1"),
            TokenStatus.ALIAS,
            at,
            400,
            {TokenAttribute.JOB_ID: {"S": JOB_ID}},
        ),
        "adopted": adopted_update(table, EARLY, JOB_ID, at),
        "adopted, both": adopted_update(table, replace(EARLY, conflict=REFUSED), JOB_ID, at),
        "checked, absent": token_check(table, JOB_ID, None),
        "checked, as read": token_check(table, JOB_ID, LATE),
        "dispatch error": dispatch_error_update(table, JOB_ID, "ConnectionError", at),
        "dispatch in doubt": dispatch_error_update(table, JOB_ID, "StepInDoubt: not yet", at, in_doubt=True),
    }


def _saga() -> dict[str, Any]:
    at = NOW_MS + 5
    place = LogPlace(table="log", job=JOB, side=Side.AFTER, attempt="attempt-1", keep_days=400)
    buried = LogRow(
        saga_id=SAGA_ID, step=JOB.row_name, status=StepStatus.TOMBSTONE, output='{"instead":true}', updated_at=NOW_MS
    )
    intent = LogRow(
        saga_id=SAGA_ID,
        step=JOB.row_name,
        status=StepStatus.INTENT,
        output=None,
        updated_at=NOW_MS,
        attempt="a",
        deadline=1,
        first_attempt_at=1,
    )
    record = SagaRecord(
        request_id=REQUEST_ID, saga_id=SAGA_ID, status=RecordStatus.IN_PROGRESS, parked_by="owner", parked_reason="{}"
    )
    settled = SagaRecord(
        request_id=REQUEST_ID,
        saga_id=SAGA_ID,
        status=RecordStatus.FAILED,
        expiration=NOW_MS // 1_000 + 400 * 86_400,
        response_expires_at=NOW_MS // 1_000,
    )
    return {
        "log: put done": place.entry(LogChange.PUT_DONE, None, DONE, at),
        "log: put read": place.entry(LogChange.PUT_READ, None, DONE, at),
        "log: put failed": place.entry(LogChange.PUT_FAILED, None, REFUSED, at),
        "log: applied late, and kept": place.entry(
            LogChange.APPLIED_LATE, replace(buried, expiration=NOW_MS // 1_000 + 1), DONE, at
        ),
        "log: kept for longer": kept_update("log", SAGA_ID, JOB.row_name, NOW_MS // 1_000, NOW_MS // 1_000 + 1),
        "log: done": place.entry(LogChange.DONE, intent, DONE, at),
        "log: failed": place.entry(LogChange.FAILED, intent, REFUSED, at),
        "log: applied late": place.entry(LogChange.APPLIED_LATE, buried, DONE, at),
        "log: unchanged": log_check("log", JOB, intent),
        "log: absent": log_check("log", JOB, None),
        "record: due": record.due("requests", at),
        "record: due, and not parked any more": record.due("requests", at, unpark=True),
        "record: kept": settled.kept("requests", at),
    }
