"""Helpers for the tests of local AWS."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Mapping
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final, TypeVar

from constructs_lib.testing import LocalAws

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
    """A running emulator with the target system in it."""

    aws: LocalAws
    outputs: Mapping[str, str]

    @property
    def api(self) -> str:
        """Base URL of the target's API."""
        return self.aws.api_url(self.outputs["ApiId"], "prod")

    def invoke(self, function: str = "Target/Worker", **event: Any) -> Any:
        """Invoke a function and return what it answered, error document or result."""
        name = self.aws.resolve_function(function)
        answer = self.aws.client("lambda").invoke(FunctionName=name, Payload=json.dumps(event))
        return json.loads(answer["Payload"].read())

    def worker_arn(self) -> str:
        """ARN of the worker function."""
        name = self.aws.resolve_function("Target/Worker")
        return self.aws.client("lambda").get_function_configuration(FunctionName=name)["FunctionArn"]


@dataclass
class Emulators:
    """A corrected emulator, and others that lack one correction."""

    corrected: Deployed
    assembly: Path
    stack: ExitStack
    _cache: dict[tuple[frozenset[str], float], Deployed] = field(default_factory=dict)

    def without(self, *names: str, speed: float = 1.0) -> Deployed:
        """Start an emulator that lacks some corrections, with the target system deployed."""
        key = (frozenset(names), speed)
        if key not in self._cache:
            aws = self.stack.enter_context(LocalAws(without=names, speed=speed))
            without_firewall = "firewall-association" in names
            self._cache[key] = Deployed(aws, {} if without_firewall else aws.deploy(self.assembly)["Target"])
        return self._cache[key]

    def fast(self, speed: float) -> Deployed:
        """Start a corrected emulator whose time passes faster."""
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
    deadline = time.monotonic() + within
    while time.monotonic() < deadline:
        value = probe()
        if value is not None:
            return value
        time.sleep(0.01)
    raise AssertionError(f"nothing came of {probe} within {within} s")
