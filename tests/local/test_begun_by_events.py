"""Events of a bus that begin sagas on local AWS: once by their business key, whatever is killed or published twice."""

from __future__ import annotations

import json
import uuid
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from itertools import product
from typing import Any

import pytest

from constructs_lib.testing import Fault, LocalAws
from constructs_lib.testing.fault_plan import Action, Moment
from saga_runtime import DirectCall, Outbox

from .begun.stack import NAME, SOURCE, synthesize
from .support import eventually

SPEED = 10.0


@dataclass(frozen=True)
class Market:
    """The deployed stack."""

    aws: LocalAws
    outputs: Mapping[str, str]

    def publish(self, *trades: str, kind: str = "trade") -> None:
        """Publish a signal for each trade."""
        entries = [
            {
                "Source": SOURCE,
                "DetailType": "signal",
                "EventBusName": self.outputs["BusName"],
                "Detail": json.dumps({"kind": kind, "trade": trade}),
            }
            for trade in trades
        ]
        answer = self.aws.client("events").put_events(Entries=entries)
        assert answer["FailedEntryCount"] == 0

    def send(self, trade: str, *, fifo: bool = False) -> None:
        """Send a signal to a queue."""
        body = json.dumps({"detail": {"kind": "trade", "trade": trade}})
        sqs = self.aws.client("sqs")
        if fifo:
            sqs.send_message(
                QueueUrl=self.outputs["FifoUrl"],
                MessageBody=body,
                MessageGroupId="g",
                MessageDeduplicationId=uuid.uuid4().hex,
            )
        else:
            sqs.send_message(QueueUrl=self.outputs["QueueUrl"], MessageBody=body)

    def put(self, trade: str) -> None:
        """Put a trade into the table."""
        item = {"id": {"S": trade}, "seen": {"S": uuid.uuid4().hex}}
        self.aws.client("dynamodb").put_item(TableName=self.outputs["TradeTableName"], Item=item)

    def commit(self, *trades: str) -> None:
        """Commit an event of each trade, as a step does."""
        for trade in trades:
            call = DirectCall(key=trade, idempotency_key=trade, request={}, now_ms=1_000)
            write = Outbox(table=self.outputs["OutboxTableName"]).event(
                call, "signal", {"kind": "trade", "trade": trade}
            )
            entries: Any = [write.action]
            self.aws.client("dynamodb").transact_write_items(TransactItems=entries)

    def unpublished(self) -> list[Any]:
        """Events that wait."""
        return list(self.aws.client("dynamodb").scan(TableName=self.outputs["OutboxTableName"])["Items"])

    def effects(self) -> dict[str, int]:
        """Count the effects of each trade."""
        items = self.aws.client("dynamodb").scan(TableName=self.outputs["CounterTableName"])["Items"]
        return {item["id"]["S"].removesuffix("/Pay"): int(item["n"]["N"]) for item in items}

    def executions(self) -> int:
        """Count the sagas that were started."""
        found = self.aws.client("stepfunctions").list_executions(stateMachineArn=self.outputs["MachineArn"])
        return len(found["executions"])

    def until(self, *trades: str) -> None:
        """Wait until each of these trades has an effect."""
        eventually(lambda: True if set(trades) <= self.effects().keys() else None)


@pytest.fixture(scope="module")
def running(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Market]:
    assembly = synthesize(tmp_path_factory.mktemp("begun") / "cdk.out")
    with LocalAws(speed=SPEED, sandboxes=3) as aws:
        outputs = aws.deploy(assembly)[NAME]
        for function in ("Reader", "Step", "Outbox/Publisher"):
            name = aws.resolve_function(f"{NAME}/{function}/Function")
            aws.client("lambda").update_function_configuration(FunctionName=name, Timeout=280)
        yield Market(aws, outputs)


@pytest.fixture
def market(running: Market) -> Market:
    """The same, emptied."""
    running.aws.faults.clear()
    running.aws.reset()
    return running


def test_signal_that_is_published_twice_begins_one_saga(market: Market) -> None:
    market.publish("t-1", "t-2", "t-1")
    market.until("t-1", "t-2")
    market.publish("t-2", "t-3")
    market.until("t-3")

    assert market.effects() == {"t-1": 1, "t-2": 1, "t-3": 1}
    assert market.executions() == 3


def each_fault_of(function: str, *calls: str) -> pytest.MarkDecorator:
    """Each death and each lost response of a function, before and after each of its calls."""
    faults = [
        Fault(function=f"{NAME}/{function}/Function", call=call, action=action, moment=moment)
        for call, action, moment in product(calls, (Action.KILL, Action.DROP), Moment)
    ]
    return pytest.mark.parametrize("fault", faults, ids=lambda fault: f"{fault.call}-{fault.action}-{fault.moment}")


def test_signal_by_bus_queues_and_table_begins_one_saga(market: Market) -> None:
    for trade in ("t-1", "t-2"):
        market.put(trade)
        market.send(trade)
        market.send(trade, fifo=True)
        market.publish(trade)
        market.put(trade)
    market.put("t-3")
    market.send("t-4")
    market.publish("t-5")
    market.send("t-6", fifo=True)
    market.until("t-1", "t-2", "t-3", "t-4", "t-5", "t-6")

    assert set(market.effects().values()) == {1}
    assert market.executions() == 6


@each_fault_of("Reader", "dynamodb:PutItem", "states:StartExecution")
def test_reader_that_dies_or_loses_a_response_begins_one_saga(market: Market, fault: Fault) -> None:
    market.aws.faults.plan(fault)

    market.publish("t")
    market.until("t")

    assert (market.effects(), market.executions()) == ({"t": 1}, 1)


def test_committed_events_are_published_and_their_rows_deleted(market: Market) -> None:
    market.commit("t-1", "t-2")
    market.until("t-1", "t-2")

    assert eventually(lambda: None if market.unpublished() else True)
    assert (market.effects(), market.executions()) == ({"t-1": 1, "t-2": 1}, 2)


@each_fault_of("Outbox/Publisher", "events:PutEvents", "dynamodb:DeleteItem")
def test_publisher_that_dies_or_loses_a_response_loses_no_event(market: Market, fault: Fault) -> None:
    market.aws.faults.plan(fault)

    market.commit("t")
    market.until("t")

    assert eventually(lambda: None if market.unpublished() else True)
    assert (market.effects(), market.executions()) == ({"t": 1}, 1)


def test_refused_signal_is_parked_and_noise_is_not(market: Market) -> None:
    market.publish("n", kind="noise")
    market.publish("u", kind="unknown")

    def parked() -> list[str] | None:
        found = market.aws.client("sqs").receive_message(
            QueueUrl=market.outputs["ParkedQueueUrl"], MaxNumberOfMessages=10
        )
        return [json.loads(m["Body"])["detail"]["trade"] for m in found.get("Messages", [])] or None

    assert eventually(parked) == ["u"]
    assert (market.effects(), market.executions()) == ({}, 0)
