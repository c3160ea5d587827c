"""Writes of callbacks to a saga's own tables, its log and its request record. Pure: data in, data out.

Each write requires that the data is as read, and each is an entry of the transaction that changes the
token row, too.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from saga_runtime.callbacks.decisions import LogChange
from saga_runtime.callbacks.rows import JobId, Outcome
from saga_runtime.protocol import LogAttribute, RecordAttribute, RecordStatus, Side, StepStatus
from saga_runtime.saga_log.rows import NO_ROW, SAME_END, LogRow, log_key, row_put
from saga_runtime.shared.expressions import update, when

LATE_DAYS: Final = 7
"""A settled record is kept whole for so long, at least, after a job turned out to have taken effect late."""
SAME_LOG_ROW: Final = "#status = :found"
SAME_RECORD: Final = "#saga_id = :saga_id AND #status = :found"
SAME_RESPONSE: Final = "#response_expires_at = :was AND attribute_exists(#input)"
PARKED_ALIKE: Final = "#parked_by = :parked_by"
SAME_PARKING: Final = "#parked_by = :parked_by AND #parked_reason = :parked_reason"
NOT_PARKED: Final = "attribute_not_exists(#parked_by)"

_DAY_SECONDS: Final = 86_400


def log_check(table: str, job: JobId, found: LogRow | None) -> Any:
    """Change nothing, on condition that the saga log's row is as it was read; None: that it does not exist."""
    condition = when(NO_ROW) if found is None else when(SAME_LOG_ROW, found={"S": found.status})
    return {"ConditionCheck": {"TableName": table, "Key": log_key(job.saga_id, job.row_name), **condition}}


@dataclass(frozen=True, slots=True, kw_only=True)
class LogPlace:
    """Location of a job's row in the saga log, and the fields of its first write.

    Attributes:
        side: the step's position in its saga.
        attempt: who writes.
    """

    table: str
    job: JobId
    side: Side
    attempt: str
    keep_days: int

    def entry(self, change: LogChange, found: LogRow | None, outcome: Outcome, now_ms: int) -> Any:
        """The row's part of a receipt: the change, or the condition that the row is as it was read."""
        a = LogAttribute
        output = {a.OUTPUT: {"S": outcome.output}}
        error = {a.ERROR: {"S": outcome.error}, a.DETAIL: {"S": outcome.detail}}
        if found is None:
            match change:
                case LogChange.PUT_DONE:
                    return self._put(StepStatus.DONE, output, now_ms)
                case LogChange.PUT_READ:
                    return self._put(StepStatus.RECORDED, output, now_ms)
                case LogChange.PUT_FAILED:
                    return self._put(StepStatus.REFUSED, error, now_ms)
                case _:
                    raise ValueError(f"{change} needs a row, got none")
        match change:
            case LogChange.DONE:
                return self._update(StepStatus.DONE, found, output, now_ms)
            case LogChange.FAILED:
                return self._update(StepStatus.REFUSED, found, error, now_ms)
            case LogChange.APPLIED_LATE:
                kept = {} if found.output is None else {a.SUBSTITUTE: {"S": found.output}}
                return self._update(StepStatus.APPLIED_LATE, found, {**output, **kept}, now_ms, keeps=True)
            case LogChange.NONE:
                return log_check(self.table, self.job, found)
            case _:
                raise ValueError(f"{change} needs that there is no row, and it is {found.status}")

    def _put(self, status: StepStatus, said: Mapping[LogAttribute, Mapping[str, str]], now_ms: int) -> Any:
        return row_put(
            self.table,
            self.job.saga_id,
            self.job.row_name,
            status,
            self.side,
            now_ms,
            self.keep_days,
            self.attempt,
            said,
        )

    def _update(
        self,
        status: StepStatus,
        found: LogRow,
        said: Mapping[LogAttribute, Mapping[str, str]],
        now_ms: int,
        *,
        keeps: bool = False,
    ) -> Any:
        """Change the row; optionally keep it for as long from now as a new one, and never for less than it is kept."""
        a = LogAttribute
        new: dict[LogAttribute, Any] = {
            a.STATUS: {"S": status},
            a.ATTEMPT_ID: {"S": self.attempt},
            a.UPDATED_AT: {"N": str(now_ms)},
            **said,
        }
        as_read = when(SAME_LOG_ROW, found={"S": found.status})
        until = now_ms // 1000 + self.keep_days * _DAY_SECONDS
        if keeps and 0 < found.expiration < until:
            new[a.EXPIRATION] = {"N": str(until)}
            ends = {"N": str(found.expiration)}
            as_read = when(f"{SAME_LOG_ROW} AND {SAME_END}", found={"S": found.status}, ends=ends)
        return {
            "Update": {
                "TableName": self.table,
                "Key": log_key(self.job.saga_id, self.job.row_name),
                **update(as_read, new),
            }
        }


@dataclass(frozen=True, slots=True, kw_only=True)
class SagaRecord:
    """A saga's request record, as far as callbacks need it.

    Attributes:
        expiration: epoch seconds; 0: none.
        response_expires_at: until when a settled record is kept whole; epoch seconds; 0: it is not settled.
        parked_by: by which execution; empty: not parked.
        parked_reason: why, as it is stored.
    """

    request_id: str
    saga_id: str
    status: RecordStatus
    expiration: int = 0
    response_expires_at: int = 0
    parked_by: str = ""
    parked_reason: str = ""

    @classmethod
    def from_item(cls, item: Mapping[str, Mapping[str, Any]]) -> SagaRecord | None:
        """Read an item; None if it is not a saga's, or a tombstone: the input that a compensation needs is gone."""
        a = RecordAttribute
        if a.SAGA_ID not in item or a.STATUS not in item or a.INPUT not in item:
            return None
        return cls(
            request_id=item[a.ID]["S"],
            saga_id=item[a.SAGA_ID]["S"],
            status=RecordStatus(item[a.STATUS]["S"]),
            expiration=int(item[a.EXPIRATION]["N"]) if a.EXPIRATION in item else 0,
            response_expires_at=int(item[a.RESPONSE_EXPIRES_AT]["N"]) if a.RESPONSE_EXPIRES_AT in item else 0,
            parked_by=item[a.PARKED_BY]["S"] if a.PARKED_BY in item else "",
            parked_reason=item[a.PARKED_REASON]["S"] if a.PARKED_REASON in item else "",
        )

    def due(self, table: str, now_ms: int, *, unpark: bool = False, answered: bool = False) -> Any:
        """Make the saga due now; on condition that the record is as it was read.

        Args:
            table: the request table.
            now_ms: the time.
            unpark: also resume it: the cause of its parking is resolved.
            answered: keep it from being parked before it has gone on: its execution may be about to, unaware of what
                was just decided.
        """
        a = RecordAttribute
        sets: dict[RecordAttribute, Mapping[str, str]] = {
            a.DUE_AT: {"N": str(now_ms)},
            a.UPDATED_AT: {"N": str(now_ms)},
        }
        if answered:
            sets[a.LATE_OUTCOME_AT] = {"N": str(now_ms)}
        # Whether it is parked must be as read, too: a writer that read it before the parking would leave it parked.
        if not self.parked_by:
            return self._update(table, NOT_PARKED, sets)
        if not self.parked_reason:  # without a reason
            return self._update(table, PARKED_ALIKE, sets, parked_by={"S": self.parked_by})
        removes = (a.PARKED_BY, a.PARKED_AT, a.PARKED_REASON) if unpark else ()
        return self._update(
            table, SAME_PARKING, sets, removes, parked_by={"S": self.parked_by}, parked_reason={"S": self.parked_reason}
        )

    def kept(self, table: str, now_ms: int) -> Any | None:
        """Keep a settled record whole until a late effect is compensated; None: it is, for long enough."""
        until = now_ms // 1000 + LATE_DAYS * _DAY_SECONDS
        if not self.response_expires_at or self.response_expires_at >= until:
            return None
        a = RecordAttribute
        sets: dict[RecordAttribute, Mapping[str, str]] = {
            a.RESPONSE_EXPIRES_AT: {"N": str(until)},
            a.EXPIRATION: {"N": str(max(self.expiration, until))},
        }
        return self._update(table, SAME_RESPONSE, sets, was={"N": str(self.response_expires_at)})

    def _update(
        self,
        table: str,
        condition: str,
        sets: Mapping[RecordAttribute, Mapping[str, str]],
        removes: Sequence[RecordAttribute] = (),
        **values: Mapping[str, str],
    ) -> Any:
        as_read = when(
            f"{SAME_RECORD} AND {condition}", saga_id={"S": self.saga_id}, found={"S": self.status}, **values
        )
        change = update(as_read, sets, removes=removes)
        return {"Update": {"TableName": table, "Key": {RecordAttribute.ID: {"S": self.request_id}}, **change}}
