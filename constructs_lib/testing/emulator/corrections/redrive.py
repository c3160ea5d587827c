"""Step Functions: an execution that did not succeed is redriven from the state where it ended."""

from __future__ import annotations

import contextvars
import copy
import json
import threading
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final

from ministack.core.responses import error_response_json
from ministack.services import stepfunctions as states

from constructs_lib.testing.emulator.corrections import Correction, Emulator, replace
from constructs_lib.testing.emulator.corrections.stepfunctions import ExecutionRecord
from constructs_lib.testing.emulator.corrections.versions import started_version

_REDRIVABLE_SECONDS: Final = 14 * 86_400
#: Key under which an execution's record stores what a redrive needs. No response contains it.
_TRACE: Final = "_trace"
_HANDLERS: Final = ("_execute_pass", "_execute_task", "_execute_choice", "_execute_wait")
_BRANCHING: Final = ("_execute_parallel", "_execute_map")


@dataclass(slots=True)
class _Trace:
    """Definition and progress of an execution.

    Attributes:
        definition: The state machine as it was when the execution began: a redrive knows no later one.
        context: The context of its states, with the variables; None before the first state that has any.
        state: The state that it entered last.
        given: The input of that state.
        variables: The variables that it was entered with.
        redrives: How often it was redriven.
        redriven_at: When, the last time.
    """

    definition: dict[str, Any]
    context: dict[str, Any] | None
    state: str
    given: Any
    variables: dict[str, Any]
    redrives: int = 0
    redriven_at: str | None = None


def redrive_execution(emulator: Emulator) -> None:
    """RedriveExecution resumes an execution that failed, timed out or was stopped, at the state at which it ended.

    The emulator lacks the operation. Under the same name, with the variables and the definition that the execution
    had, and with a new count of retries and of the state machine's timeout.

    A model, from AWS's documentation: where AWS redrives only the branches of a Parallel or a Map that did not succeed,
    all of them run again here: less permissive than AWS. No event shows that a state is entered once more, and no
    status event that the execution runs again.
    """

    def make_run(original: Callable[..., Any]) -> Callable[..., Any]:
        def run(arn: str) -> None:
            execution = states._executions.get(arn)
            if execution is None or execution["stateMachineArn"] not in states._state_machines:
                original(arn)
                return
            version = started_version()
            if _TRACE in execution:
                _go_on(execution, execution[_TRACE], again=True)
            elif version is not None:
                execution[_TRACE] = _new_trace(execution, version)
                _go_on(execution, execution[_TRACE])
            else:
                execution[_TRACE] = _new_trace(execution, states._state_machines[execution["stateMachineArn"]])
                original(arn)

        return run

    def make_state(original: Callable[..., Any]) -> Callable[..., Any]:
        def execute(state: Any, given: Any, *rest: Any) -> Any:
            context = rest[-1] if rest else None
            if isinstance(context, dict) and "Execution" in context:
                _follow(context, given)
            return original(state, given, *rest)

        return execute

    def make_handle(original: Callable[..., Any]) -> Callable[..., Any]:
        async def handle(method: str, path: str, headers: Any, body: Any, query: Any) -> Any:
            if headers.get("x-amz-target", "").endswith(".RedriveExecution"):
                return states._finalize_response(_redrive(json.loads(body or b"{}"), emulator))
            return await original(method, path, headers, body, query)

        return handle

    def make_describe(original: Callable[..., Any]) -> Callable[..., Any]:
        def describe(data: Any) -> Any:
            status, headers, body = original(data)
            execution = states._executions.get(data.get("executionArn"))
            if execution is None or status != 200:
                return status, headers, body
            return states.json_response({**json.loads(body), **_told(execution, emulator)})

        return describe

    replace(states, "_run_execution", make_run)
    for name in (*_HANDLERS, *_BRANCHING):
        replace(states, name, make_state)
    replace(states, "handle_request", make_handle)
    replace(states, "_describe_execution", make_describe)


def _new_trace(execution: dict[str, Any], machine: dict[str, Any]) -> _Trace:
    """Start of an execution: of a state machine, or of a version of it."""
    definition = json.loads(machine["definition"])
    given = json.loads(execution["input"])
    return _Trace(definition=definition, context=None, state=definition["StartAt"], given=given, variables={})


def _follow(context: dict[str, Any], given: Any) -> None:
    """Keep the state that an execution has entered; what its branches enter is not where it can be taken up."""
    execution = states._executions.get(context["Execution"]["Id"])
    trace: _Trace | None = execution.get(_TRACE) if execution is not None else None
    if trace is None:
        return
    if trace.context is None:
        trace.context = context  # the first state that runs is one of the execution's own
    if trace.context is context:
        trace.state, trace.given = context["State"]["Name"], copy.deepcopy(given)
        trace.variables = copy.deepcopy(context.get("variables", {}))


def _redrive(data: dict[str, Any], emulator: Emulator) -> Any:
    arn = data.get("executionArn", "")
    execution = states._executions.get(arn)
    if execution is None:
        return error_response_json("ExecutionDoesNotExist", f"Execution Does Not Exist: '{arn}'", 400)
    problem = _why_not(execution, emulator)
    if problem is not None or not execution.reopen():
        problem = problem or f"Execution is {execution['status']} and cannot be redriven"
        return error_response_json("ExecutionNotRedrivable", problem, 400)
    trace: _Trace = execution[_TRACE]
    # A Fail state has no handler that could be followed: its event shows that it was entered.
    entered = [event for event in execution["events"] if event["type"] == "FailStateEntered"]
    if entered:
        details = entered[-1]["stateEnteredEventDetails"]
        trace.state, trace.given = details["name"], json.loads(details["input"])
    trace.redrives += 1
    trace.redriven_at = states.now_iso()
    states._add_event(
        execution, "ExecutionRedriven", {"executionRedrivenEventDetails": {"redriveCount": trace.redrives}}
    )
    states._emit_execution_status_event(execution)
    within = contextvars.copy_context()
    threading.Thread(target=within.run, args=(states._run_execution, arn), daemon=True).start()
    return states.json_response({"redriveDate": trace.redriven_at})


def _why_not(execution: ExecutionRecord, emulator: Emulator) -> str | None:
    """Why an execution cannot be redriven; None: it can."""
    if execution["status"] in {"RUNNING", "SUCCEEDED"}:
        return f"Execution is {execution['status']} and cannot be redriven"
    if (states._state_machines.get(execution["stateMachineArn"]) or {}).get("status") == "DELETING":
        return "State machine is in DELETING status"
    if execution.get("sync") or _TRACE not in execution:
        return "Execution is not redrivable"
    stopped = states._parse_ts(execution["stopDate"])
    if stopped is not None and emulator.clock.now() - stopped.timestamp() > _REDRIVABLE_SECONDS:
        return "Execution redrivable period exceeded"
    return None


def _told(execution: ExecutionRecord, emulator: Emulator) -> dict[str, Any]:
    trace: _Trace | None = execution.get(_TRACE)
    problem = _why_not(execution, emulator)
    return {
        "redriveCount": 0 if trace is None else trace.redrives,
        "redriveStatus": "REDRIVABLE" if problem is None else "NOT_REDRIVABLE",
        **({} if problem is None else {"redriveStatusReason": problem}),
        **({"redriveDate": trace.redriven_at} if trace is not None and trace.redriven_at is not None else {}),
    }


def _go_on(execution: ExecutionRecord, trace: _Trace, *, again: bool = False) -> None:
    """Run an execution from a state of its own definition, as the emulator runs one from the state machine's first.

    Args:
        execution: its record.
        trace: where it is.
        again: whether it was in that state before: then no event shows that it is entered.
    """
    machine = states._state_machines.get(execution["stateMachineArn"]) or {}
    trace.context = context = {
        "QueryLanguage": trace.definition.get("QueryLanguage", "JSONPath"),
        "Execution": {
            "Id": execution["executionArn"],
            "Input": json.loads(execution["input"]),
            "Name": execution["name"],
            "StartTime": execution["startDate"],
            "RedriveCount": trace.redrives,
            **({} if trace.redriven_at is None else {"RedriveTime": trace.redriven_at}),
        },
        "StateMachine": {"Id": execution["stateMachineArn"], "Name": machine.get("name", "")},
        "variables": copy.deepcopy(trace.variables),
    }
    name: str | None = trace.state
    given = copy.deepcopy(trace.given)
    try:
        while name is not None and execution["status"] == "RUNNING":
            state = trace.definition["States"][name]
            context["State"] = {"Name": name, "EnteredTime": states.now_iso(), "RetryCount": 0}
            details = {"stateEnteredEventDetails": {"name": name, "input": json.dumps(given)}}
            if not again:
                states._add_event(execution, f"{state['Type']}StateEntered", details)
            again = False
            given, following = _do(state, given, execution, context)
            details = {"stateExitedEventDetails": {"name": name, "output": json.dumps(given)}}
            states._add_event(execution, f"{state['Type']}StateExited", details)
            name = following
        output = json.dumps(given)
        execution["status"] = "SUCCEEDED"
        execution["output"] = output
        execution["stopDate"] = states.now_iso()
        states._add_event(execution, "ExecutionSucceeded", {"executionSucceededEventDetails": {"output": output}})
        states._emit_execution_status_event(execution)
    except states._ExecutionError as error:
        states._fail_execution(execution, error.error, error.cause)
    except Exception as error:  # noqa: BLE001 - as the emulator does: whatever else it is ends the execution
        states._fail_execution(execution, "States.Runtime", str(error))


def _do(state: dict[str, Any], given: Any, execution: Any, context: dict[str, Any]) -> tuple[Any, str | None]:
    """Run one state: its output, and the state that follows."""
    kind = state["Type"]
    if kind == "Succeed":
        return states._apply_output_path(state, states._apply_input_path(state, given, context), context), None
    if kind == "Fail":
        raise states._ExecutionError(*states._fail_state_error(state, given, context))
    handler = getattr(states, f"_execute_{kind.lower()}")
    waits = kind in {"Task", "Parallel", "Map"}
    result: tuple[Any, str | None] = handler(state, given, *((execution,) if waits else ()), context)
    return result


CORRECTIONS: Final[tuple[Correction, ...]] = (redrive_execution,)
