"""Faults in state machines: their service integrations fail, or an execution is stopped at a state."""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from dataclasses import replace as replaced
from typing import Any, Final

from ministack.services import stepfunctions

from constructs_lib.testing.emulator.clock import EmulatorClock
from constructs_lib.testing.emulator.corrections import replace
from constructs_lib.testing.emulator.corrections.stepfunctions import HaltedError, time_out
from constructs_lib.testing.emulator.faults.answers import failure_of
from constructs_lib.testing.emulator.faults.callers import Execution, current_execution
from constructs_lib.testing.emulator.faults.engine import Call, FaultEngine, Verdict
from constructs_lib.testing.fault_plan import STATES_PREFIX, Action, Fault, Moment, StopStatus

_POLL_SECONDS: Final = 0.01
_OPTIMIZED: Final = "arn:aws:states:::"
#: Names of services in `aws-sdk` resources, where IAM calls them by another.
_SDK_NAMES: Final = {"sfn": "states", "eventbridge": "events", "cloudwatchlogs": "logs"}
#: How Step Functions writes a service in the names of errors, for its optimized integrations.
_ERROR_PREFIXES: Final = {
    "dynamodb": "DynamoDB",
    "lambda": "Lambda",
    "sqs": "SQS",
    "sns": "SNS",
    "events": "EventBridge",
    "states": "StepFunctions",
    "ecs": "ECS",
}
_HANDLERS: Final = ("_execute_pass", "_execute_task", "_execute_choice", "_execute_wait")
_BRANCHING: Final = ("_execute_parallel", "_execute_map")


class StateMachines:
    """Watches the emulator's executions."""

    def __init__(self, engine: FaultEngine, clock: EmulatorClock) -> None:
        self._engine = engine
        self._clock = clock

    def install(self) -> None:
        """Intercept every call that a state machine makes, and every entry of a state."""
        replace(stepfunctions, "_run_execution", self._make_run)
        for name in (*_HANDLERS, *_BRANCHING):
            replace(stepfunctions, name, self._make_state)
        replace(stepfunctions, "_add_event", self._make_add_event)
        replace(stepfunctions, "_call_lambda", lambda original: self._make_call(original, lambda _: "lambda:Invoke"))
        for name in ("_invoke_nested_start_execution", "_invoke_nested_start_execution_sync"):
            replace(stepfunctions, name, lambda original: self._make_call(original, lambda _: "states:StartExecution"))
        replace(stepfunctions, "_invoke_aws_sdk_integration", lambda original: self._make_call(original, _sdk_call))
        for resource, handler in list(stepfunctions._SERVICE_DISPATCH.items()):
            stepfunctions._SERVICE_DISPATCH[resource] = self._make_call(handler, _optimized_call)

    def _make_run(self, original: Callable[..., Any]) -> Callable[..., Any]:
        def run(arn: str) -> Any:
            execution = stepfunctions._executions.get(arn)
            if execution is None:
                return original(arn)
            machine = str(execution["stateMachineArn"]).rpartition(":")[2]
            token = current_execution.set(Execution(machine=machine, name=execution["name"]))
            try:
                return original(arn)
            finally:
                current_execution.reset(token)

        return run

    def _make_state(self, original: Callable[..., Any]) -> Callable[..., Any]:
        def execute(state: Any, given: Any, *rest: Any) -> Any:
            # The context is the last argument of every handler.
            context = rest[-1] if rest else None
            execution = current_execution.get()
            if context is None or execution is None or not self._engine.armed:
                return original(state, given, *rest)
            name, arn = context["State"]["Name"], context["Execution"]["Id"]
            self._stop_here(execution, arn, name, Moment.BEFORE)
            token = current_execution.set(Execution(machine=execution.machine, name=execution.name, state=name))
            try:
                result = original(state, given, *rest)
            finally:
                current_execution.reset(token)
            self._stop_here(execution, arn, name, Moment.AFTER)
            return result

        return execute

    def _make_add_event(self, original: Callable[..., Any]) -> Callable[..., Any]:
        # Succeed and Fail have no handler: their events are the only sign of them.
        doors = {
            "SucceedStateEntered": ("stateEnteredEventDetails", Moment.BEFORE),
            "FailStateEntered": ("stateEnteredEventDetails", Moment.BEFORE),
            "SucceedStateExited": ("stateExitedEventDetails", Moment.AFTER),
        }

        def add_event(execution: Any, kind: str, details: Any = None) -> Any:
            event = original(execution, kind, details)
            door = doors.get(kind)
            running = current_execution.get()
            if door is not None and running is not None and self._engine.armed:
                self._stop_here(running, execution["executionArn"], details[door[0]]["name"], door[1])
            return event

        return add_event

    def _stop_here(self, execution: Execution, arn: str, state: str, moment: Moment) -> None:
        record = stepfunctions._executions.get(arn)
        if record is None or record["status"] != "RUNNING":
            return
        stop = self._engine.reach(
            execution.machine, state, moment, execution=execution.name, execution_input=record["input"]
        )
        if stop is None:
            return
        if stop.status == StopStatus.TIMED_OUT:
            time_out(record, record.ended)
        else:
            stepfunctions._stop_execution({"executionArn": arn})
        raise HaltedError

    def _make_call(self, original: Callable[..., Any], call_of: Callable[[Any], str]) -> Callable[..., Any]:
        def call(resource: Any, data: Any) -> Any:
            execution = current_execution.get()
            if execution is None or not self._engine.armed:
                return original(resource, data)
            made = Call(
                caller=STATES_PREFIX + execution.machine,
                call=call_of(resource),
                body=json.dumps(data, default=str).encode(),
                execution=execution.name,
                state=execution.state,
            )
            verdict = self._engine.arrive(made)
            try:
                result = self._act(verdict, made, resource, lambda: original(resource, data))
            except stepfunctions._ExecutionError:
                verdict.note(500)
                raise
            verdict.note(200)
            return result

        return call

    def _act(self, verdict: Verdict, call: Call, resource: Any, perform: Callable[[], Any]) -> Any:
        fault = verdict.fault
        if fault is None:
            return perform()
        result = perform() if fault.moment == Moment.AFTER else None
        if fault.action != Action.DELAY:
            raise _error(fault, call, resource)
        until = self._clock.now() + (fault.seconds or 0)
        while self._clock.now() < until:
            if not self._engine.is_planned(verdict.fault_id or ""):
                # The plan was cleared: what was held back must not take effect in the middle of the next test. Its
                # execution continues with the error of a lost connection.
                raise _error(replaced(fault, action=Action.DROP, seconds=None), call, resource)
            time.sleep(_POLL_SECONDS)
        return perform() if fault.moment == Moment.BEFORE else result


def _optimized_call(resource: str) -> str:
    service, _, operation = resource.removeprefix(_OPTIMIZED).partition(":")
    return f"{service}:{_pascal(operation.partition('.')[0])}"


def _sdk_call(resource: str) -> str:
    service, operation = resource.split(":")[6:8]
    return f"{_SDK_NAMES.get(service, service)}:{_pascal(operation.partition('.')[0])}"


def _pascal(operation: str) -> str:
    return operation[:1].upper() + operation[1:]


def _error(fault: Fault, call: Call, resource: Any) -> Exception:
    """The error that the state sees, named as Step Functions names it for this kind of integration."""
    if fault.action == Action.DROP:
        code, message = "SdkClientException", "Unable to execute HTTP request: The target server failed to respond"
    else:
        failure = failure_of(fault, call.call, call.body)
        code, message = failure.code, failure.message
        if fault.action == Action.ERROR and not code.endswith("Exception"):
            # The Java SDK, which Step Functions is built on, ends the class names of all errors so.
            code += "Exception"
    service = call.call.partition(":")[0]
    if ":aws-sdk:" in str(resource):
        name = stepfunctions._prefix_sdk_error(str(resource).split(":")[6].lower(), code)
    else:
        name = f"{_ERROR_PREFIXES.get(service, service.capitalize())}.{code}"
    error: Exception = stepfunctions._ExecutionError(name, message)
    return error
