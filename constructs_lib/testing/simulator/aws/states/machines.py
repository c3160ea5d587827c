"""Step Functions: state machines, executions and tokens, as a service."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from typing import Any, Final

from constructs_lib.testing.simulator.aws.states.executions import (
    MOST_BYTES,
    MOST_EVENTS,
    NAME,
    NAME_MICROSECONDS,
    REDRIVE_MICROSECONDS,
    Execution,
    Position,
    Waiting,
    moment_of,
    timestamp,
)
from constructs_lib.testing.simulator.aws.states.failures import StateFailedError
from constructs_lib.testing.simulator.aws.states.interpreter import Interpreter
from constructs_lib.testing.simulator.aws.states.published import OPERATIONS as PUBLISHED
from constructs_lib.testing.simulator.aws.states.published import Published
from constructs_lib.testing.simulator.aws.states.tasks import Tasks
from constructs_lib.testing.simulator.checks.coverage import Coverage
from constructs_lib.testing.simulator.checks.trace import Trace
from constructs_lib.testing.simulator.deployment.blueprint import MachineSpec, arn
from constructs_lib.testing.simulator.engine.actors import Actor, ActorKind
from constructs_lib.testing.simulator.engine.kernel import SECOND, Future, Kernel, current_process
from constructs_lib.testing.simulator.errors import NotSimulatedError, ServiceError, json_of
from constructs_lib.testing.simulator.faults.climate import EXECUTIONS_GO, Event
from constructs_lib.testing.simulator.faults.weather import Weather

_MOST_CAUSE: Final = 32_768
_MOST_ERROR: Final = 256
_EXPRESS_SECONDS: Final = 300
_BEHIND: Final = 60 * SECOND
"""By which a description or a list of executions is behind at most."""
_BOUNDARIES: Final = 10
"""An execution that is stopped is stopped at one of so many of its states."""

Publish = Callable[[Mapping[str, Any]], object]


class StateMachines:
    """Every state machine and execution of a run.

    Args:
        kernel: keeps the time.
        tasks: does what Task states do.
        weather: what goes wrong.
        trace: hears of executions.
        coverage: hears of states.
        publish: publishes a status change event's detail.

    Attributes:
        machines: by ARN; an update replaces one, and running executions keep the former.
        published: their versions and aliases.
        deleting: ARNs of those that were deleted, and are not gone yet.
        gone: is called once one of them is gone.
        executions: by ARN.
    """

    def __init__(
        self,
        kernel: Kernel,
        tasks: Tasks,
        weather: Weather,
        trace: Trace,
        coverage: Coverage,
        publish: Publish,
    ) -> None:
        self.machines: dict[str, MachineSpec] = {}
        self.published = Published(self.machines, weather.share, trace.note)
        self.deleting: set[str] = set()
        self.gone: Callable[[], None] = lambda: None
        self.executions: dict[str, Execution] = {}
        self._kernel = kernel
        self._weather = weather
        self._trace = trace
        self._publish = publish
        self._waiting: dict[str, Waiting] = {}
        self._number = 0
        self._interpreter = Interpreter(kernel, tasks, weather, trace, coverage, self.stop)
        tasks.machines = self

    def running(self) -> list[Execution]:
        """Executions that have not ended."""
        return [execution for execution in self.executions.values() if execution.running]

    # --- What others do with executions

    def start(self, machine_arn: str, name: str | None, text: str, *, kind: str | None = None) -> Execution:
        """Start an execution.

        Args:
            machine_arn: of a state machine, its version or its alias.
            name: of the execution; None: one that no other has.
            text: its input.
            kind: of the state machines that the operation is for; None: of both.

        Raises:
            ServiceError: as StartExecution refuses it.
        """
        machine = self.published.started(machine_arn)
        if machine is None:
            raise ServiceError("StateMachineDoesNotExist", f"State Machine Does Not Exist: '{machine_arn}'")
        _check_kind(machine, kind)
        express = machine.kind == "EXPRESS"
        if machine.arn in self.deleting and not express:
            raise ServiceError("StateMachineDeleting", f"State Machine is being deleted: '{machine_arn}'")
        _check_input(text)
        if name is None:
            self._number += 1
            name = f"{self._number:08d}-{self._kernel.entropy.getrandbits(64):016x}"
        if not NAME.fullmatch(name):
            raise ServiceError("InvalidName", f"Invalid Name: '{name}'")
        known = None if express else self.executions.get(arn("states", f"execution:{machine.name}:{name}"))
        if known is not None and not self._is_forgotten(known):
            if known.running and known.input == text:
                return known
            raise ServiceError("ExecutionAlreadyExists", f"Execution Already Exists: '{known.arn}'")
        if express:
            self._number += 1
            name = f"{name}:{self._number}"
        return self._begin(machine, name, text, express=express)

    def stop(self, execution: Execution, status: str, error: str | None = None, cause: str | None = None) -> None:
        """End an execution from outside; what runs in it ends where it is."""
        if execution.running:
            self._trace.note(execution.name, f"execution {status}")
            self._end(execution, status, error=error, cause=cause)

    def delete(self, machine_arn: str) -> None:
        """Delete a state machine, as DeleteStateMachine does; what is deleted already is accepted.

        A Standard one can be started no more, its executions fail at their next state, and it is gone when none runs.
        An Express one is gone within a minute, and its executions continue.
        """
        machine = self.machines.get(machine_arn)
        if machine is None or machine_arn in self.deleting:
            return
        self._trace.note(machine.name, "is deleted")
        self.deleting.add(machine_arn)
        if machine.kind == "EXPRESS":
            self._kernel.after(int(self._weather.share() * 60 * SECOND), partial(self._remove, machine_arn))
            return
        for execution in self._of(machine_arn):
            execution.deleted = True
        self._remove_if_idle(machine_arn)

    def _remove_if_idle(self, machine_arn: str) -> None:
        if machine_arn in self.deleting and not any(execution.running for execution in self._of(machine_arn)):
            self._remove(machine_arn)

    def _remove(self, machine_arn: str) -> None:
        self._trace.note(self.machines.pop(machine_arn).name, "is gone")
        self.published.forget(machine_arn)
        self.deleting.remove(machine_arn)
        self.gone()

    def _of(self, machine_arn: str) -> Iterator[Execution]:
        return (execution for execution in self.executions.values() if execution.machine.arn == machine_arn)

    def redrive(self, execution: Execution) -> None:
        """Continue an execution that failed, at its position.

        Raises:
            ServiceError: ExecutionNotRedrivable.
        """
        now = self._kernel.now
        too_late = execution.stopped is None or now - execution.stopped > REDRIVE_MICROSECONDS
        if (
            execution.express
            or execution.deleted
            or too_late
            or execution.events >= MOST_EVENTS
            or execution.status not in ("FAILED", "ABORTED", "TIMED_OUT")
        ):
            raise ServiceError("ExecutionNotRedrivable", f"The execution {execution.arn} cannot be redriven")
        execution.status, execution.stopped = "RUNNING", None
        execution.output = execution.error = execution.cause = None
        execution.redrives += 1
        execution.redriven = now
        execution.ended = Future(self._kernel)
        self._trace.note(execution.name, f"redriven, {execution.redrives} times by now")
        self._run(execution)

    def wait_for(self, token: str, execution: Execution) -> Waiting:
        """Wait until a token is sent back."""
        waiting = Waiting(execution=execution, outcome=Future(self._kernel), heard=self._kernel.now)
        self._waiting[token] = waiting
        return waiting

    # --- The life of an execution

    def _begin(self, machine: MachineSpec, name: str, text: str, *, express: bool) -> Execution:
        now = self._kernel.now
        execution = Execution(
            machine=machine,
            name=name,
            input=text,
            started=now,
            position=Position(machine.definition["StartAt"], json.loads(text)),
            ended=Future(self._kernel),
            express=express,
            volume=len(text),
        )
        self.executions[execution.arn] = execution
        self._trace.note(name, f"execution of {machine.name} starts")
        for event, status in ((Event.STOP, "ABORTED"), (Event.TIME_OUT, "TIMED_OUT")):
            if not express and self._weather.happens(event, machine.name):
                execution.stop_after = 1 + int(self._weather.share() * _BOUNDARIES)
                execution.stop_as = status
                if self._weather.share() < 0.3:  # not at a state's beginning, but at any time
                    execution.stop_after = 0
                    self._kernel.at(self._weather.moment(), partial(self.stop, execution, status))
        self._run(execution)
        return execution

    def _run(self, execution: Execution) -> None:
        machine = execution.machine
        execution.context = {
            "Execution": {
                "Id": execution.arn,
                "Input": json.loads(execution.input),
                "Name": execution.name.partition(":")[0],
                "RoleArn": arn("iam", f"role/{machine.role}", region=""),
                "StartTime": timestamp(execution.started),
                "RedriveCount": execution.redrives,
                **({} if execution.redriven is None else {"RedriveTime": timestamp(execution.redriven)}),
            },
            "StateMachine": {"Id": machine.arn, "Name": machine.name},
        }
        actor = Actor(
            f"{_short(machine.name)}/{execution.name[-12:]}", ActorKind.MACHINE, of=machine.name, role=machine.role
        )
        execution.strands = [actor]
        limit = machine.definition.get("TimeoutSeconds")
        if execution.express:
            limit = min(limit or _EXPRESS_SECONDS, _EXPRESS_SECONDS)
        ended = execution.ended
        if limit is not None:
            execution.timer = self._kernel.after(
                int(limit * SECOND),
                lambda: self.stop(execution, "TIMED_OUT") if execution.ended is ended else None,
            )
        self._announce(execution)
        task = self._kernel.spawn(actor, lambda: self._interpreter.run(execution, actor))
        task.ended.then(lambda: self._ran(execution, ended, task.ended))

    def _ran(self, execution: Execution, run: Future[None], task: Future[str]) -> None:
        """An execution's flow has ended; not if it was stopped."""
        if execution.ended is not run or not execution.running:
            return
        try:
            output = task.value()
        except StateFailedError as failure:
            self._trace.note(execution.name, f"execution FAILED: {failure.error}")
            self._end(execution, "FAILED", error=failure.error, cause=failure.cause[:_MOST_CAUSE])
        else:
            self._trace.note(execution.name, "execution SUCCEEDED")
            self._end(execution, "SUCCEEDED", output=output)

    def _end(
        self,
        execution: Execution,
        status: str,
        *,
        output: str | None = None,
        error: str | None = None,
        cause: str | None = None,
    ) -> None:
        execution.status, execution.stopped = status, self._kernel.now
        execution.output, execution.error, execution.cause = output, error, cause
        if execution.timer is not None:
            execution.timer.cancel()
        execution.ended.set(None)
        self._announce(execution)
        if (
            status != "SUCCEEDED"
            and not execution.express
            and self._weather.happens(Event.REDRIVE, execution.machine.name)
        ):
            self._kernel.at(self._weather.moment(), lambda: self._redrive_if_possible(execution))
        strands, execution.strands = execution.strands, []
        present = current_process()
        # Who ends its own execution ends last.
        for strand in sorted(strands, key=lambda strand: strand is present):
            strand.kill()
        if execution.deleted:
            self._remove_if_idle(execution.machine.arn)

    def _redrive_if_possible(self, execution: Execution) -> None:
        if execution.status in ("FAILED", "ABORTED", "TIMED_OUT") and not execution.deleted:
            self.redrive(execution)

    def _announce(self, execution: Execution) -> None:
        if not execution.express:
            self._publish(execution.event())

    def _is_forgotten(self, execution: Execution) -> bool:
        return execution.stopped is not None and self._kernel.now - execution.stopped > NAME_MICROSECONDS

    def _went(self, execution: Execution) -> bool:
        """Test whether an execution went with its state machine."""
        return EXECUTIONS_GO in self._weather.climate.unproven and execution.machine.arn not in self.machines

    # --- The API

    def call(self, operation: str, params: Mapping[str, Any], _actor: Actor | None) -> Any:
        """Do what a request asks for."""
        if operation in PUBLISHED:
            return self.published.call(operation, params)
        match operation:
            case "StartExecution":
                return self._start(params)
            case "StartSyncExecution":
                text = str(params.get("input", "{}"))
                child = self.start(params["stateMachineArn"], params.get("name"), text, kind="EXPRESS")
                answer: Future[dict[str, Any]] = Future(self._kernel)
                child.ended.then(lambda: answer.set(child.described()))
                return answer
            case "StopExecution":
                execution = self._execution(params)
                self.stop(execution, "ABORTED", params.get("error"), params.get("cause"))
                return {"stopDate": moment_of(self._kernel.now)}
            case "RedriveExecution":
                self.redrive(self._execution(params))
                return {"redriveDate": moment_of(self._kernel.now)}
            case "DescribeExecution":
                return self._describe(params)
            case "ListExecutions":
                return self._list(params)
            case "DescribeStateMachine":
                machine = self.machines.get(params["stateMachineArn"])
                if machine is None:
                    raise ServiceError("StateMachineDoesNotExist", "State Machine Does Not Exist")
                definition = json.dumps(machine.definition)
                return {
                    "stateMachineArn": machine.arn,
                    "name": machine.name,
                    "definition": definition,
                    "type": machine.kind,
                    "status": "DELETING" if machine.arn in self.deleting else "ACTIVE",
                }
            case "DeleteStateMachine":
                self.delete(params["stateMachineArn"])
                return {}
            case "SendTaskSuccess" | "SendTaskFailure" | "SendTaskHeartbeat":
                return self._send(operation, params)
        raise NotSimulatedError(f"states:{operation} is not simulated")

    def _start(self, params: Mapping[str, Any]) -> dict[str, Any]:
        execution = self.start(params["stateMachineArn"], params.get("name"), str(params.get("input", "{}")))
        if execution.express and self._weather.happens(Event.EXPRESS_TWICE, execution.machine.name):
            # At the same time, or when the first one may have ended.
            later = self._weather.long() if self._weather.share() < 0.5 else 0
            self._kernel.after(later, partial(self._begin_again, execution))
        return {"executionArn": execution.arn, "startDate": moment_of(execution.started)}

    def _begin_again(self, execution: Execution) -> None:
        """Run an asynchronous Express execution a second time, of the definition that it has."""
        self._number += 1
        name = f"{execution.name.partition(':')[0]}:{self._number}"
        self._begin(execution.machine, name, execution.input, express=True)

    def _execution(self, params: Mapping[str, Any]) -> Execution:
        found = self.executions.get(params["executionArn"])
        if str(params["executionArn"]).split(":")[5] == "express":
            raise ServiceError("InvalidArn", f"Invalid Arn: '{params['executionArn']}'")  # it keeps Standard ones only
        if found is None or self._is_forgotten(found) or self._went(found):
            raise ServiceError("ExecutionDoesNotExist", f"Execution Does Not Exist: '{params['executionArn']}'")
        return found

    def _describe(self, params: Mapping[str, Any]) -> dict[str, Any]:
        execution = self._as_known(self._execution(params))
        if execution is None:
            raise ServiceError("ExecutionDoesNotExist", f"Execution Does Not Exist: '{params['executionArn']}'")
        return execution.described()

    def _as_known(self, execution: Execution) -> Execution | None:
        """The execution as a reader sees it who may be a minute behind; None: it is not known yet."""
        now, changed = self._kernel.now, execution.started if execution.stopped is None else execution.stopped
        if now - changed >= _BEHIND or not self._weather.happens(Event.DESCRIBE_BEHIND, execution.machine.name):
            return execution
        if execution.stopped is None:
            return None
        return dataclasses.replace(execution, status="RUNNING", stopped=None, output=None, error=None, cause=None)

    def _list(self, params: Mapping[str, Any]) -> dict[str, Any]:
        machine_arn, wanted = params["stateMachineArn"], params.get("statusFilter")
        if machine_arn not in self.machines:
            raise ServiceError("StateMachineDoesNotExist", f"State Machine Does Not Exist: '{machine_arn}'")
        _check_kind(self.machines[machine_arn], "STANDARD")
        known = (self._as_known(execution) for execution in reversed(self.executions.values()))
        found = [
            execution.described()
            for execution in known
            if execution is not None and execution.machine.arn == machine_arn and wanted in (None, execution.status)
        ]
        start = int(params.get("nextToken") or 0)
        page = found[start : start + int(params.get("maxResults") or 100)]
        members = ("executionArn", "stateMachineArn", "name", "status", "startDate", "stopDate", "redriveCount")
        told = [{member: one[member] for member in members if member in one} for one in page]
        more = {"nextToken": str(start + len(page))} if start + len(page) < len(found) else {}
        return {"executions": told, **more}

    def _send(self, operation: str, params: Mapping[str, Any]) -> dict[str, Any]:
        _check_answer(params)
        waiting = self._waiting.get(str(params.get("taskToken")))
        if waiting is None:
            raise ServiceError("InvalidToken", "Invalid Token: 'Invalid token'")
        if not waiting.open or not waiting.execution.running or waiting.outcome.done:
            raise ServiceError("TaskTimedOut", "Task Timed Out: 'Provided task does not exist anymore'")
        if operation == "SendTaskHeartbeat":
            waiting.heard = self._kernel.now
        elif operation == "SendTaskSuccess":
            waiting.outcome.set(("success", str(params["output"]), None))
        else:
            waiting.outcome.set(("failure", str(params.get("error", "")), params.get("cause")))
        return {}


def _check_answer(params: Mapping[str, Any]) -> None:
    """Refuse an invalid response to a task, before its token is read (API reference of ``SendTask*``)."""
    output = str(params.get("output", "{}"))
    for member, size, most in (
        ("output", len(output.encode()), MOST_BYTES),
        ("error", len(params.get("error") or ""), _MOST_ERROR),
        ("cause", len(params.get("cause") or ""), _MOST_CAUSE),
    ):
        if size > most:
            raise ServiceError(
                "ValidationException",
                f"Value at '{member}' failed to satisfy constraint: "
                f"Member must have length less than or equal to {most}",
            )
    try:
        json_of(output)
    except ValueError:
        raise ServiceError("InvalidOutput", "Invalid Output: 'Invalid JSON'") from None


def _check_kind(machine: MachineSpec, kind: str | None) -> None:
    """Refuse what is for the other kind of state machines only.

    Raises:
        ServiceError: StateMachineTypeNotSupported.
    """
    if kind not in (None, machine.kind):
        message = "This operation is not supported by this type of state machine"
        raise ServiceError("StateMachineTypeNotSupported", message)


def _check_input(text: str) -> None:
    try:
        json_of(text)
    except ValueError:
        raise ServiceError("InvalidExecutionInput", "Invalid State Machine Execution Input") from None
    if len(text.encode()) > MOST_BYTES:
        raise ServiceError("ValidationException", "The size of 'input' must be less than or equal to 262144")


def _short(name: str) -> str:
    bare = name.partition("-")[2] or name
    return bare[:-8] if len(bare) > 8 and all(letter in "0123456789ABCDEF" for letter in bare[-8:]) else bare
