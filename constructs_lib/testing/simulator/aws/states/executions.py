"""Executions of state machines, and their positions."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from functools import lru_cache
from typing import Any, Final

from constructs_lib.testing.simulator.deployment.blueprint import MachineSpec, arn
from constructs_lib.testing.simulator.engine.actors import Actor
from constructs_lib.testing.simulator.engine.kernel import MILLISECOND, SECOND, Future, Timer

MOST_BYTES: Final = 262_144
MOST_EVENTS: Final = 25_000
_MOST_TOLD: Final = 248 * 1024
"""Bytes of input and output, escaped, that a status change event has."""
NAME_MICROSECONDS: Final = 90 * 86_400 * SECOND
"""For so long after its end the name of an execution is taken."""
REDRIVE_MICROSECONDS: Final = 14 * 86_400 * SECOND
NAME: Final = re.compile(r'[^\s<>{}\[\]?*"#%\\^|~`$&,;:/\x00-\x1f\x7f-\x9f]{1,80}')


@dataclass(slots=True)
class Position:
    """Position of a flow, from which a redrive continues.

    Attributes:
        state: the state that was entered last.
        input: what it was entered with.
        variables: those of this flow alone.
        branches: of a Parallel or Map: positions of its branches, by number.
        results: of a Parallel or Map: outputs of branches that have ended.
    """

    state: str
    input: Any
    variables: dict[str, Any] = field(default_factory=dict)
    branches: dict[int, Position] = field(default_factory=dict)
    results: dict[int, Any] = field(default_factory=dict)


@dataclass(slots=True, kw_only=True)
class Execution:
    """One execution.

    Attributes:
        machine: the machine as it was when the execution began: an update does not change it.
        name: its name.
        input: its input, as text.
        started: microseconds since the epoch.
        position: of its flow.
        ended: has a value when it has ended; another one for each redrive.
        status: ``RUNNING`` and so on.
        express: whether it is an Express execution.
        stopped: when it ended.
        output, error, cause: how.
        redrives: how often it was redriven.
        redriven: when it was last.
        strands: what works for it: one actor for the flow and each branch.
        events: of its history.
        volume: bytes that it was given so far: no value can be larger.
        timer: its machine's TimeoutSeconds.
        stop_after: states after which it is stopped; 0: it is not.
        stop_as: the status that it is stopped with.
        deleted: whether its state machine was deleted: it ends at its next state.
        context: the part of the context object that stays.
    """

    machine: MachineSpec
    name: str
    input: str
    started: int
    position: Position
    ended: Future[None]
    status: str = "RUNNING"
    express: bool = False
    stopped: int | None = None
    output: str | None = None
    error: str | None = None
    cause: str | None = None
    redrives: int = 0
    redriven: int | None = None
    strands: list[Actor] = field(default_factory=list)
    events: int = 1
    volume: int = 0
    timer: Timer | None = None
    stop_after: int = 0
    stop_as: str = "ABORTED"
    deleted: bool = False
    context: dict[str, Any] = field(default_factory=dict)

    @property
    def arn(self) -> str:
        """Its ARN."""
        return arn("states", f"{'express' if self.express else 'execution'}:{self.machine.name}:{self.name}")

    @property
    def running(self) -> bool:
        """True if it has not ended."""
        return self.status == "RUNNING"

    def described(self) -> dict[str, Any]:
        """Return the answer of DescribeExecution."""
        told: dict[str, Any] = {
            "executionArn": self.arn,
            "stateMachineArn": self.machine.arn,
            "name": self.name,
            "status": self.status,
            "startDate": moment_of(self.started),
            "input": self.input,
            "redriveCount": self.redrives,
        }
        if self.stopped is not None:
            told["stopDate"] = moment_of(self.stopped)
        ends = {"output": self.output, "error": self.error, "cause": self.cause}
        return told | {member: value for member, value in ends.items() if value is not None}

    def event(self) -> dict[str, Any]:
        """``detail`` of its status change event; input and output are left out if they are large together."""
        small = len(json_text(self.input)) + len(json_text(self.output or "")) <= _MOST_TOLD
        return {
            "executionArn": self.arn,
            "stateMachineArn": self.machine.arn,
            "name": self.name,
            "status": self.status,
            "startDate": self.started // MILLISECOND,
            "stopDate": None if self.stopped is None else self.stopped // MILLISECOND,
            "input": self.input if small else None,
            "output": self.output if small else None,
            "error": self.error,
            "cause": self.cause,
            "redriveCount": self.redrives,
        }


json_text: Final = json.JSONEncoder(ensure_ascii=False).encode
"""Spell a value as Step Functions does; an encoder that is made once."""


def moment_of(microseconds: int) -> datetime:
    """A moment as an SDK gives it."""
    return datetime.fromtimestamp(microseconds / SECOND, UTC)


def timestamp(microseconds: int) -> str:
    """A moment as the context object gives it."""
    return f"{_to_the_second(microseconds // SECOND)}.{microseconds % SECOND // MILLISECOND:03d}Z"


@lru_cache(maxsize=64)
def _to_the_second(seconds: int) -> str:
    return datetime.fromtimestamp(seconds, UTC).strftime("%Y-%m-%dT%H:%M:%S")


@dataclass(slots=True, kw_only=True)
class Waiting:
    """A task that waits until its token is sent back.

    Attributes:
        execution: whose it is.
        outcome: what it ends with: an output as text, or an error and a cause.
        heard: when it was last heard of.
        open: whether it still waits.
    """

    execution: Execution
    outcome: Future[tuple[str, str, str | None]]
    heard: int
    open: bool = True


Context = Mapping[str, Any]
