"""Registering who waits for a job, and under which ids its provider speaks of it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from saga_runtime.callbacks.decisions import Entry, Registration, answer_of, entry_of
from saga_runtime.callbacks.receipt import adopt
from saga_runtime.callbacks.rows import JobId, TokenRow, check_job_id
from saga_runtime.callbacks.saga_writes import log_check
from saga_runtime.callbacks.store import LOOKS, alias_id, read_log, read_token, token_table
from saga_runtime.callbacks.task_tokens import settle_row
from saga_runtime.callbacks.writes import (
    UNKNOWN_DAYS,
    Waiting,
    dispatch_error_update,
    kept_change,
    token_put,
    token_update,
    unknown_entry,
)
from saga_runtime.errors import StepInDoubt, TransientError
from saga_runtime.protocol import TokenAttribute, TokenStatus
from saga_runtime.shared import clock, telemetry
from saga_runtime.shared.backoff import PATIENT
from saga_runtime.shared.writes import transact, write


def register(waiting: Waiting) -> Registration:
    """Register a waiting task; if the job's outcome is known, deliver it.

    Guaranteed: of all attempts that ever registered, the newest one's token remains, in whatever order they came. A
    known outcome is never lost for it, and is delivered to it.

    Raises:
        TransientError: nothing is written, or it is unknown; register again.
    """
    table, row = token_table(), None
    for _ in range(LOOKS):
        now_ms = clock.now_ms()
        if row is None:
            refused = write(waiting.put(table, now_ms), retry=PATIENT)
            if refused is None:
                return _early(waiting, Registration.NEW)
            row = TokenRow.from_item(refused.item) if refused.item else read_token(waiting.job_id)
            if row is not None and _is_mine(row, waiting, now_ms):
                return _early(waiting, Registration.NEW)
            continue
        match entry_of(row, waiting.order):
            case Entry.OLD:
                return Registration.OLD
            case Entry.SAME:
                return _early(waiting, Registration.SAME)
            case Entry.TOLD:
                return Registration.ANSWERED
            case Entry.SEND_AGAIN:
                settle_row(row)
                return Registration.ANSWERED
            case Entry.REPLACE:
                if write(waiting.replace(table, row, now_ms), retry=PATIENT) is None:
                    telemetry.event("token_replaced", job_id=waiting.job_id)
                    # The older attempt's registration may have died before it took that up.
                    return _early(waiting, Registration.NEWER)
            case Entry.ANSWER:
                if _answered_before(waiting, row, now_ms):
                    return _early(waiting, Registration.NEWER)
        row = read_token(waiting.job_id)
    raise TransientError(f"the row of job {waiting.job_id} keeps changing")


def _answered_before(waiting: Waiting, row: TokenRow, now_ms: int) -> bool:
    """An outcome was delivered to an older attempt, or to none: deliver what counts by now, or wait again.

    Returns:
        Whether it waits: an operator has resolved the step since.
    """
    table = token_table()
    job = JobId(saga_id=waiting.saga_id, step=waiting.row_name.partition("[")[0], row_name=waiting.row_name)
    log = read_log(waiting.log_table, job)
    told = None if log is None else answer_of(log)
    entry = waiting.wait_anew(table, row, now_ms) if told is None else waiting.answer(table, row, told, now_ms)
    elsewhere = _kept_elsewhere(waiting, row, now_ms) if told is None else []
    refused = transact([entry, log_check(waiting.log_table, job, log), *elsewhere], retry=PATIENT)
    return refused is None and told is None


def _kept_elsewhere(waiting: Waiting, row: TokenRow, now_ms: int) -> Sequence[Any]:
    """Entry for an outcome in another saga's log: it becomes an unknown job's, for this task to adopt.

    Both sagas have a step of this name and one request table, and the receiver did not serve this one yet.
    """
    if row.status is not TokenStatus.EARLY or row.outcome is None or row.log_table in ("", waiting.log_table):
        return []
    table, row_id = token_table(), alias_id(waiting.job_id)
    outcomes = [row.outcome] if row.conflict is None else [row.outcome, row.conflict]
    found, event_id = read_token(row_id), row.event_id
    kept = unknown_entry(table=table, row_id=row_id, found=found, outcomes=outcomes, event_id=event_id, now_ms=now_ms)
    return [kept]


def _is_mine(row: TokenRow, waiting: Waiting, now_ms: int) -> bool:
    """Test whether a put was refused because of its own first try: its response was lost, and it was sent again."""
    waits = row.status is TokenStatus.WAITING and row.order == waiting.order
    return waits and row.token == waiting.token and row.created_at == now_ms


def _early(waiting: Waiting, done: Registration) -> Registration:
    return Registration.ANSWERED if adopt_unknown(waiting.job_id, waiting.keep_days) else done


def adopt_unknown(job_id: str, keep_days: int) -> bool:
    """Adopt what was reported of a job before its saga was served.

    Args:
        job_id: the job.
        keep_days: as of ``adopt_alias``.

    Returns:
        Whether there was something.

    Raises:
        Unserved: the saga's record is gone.
        TransientError: nothing is written, or it is unknown; call again.
    """
    found = read_token(alias_id(job_id))
    if found is None or found.status is TokenStatus.ALIAS:
        return False
    adopt_alias(job_id, job_id, keep_days)
    return True


def adopt_alias(provider_id: str, job_id: str, keep_days: int = UNKNOWN_DAYS) -> None:
    """Record a provider's own id of a job; an outcome stored under it becomes the job's.

    Args:
        provider_id: the id.
        job_id: the job.
        keep_days: how long the job's rows are kept from now: so is the id, and never for less than an outcome of an
            unknown job.

    Raises:
        Invalid: if it cannot be an id.
        StepInDoubt: if the provider used this id for another job.
        TransientError: nothing is written, or it is unknown; call again.
    """
    check_job_id(provider_id)
    table, row_id, days = token_table(), alias_id(provider_id), max(UNKNOWN_DAYS, keep_days)
    for _ in range(LOOKS):
        now_ms = clock.now_ms()
        more = {TokenAttribute.JOB_ID: {"S": job_id}}
        refused = write(token_put(table, row_id, TokenStatus.ALIAS, now_ms, days, more), retry=PATIENT)
        if refused is None:
            return
        row = TokenRow.from_item(refused.item) if refused.item else read_token(row_id)
        if row is None:
            continue
        if row.status is TokenStatus.ALIAS and row.job_id != job_id:
            raise StepInDoubt(f"the provider gave the id {provider_id} to two jobs; ask it which one it means")
        if row.status is TokenStatus.ALIAS:
            # Not for each of one day's repetitions.
            kept = kept_change(row, now_ms, days) if kept_change(row, now_ms, days - 1) else None
            if kept is None or write(token_update(table, row, row.status, now_ms, kept), retry=PATIENT) is None:
                return
            continue
        adopt(row, job_id)
    raise TransientError(f"the row of id {provider_id} keeps changing")


def record_dispatch_error(job_id: str, text: str, *, in_doubt: bool = False) -> None:
    """Record in a job's row that its dispatch failed, and why.

    Counted at least once. Nothing is written if the job was never registered.
    """
    write(dispatch_error_update(token_table(), job_id, text, clock.now_ms(), in_doubt=in_doubt), retry=PATIENT)
