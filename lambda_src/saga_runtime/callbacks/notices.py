"""Notices: entries for operators, stored in one transaction with what they are about, and sent by the sweeper.

So an outcome is stored whether or not a queue responds, and its provider need not report it again. A queue forgets an
entry; the notice of a contradicting outcome stays until an operator acknowledges that.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from botocore.exceptions import BotoCoreError, ClientError

from saga_runtime.callbacks.decisions import CONTRADICTED, conflict_id_of
from saga_runtime.callbacks.rows import JobId, Outcome, TokenRow
from saga_runtime.callbacks.writes import due_change, token_item, token_key
from saga_runtime.errors import TransientError
from saga_runtime.idempotency.identity import request_id_from
from saga_runtime.protocol import NOTICE_PREFIX, TokenAttribute, TokenStatus
from saga_runtime.shared import aws, telemetry
from saga_runtime.shared.expressions import update

_NO_QUEUE: Final = frozenset({"AWS.SimpleQueueService.NonExistentQueue", "QueueDoesNotExist"})


@dataclass(frozen=True, slots=True, kw_only=True)
class Notice:
    """An entry about a job's outcome, for the operators of its saga.

    Attributes:
        job_id, job: the job.
        error: ``CallbackContradicted`` or ``LateEffectRecorded``.
        detail: what happened.
        outcome: the reported outcome.
        requests: table of the saga's record.
        execution: name of the execution that waited; empty: none.
    """

    job_id: str
    job: JobId
    error: str
    detail: str
    outcome: Outcome
    requests: str
    execution: str

    @property
    def id(self) -> str:
        """Id of its row: the same for the same outcome of the job."""
        return f"{NOTICE_PREFIX}{self.job_id}#{self.error}#{conflict_id_of(self.job_id, self.outcome)}"

    @property
    def entry(self) -> str:
        """JSON text for the operators' queue."""
        body: dict[str, Any] = {
            "saga_id": self.job.saga_id,
            "request_id": request_id_from(self.job.saga_id),
            "execution": self.execution,
            "parked_reason": {"step": self.job.row_name, "error": self.error, "detail": self.detail},
            "failure": {},
        }
        if self.error == CONTRADICTED:
            body["conflict"] = {"job": self.job_id, "outcome": conflict_id_of(self.job_id, self.outcome)}
        return json.dumps(body, ensure_ascii=False)

    def store(self, table: str, queue_url: str, now_ms: int, keep_days: int) -> Any:
        """Store it, due now; unconditional: one that waits already stays as it is, and due since then."""
        a = TokenAttribute
        more: Mapping[TokenAttribute, Any] = {
            a.JOB_ID: {"S": self.job_id},
            a.ENTRY: {"S": self.entry},
            a.QUEUE_URL: {"S": queue_url},
            a.REQUEST_TABLE: {"S": self.requests},
            **due_change(self.id, now_ms),
        }
        item = token_item(self.id, TokenStatus.NOTICE, now_ms, keep_days, more)
        values = {str(name): value for name, value in item.items() if name != a.ID and value is not None}
        change = update({}, {name: f"if_not_exists(#{name}, :{name})" for name in values}, values=values)
        return {"Update": {"TableName": table, "Key": token_key(self.id), **change}}


def contradicting_outcome(row: TokenRow) -> str:
    """Id of the contradicting outcome that a notice is about; empty: it is about a late effect.

    Such a notice stays until an operator acknowledges that outcome. A late effect is in the index by its job's row.
    """
    error, _, outcome = row.id.removeprefix(f"{NOTICE_PREFIX}{row.job_id}#").partition("#")
    return outcome if error == CONTRADICTED else ""


def notice_delete(table: str, row_id: str) -> Any:
    """Delete a notice that is over; unconditional: another sweep may have deleted it."""
    return {"Delete": {"TableName": table, "Key": token_key(row_id)}}


def send_entry(url: str, entry: str, job_id: str) -> None:
    """Send an entry to a queue of operators; if that queue is gone with its saga or integration, to the log.

    Raises:
        TransientError: the queue did not respond: it is unknown whether it has the entry.
    """
    try:
        aws.sqs().send_message(QueueUrl=url, MessageBody=entry)
    except (ClientError, BotoCoreError) as error:
        if aws.error_code(error) in _NO_QUEUE:
            telemetry.event("operators_queue_missing", job_id=job_id)
            return
        if aws.is_transient(error):
            raise TransientError("the queue of operators did not answer") from error
        raise
