"""Working off what is due, by several workers at once: in turn, lazily, and ever more slowly while AWS refuses.

Knows nothing of sagas: a part is a place where keys are found, page by page, and what is done with a key.

* In turn: one key of each part, then the next one of each. None is worked off alone, and none waits for another's end.
* Lazily: no more than one page of each part is held, however much is due.
* Slowly: what AWS refuses for now makes every worker wait before each of its next looks, and is tried again; each look
  that goes well makes the waits a little shorter.
* Nothing is lost: a key that failed, or for which no time was left, stays due.
"""

from __future__ import annotations

import random
import threading
import time
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Final, Protocol, TypeVar

from saga_runtime.shared import aws

WORKERS: Final = aws.CONNECTIONS
"""As many as there are connections for."""
SPARE_MS: Final = 10_000
"""No look is begun when less is left of the function's time: a whole one fits in, unless AWS is very slow."""
ATTEMPTS: Final = 6
"""Of one key; then it is left to the next sweep."""
FIRST_PAUSE_MS: Final = 100
LONGEST_PAUSE_MS: Final = 8_000
EASE: Final = 1 / 64
"""Reduction of the pause by a success."""

Result = TypeVar("Result")
Start = Mapping[str, Any]
"""Where the next page begins; empty: at the beginning."""


class Crew(Protocol):
    """Pool of workers."""

    def lock(self) -> AbstractContextManager[object]:
        """A lock that one worker may hold while it waits for AWS."""

    def run(self, work: Callable[[], None], workers: int) -> None:
        """Let so many workers do some work; return, or raise what one of them raised, when all have ended."""


class Threads:
    """The calling thread, and as many more as are needed. None is left afterwards."""

    def lock(self) -> AbstractContextManager[object]:
        """A lock of this process."""
        return threading.Lock()

    def run(self, work: Callable[[], None], workers: int) -> None:
        """Work in the calling thread and the others; wait for all of them."""
        if workers == 1:
            work()
            return
        with ThreadPoolExecutor(workers - 1, thread_name_prefix="sweep") as pool:
            others = [pool.submit(work) for _ in range(workers - 1)]
            work()
        for other in others:
            other.result()


@dataclass(slots=True)
class Brake:
    """For how long each worker waits before its next look: one pause for all, drawn with full jitter. Pure.

    It doubles when AWS refuses, but once for all that had begun before it last did: many workers that are refused at
    once are one reason to slow down. A rate that AWS bears is found, and tried again and again with a little more.

    Attributes:
        pause_ms: the longest wait.
        pulled: how often it was made longer.
    """

    pause_ms: float = 0.0
    pulled: int = 0

    def delay_ms(self, drawn: float) -> float:
        """Delay for a random number in [0, 1)."""
        return drawn * self.pause_ms

    def refused(self, began: int) -> None:
        """Record that AWS refused a check that began at this count of refusals."""
        if began == self.pulled:
            self.pause_ms = min(max(FIRST_PAUSE_MS, 2 * self.pause_ms), LONGEST_PAUSE_MS)
            self.pulled += 1

    def eased(self) -> None:
        """Record a success."""
        shorter = self.pause_ms * (1 - EASE)
        self.pause_ms = shorter if shorter >= FIRST_PAUSE_MS / 2 else 0.0


@dataclass(slots=True, kw_only=True)
class Part:
    """A place where keys are found.

    Attributes:
        name: for logs.
        page: keys from a start on, and the start of the next page; None: the last page.
        look: processes a key; called with whether it is a retry.
    """

    name: str
    page: Callable[[Start], tuple[Sequence[str], Start | None]]
    look: Callable[[str, bool], None]
    _start: Start | None = field(default_factory=dict)
    _keys: deque[str] = field(default_factory=deque)

    @property
    def held(self) -> int:
        """Keys that are in memory."""
        return len(self._keys)

    @property
    def ended(self) -> bool:
        """True if there is nothing left to take."""
        return not self._keys and self._start is None

    def fill(self, _again: bool = False) -> None:
        """Read the next page if one is needed."""
        if not self._keys and self._start is not None:
            keys, self._start = self.page(self._start)
            self._keys.extend(keys)

    def take(self) -> str | None:
        """The next key that was read."""
        return self._keys.popleft() if self._keys else None


@dataclass(slots=True, kw_only=True)
class Sweep:
    """Processes every key of some parts, once.

    Guaranteed: it ends when everything was processed, or when the time is up; a worker's error that is not of one
    key ends it, too, and is raised again. No worker is left.
    Not guaranteed: the order; and its end, while AWS does not answer: a function that waits for longer than it may is
    ended with its process.

    Attributes:
        parts: places where keys are found; the first one is asked first.
        remaining_ms: time that is left.
        failed: called with a key, or a part, that failed: its name, the error, and whether a retry
            try again.
        workers: number of concurrent workers.
        crew: who they are.
        drawn: random numbers in [0, 1).
    """

    parts: deque[Part]
    remaining_ms: Callable[[], int]
    failed: Callable[[str, Exception, bool], None]
    workers: int = WORKERS
    crew: Crew = field(default_factory=Threads)
    drawn: Callable[[], float] = random.random
    brake: Brake = field(default_factory=Brake)
    _complete: bool = True
    _stopped: bool = False
    _mine: threading.Lock = field(default_factory=threading.Lock)
    _turn: AbstractContextManager[object] = field(init=False)

    def __post_init__(self) -> None:
        self._turn = self.crew.lock()

    def run(self) -> bool:
        """Process every key; return whether there was time for all of them."""
        self.crew.run(self._work, self.workers)
        return self._complete

    def _work(self) -> None:
        try:
            while (taken := self._next()) is not None:
                part, key = taken
                self._attempt(key, partial(part.look, key))
        except BaseException:
            self._stopped = True  # what killed one worker kills all of them
            raise

    def _next(self) -> tuple[Part, str] | None:
        """The next key of the next part. A worker that needs a page reads it, and the others wait for it."""
        with self._turn:
            while self.parts and self._goes_on():
                part = self.parts.popleft()
                if not part.held and not self._attempt(part.name, part.fill):
                    continue  # it does not answer: the others do not wait for it
                key = part.take()
                if not part.ended:
                    self.parts.append(part)
                if key is not None:
                    return part, key
        return None

    def _goes_on(self) -> bool:
        if self.remaining_ms() < SPARE_MS:
            self._complete = False
        return self._complete and not self._stopped

    def _attempt(self, name: str, act: Callable[[bool], None]) -> bool:
        """Test whether something was done, in spite of what AWS refuses for now."""
        for attempt in range(1, ATTEMPTS + 1):
            began = self._wait()
            if began is None:
                return False
            try:
                act(attempt > 1)
            except aws.OF_ONE_ITEM as error:
                for_now = _is_for_now(error)
                if for_now:
                    with self._mine:
                        self.brake.refused(began)
                if not for_now or attempt == ATTEMPTS:
                    self.failed(name, error, not for_now)
                    return False
            else:
                with self._mine:
                    self.brake.eased()
                return True
        return False

    def _wait(self) -> int | None:
        """Wait for the brake's delay, and return its count of refusals; None: no time is left for that."""
        with self._mine:
            delay_ms, pulled = self.brake.delay_ms(self.drawn()), self.brake.pulled
        if delay_ms:
            time.sleep(min(delay_ms, max(0, self.remaining_ms() - SPARE_MS)) / 1_000)
        return pulled if self._goes_on() else None


def _is_for_now(error: BaseException) -> bool:
    """Test whether it may help to try again: a callback's transaction on the same record is over in a moment, too."""
    return aws.is_transient(error) or aws.error_code(error) == aws.TRANSACTION_CONFLICT
