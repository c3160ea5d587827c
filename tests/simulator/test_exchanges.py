"""Answers of the simulated services. ``tests/local`` compares the same exchanges with local AWS."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import boto3
import pytest

from constructs_lib.testing.simulator.deployment.blueprint import (
    ApiSpec,
    BucketSpec,
    QueueSpec,
    RouteSpec,
    RuleSpec,
    TableSpec,
    TargetSpec,
    arn,
)
from constructs_lib.testing.simulator.engine.kernel import SECOND
from constructs_lib.testing.simulator.faults.climate import EXECUTIONS_GO, Climate
from constructs_lib.testing.simulator.run import START
from constructs_lib.testing.simulator.world import World

from .exchanges import EXCHANGES, HTTP_ROUTES, MACHINES, PATTERN, ROUTES, Exchange, Respond, Services, code_of, received
from .scenarios import FUNCTIONS
from .support import add_machine, blueprint, world_of


@contextmanager
def services() -> Iterator[tuple[World, Services]]:
    """Make what the exchanges need."""
    made = blueprint(**FUNCTIONS)
    made.tables["table"] = TableSpec(name="table", keys=("id",), kinds=("S",))
    plain, fifo = QueueSpec(name="plain"), QueueSpec(name="in.fifo", fifo=True)
    dead, matched = QueueSpec(name="dead"), QueueSpec(name="matched")
    twice = QueueSpec(name="twice", dead_letters=dead.arn, max_receives=2)
    made.queues |= {queue.name: queue for queue in (plain, fifo, dead, matched, twice)}
    target = TargetSpec(arn=matched.arn)
    made.rules.append(RuleSpec(name="rule", bus="default", pattern=PATTERN, every=None, targets=(target,)))
    routes = tuple(
        RouteSpec(method=method, path=f"/{path}", function="proxied", authorization="NONE") for method, path in ROUTES
    )
    made.apis["api"] = ApiSpec(id="api", stage="v1", routes=routes)
    http_routes = tuple(
        RouteSpec(method=method, path=path, function="routed", authorization=authorization)
        for key, authorization in HTTP_ROUTES.items()
        for method, _, path in [key.partition(" ")]
    )
    made.apis["http"] = ApiSpec(id="http", stage="$default", routes=http_routes, http=True)
    made.buckets["bucket"] = BucketSpec(name="bucket")
    machines = {name: add_machine(made, name, given(plain.url)) for name, given in MACHINES.items()}
    with world_of(made, Climate(unproven=frozenset({EXECUTIONS_GO}))) as world:
        secret = arn("secretsmanager", "secret:one-abcdef")
        world.secrets.put(secret, "first")

        def moved(url: str) -> str:
            world.kernel.sleep(10 * SECOND)
            return received(boto3.client("sqs"), url)

        def client(service: str) -> Any:
            make: Any = boto3.client
            return make(service)

        def requests(api: str) -> Respond:
            def request(method: str, path: str, body: str) -> tuple[int, Mapping[str, str], str]:
                headers = {"Idempotency-Key": "k", "Content-Type": "application/json"}
                client = world.actor("client")
                response = world.gateway.send(client, method, path, headers=headers, body=body, api=api)
                return response.status, response.headers, response.body

            return request

        yield (
            world,
            Services(
                client=client,
                ended=lambda _: world.kernel.sleep(10 * SECOND),
                gone=lambda _: world.kernel.sleep(10 * SECOND),
                moved=moved,
                plain=plain.url,
                fifo=fifo.url,
                table="table",
                bucket="bucket",
                secret=secret,
                **machines,
                fails="fail",
                twice=twice.url,
                dead=dead.url,
                matched=matched.url,
                request=requests("api"),
                http_request=requests("http"),
            ),
        )


@pytest.mark.parametrize("exchange", EXCHANGES, ids=str)
def test_simulator_responds_as_aws_does(exchange: Exchange) -> None:
    with services() as (world, made):
        task = world.kernel.spawn(world.actor("caller"), lambda: exchange.act(made))
        world.kernel.run(until=START + 3_600 * SECOND)
        assert task.ended.value() == exchange.answers


def test_a_message_waits_at_most_a_quarter_of_an_hour() -> None:
    """Local AWS takes every delay."""
    with services() as (world, made):
        send = made.client("sqs").send_message
        task = world.kernel.spawn(
            world.actor("caller"),
            lambda: [
                code_of(send, QueueUrl=made.plain, MessageBody="a", DelaySeconds=delay) for delay in (-1, 0, 900, 901)
            ],
        )
        world.kernel.run(until=START + 3_600 * SECOND)
        assert task.ended.value() == ["InvalidParameterValue", "none", "none", "InvalidParameterValue"]
