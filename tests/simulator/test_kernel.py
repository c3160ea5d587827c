"""The kernel: one thing at a time, in virtual time."""

from __future__ import annotations

import pytest

from constructs_lib.testing.simulator.engine.kernel import (
    Elapsed,
    Future,
    Kernel,
    OutOfStepsError,
    Process,
    ProcessKilled,
    current_task,
)
from constructs_lib.testing.simulator.errors import NotSimulatedError


@pytest.fixture
def kernel() -> Kernel:
    return Kernel(start=0)


def test_tasks_continue_in_the_order_of_their_time(kernel: Kernel) -> None:
    seen: list[tuple[int, str]] = []

    def wait(name: str, *delays: int) -> None:
        for delay in delays:
            kernel.sleep(delay)
            seen.append((kernel.now, name))

    process = Process("p")
    kernel.spawn(process, lambda: wait("a", 10, 10))
    kernel.spawn(process, lambda: wait("b", 5, 10))
    kernel.run()
    assert seen == [(5, "b"), (10, "a"), (15, "b"), (20, "a")]


def test_days_pass_at_once(kernel: Kernel) -> None:
    kernel.spawn(Process("p"), lambda: kernel.sleep(86_400_000_000 * 365))
    kernel.run()
    assert kernel.now == 86_400_000_000 * 365


def test_a_killed_process_does_nothing_more(kernel: Kernel) -> None:
    seen: list[str] = []

    def work() -> None:
        try:
            kernel.sleep(100)
            seen.append("continued")
        finally:
            seen.append("unwound")
            with pytest.raises(ProcessKilled):
                kernel.sleep(1)

    process = Process("p")
    kernel.spawn(process, work)
    kernel.after(50, process.kill)
    kernel.run()
    assert seen == ["unwound"]


def test_a_process_that_kills_itself_ends_there(kernel: Kernel) -> None:
    seen: list[str] = []
    process = Process("p")

    def work() -> None:
        process.kill()
        seen.append("continued")

    kernel.spawn(process, work)
    kernel.run()
    assert seen == []
    assert not process.alive


def test_all_tasks_of_a_process_end_with_it(kernel: Kernel) -> None:
    seen: list[int] = []

    def tick() -> None:
        while True:
            kernel.sleep(10)
            seen.append(kernel.now)

    process = Process("p")
    for _ in range(3):
        kernel.spawn(process, tick)
    kernel.after(15, process.kill)
    kernel.run(until=100)
    assert seen == [10, 10, 10]


def test_a_waiting_task_gets_the_result(kernel: Kernel) -> None:
    future: Future[str] = Future(kernel)
    seen: list[tuple[str, int]] = []
    for _ in range(2):
        kernel.spawn(Process("p"), lambda: seen.append((future.wait(), kernel.now)))
    kernel.after(7, lambda: future.set("done"))
    kernel.after(8, lambda: future.set("too late"))
    kernel.run()
    assert seen == [("done", 7), ("done", 7)]


def test_a_wait_that_is_too_long_times_out(kernel: Kernel) -> None:
    future: Future[str] = Future(kernel)
    seen: list[object] = []

    def work() -> None:
        with pytest.raises(Elapsed):
            future.wait(10)
        seen.append(kernel.now)
        seen.append(future.wait(100))

    kernel.spawn(Process("p"), work)
    kernel.after(50, lambda: future.set("late"))
    kernel.run()
    assert seen == [10, "late"]


def test_an_old_timer_never_resumes_a_task_that_waits_for_something_else(kernel: Kernel) -> None:
    first: Future[int] = Future(kernel)
    seen: list[int] = []

    def work() -> None:
        first.wait(10)
        kernel.sleep(100)
        seen.append(kernel.now)

    kernel.spawn(Process("p"), work)
    kernel.after(5, lambda: first.set(1))
    kernel.run()
    assert seen == [105]


def test_a_waiting_task_gets_the_error(kernel: Kernel) -> None:
    def fail() -> None:
        raise ValueError("broken")

    task = kernel.spawn(Process("p"), fail)
    seen: list[str] = []

    def wait() -> None:
        with pytest.raises(ValueError, match="broken"):
            task.ended.wait()
        seen.append("told")

    kernel.spawn(Process("q"), wait)
    kernel.run()
    assert seen == ["told"]


@pytest.mark.parametrize("handles", [True, False])
def test_refusal_ends_the_run_whatever_its_task_does(kernel: Kernel, handles: bool) -> None:
    def need() -> None:
        try:
            error = NotSimulatedError("a thing")
            kernel.refuse(error)
            raise error
        except NotSimulatedError:
            if not handles:
                raise

    kernel.spawn(Process("p"), need)
    with pytest.raises(NotSimulatedError, match="a thing"):
        kernel.run()


def test_refusal_that_no_task_awaits_ends_the_run(kernel: Kernel) -> None:
    def need() -> None:
        raise NotSimulatedError("a thing")

    kernel.spawn(Process("p"), need)
    with pytest.raises(NotSimulatedError, match="a thing"):
        kernel.run()


def test_a_run_that_does_not_end_is_ended() -> None:
    kernel = Kernel(start=0, most_steps=100)

    def again() -> None:
        kernel.after(1, again)

    again()
    with pytest.raises(OutOfStepsError, match="100 steps"):
        kernel.run()


def test_only_a_task_can_wait(kernel: Kernel) -> None:
    with pytest.raises(RuntimeError, match="only a task"):
        kernel.sleep(1)
    with pytest.raises(RuntimeError, match="only a task"):
        current_task()
