"""True if a reconciler finds interrupted sagas among tens of thousands that run, under Step Functions' default quotas.

Sagas that wait for days (for a person, for a provider) are checked every quarter of an hour. Among them are a hundred
whose executions are dead, and whose status events were lost. In virtual time, a sweep each minute; what each call takes
is assumed, as in ``reconciler``.

    python -m benchmarks.reconciler_open
"""

from __future__ import annotations

import argparse
import json
import random
import statistics
import sys
import tempfile
import time
from collections import deque
from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any, Final
from unittest import mock

from benchmarks.reconciler import (
    MINUTE_MS,
    QUOTAS,
    SERVED,
    SWEEP_MS,
    TAKES_MS,
    Executions,
    connected,
    remaining,
    reserved,
    tell,
)
from benchmarks.reconciler_aws import Aws, Bucket, Store
from benchmarks.report import write_report
from saga_runtime.idempotency.record import AttributeMap
from saga_runtime.protocol import RecordAttribute
from saga_runtime.recovery import running
from saga_runtime.recovery.reconciler import Reconciler
from saga_runtime.recovery.saga_reconciler import Caretaker
from saga_runtime.recovery.sweep import WORKERS
from tests.unit.support.crews import TurnTakers
from tests.unit.support.samples import DAY_MS, NOW_MS

OPEN: Final = (1_000, 10_000, 30_000, 100_000)
DEAD: Final = 100
MINUTES: Final = 30
EVERY_MS: Final = 15 * MINUTE_MS
SMALL_QUOTAS: Final = {"DescribeExecution": (250, 10), "ListExecutions": (100, 2), "StartExecution": (800, 150)}
"""Quotas of regions other than the three largest; the same page lists them."""
NEVER: Final = 10**9
_A: Final = RecordAttribute


def a_day_old(number: int, due_ms: float) -> AttributeMap:
    """A record that was reserved a day ago."""
    return {
        **reserved(number),
        _A.CREATED_AT: {"N": str(NOW_MS - DAY_MS)},
        _A.DUE_AT: {"N": str(NOW_MS + int(due_ms))},
    }


def measured(
    number: int, *, quotas: Mapping[str, tuple[int, int]], lists: bool = True, minutes: int = MINUTES
) -> dict[str, Any]:
    """Look for so many minutes at so many sagas that run, and at the dead ones among them.

    Args:
        number: sagas that run.
        quotas: of Step Functions.
        lists: whether executions are listed; else each is asked for.
        minutes: looks, one each minute.
    """
    began = time.monotonic()
    random.seed(1)  # of the waits: the same run each time
    drawn = random.Random(1)
    with tempfile.TemporaryDirectory() as folder:
        store, crew = Store(Path(folder) / "records.sqlite"), TurnTakers(seed=1)
        store.put(a_day_old(n, drawn.uniform(0, EVERY_MS)) for n in range(number))
        due = {number + n: drawn.uniform(0, EVERY_MS) for n in range(DEAD)}
        store.put(a_day_old(n, at) for n, at in due.items())
        alive = sorted(reserved(n)[_A.SAGA_ID]["S"] for n in range(number))
        dead = {reserved(n)[_A.SAGA_ID]["S"]: at for n, at in due.items()}
        executions = Executions(store=store, crew=crew, begun={}, settles=deque())

        def status(name: str) -> str:
            return "TIMED_OUT" if name in dead else "RUNNING"

        def listed(machine_arn: str) -> Sequence[str]:
            recovery = not machine_arn.endswith(f":{SERVED.machine}")
            return sorted(name for name in executions.begun) if recovery else alive

        answers = Aws(
            store=store,
            status=status,
            started=executions.start,
            running=listed,
            buckets={key: Bucket(size=size, refill=refill) for key, (size, refill) in quotas.items()},
            takes_ms=TAKES_MS,
            wait=crew.sleep,
            now_ms=lambda: crew.now_ms,
        )
        sleep = mock.patch.object(time, "sleep", lambda seconds: crew.sleep(seconds * 1_000))
        first = mock.patch.object(running, "ASKED_ONE_BY_ONE", running.ASKED_ONE_BY_ONE if lists else NEVER)
        looks, took = [], []
        with connected(answers, lambda: int(NOW_MS + crew.now_ms)), sleep, first:
            for minute in range(minutes):
                crew.now_ms = begins = float(minute * MINUTE_MS)
                executions.settle()
                looks.append(
                    Reconciler(
                        caretaker=Caretaker(served=[SERVED], limit=20),
                        remaining_ms=partial(remaining, crew, begins + SWEEP_MS),
                        workers=WORKERS,
                        crew=crew,
                    ).sweep()
                )
                took.append(crew.now_ms - begins)
        store.close()
    found = sorted((at - dead[name.rpartition("-")[0]]) / MINUTE_MS for name, at in executions.begun.items())
    result = {
        "open": number,
        "lists": lists,
        "looks": len(looks),
        "complete_looks": sum(look.complete for look in looks),
        "longest_look_seconds": round(max(took) / 1_000, 1),
        "oldest_overdue_seconds": max(look.overdue_seconds for look in looks),
        "dead": len(dead),
        "found": len(found),
        "found_after_minutes": {"median": round(statistics.median(found), 1), "last": round(found[-1], 1)},
        "calls": dict(sorted(answers.calls.items())),
        "refused": dict(answers.refused),
    }
    tell(f"{result} ({time.monotonic() - began:.0f} s)")
    return result


def main() -> None:
    """Measure, and write the report."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--open", type=int, default=max(OPEN), help="the most sagas that run")
    parser.add_argument("--minutes", type=int, default=MINUTES)
    chosen = parser.parse_args()
    numbers = [number for number in OPEN if number <= chosen.open]
    measure = partial(measured, minutes=chosen.minutes)
    report = {
        "assumed": {"takes_ms": TAKES_MS, "quotas": QUOTAS, "small_quotas": SMALL_QUOTAS},
        "asked one by one": [measure(number, quotas=QUOTAS, lists=False) for number in numbers if number <= 30_000],
        "listed": [measure(number, quotas=QUOTAS) for number in numbers],
        "listed, small region": [measure(number, quotas=SMALL_QUOTAS) for number in numbers],
    }
    write_report("reconciler_open", report)
    sys.stdout.write(json.dumps(report, indent=2) + "\n")


if __name__ == "__main__":
    main()
