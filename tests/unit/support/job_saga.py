"""A warehouse that reports later, and the saga that waits for it: the surroundings of the token table in tests."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import pytest

from saga_runtime.callbacks import (
    Callback,
    Failed,
    Heartbeat,
    Receipt,
    Registration,
    Succeeded,
    Waiting,
    order_of,
    receive,
    register,
    send_directly,
)
from saga_runtime.callbacks.decisions import acknowledgement, answer_of
from saga_runtime.callbacks.rows import JobId
from saga_runtime.callbacks.store import read_log
from saga_runtime.callbacks.sweeper import sweep
from saga_runtime.idempotency.identity import step_key_of
from saga_runtime.idempotency.record import reserve_put
from saga_runtime.protocol import (
    Env,
    RecordAttribute,
    ServedField,
    ServedStepField,
    Side,
    StepStatus,
    TaskField,
    TokenAttribute,
)
from saga_runtime.saga_log.external_rows import Holder
from saga_runtime.saga_log.row_write import write_row
from saga_runtime.saga_log.rows import LogRow, log_key
from saga_runtime.shared import aws
from saga_runtime.shared.decisions import Decision, stored
from tests.unit.support.memory_dynamodb import MemoryDynamoDB
from tests.unit.support.samples import NOW_MS, REQUEST_ID, SAGA_ID, reservation_of
from tests.unit.support.world import World

STEP = "Pick"
JOB_ID = step_key_of(SAGA_ID, STEP)
JOB = JobId(saga_id=SAGA_ID, step=STEP, row_name=STEP)
HEARTBEAT_SECONDS = 600
TIMEOUT_SECONDS = 3_600
PARCEL = {"parcel": "p-1"}
DONE = Succeeded(PARCEL)
REFUSED = Failed("OutOfStock", "none left")
OPERATORS = "operators"


def served(*, job: bool = True, undo: bool = True, operators: str = "", requests: str = "requests") -> dict[str, Any]:
    """A saga whose callbacks are received, as the environment names it."""
    step = {ServedStepField.SIDE: Side.BEFORE, ServedStepField.JOB: job, ServedStepField.UNDO: undo}
    return {
        ServedField.LOG: "log",
        ServedField.REQUESTS: requests,
        ServedField.DAYS: 400,
        ServedField.OPERATORS: operators,
        ServedField.STEPS: {STEP: step},
    }


def reserve() -> None:
    """Let the saga's request be under way."""
    aws.dynamodb().put_item(TableName="requests", **reserve_put(reservation_of()))


def operators_queue() -> str:
    """A queue for operators; its URL."""
    return str(aws.sqs().create_queue(QueueName=OPERATORS)["QueueUrl"])


def entries_of(url: str) -> list[dict[str, Any]]:
    """Messages of the operator queue."""
    found = aws.sqs().receive_message(QueueUrl=url, MaxNumberOfMessages=10).get("Messages", [])
    return [json.loads(message["Body"]) for message in found]


def notified(url: str) -> list[dict[str, Any]]:
    """Messages of the operator queue after a sweep."""
    sweep(remaining_ms=lambda: 60_000)
    return entries_of(url)


def acknowledge(outcome: str) -> None:
    """Keep an operator's decision about a contradicting outcome of the job, by the outcome's id."""
    what = acknowledgement(JOB_ID, outcome)
    decision = Decision(at_ms=NOW_MS, who="arn:aws:iam::111111111111:user/ann", what=what, why="-", parked_reason=None)
    aws.dynamodb().update_item(
        TableName="requests",
        Key={"id": {"S": REQUEST_ID}},
        UpdateExpression="SET decisions = list_append(if_not_exists(decisions, :none), :one)",
        ExpressionAttributeValues={":none": {"L": []}, ":one": stored([decision])},
    )


@dataclass(frozen=True, slots=True)
class Attempt:
    """One attempt of the state that waits."""

    number: int
    token: str
    order: str


@dataclass
class JobSaga:
    """The saga's side of one job, without a provider: attempts, dispatches, callbacks, and the compensation.

    Attributes:
        job: whether a provider works for the saga; otherwise the saga only waits.
        attempts: all attempts so far; the last one is the one that waits, if any.
    """

    world: World
    job: bool = True
    attempts: list[Attempt] = field(default_factory=list)

    @classmethod
    def open(
        cls, world: World, monkeypatch: pytest.MonkeyPatch, *, job: bool = True, record: bool = True, **more: Any
    ) -> JobSaga:
        """The saga's side, and the environment of the functions that receive callbacks."""
        monkeypatch.setenv(Env.TOKEN_TABLE, "tokens")
        monkeypatch.setenv(Env.CALLBACKS, json.dumps([served(job=job, **more)]))
        if record:
            reserve()
        world.wire.forget()
        return cls(world, job)

    def enter(self) -> Attempt:
        """A new attempt waits, in a new entry of the state."""
        number = len(self.attempts) + 1
        task: dict[str, Any] = {
            TaskField.STARTED: "2026-11-21T08:00:00.000Z",
            TaskField.REDRIVEN: 0,
            TaskField.ENTERED: f"2026-11-21T08:00:{number:02d}.000Z",
            TaskField.RETRIED: number - 1,
        }
        attempt = Attempt(number, self.world.tasks.wait(f"token-{number}"), order_of(task))
        self.attempts.append(attempt)
        return attempt

    def waiting(self, attempt: Attempt) -> Waiting:
        """An attempt, as it is registered."""
        return Waiting(
            job_id=JOB_ID,
            saga_id=SAGA_ID,
            row_name=STEP,
            token=attempt.token,
            order=attempt.order,
            log_table="log",
            request_table="requests",
            execution=SAGA_ID,
            heartbeat_seconds=HEARTBEAT_SECONDS,
            timeout_seconds=TIMEOUT_SECONDS,
            keep_days=400,
        )

    def holder(self, attempt: str) -> Holder:
        """A writer of the log row."""
        return Holder(
            table="log",
            saga_id=SAGA_ID,
            row_name=STEP,
            side=Side.BEFORE,
            attempt=attempt,
            deadline=self.world.clock.ms + 20_000,
            keep_days=400,
        )

    def dispatch(self, attempt: Attempt) -> Registration | None:
        """Deliver an attempt's message, as a dispatcher does; None: it was answered from the log."""
        row = self.log
        known = answer_of(row) if row is not None else None
        if known is not None:
            send_directly(attempt.token, known)
            return None
        if row is None and self.job:
            write_row(self.holder(f"dispatch-{attempt.number}").intent(self.world.clock.ms), remaining_ms=lambda: 9_000)
        return register(self.waiting(attempt))

    def register(self) -> Registration | None:
        """An attempt waits, and its message is delivered at once."""
        return self.dispatch(self.enter())

    def reports(self, event_id: str, outcome: Succeeded | Failed | Heartbeat = DONE, job_id: str = JOB_ID) -> Receipt:
        """Report an outcome as the provider."""
        return receive(Callback(job_id=job_id, event_id=event_id, outcome=outcome))

    def time_out(self) -> None:
        """Let the waiting task time out."""
        for token in list(self.world.tasks.waiting):
            self.world.tasks.time_out(token)

    def compensate(self) -> None:
        """Compensate an applied effect, or write a tombstone, as the row requires."""
        mine, now_ms, row = self.holder("undo"), self.world.clock.ms, self.log
        if row is None:
            self.write(mine.bury(now_ms))
        elif row.status is StepStatus.INTENT:
            self.write(mine.not_applied(row, now_ms))
        elif row.status is StepStatus.DONE:
            self.write(mine.undoing(now_ms))
            self.write(mine.undone(now_ms))

    def write(self, entry: Any) -> None:
        """Write a log row."""
        write_row(entry, remaining_ms=lambda: 9_000)

    @property
    def log(self) -> LogRow | None:
        """The job's row in the saga log."""
        return read_log("log", JOB)

    @property
    def token(self) -> dict[str, str]:
        """The job's token row without types; empty without one."""
        return self.token_row(JOB_ID)

    def token_row(self, row_id: str) -> dict[str, str]:
        """A row of the token table without types; empty without one."""
        key: dict[str, dict[str, str]] = {TokenAttribute.ID: {"S": row_id}}
        item = aws.dynamodb().get_item(TableName="tokens", Key=key, ConsistentRead=True).get("Item", {})
        return {name: str(next(iter(value.values()))) for name, value in item.items()}

    def record(self) -> dict[str, str]:
        """The saga's request record, without types."""
        key: dict[str, dict[str, str]] = {RecordAttribute.ID: {"S": reservation_of().request_id}}
        item = aws.dynamodb().get_item(TableName="requests", Key=key, ConsistentRead=True)["Item"]
        return {name: str(next(iter(value.values()))) for name, value in item.items()}

    def change_record(self, **values: str | int) -> None:
        """Change attributes of the saga's record."""
        _change("requests", {RecordAttribute.ID: {"S": reservation_of().request_id}}, values)

    def change_log(self, **values: str | int) -> None:
        """Change attributes of the job's log row."""
        _change("log", log_key(SAGA_ID, STEP), values)

    def change_token(self, **values: str | int) -> None:
        """Change attributes of the job's token row."""
        _change("tokens", {TokenAttribute.ID: {"S": JOB_ID}}, values)

    def misplace(self) -> None:
        """Let what was reported be in another saga's log, as if the receiver had served only that one."""
        aws.dynamodb().delete_item(TableName="log", Key=log_key(SAGA_ID, STEP))
        self.change_token(**{TokenAttribute.LOG_TABLE: "log-of-another"})

    def outcome(self, number: int = 1) -> dict[str, Any] | None:
        """The outcome that an attempt received."""
        return self.world.tasks.woken.get(self.attempts[number - 1].token)


def _change(table: str, key: Mapping[str, Mapping[str, str]], values: Mapping[str, str | int]) -> None:
    for name, value in values.items():
        kind: Any = {"N": str(value)} if isinstance(value, int) else {"S": value}
        aws.dynamodb().update_item(
            TableName=table,
            Key=key,
            UpdateExpression="SET #n = :v",
            ExpressionAttributeNames={"#n": name},
            ExpressionAttributeValues={":v": kind},
        )


class Snapshots:
    """Everything that a history changed, taken and put back: histories with the same beginning share it."""

    def __init__(self, job_saga: JobSaga, memory: MemoryDynamoDB | None = None) -> None:
        self.job_saga = job_saga
        self._database = memory.database if memory is not None else job_saga.world.database

    def take(self) -> Any:
        """Take one."""
        items = self._database.take()
        tasks = self.job_saga.world.tasks
        return items, set(tasks.waiting), dict(tasks.ended), list(self.job_saga.attempts), self.job_saga.world.clock.ms

    def put_back(self, taken: Any) -> None:
        """Put one back."""
        items, waiting, ended, attempts, now_ms = taken
        self._database.put_back(items)
        tasks = self.job_saga.world.tasks
        tasks.waiting, tasks.ended = set(waiting), dict(ended)
        self.job_saga.attempts[:] = attempts
        self.job_saga.world.clock.ms = now_ms

    def items(self, table: str) -> list[dict[str, dict[str, str]]]:
        """A table's items, seen without a call."""
        return self._database.items(table)
