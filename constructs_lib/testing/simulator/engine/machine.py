"""Machine of a task: virtual time, its own environment, randomness from the seed, no real threads.

Replaced for the whole process during a run, and put back afterwards. Code outside of tasks (another thread of the
process, the kernel itself) sees the real clock and the real environment. The replacements know nothing of a run: a
module that was loaded in one run may keep them, and finds the next run's clock behind them.
"""

from __future__ import annotations

import concurrent.futures
import os
import random
import threading
import time
from collections.abc import Iterator, MutableMapping
from contextlib import ExitStack, contextmanager
from typing import Any, Final, NoReturn
from unittest import mock

from greenlet import getcurrent

from constructs_lib.testing.simulator.engine.kernel import SECOND, Kernel, Task
from constructs_lib.testing.simulator.engine.threads import CooperativeLock, TaskPool

_NANOSECONDS: Final = 1_000

_real_time, _real_time_ns = time.time, time.time_ns
_real_monotonic, _real_monotonic_ns = time.monotonic, time.monotonic_ns
_real_counter, _real_counter_ns = time.perf_counter, time.perf_counter_ns
_real_sleep, _real_urandom, _real_exit = time.sleep, os.urandom, os._exit
_real_lock, _real_rlock, _real_pool = threading.Lock, threading.RLock, concurrent.futures.ThreadPoolExecutor


class Environment(MutableMapping[str, str]):
    """``os.environ`` of the process that runs."""

    def __init__(self, real: MutableMapping[str, str]) -> None:
        self._real = real
        self.current: MutableMapping[str, str] = real

    def _seen(self) -> MutableMapping[str, str]:
        return self.current if isinstance(getcurrent(), Task) else self._real

    def __getitem__(self, name: str) -> str:
        return self._seen()[name]

    def __setitem__(self, name: str, value: str) -> None:
        self._seen()[name] = value

    def __delitem__(self, name: str) -> None:
        del self._seen()[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._seen())

    def __len__(self) -> int:
        return len(self._seen())

    def copy(self) -> dict[str, str]:
        """A dictionary of it."""
        return dict(self._seen())


_kernels: Final[list[Kernel]] = []
"""Those of runs in progress, the present one last."""


def _skewed() -> int | None:
    """Read the caller's clock: a task's, or the kernel's outside of tasks; None: the real one."""
    current = getcurrent()
    if isinstance(current, Task):
        return current.kernel.now + current.process.skew
    return _kernels[-1].now if _kernels and current is _kernels[-1].hub else None


def _steady() -> int | None:
    """The time without anybody's skew; None: the real one."""
    kernel = _kernel()
    return None if kernel is None else kernel.now


def _kernel() -> Kernel | None:
    """Find the caller's kernel; None: the caller is not part of a simulation."""
    current = getcurrent()
    if isinstance(current, Task):
        return current.kernel
    return _kernels[-1] if _kernels and current is _kernels[-1].hub else None


def _time() -> float:
    now = _skewed()
    return _real_time() if now is None else now / SECOND


def _time_ns() -> int:
    now = _skewed()
    return _real_time_ns() if now is None else now * _NANOSECONDS


def _monotonic() -> float:
    now = _steady()
    return _real_monotonic() if now is None else now / SECOND


def _monotonic_ns() -> int:
    now = _steady()
    return _real_monotonic_ns() if now is None else now * _NANOSECONDS


def _perf_counter() -> float:
    now = _steady()
    return _real_counter() if now is None else now / SECOND


def _perf_counter_ns() -> int:
    now = _steady()
    return _real_counter_ns() if now is None else now * _NANOSECONDS


def _sleep(seconds: float) -> None:
    current = getcurrent()
    if isinstance(current, Task):
        current.kernel.sleep(max(0, int(seconds * SECOND)))
    else:
        _real_sleep(seconds)


def _urandom(size: int) -> bytes:
    kernel = _kernel()
    return _real_urandom(size) if kernel is None else kernel.entropy.randbytes(size)


def _exit(status: int) -> NoReturn:
    current = getcurrent()
    if isinstance(current, Task):
        current.process.kill()
    _real_exit(status)


def _lock() -> Any:
    return CooperativeLock(reentrant=False) if isinstance(getcurrent(), Task) else _real_lock()


def _rlock() -> Any:
    return CooperativeLock(reentrant=True) if isinstance(getcurrent(), Task) else _real_rlock()


def _pool(max_workers: int | None = None, *given: Any, **options: Any) -> Any:
    if isinstance(getcurrent(), Task):
        return TaskPool(max_workers or 1)
    return _real_pool(max_workers, *given, **options)


_REPLACED: Final[tuple[tuple[Any, str, Any], ...]] = (
    (time, "time", _time),
    (time, "time_ns", _time_ns),
    (time, "monotonic", _monotonic),
    (time, "monotonic_ns", _monotonic_ns),
    (time, "perf_counter", _perf_counter),
    (time, "perf_counter_ns", _perf_counter_ns),
    (time, "sleep", _sleep),
    (os, "urandom", _urandom),
    (os, "_exit", _exit),
    (random, "_urandom", _urandom),
    (threading, "Lock", _lock),
    (threading, "RLock", _rlock),
    (concurrent.futures, "ThreadPoolExecutor", _pool),
)


@contextmanager
def virtual_machine(seed: str) -> Iterator[Environment]:
    """Let tasks see a machine of their own, until the context ends.

    Args:
        seed: what the functions of ``random`` draw from.

    Yields:
        ``os.environ``: its variables are set before a process continues.
    """
    state = random.getstate()
    random.seed(f"{seed}:random")
    environment = Environment(os.environ)
    try:
        with ExitStack() as stack:
            for module, name, replacement in (*_REPLACED, (os, "environ", environment)):
                stack.enter_context(mock.patch.object(module, name, replacement))
            yield environment
    finally:
        random.setstate(state)


@contextmanager
def timed_by(kernel: Kernel) -> Iterator[None]:
    """Let a kernel's time be that of what happens in its hub, too, until the context ends."""
    _kernels.append(kernel)
    try:
        yield
    finally:
        _kernels.pop()
