"""A backlog of token rows: thousands of jobs are late, and nothing that must happen soon waits behind them.

A late job stays due until it is reported, so the rows that are due first are the same ones in every sweep. Time is
virtual: each call takes ten milliseconds of the worker that makes it.
"""

from __future__ import annotations

import json
import random
import threading
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import pytest

from saga_runtime.callbacks import sweeper
from saga_runtime.callbacks.decisions import CONTRADICTED
from saga_runtime.callbacks.notices import Notice
from saga_runtime.callbacks.rows import JobId, Outcome, TokenRow
from saga_runtime.callbacks.sweeper import Swept, sweep
from saga_runtime.callbacks.writes import Waiting, settling_changes, token_update
from saga_runtime.idempotency.identity import step_key_of
from saga_runtime.idempotency.record import reserve_put
from saga_runtime.protocol import (
    TOKEN_DUE_SHARDS,
    Env,
    Metric,
    Side,
    TokenAttribute,
    TokenStatus,
)
from saga_runtime.saga_log.external_rows import Holder
from saga_runtime.shared import aws, clock, telemetry
from tests.unit.support.job_saga import HEARTBEAT_SECONDS, STEP, TIMEOUT_SECONDS
from tests.unit.support.memory_dynamodb import MemoryDynamoDB
from tests.unit.support.samples import NOW_MS, reservation_of
from tests.unit.support.world import Telemetry

pytestmark = pytest.mark.proof

SWEEP_MS = 26_000
"""Two seconds for rows, a twelfth of a function's, and twelve for notices: so a test needs fewer rows."""
NEWEST = 40
"""A twelfth of the function's."""
CALL_MS = 10
HOUR_MS = 3_600_000
LATE = 2_000
"""More than a sweep has time for."""


@dataclass
class Cloud:
    """DynamoDB, Step Functions and SQS in memory: one call at a time, from any thread.

    Attributes:
        calls: of each operation, in this sweep.
        delivered: tokens of tasks that received their outcomes.
        sent: bodies of messages.
        read: keys that were read.
    """

    memory: MemoryDynamoDB = field(default_factory=MemoryDynamoDB)
    calls: Counter[str] = field(default_factory=Counter)
    delivered: list[str] = field(default_factory=list)
    sent: list[str] = field(default_factory=list)
    read: set[str] = field(default_factory=set)
    _lock: threading.Lock = field(default_factory=threading.Lock)
    _others: threading.Event = field(default_factory=threading.Event)
    _spent: Counter[threading.Thread] = field(default_factory=Counter)

    def remaining_ms(self) -> int:
        """Time that is left for the calling worker."""
        return SWEEP_MS - CALL_MS * self._spent[threading.current_thread()]

    def sweep(self) -> Swept:
        """One run of the function."""
        self._spent.clear()
        self.calls.clear()
        return sweep(remaining_ms=self.remaining_ms)

    def get_item(self, **asked: Any) -> Any:
        """GetItem."""
        self.read.add(asked["Key"].get("id", {}).get("S", ""))
        return self._called("GetItem", lambda: self.memory.get_item(**asked))

    def update_item(self, **asked: Any) -> Any:
        """UpdateItem."""
        return self._called("UpdateItem", lambda: self.memory.update_item(**asked))

    def transact_write_items(self, **asked: Any) -> Any:
        """TransactWriteItems."""
        return self._called("TransactWriteItems", lambda: self.memory.transact_write_items(**asked))

    def delete_item(self, **asked: Any) -> Any:
        """DeleteItem."""
        return self._called("DeleteItem", lambda: self.memory.delete("tokens", asked["Key"]["id"]["S"]))

    def get_paginator(self, _name: str) -> Any:
        """Return a paginator of queries."""
        return self

    def paginate(self, **asked: Any) -> Iterator[Any]:
        """Yield the pages of a query."""
        start: dict[str, Any] = {}
        while True:
            more = {"ExclusiveStartKey": start} if start else {}
            page = self._called("Query", partial(self.memory.query, **asked, **more))
            yield page
            start = page.get("LastEvaluatedKey", {})
            if not start:
                return

    def send_task_success(self, *, taskToken: str, **_: Any) -> None:  # noqa: N803  # AWS's name
        """SendTaskSuccess."""
        self._called("SendTaskSuccess", lambda: self.delivered.append(taskToken))

    def send_message(self, *, MessageBody: str, **_: Any) -> None:  # noqa: N803  # AWS's name
        """SendMessage."""
        self._called("SendMessage", lambda: self.sent.append(MessageBody))

    def _called(self, operation: str, act: Callable[[], Any]) -> Any:
        self._others.wait(0.0005)  # as a call does: or one worker would do everything
        with self._lock:
            self.calls[operation] += 1
            self._spent[threading.current_thread()] += 1
            return act()


@dataclass
class Backlog:
    """Jobs that are late.

    Attributes:
        now_ms: the time.
        telemetry: what was measured.
    """

    cloud: Cloud
    now_ms: int
    telemetry: Telemetry

    def wait(self, number: int, *, since_ms: int) -> TokenRow:
        """A saga waits for its job since then."""
        reservation = reservation_of(key=f"key-{number}", now_ms=since_ms)
        saga_id, memory = reservation.saga_id, self.cloud.memory
        memory.put_item(TableName="requests", **reserve_put(reservation))
        waiting = Waiting(
            job_id=step_key_of(saga_id, STEP),
            saga_id=saga_id,
            row_name=STEP,
            token=f"token-{number}",
            order="2026-11-21T08:00:00.000Z",
            log_table="log",
            request_table="requests",
            execution=saga_id,
            heartbeat_seconds=HEARTBEAT_SECONDS,
            timeout_seconds=TIMEOUT_SECONDS,
            keep_days=400,
        )
        memory.put_item(**waiting.put("tokens", since_ms)["Put"])
        holder = Holder(
            table="log",
            saga_id=saga_id,
            row_name=STEP,
            side=Side.BEFORE,
            attempt="dispatch",
            deadline=since_ms + 20_000,
            keep_days=400,
        )
        memory.put_item(**holder.intent(since_ms)["Put"])
        item = memory.item("tokens", waiting.job_id)
        assert item is not None
        return TokenRow.from_item(item)

    def late(self, number: int, *, shards: int = TOKEN_DUE_SHARDS) -> None:
        """So many jobs have been late for an hour, in a part of the index."""
        for n in range(number):
            row = self.wait(n, since_ms=self.now_ms - HEARTBEAT_SECONDS * 1_000 - HOUR_MS)
            self._move(row.id, f"{n % shards:02d}", None)

    def undelivered(self, number: int, shard: str) -> None:
        """An outcome was stored, and its receiver died."""
        row = self.wait(number, since_ms=self.now_ms - 61_000)
        then = self.now_ms - 61_000
        settling = settling_changes(row, Outcome.success("{}"), "e1", then)
        change = token_update("tokens", row, TokenStatus.DELIVERING, then, settling)
        self.cloud.memory.update_item(**change["Update"])
        self._move(row.id, shard, None)

    def notice(self, number: int, shard: str, *, told: bool = False, due_at: int | None = None) -> None:
        """An outcome contradicts the kept one of a job."""
        row = self.wait(number, since_ms=self.now_ms)
        self._move(row.id, None, None)
        job = JobId.parse(row.id)
        assert job is not None
        notice = Notice(
            job_id=row.id,
            job=job,
            error=CONTRADICTED,
            detail="-",
            outcome=Outcome.failure("Lost", "-"),
            requests="requests",
            execution="",
        )
        self.cloud.memory.update_item(**notice.store("tokens", "queue", self.now_ms, 400)["Update"])
        self._move(notice.id, shard, due_at, status=TokenStatus.NOTIFIED if told else None)

    def _move(self, row_id: str, shard: str | None, due_at: int | None, status: str | None = None) -> None:
        stored = self.cloud.memory.item("tokens", row_id)
        assert stored is not None
        a = TokenAttribute
        if shard is None:
            stored.pop(a.DUE_SHARD)
            stored.pop(a.DUE_AT)
        else:
            stored[a.DUE_SHARD] = {"S": shard}
        if due_at is not None:
            stored[a.DUE_AT] = {"N": str(due_at)}
        if status is not None:
            stored[a.STATUS] = {"S": status}
        self.cloud.memory.put_item(TableName="tokens", Item=stored)


@pytest.fixture
def backlog(monkeypatch: pytest.MonkeyPatch) -> Backlog:
    """No job yet."""
    found = Backlog(Cloud(), NOW_MS, Telemetry())
    monkeypatch.setenv(Env.TOKEN_TABLE, "tokens")
    monkeypatch.setenv(Env.CALLBACKS, json.dumps([]))
    monkeypatch.setattr(sweeper, "_NEWEST", NEWEST)
    for client in ("dynamodb", "step_functions", "sqs"):
        monkeypatch.setattr(aws, client, lambda: found.cloud)
    for tell in ("event", "count", "gauge", "seconds"):
        monkeypatch.setattr(telemetry, tell, getattr(found.telemetry, tell))
    monkeypatch.setattr(clock, "now_ms", lambda: found.now_ms)
    random.seed(1)
    return found


def _minutes(backlog: Backlog, done: Callable[[], bool]) -> int:
    """Sweep once a minute until something is done; the number of sweeps."""
    for number in range(1, 40):
        backlog.cloud.sweep()
        if done():
            return number
        backlog.now_ms += 60_000
    raise AssertionError("40 sweeps do not do it")


@pytest.mark.parametrize("shards", [1, TOKEN_DUE_SHARDS], ids=["skewed", "even"])
def test_an_undelivered_outcome_does_not_wait_behind_late_jobs(backlog: Backlog, shards: int) -> None:
    backlog.late(LATE, shards=shards)
    backlog.undelivered(LATE, "00")

    swept = backlog.cloud.sweep()

    assert (swept.told, swept.complete) == (1, False)
    assert swept.oldest_seconds >= HOUR_MS // 1_000
    assert backlog.cloud.calls["Query"] == TOKEN_DUE_SHARDS


def test_rows_that_became_due_last_are_first() -> None:
    """Those after them have no order, or the same ones would be last in each sweep."""
    due = [(f"row-{number}", number) for number in range(2_000)]

    turns = [list(sweeper._in_turn([*due])) for _ in range(2)]

    for turn in turns:
        assert turn[:500] == due[:1_499:-1]
        assert sorted(turn[500:]) == sorted(due[:1_500])
    assert turns[0] != turns[1]


def test_every_late_job_has_its_turn_although_all_stay_due(backlog: Backlog) -> None:
    backlog.late(LATE // 2 + 200, shards=1)
    ids = {item["id"]["S"] for item in backlog.cloud.memory.items("tokens")}

    assert 1 < _minutes(backlog, lambda: ids <= backlog.cloud.read) <= 15


def test_a_thousand_undelivered_outcomes_are_delivered_by_many_workers(backlog: Backlog) -> None:
    for number in range(1_000):
        backlog.undelivered(number, f"{number % TOKEN_DUE_SHARDS:02d}")

    assert _minutes(backlog, lambda: len(backlog.cloud.delivered) == 1_000) <= 3
    assert len(set(backlog.cloud.delivered)) == 1_000


def test_a_notice_does_not_wait_behind_open_contradictions(backlog: Backlog) -> None:
    for number in range(700):
        backlog.notice(number, "00", told=True, due_at=backlog.now_ms - HOUR_MS)
    backlog.notice(700, "00")

    swept = backlog.cloud.sweep()

    assert (len(backlog.cloud.sent), swept.contradicted, swept.complete) == (1, 700, True)


def test_a_sweep_without_time_for_all_rows_does_not_claim_that_there_is_no_late_effect(backlog: Backlog) -> None:
    backlog.cloud.sweep()
    assert backlog.telemetry.measured.pop(Metric.LATE_OPEN) == 0
    backlog.late(LATE)

    assert not backlog.cloud.sweep().complete

    assert Metric.LATE_OPEN not in backlog.telemetry.measured


@pytest.mark.parametrize("name", ["parked_by", "saga_id", "status"])
def test_a_record_that_cannot_be_read_keeps_no_outcome_from_its_task(backlog: Backlog, name: str) -> None:
    backlog.late(1)
    (record,) = backlog.cloud.memory.items("requests")
    backlog.cloud.memory.put_item(TableName="requests", Item={**record, name: {"M": {}}})
    backlog.undelivered(1, "07")

    swept = backlog.cloud.sweep()

    assert (swept.told, swept.failed, swept.oldest_seconds) == (1, 1, HOUR_MS // 1_000)
