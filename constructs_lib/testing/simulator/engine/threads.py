"""Threads of a function as tasks of its process: pools and locks that give way instead of blocking."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator
from typing import Any, Self

from greenlet import getcurrent

from constructs_lib.testing.simulator.engine.kernel import SECOND, Elapsed, Future, Task, current_task


class CooperativeLock:
    """``threading.Lock`` and ``RLock`` among tasks."""

    def __init__(self, *, reentrant: bool) -> None:
        self._reentrant = reentrant
        self._holder: Task | None = None
        self._depth = 0
        self._waiting: deque[Future[None]] = deque()

    def acquire(self, blocking: bool = True, timeout: float = -1) -> bool:
        """Acquire it; wait until its holder releases it."""
        task = getcurrent()
        if not self._depth and type(task) is Task:
            self._depth, self._holder = 1, task
            return True
        if not isinstance(task, Task):  # it was made in a task, and outlived the run: it has no other user
            self._holder, self._depth = None, self._depth + 1
            return True
        while self._depth and self._holder is not None and self._holder.process.alive:
            if self._reentrant and self._holder is task:
                break
            if not blocking:
                return False
            turn: Future[None] = Future(task.kernel)
            self._waiting.append(turn)
            try:
                turn.wait(None if timeout < 0 else int(timeout * SECOND))
            except Elapsed:
                return False
        # A holder that died with its process has left it behind.
        self._depth = self._depth + 1 if self._holder is task else 1
        self._holder = task
        return True

    def release(self) -> None:
        """Let go of it."""
        if not self._depth:
            raise RuntimeError("release unlocked lock")
        self._depth -= 1
        if not self._depth:
            self._holder = None
            if self._waiting:
                self._waiting.popleft().set(None)

    def locked(self) -> bool:
        """Test whether a task holds it."""
        return bool(self._depth)

    def __enter__(self) -> bool:
        return self.acquire()

    def __exit__(self, *_: object) -> None:
        self.release()


class TaskFuture:
    """``concurrent.futures.Future`` of a task."""

    def __init__(self, ended: Future[Any]) -> None:
        self._ended = ended

    def result(self, timeout: float | None = None) -> Any:
        """Return the result; raise what was raised, or TimeoutError."""
        try:
            return self._ended.wait(None if timeout is None else int(timeout * SECOND))
        except Elapsed:
            raise TimeoutError from None

    def exception(self, timeout: float | None = None) -> BaseException | None:
        """Return what was raised; None: it returned."""
        try:
            self.result(timeout)
        except TimeoutError:
            raise
        except Exception as error:  # noqa: BLE001 - it is the result
            return error
        return None

    def done(self) -> bool:
        """Test whether it has ended."""
        return self._ended.done

    def cancel(self) -> bool:
        """It cannot be cancelled."""
        return False


class TaskPool:
    """``concurrent.futures.ThreadPoolExecutor``: so many tasks of the present process at once."""

    def __init__(self, workers: int) -> None:
        task = current_task()
        self._kernel = task.kernel
        self._process = task.process
        self._free = workers
        self._work: deque[tuple[Callable[[], Any], Future[Any]]] = deque()
        self._all: list[Future[Any]] = []

    def submit(self, function: Callable[..., Any], /, *arguments: Any, **options: Any) -> TaskFuture:
        """Have something done."""
        ended: Future[Any] = Future(self._kernel)
        self._all.append(ended)
        self._work.append((lambda: function(*arguments, **options), ended))
        if self._free:
            self._free -= 1
            self._kernel.spawn(self._process, self._run)
        return TaskFuture(ended)

    def map(
        self, function: Callable[..., Any], *iterables: Iterable[Any], timeout: float | None = None
    ) -> Iterator[Any]:
        """Results in order."""
        futures = [self.submit(function, *arguments) for arguments in zip(*iterables, strict=False)]
        return (future.result(timeout) for future in futures)

    def shutdown(self, wait: bool = True, *, cancel_futures: bool = False) -> None:
        """Wait until everything has ended."""
        if cancel_futures:
            self._work.clear()
        if wait:
            for ended in self._all:
                TaskFuture(ended).exception()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.shutdown()

    def _run(self) -> None:
        while self._work:
            work, ended = self._work.popleft()
            try:
                result = work()
            except Exception as error:  # noqa: BLE001 - raised in tasks that wait for it
                ended.fail(error)
            else:
                ended.set(result)
        self._free += 1
