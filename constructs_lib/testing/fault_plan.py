"""Planned faults, as data: which call of which function fails, how, and how often.

This module executes nothing: a test writes these values, and the emulator's fault injection reads them. Every value
validates its arguments, so that a plan that can never fire is refused where it is written.
"""

from __future__ import annotations

import math
import re
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any, Final, Literal, TypeAlias

from constructs_lib.testing.fault_schedules import (
    First,
    Schedule,
    require_schedule,
    schedule_from_wire,
    schedule_to_wire,
)

#: Matches every function, every service or every operation of a service.
ANY: Final = "*"
#: A caller that begins with this is a state machine: its service integrations are the calls.
STATES_PREFIX: Final = "states:"

_CALL: Final = re.compile(r"\*|[a-z][a-z0-9-]*:(\*|[A-Z][A-Za-z0-9]*)")
_SINGLE_WRITES: Final = frozenset({"dynamodb:PutItem", "dynamodb:UpdateItem", "dynamodb:DeleteItem"})
_TRANSACTIONS: Final = frozenset({"dynamodb:TransactWriteItems", "dynamodb:TransactGetItems"})
#: The calls that DynamoDB refuses while a transaction holds one of their items.
CONFLICTING_CALLS: Final = _SINGLE_WRITES | _TRANSACTIONS


class Action(StrEnum):
    """Effect of a fault on the call.

    Attributes:
        KILL: the process that made the call dies at once (SIGKILL): `Runtime.ExitError`. Not for state machines.
        DROP: the connection is closed without an answer: the SDK sees a connection error, and usually tries again.
        DELAY: the answer (or, at `before`, the request) is held back, by default until the caller's invocation is over.
        THROTTLE: the service's own throttling error, which SDKs retry. Only at `before`: a throttled call did nothing.
        CONFLICT: DynamoDB's TransactionConflict. Only at `before`, only for calls that can meet it.
        ERROR: the service's internal error (HTTP 500), which at `after` hides that the call took effect.
    """

    KILL = "kill"
    DROP = "drop"
    DELAY = "delay"
    THROTTLE = "throttle"
    CONFLICT = "conflict"
    ERROR = "error"


class Moment(StrEnum):
    """When it happens: before the call (or state) took effect, or after."""

    BEFORE = "before"
    AFTER = "after"


class Attempts(StrEnum):
    """Attempts of one logical call that the fault hits.

    An SDK retries a failed request under the same `amz-sdk-invocation-id`. With `FIRST` the retry goes
    through: the realistic case, which the function's code does not even notice. With `ALL` every attempt fails, so
    the code gets the error that it would get from a longer outage.
    """

    FIRST = "first"
    ALL = "all"


class StopStatus(StrEnum):
    """Status of an execution that is stopped at a state.

    Attributes:
        ABORTED: as if an operator had stopped it.
        TIMED_OUT: as if the state machine's own `TimeoutSeconds` had passed.
    """

    ABORTED = "ABORTED"
    TIMED_OUT = "TIMED_OUT"


ActionName: TypeAlias = Literal["kill", "drop", "delay", "throttle", "conflict", "error"]
MomentName: TypeAlias = Literal["before", "after"]
AttemptsName: TypeAlias = Literal["first", "all"]
StopStatusName: TypeAlias = Literal["ABORTED", "TIMED_OUT"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Fault:
    """One planned fault: what happens at which AWS call of which function.

    Counting is by logical call: an SDK's own retries of a request belong to the call that they repeat. A fault counts
    every matching call, also one at which another fault acts; where two select the same call, the one that was
    planned first acts and the other reports it as shadowed.

    Example:
        >>> Fault(function="Shop/Api/Gatekeeper", call="dynamodb:PutItem", moment="after", action="kill").on
        First(times=1)

    Attributes:
        function: physical name, logical id or construct path; `states:` and a state machine for its service
            integrations (a `Retry` of the state is a new call); `*` or `states:*` for all of them.
        call: service and operation as IAM spells the service: `dynamodb:PutItem`, `states:StartExecution`,
            `lambda:Invoke`; `dynamodb:*` or `*` for more.
        action: what happens.
        moment: before or after the service handled the call. At `before` the request is never executed (with `delay`:
            executed late, when its sender may be dead).
        on: which of the matching calls.
        attempts: whether the SDK's own retries are hit as well.
        containing: only calls whose request body contains this text (a key, a saga id), so that one of many
            concurrent requests can be singled out.
        seconds: for `delay`, in the emulator's time; without it, until the caller's invocation is over (it timed out).
        items: for `conflict` on a transaction, the positions that report TransactionConflict; all without it.
    """

    function: str
    call: str
    action: Action | ActionName
    moment: Moment | MomentName = Moment.BEFORE
    on: Schedule = field(default_factory=First)
    attempts: Attempts | AttemptsName = Attempts.FIRST
    containing: str | None = None
    seconds: float | None = None
    items: tuple[int, ...] | None = None

    def __post_init__(self) -> None:
        _require_name("function", self.function, 'a function like "Stack/Api/Gatekeeper", or "states:" and a machine')
        _require_call(self.call)
        object.__setattr__(self, "action", _member(Action, "action", self.action))
        object.__setattr__(self, "moment", _member(Moment, "moment", self.moment))
        object.__setattr__(self, "attempts", _member(Attempts, "attempts", self.attempts))
        require_schedule(self.on)
        require_containing(self.containing)
        self._check_refusals()
        self._check_delay()
        self._check_state_machine()

    @property
    def is_of_state_machine(self) -> bool:
        """True if the caller is a state machine."""
        return self.function.startswith(STATES_PREFIX)

    def matches(self, caller: str, call: str, body: bytes) -> bool:
        """Test whether a call of `caller` (physical names) is one that this fault counts."""
        if self.function in {ANY, STATES_PREFIX + ANY}:
            if caller.startswith(STATES_PREFIX) != self.is_of_state_machine:
                return False
        elif self.function != caller:
            return False
        if self.call not in {ANY, call} and self.call != f"{call.partition(':')[0]}:{ANY}":
            return False
        return contains(body, self.containing)

    def _check_refusals(self) -> None:
        if self.action in {Action.THROTTLE, Action.CONFLICT} and self.moment == Moment.AFTER:
            raise ValueError(
                f'action="{self.action}" is a refusal, so the call has no effect to be after, got moment="after"; '
                'use moment="before", or action="error" for an error that hides an effect'
            )
        if self.action == Action.CONFLICT and self.call not in CONFLICTING_CALLS:
            raise ValueError(
                f'action="conflict" needs one of {", ".join(sorted(CONFLICTING_CALLS))}, got call="{self.call}"; '
                "no other call meets a TransactionConflict"
            )
        if self.items is None:
            return
        if self.action != Action.CONFLICT or self.call not in _TRANSACTIONS:
            raise ValueError(
                f'items belong to action="conflict" on a transaction, got action="{self.action}" call="{self.call}"; '
                "leave items out"
            )
        if not self.items or len(set(self.items)) != len(self.items) or any(item < 0 for item in self.items):
            raise ValueError(f"items must be different positions from 0 on, got {self.items!r}; leave them out for all")

    def _check_delay(self) -> None:
        if self.seconds is not None:
            if self.action != Action.DELAY:
                raise ValueError(f'seconds belong to action="delay", got action="{self.action}"; leave seconds out')
            _require_seconds(self.seconds)

    def _check_state_machine(self) -> None:
        if not self.is_of_state_machine:
            return
        if self.action == Action.KILL:
            raise ValueError(
                f'a state machine has no process to kill, got function="{self.function}"; '
                'use StopAt to end its execution, or action="drop" or "error" to fail its call'
            )
        if self.action == Action.DELAY and self.seconds is None:
            raise ValueError(
                f'action="delay" needs seconds for a state machine, got function="{self.function}"; '
                "give more than the state's TimeoutSeconds"
            )
        if self.attempts == Attempts.ALL:
            raise ValueError(
                f'attempts="all" is about an SDK\'s retries, got function="{self.function}", a state machine; '
                "use on=Every() to hit the retries of its state too"
            )


@dataclass(frozen=True, slots=True, kw_only=True)
class StopAt:
    """The execution ends right before or right after a state, as no state of it can prevent: no `Catch` runs.

    Its status-change event is sent. A state machine that waits for it learns of it: `States.Timeout` from one that
    timed out, `States.TaskFailed` from one that was stopped.

    Attributes:
        machine: physical name, logical id or construct path of the state machine; `*` for all.
        state: the state's name, also inside a Parallel or a Map (Succeed and Fail states: at the top level only).
        moment: before the state does anything, or after it is done and before the next one is entered.
        on: which of the times that the state is reached, over all executions.
        containing: only executions whose input contains this text.
        status: the status after it: aborted by an operator, or timed out. The state machine needs no `TimeoutSeconds`
            for that.
    """

    machine: str
    state: str
    moment: Moment | MomentName = Moment.BEFORE
    on: Schedule = field(default_factory=First)
    containing: str | None = None
    status: StopStatus | StopStatusName = StopStatus.ABORTED

    def __post_init__(self) -> None:
        _require_name("machine", self.machine, 'a state machine like "Stack/Checkout/Machine"')
        if self.machine.startswith(STATES_PREFIX):
            raise ValueError(
                f'machine must be a state machine\'s name alone, got "{self.machine}"; drop "{STATES_PREFIX}"'
            )
        _require_state(self.state)
        object.__setattr__(self, "moment", _member(Moment, "moment", self.moment))
        object.__setattr__(self, "status", _member(StopStatus, "status", self.status))
        require_schedule(self.on)
        require_containing(self.containing)

    def matches(self, machine: str, state: str, moment: Moment, execution_input: str) -> bool:
        """Test whether reaching `moment` of `state` in `machine` (physical name) is what this counts."""
        return (
            self.machine in {ANY, machine}
            and self.state == state
            and self.moment == moment
            and (self.containing is None or self.containing in execution_input)
        )


Planned: TypeAlias = Fault | StopAt


def to_wire(planned: Planned) -> dict[str, Any]:
    """Return the plan as JSON, for the emulator."""
    values: dict[str, Any] = {name: getattr(planned, name) for name in planned.__dataclass_fields__}
    return {"kind": type(planned).__name__, **values, "on": schedule_to_wire(planned.on)}


def from_wire(wire: dict[str, Any]) -> Planned:
    """Return the plan that `to_wire` wrote.

    Raises:
        ValueError: If a constructor refuses it.
    """
    values = {**wire, "on": schedule_from_wire(wire["on"])}
    kind = values.pop("kind", None)
    if kind == StopAt.__name__:
        return StopAt(**values)
    if kind == Fault.__name__:
        items = values.get("items")
        return Fault(**{**values, "items": None if items is None else tuple(items)})
    raise ValueError(f"kind must be {Fault.__name__} or {StopAt.__name__}, got {kind!r}")


def _member(kind: type[StrEnum], name: str, value: object) -> StrEnum:
    if not isinstance(value, str) or value not in list(kind):
        raise ValueError(f"{name} must be one of {', '.join(kind)}, got {value!r}")
    return kind(value)


def _require_name(name: str, value: object, example: str) -> None:
    bare = value.removeprefix(STATES_PREFIX) if isinstance(value, str) else ""
    if not bare or bare != bare.strip():
        raise ValueError(f"{name} must name {example}, got {value!r}")


def _require_call(value: object) -> None:
    if not isinstance(value, str) or not _CALL.fullmatch(value):
        raise ValueError(
            f'call must be a service and an operation like "dynamodb:PutItem", got {value!r}; '
            'use "dynamodb:*" for every operation of a service and "*" for every call'
        )


def _require_state(value: object) -> None:
    if not isinstance(value, str) or not value.strip() or len(value) > 80:
        raise ValueError(f"state must be the name of a state, 1 to 80 characters, got {value!r}")


def contains(body: bytes, text: str | None) -> bool:
    """Test whether a call's body contains a text; every body does without one."""
    return text is None or text.encode() in body


def require_containing(value: object) -> None:
    """Refuse a value that is not a string, and the empty string."""
    if value is not None and (not isinstance(value, str) or not value):
        raise ValueError(f"containing must be some text, got {value!r}; leave it out to match every call")


def _require_seconds(value: object) -> None:
    if isinstance(value, bool) or not isinstance(value, int | float) or not math.isfinite(value) or value <= 0:
        raise ValueError(f"seconds must be above 0, got {value!r}; leave it out to wait for the invocation's end")
