"""Faults in the middle of a transfer: at which call of which function, or at which state."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import TYPE_CHECKING, Final

from constructs_lib.testing.fault_plan import Action, Attempts, Fault, Moment, Planned, StopAt
from constructs_lib.testing.fault_schedules import First, Nth, Schedule

if TYPE_CHECKING:
    from .plan import Transfer

_GATEKEEPER: Final = "FundsTransfer/Api/Gatekeeper/transfers/Function"
_STEPS: Final = "FundsTransfer/{}Function/Function"
_NOTIFIER: Final = "FundsTransfer/Transfer/Notifier/Function"
_RECONCILER: Final = "FundsTransfer/Reconciler/Function/Function"
FUNCTIONS: Final = (
    *(_STEPS.format(name) for name in ("Transfer", "Debit", "Refund", "Credit")),
    _NOTIFIER,
    _RECONCILER,
)
"""Functions that work behind the door."""
_FORWARD: Final = "FundsTransfer/Transfer/StateMachine"
_RECOVERY: Final = "FundsTransfer/Transfer/Recovery"
_READ: Final = "dynamodb:BatchGetItem"
_LOOK: Final = "dynamodb:GetItem"
_WRITE: Final = "dynamodb:TransactWriteItems"
_SEND: Final = "sqs:SendMessage"
_RECORD: Final = "dynamodb:PutItem"


class Kind(StrEnum):
    """Kinds of trouble, as in the table."""

    WORKER = "transfer: killed, its answer lost, in conflict"
    DEBIT = "debit: killed before and after each of its calls"
    CREDIT = "credit: killed before and after each of its calls"
    REFUND = "refund: killed before and after each of its calls"
    HELD = "refund: held back while an account is closed"
    NOTIFIER = "notifier: killed before and after each of its calls"
    DOOR = "gatekeeper: killed, its answer lost, throttled"
    STOP = "execution stopped at a state"
    STOP_AGAIN = "recovery stopped at a state"


class Trouble(StrEnum):
    """Faults in the middle of a transfer."""

    WORKER_KILLED_BEFORE = "worker killed right before its write"
    WORKER_KILLED_AFTER = "worker killed right after its write"
    WRITE_ANSWER_LOST = "answer to the worker's write lost"
    WRITE_CONFLICT = "conflict at the worker's write"
    DOOR_KILLED_AFTER_RESERVE = "gatekeeper killed before its start"
    DOOR_KILLED_AFTER_START = "gatekeeper killed after its start"
    RESERVE_ANSWER_LOST = "answer to the reservation lost"
    RESERVE_UNREACHABLE = "no way to reserve for a while"
    DEBIT_KILLED_AT_READ = "debit killed at its read of the account"
    DEBIT_KILLED_AT_WRITE = "debit killed at its write"
    DEBIT_KILLED_AT_LOOK = "debit killed as it looks whether it took effect before it refuses"
    CREDIT_KILLED_AT_READ = "credit killed at its read of the account"
    CREDIT_KILLED_AT_WRITE = "credit killed at its write"
    CREDIT_KILLED_AT_LOOK = "credit killed as it looks whether it took effect before it refuses"
    REFUND_KILLED_AT_LOOK = "refund killed while it reads what to compensate"
    REFUND_KILLED_AT_READ = "refund killed at its read of the account"
    REFUND_KILLED_AT_WRITE = "refund killed at its write"
    REFUND_HELD_BACK = "refund held back at its read of the account until its time is over"
    NOTIFIER_KILLED_AT_LOOK = "notifier killed as it looks whether it sent"
    NOTIFIER_KILLED_AT_SEND = "notifier killed at its send"
    NOTIFIER_KILLED_AT_WRITE = "notifier killed at its write"
    STOPPED_AFTER_TRANSFER = "stopped after Transfer"
    STOPPED_BEFORE_DEBIT = "stopped before Debit"
    STOPPED_AFTER_DEBIT = "stopped after Debit"
    STOPPED_AFTER_CREDIT = "stopped after Credit"
    STOPPED_BEFORE_RECEIPT = "stopped before Receipt"
    STOPPED_BEFORE_SETTLING = "stopped before Settle completed"
    STOPPED_BEFORE_UNDO = "stopped before Compensate Debit"
    STOPPED_BEFORE_SETTLING_A_FAILURE = "stopped before Settle failed"
    RECOVERY_STOPPED_AFTER_UNDO = "recovery stopped after Compensate Debit"

    @property
    def kind(self) -> Kind:
        """Its kind in the table."""
        return _AIMS[self][0].kind

    @property
    def takes_long(self) -> bool:
        """True if it continues only when its record is due."""
        return self is Trouble.DOOR_KILLED_AFTER_RESERVE or self.kind in {Kind.STOP, Kind.STOP_AGAIN}


@dataclass(frozen=True, slots=True, kw_only=True)
class _Aim:
    """One fault, without the transfer that it hits. Every call of a transfer names its request.

    The read of an account is the one that does not: there it is aimed by the account, which only this transfer uses.
    """

    kind: Kind
    function: str
    call: str
    moment: Moment
    action: Action = Action.KILL
    attempts: Attempts = Attempts.FIRST
    on: Schedule = field(default_factory=First)

    def at(self, transfer: Transfer, request_id: str) -> Fault:
        """The fault, aimed at a transfer."""
        account = transfer.target if self.kind is Kind.CREDIT else transfer.source
        return Fault(
            function=self.function,
            call=self.call,
            moment=self.moment,
            action=self.action,
            attempts=self.attempts,
            on=self.on,
            containing=account if self.call == _READ else request_id,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class _Stop:
    """One stop of an execution, without the transfer that it hits."""

    kind: Kind
    state: str
    moment: Moment

    def at(self, _transfer: Transfer, request_id: str) -> StopAt:
        """The stop, aimed at a transfer."""
        machine = _FORWARD if self.kind is Kind.STOP else _RECOVERY
        return StopAt(machine=machine, state=self.state, moment=self.moment, containing=request_id)


def faults_of(transfer: Transfer, request_id: str) -> Iterator[tuple[Trouble, Planned]]:
    """A transfer's troubles as faults, aimed at it and no other."""
    for trouble in transfer.troubles:
        for aim in _AIMS[trouble]:
            yield trouble, aim.at(transfer, request_id)


def _killed(kind: Kind, function: str, call: str) -> tuple[_Aim, ...]:
    """Killed before the call, and the next attempt after it."""
    return (
        _Aim(kind=kind, function=function, call=call, moment=Moment.BEFORE),
        _Aim(kind=kind, function=function, call=call, moment=Moment.AFTER, on=Nth(2)),
    )


def _step(kind: Kind, call: str) -> tuple[_Aim, ...]:
    return _killed(kind, _STEPS.format(kind.name.capitalize()), call)


def _worker(action: Action, moment: Moment) -> tuple[_Aim, ...]:
    function = _STEPS.format("Transfer")
    return (_Aim(kind=Kind.WORKER, function=function, call=_WRITE, moment=moment, action=action),)


def _door(call: str, action: Action, moment: Moment, attempts: Attempts = Attempts.FIRST) -> tuple[_Aim, ...]:
    aim = _Aim(
        kind=Kind.DOOR, function=_GATEKEEPER, call=call, moment=moment, action=action, attempts=attempts
    )  # fmt: skip
    return (aim,)


def _stop(state: str, moment: Moment) -> tuple[_Aim | _Stop, ...]:
    """A stop of Standard, which runs the transfer because the start of Express is refused."""
    refused = _door(_START, Action.THROTTLE, Moment.BEFORE, Attempts.ALL)
    return (_Stop(kind=Kind.STOP, state=state, moment=moment), *refused)


_RESERVE, _START = "dynamodb:PutItem", "states:StartExecution"
_AIMS: Final[Mapping[Trouble, tuple[_Aim | _Stop, ...]]] = {
    Trouble.WORKER_KILLED_BEFORE: _worker(Action.KILL, Moment.BEFORE),
    Trouble.WORKER_KILLED_AFTER: _worker(Action.KILL, Moment.AFTER),
    Trouble.WRITE_ANSWER_LOST: _worker(Action.DROP, Moment.AFTER),
    Trouble.WRITE_CONFLICT: _worker(Action.CONFLICT, Moment.BEFORE),
    Trouble.DOOR_KILLED_AFTER_RESERVE: _door(_START, Action.KILL, Moment.BEFORE),
    Trouble.DOOR_KILLED_AFTER_START: _door(_START, Action.KILL, Moment.AFTER),
    Trouble.RESERVE_ANSWER_LOST: _door(_RESERVE, Action.DROP, Moment.AFTER),
    Trouble.RESERVE_UNREACHABLE: _door(_RESERVE, Action.THROTTLE, Moment.BEFORE, Attempts.ALL),
    Trouble.DEBIT_KILLED_AT_READ: _step(Kind.DEBIT, _READ),
    Trouble.DEBIT_KILLED_AT_WRITE: _step(Kind.DEBIT, _WRITE),
    Trouble.DEBIT_KILLED_AT_LOOK: _step(Kind.DEBIT, _LOOK),
    Trouble.CREDIT_KILLED_AT_READ: _step(Kind.CREDIT, _READ),
    Trouble.CREDIT_KILLED_AT_WRITE: _step(Kind.CREDIT, _WRITE),
    Trouble.CREDIT_KILLED_AT_LOOK: _step(Kind.CREDIT, _LOOK),
    Trouble.REFUND_KILLED_AT_LOOK: _step(Kind.REFUND, _LOOK),
    Trouble.REFUND_KILLED_AT_READ: _step(Kind.REFUND, _READ),
    Trouble.REFUND_KILLED_AT_WRITE: _step(Kind.REFUND, _WRITE),
    Trouble.REFUND_HELD_BACK: (
        _Aim(kind=Kind.HELD, function=_STEPS.format("Refund"), call=_READ, moment=Moment.BEFORE, action=Action.DELAY),
    ),
    Trouble.NOTIFIER_KILLED_AT_LOOK: _killed(Kind.NOTIFIER, _NOTIFIER, _LOOK),
    Trouble.NOTIFIER_KILLED_AT_SEND: _killed(Kind.NOTIFIER, _NOTIFIER, _SEND),
    Trouble.NOTIFIER_KILLED_AT_WRITE: _killed(Kind.NOTIFIER, _NOTIFIER, _RECORD),
    Trouble.STOPPED_AFTER_TRANSFER: _stop("Transfer", Moment.AFTER),
    Trouble.STOPPED_BEFORE_DEBIT: _stop("Debit", Moment.BEFORE),
    Trouble.STOPPED_AFTER_DEBIT: _stop("Debit", Moment.AFTER),
    Trouble.STOPPED_AFTER_CREDIT: _stop("Credit", Moment.AFTER),
    Trouble.STOPPED_BEFORE_RECEIPT: _stop("Receipt", Moment.BEFORE),
    Trouble.STOPPED_BEFORE_SETTLING: _stop("Settle completed", Moment.BEFORE),
    Trouble.STOPPED_BEFORE_UNDO: _stop("Compensate Debit", Moment.BEFORE),
    Trouble.STOPPED_BEFORE_SETTLING_A_FAILURE: _stop("Settle failed", Moment.BEFORE),
    Trouble.RECOVERY_STOPPED_AFTER_UNDO: (_Stop(kind=Kind.STOP_AGAIN, state="Compensate Debit", moment=Moment.AFTER),),
}
