"""Workers that take turns: one runs at a time, chosen by a seed. Time passes only while all wait.

So the concurrent calls of several threads run in one reproducible order. A worker ends its turn where it waits: at a
call (``pass_by``), in ``sleep``, and at a lock that another one holds.
"""

from __future__ import annotations

import heapq
import random
import threading
from collections.abc import Callable
from contextlib import AbstractContextManager
from types import TracebackType


class Gone(BaseException):
    """The process is dead: another of its workers was killed."""


class TurnTakers:
    """Workers for a sweep, in virtual time.

    Attributes:
        now_ms: the time; it begins at 0.
    """

    def __init__(self, seed: int = 0) -> None:
        self.now_ms = 0.0
        self._drawn = random.Random(seed)
        self._waiting: list[tuple[float, float, int]] = []
        self._turns: dict[int, threading.Semaphore] = {}
        self._all_ended = threading.Semaphore(0)
        self._errors: list[BaseException] = []
        self._begun = threading.Barrier(1)

    def run(self, work: Callable[[], None], workers: int) -> None:
        """Let so many workers do some work."""
        self.run_all([work] * workers)

    def run_all(self, works: list[Callable[[], None]]) -> None:
        """Let a worker do each of these; raise what the first one raised that failed."""
        if threading.get_ident() in self._turns:
            raise RuntimeError("workers do not start workers")
        self._errors.clear()
        threads = [threading.Thread(target=self._live, args=(work,)) for work in works]
        self._begun = threading.Barrier(len(threads) + 1)
        for thread in threads:
            thread.start()
        self._begun.wait()
        for thread in threads:
            assert thread.ident is not None
            self._wait_until(self.now_ms, thread.ident)
        self._next()
        self._all_ended.acquire()
        for thread in threads:
            thread.join()
        if self._errors:
            raise self._errors[0]

    def lock(self) -> AbstractContextManager[object]:
        """A lock for these workers."""
        return _Lock(self)

    def sleep(self, ms: float) -> None:
        """Let time pass for this worker while others have their turn; does nothing for other threads."""
        me = threading.get_ident()
        if me not in self._turns:
            return
        self._wait_until(self.now_ms + ms, me)
        self.give_away()

    def pass_by(self) -> None:
        """Let others have their turn, perhaps."""
        self.sleep(0)

    def give_away(self) -> None:
        """Wait until it is this worker's turn again."""
        me = threading.get_ident()
        self._next()
        self._turns[me].acquire()
        if self._errors:
            raise Gone

    def resume(self, ident: int) -> None:
        """Let a worker continue that waits for another one."""
        self._wait_until(self.now_ms, ident)

    def chosen(self, idents: list[int]) -> int:
        """One of those that wait."""
        return idents.pop(self._drawn.randrange(len(idents)))

    def _wait_until(self, ms: float, ident: int) -> None:
        heapq.heappush(self._waiting, (ms, self._drawn.random(), ident))

    def _next(self) -> None:
        ms, _, ident = heapq.heappop(self._waiting)
        self.now_ms = max(self.now_ms, ms)
        self._turns[ident].release()

    def _live(self, work: Callable[[], None]) -> None:
        me = threading.get_ident()
        self._turns[me] = threading.Semaphore(0)
        self._begun.wait()
        self._turns[me].acquire()
        try:
            if not self._errors:
                work()
        except Gone:
            pass
        except BaseException as error:  # noqa: BLE001  # raised again by the caller
            self._errors.append(error)
        del self._turns[me]
        if self._waiting:
            self._next()
        else:
            assert not self._turns, "workers wait for each other"
            self._all_ended.release()


class _Lock:
    def __init__(self, crew: TurnTakers) -> None:
        self._crew = crew
        self._held = False
        self._waiting: list[int] = []

    def __enter__(self) -> None:
        if self._held:
            self._waiting.append(threading.get_ident())
            try:
                self._crew.give_away()  # a released lock ends the turn
            except Gone:
                self._hand_over()
                raise
        self._held = True

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._hand_over()

    def _hand_over(self) -> None:
        if self._waiting:
            self._crew.resume(self._crew.chosen(self._waiting))
        else:
            self._held = False
