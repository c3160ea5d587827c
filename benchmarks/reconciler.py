"""Cost of a reconciler's sweep, and the time in which it works off a backlog.

(a) Read units of one sweep over more and more stored records, and over more and more that are due: it must grow with
what is due, and not with what is stored. Requests and responses are those of the SDK; what they read is counted by
DynamoDB's published rules (``read_units``). Emulators return a fixed number for each call.

(b) Ten thousand sagas whose executions are dead, all due at once, in virtual time: a sweep each minute, each call
taking as long as it takes on AWS on a usual day (assumed, below), with Step Functions' default quotas and without.

    python -m benchmarks.reconciler
"""

from __future__ import annotations

import argparse
import json
import random
import sys
import tempfile
import time
from collections import Counter, deque
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any, Final
from unittest import mock

import boto3

from benchmarks.chart import Line, write_chart
from benchmarks.expressions import updated
from benchmarks.reconciler_aws import Aws, Bucket, Store
from benchmarks.report import FOLDER, write_report
from saga_runtime.idempotency.identity import request_id_of
from saga_runtime.idempotency.record import AttributeMap, reserve_put
from saga_runtime.protocol import RecordAttribute, RecordStatus
from saga_runtime.recovery.reconciler import Reconciler
from saga_runtime.recovery.saga_reconciler import Caretaker, Served
from saga_runtime.recovery.sweep import WORKERS
from saga_runtime.shared import aws, clock, telemetry
from tests.unit.support.crews import TurnTakers
from tests.unit.support.samples import MACHINE_ARN, NOW_MS, SCOPE, reservation_of
from tests.unit.support.settling import settle

STORED: Final = (1_000, 10_000, 100_000, 1_000_000)
DUE: Final = (0, 100, 1_000, 10_000)
CONSTANT_DUE: Final = 100
CONSTANT_STORED: Final = 100_000
BACKLOG: Final = 10_000
SHARDS: Final = 16
SWEEP_MS: Final = 50_000
"""A function's time."""
MINUTE_MS: Final = 60_000
RECOVERY_TAKES_MS: Final = 20_000
"""Assumed: then it has settled its saga."""
TAKES_MS: Final = {
    "GetItem": 5.0,
    "Query": 8.0,
    "UpdateItem": 8.0,
    "DescribeExecution": 30.0,
    "ListExecutions": 150.0,
    "StartExecution": 50.0,
}
"""Assumed."""
QUOTAS: Final = {"DescribeExecution": (300, 15), "ListExecutions": (200, 5), "StartExecution": (1_300, 300)}
"""Bucket, and refill per second, in us-east-1, us-west-2 and eu-west-1; elsewhere they are smaller.
https://docs.aws.amazon.com/step-functions/latest/dg/service-quotas.html"""
_A: Final = RecordAttribute
SERVED: Final = Served(
    machine=MACHINE_ARN.rpartition(":")[2],
    requests="requests",
    shards=SHARDS,
    log="log",
    days=400,
    operators="https://queue.invalid",
)


def reserved(number: int) -> AttributeMap:
    """A request's record as it is reserved, a minute before it is due now."""
    reservation = replace(reservation_of(key=f"key-{number}", now_ms=NOW_MS - MINUTE_MS), due_shards=SHARDS)
    item: AttributeMap = reserve_put(reservation)["Item"]
    return item


def settled(numbers: Iterable[int]) -> Iterator[AttributeMap]:
    """Yield settled records of requests, which differ in their names only."""
    item = reserved(0)
    first = item[_A.ID]["S"]
    update = settle(
        request_id=first,
        execution=item[_A.OWNER]["S"],
        status=RecordStatus.COMPLETED,
        now_ms=NOW_MS,
        body='{"paid":"2.00","entry":"e-1"}',
    )
    names, values = update["ExpressionAttributeNames"], update["ExpressionAttributeValues"]
    text = json.dumps(updated(update["UpdateExpression"], dict(item), names, values))
    for number in numbers:
        found: AttributeMap = json.loads(text.replace(first, request_id_of(SCOPE, f"key-{number}")))
        yield found


@contextmanager
def connected(answers: Aws, now_ms: Any) -> Iterator[None]:
    """Clients that are answered here, and a time."""
    # No secret: the endpoint is local.
    session = boto3.Session(aws_access_key_id="none", aws_secret_access_key="none", region_name="eu-west-1")  # noqa: S106
    silent = {name: mock.patch.object(telemetry, name) for name in ("event", "count", "seconds", "gauge")}
    with mock.patch.object(clock, "now_ms", now_ms), aws.clients_of(session):
        answers.put_before(aws.dynamodb(), aws.step_functions_once())
        for patch in silent.values():
            patch.start()
        try:
            yield
        finally:
            for patch in silent.values():
                patch.stop()


def cost(store: Store) -> dict[str, Any]:
    """Return read units, and calls, of one sweep; executions of due sagas run, and are checked later."""
    answers = Aws(store=store, status=lambda _: "RUNNING")
    due = store.count(f"shard IS NOT NULL AND due <= {NOW_MS}")
    with connected(answers, lambda: NOW_MS):
        caretaker = Caretaker(served=[SERVED], limit=20)
        done = Reconciler(caretaker=caretaker, remaining_ms=lambda: 3_600_000, workers=1).sweep()
    if (done.looked_at, done.failed) != (due, 0):
        raise RuntimeError(f"{due} were due, got {asdict(done)}")
    return {
        "stored": store.count(),
        "due": due,
        "read_units": {**answers.units, "all": sum(answers.units.values())},
        "calls": dict(answers.calls),
    }


def costs(stored: tuple[int, ...], due: tuple[int, ...]) -> dict[str, Any]:
    """Sweeps over stores of several sizes, and over several numbers of what is due."""
    by_stored, by_due = [], []
    with tempfile.TemporaryDirectory() as folder:
        store, there = Store(Path(folder) / "records.sqlite"), 0
        for number in sorted({*stored, CONSTANT_STORED}):
            store.put(settled(range(there, number - CONSTANT_DUE)))
            there = number - CONSTANT_DUE
            store.put(reserved(-n) for n in range(1, CONSTANT_DUE + 1))
            if number in stored:
                by_stored.append(cost(store))
                tell(f"{number} stored: {by_stored[-1]['read_units']}")
            if number == CONSTANT_STORED:
                store.put(settled(range(-CONSTANT_DUE, 0)))
                by_due = [cost_of_due(store, one) for one in due]
                store.put(settled(range(max(DUE))))
        store.close()
    return {"by_stored": by_stored, "by_due": by_due}


def cost_of_due(store: Store, due: int) -> dict[str, Any]:
    """One sweep over as many stored records as ever, so many of them due."""
    store.put(settled(range(max(DUE))))
    store.put(reserved(n) for n in range(due))
    found = cost(store)
    tell(f"{due} due of {found['stored']}: {found['read_units']}")
    return found


@dataclass(slots=True, kw_only=True)
class Executions:
    """First executions that are dead, and recoveries that settle their sagas some time after they began."""

    store: Store
    crew: TurnTakers
    begun: dict[str, float]
    settles: deque[tuple[float, str]]

    def status(self, name: str) -> str:
        """Return the status of an execution."""
        return "RUNNING" if name in self.begun else "TIMED_OUT"

    def start(self, name: str) -> None:
        """One more recovery."""
        if name in self.begun:
            raise RuntimeError(f"{name} was started twice")
        self.begun[name] = self.crew.now_ms
        self.settles.append((self.crew.now_ms + RECOVERY_TAKES_MS, name))

    def settle(self) -> None:
        """Those whose time has come."""
        items = []
        while self.settles and self.settles[0][0] <= self.crew.now_ms:
            _, name = self.settles.popleft()
            item = self.store.get(name.partition("-")[0])
            if item is not None:
                items.append({k: v for k, v in item.items() if k not in {_A.DUE_AT, _A.DUE_SHARD}})
        self.store.put(items)


def backlog(name: str, *, workers: int, quotas: bool, number: int) -> tuple[dict[str, Any], list[tuple[float, float]]]:
    """Work a backlog off, a sweep each minute; what it took, and how many were left after which minutes."""
    began = time.monotonic()
    random.seed(1)  # of the waits: the same run each time
    with tempfile.TemporaryDirectory() as folder:
        store, crew = Store(Path(folder) / "records.sqlite"), TurnTakers(seed=1)
        store.put(reserved(n) for n in range(number))
        executions = Executions(store=store, crew=crew, begun={}, settles=deque())
        answers = Aws(
            store=store,
            status=executions.status,
            started=executions.start,
            buckets={key: Bucket(size=s, refill=r) for key, (s, r) in QUOTAS.items()} if quotas else {},
            takes_ms=TAKES_MS,
            wait=crew.sleep,
            now_ms=lambda: crew.now_ms,
        )
        sweeps, slowed, swept_ms = 0, 0, 0.0
        sleep = mock.patch.object(time, "sleep", lambda seconds: crew.sleep(seconds * 1_000))
        with connected(answers, lambda: int(NOW_MS + crew.now_ms)), sleep:
            while len(executions.begun) < number:
                crew.now_ms = begins = float(sweeps * MINUTE_MS)
                executions.settle()
                reconciler = Reconciler(
                    caretaker=Caretaker(served=[SERVED], limit=20),
                    remaining_ms=partial(remaining, crew, begins + SWEEP_MS),
                    workers=workers,
                    crew=crew,
                )
                done = reconciler.sweep()
                if done.broken:
                    raise RuntimeError(f"a saga could not be reconciled: {asdict(done)}")
                sweeps, slowed, swept_ms = sweeps + 1, slowed + done.slowed, swept_ms + crew.now_ms - begins
        store.close()
    starts = [at for at, operation, _ in answers.log if operation == "StartExecution"]
    found = {
        "workers": workers,
        "quotas": quotas,
        "sweeps": sweeps,
        "minutes": round(max(starts) / MINUTE_MS, 1),
        "sagas_per_second_while_sweeping": round(number / swept_ms * 1_000, 1),
        "calls": dict(sorted(answers.calls.items())),
        "refused": dict(answers.refused),
        "read_units": sum(answers.units.values()),
        "slowed": slowed,
        "most_calls_in_a_second": sum_of_busiest_second(answers),
        **evenness(answers),
    }
    tell(f"{name}: {found} ({time.monotonic() - began:.0f} s)")
    return found, [(0.0, float(number)), *left(starts, number)]


def remaining(crew: TurnTakers, end_ms: float) -> int:
    """Milliseconds until the function ends."""
    return int(end_ms - crew.now_ms)


def sum_of_busiest_second(answers: Aws) -> int:
    """Updates and starts."""
    return max(Counter(int(at // 1_000) for at, operation, _ in answers.log if operation != "Query").values())


def evenness(answers: Aws) -> dict[str, Any]:
    """Return how far the shards were apart while none was empty, and the most updates of one in a second."""
    done: Counter[str] = Counter({f"{shard:02d}": 0 for shard in range(SHARDS)})
    sizes = Counter(shard for _, operation, shard in answers.log if operation == "UpdateItem")
    apart, busiest = 0, Counter[tuple[str, int]]()
    for at, operation, shard in answers.log:
        if operation != "UpdateItem":
            continue
        done[shard] += 1
        busiest[shard, int(at // 1_000)] += 1
        if all(done[one] < sizes[one] for one in done):
            apart = max(apart, max(done.values()) - min(done.values()))
    return {
        "shards": {"smallest": min(sizes.values()), "largest": max(sizes.values())},
        "most_apart": apart,
        "most_updates_of_a_shard_in_a_second": max(busiest.values()),
    }


def left(starts: list[float], number: int) -> Iterator[tuple[float, float]]:
    """Minutes, and how many were not started by then; every hundredth."""
    for n, at in enumerate(sorted(starts), 1):
        if n % (number // 100) == 0:
            yield at / MINUTE_MS, float(number - n)


def backlogs(number: int) -> dict[str, Any]:
    """One worker, all of them, and all of them under quotas, which one worker does not meet; and a picture."""
    found, lines = {}, []
    for name, workers, quotas in (
        ("1 worker", 1, False),
        (f"{WORKERS} workers", WORKERS, False),
        (f"{WORKERS} workers, default quotas", WORKERS, True),
    ):
        found[name], points = backlog(name, workers=workers, quotas=quotas, number=number)
        lines.append(Line(name=name, points=points))
    FOLDER.mkdir(parents=True, exist_ok=True)
    title = f"{number:,} dead sagas that are due at once"
    write_chart(FOLDER / "reconciler.svg", lines, title=title, x="minutes", y="not recovered yet")
    return found


def tell(text: str) -> None:
    """Show how far it is."""
    sys.stderr.write(f"{time.strftime('%H:%M:%S')}  {text}\n")


def main() -> None:
    """Count, work off, and write the report."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--stored", type=int, default=max(STORED), help="the most records that are stored")
    parser.add_argument("--backlog", type=int, default=BACKLOG)
    chosen = parser.parse_args()
    report = {
        "cost_of_a_sweep": costs(tuple(n for n in STORED if n <= chosen.stored), DUE),
        "assumed": {"takes_ms": TAKES_MS, "recovery_takes_ms": RECOVERY_TAKES_MS, "quotas": QUOTAS},
        "backlog": {"sagas": chosen.backlog, **backlogs(chosen.backlog)},
    }
    write_report("reconciler", report)
    sys.stdout.write(json.dumps(report, indent=2) + "\n")


if __name__ == "__main__":
    main()
