"""Events of a bus that begin sagas on local AWS: once by their business key, though processes die.

Each call of the reader and of the publisher is broken in each way in ``tests/unit/webhooks/test_event_saga.py``,
``tests/unit/outbox/test_outbox.py`` and ``tests/simulator/test_begun_inline.py``.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Final

import pytest

from constructs_lib.testing import Fault

from .begun.stack import NAME
from .market import Market, deployed_market
from .support import eventually

SPEED = 10.0
READER: Final = f"{NAME}/Reader/Function"
PUBLISHER: Final = f"{NAME}/Outbox/Publisher/Function"


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


def test_reader_that_dies_after_its_reservation_begins_one_saga(market: Market) -> None:
    market.aws.faults.plan(Fault(function=READER, call="dynamodb:PutItem", action="kill", moment="after"))

    market.publish("t")
    market.until("t")

    market.aws.faults.report().require_all_fired()
    assert (market.effects(), market.executions()) == ({"t": 1}, 1)


def test_committed_events_are_published_and_their_rows_deleted(market: Market) -> None:
    market.commit("t-1", "t-2")
    market.until("t-1", "t-2")

    assert eventually(lambda: None if market.unpublished() else True)
    assert (market.effects(), market.executions()) == ({"t-1": 1, "t-2": 1}, 2)


def test_publisher_that_dies_after_it_published_publishes_again_and_begins_one_saga(market: Market) -> None:
    market.aws.faults.plan(Fault(function=PUBLISHER, call="events:PutEvents", action="kill", moment="after"))

    market.commit("t")
    market.until("t")

    market.aws.faults.report().require_all_fired()
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
