"""Findings about one request record, from what was read of it. Pure: data in, data out."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any, Final

from constructs_lib.cli.doctor.findings import Finding, Kind, Repair, Saga, Severity
from constructs_lib.cli.saga.retries import Retrying
from constructs_lib.cli.shared.moments import moment
from saga_runtime.idempotency.identity import due_shard_of
from saga_runtime.idempotency.record import RequestRecord
from saga_runtime.protocol import RecordAttribute
from saga_runtime.recovery.decisions import Need
from saga_runtime.recovery.saga_reconciler import Seen
from saga_runtime.recovery.takeover import Finding as Found
from saga_runtime.recovery.takeover import recovery_name

Item = Mapping[str, Mapping[str, Any]]
UNREADABLE: Final = (ArithmeticError, LookupError, TypeError, ValueError)
"""What an item raises that was not written by a saga, whatever is wrong with it."""
NOBODY_CAME_MS: Final = 15 * 60_000
"""Something due for longer than this was not checked: its reconciler does not work."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RecordFindings:
    """One record, and how to speak of it.

    Attributes:
        saga: where it is at home.
        record: the record.
        item: the same, as it is stored.
        now_ms: the time.
        command: a command of ours about it, to be copied.
    """

    saga: Saga
    record: RequestRecord
    item: Item
    now_ms: int
    command: Callable[..., str]

    def seen(self, seen: Seen) -> Finding | None:
        """Finding of an assessment: the reconciler's next action, or an operator's. None: all is well."""
        record, need = self.record, seen.decision.need
        match seen.finding:
            case Found.SETTLED if need is Need.CLEAR:
                what = f"{record.status}, and still due"
                return self._soon(Kind.STILL_DUE, what, "the reconciler clears it", record.due_at)
            case Found.PARKED:
                return self._parked(seen)
            case Found.NOT_STARTED if seen.found.is_due(self.now_ms) or record.cancelled:
                # Before it is due, another process is about to start it.
                return self._not_started(seen)
            case Found.NAME_EXPIRED:
                what = "no execution of its owner's name, and it may have run before"
                return self._for_a_person(Kind.NAME_EXPIRED, what, record.created_at)
            case Found.OWNER_UNKNOWN:
                # Whether a right is missing here or to the reconciler, too, is not known: nothing is parked by that.
                what = "its owner's execution may not be described: a right is missing, or its record names another "
                what += "recovery machine"
                return replace(self._for_a_person(Kind.NOT_ALLOWED, what, record.updated_at), repair=None)
            case Found.OWNER_SUCCEEDED:
                what = "in progress although its owner's execution SUCCEEDED: its record was restored, or edited"
                return self._for_a_person(Kind.UNSETTLED, what, record.updated_at)
            case Found.ROWS_EXPIRED:
                what = "it does not run, and its log may have expired, without which effects could repeat"
                return self._for_a_person(Kind.ROWS_GONE, what, record.created_at)
            case Found.DEAD if need is Need.PARK:
                what = f"{_count(record.recoveries)} ended without settling it: no more are allowed"
                return self._for_a_person(Kind.EXHAUSTED, what, record.updated_at)
            case Found.DEAD:
                return self._interrupted(seen)
            case Found.RUNNING:
                return self._running()
            case _:
                return None

    def machine_gone(self, arn: str) -> Finding:
        """A state machine of a saga in progress was deleted: nothing can start it."""
        return self._about(
            Kind.MACHINE_GONE,
            Severity.OPERATOR,
            f"in progress, and {arn} was deleted: nothing can start it",
            "move it to the saga that writes the same saga log",
            self.record.updated_at,
            command=self.command("adopt", self.record.saga_id),
        )

    def rows_end(self) -> Finding:
        """Rows of its log come near their end."""
        what = "it is open, and rows of its log come near their end"
        return self._soon(Kind.ROWS_END, what, "the reconciler keeps them for longer", self.record.created_at)

    def not_due(self) -> Finding | None:
        """A record in progress that no look would ever find; None: one does."""
        shards = self.saga.served.shards
        shard = self.item.get(RecordAttribute.DUE_SHARD, {}).get("S", "")
        looked_at = len(shard) == 2 and shard.isdecimal() and int(shard) < shards
        if self.record.settled or (self.record.due_at is not None and looked_at):
            return None
        lacks = [name for name in (RecordAttribute.DUE_AT, RecordAttribute.DUE_SHARD) if name not in self.item]
        what = f"without {' and '.join(lacks)}" if lacks else f"in shard {shard!r}, of {shards} that are checked"
        return self._about(
            Kind.NOT_DUE,
            Severity.REPAIR,
            f"in progress, and {what}: no look ever finds it",
            "--repair makes it due",
            self.record.updated_at,
            repair=Repair.MAKE_DUE,
        )

    def _not_started(self, seen: Seen) -> Finding:
        since = self.record.updated_at
        if self.record.cancelled:
            what = "an operator cancelled it, and it was never started"
            then = "the reconciler hands it to r1, when no Express execution of it can run"
            return self._soon(Kind.INTERRUPTED, what, then, since)
        if seen.found.is_due(self.now_ms - NOBODY_CAME_MS):
            return self._start_refused()
        what = "reserved, and there is no execution of its owner's name"
        return self._soon(Kind.NOT_STARTED, what, "the reconciler starts it", since)

    def _start_refused(self) -> Finding:
        minutes = NOBODY_CAME_MS // 60_000
        return self._about(
            Kind.START_REFUSED,
            Severity.REPAIR,
            f"reserved, due for more than {minutes} min, and never started: its start is refused, or nothing tries it",
            "find start_refused in the gatekeeper's log; --repair starts it, or names the code of the refusal",
            self.record.created_at,
            repair=Repair.RECONCILE,
        )

    def _interrupted(self, seen: Seen) -> Finding:
        record = self.record
        owner = "its first execution" if record.owner == record.saga_id else _tail(record.owner)
        what = f"{owner} {seen.status}, and did not settle it"
        then = f"the reconciler hands it to {_tail(recovery_name(record.saga_id, record.recoveries + 1))}"
        if seen.decision.need is Need.NOTHING and record.due_at is not None:
            then += f" at {moment(record.due_at)}"
        return self._soon(Kind.INTERRUPTED, what, then, record.updated_at)

    def _running(self) -> Finding | None:
        timeout, record = self.saga.timeout_seconds, self.record
        if record.cancelled:
            what = "an operator cancelled it, and its execution still runs"
            return self._soon(Kind.INTERRUPTED, what, "the reconciler stops it", record.updated_at)
        if timeout is None or self.now_ms - record.created_at <= timeout * 1_000:
            return None
        owner = "its first execution" if record.owner == record.saga_id else _tail(record.owner)
        return self._about(
            Kind.OVER_TIME,
            Severity.OK,
            f"in progress for longer than its machine's timeout; {owner} runs",
            "nothing, as long as its recoveries progress: check what it waits for",
            record.created_at,
            command=self.command("inspect", record.saga_id),
        )

    def retrying(self, one: Retrying) -> Finding:
        """A task that its owner has retried for long."""
        return self._about(
            Kind.RETRYING,
            Severity.OK,
            f"{one.state}: {one.failed} attempts failed, at last with {one.error}",
            "nothing yet: when the last attempt fails, it compensates or is parked; find the cause",
            one.first_at,
            command=self.command("inspect", self.record.saga_id),
        )

    def _parked(self, seen: Seen) -> Finding:
        record = self.record
        return self._about(
            Kind.PARKED,
            Severity.OPERATOR,
            stuck_in_words(self.item),
            "determine the outcome, then record it: cdk-sagas resolve",
            seen.found.parked_at or record.updated_at,
            command=self.command("inspect", record.saga_id),
        )

    def _for_a_person(self, kind: Kind, what: str, since: int) -> Finding:
        """A saga that the reconciler parks: that notifies the operators, and decides nothing."""
        return self._about(
            kind,
            Severity.OPERATOR,
            what,
            "find out why; the reconciler parks it, and then cdk-sagas resolve --resume resumes it",
            since,
            command=self.command("inspect", self.record.saga_id),
            repair=Repair.RECONCILE if self.saga.served.operators else None,
        )

    def _soon(self, kind: Kind, what: str, then: str, since: int | None) -> Finding:
        return self._about(kind, Severity.SOON, what, then, since, repair=Repair.RECONCILE)

    def _about(
        self,
        kind: Kind,
        severity: Severity,
        what: str,
        then: str,
        since: int | None,
        *,
        command: str = "",
        repair: Repair | None = None,
    ) -> Finding:
        saga_id = self.record.saga_id
        return Finding(
            kind=kind,
            severity=severity,
            id=saga_id,
            what=what,
            then=then,
            since=since,
            command=command,
            repair=repair,
            saga_id=saga_id,
            saga=self.saga,
        )


def nobody_came(table: str, machine: str, due: list[int]) -> Finding:
    """A finding about a reconciler that has not checked what has been due for long, reported once."""
    sagas = "one saga" if len(due) == 1 else f"{len(due)} sagas"
    return Finding(
        kind=Kind.NOT_MONITORED,
        severity=Severity.OPERATOR,
        id=machine,
        what=f"{sagas} of table {table} due for more than {NOBODY_CAME_MS // 60_000} min, and not checked",
        then="find out why its reconciler does not look: its schedule, its logs, its alarms",
        since=min(due),
    )


def unreadable(table: str, key: str, error: Exception) -> Finding:
    """An item that claims to be a saga's record, and is not."""
    why = str(error) if isinstance(error, ValueError) else f"{type(error).__name__} {error}"
    return Finding(
        kind=Kind.UNREADABLE,
        severity=Severity.OPERATOR,
        id=key,
        what=f"an item of table {table} that cannot be read: {why}",
        then="find out what wrote it: no reconciler handles it",
    )


def stuck_in_words(item: Item) -> str:
    """Why a saga is parked, as its record has it."""
    text = str(item.get(RecordAttribute.PARKED_REASON, {}).get("S", ""))
    try:
        said = json.loads(text) if text else {}
    except ValueError:
        return text
    if not isinstance(said, Mapping):
        return text
    where = ": ".join(str(said[name]) for name in ("step", "error") if said.get(name))
    detail = str(said.get("detail") or said.get("cause") or "")
    return ", ".join(part for part in (where, detail) if part) or "its record has no reason"


def shard_for(saga: Saga, request_id: str) -> str:
    """The shard that a record belongs into."""
    return due_shard_of(request_id, saga.served.shards)


def _tail(name: str) -> str:
    """A recovery's name without its saga's."""
    return f"-{name.rpartition('-')[2]}"


def _count(recoveries: int) -> str:
    return "one recovery" if recoveries == 1 else f"{recoveries} recoveries"
