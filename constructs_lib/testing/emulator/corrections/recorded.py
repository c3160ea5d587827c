"""Step Functions: what recordings of AWS show, and the emulator does otherwise.

Source: LocalStack's recordings of AWS (docs/reference/local-aws.md).
"""

from __future__ import annotations

import contextvars
import json
import re
from collections.abc import Callable
from typing import Any, Final

from ministack.core.responses import error_response_json, json_response
from ministack.services import stepfunctions as states

from constructs_lib.testing.emulator.corrections import Correction, Emulator, replace

_ERROR_OUTPUT: Final = re.compile(r"\$states\.errorOutput\b")
_WAITS: Final = re.compile(r'"Resource":\s*"arn:aws:states:::[^"]*\.(sync(:2)?|waitForTaskToken)"')
_PUT_EVENTS: Final = "arn:aws:states:::events:putEvents"

_nested: contextvars.ContextVar[bool] = contextvars.ContextVar("nested", default=False)


def nested_failures(_emulator: Emulator) -> None:
    """A child that failed is States.TaskFailed, with its description as the cause; other errors have AWS's names.

    In the emulator the child's error is the task's: a Retry or Catch on it would never match on AWS.
    """

    def make_failure(_original: Callable[..., Any]) -> Callable[..., Any]:
        def failure(payload: dict[str, Any]) -> tuple[str, str]:
            output = payload.get("output")
            ended = json.loads(output) if isinstance(output, str) else {}
            given = {name: payload.get(name[0].lower() + name[1:]) for name in _DESCRIBED}
            cause = {**given, "Error": payload.get("error") or ended.get("Error"), "Cause": ended.get("Cause")}
            return "States.TaskFailed", json.dumps({name: value for name, value in cause.items() if value is not None})

        return failure

    def make_invoke(original: Callable[..., Any]) -> Callable[..., Any]:
        def invoke(resource: str, arguments: Any) -> Any:
            token = _nested.set(True)
            try:
                return original(resource, arguments)
            except states._ExecutionError as error:
                if "." in error.error:
                    raise
                raise states._ExecutionError(f"StepFunctions.{error.error}Exception", error.cause) from None
            finally:
                _nested.reset(token)

        return invoke

    replace(states, "_nested_execution_failure", make_failure)
    replace(states, "_invoke_nested_start_execution", make_invoke)
    replace(states, "_invoke_nested_start_execution_sync", make_invoke)


_DESCRIBED: Final = ("ExecutionArn", "Input", "Name", "StartDate", "StateMachineArn", "Status", "StopDate")


def failed_entries(_emulator: Emulator) -> None:
    """Events of which EventBridge refuses one fail their task as EventBridge.FailedEntry.

    In the emulator the task succeeds, and the event is lost.
    """
    original = states._SERVICE_DISPATCH[_PUT_EVENTS]

    def put(resource: str, arguments: Any) -> Any:
        answer = original(resource, arguments)
        if answer.get("FailedEntryCount"):
            raise states._ExecutionError("EventBridge.FailedEntry", json.dumps(answer))
        return answer

    states._SERVICE_DISPATCH[_PUT_EVENTS] = put


def express_waits(_emulator: Emulator) -> None:
    """A definition of an Express state machine with a task that waits is refused. The emulator accepts it."""

    def make(original: Callable[..., Any]) -> Callable[..., Any]:
        def create(data: dict[str, Any]) -> Any:
            if data.get("type") == "EXPRESS" and _WAITS.search(str(data.get("definition"))):
                message = "Express state machine does not support .sync or .waitForTaskToken service integrations"
                return error_response_json("InvalidDefinition", f"Invalid State Machine Definition: '{message}'", 400)
            return original(data)

        return create

    replace(states, "_create_state_machine", make)


def machine_requests(_emulator: Emulator) -> None:
    """Requests about a state machine that is missing, of the wrong kind, or not changed by them, are refused.

    The emulator lists the executions of no state machine, starts Standard ones synchronously, and updates nothing. It
    refuses to delete what is deleted.
    """

    def make_list(original: Callable[..., Any]) -> Callable[..., Any]:
        def list_executions(data: dict[str, Any]) -> Any:
            # Of an alias or a version: the ARN of its state machine, and one more part.
            arn = ":".join(str(data.get("stateMachineArn") or "").split(":")[:7])
            if arn and arn not in states._state_machines:
                return error_response_json("StateMachineDoesNotExist", f"State Machine Does Not Exist: '{arn}'", 400)
            return original(data)

        return list_executions

    def make_start(original: Callable[..., Any]) -> Callable[..., Any]:
        def start_sync(data: dict[str, Any]) -> Any:
            machine = states._state_machines.get(str(data.get("stateMachineArn", "")))
            if machine is not None and machine.get("type") != "EXPRESS" and not _nested.get():
                message = "This operation is not supported by this type of state machine"
                return error_response_json("StateMachineTypeNotSupported", message, 400)
            return original(data)

        return start_sync

    def make_update(original: Callable[..., Any]) -> Callable[..., Any]:
        def update(data: dict[str, Any]) -> Any:
            if data.keys() <= {"stateMachineArn"} and data.get("stateMachineArn") in states._state_machines:
                message = "Either the definition, the role ARN, the LoggingConfiguration … must be specified"
                return error_response_json("MissingRequiredParameter", message, 400)
            return original(data)

        return update

    def make_delete(original: Callable[..., Any]) -> Callable[..., Any]:
        def delete(data: dict[str, Any]) -> Any:
            return original(data) if data.get("stateMachineArn") in states._state_machines else json_response({})

        return delete

    replace(states, "_delete_state_machine", make_delete)
    replace(states, "_list_executions", make_list)
    replace(states, "_start_sync_execution", make_start)
    replace(states, "_update_state_machine", make_update)


def error_output(_emulator: Emulator) -> None:
    """``$states.errorOutput`` exists in a Catch only: elsewhere an expression that reads it fails.

    In the emulator it is null there.
    """

    def make(original: Callable[..., Any]) -> Callable[..., Any]:
        def evaluate(
            expression: str, raw_input: Any, ctx: Any = None, result: Any = None, error_output: Any = None
        ) -> Any:
            known = expression if error_output is not None else _ERROR_OUTPUT.sub("$no_error_output", expression)
            return original(known, raw_input, ctx, result, error_output)

        return evaluate

    replace(states, "_evaluate_jsonata", make)


CORRECTIONS: Final[tuple[Correction, ...]] = (
    nested_failures,
    failed_entries,
    express_waits,
    machine_requests,
    error_output,
)
