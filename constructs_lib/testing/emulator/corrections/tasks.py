"""Step Functions: how a task waits, times out, is retried, and is called back."""

from __future__ import annotations

import contextvars
import json
import random
import threading
import time
from collections.abc import Callable
from typing import Any, Final

from ministack.core.responses import error_response_json, json_response, new_uuid
from ministack.services import stepfunctions as states

from . import Correction, Emulator, replace
from .stepfunctions import check_halts

_LONGEST_DELAY_SECONDS: Final = 31_622_400
_LONGEST_TASK_SECONDS: Final = 99_999_999
_MAX_PAYLOAD_BYTES: Final = 262_144
_POLL_SECONDS: Final = 0.1
#: Names that neither States.ALL nor States.TaskFailed matches.
_NEVER_CAUGHT_BY_WILDCARD: Final = frozenset({"States.DataLimitExceeded", "States.Runtime"})

_task_context: contextvars.ContextVar[dict[str, Any]] = contextvars.ContextVar("task_context")
_retry_delay: contextvars.ContextVar[float | None] = contextvars.ContextVar("retry_delay", default=None)


def task_time(emulator: Emulator) -> None:
    """TimeoutSeconds and HeartbeatSeconds may be expressions or paths, and pass at the emulator's speed."""

    def make(original: Callable[..., Any]) -> Callable[..., Any]:
        def execute(state: dict[str, Any], raw_input: Any, execution: Any, context: dict[str, Any]) -> Any:
            timed = dict(state)
            for field in ("TimeoutSeconds", "HeartbeatSeconds"):
                if f"{field}Path" in timed:
                    timed[field] = states._resolve_path_or_ctx(timed.pop(f"{field}Path"), raw_input, context)
                elif isinstance(timed.get(field), str):
                    timed[field] = states._jsonata_state_field(timed, field, "number", raw_input, context)
                if field in timed:
                    timed[field] = emulator.clock.real(timed[field])
            return original(timed, raw_input, execution, context)

        return execute

    replace(states, "_execute_task", make)


class _Waiting(dict[str, Any]):
    """A task that waits for its callback; remembers when it last heard of its worker."""

    def __init__(self) -> None:
        super().__init__(event=threading.Event(), result=None, error=None, heartbeat=None)
        self.last_sign = time.monotonic()

    def __setitem__(self, key: str, value: Any) -> None:
        if key == "heartbeat":
            self.last_sign = time.monotonic()
        super().__setitem__(key, value)


def callback_tasks(_emulator: Emulator) -> None:
    """A callback task enforces its heartbeat, gets a fresh token per attempt, and fails if its call fails.

    The emulator ignores HeartbeatSeconds, reuses the token in a retry, and waits for ever after a failed function.
    """

    def make_task(original: Callable[..., Any]) -> Callable[..., Any]:
        def execute(state: Any, raw_input: Any, execution: Any, context: dict[str, Any]) -> Any:
            _task_context.set(context)
            return original(state, raw_input, execution, context)

        return execute

    def invoke(resource: str, arguments: Any, token: str, state: dict[str, Any]) -> Any:
        waiting = _Waiting()
        states._task_tokens[token] = waiting
        try:
            states._invoke_resource(resource.replace(".waitForTaskToken", ""), arguments)
            _await(waiting, state)
        finally:
            states._task_tokens.pop(token, None)
            _retired.add(token)
            _task_context.get()["Task"] = {"Token": new_uuid()}
        if waiting["error"]:
            raise states._ExecutionError(waiting["error"].get("Error") or "", waiting["error"].get("Cause", ""))
        return json.loads(waiting["result"])

    replace(states, "_execute_task", make_task)
    replace(states, "_invoke_with_callback", lambda _original: invoke)


def _await(waiting: _Waiting, state: dict[str, Any]) -> None:
    started = time.monotonic()
    # The state's own time starts with the attempt, the heartbeat's with the first sign of life, which is the call.
    limit, heartbeat = state.get("TimeoutSeconds", _LONGEST_TASK_SECONDS), state.get("HeartbeatSeconds")
    while True:
        ends = started + limit
        lost = waiting.last_sign + heartbeat if heartbeat else float("inf")
        patience = min(ends, lost) - time.monotonic()
        if waiting["event"].wait(max(0.0, min(patience, _POLL_SECONDS))):
            return
        check_halts()
        # Which of the two came first is decided by when they were due, not by when this thread got its turn.
        if waiting.last_sign + (heartbeat or 0) == lost and lost <= min(ends, time.monotonic()):
            raise states._ExecutionError("States.HeartbeatTimeout", "")
        if ends <= min(lost, time.monotonic()):
            raise states._ExecutionError("States.Timeout", "")


#: Tokens whose task is gone.
_retired: set[str] = set()


def late_callbacks(_emulator: Emulator) -> None:
    """A callback that comes late is refused as ``TaskTimedOut``, one with an unknown token as ``InvalidToken``.

    The emulator calls both ``TaskDoesNotExist``, and lets a second callback overwrite the first.
    """

    def make(original: Callable[..., Any]) -> Callable[..., Any]:
        def send(data: dict[str, Any]) -> Any:
            token = data.get("taskToken")
            waiting = states._task_tokens.get(token)
            if waiting is None and token not in _retired:
                return error_response_json("InvalidToken", "Invalid Token: 'Invalid token'", 400)
            if waiting is None or waiting["event"].is_set():
                message = "Task Timed Out: 'Provided task does not exist anymore'"
                return error_response_json("TaskTimedOut", message, 400)
            try:
                json.loads(data.get("output", "{}"))
            except ValueError:
                return error_response_json("InvalidOutput", "Invalid Output: 'Invalid JSON'", 400)
            response = original(data)
            return response if response is not None else json_response({})

        return send

    for name in ("_send_task_success", "_send_task_failure", "_send_task_heartbeat"):
        replace(states, name, make)


def retry_delays(emulator: Emulator) -> None:
    """A retry waits IntervalSeconds times BackoffRate, up to MaxDelaySeconds, with full jitter where asked for.

    The emulator ignores MaxDelaySeconds and JitterStrategy, and never waits longer than a minute.
    """

    def make_find(original: Callable[..., Any]) -> Callable[..., Any]:
        def find(retriers: Any, error: str, counts: dict[int, int]) -> Any:
            retrier, index = original(retriers, error, counts)
            if retrier is not None:
                interval = retrier.get("IntervalSeconds", 1) * retrier.get("BackoffRate", 2.0) ** counts.get(index, 0)
                delay = min(interval, retrier.get("MaxDelaySeconds", _LONGEST_DELAY_SECONDS))
                # Jitter is there to be unpredictable; nothing secret depends on it.
                _retry_delay.set(random.uniform(0, delay) if retrier.get("JitterStrategy") == "FULL" else delay)
            return retrier, index

        return find

    def make_sleep(original: Callable[..., Any]) -> Callable[..., Any]:
        def sleep(seconds: float) -> None:
            delay = _retry_delay.get()
            _retry_delay.set(None)
            original(seconds if delay is None else delay)

        return sleep

    replace(states, "_find_matching_retrier", make_find)
    replace(states, "_scaled_sleep", make_sleep)
    del emulator


def error_names(_emulator: Emulator) -> None:
    """States.Timeout matches a lost heartbeat; States.ALL does not match States.Runtime and States.DataLimitExceeded.

    In the emulator a wildcard catches what ends an execution on AWS.
    """

    def make(original: Callable[..., Any]) -> Callable[..., Any]:
        def matches(equals: list[str], error: str) -> bool:
            if error in _NEVER_CAUGHT_BY_WILDCARD:
                return error in equals
            heartbeat = error == "States.HeartbeatTimeout" and "States.Timeout" in equals
            return heartbeat or bool(original(equals, error))

        return matches

    replace(states, "_error_matches", make)


def payload_limit(_emulator: Emulator) -> None:
    """A result or output above 262,144 bytes fails as States.DataLimitExceeded. The emulator has no limit."""

    def make(original: Callable[..., Any]) -> Callable[..., Any]:
        def add(execution: Any, event_type: str, details: Any = None) -> Any:
            for detail in (details or {}).values():
                output = detail.get("output") if isinstance(detail, dict) else None
                if isinstance(output, str) and len(output.encode()) > _MAX_PAYLOAD_BYTES:
                    message = (
                        "The state/task returned a result with a size exceeding the maximum number of bytes service "
                        "limit."
                    )
                    raise states._ExecutionError("States.DataLimitExceeded", message)
            return original(execution, event_type, details)

        return add

    replace(states, "_add_event", make)


CORRECTIONS: Final[tuple[Correction, ...]] = (
    callback_tasks,
    task_time,
    late_callbacks,
    retry_delays,
    error_names,
    payload_limit,
)
