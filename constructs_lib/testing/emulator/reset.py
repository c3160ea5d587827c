"""Empties the emulator between tests: data, messages, executions, logs; every stack and its resources stay."""

from __future__ import annotations

import sys
import threading
import time
from collections.abc import Callable
from typing import Any, Final

from ministack.core import lambda_runtime as runtime
from ministack.services import lambda_svc as functions
from ministack.services import stepfunctions as states

from constructs_lib.testing.emulator.corrections import replace

#: How long a reset waits for what it stopped. On a machine with much to do, a sandbox may take seconds to start, and
#: can be killed only then.
_PATIENCE_SECONDS: Final = 20.0
_PAUSE_SECONDS: Final = 0.005
_ASSET_BUCKET_PREFIX: Final = "cdk-"
_POLLS: Final = ("_poll_sqs", "_poll_kinesis", "_poll_dynamodb_streams")

_running: set[int] = set()
_polling = threading.Lock()
"""Held while event sources are polled: nothing else knows the messages that were taken out of a queue."""
_resets = 0


def count() -> int:
    """Return how often the emulator was emptied: what began before the last time must not continue."""
    return _resets


def follow_executions() -> None:
    """Keep count of the threads that run executions, so that a reset can wait for their end."""
    original = states._run_execution

    def run(execution_arn: str) -> None:
        _running.add(threading.get_ident())
        try:
            original(execution_arn)
        finally:
            _running.discard(threading.get_ident())

    states._run_execution = run


def follow_event_sources() -> None:
    """Let no event source be polled during a reset."""

    def make(original: Callable[[], bool]) -> Callable[[], bool]:
        def poll() -> bool:
            with _polling:
                return original()

        return poll

    for name in _POLLS:
        replace(functions, name, make)


def reset() -> None:
    """Empty everything that a test leaves behind.

    What still runs is stopped first, so that nothing of the former test writes into the next one: executions are
    aborted, and a sandbox in the middle of a call is killed. Idle sandboxes stay warm.
    """
    global _resets  # noqa: PLW0603 - one emulator per process
    _resets += 1
    deadline = time.monotonic() + _PATIENCE_SECONDS
    # Again and again: an event source may be about to call a function, so may an execution, and a sandbox that is being
    # unpacked has no process yet that could be killed.
    held = False
    while (_stop_what_runs() or not held) and time.monotonic() < deadline:
        held = held or _polling.acquire(timeout=_PAUSE_SECONDS)
        time.sleep(_PAUSE_SECONDS)
    try:
        for empty in (_empty_states, _empty_tables, _empty_queues, _empty_logs, _empty_buckets, _empty_api):
            empty()
    finally:
        if held:
            _polling.release()


def _stop_what_runs() -> bool:
    """Stop executions and sandboxes, and return whether there were any."""
    # Or the next message is handled as soon as the sandbox that handled the one before is dead.
    _empty_queues()
    _abort_executions()
    return _kill_busy_sandboxes() or bool(_running) or _calls_in_progress()


def _abort_executions() -> None:
    for execution in states._executions.all_values():
        if execution["status"] == "RUNNING":
            try:
                execution["status"] = "ABORTED"
            except Exception:  # noqa: BLE001, S112 - it has ended in the meantime
                continue


def _kill_busy_sandboxes() -> bool:
    with runtime._lock:
        busy = [worker for pool in runtime._workers.values() for worker in pool if worker.in_use]
    for worker in busy:
        process = worker._proc
        if process is not None:
            process.kill()
    return bool(busy)


def _calls_in_progress() -> bool:
    """Test whether a function is called; its log is written last, when its sandbox is free already."""
    return functions._inflight_total > 0 or bool(functions._esm_inflight)


def _empty_states() -> None:
    states._executions._data.clear()
    states._task_tokens._data.clear()
    states._map_runs._data.clear()


def _empty_tables() -> None:
    dynamodb = _loaded("dynamodb")
    if dynamodb is None:
        return
    with dynamodb._lock:
        for table in dynamodb._tables.all_values():
            table["items"].clear()
            table["ItemCount"] = 0
            table["TableSizeBytes"] = 0
        dynamodb._stream_records._data.clear()
        dynamodb._stream_trimmed._data.clear()
        _clear(dynamodb._txn_idempotency)
    with functions._dynamodb_stream_positions_lock:
        functions._dynamodb_stream_positions._data.clear()


def _empty_queues() -> None:
    sqs = _loaded("sqs")
    if sqs is None:
        return
    with sqs._queues_lock:
        for queue in sqs._queues.all_values():
            queue["messages"].clear()
            queue["dedup_cache"].clear()


def _empty_logs() -> None:
    logs = _loaded("cloudwatch_logs")
    if logs is not None:
        for group in logs._log_groups.all_values():
            group["streams"].clear()


def _empty_buckets() -> None:
    s3 = _loaded("s3")
    if s3 is None:
        return
    for (_account, name), bucket in list(s3._buckets._data.items()):
        if not name.startswith(_ASSET_BUCKET_PREFIX):
            bucket["objects"].clear()


def _empty_api() -> None:
    api = _loaded("apigateway_v1")
    if api is not None:
        api._throttle_state.clear()
        api._quota_state.clear()


def _loaded(service: str) -> Any:
    return sys.modules.get(f"ministack.services.{service}")


def _clear(store: Any) -> None:
    clear: Callable[[], None] = store._data.clear if hasattr(store, "_data") else store.clear
    clear()
