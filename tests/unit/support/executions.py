"""Step Functions, as far as names go: which start is the same, which meets an execution, which is refused."""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from enum import StrEnum

from botocore.awsrequest import AWSPreparedRequest, AWSResponse

from saga_runtime.protocol import MAX_EXECUTION_NAME, MAX_STATE_PAYLOAD
from tests.unit.support.wire import body_of, error_response, response


class ExecutionStatus(StrEnum):
    """Statuses of an execution."""

    RUNNING = "RUNNING"
    SUCCEEDED = "SUCCEEDED"
    FAILED = "FAILED"
    ABORTED = "ABORTED"


class AlreadyExists(Exception):
    """The name is taken."""


class InvalidStart(Exception):
    """The name or the input is invalid."""


@dataclass(slots=True)
class Execution:
    """One execution."""

    name: str
    input: str
    status: ExecutionStatus = ExecutionStatus.RUNNING
    machine: str = ""
    output: str = "{}"
    stopped_ms: int = 0
    """When it ended; 0: a moment after it began."""
    alias: str = ""
    """By which it was started."""


def unqualified(machine_arn: str) -> tuple[str, str]:
    """A state machine's ARN, and the alias that it was named with, if any."""
    parts = machine_arn.split(":")
    return ":".join(parts[:7]), "".join(parts[7:])


class Executions:
    """All executions, by their names; those that share the name of another machine's execution are in ``elsewhere``.

    The semantics of ``StartExecution``: the same name with the same input is idempotent while that execution runs;
    any other use of a taken name is ``ExecutionAlreadyExists``. A name is taken on one state machine only.
    """

    def __init__(self) -> None:
        self.by_name: dict[str, Execution] = {}
        self.elsewhere: list[Execution] = []
        self.express_machines: set[str] = set()
        self.express: list[Execution] = []
        """Executions of these machines, in which no name is taken."""
        self.aliases: set[str] = set()
        """Names of aliases that each state machine has."""
        self.refuses: str | None = None
        """The code with which every start is refused."""

    def start(self, name: str, text: str, machine: str = "") -> Execution:
        """Start one, or meet it.

        Raises:
            AlreadyExists: if the name is taken by another input, or by one that has ended.
            InvalidStart: if the name or the input is not one.
        """
        if not re.fullmatch(r"[0-9A-Za-z_-]+", name) or len(name) > MAX_EXECUTION_NAME:
            raise InvalidStart(f"InvalidName: {name!r}")
        try:
            json.loads(text)
        except ValueError:
            raise InvalidStart("InvalidExecutionInput") from None
        if len(text.encode("utf-8")) > MAX_STATE_PAYLOAD:
            raise InvalidStart("InvalidExecutionInput")
        if machine in self.express_machines:
            self.express.append(Execution(name, text, machine=machine))
            return self.express[-1]
        there = self.by_name.get(name)
        if there is None:
            self.by_name[name] = Execution(name, text, machine=machine)
        elif there.machine != machine:
            self.elsewhere.append(Execution(name, text, machine=machine))
            return self.elsewhere[-1]
        elif there.input != text or there.status is not ExecutionStatus.RUNNING:
            raise AlreadyExists(name)
        return self.by_name[name]

    def end(self, name: str, status: ExecutionStatus = ExecutionStatus.SUCCEEDED) -> None:
        """End an execution."""
        self.by_name[name].status = status

    def forget(self, name: str) -> None:
        """Let 90 days pass after an execution's end: its name is free again."""
        del self.by_name[name]

    def answer(self, request: AWSPreparedRequest) -> AWSResponse:
        """Answer a ``StartExecution`` request."""
        body = body_of(request)
        if self.refuses is not None:
            return error_response(request, self.refuses)
        machine, alias = unqualified(body["stateMachineArn"])
        if alias and alias not in self.aliases:
            return error_response(request, "StateMachineDoesNotExist")
        try:
            self.start(body["name"], body["input"], machine).alias = alias
        except AlreadyExists as error:
            return error_response(request, "ExecutionAlreadyExists", detail=str(error))
        except InvalidStart as error:
            return error_response(request, str(error).partition(":")[0])
        arn = machine.replace(":stateMachine:", ":execution:", 1)
        return response(request, 200, {"executionArn": f"{arn}:{body['name']}", "startDate": 1.0})
