"""Step Functions: how a task that waits for its callback is called back."""

from __future__ import annotations

import base64
import contextvars
import json
import secrets
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final

from ministack.core import iam_actions, iam_evaluator
from ministack.core.responses import error_response_json, json_response
from ministack.services import stepfunctions as states

from constructs_lib.testing.emulator.corrections import Correction, Emulator, replace
from constructs_lib.testing.emulator.corrections.stepfunctions import Halt, check_halts, halts
from constructs_lib.testing.emulator.corrections.tasks import TIMED_OUT, LostHeartbeat

_LONGEST_TASK_SECONDS: Final = 99_999_999
_MAX_OUTPUT_BYTES: Final = 262_144
_MAX_ERROR_LENGTH: Final = 256
_MAX_CAUSE_LENGTH: Final = 32_768
#: Not divisible by three, so that every token ends with padding.
_TOKEN_BYTES: Final = 541
_SEND_ACTIONS: Final = frozenset({"states:SendTaskSuccess", "states:SendTaskFailure", "states:SendTaskHeartbeat"})
#: What the emulator asks permission for where it does not know the resource.
_ANY_RESOURCE: Final = "*"

_task_context: contextvars.ContextVar[dict[str, Any]] = contextvars.ContextVar("task_context")
_first_token: contextvars.ContextVar[bool] = contextvars.ContextVar("first_token", default=False)
#: The state machine of each token that was ever given out; also of those whose task is gone.
_machines: dict[str, str] = {}


@dataclass(frozen=True, slots=True, kw_only=True)
class _Answer:
    """A worker's response: the output of its success as JSON, or the error and cause of its failure."""

    output: str | None = None
    error: str = ""
    cause: str = ""


class _Waiting:
    """A task that waits for its callback, from its call until it is answered, is too late, or its execution ends.

    Whichever comes first counts, also from several threads at once: an answer that was accepted is what the state
    gets, and none is accepted afterwards.
    """

    def __init__(self) -> None:
        self._halts: tuple[Halt, ...] = halts.get()
        self._changed = threading.Event()
        self._turn = threading.Lock()
        self._answer: _Answer | None = None
        self._over = False
        self._started = self._last_sign = time.monotonic()

    def accept(self, answer: _Answer | None) -> bool:
        """Record an answer or, with None, a heartbeat, and return whether the task was still waiting for it."""
        with self._turn:
            if self._over or self._answer is not None or any(halt.is_set() for halt in self._halts):
                return False
            self._last_sign = time.monotonic()
            self._answer = answer
        self._changed.set()
        return True

    def start(self) -> None:
        """Start the heartbeat timeout: the call has been made."""
        self._last_sign = max(self._last_sign, time.monotonic())

    def wait(self, limit: float, heartbeat: float | None) -> _Answer:
        """Wait for the answer.

        Raises:
            HaltedError: If the execution or the branch ended.
            _ExecutionError: If it took longer than the state allows.
        """
        for halt in self._halts:
            halt.listen(self._changed.set)
        try:
            while True:
                self._changed.clear()
                answer = self._look(limit, heartbeat)
                if answer is not None:
                    return answer
                due = min(self._started + limit, self._last_sign + (heartbeat or limit))
                self._changed.wait(max(0.0, due - time.monotonic()))
        finally:
            for halt in self._halts:
                halt.forget(self._changed.set)

    def close(self) -> None:
        """Accept no answer any more."""
        with self._turn:
            self._over = True

    def _look(self, limit: float, heartbeat: float | None) -> _Answer | None:
        with self._turn:
            if self._answer is not None:
                return self._answer
            check_halts()
            now, ends = time.monotonic(), self._started + limit
            lost = self._last_sign + heartbeat if heartbeat else float("inf")
            # Which of the two came first is decided by when they were due, not by when this thread got its turn.
            error = LostHeartbeat() if lost <= ends else TIMED_OUT
            if min(ends, lost) > now:
                return None
            self._over = True
        raise states._ExecutionError(error, "")


def callback_tasks(_emulator: Emulator) -> None:
    """A callback task enforces its heartbeat, gets a fresh token per attempt, and fails if its call fails.

    The emulator ignores HeartbeatSeconds, reuses the token in a retry, and waits for ever after a failed function.
    Its tokens are short and plain; here they are as long as those of AWS, with all characters of base64.
    """

    def make_task(original: Callable[..., Any]) -> Callable[..., Any]:
        def execute(state: Any, raw_input: Any, execution: Any, context: dict[str, Any]) -> Any:
            _task_context.set(context)
            # The id that the emulator makes first of all for such a task is its token.
            _first_token.set(".waitForTaskToken" in state.get("Resource", ""))
            return original(state, raw_input, execution, context)

        return execute

    def make_id(original: Callable[[], str]) -> Callable[[], str]:
        def new_id() -> str:
            if not _first_token.get():
                return original()
            _first_token.set(False)
            return _new_token()

        return new_id

    def invoke(resource: str, arguments: Any, token: str, state: dict[str, Any]) -> Any:
        context = _task_context.get()
        waiting = _Waiting()
        states._task_tokens[token] = waiting
        _machines[token] = context.get("StateMachine", {}).get("Id", "")
        try:
            states._invoke_resource(resource.replace(".waitForTaskToken", ""), arguments)
            waiting.start()
            answer = waiting.wait(state.get("TimeoutSeconds", _LONGEST_TASK_SECONDS), state.get("HeartbeatSeconds"))
        finally:
            waiting.close()
            states._task_tokens.pop(token, None)
            context["Task"] = {"Token": _new_token()}
        if answer.output is None:
            raise states._ExecutionError(answer.error, answer.cause)
        return json.loads(answer.output)

    replace(states, "_execute_task", make_task)
    replace(states, "new_uuid", make_id)
    replace(states, "_invoke_with_callback", lambda _original: invoke)
    for name in ("_send_task_success", "_send_task_failure", "_send_task_heartbeat"):
        replace(states, name, _make_send(name.rsplit("_", 1)[1]))


def _new_token() -> str:
    return base64.b64encode(secrets.token_bytes(_TOKEN_BYTES)).decode("ascii")


def _make_send(kind: str) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    def make(original: Callable[..., Any]) -> Callable[..., Any]:
        def send(data: dict[str, Any]) -> Any:
            waiting = states._task_tokens.get(data.get("taskToken"))
            if not isinstance(waiting, _Waiting):  # an activity's token, or an unknown one
                return original(data)
            if waiting.accept(_answer_of(kind, data)):
                return json_response({})
            return error_response_json("TaskDoesNotExist", "Task token not found", 400)

        return send

    return make


def _answer_of(kind: str, data: dict[str, Any]) -> _Answer | None:
    if kind == "success":
        return _Answer(output=data.get("output", "{}"))
    if kind == "failure":
        return _Answer(error=data.get("error", "TaskFailed"), cause=data.get("cause", ""))
    return None


def late_callbacks(_emulator: Emulator) -> None:
    """A callback that comes late is refused as ``TaskTimedOut``, one with an unknown token as ``InvalidToken``.

    The emulator calls both ``TaskDoesNotExist``, lets a second callback overwrite the first, and accepts one for an
    execution that was stopped. It also accepts an output, error or cause that is longer than AWS takes.
    """

    def make(original: Callable[..., Any]) -> Callable[..., Any]:
        def send(data: dict[str, Any]) -> Any:
            problem = _problem_of(data)
            if problem is not None:
                return problem
            token = data.get("taskToken")
            if token not in _machines and token not in states._task_tokens:
                return error_response_json("InvalidToken", "Invalid Token: 'Invalid token'", 400)
            response = original(data)
            if response[0] == 400 and b"TaskDoesNotExist" in response[2]:
                message = "Task Timed Out: 'Provided task does not exist anymore'"
                return error_response_json("TaskTimedOut", message, 400)
            return response

        return send

    for name in ("_send_task_success", "_send_task_failure", "_send_task_heartbeat"):
        replace(states, name, make)


def _problem_of(data: dict[str, Any]) -> Any:
    """Return AWS's error for an invalid request, which it raises before it reads the task."""
    output = data.get("output", "{}")
    for field, size, most in (
        ("output", len(output.encode()), _MAX_OUTPUT_BYTES),
        ("error", len(data.get("error") or ""), _MAX_ERROR_LENGTH),
        ("cause", len(data.get("cause") or ""), _MAX_CAUSE_LENGTH),
    ):
        if size > most:
            message = (
                f"1 validation error detected: Value at '{field}' failed to satisfy constraint: "
                f"Member must have length less than or equal to {most}"
            )
            return error_response_json("ValidationException", message, 400)
    try:
        json.loads(output)
    except ValueError:
        return error_response_json("InvalidOutput", "Invalid Output: 'Invalid JSON'", 400)
    return None


def callback_permission(_emulator: Emulator) -> None:
    """A caller with permission on a state machine may respond to its tasks, and to no other's.

    The emulator asks for permission on every resource, so that what ``grant_task_response`` gives is refused.

    A model: AWS's list of actions names no resource for these, while users report a check of the state machine's ARN
    (aws/aws-cdk#8486, NOAA-OWP/hydrovis#837). Which error an unknown token causes under a permission for one state
    machine is not documented: here ``InvalidToken``.
    """

    def make_extract(original: Callable[..., str]) -> Callable[..., str]:
        def extract(service: str, method: str, path: str, headers: Any, body: Any, *args: Any) -> str:
            resource = original(service, method, path, headers, body, *args)
            if service != "states" or resource != _ANY_RESOURCE:
                return resource
            try:
                token = json.loads(body).get("taskToken")
            except (ValueError, AttributeError):
                return resource
            return _machines.get(token) or resource if isinstance(token, str) else resource

        return extract

    def make_enforce(original: Callable[..., Any]) -> Callable[..., Any]:
        def enforce(access_key: Any, action: str, *args: Any, **options: Any) -> Any:
            denied = original(access_key, action, *args, **options)
            if not denied or action not in _SEND_ACTIONS or options.get("resource_arn") != _ANY_RESOURCE:
                return denied
            asked = (original(access_key, action, *args, **{**options, "resource_arn": arn}) for arn in _all_machines())
            return None if any(not one for one in asked) else denied

        return enforce

    replace(iam_actions, "extract_resource_arn", make_extract)
    replace(iam_evaluator, "enforce", make_enforce)


def _all_machines() -> list[str]:
    return [str(machine["stateMachineArn"]) for machine in states._state_machines.all_values()]


CORRECTIONS: Final[tuple[Correction, ...]] = (
    callback_tasks,
    late_callbacks,
    callback_permission,
)
