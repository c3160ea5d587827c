"""Processing due keys: all of them, in turn, lazily, by several workers, and more slowly while AWS refuses.

* Every key is processed once, by any worker; a key that fails blocks no other.
* A refusal of one worker slows all of them down, once; successes let them speed up, slowly.
* Keys are read when they are needed, a page of each part, and one of each part is taken in turn.
* It ends before the function does, and leaves no thread, however it ends.
"""

from __future__ import annotations

import threading
import time
from collections import Counter, deque
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any

import pytest
from botocore.exceptions import ClientError, ReadTimeoutError

from saga_runtime.recovery.sweep import (
    ATTEMPTS,
    FIRST_PAUSE_MS,
    LONGEST_PAUSE_MS,
    SPARE_MS,
    WORKERS,
    Brake,
    Crew,
    Part,
    Start,
    Sweep,
    Threads,
)
from saga_runtime.shared import aws
from tests.unit.support.crews import TurnTakers
from tests.unit.support.wire import Killed

PAGE = 5
PLENTY_MS = 3_600_000
SEEDS = range(12)
THROTTLED = ClientError({"Error": {"Code": "ThrottlingException", "Message": "slow down"}}, "DescribeExecution")
DENIED = ClientError({"Error": {"Code": "AccessDeniedException", "Message": "no"}}, "DescribeExecution")


@dataclass
class Field:
    """Parts with keys, and their results.

    Attributes:
        looks: keys, in the order of processing.
        failed: names of failed keys, and whether permanently.
        most_held: maximum number of keys that were held at once.
        raises: exceptions of processing a key, in order.
    """

    sizes: Sequence[int]
    crew: Crew
    looks: list[str] = field(default_factory=list)
    pages: Counter[int] = field(default_factory=Counter)
    failed: list[tuple[str, bool]] = field(default_factory=list)
    most_held: int = 0
    raises: dict[str, list[BaseException]] = field(default_factory=dict)
    again: list[str] = field(default_factory=list)
    workers: set[int] = field(default_factory=set)
    takes_ms: float = 0

    def sweep(self, workers: int, remaining_ms: Callable[[], int] = lambda: PLENTY_MS) -> Sweep:
        """A sweep over them."""
        parts = deque(
            Part(name=f"part {number}", page=self._pages(number, size), look=self._look)
            for number, size in enumerate(self.sizes)
        )
        self._parts = list(parts)
        return Sweep(
            parts=parts,
            remaining_ms=remaining_ms,
            failed=lambda name, _, for_good: self.failed.append((name, for_good)),
            workers=workers,
            crew=self.crew,
            drawn=lambda: 0.5,
        )

    def _pages(self, number: int, size: int) -> Callable[[Start], tuple[Sequence[str], Start | None]]:
        def page(start: Start) -> tuple[Sequence[str], Start | None]:
            self._call(f"part {number}")
            self.pages[number] += 1
            first = int(start.get("from", 0))
            keys = [f"{number}/{n}" for n in range(first, min(first + PAGE, size))]
            return keys, {"from": first + PAGE} if first + PAGE < size else None

        return page

    def _look(self, key: str, again: bool) -> None:
        self.most_held = max(self.most_held, sum(part.held for part in self._parts))
        if again:
            self.again.append(key)
        self._call(key)
        self.looks.append(key)
        self.workers.add(threading.get_ident())

    def _call(self, name: str) -> None:
        if isinstance(self.crew, TurnTakers):
            self.crew.sleep(self.takes_ms)
        if self.raises.get(name):
            raise self.raises[name].pop(0)

    @property
    def all_keys(self) -> list[str]:
        """Every key there is."""
        return sorted(f"{number}/{n}" for number, size in enumerate(self.sizes) for n in range(size))


@pytest.fixture
def crew(monkeypatch: pytest.MonkeyPatch) -> TurnTakers:
    """Workers in virtual time."""
    crew = TurnTakers()
    monkeypatch.setattr(time, "sleep", lambda seconds: crew.sleep(seconds * 1_000))
    return crew


# All of it, in turn, lazily.


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize("workers", [1, 2, 7])
def test_every_key_is_processed_once_by_any_number_of_workers(seed: int, workers: int) -> None:
    keys = Field([12, 0, 5, 1, 31], TurnTakers(seed))

    assert keys.sweep(workers).run() is True
    assert sorted(keys.looks) == keys.all_keys
    assert keys.failed == []


def test_one_key_of_each_part_comes_after_the_other() -> None:
    keys = Field([3, 1, 2], TurnTakers())
    keys.sweep(1).run()

    assert keys.looks == ["0/0", "1/0", "2/0", "0/1", "2/1", "0/2"]


def test_no_part_is_worked_off_alone_and_none_waits_for_another(crew: TurnTakers) -> None:
    keys = Field([1_000, 40, 40, 40], crew, takes_ms=10)
    keys.sweep(4).run()

    worked_off = [Counter(key.partition("/")[0] for key in keys.looks[: 4 * n]) for n in range(1, 41)]
    assert all(max(found.values()) - min(found[f"{part}"] for part in range(4)) <= 2 for found in worked_off)


def test_a_page_is_read_only_when_the_one_before_is_worked_off(crew: TurnTakers) -> None:
    keys = Field([50, 50], crew, takes_ms=1)
    keys.sweep(3).run()

    assert (sorted(keys.looks), keys.most_held <= 2 * PAGE) == (keys.all_keys, True)


def test_all_workers_take_part(crew: TurnTakers) -> None:
    """A worker that finds every page being read waits for it."""
    keys = Field([12, 31], crew, takes_ms=1)
    keys.sweep(4).run()

    assert (sorted(keys.looks), len(keys.workers)) == (keys.all_keys, 4)


@pytest.mark.parametrize("workers", [1, 8])
def test_no_more_than_a_page_of_each_part_is_held_however_much_is_due(workers: int) -> None:
    keys = Field([20_000, 20_000, 3], Threads() if workers == 1 else TurnTakers())
    keys.sweep(workers).run()

    assert len(keys.looks) == 40_003
    assert keys.most_held <= 3 * PAGE


def test_pages_are_read_when_they_are_needed() -> None:
    keys = Field([100, 100], TurnTakers())
    left = iter(range(SPARE_MS + 7, 0, -1))

    assert keys.sweep(1, lambda: next(left)).run() is False
    assert keys.pages == {0: 1, 1: 1}


def test_a_page_without_keys_that_has_a_successor_does_not_end_its_part() -> None:
    pages: list[tuple[list[str], Start | None]] = [([], {"from": 1}), (["key"], None)]
    looks: list[str] = []
    part = Part(name="part", page=lambda _: pages.pop(0), look=lambda key, _: looks.append(key))
    swept = Sweep(parts=deque([part]), remaining_ms=lambda: PLENTY_MS, failed=lambda *_: None, workers=1)

    assert (swept.run(), looks) == (True, ["key"])


# Failed keys.


@pytest.mark.parametrize(
    "error", [DENIED, ValueError("no record"), KeyError("N"), TypeError(), IndexError(), RecursionError()]
)
def test_a_failed_key_blocks_no_other(error: Exception) -> None:
    keys = Field([4, 4], TurnTakers(), raises={"0/1": [error]})

    assert keys.sweep(3).run() is True
    assert sorted(keys.looks) == [key for key in keys.all_keys if key != "0/1"]
    assert keys.failed == [("0/1", True)]


def test_a_failing_part_blocks_no_other() -> None:
    keys = Field([4, 4], TurnTakers(), raises={"part 0": [DENIED]})

    keys.sweep(3).run()

    assert sorted(keys.looks) == ["1/0", "1/1", "1/2", "1/3"]
    assert keys.failed == [("part 0", True)]


def tried_again(crew: TurnTakers, error: Exception = THROTTLED) -> None:
    keys = Field([6], crew, raises={"0/2": [error] * (ATTEMPTS - 1)})

    assert keys.sweep(2).run() is True
    assert (sorted(keys.looks), keys.failed) == (keys.all_keys, [])
    assert keys.again == ["0/2"] * (ATTEMPTS - 1)


FOR_NOW = (
    ("GetItem", "ProvisionedThroughputExceededException"),
    ("GetItem", "RequestLimitExceeded"),
    ("UpdateItem", "TransactionConflictException"),
    ("StartExecution", "ExecutionLimitExceeded"),
    ("DescribeExecution", "KmsThrottlingException"),
    ("SendMessage", "RequestThrottled"),
    ("SendMessage", "KmsThrottled"),
)
"""Calls, and what the services name their refusals that pass."""


def refused(operation: str, code: str) -> ClientError:
    """A refusal, as botocore raises it."""
    return ClientError({"Error": {"Code": code, "Message": ""}, "ResponseMetadata": _STATUS}, operation)


_STATUS: Any = {"HTTPStatusCode": 400}


@pytest.mark.parametrize(
    "error",
    [THROTTLED, ReadTimeoutError(endpoint_url="x"), *(refused(*said) for said in FOR_NOW)],
    ids=lambda error: aws.error_code(error) or type(error).__name__,
)
def test_a_temporary_refusal_is_retried_and_reported(crew: TurnTakers, error: Exception) -> None:
    tried_again(crew, error)


def test_a_key_that_is_refused_for_long_is_left_to_the_next_sweep(crew: TurnTakers) -> None:
    keys = Field([6], crew, raises={"0/2": [THROTTLED] * 100})

    assert keys.sweep(2).run() is True
    assert (len(keys.looks), keys.failed) == (5, [("0/2", False)])


def test_a_page_that_is_refused_for_now_is_read_again(crew: TurnTakers) -> None:
    keys = Field([6], crew, raises={"part 0": [THROTTLED]})

    keys.sweep(2).run()

    assert (sorted(keys.looks), keys.failed) == (keys.all_keys, [])


# Slowing down.


def test_concurrent_refusals_slow_down_once(crew: TurnTakers) -> None:
    brake = Brake()
    for _ in range(8):
        brake.refused(0)

    assert (brake.pause_ms, brake.pulled) == (FIRST_PAUSE_MS, 1)


def test_the_pause_doubles_up_to_a_limit_and_is_drawn_with_full_jitter() -> None:
    brake = Brake()
    pauses = []
    for _ in range(12):
        brake.refused(brake.pulled)
        pauses.append(brake.pause_ms)

    assert pauses[:4] == [FIRST_PAUSE_MS * 2**n for n in range(4)]
    assert pauses[-1] == LONGEST_PAUSE_MS
    assert [brake.delay_ms(drawn) for drawn in (0, 0.25, 1)] == [0, LONGEST_PAUSE_MS / 4, LONGEST_PAUSE_MS]


def test_successes_speed_up_slowly_until_no_worker_waits() -> None:
    brake = Brake(pause_ms=LONGEST_PAUSE_MS)
    pauses = [brake.pause_ms]
    while brake.pause_ms:
        brake.eased()
        pauses.append(brake.pause_ms)

    assert all(0.98 < after / before < 1 for before, after in pairwise(pauses[:-1]))
    assert 200 < len(pauses) < 400


def test_a_refusal_of_one_worker_delays_all(crew: TurnTakers) -> None:
    """One of four workers is refused: all wait before their next keys."""
    began: dict[int, list[float]] = {}

    def looks(key: str, again: bool) -> None:
        began.setdefault(threading.get_ident(), []).append(crew.now_ms)
        if key == "0" and not again:
            raise THROTTLED
        crew.sleep(10)

    pages: list[list[str]] = [[str(n) for n in range(8)]]
    part = Part(name="part", page=lambda _: (pages.pop(), None), look=looks)
    Sweep(
        parts=deque([part]),
        remaining_ms=lambda: PLENTY_MS,
        failed=lambda *_: None,
        workers=4,
        crew=crew,
        drawn=lambda: 0.5,
    ).run()

    assert len(began) == 4
    assert all(after - before >= FIRST_PAUSE_MS / 3 for times in began.values() for before, after in pairwise(times))


def test_the_rate_that_is_borne_is_found_and_few_calls_are_wasted(crew: TurnTakers) -> None:
    """A service that bears 15 a second, and has 30 to begin with, is asked about as often as it bears."""
    bucket = Bucket(crew, size=30, refill=15)
    keys = Field([600], crew, takes_ms=50)
    looked = keys._look

    def look(key: str, again: bool) -> None:
        bucket.take()
        looked(key, again)

    sweep = keys.sweep(12)
    for part in sweep.parts:
        part.look = look
    assert sweep.run() is True
    assert len(keys.looks) + len(keys.failed) == 600
    seconds = crew.now_ms / 1_000
    assert (len(keys.looks) - 30) / seconds > 0.7 * 15
    assert bucket.refused < 0.25 * len(keys.looks)


class Bucket:
    """So many calls a second, and some to begin with."""

    def __init__(self, crew: TurnTakers, *, size: float, refill: float) -> None:
        self._crew, self._size, self._refill = crew, size, refill
        self._tokens, self._at = size, crew.now_ms
        self.refused = 0

    def take(self) -> None:
        """One of them."""
        now = self._crew.now_ms
        self._tokens = min(self._size, self._tokens + (now - self._at) / 1_000 * self._refill)
        self._at = now
        if self._tokens < 1:
            self.refused += 1
            raise THROTTLED
        self._tokens -= 1


# The end.


def in_time(crew: TurnTakers) -> None:
    keys = Field([1_000, 1_000], crew, takes_ms=30)
    end = 2_000 + SPARE_MS

    assert keys.sweep(5, lambda: int(end - crew.now_ms)).run() is False
    assert 0 < len(keys.looks) < 2_000
    assert crew.now_ms <= 2_000 + 3 * 30  # what had begun by then: a page and two looks, one after the other


@pytest.mark.parametrize("seed", SEEDS)
def test_no_look_is_begun_when_the_time_is_up(seed: int) -> None:
    in_time(TurnTakers(seed))


def test_no_worker_waits_beyond_the_end(crew: TurnTakers) -> None:
    keys = Field([50], crew, takes_ms=1, raises={f"0/{n}": [THROTTLED] * 9 for n in range(50)})
    end = 1_000 + SPARE_MS

    assert keys.sweep(4, lambda: int(end - crew.now_ms)).run() is False
    assert crew.now_ms <= 1_010


@pytest.mark.parametrize("workers", [1, 2, WORKERS])
def test_no_thread_is_left(workers: int) -> None:
    before = set(threading.enumerate())
    keys = Field([40, 40], Threads())

    assert keys.sweep(workers).run() is True
    assert (sorted(keys.looks), set(threading.enumerate())) == (keys.all_keys, before)


@pytest.mark.parametrize("workers", [1, 2, WORKERS])
def test_an_error_that_kills_one_worker_ends_all_and_is_raised(workers: int) -> None:
    before = set(threading.enumerate())
    keys = Field([4_000, 4_000], Threads(), raises={"0/3": [Killed("here")]})

    with pytest.raises(Killed, match="here"):
        keys.sweep(workers).run()
    assert set(threading.enumerate()) == before
    assert len(keys.looks) < 8_000


class OneAfterTheOther:
    """Workers, each of which begins when the previous one has ended, however it did."""

    def lock(self) -> AbstractContextManager[object]:
        """A lock without contention."""
        return threading.Lock()

    def run(self, work: Callable[[], None], workers: int) -> None:
        """Let each of them work."""
        killed: list[BaseException] = []
        for _ in range(workers):
            try:
                work()
            except Killed as error:
                killed.append(error)
        raise killed[0]


def test_no_worker_continues_when_one_was_killed() -> None:
    keys = Field([9, 9], OneAfterTheOther(), raises={"0/3": [Killed("here")]})

    with pytest.raises(Killed):
        keys.sweep(3).run()
    assert len(keys.looks) == 6


def test_no_look_is_begun_when_the_time_was_up_while_waiting(crew: TurnTakers) -> None:
    """Waiting takes a little longer than was asked for, and then the time is up."""
    keys = Field([9], crew, raises={"0/0": [THROTTLED]})
    sweep = keys.sweep(1, lambda: int(SPARE_MS + 10 - 2 * crew.now_ms))

    assert sweep.run() is False
    assert (keys.looks, keys.again) == ([], [])


def test_a_permanent_refusal_slows_no_worker_down() -> None:
    keys = Field([4], TurnTakers(), raises={"0/1": [DENIED], "0/2": [ValueError()]})
    sweep = keys.sweep(1)

    assert (sweep.run(), sweep.brake.pulled, sweep.brake.pause_ms) == (True, 0, 0)


def test_there_are_as_many_connections_as_workers() -> None:
    config: Any = aws.CONFIG
    assert config.max_pool_connections >= WORKERS
