"""Step Functions: how an execution starts, ends, times out and is stopped."""

from __future__ import annotations

import contextvars
import json
import logging
import re
import threading
import time
import uuid
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any, Final

from ministack.core.responses import AccountRegionScopedDict, error_response_json, get_account_id, get_region
from ministack.services import stepfunctions as states
from ministack.services.cloudformation import provisioners

from constructs_lib.testing.emulator.asl_check import first_problem
from constructs_lib.testing.emulator.corrections import Correction, Emulator, replace
from constructs_lib.testing.emulator.corrections.versions import started_version

_MAX_PAYLOAD_BYTES: Final = 262_144
MOST_EVENTS: Final = 25_000
"""Of the history of a Standard execution, its last one included."""
_FULL_HISTORY: Final = f"The execution reached the maximum number of history events ({MOST_EVENTS})."
_DELETING: Final = "DELETING"
_NAME: Final = re.compile(r'^[^\s<>{}\[\]?*"#%\\^|~`$&,;:/\x00-\x1f\x7f-\x9f]{1,80}$')


class Halt(threading.Event):
    """An event that also wakes those who wait for something else."""

    def __init__(self) -> None:
        super().__init__()
        self._listeners: list[Callable[[], None]] = []

    def set(self) -> None:
        """Set the event, and notify every listener."""
        super().set()
        for listener in list(self._listeners):
            listener()

    def listen(self, listener: Callable[[], None]) -> None:
        """Have a listener called when the event is set; at once if it is already."""
        self._listeners.append(listener)
        if self.is_set():
            listener()

    def forget(self, listener: Callable[[], None]) -> None:
        """Call the listener no more."""
        self._listeners.remove(listener)


#: Everything whose setting stops the present thread of an execution: the execution's end, a sibling branch's failure.
halts: contextvars.ContextVar[tuple[Halt, ...]] = contextvars.ContextVar("halts", default=())


class HaltedError(Exception):
    """The execution, or the branch, that this thread runs has ended already."""


class ExecutionRecord(dict[str, Any]):
    """An execution whose first final status stays, and whose end can be waited for."""

    def __init__(self, values: dict[str, Any]) -> None:
        """Take over the emulator's own record."""
        super().__init__(values)
        self.ended = Halt()
        self._former: list[Halt] = []
        self._status = threading.Lock()

    def __setitem__(self, key: str, value: Any) -> None:
        if key != "status":
            if key in {"output", "error", "cause", "stopDate"} and self.get(key) is not None and self.ended.is_set():
                raise HaltedError(self["status"])
            super().__setitem__(key, value)
            return
        with self._status:
            # A thread of an earlier run must not report about the one that was redriven since.
            former = any(halt in self._former for halt in halts.get())
            if self.get("status") not in {None, "RUNNING"} or former:
                raise HaltedError(self["status"])
            super().__setitem__(key, value)
            if value != "RUNNING":
                self.ended.set()

    def reopen(self) -> bool:
        """Let an execution that did not succeed run again, and return whether it was such an execution."""
        with self._status:
            if self["status"] in {"RUNNING", "SUCCEEDED"}:
                return False
            for key in ("stopDate", "output", "error", "cause"):
                super().__setitem__(key, None)
            self._former.append(self.ended)
            self.ended = Halt()
            super().__setitem__("status", "RUNNING")
            return True


class _Executions(AccountRegionScopedDict):  # type: ignore[misc]  # the emulator has no type information
    __slots__ = ()

    def __setitem__(self, key: str, value: dict[str, Any]) -> None:
        super().__setitem__(key, ExecutionRecord(value))


def final_status(_emulator: Emulator) -> None:
    """The first final status of an execution stays, and nothing runs in it afterwards.

    In the emulator a stopped execution continues, and its own end overwrites ABORTED.
    """
    states._executions = _Executions()
    logging.getLogger("states").addFilter(
        lambda record: not (record.exc_info and isinstance(record.exc_info[1], HaltedError))
    )

    def make_run(original: Callable[..., Any]) -> Callable[..., Any]:
        def run(execution_arn: str) -> None:
            execution = states._executions.get(execution_arn)
            if execution is None:
                return
            # Taken back at the end: a nested execution may run in the thread of the task that waits for it.
            outer = halts.set((execution.ended,))
            try:
                original(execution_arn)
            finally:
                halts.reset(outer)

        return run

    def make_add(original: Callable[..., Any]) -> Callable[..., Any]:
        def add(execution: Any, event_type: str, details: Any = None) -> Any:
            if not event_type.startswith("Execution"):
                check_halts()
            event = original(execution, event_type, details)
            event["previousEventId"] = event["id"] - 1
            return event

        return add

    def make_fail(original: Callable[..., Any]) -> Callable[..., Any]:
        def fail(execution: Any, error: str, cause: str) -> None:
            try:
                original(execution, error, cause)
            except HaltedError:
                return

        return fail

    def make_stop(original: Callable[..., Any]) -> Callable[..., Any]:
        def stop(data: Any) -> Any:
            try:
                return original(data)
            except HaltedError:  # it ended between the emulator's look and its write
                return original(data)

        return stop

    replace(states, "_run_execution", make_run)
    replace(states, "_add_event", make_add)
    replace(states, "_fail_execution", make_fail)
    replace(states, "_stop_execution", make_stop)


def check_halts() -> None:
    """Stop this thread if its execution or branch has ended.

    Raises:
        HaltedError: If it has.
    """
    if any(halt.is_set() for halt in halts.get()):
        raise HaltedError


def sleep(real_seconds: float) -> None:
    """Sleep, but no longer than the execution and the branch of this thread live.

    Raises:
        HaltedError: If they ended.
    """
    deadline = time.monotonic() + real_seconds
    events = halts.get()
    while (remaining := deadline - time.monotonic()) > 0:
        # Only one event can be waited for; the others (sibling branches) are polled.
        pause = remaining if len(events) < 2 else min(remaining, 0.1)
        if events:
            events[0].wait(pause)
        else:
            time.sleep(pause)
        check_halts()


def machine_timeout(emulator: Emulator) -> None:
    """The machine's TimeoutSeconds ends the execution as TIMED_OUT. The emulator never does."""

    def make(original: Callable[..., Any]) -> Callable[..., Any]:
        def run(execution_arn: str) -> None:
            execution = states._executions.get(execution_arn)
            limit = _machine_limit(execution) if isinstance(execution, ExecutionRecord) else None
            if limit is None:
                original(execution_arn)
                return
            context = contextvars.copy_context()
            timer = threading.Timer(emulator.clock.real(limit), context.run, (time_out, execution, execution.ended))
            timer.daemon = True
            timer.start()
            try:
                original(execution_arn)
            finally:
                timer.cancel()

        return run

    replace(states, "_run_execution", make)


def _machine_limit(execution: dict[str, Any]) -> float | None:
    machine = started_version() or states._state_machines.get(execution["stateMachineArn"])
    limit = json.loads(machine["definition"]).get("TimeoutSeconds") if machine else None
    return float(limit) if isinstance(limit, int | float) else None


def time_out(execution: ExecutionRecord, run: Halt) -> None:
    """End an execution as TIMED_OUT, unless this run of it has ended already, according to its halt event."""
    if execution.ended is not run:
        return
    try:
        execution["status"] = "TIMED_OUT"
    except HaltedError:
        return
    execution["stopDate"] = states.now_iso()
    states._add_event(execution, "ExecutionTimedOut", {"executionTimedOutEventDetails": {}})
    states._emit_execution_status_event(execution)


def history_limit(_emulator: Emulator) -> None:
    """A Standard execution ends as FAILED with States.Runtime: its 25,000th event is ExecutionFailed.

    In the emulator it continues for ever. Recorded on AWS: floci-io/floci issue 2734; the limit:
    https://docs.aws.amazon.com/step-functions/latest/dg/service-quotas.html.
    """

    def make(original: Callable[..., Any]) -> Callable[..., Any]:
        def add(execution: Any, event_type: str, details: Any = None) -> Any:
            full = len(execution["events"]) + 1 >= MOST_EVENTS and not event_type.startswith("Execution")
            if full and not _is_express(execution):
                states._fail_execution(execution, "States.Runtime", _FULL_HISTORY)
                raise HaltedError
            return original(execution, event_type, details)

        return add

    replace(states, "_add_event", make)


def _is_express(execution: Any) -> bool:
    machine = states._state_machines.get(execution["stateMachineArn"])
    return bool(machine) and machine.get("type") == "EXPRESS"


def start_execution(_emulator: Emulator) -> None:
    """StartExecution refuses bad names and bad input, and answers the same start again while it runs.

    The emulator accepts both, and answers ``ExecutionAlreadyExists`` to the retry of a start whose answer was lost.
    Here each start of an Express machine is an execution of its own, without status events.
    """

    def make(original: Callable[..., Any]) -> Callable[..., Any]:
        def start(data: dict[str, Any]) -> Any:
            payload = data.get("input", "{}")
            try:
                json.loads(payload)
            except ValueError:
                return error_response_json("InvalidExecutionInput", "Invalid State Machine Execution Input", 400)
            if len(payload.encode()) > _MAX_PAYLOAD_BYTES:
                message = "The size of 'input' must be less than or equal to 262144"
                return error_response_json("ValidationException", message, 400)
            name = data.get("name")
            if name is not None and not _NAME.match(name):
                return error_response_json("InvalidName", f"Invalid Name: '{name}'", 400)
            machine = _started_machine(data)
            if machine is not None and machine.get("type") == "EXPRESS":
                return _start_express(data, machine, name)
            return (_same_start(machine, name, payload) if name is not None else None) or original(data)

        return start

    replace(states, "_start_execution", make)
    replace(states, "_run_execution", _named_run)


def _started_machine(data: dict[str, Any]) -> Any:
    arn = states._resolve_state_machine_arn(data.get("stateMachineArn", "").split("#", maxsplit=1)[0]) or ""
    return states._state_machines.get(arn)


def _start_express(data: dict[str, Any], machine: dict[str, Any], name: str | None) -> Any:
    """Start an asynchronous Express execution: each start is a new one, whatever its name."""
    run = f"{name or uuid.uuid4()}:{uuid.uuid4()}"
    arn = f"arn:aws:states:{get_region()}:{get_account_id()}:execution:{machine['name']}:{run}"
    started = states.json_response({"executionArn": arn, "startDate": states.now_iso()})
    within = contextvars.copy_context()
    arguments = (states._start_sync_execution, {**data, "name": run})
    threading.Thread(target=within.run, args=arguments, daemon=True).start()
    return started


def _named_run(original: Callable[..., Any]) -> Callable[..., Any]:
    """A run whose context has the name by which the execution was started."""

    def run(arn: str) -> Any:
        execution = states._executions.get(arn)
        if execution is not None:
            execution["name"] = execution["name"].partition(":")[0]
        return original(arn)

    return run


def _same_start(machine: dict[str, Any] | None, name: str, payload: str) -> Any:
    if machine is None:
        return None
    execution_arn = f"arn:aws:states:{get_region()}:{get_account_id()}:execution:{machine['name']}:{name}"
    execution = states._executions.get(execution_arn)
    if execution is None or execution["status"] != "RUNNING" or execution["input"] != payload:
        return None
    return states.json_response({"executionArn": execution_arn, "startDate": execution["startDate"]})


def execution_time(emulator: Emulator) -> None:
    """Timestamps, waits and delays of executions are in emulator time, and end with the execution.

    The emulator also waits 0.15 s of real time before every execution, for nothing.
    """
    clock = emulator.clock
    replace(states, "now_iso", lambda _original: clock.timestamp)
    replace(states, "_scaled_sleep", lambda _original: lambda seconds: sleep(clock.real(seconds)))

    def sleep_until(timestamp: str) -> None:
        target = states._parse_ts(timestamp)
        if target is not None:
            sleep(clock.real(target.timestamp() - clock.now()))

    replace(states, "_sleep_until", lambda _original: sleep_until)
    # What remains of the module's own sleeping is the pause before an execution.
    pauseless = SimpleNamespace(time=time.time, monotonic=time.monotonic, sleep=lambda _seconds: None)
    replace(states, "time", lambda _original: pauseless)


def deleted_machine(_emulator: Emulator) -> None:
    """A deleted Standard machine is DELETING while executions run, which fail at their next state; nothing starts it.

    The emulator removes it at once, with its executions, whose threads continue. AWS:
    https://docs.aws.amazon.com/step-functions/latest/apireference/API_DeleteStateMachine.html; the error of such an
    execution: https://repost.aws/knowledge-center/step-functions-stuck-deleting-status. A model: when the machine is
    gone, its executions are, too.
    """

    def make_delete(original: Callable[..., Any]) -> Callable[..., Any]:
        def delete(data: dict[str, Any]) -> Any:
            if not _begin_to_delete(data.get("stateMachineArn"), lambda: original(data)):
                return original(data)
            return states.json_response({})

        return delete

    def make_removal(original: Callable[..., Any]) -> Callable[..., Any]:
        def remove(arn: Any, properties: Any) -> None:
            if not _begin_to_delete(arn, lambda: original(arn, properties)):
                original(arn, properties)

        return remove

    def make_add(original: Callable[..., Any]) -> Callable[..., Any]:
        def add(execution: Any, event_type: str, details: Any = None) -> Any:
            machine = states._state_machines.get(execution["stateMachineArn"]) or {}
            if machine.get("status") == _DELETING and event_type.endswith("StateEntered"):
                cause = f"State machine {machine['name']} has been deleted."
                states._fail_execution(execution, "States.Runtime", cause)
                raise HaltedError
            return original(execution, event_type, details)

        return add

    def make_start(original: Callable[..., Any]) -> Callable[..., Any]:
        def start(data: dict[str, Any]) -> Any:
            if (_started_machine(data) or {}).get("status") == _DELETING:
                message = f"State Machine is being deleted: '{data['stateMachineArn']}'"
                return error_response_json("StateMachineDeleting", message, 400)
            return original(data)

        return start

    replace(states, "_delete_state_machine", make_delete)
    replace(provisioners, "_sfn_state_machine_delete", make_removal)
    provisioners._RESOURCE_HANDLERS["AWS::StepFunctions::StateMachine"]["delete"] = (
        provisioners._sfn_state_machine_delete
    )
    replace(states, "_add_event", make_add)
    replace(states, "_start_execution", make_start)


def _begin_to_delete(arn: Any, remove: Callable[[], object]) -> bool:
    """Let a machine be removed when its last execution has ended; False: none runs."""
    machine = states._state_machines.get(arn)
    executions = [one for one in states._executions.values() if one["stateMachineArn"] == arn]
    running = [one for one in executions if one["status"] == "RUNNING"]
    if machine is None or machine.get("type") == "EXPRESS" or not running:
        return False
    if machine.get("status") == _DELETING:
        return True
    machine["status"] = _DELETING

    def remove_when_idle() -> None:
        for execution in running:
            execution.ended.wait()
        if states._state_machines.get(arn) is machine:  # else it was removed, or made again, meanwhile
            remove()

    within = contextvars.copy_context()
    threading.Thread(target=within.run, args=(remove_when_idle,), daemon=True).start()
    return True


def definition_check(_emulator: Emulator) -> None:
    """A definition that AWS refuses is refused: missing targets, unreachable states, fields of the other language.

    The emulator accepts it, and fails, or not, when an execution comes by. What CloudFormation creates is not even
    checked for expressions that cannot be parsed. AWS's own messages of missing targets and unreachable states are
    quoted in localstack/localstack#11978 and aws-cloudformation/cfn-lint#4073.
    """

    def make(original: Callable[..., Any]) -> Callable[..., Any]:
        def validate(text: Any) -> Any:
            try:
                definition = json.loads(text)
            except (TypeError, ValueError):
                return "INVALID_JSON_DESCRIPTION: not JSON"
            return original(text) or first_problem(definition)

        return validate

    def make_definition(original: Callable[..., Any]) -> Callable[..., Any]:
        def definition_of(properties: Any) -> Any:
            text = original(properties)
            problem = states._validate_definition_jsonata(text)
            if problem:
                raise ValueError(f"Invalid State Machine Definition: '{problem}'")
            return text

        return definition_of

    replace(states, "_validate_definition_jsonata", make)
    replace(provisioners, "_sfn_definition", make_definition)


CORRECTIONS: Final[tuple[Correction, ...]] = (
    execution_time,
    final_status,
    machine_timeout,
    history_limit,
    start_execution,
    deleted_machine,
    definition_check,
)
