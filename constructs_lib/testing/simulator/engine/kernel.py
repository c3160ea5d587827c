"""Tasks that run one at a time, in virtual time.

A task is a greenlet: it runs until it waits, and the kernel decides what runs next. What comes next is the earliest
entry of one heap, ordered by virtual time and then by number, so that the same delays repeat a
run exactly. Nothing here knows AWS.

A process is what dies as a whole: all of its tasks, at once. What a dead process was about to do does not happen: its
tasks are unwound, and every call that they make while they are unwound is refused.
"""

from __future__ import annotations

import heapq
import random
from collections.abc import Callable
from typing import Any, Final, Generic, TypeVar

from greenlet import getcurrent, greenlet

from constructs_lib.testing.simulator.errors import NotSimulatedError

SECOND: Final = 1_000_000
"""Virtual time is counted in microseconds: whole numbers, so that sums are exact."""
MILLISECOND: Final = 1_000
_END_OF_TIME: Final = 2**63

Result = TypeVar("Result")


class ProcessKilled(BaseException):
    """The process of this task is dead: nothing that it does has an effect."""


class Elapsed(Exception):
    """The time for which a task was ready to wait is over."""


class OutOfStepsError(RuntimeError):
    """A run does not end: more happened than a run may take."""


class Process:
    """Something that runs and may die: an invocation, an execution, a client, a provider.

    Attributes:
        name: for traces.
        alive: whether its tasks may continue.
        skew: microseconds by which its clock is ahead of the kernel's.
        on_enter: called before one of its tasks continues; None: nothing has to be prepared.
        on_death: called once it was killed; None: no call.
    """

    __slots__ = ("_tasks", "alive", "name", "on_death", "on_enter", "skew")

    def __init__(self, name: str, *, skew: int = 0, on_enter: Callable[[], None] | None = None) -> None:
        self.name = name
        self.alive = True
        self.skew = skew
        self.on_enter = on_enter
        self.on_death: Callable[[], None] | None = None
        self._tasks: list[Task] = []

    @property
    def must_succeed(self) -> bool:
        """True if an exception of a task of it ends the run: it would not be noticed otherwise."""
        return False

    def kill(self) -> None:
        """End every task of it, where it is. A task that kills its own process ends with this call."""
        if self.alive and self.on_death is not None:
            self.on_death()
        self.alive = False
        current = getcurrent()
        tasks, self._tasks = self._tasks, []
        for task in tasks:
            if task is not current and not task.dead:
                task.unwind()
        if current in tasks:
            raise ProcessKilled

    def has_others(self) -> bool:
        """True if tasks of it besides the current one have not ended."""
        current = getcurrent()
        return any(task is not current and not task.dead for task in self._tasks)

    def join(self, task: Task) -> None:
        """Add a task to it."""
        self._tasks = [known for known in self._tasks if not known.dead]
        self._tasks.append(task)


class Task(greenlet):
    """One thread of a process.

    Attributes:
        process: its process.
        kernel: keeps its time.
        ended: what it returned, or raised.
        waits: how often it has waited; a resumption names its wait, so that an old one is never resumed.
    """

    def __init__(self, kernel: Kernel, process: Process, work: Callable[[], Any]) -> None:
        super().__init__(self._work, kernel.hub)
        self.process = process
        self.waits = 0
        self.ended: Future[Any] = Future(kernel)
        self.kernel = kernel
        self._do = work

    def _work(self, _started_with: Any) -> None:
        try:
            result = self._do()
        except ProcessKilled:
            return
        except Exception as error:  # noqa: BLE001 - raised in tasks that wait for it
            if isinstance(error, NotSimulatedError) or self.process.must_succeed:
                self.kernel.refuse(error)
            self.ended.fail(error)
        else:
            self.ended.set(result)

    def unwind(self) -> None:
        """End it where it waits; its ``finally`` blocks run, and change nothing outside its process."""
        hub: Any = self.parent
        self.parent = getcurrent()
        try:
            self.throw(ProcessKilled)
        except ProcessKilled:
            pass
        finally:
            if not self.dead:  # it caught ProcessKilled, and waits again: it is never resumed
                self.parent = hub


def current_task() -> Task:
    """The task that runs now.

    Raises:
        RuntimeError: if none does.
    """
    current = getcurrent()
    if not isinstance(current, Task):
        raise RuntimeError("only a task can wait; start one with Kernel.spawn")
    return current


def current_process() -> Process | None:
    """The process that runs now; None: nothing of a simulation does, or the hub."""
    current = getcurrent()
    return current.process if isinstance(current, Task) else None


class Timer:
    """Something that is due at a time, unless it is cancelled."""

    __slots__ = ("act", "at")

    def __init__(self, at: int, act: Callable[[], None] | None) -> None:
        self.at = at
        self.act = act

    def cancel(self) -> None:
        """Let nothing happen."""
        self.act = None


class _Rest:
    """A task that sleeps."""

    __slots__ = ("task", "wait")

    def __init__(self, task: Task, wait: int) -> None:
        self.task = task
        self.wait = wait


class Kernel:
    """Virtual time, and what happens in it.

    Attributes:
        now: microseconds since the epoch.
        hub: the greenlet in which ``run`` was called; every task returns to it when it waits.
        steps: how many entries of the heap were taken so far.
        entropy: where the randomness of tasks comes from.
    """

    def __init__(self, *, start: int, entropy: random.Random | None = None, most_steps: int = 5_000_000) -> None:
        self.now = start
        self.entropy = entropy or random.Random(0)
        self.hub = getcurrent()
        self.steps = 0
        self._most_steps = most_steps
        self._refused: Exception | None = None
        self._until = start
        self._heap: list[tuple[int, int, Timer | _Rest]] = []
        self._number = 0

    def at(self, moment: int, act: Callable[[], None]) -> Timer:
        """Do something at a moment; at once, after what is due already, if it has passed."""
        timer = Timer(max(moment, self.now), act)
        self._number += 1
        heapq.heappush(self._heap, (timer.at, self._number, timer))
        return timer

    def after(self, delay: int, act: Callable[[], None]) -> Timer:
        """Do something after some microseconds."""
        return self.at(self.now + delay, act)

    def spawn(self, process: Process, work: Callable[[], Any]) -> Task:
        """Start a task; it runs for the first time when the present one waits."""
        task = Task(self, process, work)
        process.join(task)
        self.at(self.now, lambda: self.resume(task, 0))
        return task

    def resume(self, task: Task, wait: int, value: Any = None) -> None:
        """Resume a task that still waits for the same thing. Only the hub may.

        Args:
            task: which one.
            wait: its number of waits when it began to wait.
            value: what ``wait`` returns there.
        """
        process = task.process
        if task.waits != wait or not process.alive or task.dead:
            return
        if process.on_enter is not None:
            process.on_enter()
        task.switch(value)

    def refuse(self, error: Exception) -> None:
        """End the run with an error, whatever the task that met it does about it."""
        self._refused = self._refused or error

    def sleep(self, delay: int) -> None:
        """Let the present task wait for some microseconds.

        The task continues at once if nothing else is due until then: the hub would resume it next.

        Raises:
            ProcessKilled: if its process is dead.
        """
        task = current_task()
        due = self.now + delay
        if (
            task.process.alive
            and due <= self._until
            and not (self._heap and self._heap[0][0] <= due)
            and self.steps < self._most_steps
        ):
            self.steps += 1
            self.now = due
            return
        self._number += 1
        heapq.heappush(self._heap, (self.now + delay, self._number, _Rest(task, task.waits + 1)))
        self.wait(task)

    def wait(self, task: Task) -> Any:
        """Let the present task wait until it is resumed, and return what it was resumed with.

        Raises:
            ProcessKilled: if its process is dead.
        """
        if not task.process.alive:
            raise ProcessKilled
        task.waits += 1
        return self.hub.switch()

    def run(self, *, until: int | None = None, ended: Callable[[], bool] | None = None) -> bool:
        """Let things happen until nothing is left to do, a moment is reached, or something is true.

        Args:
            until: the last moment; None: no limit.
            ended: called after every entry.

        Returns:
            Whether it stopped because ``ended`` was true.

        Raises:
            OutOfStepsError: if more happens than a run may take.
            NotSimulatedError: if it needs what the simulator does not have.
            Exception: whatever a task raises whose process must succeed.
        """
        heap = self._heap
        self._until = until if until is not None else _END_OF_TIME
        while heap:
            moment, _, entry = heap[0]
            if until is not None and moment > until:
                self.now = until
                return False
            heapq.heappop(heap)
            self.steps += 1
            if self.steps > self._most_steps:
                raise OutOfStepsError(f"the run took {self._most_steps} steps and has not ended")
            if isinstance(entry, _Rest):
                self.now = moment
                self.resume(entry.task, entry.wait)
            elif (act := entry.act) is not None:
                self.now = moment
                act()
            if self._refused is not None:
                raise self._refused
            if ended is not None and ended():
                return True
        if until is not None:
            self.now = max(self.now, until)
        return False


class Future(Generic[Result]):
    """A result that tasks wait for; the first one counts."""

    __slots__ = ("_error", "_kernel", "_result", "_waiting", "done")

    def __init__(self, kernel: Kernel) -> None:
        self._kernel = kernel
        self._waiting: list[Callable[[], None]] = []
        self._result: Result | None = None
        self._error: BaseException | None = None
        self.done = False

    def set(self, result: Result) -> None:
        """Have a result, unless there is one already."""
        self._settle(result, None)

    def fail(self, error: BaseException) -> None:
        """Have an error, unless there is a result already."""
        self._settle(None, error)

    def then(self, act: Callable[[], None]) -> None:
        """Have something done when there is a result; at once if there is."""
        if self.done:
            act()
        else:
            self._waiting.append(act)

    def value(self) -> Result:
        """The result.

        Raises:
            BaseException: the error, if that is the result.
        """
        if self._error is not None:
            raise self._error
        return self._result  # type: ignore[return-value]  # None is a result, too

    def wait(self, timeout: int | None = None) -> Result:
        """Let the present task wait for the result.

        A process that is killed meanwhile never continues: only ``ProcessKilled`` is raised in it.

        Args:
            timeout: microseconds; None: as long as it takes.

        Raises:
            Elapsed: if it took longer.
            BaseException: the error, if that is the result.
        """
        if not self.done:
            kernel, task = self._kernel, current_task()
            wait = task.waits + 1
            timer = None if timeout is None else kernel.after(timeout, lambda: kernel.resume(task, wait, Elapsed))
            self._waiting.append(lambda: kernel.resume(task, wait))
            if kernel.wait(task) is Elapsed:
                raise Elapsed
            if timer is not None:
                timer.cancel()
        return self.value()

    def _settle(self, result: Result | None, error: BaseException | None) -> None:
        if self.done:
            return
        self.done = True
        self._result, self._error = result, error
        waiting, self._waiting = self._waiting, []
        for act in waiting:
            self._kernel.at(self._kernel.now, act)
