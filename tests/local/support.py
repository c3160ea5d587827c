"""Helpers for the tests of local AWS."""

from __future__ import annotations

import functools
import json
import time
from collections.abc import Callable, Mapping
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final, TypeVar

from constructs_lib.testing import LocalAws
from tests.sampling import WHOLE

from .pauses import Pauses

_TRUST: Final = json.dumps(
    {
        "Version": "2012-10-17",
        "Statement": [
            {"Effect": "Allow", "Principal": {"Service": "states.amazonaws.com"}, "Action": "sts:AssumeRole"}
        ],
    }
)
#: Nothing waits so long when all is well; a machine with much to do may need it.
_PATIENCE_SECONDS: Final = 180.0

T = TypeVar("T")


@dataclass(frozen=True)
class Deployed:
    """A running emulator with the target system in it, which is deployed when a test asks for it."""

    aws: LocalAws
    assembly: Callable[[], Path]

    @functools.cached_property
    def outputs(self) -> Mapping[str, str]:
        """Outputs of the target system."""
        return self.aws.deploy(self.assembly())["Target"]

    @property
    def api(self) -> str:
        """Base URL of the target's API."""
        return self.aws.api_url(self.outputs["ApiId"], "prod")

    def function(self, name: str = "Target/Worker") -> str:
        """Physical name of one of the target's functions."""
        assert self.outputs
        return self.aws.resolve_function(name)

    def invoke(self, function: str = "Target/Worker", **event: Any) -> Any:
        """Invoke a function and return what it answered, error document or result."""
        answer = self.aws.client("lambda").invoke(FunctionName=self.function(function), Payload=json.dumps(event))
        return json.loads(answer["Payload"].read())

    def worker_arn(self) -> str:
        """ARN of the worker function."""
        return self.aws.client("lambda").get_function_configuration(FunctionName=self.function())["FunctionArn"]


LEFT_OUT_TOGETHER: Final = (
    frozenset(
        {
            *("start-execution", "task-time", "late-callbacks", "payload-limit", "choice-conditions"),
            *("context-object", "jsonata-numbers", "redrive-execution", "state-machine-role"),
            *("version-definitions", "handler-errors", "whole-logs", "function-environment", "shared-code"),
            *("denied-by-policy", "request-size", "event-size", "integration-failure", "header-names", "event-entries"),
            *("secure-transport", "secret-reference", "generated-secret", "message-moves"),
        }
    ),
    frozenset(
        {
            *("machine-timeout", "history-limit", "error-names", "succeed-output", "choice-default-output"),
            *("parallel-branches", "assign-together", "expression-levels", "definition-check", "state-machine-rights"),
            *("published-resources", "exit-error", "init-errors", "json-results", "sandbox-limit", "throttle-name"),
            *("bare-interpreter", "source-address", "request-validators", "table-settings", "secret-versions"),
            *("queue-subscription", "computed-alarms", "callback-permission"),
        }
    ),
    frozenset({"timed-out-events", "map-items"}),
    frozenset({"retry-delays", "jsonata-time", "function-time"}),
    frozenset({"batch-answers", "asynchronous-retries"}),
)
"""Corrections of different functions of the emulator: no test of one shows another, and one emulator serves all.

``make samples`` leaves out each alone.
"""


@dataclass
class Emulators:
    """A corrected emulator, and others that lack some corrections, or whose time passes faster; each starts once."""

    corrected: Deployed
    assembly: Callable[[], Path]
    stack: ExitStack
    _known: dict[tuple[frozenset[str], float], Deployed] = field(default_factory=dict)
    _emptied: set[tuple[frozenset[str], float]] = field(default_factory=set)

    def begin_test(self) -> None:
        """Let each be emptied before the next use."""
        self._emptied.clear()

    def without(self, *names: str, speed: float = 1.0) -> Deployed:
        """Return an emulator that lacks some corrections, empty at its first use in a test."""
        left_out = frozenset(names)
        if not WHOLE:
            left_out = next((group for group in LEFT_OUT_TOGETHER if left_out and left_out <= group), left_out)
        key = (left_out, speed)
        if key not in self._known:
            aws = self.stack.enter_context(LocalAws(without=left_out, speed=speed))
            self._known[key] = Deployed(aws, self.assembly)
        elif key not in self._emptied:
            self._known[key].aws.reset()
        self._emptied.add(key)
        return self._known[key]

    def fast(self, speed: float) -> Deployed:
        """Return a corrected emulator whose time passes faster."""
        return self.without(speed=speed)


def create_role(aws: LocalAws, *statements: Mapping[str, Any], name: str = "machine") -> str:
    """Create a role that a state machine can take, and return its ARN."""
    iam = aws.client("iam")
    try:
        arn = iam.create_role(RoleName=name, AssumeRolePolicyDocument=_TRUST)["Role"]["Arn"]
    except iam.exceptions.EntityAlreadyExistsException:
        arn = iam.get_role(RoleName=name)["Role"]["Arn"]
    document = {"Version": "2012-10-17", "Statement": list(statements)}
    if statements:
        iam.put_role_policy(RoleName=name, PolicyName="allowed", PolicyDocument=json.dumps(document))
    return arn


ALLOW_ALL: Final = {"Effect": "Allow", "Action": "*", "Resource": "*"}


def create_machine(
    aws: LocalAws, states: Mapping[str, Any], *, role: str | None = None, express: bool = False, **top: Any
) -> str:
    """Create a JSONata state machine that begins with the first state, and return its ARN."""
    definition = {"QueryLanguage": "JSONata", "StartAt": next(iter(states)), "States": states, **top}
    number = len(aws.client("stepfunctions").list_state_machines()["stateMachines"])
    return aws.client("stepfunctions").create_state_machine(
        name=f"m{number}-{time.monotonic_ns()}",
        definition=json.dumps(definition),
        type="EXPRESS" if express else "STANDARD",
        roleArn=role or create_role(aws, ALLOW_ALL, name="all"),
    )["stateMachineArn"]


def run_machine(
    aws: LocalAws, states: Mapping[str, Any], payload: Any = None, *, role: str | None = None, **top: Any
) -> dict[str, Any]:
    """Run a state machine to its end and return its description, with the output read as JSON."""
    arn = create_machine(aws, states, role=role, **top)
    started = aws.client("stepfunctions").start_execution(stateMachineArn=arn, input=json.dumps(payload or {}))
    return await_end(aws, started["executionArn"])


def await_end(aws: LocalAws, execution_arn: str) -> dict[str, Any]:
    """Wait for the end of an execution and return its description, with the output read as JSON."""
    client = aws.client("stepfunctions")

    def described() -> dict[str, Any] | None:
        description: dict[str, Any] = dict(client.describe_execution(executionArn=execution_arn))
        return None if description["status"] == "RUNNING" else description

    description = eventually(described)
    if description.get("output"):
        description["output"] = json.loads(description["output"])
    return description


def eventually(probe: Callable[[], T | None], *, within: float = _PATIENCE_SECONDS) -> T:
    """Return the first value of a probe that is not None."""
    deadline, pauses = time.monotonic() + within, Pauses()
    while time.monotonic() < deadline:
        value = probe()
        if value is not None:
            return value
        pauses.pause()
    raise AssertionError(f"nothing came of {probe} within {within} s")
