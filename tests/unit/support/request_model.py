"""The whole life of one key, on the pure decisions: gatekeepers, executions, recoveries, zombies, time.

What the parties send is what the runtime makes; only who sends when, what is lost and what travels is the model's.
Each method is one atomic event. The invariants are in ``check``.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from botocore.exceptions import ClientError

from saga_runtime.idempotency.record import Met, RequestRecord, remove_response_update, reserve_put, what_was_met
from saga_runtime.protocol import Direction, RecordStatus, Side, StepStatus
from saga_runtime.recovery.takeover import Finding, Owner, recovery_name, what_to_do
from saga_runtime.saga_log.rows import (
    LogRow,
    StepEntry,
    UndoEntry,
    done_put,
    entry_of,
    tombstone_put,
    undo_entry_of,
    undone_update,
)
from saga_runtime.shared.arns import machine_of
from tests.unit.support.executions import AlreadyExists, Execution, Executions, ExecutionStatus
from tests.unit.support.memory_dynamodb import MemoryDynamoDB
from tests.unit.support.samples import DAY_MS, DUE_AFTER_MS, MACHINE_ARN, NOW_MS, REQUEST_ID, reservation_of
from tests.unit.support.settling import direct, settle, take_over, with_used_placeholders

STEP = "Transfer"
NAME_DAYS = 90


class Phase(StrEnum):
    """Phases of an execution."""

    FORWARD = "forward"
    DECIDE = "decide"
    COMPENSATE = "compensate"
    COMPLETE = "complete"
    FAIL = "fail"


@dataclass(frozen=True, slots=True)
class Start:
    """A StartExecution that is to be sent, or travels."""

    name: str
    input: str
    machine: str


@dataclass(frozen=True, slots=True)
class Settle:
    """A settle that is to be sent, or travels."""

    execution: str
    status: RecordStatus


@dataclass(frozen=True, slots=True)
class Look:
    """A recovering component's view, on which it may act later."""

    record: RequestRecord
    finding: Finding


class RequestModel:
    """One key, and everybody who has to do with it."""

    def __init__(self) -> None:
        self.db = MemoryDynamoDB()
        self.executions = Executions()
        self.phases: dict[str, Phase] = {}
        self.ended_at: dict[str, int] = {}
        self.now_ms = NOW_MS
        self.machine = MACHINE_ARN
        """Of the saga that the operation names now."""
        self.starts: list[Start] = []
        self.settles: list[Settle] = []
        self.looks: list[Look] = []
        self.started: Counter[str] = Counter()
        self.applied: Counter[str] = Counter()
        self.undone: Counter[str] = Counter()
        self.bodies: dict[str, str] = {}
        self.inputs: dict[str, str] = {}
        self.verdicts: dict[str, RecordStatus] = {}

    # What is there

    @property
    def record(self) -> RequestRecord | None:
        """The request record."""
        item = self.db.item("requests", REQUEST_ID)
        return None if item is None else RequestRecord.from_item(item)

    def row(self, saga_id: str) -> LogRow | None:
        """The saga's one log row."""
        item = self.db.item("log", saga_id, STEP)
        return None if item is None else LogRow.from_item(item)

    def running(self) -> list[str]:
        """Names of the executions that run."""
        return [e.name for e in self.executions.by_name.values() if e.status is ExecutionStatus.RUNNING]

    # Gatekeepers

    def request(self, body: str, *, answer_lost: bool = False) -> Met | None:
        """A client's request, up to where a gatekeeper would start the saga."""
        self.now_ms += 1
        reservation = reservation_of(body=body, now_ms=self.now_ms, machine_arn=self.machine)
        before = self.record
        put = {"TableName": "requests", **reserve_put(reservation)}
        there = self._put(put)
        if there is None:
            assert before is None or before.forgotten(self.now_ms), "a new saga was reserved under a key that is known"
            self.bodies[reservation.saga_id] = body
            self.inputs[reservation.saga_id] = reservation.start_input
            if not answer_lost:
                self.starts.append(Start(reservation.saga_id, reservation.start_input, self.machine))
                return None
            there = self._put(put)  # the SDK sends it again
            assert there is not None, "one put reserved twice"
        met = what_was_met(there, reservation)
        assert (met is Met.OTHER_BODY) == (self.bodies[there.saga_id] != body), "an answer to another body"
        if met in {Met.OWN, Met.RUNNING_DUE}:
            # What a gatekeeper can start at all: it has no right to another machine.
            self.starts.append(Start(there.saga_id, there.input, self.machine))
        if met is Met.SETTLED:
            assert there.status is self.verdicts[there.saga_id], "an answer that is not the verdict"
            assert there.body is not None, "an answer without its response"
        if met is Met.EXPIRED:
            assert there.response_expires_at is not None
            assert there.response_expires_at <= self.now_ms // 1_000, "refused before the response had expired"
        return met

    def _put(self, put: Mapping[str, Any]) -> RequestRecord | None:
        try:
            self.db.put_item(**with_used_placeholders(dict(put)))
        except ClientError as refused:
            response: Any = refused.response
            return RequestRecord.from_item(response["Item"])
        return None

    def deliver_start(self, start: Start) -> None:
        """A start arrives, whether or not its sender still lives."""
        try:
            execution = self.executions.start(start.name, start.input, start.machine)
        except AlreadyExists:
            return
        if start.name not in self.phases or start.name in self.ended_at:
            self._began(execution)

    def _began(self, execution: Execution) -> None:
        self.started[execution.name] += 1
        recovery = "-r" in execution.name
        self.phases[execution.name] = Phase.DECIDE if recovery else Phase.FORWARD
        self.ended_at.pop(execution.name, None)

    def replace_machine(self) -> None:
        """A deployment lets the operation start another saga."""
        self.machine = f"{MACHINE_ARN}{len(self.machine)}"

    # Executions

    def step(self, name: str, *, gives_up: bool = False) -> None:
        """An execution's next move but the settle: forward, or, when it gives up, towards compensation."""
        saga_id = _saga_of(name)
        match self.phases[name]:
            case Phase.FORWARD if not gives_up:
                self._do(name, saga_id)
            case Phase.FORWARD | Phase.DECIDE:
                self._decide(name, saga_id)
            case Phase.COMPENSATE:
                self._undo(name, saga_id)
            case Phase.COMPLETE | Phase.FAIL:
                pass

    def _do(self, name: str, saga_id: str) -> None:
        if self.transact(saga_id, done_put(**self._row(saga_id, name), side=Side.PIVOT, output="{}", keep_days=400)):
            self.applied[saga_id] += 1
        elif entry_of(self.row(saga_id)) is StepEntry.FENCED:
            self.end(name, ExecutionStatus.FAILED)
            return
        self.phases[name] = Phase.COMPLETE

    def _decide(self, name: str, saga_id: str) -> None:
        """The write decides: a tombstone, or the row that refuses it."""
        buried = self.transact(saga_id, tombstone_put(**self._row(saga_id, name), side=Side.PIVOT, keep_days=400))
        row = self.row(saga_id)
        stands = not buried and row is not None and row.status is StepStatus.DONE
        way = Direction.FORWARD if stands else Direction.COMPENSATE
        who: Any = {"request_id": REQUEST_ID, "execution": name, "now_ms": self.now_ms}
        if self._update(direct(**who, direction=way)):
            self.phases[name] = Phase.COMPLETE if stands else Phase.COMPENSATE
        else:
            self.end(name, ExecutionStatus.FAILED)

    def _undo(self, name: str, saga_id: str) -> None:
        match undo_entry_of(self.row(saga_id)):
            case UndoEntry.NOTHING | UndoEntry.FOREIGN:
                self.phases[name] = Phase.FAIL
            case UndoEntry.BURY:
                self.transact(saga_id, tombstone_put(**self._row(saga_id, name), side=Side.PIVOT, keep_days=400))
            case UndoEntry.UNDO:
                if self.transact(saga_id, undone_update(**self._row(saga_id, name))):
                    self.undone[saga_id] += 1

    def _row(self, saga_id: str, name: str) -> dict[str, Any]:
        return {"table": "log", "saga_id": saga_id, "step": STEP, "attempt": name, "now_ms": self.now_ms}

    def transact(self, saga_id: str, entry: Any) -> bool:
        """Commit a log row; whether its condition was met."""
        try:
            self.db.transact_write_items(TransactItems=[entry])
        except ClientError:
            return False
        return True

    def send_settle(self, name: str) -> None:
        """An execution sends its settle. It arrives now or later; see ``deliver_settle``."""
        status = {Phase.COMPLETE: RecordStatus.COMPLETED, Phase.FAIL: RecordStatus.FAILED}[self.phases[name]]
        self.settles.append(Settle(name, status))

    def deliver_settle(self, sent: Settle) -> bool:
        """A settle arrives."""
        return self._update(
            settle(request_id=REQUEST_ID, execution=sent.execution, status=sent.status, now_ms=self.now_ms)
        )

    def _update(self, arguments: dict[str, Any]) -> bool:
        try:
            self.db.update_item(**arguments)
        except ClientError:
            return False
        return True

    def end(self, name: str, status: ExecutionStatus) -> None:
        """An execution ends: it settled, was fenced, died, or was stopped."""
        self.executions.end(name, status)
        self.ended_at[name] = self.now_ms

    # Recovery

    def look(self) -> None:
        """Read the record as a recovering component, which may act on it much later."""
        record = self.record
        if record is not None:
            there = self.executions.by_name.get(record.owner)
            owner = Owner(there.status, self.ended_at.get(record.owner)) if there else Owner()
            self.looks.append(Look(record, what_to_do(record, owner, self.now_ms)))

    def act(self, look: Look) -> None:
        """Act on what was seen."""
        record = look.record
        if look.finding is Finding.NOT_STARTED:
            first = record.owner == record.saga_id
            machine = machine_of(record.execution_arn) if first else record.recovery_machine_arn
            self.starts.append(Start(record.owner, record.input, machine))
        elif look.finding is Finding.DEAD and self._update(with_used_placeholders(take_over(record, self.now_ms))):
            name = recovery_name(record.saga_id, record.recoveries + 1)
            self.starts.append(Start(name, record.input, record.recovery_machine_arn))

    # Time

    def wait(self, ms: int) -> None:
        """Time passes. No request travels for a day, and no view of yesterday is acted on."""
        self.now_ms += ms
        if ms >= DAY_MS:
            self.starts.clear()
            self.settles.clear()
            self.looks.clear()
        for name, ended in list(self.ended_at.items()):
            if self.now_ms - ended >= NAME_DAYS * DAY_MS and name in self.executions.by_name:
                self.executions.forget(name)

    def remove_response(self) -> None:
        """A reconciler removes an expired response, by a key from its index, read at any time before."""
        self._update({"TableName": "requests", **remove_response_update(REQUEST_ID, self.now_ms)})

    def expire(self) -> None:
        """DynamoDB's TTL deletes the record, if its time has come."""
        record = self.record
        if record is not None and record.expiration is not None and record.expiration <= self.now_ms // 1000:
            self.db.delete("requests", REQUEST_ID)

    # The promise

    def check(self) -> None:
        """The invariants."""
        for saga_id in self.bodies:
            assert self.applied[saga_id] <= 1, f"effect {self.applied[saga_id]} times"
            assert self.undone[saga_id] <= self.applied[saga_id], "undone more often than done"
        for name, times in self.started.items():
            assert times == 1, f"execution {name} ran {times} times"
        assert not self.executions.elsewhere, "a saga ran on two state machines"
        for execution in self.executions.by_name.values():
            assert execution.input == self.inputs[_saga_of(execution.name)], "started with other bytes"
        record = self.record
        if record is not None:
            self._check_record(record)

    def _check_record(self, record: RequestRecord) -> None:
        saga_id = record.saga_id
        assert record.owner == saga_id or record.owner.startswith(f"{saga_id}-r"), "owned by another saga"
        if not record.settled:
            assert record.expiration is None, "a record in progress expires"
            assert record.due_at is not None, "a record in progress is never due"
            assert saga_id not in self.verdicts, "a settled saga is in progress again"
            return
        assert self.verdicts.setdefault(saga_id, record.status) is record.status, "a verdict changed"
        assert record.expiration is not None, "a settled record never expires"
        assert (record.body is None) == record.tombstone, "half a tombstone"
        assert record.response_expired(self.now_ms) or not record.tombstone, "a response was removed too early"
        assert record.due_at is None, "a settled record is due"
        stands = self.applied[saga_id] - self.undone[saga_id]
        assert stands == (1 if record.status is RecordStatus.COMPLETED else 0), f"{record.status} with {stands} effects"

    def drain(self) -> None:
        """From wherever this is, everything ends, or is a person's to decide, when nothing is disturbed any more."""
        for _ in range(20):
            record = self.record
            if record is None or record.settled:
                return
            self.wait(2 * DUE_AFTER_MS)
            self.request(self.bodies[record.saga_id])
            self.look()
            if self.looks[-1].finding is Finding.NAME_EXPIRED:
                return  # parked
            for look in self.looks:
                self.act(look)
            self.looks.clear()
            for start in self.starts:
                self.deliver_start(start)
            self.starts.clear()
            for name in self.running():
                self.finish(name)
        raise AssertionError("the saga never ends")

    def finish(self, name: str) -> None:
        """Let an execution run to its end."""
        for _ in range(6):
            if name not in self.running():
                return
            if self.phases[name] in {Phase.COMPLETE, Phase.FAIL}:
                self.send_settle(name)
                self.deliver_settle(self.settles.pop())
                self.end(name, ExecutionStatus.SUCCEEDED)
            else:
                self.step(name)


def _saga_of(name: str) -> str:
    return name.partition("-r")[0]
