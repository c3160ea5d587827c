"""A backlog: thousands of sagas whose executions are dead, all of them due at once.

Each is taken over once, by threads, with no more in memory than a page of each shard; and under Step Functions' quotas
few calls are wasted, no shard is worked off alone, and nothing is lost.
"""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from importlib import import_module
from operator import itemgetter
from types import SimpleNamespace
from typing import Any

import pytest

from benchmarks.reconciler import SHARDS, backlog, reserved
from saga_runtime.protocol import RecordAttribute
from saga_runtime.recovery.reconciler import Reconciler
from saga_runtime.recovery.saga_reconciler import Caretaker, Served
from saga_runtime.recovery.sweep import WORKERS, Part
from saga_runtime.shared import aws, telemetry
from tests.unit.support.memory_dynamodb import MemoryDynamoDB
from tests.unit.support.samples import NOW_MS

pytestmark = pytest.mark.proof

RECONCILER = import_module("saga_runtime.recovery.reconciler")
BACKLOG = 10_000
PAGE = 50
"""A small one: keys of several pages are due in each shard."""
A = RecordAttribute


class DoesNotExist(Exception):
    """There is no such execution."""


class AlreadyExists(Exception):
    """Never raised: an execution that runs is met, by the same name and with the same input."""


@dataclass
class Cloud:
    """DynamoDB and Step Functions in memory: one call at a time, from any thread.

    Attributes:
        started: number of starts, by execution name.
        busy: threads that called.
    """

    memory: MemoryDynamoDB = field(default_factory=MemoryDynamoDB)
    started: Counter[str] = field(default_factory=Counter)
    busy: set[int] = field(default_factory=set)
    lock: threading.Lock = field(default_factory=threading.Lock)
    pages: int = 0

    def __post_init__(self) -> None:
        self.exceptions = SimpleNamespace(ExecutionAlreadyExists=AlreadyExists, ExecutionDoesNotExist=DoesNotExist)

    def fill(self, number: int) -> None:
        """So many sagas are due; each shard's are known by their age, as an index knows them."""
        items = [reserved(n) for n in range(number)]
        self.index: dict[str, list[str]] = {f"{shard:02d}": [] for shard in range(SHARDS)}
        for item in sorted(items, key=lambda item: item[A.ID]["S"]):
            self.index[item[A.DUE_SHARD]["S"]].append(item[A.ID]["S"])
            self.memory.put_item(TableName="requests", Item=item)

    def get_item(self, **asked: Any) -> Any:
        """GetItem."""
        with self._calling():
            return self.memory.get_item(**asked)

    def update_item(self, **asked: Any) -> Any:
        """UpdateItem."""
        with self._calling():
            return self.memory.update_item(**asked)

    def query(self, **asked: Any) -> Any:
        """Query: what was due when it was made; an index may be behind."""
        with self._calling():
            self.pages += 1
            ids = self.index[asked["ExpressionAttributeValues"][":shard"]["S"]]
            first = int(asked.get("ExclusiveStartKey", {}).get("first", 0))
            page = ids[first : first + asked["Limit"]]
            more = first + len(page) < len(ids)
            items = [{A.ID: {"S": found}} for found in page]
            return {"Items": items, **({"LastEvaluatedKey": {"first": first + len(page)}} if more else {})}

    def describe_execution(self, *, executionArn: str) -> Any:  # noqa: N803  # AWS's name
        """DescribeExecution: first executions are dead, and recoveries run."""
        name = executionArn.rpartition(":")[2]
        with self._calling():
            if name in self.started:
                return {"status": "RUNNING"}
            if "-r" in name:
                raise DoesNotExist(name)
            return {"status": "TIMED_OUT"}

    # AWS's own names.
    def list_executions(self, *, statusFilter: str, maxResults: int, nextToken: str = "0", **_: Any) -> Any:  # noqa: N803
        """ListExecutions: recoveries run, in one list or the other."""
        assert statusFilter == "RUNNING"
        with self._calling():
            names, first = sorted(self.started), int(nextToken)
            page = [{"name": name} for name in names[first : first + maxResults]]
            more = {"nextToken": str(first + maxResults)} if first + maxResults < len(names) else {}
            return {"executions": page, **more}

    def start_execution(self, *, name: str, **_: Any) -> Any:
        """StartExecution."""
        with self._calling():
            self.started[name] += 1
            return {}

    def _calling(self) -> threading.Lock:
        self.busy.add(threading.get_ident())
        return self.lock


@pytest.fixture
def cloud(monkeypatch: pytest.MonkeyPatch) -> Cloud:
    """AWS in memory, and nothing logged."""
    cloud = Cloud()
    for client in ("dynamodb", "step_functions_once", "sqs"):
        monkeypatch.setattr(aws, client, lambda: cloud)
    for tell in ("event", "count", "gauge", "seconds"):
        monkeypatch.setattr(telemetry, tell, lambda *_, **__: None)
    monkeypatch.setattr(RECONCILER.clock, "now_ms", lambda: NOW_MS)
    return cloud


def reconciler(remaining_ms: Callable[[], int] = lambda: 3_600_000) -> Reconciler:
    served = Served(machine="Transfers", requests="requests", shards=SHARDS, log="log", days=400, operators="queue")
    return Reconciler(caretaker=Caretaker(served=[served], limit=3), remaining_ms=remaining_ms)


def test_ten_thousand_that_are_due_at_once_are_taken_over_once_each_by_threads(
    cloud: Cloud, monkeypatch: pytest.MonkeyPatch
) -> None:
    cloud.fill(BACKLOG)
    monkeypatch.setattr(RECONCILER, "PAGE", PAGE)
    held: list[Part] = []
    most = 0
    fill = Part.fill

    def filled(part: Part, again: bool = False) -> None:
        nonlocal most
        fill(part, again)
        held.extend([part] if part not in held else [])
        most = max(most, sum(one.held for one in held))

    monkeypatch.setattr(Part, "fill", filled)
    before = set(threading.enumerate())

    done = reconciler().sweep()

    assert (done.looked_at, done.taken_over, done.failed, done.complete) == (BACKLOG, BACKLOG, 0, True)
    assert len(cloud.started) == BACKLOG
    assert set(cloud.started.values()) == {1}
    owners = Counter(item[A.OWNER]["S"].rpartition("-")[2] for item in cloud.memory.items("requests"))
    assert owners == {"r1": BACKLOG}
    assert most <= SHARDS * PAGE
    assert 1 < len(cloud.busy) <= WORKERS
    assert set(threading.enumerate()) == before


def test_two_sweeps_by_threads_at_once_take_each_over_once(cloud: Cloud) -> None:
    cloud.fill(1_500)
    sweeps = [reconciler(), reconciler()]
    threads = [threading.Thread(target=sweep.sweep) for sweep in sweeps]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()

    assert len(cloud.started) == 1_500
    owners = Counter(item[A.OWNER]["S"].rpartition("-")[2] for item in cloud.memory.items("requests"))
    assert owners == {"r1": 1_500}
    assert sum(sweep._done.taken_over for sweep in sweeps) == 1_500


def test_a_backlog_is_worked_off_evenly_and_under_quotas_few_calls_are_wasted() -> None:
    found, points = backlog("quotas", workers=WORKERS, quotas=True, number=1_000)

    refused, asked = found["refused"]["DescribeExecution"], found["calls"]["DescribeExecution"]
    assert found["slowed"] > 0
    assert refused < asked / 4
    assert found["sweeps"] <= 3
    assert found["most_apart"] <= WORKERS
    assert max(map(itemgetter(1), points)) == 1_000
    assert points[-1][1] == 0


def test_many_workers_work_a_backlog_off_as_many_times_as_fast() -> None:
    one, _ = backlog("one", workers=1, quotas=False, number=300)
    all_of_them, _ = backlog("all", workers=WORKERS, quotas=False, number=300)

    rate = "sagas_per_second_while_sweeping"
    assert all_of_them[rate] > 0.8 * WORKERS * one[rate]
