"""One saga with its reconciler, whose sweeps and events a test runs."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from importlib import import_module
from typing import Any

import boto3
import pytest

from handlers import reconciler as entry
from saga_runtime.idempotency.record import RequestRecord
from saga_runtime.protocol import (
    Env,
    LogAttribute,
    Metric,
    ReconciledField,
    RecordAttribute,
    RecordStatus,
    Side,
    StepStatus,
    TokenAttribute,
)
from saga_runtime.recovery import sweep as sweeping
from saga_runtime.recovery.decisions import (
    Decision,
    Found,
    Need,
)
from saga_runtime.recovery.takeover import CERTAIN_AFTER_MS, recovery_name
from saga_runtime.saga_log.rows import log_key
from saga_runtime.shared import aws
from tests.unit.support import settling
from tests.unit.support.executions import ExecutionStatus
from tests.unit.support.operated_saga import OperatedSaga, operated_saga_in
from tests.unit.support.samples import DAY_MS, DUE_AFTER_MS, REQUEST_ID, SAGA_ID
from tests.unit.support.world import Context, World

CARETAKER = import_module("saga_runtime.recovery.saga_reconciler")
RECONCILIATION = import_module("saga_runtime.recovery.decisions")
RECOVERY = import_module("saga_runtime.recovery.takeover")
RECONCILER = import_module("saga_runtime.recovery.reconciler")
LIMIT = 3
SHARDS, SHARD = 2, "01"
"""Of either index: every query takes its time here."""
R1, R2 = recovery_name(SAGA_ID, 1), recovery_name(SAGA_ID, 2)
A = RecordAttribute


@dataclass
class Watch:
    """One saga, and its reconciler."""

    operated: OperatedSaga
    queue: str

    @property
    def world(self) -> World:
        """The runtime's surroundings."""
        return self.operated.world

    @property
    def record(self) -> RequestRecord:
        """The saga's record."""
        return self.operated.record

    @property
    def item(self) -> dict[str, Any]:
        """The saga's record, as it is stored."""
        (item,) = self.world.items("requests")
        return {name: next(iter(value.values())) for name, value in item.items()}

    @property
    def executions(self) -> dict[str, str]:
        """Executions, and what they were started with."""
        return {name: execution.input for name, execution in self.world.executions.by_name.items()}

    @property
    def notified(self) -> list[dict[str, Any]]:
        """Messages of the operator queue since the last read."""
        messages = aws.sqs().receive_message(QueueUrl=self.queue, MaxNumberOfMessages=10).get("Messages", [])
        for message in messages:
            aws.sqs().delete_message(QueueUrl=self.queue, ReceiptHandle=message["ReceiptHandle"])
        return [json.loads(message["Body"]) for message in messages]

    def counted(self, metric: Metric) -> int:
        """Sum of a metric."""
        return self.world.telemetry.counts[metric]

    def pass_time(self, ms: int = DUE_AFTER_MS) -> None:
        """Let time pass."""
        self.world.clock.ms += ms

    def sweep(self, remaining_ms: int = 60_000) -> dict[str, Any]:
        """Run one sweep over everything that is due."""
        return entry.handler({}, Context(remaining_ms=remaining_ms))

    def ended(self, *names: str) -> list[str]:
        """Deliver status events; ids of those that have to come again."""
        bodies = [json.dumps({"detail": {"name": name, "status": "TIMED_OUT"}}) for name in names]
        return deliver(*bodies)

    def dies(self, name: str = SAGA_ID, status: ExecutionStatus = ExecutionStatus.FAILED) -> None:
        """Let an execution end."""
        self.world.executions.end(name, status)

    def update(self, **values: dict[str, str]) -> None:
        """Change attributes of the record."""
        aws.dynamodb().update_item(
            TableName="requests",
            Key={A.ID: {"S": REQUEST_ID}},
            UpdateExpression="SET " + ", ".join(f"#{name} = :{name}" for name in values),
            ExpressionAttributeNames={f"#{name}": name for name in values},
            ExpressionAttributeValues={f":{name}": value for name, value in values.items()},
        )

    def settle(self, *, due: bool = False) -> None:
        """Settle as the owner; optionally make the record due again."""
        owner = self.record.owner
        update: Any = settling.settle(
            request_id=REQUEST_ID, execution=owner, status=RecordStatus.FAILED, now_ms=self.world.clock.ms
        )
        aws.dynamodb().update_item(**update)
        if due:
            self.update(due_at={"N": str(self.world.clock.ms)}, due_shard={"S": SHARD})


def deliver(*bodies: str) -> list[str]:
    """Hand a batch to the handler; ids of the messages that have to come again."""
    records = [{"messageId": f"m{number}", "body": body} for number, body in enumerate(bodies)]
    answer = entry.handler({"Records": records}, Context())
    return [failure["itemIdentifier"] for failure in answer["batchItemFailures"]]


@pytest.fixture
def watch(world: World, monkeypatch: pytest.MonkeyPatch, boto3_session: boto3.Session) -> Iterator[Watch]:
    """A saga whose execution runs, and whose record is due in a minute."""
    queue = str(aws.sqs().create_queue(QueueName="operators")["QueueUrl"])
    f = ReconciledField
    told: dict[ReconciledField, Any] = {
        f.MACHINE: "Transfers",
        f.REQUESTS: "requests",
        f.SHARDS: SHARDS,
        f.LOG: "log",
        f.DAYS: 400,
        f.OPERATORS: queue,
        f.TOKENS: {"tokens": ["Pick"]},
    }
    monkeypatch.setenv(Env.RECONCILED, json.dumps([dict(told)]))
    monkeypatch.setenv(Env.RECOVERIES_LIMIT, str(LIMIT))
    monkeypatch.setenv(Env.LONGEST_LOOK, "900")
    monkeypatch.setattr(RECONCILER, "TOKEN_DUE_SHARDS", SHARDS)
    monkeypatch.setattr(sweeping, "WORKERS", 1)
    with operated_saga_in(world, monkeypatch, boto3_session, window=86_400) as operated:
        watch = Watch(operated, queue)
        watch.update(due_shard={"S": SHARD})
        world.wire.forget()
        yield watch


def record_of(watch: Watch, **fields: Any) -> Found:
    return Found(record=replace(watch.record, **fields))


NOTHING, LATER = Decision(need=Need.NOTHING), Need.LOOK_LATER


def late_job(watch: Watch, status: StepStatus = StepStatus.APPLIED_LATE, *, step: str = "Pick") -> None:
    """Record a late effect of a job of the saga."""
    t, now = TokenAttribute, str(watch.world.clock.ms)
    row: dict[str, Any] = {
        t.ID: {"S": f"{SAGA_ID}#{step}"},
        t.LOG_TABLE: {"S": "log"},
        t.APPLIED_LATE_AT: {"N": now},
        t.DUE_AT: {"N": now},
        t.DUE_SHARD: {"S": SHARD},
    }
    aws.dynamodb().put_item(TableName="tokens", Item=row)
    put_row(step, status, expiration=watch.world.clock.ms // 1_000 + 400 * 86_400)


def put_row(
    name: str, status: StepStatus, *, expiration: int = 1, output: str = "{}", side: Side = Side.BEFORE
) -> None:
    a = LogAttribute
    item: Any = {
        **log_key(SAGA_ID, name),
        a.STATUS: {"S": status},
        a.SIDE: {"S": side},
        a.UPDATED_AT: {"N": "1"},
        a.OUTPUT: {"S": output},
        a.EXPIRATION: {"N": str(expiration)},
    }
    aws.dynamodb().put_item(TableName="log", Item=item)


POISON: dict[str, dict[str, Any]] = {
    "no saga's": {A.SAGA_ID: None},
    "an attribute is missing": {A.INPUT: None},
    "an unknown status": {A.STATUS: {"S": "LOST"}},
    "an invalid number": {A.CREATED_AT: {"S": "yesterday"}},
    "a time of another type": {A.PARKED_AT: {"S": "yesterday"}, A.PARKED_BY: {"S": SAGA_ID}},
    "no execution": {A.EXECUTION_ARN: {"S": "here"}},
}
"""Possible contents of a foreign record."""


def record_is_gone(watch: Watch) -> None:
    aws.dynamodb().delete_item(TableName="requests", Key={A.ID: {"S": REQUEST_ID}})


def never_started(watch: Watch) -> None:
    watch.world.executions.forget(SAGA_ID)
    watch.pass_time()


def interrupted(watch: Watch) -> None:
    watch.dies()
    watch.pass_time()


def running(watch: Watch) -> None:
    watch.pass_time()


def exhausted(watch: Watch) -> None:
    watch.update(recoveries={"N": str(LIMIT)})
    interrupted(watch)


def history_gone(watch: Watch) -> None:
    watch.world.executions.forget(SAGA_ID)
    watch.pass_time(89 * DAY_MS)


def parked(watch: Watch) -> None:
    watch.operated.park()
    watch.pass_time()


def settled(watch: Watch) -> None:
    watch.settle(due=True)


def late(watch: Watch) -> None:
    watch.settle()
    late_job(watch)


def late_and_ending(watch: Watch) -> None:
    late(watch)
    put_row("Pick", StepStatus.APPLIED_LATE, expiration=watch.world.clock.ms // 1_000 + 86_400)


def unsettled(watch: Watch) -> None:
    watch.dies(status=ExecutionStatus.SUCCEEDED)
    watch.pass_time(2 * CERTAIN_AFTER_MS)


SCENES: dict[str, tuple[Callable[[Watch], None], tuple[str, ...]]] = {
    "never started": (never_started, ("GetItem", "DescribeExecution", "StartExecution")),
    "interrupted": (interrupted, ("GetItem", "DescribeExecution", "UpdateItem", "StartExecution")),
    "running": (running, ("GetItem", "DescribeExecution", "UpdateItem")),
    "exhausted": (exhausted, ("GetItem", "DescribeExecution", "SendMessage", "UpdateItem")),
    "history gone": (
        history_gone,
        ("GetItem", "DescribeExecution", "Query", "UpdateItem", "SendMessage", "UpdateItem"),
    ),
    "parked": (parked, ("GetItem", "UpdateItem")),
    "settled": (settled, ("GetItem", "UpdateItem")),
    "late": (late, ("GetItem", "GetItem", "Query", "Query", "DescribeExecution", "StartExecution")),
    "late, and ending": (
        late_and_ending,
        ("GetItem", "GetItem", "Query", "UpdateItem", "Query", "DescribeExecution", "StartExecution"),
    ),
    "unsettled": (
        unsettled,
        ("GetItem", "DescribeExecution", "GetItem", "SendMessage", "UpdateItem"),
    ),
}
"""What each is, and the calls of a sweep that finds it, without those that look for what is due."""


LOOKING = 2 * SHARDS
