"""Adoption: a saga whose state machine was deleted moves to another one that writes the same saga log.

ONE conditional update of the record, then the next recovery is started by its name. After a crash in between, repeat
it: what is written already is found written.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final

from saga_runtime.idempotency.record import RequestRecord
from saga_runtime.protocol import LEAST_LOG_DAYS, LogAttribute
from saga_runtime.protocol import RecordAttribute as A
from saga_runtime.recovery.audit import Appended, appended
from saga_runtime.recovery.takeover import (
    Finding,
    Recoverer,
    may_have_forgotten,
    recovery_name,
    rows_are_kept_until,
    what_to_do,
)
from saga_runtime.shared.arns import execution_of, machine_of
from saga_runtime.shared.decisions import Audit
from saga_runtime.shared.expressions import update, when

_DAY_SECONDS: Final = 86_400
_ADOPTABLE: Final = frozenset({Finding.PARKED, Finding.NOT_STARTED, Finding.NAME_EXPIRED, Finding.DEAD})


class CannotAdopt(Exception):
    """The saga cannot be moved, and nothing was written; the message has the reason and the remedy."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Target:
    """The state machines that a saga is moved to.

    Attributes:
        forward, recovery: their ARNs.
        log: the saga log that both of them write.
        log_days: how long its rows are kept; None: not known.
    """

    forward: str
    recovery: str
    log: str
    log_days: int | None


def adopt_update(
    record: RequestRecord, target: Target, kept_until: int, now_ms: int, due_after_ms: int, more: Appended | None = None
) -> dict[str, Any]:
    """Arguments of the ONE conditional update that moves a saga to other state machines.

    A saga in progress gets its next recovery as its owner, and is not parked any more: what its old state machines
    started is fenced; and it gets the time until which its rows are kept, epoch seconds: the new ones may keep theirs
    for longer. A settled one keeps everything else: only late effects are still compensated.
    """
    as_read = when(
        "#saga_id = :saga_id AND #status = :status AND #owner = :was_owner "
        "AND #execution_arn = :was_execution_arn AND #recovery_machine_arn = :was_recovery_machine_arn "
        f"AND attribute_{'not_' if record.parked_by is None else ''}exists(#parked_by)",
        saga_id={"S": record.saga_id},
        status={"S": record.status},
        was_owner={"S": record.owner},
        was_execution_arn={"S": record.execution_arn},
        was_recovery_machine_arn={"S": record.recovery_machine_arn},
    )
    noted, values = more or ({}, {})
    sets: dict[A, Any] = {
        **noted,
        A.EXECUTION_ARN: {"S": execution_of(target.forward, record.saga_id)},
        A.RECOVERY_MACHINE_ARN: {"S": target.recovery},
    }
    removes: tuple[A, ...] = ()
    if not record.settled:
        removes = (A.PARKED_BY, A.PARKED_AT, A.PARKED_REASON, A.LATE_OUTCOME_AT)
        sets |= {
            A.OWNER: {"S": recovery_name(record.saga_id, record.recoveries + 1)},
            A.RECOVERIES: {"N": str(record.recoveries + 1)},
            A.UPDATED_AT: {"N": str(now_ms)},
            A.DUE_AT: {"N": str(now_ms + due_after_ms)},
            A.LOG_EXPIRES_AT: {"N": str(kept_until)},
        }
    return {"Key": {A.ID: {"S": record.request_id}}, **update(as_read, sets, removes=removes, values=values)}


@dataclass(frozen=True, slots=True, kw_only=True)
class Adopter:
    """Moves sagas to other state machines.

    Attributes:
        recoverer: reads records, starts recoveries; ``log_days`` are the target's.
        target: where to.
        log_table: the log that the saga was written to; None: not known, so the target's must have its rows.
        audit: who decides, and why.
    """

    recoverer: Recoverer
    target: Target
    log_table: str | None
    audit: Audit

    def adopt(self, record: RequestRecord, now_ms: int) -> str | None:
        """Move a saga, and start its next recovery there; the name of that one, if one was started.

        Args:
            record: the saga's record, read strongly.
            now_ms: the time.

        Raises:
            CannotAdopt: if both of the saga's machines exist, or one of the target's does not; if the target's log does
                not have the saga's rows, or they may have expired; if the saga runs, or changed meanwhile.
            MachineGone: if a machine of the target was deleted meanwhile. Repeat it on another one.
        """
        for arn in (self.target.forward, self.target.recovery):
            if self.recoverer.definition(arn) is None:
                raise CannotAdopt(f"state machine {arn} must exist, got none; deploy its stack again")
        if self._has(record):
            return self._repeated(record, now_ms)
        log_days = self._days_of(record)
        self._require_movable(record, log_days, now_ms)
        kept_until = rows_are_kept_until(record, log_days)
        name = recovery_name(record.saga_id, record.recoveries + 1)
        noted = appended(self.audit, f"moved to {self.target.recovery}", record, now_ms)
        moved = adopt_update(record, self.target, kept_until, now_ms, self.recoverer.due_after_ms, noted)
        if not self.recoverer.updated(moved):
            # Another operator did it in between, or the answer was lost and the update was sent again.
            again = self.recoverer.read(record.request_id)
            if again is None or again.saga_id != record.saga_id or not self._has(again):
                raise CannotAdopt(f"saga {record.saga_id} must be as it was read, got one that changed; repeat this")
            return self._repeated(again, now_ms)
        if record.settled:
            return None
        self.recoverer.start(self.target.recovery, name, record.input)
        return name

    def _has(self, record: RequestRecord) -> bool:
        machines = (machine_of(record.execution_arn), record.recovery_machine_arn)
        return machines == (self.target.forward, self.target.recovery)

    def _repeated(self, record: RequestRecord, now_ms: int) -> str | None:
        """Start what an interrupted call did not; the name of the execution, if there was one to start."""
        return self.recoverer.recover(record, now_ms)[1]

    def _require_movable(self, record: RequestRecord, log_days: int, now_ms: int) -> None:
        """Refuse a saga that its own state machines can end, or whose rows the others would not see."""
        target, recoverer = self.target, self.recoverer
        machines = (machine_of(record.execution_arn), record.recovery_machine_arn)
        left = [text for arn in machines if (text := recoverer.definition(arn)) is not None]
        if len(left) == len(machines):
            raise CannotAdopt(
                f"a state machine of saga {record.saga_id} must be gone, got both of them; use cdk-sagas recover or "
                "resolve"
            )
        if any(f'"{target.log}"' not in text for text in left):
            raise CannotAdopt(
                f"the saga log of {target.recovery} must be that of saga {record.saga_id}, got {target.log}, which its "
                "other state machine does not name: without its rows its steps would happen twice"
            )
        self._require_log(record)
        if record.settled:
            return
        if may_have_forgotten(record, now_ms, log_days):
            raise CannotAdopt(
                f"rows of saga {record.saga_id} must be kept, got a saga that is older than its rows: its steps could "
                "happen twice; restore the saga log and the request table to one time when they were kept, or end the "
                "saga by hand"
            )
        if record.parked_by is None:
            owner = recoverer.owner(record)
            if what_to_do(record, owner, now_ms, log_days=log_days) not in _ADOPTABLE:
                raise CannotAdopt(
                    f"the owner of saga {record.saga_id} must have ended without settling it, got {owner.status}; "
                    "wait, or see cdk-sagas inspect"
                )

    def _require_log(self, record: RequestRecord) -> None:
        """Refuse a log without the saga's rows: every step would run again."""
        log, target = self.log_table, self.target
        if log is not None and log != target.log:
            raise CannotAdopt(
                f"the saga log of {target.recovery} must be that of saga {record.saga_id}, {log}, got {target.log}: "
                "without its rows its steps would happen twice"
            )
        if log is None and not self._has_rows(record.saga_id):
            raise CannotAdopt(
                f"log {target.log} must have rows of saga {record.saga_id}, got none; if its old state machines wrote "
                "into this log, name it with --log-table: none of its steps has begun then"
            )

    def _days_of(self, record: RequestRecord) -> int:
        """For how many days rows of a saga were kept when they were written, at least.

        Its state machines wrote them, not the target's, and no reconciler extends those of a saga of neither.
        """
        a = LogAttribute
        found = (
            (int(row[a.EXPIRATION]["N"]) - int(row[a.CREATED_AT]["N"]) // 1_000) // _DAY_SECONDS
            for row in self._rows(record.saga_id)
            if a.EXPIRATION in row
        )
        return min(found, default=LEAST_LOG_DAYS)

    def _has_rows(self, saga_id: str) -> bool:
        return any(True for _ in self._rows(saga_id))

    def _rows(self, saga_id: str) -> Iterator[Mapping[str, Any]]:
        a = LogAttribute
        pages = self.recoverer.dynamodb.get_paginator("query").paginate(
            TableName=self.target.log,
            ConsistentRead=True,
            KeyConditionExpression="#saga_id = :saga_id",
            ProjectionExpression="#step, #created_at, #expiration",
            ExpressionAttributeNames={f"#{name}": name for name in (a.SAGA_ID, a.STEP, a.CREATED_AT, a.EXPIRATION)},
            ExpressionAttributeValues={":saga_id": {"S": saga_id}},
        )
        for page in pages:
            yield from page["Items"]
