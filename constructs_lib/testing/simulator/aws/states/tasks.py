"""Work of Task states: invoke functions, call services, run other machines, wait for a token."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from typing import Any, Final, Protocol

from constructs_lib.testing.simulator.aws.calls import Calls, LostError
from constructs_lib.testing.simulator.aws.functions import Functions, Outcome
from constructs_lib.testing.simulator.aws.states.executions import MOST_BYTES, Execution, Waiting, json_text
from constructs_lib.testing.simulator.aws.states.failures import DATA_LIMIT, TASK_FAILED, TIMEOUT, StateFailedError
from constructs_lib.testing.simulator.aws.states.interpreter import Place
from constructs_lib.testing.simulator.checks.trace import Trace
from constructs_lib.testing.simulator.engine.actors import Actor, Request
from constructs_lib.testing.simulator.engine.kernel import SECOND, Elapsed, Future, Kernel
from constructs_lib.testing.simulator.errors import NotSimulatedError, ServiceError, json_of
from constructs_lib.testing.simulator.faults.climate import Event, Trouble
from constructs_lib.testing.simulator.faults.weather import Weather

_LAMBDA: Final = "lambda:invoke"
_SENT_BACK: Final = ".waitForTaskToken"
_PREFIXES: Final = {
    # Optimized integrations and SDK integrations name errors differently.
    ("dynamodb", False): "DynamoDB",
    ("dynamodb", True): "DynamoDb",
    ("sqs", False): "SQS",
    ("sqs", True): "Sqs",
    ("events", False): "EventBridge",
    ("events", True): "EventBridge",
    ("stepfunctions", False): "StepFunctions",
    ("stepfunctions", True): "Sfn",
    ("s3", True): "S3",
    ("secretsmanager", True): "SecretsManager",
    ("lambda", True): "Lambda",
}
_SERVICES: Final = {"sfn": "stepfunctions", "states": "stepfunctions", "eventbridge": "events"}
_LOST_INVOCATION: Final = {
    Trouble.THROTTLE: "Lambda.TooManyRequestsException",
    Trouble.CONFLICT: "Lambda.TooManyRequestsException",
    Trouble.ERROR_BEFORE: "Lambda.ServiceException",
    Trouble.LOSE_REQUEST: "Lambda.SdkClientException",
}


class Machines(Protocol):
    """State machines, as far as tasks need them."""

    def start(self, machine_arn: str, name: str | None, text: str, *, kind: str | None = None) -> Execution:
        """Start an execution."""

    def stop(self, execution: Execution, status: str) -> None:
        """End one."""

    def wait_for(self, token: str, execution: Execution) -> Waiting:
        """Wait until a token is sent back."""


class Tasks:
    """Does what Task states do.

    Args:
        kernel: keeps the time.
        calls: makes calls.
        functions: are invoked.
        weather: what goes wrong.
        trace: hears of invocations.

    Attributes:
        machines: are run; set once there are any.
    """

    machines: Machines

    def __init__(self, kernel: Kernel, calls: Calls, functions: Functions, weather: Weather, trace: Trace) -> None:
        self._kernel = kernel
        self._calls = calls
        self._functions = functions
        self._weather = weather
        self._trace = trace
        self._tokens = 0

    def token(self, state: Mapping[str, Any], execution: Execution) -> str | None:
        """A new task token, if the state waits for one."""
        if not state["Resource"].endswith(_SENT_BACK):
            return None
        self._tokens += 1
        return f"{execution.machine.name}|{execution.name}|{self._tokens}|{self._kernel.entropy.getrandbits(64):016x}"

    def do(self, state: Mapping[str, Any], arguments: Any, at: Place, patience: tuple[int, int | None]) -> Any:
        """Run a Task state.

        Args:
            state: the state.
            arguments: evaluated.
            at: where.
            patience: microseconds of TimeoutSeconds, and of HeartbeatSeconds if there are any.

        Raises:
            StateFailedError: if it fails.
        """
        resource = str(state["Resource"]).partition(":states:::")[2]
        if resource == _LAMBDA:
            return self._invoke(arguments, at, patience[0])
        if resource.endswith(_SENT_BACK):
            return self._wait_for_token(resource, arguments, at, patience)
        if resource in ("states:startExecution.sync:2", "states:startExecution.sync"):
            return self._child(arguments, at, patience[0], parsed=resource.endswith(":2"))
        if resource == "aws-sdk:sfn:startSyncExecution":
            return self._express(arguments, at, patience[0])
        return self._call(resource, arguments, at, patience[0])

    # --- Functions

    def _invoke(self, arguments: Any, at: Place, patience: int) -> dict[str, Any]:
        name = str(arguments["FunctionName"])
        payload = json_text(arguments.get("Payload", {}))
        at.execution.volume += len(payload)
        request = Request("lambda", "Invoke", {"FunctionName": name})
        self._check(at.actor, request, "Lambda.AWSLambdaException")
        trouble = self._weather.trouble(at.actor, "lambda", "Invoke")
        self._kernel.sleep(self._weather.latency())
        if trouble in _LOST_INVOCATION:
            error = _LOST_INVOCATION[trouble]
            self._trace.call(at.actor, request, error)
            raise StateFailedError(error, "the function was not invoked")
        outcome = self._functions.invoke(name, payload)
        self._trace.call(at.actor, request, "")
        if trouble is not None or self._weather.happens(Event.INVOKE_LOST, at.actor.of):
            # The function runs, and its answer is lost: a retry may run at the same time.
            self._kernel.sleep(min(patience, int(self._weather.share() ** 3 * 20 * SECOND)))
            self._trace.call(at.actor, request, "answer lost")
            raise StateFailedError("Lambda.SdkClientException", "no answer")
        return self._answered(self._awaited(outcome, patience), at)

    def _answered(self, outcome: Outcome, at: Place) -> dict[str, Any]:
        at.execution.volume += len(outcome.payload)
        if outcome.error is not None:
            raise StateFailedError(outcome.error, outcome.payload)
        if len(outcome.payload) > MOST_BYTES:
            raise StateFailedError(DATA_LIMIT, "The state/task returned a result with a size exceeding the limit.")
        try:
            payload = json_of(outcome.payload)
        except ValueError as error:
            raise NotSimulatedError(f"what Step Functions makes of a function's result is not known: {error}") from None
        return {
            "ExecutedVersion": "$LATEST",
            "Payload": payload,
            "SdkHttpMetadata": {"HttpStatusCode": 200},
            "StatusCode": 200,
        }

    def _awaited(self, future: Future[Any], patience: int) -> Any:
        try:
            return future.wait(patience)
        except Elapsed:
            raise StateFailedError(TIMEOUT, "") from None

    def _check(self, actor: Actor, request: Request, error: str) -> None:
        try:
            self._calls.check(actor, request)
        except ServiceError as refusal:
            raise StateFailedError(error, refusal.message) from None

    # --- Services

    def _call(self, resource: str, arguments: Any, at: Place, patience: int) -> Any:
        by_sdk = resource.startswith("aws-sdk:")
        service, _, operation = resource.removeprefix("aws-sdk:").partition(":")
        service = _SERVICES.get(service, service)
        params = dict(arguments)
        if service == "sqs" and not isinstance(params.get("MessageBody"), str):
            params["MessageBody"] = json_text(params.get("MessageBody"))
        if service == "events" and not by_sdk:
            params["Entries"] = [_entry(entry) for entry in params["Entries"]]
        if service == "stepfunctions":
            params = _lowered(params)
            if operation == "startExecution" and not isinstance(params.get("input"), str):
                params["input"] = json_text(params.get("input", {}))
        request = Request(service, operation[0].upper() + operation[1:], params)
        try:
            answer = self._calls.by_machine(at.actor, request, patience)
        except ServiceError as error:
            raise StateFailedError(_error_name(service, error.code, by_sdk=by_sdk), error.message) from None
        except LostError as error:
            if error.late:
                raise StateFailedError(TIMEOUT, "") from None
            raise StateFailedError(_error_name(service, "SdkClient", by_sdk=by_sdk), "no answer") from None
        at.execution.volume += len(repr(answer))
        if service == "events" and not by_sdk and answer["FailedEntryCount"]:
            raise StateFailedError("EventBridge.FailedEntry", json.dumps(answer))
        return _raised(answer) if service == "stepfunctions" else answer

    # --- Tokens

    def _wait_for_token(self, resource: str, arguments: Any, at: Place, patience: tuple[int, int | None]) -> Any:
        token = at.states["context"]["Task"]["Token"]
        waiting = self.machines.wait_for(token, at.execution)
        timeout, heartbeat = patience
        began = self._kernel.now
        try:
            self._call(resource.removesuffix(_SENT_BACK), arguments, at, timeout)
            kind, text, cause = self._outcome(waiting, began + timeout, heartbeat)
        finally:
            waiting.open = False
        if kind == "failure":
            raise StateFailedError(text, cause or "")
        at.execution.volume += len(text)
        return json.loads(text)

    def _outcome(self, waiting: Waiting, deadline: int, heartbeat: int | None) -> tuple[str, str, str | None]:
        """Wait until the token is sent back, its heartbeats end, or it takes too long."""
        while True:
            lost_at = deadline if heartbeat is None else min(deadline, waiting.heard + heartbeat)
            try:
                return waiting.outcome.wait(max(0, lost_at - self._kernel.now))
            except Elapsed:
                now = self._kernel.now
                if now >= deadline:
                    raise StateFailedError(TIMEOUT, "") from None
                if heartbeat is not None and now >= waiting.heard + heartbeat:
                    raise StateFailedError(TIMEOUT, "", heartbeat=True) from None

    # --- Other machines

    def _child(self, arguments: Any, at: Place, patience: int, *, parsed: bool) -> Any:
        child = self._started(arguments, at, "StartExecution")
        stopped: Callable[[], None] = lambda: self.machines.stop(child, "ABORTED")  # noqa: E731 - both ends need it
        try:
            self._awaited(child.ended, patience)
        except StateFailedError:
            stopped()  # Step Functions tries to stop what it does not wait for any more
            raise
        except BaseException:
            if child.running and self._weather.share() < 0.9:
                self._kernel.after(self._weather.latency(), stopped)
            raise
        described = _described(child, parsed=parsed)
        at.execution.volume += len(child.output or "")
        if child.status != "SUCCEEDED":
            raise StateFailedError(TASK_FAILED, json.dumps(described))
        return described

    def _express(self, arguments: Any, at: Place, patience: int) -> Any:
        child = self._started(arguments, at, "StartSyncExecution")
        self._awaited(child.ended, patience)
        at.execution.volume += len(child.output or "")
        return _described(child, parsed=False)

    def _started(self, arguments: Any, at: Place, operation: str) -> Execution:
        given = arguments.get("Input", {})
        text = given if isinstance(given, str) else json_text(given)
        machine = str(arguments["StateMachineArn"])
        request = Request("stepfunctions", operation, {"stateMachineArn": machine, "name": arguments.get("Name", "")})
        self._check(at.actor, request, "StepFunctions.AccessDeniedException")
        trouble = self._weather.trouble(at.actor, "stepfunctions", operation)
        self._kernel.sleep(self._weather.latency())
        if trouble in (Trouble.THROTTLE, Trouble.ERROR_BEFORE, Trouble.LOSE_REQUEST, Trouble.CONFLICT):
            self._trace.call(at.actor, request, "fails")
            raise StateFailedError("StepFunctions.SdkClientException", "no answer")
        try:
            kind = "EXPRESS" if operation == "StartSyncExecution" else None
            child = self.machines.start(machine, arguments.get("Name"), text, kind=kind)
        except ServiceError as error:
            raise StateFailedError(_error_name("stepfunctions", error.code, by_sdk=False), error.message) from None
        self._trace.call(at.actor, request, "")
        if trouble is not None:
            self._trace.call(at.actor, request, "answer lost")
            raise StateFailedError("StepFunctions.SdkClientException", "no answer")
        return child


def _described(child: Execution, *, parsed: bool) -> dict[str, Any]:
    output = child.output
    told: dict[str, Any] = {
        "ExecutionArn": child.arn,
        "Name": child.name,
        "StateMachineArn": child.machine.arn,
        "Status": child.status,
        "StartDate": child.started // 1_000,
        "StopDate": (child.stopped or 0) // 1_000,
        "Input": json.loads(child.input) if parsed else child.input,
    }
    if output is not None:
        told["Output"] = json.loads(output) if parsed else output
    if child.error is not None:
        told["Error"] = child.error
    if child.cause is not None:
        told["Cause"] = child.cause
    return told


def _entry(entry: Mapping[str, Any]) -> dict[str, Any]:
    detail = entry.get("Detail", {})
    return {**entry, "Detail": detail if isinstance(detail, str) else json_text(detail)}


def _error_name(service: str, code: str, *, by_sdk: bool) -> str:
    prefix = _PREFIXES.get((service, by_sdk))
    if prefix is None:
        raise NotSimulatedError(f"errors of {service} in a state machine are not simulated")
    bare = code.rpartition(".")[2]
    return f"{prefix}.{bare if bare.endswith('Exception') else f'{bare}Exception'}"


def _lowered(params: Mapping[str, Any]) -> dict[str, Any]:
    """Names as the SDK has them: definitions write them in upper case."""
    return {name[0].lower() + name[1:]: value for name, value in params.items()}


def _raised(answer: Mapping[str, Any]) -> dict[str, Any]:
    return {
        name[0].upper() + name[1:]: str(value) if name.endswith("Date") else value for name, value in answer.items()
    }
