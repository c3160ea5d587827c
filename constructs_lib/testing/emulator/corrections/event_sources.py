"""Lambda: what calls a function without waiting for it, the queues that it is subscribed to and EventBridge."""

from __future__ import annotations

import contextvars
import json
import threading
from collections.abc import Callable, Collection
from typing import Any, Final

from ministack.core.responses import error_response_json
from ministack.services import eventbridge, lambda_svc, sqs
from ministack.services.cloudformation import provisioners

from constructs_lib.testing.emulator import reset
from constructs_lib.testing.emulator.corrections import Correction, Emulator, replace
from constructs_lib.testing.emulator.corrections.role import is_allowed

_QUEUE_ACTIONS: Final = ("ReceiveMessage", "DeleteMessage", "GetQueueAttributes")
_SHORTEST_PAUSE_SECONDS: Final = 0.02
#: Lambda waits one minute before the first retry of an asynchronous call, two before the second.
_FIRST_RETRY_SECONDS: Final = 60.0
_LONGEST_RETRY_SECONDS: Final = 300.0

#: Ids of the messages in the batch that this thread has a function called with.
_batch: contextvars.ContextVar[frozenset[str] | None] = contextvars.ContextVar("batch", default=None)
#: Number of resets at the time of the asynchronous call that this thread repeats.
_resets: contextvars.ContextVar[int | None] = contextvars.ContextVar("resets", default=None)


def batch_answers(_emulator: Emulator) -> None:
    """An answer that does not name failed messages as AWS wants it fails the whole batch.

    The emulator takes an unknown or empty identifier, a wrong key and any text for success, and deletes the messages.

    A model: AWS documents that no JSON, a null or empty identifier and a wrong key fail the batch. That the identifier
    of no message in it does, too, is the stricter reading.
    """

    def make_run(original: Callable[..., Any]) -> Callable[..., Any]:
        def run(esm: dict[str, Any], function: Any, event: Any, batch: list[dict[str, Any]], *args: Any) -> Any:
            if "ReportBatchItemFailures" not in esm.get("FunctionResponseTypes", []):
                return original(esm, function, event, batch, *args)
            before = _batch.set(frozenset(message["id"] for message in batch))
            try:
                return original(esm, function, event, batch, *args)
            finally:
                _batch.reset(before)

        return run

    def make_execute(original: Callable[..., Any]) -> Callable[..., Any]:
        def execute(function: Any, event: Any, *args: Any, **options: Any) -> Any:
            result = original(function, event, *args, **options)
            ids = _batch.get()
            if ids is None or result.get("error"):
                return result
            if is_batch_answer(result.get("body"), ids):
                failures = (result.get("body") or {}).get("batchItemFailures") or []
                return {**result, "body": {"batchItemFailures": failures}}
            problem = {"errorType": "InvalidBatchResponse", "errorMessage": "the whole batch has failed"}
            return {**result, "error": True, "body": problem}

        return execute

    replace(lambda_svc, "_run_sqs_batch", make_run)
    replace(lambda_svc, "_execute_function", make_execute)


def is_batch_answer(answer: Any, message_ids: Collection[str]) -> bool:
    """Return whether a function's response to a batch lists the messages that failed.

    Args:
        answer: What the function returned. Nothing, and no list of failures, mean that none failed.
        message_ids: The messages of the batch.
    """
    if answer is None:
        return True
    if not isinstance(answer, dict):
        return False
    failures = answer.get("batchItemFailures") or []
    return isinstance(failures, list) and all(
        isinstance(failure, dict) and failure.get("itemIdentifier") in message_ids for failure in failures
    )


def queue_subscription(_emulator: Emulator) -> None:
    """A function is subscribed to a queue only if it may read it, and is done before its messages are visible again.

    The emulator accepts a role without permissions, and a visibility timeout below the function's timeout, with
    which each message is handled twice at once.
    """

    def make_create(original: Callable[..., Any]) -> Callable[..., Any]:
        def create(data: dict[str, Any]) -> Any:
            problem = _problem_of_subscription(data.get("EventSourceArn", ""), data.get("FunctionName", ""))
            if problem:
                return error_response_json("InvalidParameterValueException", problem, 400)
            return original(data)

        return create

    replace(lambda_svc, "_create_esm", make_create)
    handlers: dict[str, Any] = provisioners._RESOURCE_HANDLERS["AWS::Lambda::EventSourceMapping"]
    original_create = handlers["create"]

    def create_resource(logical_id: str, properties: dict[str, Any], stack: str) -> Any:
        problem = _problem_of_subscription(properties.get("EventSourceArn", ""), properties.get("FunctionName", ""))
        if problem:
            raise ValueError(problem)
        return original_create(logical_id, properties, stack)

    handlers["create"] = create_resource


def _problem_of_subscription(source: str, function: str) -> str | None:
    queue = sqs._queue_by_arn(source) if ":sqs:" in source else None
    _record, configuration, _name = lambda_svc._get_func_record_for_ref(function)
    if queue is None or not configuration:
        return None
    for action in _QUEUE_ACTIONS:
        if not is_allowed(configuration.get("Role", ""), f"sqs:{action}", source):
            return f"The function execution role does not have permissions to call {action} on SQS"
    visible, timeout = int(queue["attributes"].get("VisibilityTimeout", 30)), int(configuration.get("Timeout", 3))
    if visible < timeout:
        return f"Queue visibility timeout: {visible} seconds is less than Function timeout: {timeout} seconds"
    return None


def event_source_time(emulator: Emulator) -> None:
    """Queues are polled, also after a failed batch, at the emulator's speed.

    The emulator polls once a real second for messages that became visible again: late by minutes where time is fast.
    """
    clock = emulator.clock
    event: threading.Event = lambda_svc._esm_wake

    class _Wake:
        """Replaces the event that wakes the poller."""

        set, clear = staticmethod(event.set), staticmethod(event.clear)

        @staticmethod
        def wait(seconds: float) -> bool:
            return event.wait(max(_SHORTEST_PAUSE_SECONDS, min(seconds, clock.real(seconds))))

    replace(lambda_svc, "_esm_wake", lambda _original: _Wake)
    replace(lambda_svc, "_ESM_BACKOFF_SECONDS", lambda seconds: min(seconds, clock.real(seconds)))


def asynchronous_retries(emulator: Emulator) -> None:
    """A function that fails for an event is called again, after one minute and after two more.

    The emulator calls the target of a rule once, and repeats other asynchronous calls after seconds. A reset forgets
    what is to be repeated.
    """
    replace(lambda_svc, "_LAMBDA_ASYNC_RETRY_BASE_SECONDS", lambda _: emulator.clock.real(_FIRST_RETRY_SECONDS))
    replace(lambda_svc, "_LAMBDA_ASYNC_RETRY_MAX_SECONDS", lambda _: emulator.clock.real(_LONGEST_RETRY_SECONDS))

    def make_invoke(original: Callable[..., Any]) -> Callable[..., Any]:
        def invoke(function: Any, event: Any) -> None:
            before = _resets.set(reset.count())
            try:
                original(function, event)
            finally:
                _resets.reset(before)

        return invoke

    def make_execute(original: Callable[..., Any]) -> Callable[..., Any]:
        def execute(function: Any, event: Any, *args: Any, **options: Any) -> Any:
            if _resets.get() not in {None, reset.count()}:
                return {"body": None}
            return original(function, event, *args, **options)

        return execute

    def make_dispatch(original: Callable[..., Any]) -> Callable[..., Any]:
        def dispatch(arn: str, payload: str) -> None:
            function, configuration, _name = lambda_svc._get_func_record_for_ref(arn)
            if not function or not configuration:
                original(arn, payload)
                return
            record = lambda_svc._execution_record_for_config(function, configuration)
            lambda_svc.invoke_async_with_retry(record, json.loads(payload))

        return dispatch

    replace(lambda_svc, "invoke_async_with_retry", make_invoke)
    replace(lambda_svc, "_execute_function", make_execute)
    replace(eventbridge, "_dispatch_to_lambda", make_dispatch)


def event_entries(_emulator: Emulator) -> None:
    """An event whose detail is not a JSON object is refused. The emulator accepts it, and no rule ever matches."""

    def make(original: Callable[..., Any]) -> Callable[..., Any]:
        def put(data: dict[str, Any], *args: Any, **options: Any) -> Any:
            entries: list[dict[str, Any]] = data.get("Entries", [])
            good = [entry for entry in entries if _is_object(entry.get("Detail", ""))]
            if len(good) == len(entries):
                return original(data, *args, **options)
            status, headers, body = original({**data, "Entries": good}, *args, **options)
            answers = json.loads(body)
            results = iter(answers.get("Entries", []))
            refused = {"ErrorCode": "MalformedDetail", "ErrorMessage": "Detail is malformed."}
            answers["Entries"] = [next(results) if entry in good else refused for entry in entries]
            answers["FailedEntryCount"] += len(entries) - len(good)
            return status, headers, json.dumps(answers).encode()

        return put

    replace(eventbridge, "_put_events", make)


def _is_object(detail: Any) -> bool:
    if isinstance(detail, dict):  # from a state machine, which writes it as JSON
        return True
    try:
        return isinstance(json.loads(detail), dict)
    except ValueError:
        return False


CORRECTIONS: Final[tuple[Correction, ...]] = (
    batch_answers,
    queue_subscription,
    event_source_time,
    asynchronous_retries,
    event_entries,
)
