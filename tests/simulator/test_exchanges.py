"""Answers of the simulated services. ``tests/local`` compares the same exchanges with local AWS."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import boto3
import pytest

from constructs_lib.testing.simulator.deployment.blueprint import QueueSpec, TableSpec, arn
from constructs_lib.testing.simulator.engine.kernel import SECOND
from constructs_lib.testing.simulator.run import START
from constructs_lib.testing.simulator.world import World

from .exchanges import EXCHANGES, MACHINES, Exchange, Services, received
from .scenarios import FUNCTIONS
from .support import add_machine, blueprint, world_of


@contextmanager
def services() -> Iterator[tuple[World, Services]]:
    """Make what the exchanges need."""
    made = blueprint(**FUNCTIONS)
    made.tables["table"] = TableSpec(name="table", keys=("id",), kinds=("S",))
    plain, fifo = QueueSpec(name="plain"), QueueSpec(name="in.fifo", fifo=True)
    made.queues |= {queue.name: queue for queue in (plain, fifo)}
    made.buckets.append("bucket")
    waits, done = (add_machine(made, name, given(plain.url)) for name, given in MACHINES.items())
    with world_of(made) as world:
        secret = arn("secretsmanager", "secret:one-abcdef")
        world.secrets.put(secret, "first")

        def moved(url: str) -> str:
            world.kernel.sleep(10 * SECOND)
            return received(boto3.client("sqs"), url)

        def client(service: str) -> Any:
            make: Any = boto3.client
            return make(service)

        yield (
            world,
            Services(
                client=client,
                ended=lambda _: world.kernel.sleep(10 * SECOND),
                moved=moved,
                plain=plain.url,
                fifo=fifo.url,
                table="table",
                bucket="bucket",
                secret=secret,
                done=done,
                waits=waits,
                fails="fail",
            ),
        )


@pytest.mark.parametrize("exchange", EXCHANGES, ids=str)
def test_simulator_responds_as_aws_does(exchange: Exchange) -> None:
    with services() as (world, made):
        task = world.kernel.spawn(world.actor("caller"), lambda: exchange.act(made))
        world.kernel.run(until=START + 3_600 * SECOND)
        assert task.ended.value() == exchange.answers
