"""Events of a bus that begin sagas on local AWS: once by their business key, whatever is killed or published twice."""

from __future__ import annotations

import json
from collections.abc import Iterator
from itertools import product

import pytest

from constructs_lib.testing import Fault
from constructs_lib.testing.fault_plan import Action, Moment

from .begun.stack import NAME
from .market import Market, deployed_market
from .support import eventually

SPEED = 10.0


@pytest.fixture(scope="module")
def running(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Market]:
    with deployed_market(tmp_path_factory.mktemp("begun"), speed=SPEED) as market:
        yield market


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
