"""Every order in which a job's registration, callbacks, timeouts and redeliveries can come, against the runtime.

There are six events. All orders of any of them up to length six are run on moto, each event at most once in an order.
On the in-memory tables, which must have the same rows after every step of those orders, all orders up to length six
are run with repetitions, and all orders without repetition in every variant: a provider that refuses, or contradicts
itself; a saga that only waits; one that retries after a timeout instead of compensating; messages that are slow.

Histories with the same beginning share it. An event that changed nothing leads to no other histories than those that go
on without it, a second earlier: they are counted, not run again. After every step the invariants hold:

* no task waits for a known outcome; it received the log's outcome, by a token that is used once;
* a success is never lost: ``DONE``, or ``APPLIED_LATE`` if the job was fenced or refused before;
* neither row reverts; a repeated event changes nothing; no settled row keeps a token.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterator
from dataclasses import dataclass
from enum import StrEnum
from functools import lru_cache
from itertools import product
from typing import Any

import pytest

from saga_runtime.callbacks.rows import JobId, TokenRow
from saga_runtime.protocol import RecordAttribute, StepStatus, TokenStatus
from saga_runtime.saga_log.rows import LogRow
from saga_runtime.shared import aws
from tests.unit.support.job_saga import DONE, JOB_ID, REFUSED, STEP, JobSaga, Snapshots
from tests.unit.support.memory_dynamodb import MemoryDynamoDB
from tests.unit.support.samples import NOW_MS, SAGA_ID
from tests.unit.support.tasks import TasksClient
from tests.unit.support.world import World

pytestmark = pytest.mark.proof

LENGTH = 6
REPEATED_LENGTH = 6


class Happens(StrEnum):
    """Events of a history."""

    REGISTER = "register"
    """An attempt waits. One that waited before has lost its heartbeat."""
    CALLBACK = "callback"
    DUPLICATE = "duplicate"
    """The same event as the callback's, which may be the first one to arrive."""
    TIMEOUT = "timeout"
    LATE = "late callback"
    """Another event."""
    REDELIVERY = "redelivery"
    """All messages come again, the newest first."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Variant:
    """A provider, and a saga.

    Attributes:
        job: whether the provider works for the saga.
        succeeds: outcome of the first event.
        contradicts: whether the other event has the opposite outcome.
        goes_back: whether the saga compensates after a timeout; otherwise it retries, and another attempt waits.
        slow: whether messages only come by redelivery.
    """

    job: bool = True
    succeeds: bool = True
    contradicts: bool = False
    goes_back: bool = True
    slow: bool = False

    def outcome(self, event: str) -> Any:
        """Outcome of an event."""
        ok = self.succeeds if event == "e1" else self.succeeds is not self.contradicts
        return DONE if ok else REFUSED


@dataclass(frozen=True, slots=True)
class State:
    """Observable state after a step."""

    log: StepStatus | None
    token: TokenRow | None
    said: tuple[str, ...] = ()
    delivered: int = 0


_LOG_GOES = {
    StepStatus.INTENT: {StepStatus.DONE, StepStatus.REFUSED, StepStatus.TOMBSTONE},
    StepStatus.DONE: {StepStatus.COMPENSATED},
    StepStatus.TOMBSTONE: {StepStatus.APPLIED_LATE},
    StepStatus.REFUSED: {StepStatus.APPLIED_LATE},
}
_TOKEN_GOES = {
    TokenStatus.WAITING: {TokenStatus.DELIVERED, TokenStatus.UNDELIVERED},
    TokenStatus.EARLY: {TokenStatus.DELIVERED, TokenStatus.UNDELIVERED},
    TokenStatus.DELIVERED: {TokenStatus.UNDELIVERED},
    TokenStatus.UNDELIVERED: {TokenStatus.DELIVERED},
}


class Histories:
    """Runs orders, depth first."""

    def __init__(self, job_saga: JobSaga, variant: Variant, memory: MemoryDynamoDB | None = None) -> None:
        self.job_saga, self.variant, self.memory = job_saga, variant, memory
        self.snapshots = Snapshots(job_saga, memory)
        self.run = self.same = 0
        self.seen: list[State] = []
        self.reached: set[tuple[StepStatus | None, TokenStatus | None]] = set()

    def explore(self, length: int, *, repeated: bool) -> int:
        """Run every order up to a length, or one that is the same; how many."""
        self._extend((), State(None, None), length, repeated=repeated)
        return self.run + self.same

    def _extend(self, order: tuple[Happens, ...], before: State, length: int, *, repeated: bool) -> None:
        if len(order) == length:
            return
        taken = self.snapshots.take()
        for happens in Happens:
            if happens in order and not repeated:
                continue
            history = (*order, happens)
            after = self._step(happens, before)
            try:
                self._check(happens, before, after)
            except AssertionError as error:
                raise AssertionError(f"{self.variant}: {' | '.join(history)}: {error}") from error
            self.run += 1
            self.seen.append(after)
            if self._is_as_before(taken, before, after):
                self.same += sum(orders(length - len(history), repeated=repeated, of=len(Happens) - len(history)))
            else:
                self._extend(history, after, length, repeated=repeated)
            self.snapshots.put_back(taken)

    def _is_as_before(self, taken: Any, before: State, after: State) -> bool:
        """Test whether an event changed nothing but the time."""
        if (set(after.said), after.delivered) != (set(before.said), before.delivered):
            return False
        *was, _ = taken
        *is_now, _ = self.snapshots.take()
        return bool(is_now == was)

    def _step(self, happens: Happens, before: State) -> State:
        job_saga, said, delivered = self.job_saga, before.said, before.delivered
        job_saga.world.clock.ms += 1_000
        match happens:
            case Happens.REGISTER:
                job_saga.time_out()
                delivered = self._enter(delivered)
            case Happens.CALLBACK | Happens.DUPLICATE:
                job_saga.reports("e1", self.variant.outcome("e1"))
                said = (*said, "e1")
            case Happens.LATE:
                job_saga.reports("e2", self.variant.outcome("e2"))
                said = (*said, "e2")
            case Happens.TIMEOUT:
                waited = bool(job_saga.world.tasks.waiting)
                job_saga.time_out()
                if self.variant.goes_back:
                    job_saga.compensate()
                elif waited:
                    delivered = self._enter(delivered)
            case Happens.REDELIVERY:
                for attempt in reversed(job_saga.attempts):
                    job_saga.dispatch(attempt)
                delivered = len(job_saga.attempts)
        logged = [LogRow.from_item(item).status for item in self.snapshots.items("log")]
        tokens = [TokenRow.from_item(item) for item in self.snapshots.items("tokens") if item["id"]["S"] == JOB_ID]
        assert max(len(logged), len(tokens)) <= 1, "a job has one row in each table"
        return State(logged[0] if logged else None, tokens[0] if tokens else None, said, delivered)

    def _enter(self, delivered: int) -> int:
        """The next attempt waits; up to which one messages have been delivered."""
        attempt = self.job_saga.enter()
        if self.variant.slow:
            return delivered
        self.job_saga.dispatch(attempt)
        return attempt.number

    def _check(self, happens: Happens, before: State, after: State) -> None:
        self.reached.add((after.log, after.token.status if after.token else None))
        self._check_progress(before, after)
        self._check_success(after)
        self._check_who_waits(after)
        again = {Happens.CALLBACK: "e1", Happens.DUPLICATE: "e1", Happens.LATE: "e2"}.get(happens)
        if again in before.said:
            assert (after.log, after.token) == (before.log, before.token), "the same event changed something"

    def _check_progress(self, before: State, after: State) -> None:
        if before.log is not None and before.log is not after.log:
            assert after.log in _LOG_GOES.get(before.log, set()), f"the log went from {before.log} to {after.log}"
        if before.token is None:
            return
        assert after.token is not None, "a token row is gone"
        assert after.token.order >= before.token.order, "an older attempt's token is kept"
        if before.token.status is not after.token.status:
            goes = _TOKEN_GOES[before.token.status]
            assert after.token.status in goes, f"the row went from {before.token.status} to {after.token.status}"

    def _check_success(self, after: State) -> None:
        said = [self.variant.outcome(event) for event in after.said]
        if not said:
            return
        if self.variant.job and DONE in said:
            assert after.log in (StepStatus.DONE, StepStatus.COMPENSATED, StepStatus.APPLIED_LATE), (
                "a success is forgotten"
            )
        assert after.log not in (None, StepStatus.INTENT), "an answer is forgotten"
        if after.log is StepStatus.APPLIED_LATE:
            assert after.token is not None
            assert after.token.applied_late_at, "the row does not record the late effect"
            assert 0 < after.token.due_at <= self.job_saga.world.clock.ms, "the late effect is not due"
            (record,) = self.snapshots.items("requests")
            due_at = int(record[RecordAttribute.DUE_AT]["N"])
            assert due_at <= self.job_saga.world.clock.ms, "the saga is not due"

    def _check_who_waits(self, after: State) -> None:
        tasks = self.job_saga.world.tasks
        if after.token is not None and after.token.status is not TokenStatus.WAITING:
            assert not after.token.token, f"a row that is {after.token.status} keeps its token"
        delivered = [attempt.token for attempt in self.job_saga.attempts[: after.delivered]]
        if after.log not in (None, StepStatus.INTENT):
            assert not tasks.waiting.intersection(delivered), f"a task waits while the log is {after.log}"
        newest = delivered[-1:] if len(delivered) == len(self.job_saga.attempts) else []
        if tasks.waiting.intersection(newest):
            assert after.token is not None
            assert after.token.token == newest[0], "the waiting task cannot be reached"
        for told in tasks.woken.values():
            self._check_told(told, after)

    def _check_told(self, told: dict[str, Any], after: State) -> None:
        s = StepStatus
        if "output" in told:
            assert after.log in (s.DONE, s.RECORDED, s.COMPENSATED), f"delivered a success while the log is {after.log}"
        elif told["error"] == REFUSED.error:
            assert after.log in (s.REFUSED, s.APPLIED_LATE), f"delivered a refusal while the log is {after.log}"
            assert json.loads(told["cause"]) == {"errorMessage": REFUSED.detail}
        else:
            assert told["error"] == "SagaFenced"
            assert after.log in (s.TOMBSTONE, s.COMPENSATED, s.APPLIED_LATE), f"fenced while the log is {after.log}"


def orders(length: int, *, repeated: bool, of: int = len(Happens)) -> Iterator[int]:
    """Number of orders of each length; ``of`` so many events, unless they are repeated."""
    for size in range(1, length + 1):
        yield len(Happens) ** size if repeated else math.perm(of, size)


def in_memory(world: World, monkeypatch: pytest.MonkeyPatch, variant: Variant) -> Histories:
    """Histories on the in-memory tables."""
    memory, client = MemoryDynamoDB(), TasksClient(world.tasks)
    monkeypatch.setattr(aws, "dynamodb", lru_cache(lambda: memory))
    monkeypatch.setattr(aws, "step_functions", lru_cache(lambda: client))
    return Histories(JobSaga.open(world, monkeypatch, job=variant.job), variant, memory)


VARIANTS = [
    Variant(job=job, succeeds=succeeds, contradicts=contradicts, goes_back=goes_back, slow=slow)
    for job, succeeds, contradicts, goes_back, slow in product((True, False), repeat=5)
]


def test_every_order_is_run_on_moto(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    enumerated = sum(orders(LENGTH, repeated=False))
    on_moto = Histories(JobSaga.open(world, monkeypatch), Variant())

    run = on_moto.explore(LENGTH, repeated=False)

    print(f"orders of callbacks, on moto: {enumerated} enumerated, {on_moto.run} run, {on_moto.same} the same")
    assert run == enumerated == 1_956
    world.clock.ms, world.tasks.waiting, world.tasks.ended = NOW_MS, set(), {}
    memory = in_memory(world, monkeypatch, Variant())
    memory.explore(LENGTH, repeated=False)
    assert memory.seen == on_moto.seen, "the in-memory tables do something else"


@pytest.mark.parametrize(
    "variant",
    [Variant(contradicts=True), Variant(goes_back=False, slow=True)],
    ids=["compensates", "retries slowly"],
)
def test_every_order_with_repetitions_is_run(world: World, monkeypatch: pytest.MonkeyPatch, variant: Variant) -> None:
    enumerated = sum(orders(REPEATED_LENGTH, repeated=True))

    histories = in_memory(world, monkeypatch, variant)
    run = histories.explore(REPEATED_LENGTH, repeated=True)

    print(f"orders with repetitions: {enumerated} enumerated, {histories.run} run, {histories.same} the same")
    assert run == enumerated == 55_986


def test_every_order_is_run_in_every_variant(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    enumerated, run, same, reached = sum(orders(LENGTH, repeated=False)) * len(VARIANTS), 0, 0, set()

    for variant in VARIANTS:
        world.tasks.waiting, world.tasks.ended = set(), {}
        histories = in_memory(world, monkeypatch, variant)
        run += histories.explore(LENGTH, repeated=False)
        same += histories.same
        reached |= histories.reached

    print(
        f"orders of callbacks, in {len(VARIANTS)} variants: {enumerated} enumerated, {run - same} run, {same} the same"
    )
    assert run == enumerated
    decided = set(StepStatus) - {StepStatus.INTENT, StepStatus.COMPENSATING}
    kept = {TokenStatus.WAITING, TokenStatus.EARLY, TokenStatus.DELIVERED, TokenStatus.UNDELIVERED}
    assert {log for log, _ in reached if log} >= decided, "a state of the log was never reached"
    assert {token for _, token in reached if token} == kept
    assert (StepStatus.APPLIED_LATE, TokenStatus.UNDELIVERED) in reached


def test_a_job_is_one_of_its_saga() -> None:
    assert JobId.parse(JOB_ID) == JobId(saga_id=SAGA_ID, step=STEP, row_name=STEP)
