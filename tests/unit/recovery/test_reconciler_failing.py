"""Sagas that no reconciler can start, by the hundred: they keep no other one from being recovered.

A start that is refused for good leaves its record due, before all that became due later. In virtual time, under the
quotas of Step Functions; a check has time for a part of them.
"""

from __future__ import annotations

import random
from collections import deque
from functools import partial
from pathlib import Path

import pytest
from botocore.awsrequest import AWSResponse

from benchmarks import reconciler_aws
from benchmarks.reconciler import MINUTE_MS, QUOTAS, SERVED, TAKES_MS, Executions, connected, remaining, reserved
from benchmarks.reconciler_aws import Aws, Bucket, Store
from saga_runtime.idempotency.record import AttributeMap
from saga_runtime.protocol import RecordAttribute
from saga_runtime.recovery.reconciler import Reconciled, Reconciler
from saga_runtime.recovery.saga_reconciler import Caretaker
from saga_runtime.recovery.sweep import SPARE_MS
from tests.unit.support.crews import TurnTakers
from tests.unit.support.samples import NOW_MS
from tests.unit.support.sleeps import replace_sleep

pytestmark = pytest.mark.proof

A = RecordAttribute
FAILING, DEAD = 800, 16
CHECK_MS = 10_000 + SPARE_MS
"""Time for some 30 sagas of each shard at first, and for 10 later on."""


def due_since(number: int, ago_ms: int) -> AttributeMap:
    """A saga that has been due for so long."""
    since = {"N": str(NOW_MS - ago_ms)}
    return {**reserved(number), A.CREATED_AT: since, A.DUE_AT: since}


def test_sagas_that_cannot_be_started_keep_no_other_from_being_recovered(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    random.seed(1)
    store, crew = Store(tmp_path / "records.sqlite"), TurnTakers(seed=1)
    store.put(due_since(number, 3_600_000) for number in range(FAILING))
    store.put(due_since(number, 1_000) for number in range(FAILING, FAILING + DEAD))
    failing = {reserved(number)[A.SAGA_ID]["S"] for number in range(FAILING)}
    executions = Executions(store=store, crew=crew, begun={}, settles=deque())
    start = Aws.start

    def status(name: str) -> str | None:
        return None if name in failing else executions.status(name)

    def started(aws: Aws, asked: dict[str, str]) -> AWSResponse:
        refused = {"__type": "AccessDeniedException", "message": "its key is disabled"}
        return reconciler_aws._response(400, refused) if asked["name"] in failing else start(aws, asked)

    monkeypatch.setitem(reconciler_aws._ANSWERS, "StartExecution", started)
    replace_sleep(monkeypatch, lambda seconds: crew.sleep(seconds * 1_000))
    answers = Aws(
        store=store,
        status=status,
        started=executions.start,
        buckets={name: Bucket(size=size, refill=refill) for name, (size, refill) in QUOTAS.items()},
        takes_ms=TAKES_MS,
        wait=crew.sleep,
        now_ms=lambda: crew.now_ms,
    )
    checks: list[Reconciled] = []
    with connected(answers, lambda: int(NOW_MS + crew.now_ms)):
        while len(executions.begun) < DEAD and len(checks) < 30:
            crew.now_ms = begins = float(len(checks) * MINUTE_MS)
            executions.settle()
            reconciler = Reconciler(
                caretaker=Caretaker(served=[SERVED], limit=20),
                remaining_ms=partial(remaining, crew, begins + CHECK_MS),
                crew=crew,
            )
            checks.append(reconciler.sweep())
    store.close()

    assert len(executions.begun) == DEAD, "all are recovered"
    assert not any(check.complete for check in checks)
    assert min(check.broken for check in checks) > 0
    assert min(check.overdue_seconds for check in checks) >= 3_600
