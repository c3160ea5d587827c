"""Lambda: what a failed invocation reports, how many sandboxes there are, and what is written to the log."""

from __future__ import annotations

import queue
import threading
import time
from collections.abc import Callable
from typing import Any, Final

from ministack.core import lambda_runtime as runtime
from ministack.services import lambda_svc

from constructs_lib.testing.emulator.corrections import Correction, Emulator, replace, replace_text

#: Ends the log of an invocation on a worker's stderr; no text that a function prints contains it on its own.
END_OF_LOG: Final = "<<<end of this invocation's log>>>"
_LOG_PATIENCE_SECONDS: Final = 2.0
#: A sandbox that is deleted with its function, or with its former code, is not released.
_DELETED_SECONDS: Final = 0.1
FAILURE_KEY: Final = "__handler_failure__"

_HANDLER_FAILED: Final = (
    '_real_stdout.write(json.dumps({"status": "error", "error": str(e), "trace": traceback.format_exc()}) + "\\n")'
)
_INIT_FAILED: Final = '_real_stdout.write(json.dumps({"status": "error", "error": str(e)}) + "\\n")'
_END_OF_INVOCATION: Final = "        _real_stdout.flush()\n\nrun()\n"


def handler_errors(_emulator: Emulator) -> None:
    """An exception of the handler is reported under its class name, and its sandbox stays.

    The emulator reports every exception as ``Runtime.HandlerError``, so that no Retry or Catch on a name ever
    matches, and ends the worker, which on AWS only a crash does.
    """
    runtime._PYTHON_WORKER_SCRIPT = replace_text(
        runtime._PYTHON_WORKER_SCRIPT,
        _HANDLER_FAILED,
        'sys.stderr.write("[ERROR] " + type(e).__name__ + ": " + str(e) + "\\n" + traceback.format_exc()); '
        "sys.stderr.flush(); "
        f'_real_stdout.write(json.dumps({{"status": "ok", "result": {{"{FAILURE_KEY}": {{'
        '"errorMessage": str(e), "errorType": type(e).__name__, "requestId": context.aws_request_id, '
        '"stackTrace": traceback.format_exc().splitlines()}}}) + "\\n")',
    )

    replace(lambda_svc, "_execute_function_warm", reported_failures)


def reported_failures(original: Callable[..., Any]) -> Callable[..., Any]:
    """Invocations, with what a worker reports of a handler's failure as Lambda's answer."""

    def execute(func: Any, event: Any, request_id: str) -> Any:
        result = original(func, event, request_id)
        body = result.get("body")
        if isinstance(body, dict) and FAILURE_KEY in body:
            return {"body": body[FAILURE_KEY], "error": True, "log": result.get("log", "")}
        return result

    return execute


def exit_error(_emulator: Emulator) -> None:
    """A worker that dies during a call is reported as ``Runtime.ExitError``.

    The emulator calls it ``Runtime.HandlerError``, which hides that the call's outcome is unknown.
    """

    def make(original: Callable[..., Any]) -> Callable[..., Any]:
        def execute(func: Any, event: Any, request_id: str) -> Any:
            result = original(func, event, request_id)
            body = result.get("body")
            # A dying worker shows as an end of file, as a broken pipe if it was dead before the call, and by a
            # message of its own if it dies while it imports the function's module.
            signs = ("Worker process died", "Worker process exited immediately", "Broken pipe")
            died = isinstance(body, dict) and any(sign in str(body.get("errorMessage")) for sign in signs)
            if result.get("error") and died:
                body["errorType"] = "Runtime.ExitError"
                body["errorMessage"] = f"RequestId: {request_id} Error: Runtime exited with error: signal: killed"
            return result

        return execute

    replace(lambda_svc, "_execute_function_warm", make)


def init_errors(_emulator: Emulator) -> None:
    """A module that cannot be imported is reported as ``Runtime.ImportModuleError``, another error by its name.

    The emulator reports the ``RuntimeError`` of its own launcher.
    """
    runtime._PYTHON_WORKER_SCRIPT = replace_text(
        runtime._PYTHON_WORKER_SCRIPT,
        _INIT_FAILED,
        "sys.stderr.write(traceback.format_exc()); sys.stderr.flush(); "
        'kind = "Runtime.ImportModuleError" if isinstance(e, ImportError) else type(e).__name__; '
        '_real_stdout.write(json.dumps({"status": "error", "error": kind + "|" + str(e)}) + "\\n")',
    )
    prefix = "Worker init failed: "

    def make(original: Callable[..., Any]) -> Callable[..., Any]:
        def execute(func: Any, event: Any, request_id: str) -> Any:
            result = original(func, event, request_id)
            body = result.get("body")
            message = body.get("errorMessage", "") if result.get("error") and isinstance(body, dict) else ""
            if message.startswith(prefix) and "|" in message:
                body["errorType"], _, body["errorMessage"] = message.removeprefix(prefix).partition("|")
                result["log"] = f"[ERROR] {body['errorType']}: {body['errorMessage']}"
            return result

        return execute

    replace(lambda_svc, "_execute_function_warm", make)


def sandbox_limit(emulator: Emulator) -> None:
    """A function has at most so many sandboxes; a further call waits for a free one.

    The emulator starts a process for every concurrent call: 84 processes under a moderate load. Waiting is not
    what AWS does (it starts another sandbox), but no promise of AWS is broken by a slower start.
    """
    runtime._LOCAL_MAX_WORKERS = emulator.settings.concurrency
    released = threading.Condition()

    def make_acquire(original: Callable[..., Any]) -> Callable[..., Any]:
        def acquire(*args: Any, **kwargs: Any) -> Any:
            with released:
                while True:
                    worker, reason = original(*args, **kwargs)
                    if worker is not None or reason != "func_cap":
                        return worker, reason
                    released.wait(_DELETED_SECONDS)

        return acquire

    def make_release(original: Callable[..., Any]) -> Callable[..., Any]:
        def release(worker: Any) -> None:
            original(worker)
            with released:
                released.notify_all()

        return release

    replace(lambda_svc, "acquire_worker", make_acquire)
    replace(lambda_svc, "release_worker", make_release)


def whole_logs(_emulator: Emulator) -> None:
    """The log of an invocation is everything that it printed, and nothing of another.

    The emulator waits a few milliseconds for the log: late lines are attributed to the next call, and a silent
    call pays 50 ms. A mark at the end of each invocation's log makes it exact.
    """
    runtime._PYTHON_WORKER_SCRIPT = replace_text(
        runtime._PYTHON_WORKER_SCRIPT,
        _END_OF_INVOCATION,
        f'        sys.stderr.write("{END_OF_LOG}\\n"); sys.stderr.flush()\n' + _END_OF_INVOCATION,
    )

    def drain(self: Any, *_args: Any, **_kwargs: Any) -> str:
        lines: list[str] = []
        deadline = time.monotonic() + _LOG_PATIENCE_SECONDS
        while time.monotonic() < deadline:
            try:
                line = self._stderr_queue.get(timeout=0.02)
            except queue.Empty:
                # A worker that died wrote no mark; its pipe is read to the end once the reader thread is gone.
                if self._stderr_thread is None or not self._stderr_thread.is_alive():
                    break
                continue
            if line.endswith(END_OF_LOG):
                lines += [line.removesuffix(END_OF_LOG)] if line != END_OF_LOG else []
                break
            lines.append(line)
        return "\n".join(lines)

    replace(runtime.Worker, "_drain_stderr_bounded", lambda _original: drain)


def throttle_name(_emulator: Emulator) -> None:
    """A throttled function fails its task as ``Lambda.TooManyRequestsException``.

    The emulator reports ``Lambda.Unknown``, which a definition rightly treats as an outcome in doubt.
    """
    from ministack.services import stepfunctions

    def make(original: Callable[..., Any]) -> Callable[..., Any]:
        def call(func_ref: Any, event: Any) -> Any:
            try:
                return original(func_ref, event)
            except stepfunctions._ExecutionError as error:
                if "Rate Exceeded" in error.cause or "TooManyRequests" in error.cause:
                    error.error = "Lambda.TooManyRequestsException"
                raise

        return call

    replace(stepfunctions, "_call_lambda", make)


def function_time(emulator: Emulator) -> None:
    """Function timeouts pass at the emulator's speed, and so does the remaining time that a function sees."""
    speed = emulator.settings.speed
    if speed == 1:
        return
    runtime._PYTHON_WORKER_SCRIPT = replace_text(
        runtime._PYTHON_WORKER_SCRIPT,
        "max(0, int((_deadline - time.time()) * 1000))",
        f"max(0, int((_deadline - time.time()) * {speed!r} * 1000))",
    )
    runtime._PYTHON_WORKER_SCRIPT = replace_text(
        runtime._PYTHON_WORKER_SCRIPT,
        '_deadline = time.time() + float(os.environ.get("_LAMBDA_TIMEOUT", "3"))',
        f'_deadline = time.time() + float(os.environ.get("_LAMBDA_TIMEOUT", "3")) / {speed!r}',
    )

    def make(original: Callable[..., Any]) -> Callable[..., Any]:
        def invoke(self: Any, *args: Any, **kwargs: Any) -> Any:
            timeout = self.config.get("Timeout", 30)
            # The worker's own copy: the function's configuration keeps its timeout.
            if not isinstance(timeout, _Scaled):
                self.config = {**self.config, "Timeout": _Scaled(timeout / speed)}
                self.config["Timeout"].declared = timeout
            result = original(self, *args, **kwargs)
            if str(result.get("error", "")).startswith("Task timed out after"):
                result["error"] = f"Task timed out after {self.config['Timeout'].declared}.00 seconds"
            return result

        return invoke

    replace(runtime.Worker, "invoke", make)

    def make_spawn(original: Callable[..., Any]) -> Callable[..., Any]:
        def spawn(self: Any) -> Any:
            scaled = self.config
            timeout = scaled.get("Timeout", 30)
            self.config = {**scaled, "Timeout": getattr(timeout, "declared", timeout)}
            try:
                return original(self)
            finally:
                self.config = scaled

        return spawn

    replace(runtime.Worker, "_spawn", make_spawn)


class _Scaled(float):
    """A timeout in real seconds that remembers the declared one."""

    declared: float


def json_results(_emulator: Emulator) -> None:
    """A result that is not JSON fails the call as ``Runtime.MarshalError``, as on AWS.

    Kept apart from `handler_errors`, whose name for it would be the ``TypeError`` of the launcher's own code.
    """

    def make(original: Callable[..., Any]) -> Callable[..., Any]:
        def execute(func: Any, event: Any, request_id: str) -> Any:
            result = original(func, event, request_id)
            body = result.get("body")
            if result.get("error") and isinstance(body, dict) and body.get("errorType") == "TypeError":
                message = str(body.get("errorMessage", ""))
                if message.endswith("is not JSON serializable"):
                    body["errorType"] = "Runtime.MarshalError"
                    body["errorMessage"] = f"Unable to marshal response: {message}"
            return result

        return execute

    replace(lambda_svc, "_execute_function_warm", make)


CORRECTIONS: Final[tuple[Correction, ...]] = (
    whole_logs,
    handler_errors,
    init_errors,
    exit_error,
    json_results,
    sandbox_limit,
    throttle_name,
    function_time,
)
