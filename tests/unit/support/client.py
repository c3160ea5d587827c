"""A client of the gatekeeper, and the state machine that settles its requests."""

from __future__ import annotations

from typing import Any

from saga_runtime.idempotency.record import remove_response_update
from saga_runtime.protocol import RecordAttribute, RecordStatus
from saga_runtime.shared import aws
from tests.unit.support.samples import post
from tests.unit.support.settling import settle
from tests.unit.support.world import World


def accepted(world: World, **request: Any) -> str:
    """Send a request that must be accepted; its saga id."""
    status, document, _ = world.call(post(**request))
    assert status == 202, document
    return str(document["saga_id"])


def remove_response(world: World) -> None:
    """Remove the response of the only request, as a reconciler does; it must have expired."""
    (item,) = world.items("requests")
    update = remove_response_update(item[RecordAttribute.ID]["S"], world.clock.ms)
    aws.dynamodb().update_item(TableName="requests", **update)


def settled(world: World, saga_id: str, status: RecordStatus, body: str) -> None:
    """Settle a saga as its first execution does."""
    update = settle(request_id=saga_id[:26], execution=saga_id, status=status, now_ms=world.clock.ms, body=body)
    aws.dynamodb().update_item(**update)
    world.executions.end(saga_id)
