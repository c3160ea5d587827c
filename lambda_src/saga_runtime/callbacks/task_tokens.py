"""Deliver job outcomes to waiting tasks.

A token is a capability: it is taken from its row, sent to Step Functions, and never shown.
"""

from __future__ import annotations

import json
from typing import Any, Final

from botocore.exceptions import BotoCoreError, ClientError

from saga_runtime.callbacks.decisions import Receipt
from saga_runtime.callbacks.rows import JobId, Outcome, TokenRow
from saga_runtime.callbacks.saga_writes import SagaRecord
from saga_runtime.callbacks.store import LOOKS, read_record, read_token, token_table
from saga_runtime.callbacks.writes import heartbeat_update, told_update
from saga_runtime.errors import TransientError, accepted_text
from saga_runtime.protocol import OUTPUT_FIELD, UNDO_STATE, Metric, RecordStatus, TokenStatus
from saga_runtime.shared import aws, clock, telemetry
from saga_runtime.shared.backoff import PATIENT
from saga_runtime.shared.writes import transact, write

NOBODY_WAITS: Final = frozenset({"TaskTimedOut", "InvalidToken", "TaskDoesNotExist"})
"""Error codes of Step Functions for a token whose task has ended, however it ended."""


aws.at_init(aws.step_functions)


def send_directly(token: str, outcome: Outcome) -> bool:
    """Deliver an outcome with a token; return whether a task waited.

    A second delivery finds no task: a task resumes once.

    Raises:
        TransientError: Step Functions did not respond: it is unknown whether the outcome was delivered.
    """
    if outcome.ok:
        output = json.dumps({OUTPUT_FIELD: json.loads(outcome.output)}, separators=(",", ":"), ensure_ascii=False)
        return _sent("SendTaskSuccess", lambda: aws.step_functions().send_task_success(taskToken=token, output=output))
    cause = json.dumps({"errorMessage": accepted_text(outcome.detail)}, ensure_ascii=False)
    return _sent(
        "SendTaskFailure",
        lambda: aws.step_functions().send_task_failure(taskToken=token, error=outcome.error, cause=cause),
    )


def _sent(operation: str, send: Any) -> bool:
    try:
        send()
    except (ClientError, BotoCoreError) as error:
        if aws.error_code(error) in NOBODY_WAITS:
            return False
        if aws.is_transient(error):
            telemetry.event("delivery_unconfirmed", operation=operation, error=type(error).__name__)
            raise TransientError("Step Functions did not answer") from None
        raise
    return True


def settle(job_id: str) -> Receipt | None:
    """Deliver a job's outcome, if it is known and undelivered; None: nothing was delivered.

    Guaranteed: the row is ``DELIVERED`` only after a delivery, ``UNDELIVERED`` only if it still holds the token that
    found no task; a newer attempt's token is used likewise.

    Raises:
        TransientError: Step Functions or the database did not answer; call again.
    """
    row = read_token(job_id)
    return None if row is None else settle_row(row)


def settle_row(row: TokenRow) -> Receipt | None:
    """``settle``, of a row that was just read or written."""
    for _ in range(LOOKS):
        if row.status is not TokenStatus.DELIVERING or row.outcome is None:
            return None
        told = send_directly(row.token, row.outcome)
        if _write_told(row, told=told):
            if not told:
                telemetry.count(Metric.CALLBACK_LATE, job_id=row.id)
            telemetry.event("callback_delivered", job_id=row.id, delivered=told)
            return Receipt.DELIVERED if told else Receipt.UNDELIVERED
        # Refused: a newer attempt waits, another sender delivered, or the job turned out to be a late effect.
        found = read_token(row.id)
        if found is None:
            return None
        if told and _is_said_late(found, row):
            # A concurrent sender used the token before it recorded DELIVERED; the outcome was delivered.
            write(told_update(token_table(), found, TokenStatus.DELIVERED, clock.now_ms()), retry=PATIENT)
            return Receipt.DELIVERED
        row = found
    raise TransientError(f"the row of job {row.id} keeps changing")


def _is_said_late(found: TokenRow, sent: TokenRow) -> bool:
    return found.status is TokenStatus.UNDELIVERED and found.order == sent.order


def _write_told(row: TokenRow, *, told: bool) -> bool:
    """Record whether a task waited; return whether this call recorded it, now or by a try without an answer."""
    now_ms, status = clock.now_ms(), TokenStatus.DELIVERED if told else TokenStatus.UNDELIVERED
    look = [] if told else _look_at_saga(row.id, row.request_table, now_ms)
    refused = transact([told_update(token_table(), row, status, now_ms), *look], retry=PATIENT)
    if refused is None:
        return True
    found = TokenRow.from_item(refused.item) if refused.item else None
    return found is not None and (found.status, found.order, found.updated_at) == (status, row.order, now_ms)


def nobody_waits(job_id: str, request_table: str) -> None:
    """Record that a job is decided and no task waits: its saga need not wait for an operator, either.

    Raises:
        TransientError: nothing is written, or it is unknown; call again.
    """
    for _ in range(LOOKS):
        look = _look_at_saga(job_id, request_table, clock.now_ms())
        if not look or transact(look, retry=PATIENT) is None:
            return
    raise TransientError(f"the record of job {job_id} keeps changing")


def _look_at_saga(job_id: str, request_table: str, now_ms: int) -> list[Any]:
    """No task waits: the saga must be checked, and need not wait for an operator's answer."""
    job = JobId.parse(job_id)
    record = read_record(request_table, job.saga_id) if job is not None else None
    if job is None or record is None or record.status is not RecordStatus.IN_PROGRESS:
        return []
    return [record.due(request_table, now_ms, unpark=parked_over(record, job), answered=True)]


def parked_over(record: SagaRecord, job: JobId) -> bool:
    """Test whether the saga waits for a person because of this job's step, or of its undo, which could not ask."""
    if not (record.parked_by and record.parked_reason):
        return False
    try:
        reason = json.loads(record.parked_reason)
    except ValueError:
        return False
    return (
        isinstance(reason, dict) and str(reason.get("step", "")).removeprefix(UNDO_STATE).partition("[")[0] == job.step
    )


def heartbeat_row(row: TokenRow) -> Receipt:
    """Send a heartbeat; return whether a task waits.

    Raises:
        TransientError: Step Functions or the database did not answer; call again.
    """
    if row.status is not TokenStatus.WAITING:
        return Receipt.DUPLICATE
    token = row.token
    if not _sent("SendTaskHeartbeat", lambda: aws.step_functions().send_task_heartbeat(taskToken=token)):
        return Receipt.UNDELIVERED
    # Refused: a newer attempt's row is more recent.
    write(heartbeat_update(token_table(), row, clock.now_ms()), retry=PATIENT)
    return Receipt.HEARTBEAT
