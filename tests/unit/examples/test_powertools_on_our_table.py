"""Powertools' own ``@idempotent`` on our table, under its key prefix, together with our records."""

from __future__ import annotations

from typing import Any

import pytest
from aws_lambda_powertools.utilities.idempotency import DynamoDBPersistenceLayer, IdempotencyConfig, idempotent

from saga_runtime.protocol import RecordAttribute
from saga_runtime.shared import aws
from tests.unit.support.samples import post
from tests.unit.support.world import Context, World


class LambdaContext(Context):
    """The members of a context that Powertools reads."""

    function_name = "user-function"


def handler_on(table: str) -> tuple[Any, list[dict[str, Any]]]:
    """A handler that Powertools keeps idempotent on ``table``, and the calls that reached its body."""
    ran: list[dict[str, Any]] = []
    layer = DynamoDBPersistenceLayer(table_name=table, boto3_client=aws.dynamodb())

    @idempotent(
        persistence_store=layer,
        config=IdempotencyConfig(event_key_jmespath="order"),
        key_prefix="orders",
    )
    def handler(event: dict[str, Any], context: Any) -> dict[str, Any]:
        ran.append(event)
        return {"order": event["order"], "run": len(ran)}

    return handler, ran


def test_its_decorator_runs_a_body_once_and_replays_its_result(world: World) -> None:
    handler, ran = handler_on("requests")

    answers = [handler({"order": "o-1"}, LambdaContext()) for _ in range(3)]

    assert answers == [{"order": "o-1", "run": 1}] * 3
    assert len(ran) == 1


def test_its_records_are_under_its_prefix_and_leave_ours_alone(world: World) -> None:
    handler, _ = handler_on("requests")
    world.call(post())
    ours = world.items("requests")

    handler({"order": "o-1"}, LambdaContext())

    theirs = [item for item in world.items("requests") if item not in ours]
    assert len(world.items("requests")) == 2
    assert theirs[0][RecordAttribute.ID]["S"].startswith("orders#")
    assert theirs[0][RecordAttribute.STATUS]["S"] == "COMPLETED"
    assert int(theirs[0][RecordAttribute.EXPIRATION]["N"]) > 0
    assert RecordAttribute.DUE_AT not in theirs[0]


def test_a_body_that_fails_may_run_again(world: World) -> None:
    layer = DynamoDBPersistenceLayer(table_name="requests", boto3_client=aws.dynamodb())
    ran: list[int] = []

    @idempotent(persistence_store=layer, config=IdempotencyConfig(event_key_jmespath="order"), key_prefix="orders")
    def handler(event: dict[str, Any], context: Any) -> str:
        ran.append(1)
        if len(ran) == 1:
            raise RuntimeError("first time")
        return "ok"

    with pytest.raises(RuntimeError):
        handler({"order": "o-1"}, LambdaContext())

    assert handler({"order": "o-1"}, LambdaContext()) == "ok"
