"""Step Functions: how a task waits, times out, and is retried."""

from __future__ import annotations

import contextvars
import random
from collections.abc import Callable
from typing import Any, Final, Self

from ministack.services import stepfunctions as states

from constructs_lib.testing.emulator.corrections import Correction, Emulator, replace

_LONGEST_DELAY_SECONDS: Final = 31_622_400
_MAX_PAYLOAD_BYTES: Final = 262_144
_INTEGRATION: Final = "arn:aws:states:::"
TIMED_OUT: Final = "States.Timeout"
#: Names that neither States.ALL nor States.TaskFailed matches.
_NEVER_CAUGHT_BY_WILDCARD: Final = frozenset({"States.DataLimitExceeded", "States.Runtime"})

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


class LostHeartbeat(str):
    """The error of a task that lost its heartbeat.

    Recordings of AWS (localstack, aws.validated, stepfunctions/v2/timeouts/test_heartbeats) call it States.Timeout, in
    the history and as the execution's error. AWS's page on errors lets Retry and Catch name States.HeartbeatTimeout. No
    recording shows which of the two they match: here either does.
    """

    __slots__ = ()

    def __new__(cls, name: str = TIMED_OUT) -> Self:
        """By the name that AWS shows, also when it is copied."""
        return super().__new__(cls, name)


def error_names(_emulator: Emulator) -> None:
    """Either name matches a lost heartbeat; States.ALL does not match States.Runtime and States.DataLimitExceeded.

    In the emulator a wildcard catches what ends an execution on AWS.
    """

    def make(original: Callable[..., Any]) -> Callable[..., Any]:
        def matches(equals: list[str], error: str) -> bool:
            if error in _NEVER_CAUGHT_BY_WILDCARD:
                return error in equals
            heartbeat = isinstance(error, LostHeartbeat) and "States.HeartbeatTimeout" in equals
            return heartbeat or bool(original(equals, error))

        return matches

    replace(states, "_error_matches", make)


def timed_out_events(_emulator: Emulator) -> None:
    """A task that times out has the event TaskTimedOut. In the emulator it has TaskFailed.

    A recording of AWS: ``taskTimedOutEventDetails`` with ``error``, ``resource`` and ``resourceType``.
    """

    def make(original: Callable[..., Any]) -> Callable[..., Any]:
        def add(execution: Any, event_type: str, details: Any = None) -> Any:
            failed = (details or {}).get("taskFailedEventDetails", {})
            if event_type == "TaskFailed" and failed.get("error") == TIMED_OUT:
                service, _, action = str(failed.get("resource", "")).removeprefix(_INTEGRATION).partition(":")
                told = {"error": TIMED_OUT, "resource": action, "resourceType": service}
                return original(execution, "TaskTimedOut", {"taskTimedOutEventDetails": told})
            return original(execution, event_type, details)

        return add

    replace(states, "_add_event", make)


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
    task_time,
    retry_delays,
    error_names,
    timed_out_events,
    payload_limit,
)
