"""``GET``: status, steps and result of the caller's own saga, and of no other."""

from __future__ import annotations

from saga_runtime.protocol import (
    RecordStatus,
    Side,
    StepStatus,
)
from saga_runtime.saga_log.rows import done_put
from saga_runtime.shared import aws
from tests.unit.support.client import accepted, settled
from tests.unit.support.samples import get
from tests.unit.support.wire import Action, Fault
from tests.unit.support.world import World


def test_a_status_request_returns_status_and_steps_and_then_the_response(world: World) -> None:
    saga_id = accepted(world)
    row = done_put(
        table="log",
        saga_id=saga_id,
        step="Transfer",
        side=Side.PIVOT,
        attempt="a",
        output='{"secret":1}',
        now_ms=5,
        keep_days=400,
    )
    aws.dynamodb().transact_write_items(TransactItems=[row])

    running = world.call(get(saga_id))
    settled(world, saga_id, RecordStatus.COMPLETED, '{"paid":"2.00"}')
    done = world.call(get(saga_id))

    steps = [{"step": "Transfer", "status": StepStatus.DONE, "at_ms": 5}]
    assert running[:2] == (200, {"saga_id": saga_id, "status": "IN_PROGRESS", "steps": steps})
    assert running[2]["Retry-After"]
    assert done[1] == {
        "saga_id": saga_id,
        "status": "COMPLETED",
        "steps": steps,
        "http_status": 200,
        "answer": {"paid": "2.00"},
    }


def test_another_callers_saga_is_as_absent_as_one_that_never_was(world: World) -> None:
    saga_id = accepted(world)

    answers = [
        world.call(event)[:2]
        for event in (
            get(saga_id, principal="AIDABOB"),
            get(f"{saga_id[:26]}-0"),
            get(f"{saga_id}\n"),
            get("no saga id"),
            get(""),
        )
    ]

    assert answers == [answers[0]] * 5
    assert answers[0][0] == 404


def test_a_status_request_during_an_outage_is_unavailable(world: World) -> None:
    saga_id = accepted(world)
    world.wire.plan(Fault(operation="Query", action=Action.THROTTLE))

    assert world.call(get(saga_id))[0] == 503
