"""Many sagas and many reconcilers: workers of one sweep, two sweeps, a sweep and status events, in any order.

Whatever the order of calls, and wherever workers are killed or calls refused, the end is that of a single undisturbed
worker. Orders are drawn from seeds, one call after the other (``TurnTakers``).
"""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from dataclasses import asdict, dataclass, field, replace
from importlib import import_module
from typing import Any

import boto3
import pytest

from saga_runtime.idempotency.identity import due_shard_of
from saga_runtime.idempotency.record import Reservation, reserve_put
from saga_runtime.protocol import (
    LogAttribute,
    Metric,
    RecordAttribute,
    RecordStatus,
    Side,
    StepStatus,
    TokenAttribute,
)
from saga_runtime.recovery.decisions import ParkedFor, parked_reason_of
from saga_runtime.recovery.late_effects import late_name
from saga_runtime.recovery.reconciler import Reconciler
from saga_runtime.recovery.saga_reconciler import Caretaker, Served
from saga_runtime.recovery.sweep import ATTEMPTS, Threads
from saga_runtime.recovery.takeover import recovery_name
from saga_runtime.saga_log.rows import log_key
from saga_runtime.shared import aws
from tests.unit.support.crews import Gone, TurnTakers
from tests.unit.support.enumerated import selected
from tests.unit.support.executions import ExecutionStatus
from tests.unit.support.operated_saga import OperatedSaga, operated_saga_in
from tests.unit.support.samples import DAY_MS, DUE_AFTER_MS, REQUEST_ID, reservation_of
from tests.unit.support.sleeps import replace_sleep
from tests.unit.support.wire import SDK_ATTEMPTS, Action, Fault, Killed, Moment
from tests.unit.support.world import World

pytestmark = pytest.mark.proof

RECONCILER = import_module("saga_runtime.recovery.reconciler")
A = RecordAttribute
LIMIT = 3
SHARDS = 3
WORKERS = 4
SEEDS = range(6)
PLENTY_MS = 3_600_000
OLD_MS = 89 * DAY_MS
TIMES = frozenset({A.DUE_AT, A.UPDATED_AT, A.PARKED_AT, A.LOG_EXPIRES_AT})


def set_attributes(request_id: str, **values: dict[str, str]) -> None:
    aws.dynamodb().update_item(
        TableName="requests",
        Key={A.ID: {"S": request_id}},
        UpdateExpression="SET " + ", ".join(f"#{name} = :{name}" for name in values),
        ExpressionAttributeNames={f"#{name}": name for name in values},
        ExpressionAttributeValues={f":{name}": value for name, value in values.items()},
    )


@dataclass
class Fleet:
    """Sagas in every condition, all of them due, and reconcilers."""

    operated: OperatedSaga
    queue: str
    sagas: dict[str, Reservation] = field(default_factory=dict)

    @property
    def world(self) -> World:
        """The runtime's surroundings."""
        return self.operated.world

    def reserve(self, key: str, *, age_ms: int = DUE_AFTER_MS, start: bool = True) -> Reservation:
        """A saga that is due now, and whose execution runs."""
        reservation = replace(reservation_of(key=key, now_ms=self.world.clock.ms - age_ms), due_shards=SHARDS)
        put: Any = reserve_put(replace(reservation, due_after_ms=age_ms))
        aws.dynamodb().put_item(TableName="requests", **put)
        if start:
            self.world.executions.start(reservation.saga_id, reservation.start_input)
        self.sagas[key] = reservation
        return reservation

    def fail(self, reservation: Reservation) -> None:
        """Let its first execution fail."""
        self.world.executions.end(reservation.saga_id, ExecutionStatus.FAILED)

    def make(self, each: int) -> None:
        """So many of each kind."""
        for n in range(1, each + 1):
            self.reserve(f"running-{n}")
            self.reserve(f"never-started-{n}", start=False)
            self.fail(self.reserve(f"dead-{n}"))
            exhausted = self.reserve(f"exhausted-{n}")
            self.fail(exhausted)
            set_attributes(exhausted.request_id, recoveries={"N": str(LIMIT)})
            parked = self.reserve(f"parked-{n}")
            self.fail(parked)
            set_attributes(parked.request_id, parked_by={"S": parked.saga_id}, parked_at={"N": "1"})
            settled = self.reserve(f"settled-{n}")
            set_attributes(settled.request_id, status={"S": RecordStatus.COMPLETED})
            self.reserve(f"gone-{n}", age_ms=OLD_MS, start=False)
            self.late(settled)
            self.reserve(f"broken-{n}")
            set_attributes(self.sagas[f"broken-{n}"].request_id, status={"S": "LOST"})
            stranger = self.reserve(f"foreign-{n}")
            others = stranger.execution_arn.replace("Transfers", "Others")
            set_attributes(stranger.request_id, execution_arn={"S": others})
        self.world.wire.forget()

    def late(self, reservation: Reservation) -> None:
        """Record two late effects of the saga."""
        t, a, now = TokenAttribute, LogAttribute, str(self.world.clock.ms)
        end = str(self.world.clock.ms // 1_000 + 400 * 86_400)
        for item_key in ("a", "b"):
            row_name = f"Pick[{item_key}]"
            shard = due_shard_of(reservation.request_id, SHARDS)
            token: dict[str, Any] = {
                t.ID: {"S": f"{reservation.saga_id}#{row_name}"},
                t.LOG_TABLE: {"S": "log"},
                t.APPLIED_LATE_AT: {"N": now},
                t.DUE_AT: {"N": now},
                t.DUE_SHARD: {"S": shard},
            }
            aws.dynamodb().put_item(TableName="tokens", Item=token)
            row: Any = {
                **log_key(reservation.saga_id, row_name),
                a.STATUS: {"S": StepStatus.APPLIED_LATE},
                a.SIDE: {"S": Side.BEFORE},
                a.EXPIRATION: {"N": end},
            }
            aws.dynamodb().put_item(TableName="log", Item=row)

    def reconciler(self, crew: TurnTakers | Threads | None = None, workers: int = 1) -> Reconciler:
        """A reconciler of all sagas."""
        served = Served(
            machine="Transfers",
            requests="requests",
            shards=SHARDS,
            log="log",
            days=400,
            operators=self.queue,
            tokens={"tokens": ("Pick",)},
        )
        return Reconciler(
            caretaker=Caretaker(served=[served], limit=LIMIT),
            remaining_ms=lambda: PLENTY_MS,
            workers=workers,
            crew=crew or Threads(),
        )

    def notified(self) -> list[str]:
        """Distinct messages of the operator queue since the last read."""
        found: set[str] = set()
        while messages := aws.sqs().receive_message(QueueUrl=self.queue, MaxNumberOfMessages=10).get("Messages", []):
            for message in messages:
                found.add(json.loads(message["Body"])["saga_id"])
                aws.sqs().delete_message(QueueUrl=self.queue, ReceiptHandle=message["ReceiptHandle"])
        return sorted(found)

    def end(self) -> dict[str, Any]:
        """Final state without times."""
        return {
            "records": {
                item[A.ID]["S"]: {name: next(iter(value.values())) for name, value in item.items() if name not in TIMES}
                for item in self.world.items("requests")
            },
            "executions": {name: found.input for name, found in self.world.executions.by_name.items()},
            "notified": self.notified(),
        }


@pytest.fixture
def each() -> int:
    """Sagas in each condition."""
    return 2


@pytest.fixture
def fleet(world: World, monkeypatch: pytest.MonkeyPatch, boto3_session: boto3.Session, each: int) -> Iterator[Fleet]:
    """Sagas in every condition."""
    queue = str(aws.sqs().create_queue(QueueName="operators")["QueueUrl"])
    monkeypatch.setattr(RECONCILER, "TOKEN_DUE_SHARDS", SHARDS)
    monkeypatch.setattr(RECONCILER, "PAGE", 2)
    with operated_saga_in(world, monkeypatch, boto3_session, window=86_400) as operated:
        aws.dynamodb().delete_item(TableName="requests", Key={A.ID: {"S": REQUEST_ID}})
        world.executions.by_name.clear()
        world.clock.ms += OLD_MS + DAY_MS
        fleet = Fleet(operated, queue)
        fleet.make(each)
        yield fleet


def taking_turns(fleet: Fleet, monkeypatch: pytest.MonkeyPatch, seed: int) -> TurnTakers:
    """Workers that give their turn away before each call."""
    crew, send = TurnTakers(seed), fleet.world.wire.send

    def in_turn(event_name: str, request: Any, deliver: Any) -> Any:
        crew.pass_by()
        return send(event_name, request, deliver)

    monkeypatch.setattr(fleet.world.wire, "send", in_turn)
    replace_sleep(monkeypatch, lambda seconds: crew.sleep(seconds * 1_000))
    return crew


NUMBERS = {
    "looked_at": 14,
    "started": 2,
    "taken_over": 2,
    "parked": 4,
    "waiting": 2,
    "late": 2,
    "foreign": 2,
    "failed": 2,
    "broken": 2,
    "slowed": 0,
    "complete": True,
}
"""Findings of an undisturbed sweep."""


def kind(fleet: Fleet, name: str) -> list[Reservation]:
    """Sagas in one condition."""
    return [saga for key, saga in fleet.sagas.items() if key.startswith(name)]


def expected(fleet: Fleet) -> dict[str, Any]:
    """Expected end, derived without a reconciler."""
    end = fleet.end()
    records, executions = end["records"], end["executions"]
    for dead, never, settled in zip(*(kind(fleet, name) for name in ("dead", "never-started", "settled")), strict=True):
        owner = recovery_name(dead.saga_id, 1)
        records[dead.request_id] |= {A.OWNER: owner, A.RECOVERIES: "1"}
        executions[owner] = dead.start_input
        executions[never.saga_id] = never.start_input
        del records[settled.request_id][A.DUE_SHARD]
        late = json.loads(settled.start_input) | {"late": True}
        executions[late_name(settled.saga_id, 1)] = json.dumps(late, separators=(",", ":"))
    for name, reason in (("exhausted", ParkedFor.RECOVERIES_EXHAUSTED), ("gone", ParkedFor.NAME_EXPIRED)):
        for parked in kind(fleet, name):
            stuck = json.dumps(parked_reason_of(reason))
            records[parked.request_id] |= {A.PARKED_BY: parked.saga_id, A.PARKED_REASON: stuck}
            end["notified"].append(parked.saga_id)
    return end | {"notified": sorted(end["notified"])}


def numbers(fleet: Fleet) -> dict[str, int]:
    told = fleet.world.telemetry.counts
    return {
        metric.name: told[metric]
        for metric in (Metric.ORPHANS, Metric.RECOVERIES, Metric.UNSETTLED, Metric.LATE_STANDS)
    }


COUNTED = {"ORPHANS": 4, "RECOVERIES": 2, "UNSETTLED": 0, "LATE_STANDS": 0}


def test_one_worker_reaches_the_expected_end(fleet: Fleet) -> None:
    end = expected(fleet)

    done = asdict(fleet.reconciler().sweep())

    assert (fleet.end(), {name: done[name] for name in NUMBERS}, numbers(fleet)) == (end, NUMBERS, COUNTED)
    assert fleet.world.telemetry.measured[Metric.RECONCILE_FAILED] == 2


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize("workers", [2, 9])
def test_many_workers_reach_the_same_end(
    fleet: Fleet, monkeypatch: pytest.MonkeyPatch, workers: int, seed: int
) -> None:
    end, crew = expected(fleet), taking_turns(fleet, monkeypatch, seed)

    done = asdict(fleet.reconciler(crew, workers).sweep())

    assert (fleet.end(), {name: done[name] for name in NUMBERS}, numbers(fleet)) == (end, NUMBERS, COUNTED)


def test_threads_reach_the_same_end_and_none_is_left(fleet: Fleet) -> None:
    end, before = expected(fleet), set(threading.enumerate())

    done = asdict(fleet.reconciler(Threads(), 8).sweep())

    assert set(threading.enumerate()) == before
    assert (fleet.end(), {name: done[name] for name in NUMBERS}, numbers(fleet)) == (end, NUMBERS, COUNTED)


@pytest.mark.parametrize("seed", SEEDS)
def test_two_concurrent_sweeps_reach_the_same_end(fleet: Fleet, monkeypatch: pytest.MonkeyPatch, seed: int) -> None:
    end, crew = expected(fleet), taking_turns(fleet, monkeypatch, seed)

    def sweep() -> None:
        fleet.reconciler().sweep()

    crew.run_all([sweep, sweep, sweep])

    assert fleet.end() == end
    assert numbers(fleet)["RECOVERIES"] == COUNTED["RECOVERIES"]


@pytest.mark.parametrize("seed", SEEDS)
def test_a_sweep_with_concurrent_status_events_reaches_the_same_end(
    fleet: Fleet, monkeypatch: pytest.MonkeyPatch, seed: int
) -> None:
    end, crew = expected(fleet), taking_turns(fleet, monkeypatch, seed)

    def sweep() -> None:
        fleet.reconciler().sweep()

    def events() -> None:
        reconciler = fleet.reconciler()
        for key, saga in fleet.sagas.items():
            if not key.startswith("broken"):
                reconciler.execution_ended(saga.saga_id)
                reconciler.execution_ended(recovery_name(saga.saga_id, 1))

    crew.run_all([sweep, events, events])

    assert fleet.end() == end
    assert numbers(fleet)["RECOVERIES"] == COUNTED["RECOVERIES"]
    assert fleet.world.telemetry.counts[Metric.RECORD_MISSING] == 0


# Crashes and refusals.


CALLS = {"Query": 12, "GetItem": 15, "DescribeExecution": 7, "UpdateItem": 6, "SendMessage": 2, "StartExecution": 3}
"""About as many of each as there are; a fault behind the last one strikes nothing, and the end must be right, too."""
STRUCK: set[str] = set()


STRIKES = [
    (operation, on, action)
    for operation, most in CALLS.items()
    for on in range(1, most + 1)
    for action in (Action.KILL, Action.THROTTLE, Action.DROP)
    if action is not Action.DROP or operation in ("UpdateItem", "SendMessage", "StartExecution")
]
"""An answer to a question that is lost is like one that was refused."""


@pytest.mark.parametrize("each", [1])
@pytest.mark.parametrize(("operation", "on", "action"), STRIKES)
def test_any_fault_at_any_call_of_many_workers_leads_to_the_same_end(
    fleet: Fleet, monkeypatch: pytest.MonkeyPatch, operation: str, on: int, action: Action
) -> None:
    end, wire, crew = expected(fleet), fleet.world.wire, taking_turns(fleet, monkeypatch, on)
    moment = Moment.BEFORE if on % 2 else Moment.AFTER
    times = 1 if action is Action.KILL else SDK_ATTEMPTS * (ATTEMPTS if on % 3 else 1)
    wire.plan(Fault(operation=operation, action=action, moment=moment, on=on, times=times))
    try:
        fleet.reconciler(crew, WORKERS).sweep()
    except (Killed, Gone):
        assert action is Action.KILL
    if wire.fired:
        STRUCK.add(f"{operation} {on} {action}")
    wire.forget()
    fleet.world.clock.ms += DUE_AFTER_MS
    fleet.reconciler().sweep()

    assert fleet.end() == end


def test_every_call_was_struck(request: pytest.FixtureRequest) -> None:
    """All of them, unless the command names some."""
    test = test_any_fault_at_any_call_of_many_workers_leads_to_the_same_end
    killed = [item.callspec.params for item in selected(request, test) if item.callspec.params["action"] is Action.KILL]
    for operation in CALLS:
        asked = [case["on"] for case in killed if case["operation"] == operation]
        struck = [on for on in asked if f"{operation} {on} {Action.KILL}" in STRUCK]
        assert struck == asked[: len(struck)], "every call up to the last one"
        assert len(struck) >= len(asked) * 2 // 3, f"{operation}: fewer than are asked for; lower the number"


def test_a_throttled_start_is_retried_in_the_same_sweep(fleet: Fleet) -> None:
    end = expected(fleet)
    fleet.world.wire.plan(Fault(operation="StartExecution", action=Action.THROTTLE, times=2))

    done = fleet.reconciler().sweep()

    assert (fleet.end(), done.failed, done.slowed) == (end, 2, 2)
