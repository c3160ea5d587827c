"""Outcome of every saga: read from the tables, the executions, the reconcilers' logs and the books."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum
from typing import Any, Final

from constructs_lib.testing.invariants import Invariant, Item
from saga_runtime.idempotency.record import RequestRecord
from saga_runtime.protocol import Metric, RecordAttribute, RecordStatus
from saga_runtime.shared.arns import execution_of, machine_of
from tests.local.two_ledgers import TwoLedgers, drain

from .judge import why_decidable
from .load import Told
from .promised import promised
from .quiet import is_for_dead_letters
from .wishes import Example, Manner
from .world import Machine, World


class End(StrEnum):
    """Outcomes of a saga."""

    COMPLETED = "completed"
    REFUSED = "compensated: refused"
    """Refused: by a card, a shelf, a reviewer or a rule."""
    TROUBLED = "compensated: trouble"
    """Failed without a refusal: a fault lasted for too long."""
    PARKED = "parked"
    IN_FLIGHT = "in flight"


@dataclass(frozen=True, slots=True, kw_only=True)
class Saga:
    """One saga.

    Attributes:
        example: its example.
        saga_id: its id.
        end: its outcome.
        error: reason of one that was compensated or parked.
        stuck: of one that is parked: step, error and detail.
        decidable: of one that is parked: why it could have been decided automatically; None: it needs an operator.
        began, ended: epoch seconds, in the emulator's time; None: it has not ended.
        recoveries: number of recoveries that it needed.
        causes: how the execution ended before each of them.
        late: executions that compensated late effects.
    """

    example: Example
    saga_id: str
    end: End
    error: str | None
    stuck: Mapping[str, str] | None
    decidable: str | None
    began: float
    ended: float | None
    recoveries: int
    causes: Sequence[str]
    late: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Reconciled:
    """Log of a reconciler, summed.

    Attributes:
        by_event: recoveries started because of a status event.
        by_schedule: recoveries started by a sweep.
        started: executions that were missing, and were started.
        looks: sweeps.
        events: invocations for status events.
        killed: invocations without a result: they were killed, or timed out.
    """

    by_event: int = 0
    by_schedule: int = 0
    started: int = 0
    looks: int = 0
    events: int = 0
    killed: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Books:
    """Audit of one example.

    Attributes:
        invariants: all invariants.
        operators: entries for the operators, by error.
        dead_letters: messages that could not be delivered, by queue.
        contradictions: impossible responses to clients.
        answered: clients that requested a response and received it.
        unanswered: clients that requested a response and did not receive it.
    """

    invariants: Sequence[Invariant]
    operators: Mapping[str, int]
    dead_letters: Mapping[str, int]
    contradictions: Sequence[str]
    answered: int
    unanswered: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Account:
    """Outcomes of one example's sagas."""

    example: Example
    sagas: Sequence[Saga]
    reconciled: Reconciled
    recoveries_at: Sequence[datetime]
    books: Books
    asked: int

    def ends(self) -> Counter[End]:
        """Number of sagas by outcome."""
        return Counter(saga.end for saga in self.sagas)

    def causes(self) -> Counter[str]:
        """Ends of the executions that were followed by a recovery."""
        return Counter(cause for saga in self.sagas for cause in saga.causes)

    def recovered(self) -> int:
        """Sagas that were recovered at least once."""
        return sum(saga.recoveries > 0 for saga in self.sagas)


def account(world: World, example: Example, told: Sequence[Told]) -> Account:
    """Read everything about one example."""
    system = world.systems[example]
    recoveries = _recoveries(world, example)
    late = Counter(name.rpartition("-")[0] for name in recoveries if name.rpartition("-")[2].startswith("l"))
    records = system.records()
    sagas = [_saga(world, example, record, late) for record in records]
    return Account(
        example=example,
        sagas=sagas,
        reconciled=_reconciled(world, system),
        recoveries_at=sorted(at for name, at in recoveries.items() if name.rpartition("-")[2].startswith("r")),
        books=_books(world, example, told, refused={saga.saga_id for saga in sagas if saga.end is End.REFUSED}),
        asked=len(told),
    )


def _saga(world: World, example: Example, item: Item, late: Mapping[str, int]) -> Saga:
    a = RecordAttribute
    record = RequestRecord.from_item(item)
    stuck = json.loads(item[a.PARKED_REASON]["S"]) if record.parked_by is not None and a.PARKED_REASON in item else None
    end, error = _end(record, item)
    return Saga(
        example=example,
        saga_id=record.saga_id,
        end=end,
        error=stuck["error"] if stuck else error,
        stuck=stuck,
        decidable=why_decidable(world, example, record.saga_id) if end is End.PARKED else None,
        began=record.created_at / 1_000,
        ended=int(item[a.UPDATED_AT]["N"]) / 1_000 if record.settled else None,
        recoveries=record.recoveries,
        causes=tuple(_causes(world, record)),
        late=late[record.saga_id],
    )


def _end(record: RequestRecord, item: Item) -> tuple[End, str | None]:
    a = RecordAttribute
    if record.parked_by is not None:
        return End.PARKED, None
    if record.status is RecordStatus.COMPLETED:
        return End.COMPLETED, None
    if record.status is not RecordStatus.FAILED:
        return End.IN_FLIGHT, None
    failure = json.loads(item[a.FAILURE]["S"]) if a.FAILURE in item else {}
    error = str(failure.get("error", "unknown"))
    if is_refusal(error):
        return End.REFUSED, error
    step = failure.get("step")
    return End.TROUBLED, f"{error}: {step}" if step else error


REFUSALS: Final = frozenset(
    {
        *("AccountClosed", "AccountNotFound", "AddressUnknown", "AgentUnknown", "CapExceeded", "Declined"),
        *(
            "InsufficientFunds",
            "IntentTaken",
            "Invalid",
            "ModelAnswerRefused",
            "NotOnShelf",
            "OutOfStock",
            "ParcelLost",
        ),
        *("PickRefused", "Rejected", "ReservationLost", "SpendingCapExceeded", "UnknownItem"),
    }
)
"""Errors of refusals."""


def is_refusal(error: str) -> bool:
    """True if an error is a refusal."""
    return error in REFUSALS


def _causes(world: World, record: RequestRecord) -> Iterator[str]:
    """End of each execution that was followed by a recovery."""
    states = world.aws.client("stepfunctions")
    forward, recovery = machine_of(record.execution_arn), record.recovery_machine_arn
    for number in range(record.recoveries):
        name = record.saga_id if number == 0 else f"{record.saga_id}-r{number}"
        # A recovery that goes forward runs on in the forward machine under its own name.
        for machine in (forward, recovery):
            try:
                found = states.describe_execution(executionArn=execution_of(machine, name))
            except states.exceptions.ExecutionDoesNotExist:
                continue
            yield str(found["status"])
            break
        else:
            yield "NOT_STARTED"


def _recoveries(world: World, example: Example) -> dict[str, datetime]:
    """Executions of the recovery machines, and when each began."""
    found: dict[str, datetime] = {}
    states = world.aws.client("stepfunctions")
    for machine in (one for one in world.machines if one.example is example and is_recovery(one)):
        for page in states.get_paginator("list_executions").paginate(stateMachineArn=machine.arn):
            found |= {one["name"]: one["startDate"] for one in page["executions"]}
    return found


def is_recovery(machine: Machine) -> bool:
    """True if recoveries run in it."""
    return machine.name.removesuffix("/Resource").endswith("/Recovery")


def _reconciled(world: World, system: TwoLedgers) -> Reconciled:
    by_event = by_schedule = started = looks = events = killed = 0
    for log in world.aws.function_logs(system.outputs["ReconcilerName"]):
        told = [line for line in map(_json, log.lines) if line is not None]
        look = next((line for line in told if line.get("message") == "reconciled"), None)
        recoveries = sum(len(_values(line, Metric.RECOVERIES)) for line in told)
        if look is not None:
            looks, by_schedule, started = looks + 1, by_schedule + recoveries, started + int(look["started"])
        elif any("Error" in line or "Task timed out" in line for line in log.lines) or not told:
            killed += not recoveries
            by_event += recoveries
        else:
            events, by_event = events + 1, by_event + recoveries
    return Reconciled(
        by_event=by_event, by_schedule=by_schedule, started=started, looks=looks, events=events, killed=killed
    )


def _json(line: str) -> dict[str, Any] | None:
    try:
        found = json.loads(line)
    except ValueError:
        return None
    return found if isinstance(found, dict) else None


def _values(line: Mapping[str, Any], metric: Metric) -> list[float]:
    """Values of one metric in a line."""
    found = line.get(metric, []) if "_aws" in line else []
    return found if isinstance(found, list) else [found]


def _books(world: World, example: Example, told: Sequence[Told], *, refused: set[str]) -> Books:
    system = world.systems[example]
    operators = Counter(_entry(body) for body in _messages(world, example, "OperatorsQueue"))
    waited = [one for one in told if one.wish.manner is not Manner.GONE and one.refused is None]
    return Books(
        invariants=[*system.audit(), *promised(world, example, told, refused)],
        operators=dict(operators),
        dead_letters=_dead_letters(world, system),
        contradictions=[f"{one.wish.name}: {what}" for one in told for what in one.contradictions],
        answered=sum(one.answer is not None for one in waited),
        unanswered=sum(one.answer is None for one in waited),
    )


def _messages(world: World, example: Example, name: str) -> list[dict[str, Any]]:
    url = world.systems[example].outputs.get(f"{name}Url")
    return drain(world.aws, url) if url else []


def _entry(body: Mapping[str, Any]) -> str:
    stuck = body.get("parked_reason") or {}
    return str(stuck.get("error") or body.get("kind") or body.get("what") or "told")


def _dead_letters(world: World, system: TwoLedgers) -> dict[str, int]:
    sqs = world.aws.client("sqs")
    found = {}
    for queue in world.resources("AWS::SQS::Queue"):
        if queue.stack == system.stack and is_for_dead_letters(queue.path):
            told = sqs.get_queue_attributes(QueueUrl=queue.physical_id, AttributeNames=["ApproximateNumberOfMessages"])
            found[queue.path] = int(told["Attributes"]["ApproximateNumberOfMessages"])
    return {path: count for path, count in found.items() if count}
