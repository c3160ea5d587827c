"""Short histories of the runtime on DynamoDB, each of which needs one decision."""

from __future__ import annotations

from saga_runtime import Commit, StepCall, Write, atomic_step
from saga_runtime.errors import SagaError
from saga_runtime.protocol import RecordAttribute
from tests.unit.support.client import accepted
from tests.unit.support.samples import BODY, DUE_AFTER_MS, get, post, step_event
from tests.unit.support.transfers import run, undo
from tests.unit.support.wire import Action, Fault, Moment
from tests.unit.support.world import Context, World

ALL_OF_IT = {**BODY, "amount": 500}
LOST = Fault(operation="TransactWriteItems", action=Action.DROP, moment=Moment.AFTER)


def test_a_step_is_not_refused_by_its_own_effect(world: World) -> None:
    """Its answer was lost, and what it did leaves nothing to do it again with."""
    world.open_accounts(alice=500, bob=0)
    world.wire.plan(LOST)
    _no_error(lambda: run(body=ALL_OF_IT))


def test_a_compensation_is_not_refused_by_its_own_effect(world: World) -> None:
    """Its answer was lost, and what it did leaves nothing to undo it again with."""
    world.open_accounts(alice=500, bob=0)
    run()
    world.wire.plan(LOST)
    _no_error(undo)


def test_an_existing_row_decides_before_a_write_that_is_refused(world: World) -> None:
    """Both refuse a duplicate; only the row identifies it as one."""

    def keyed(_: StepCall) -> Commit:
        item = {"pk": {"S": "seat-1"}, "sk": {"S": "seat"}}
        put = {"TableName": "ledger", "Item": item, "ConditionExpression": "attribute_not_exists(pk)"}
        return Commit(writes=[Write(action={"Put": put})])

    handler = atomic_step(keyed)
    handler(step_event(), Context())
    _no_error(lambda: handler(step_event(), Context()))


def test_a_foreign_saga_is_not_shown(world: World) -> None:
    """Not even if the client knows its id."""
    saga_id = accepted(world)
    assert world.call(get(saga_id, principal="AIDABOB"))[0] == 404


def test_a_saga_of_another_reservation_is_not_shown_under_this_ones_name(world: World) -> None:
    """The record is of a later saga of the same key."""
    saga_id = accepted(world)
    assert world.call(get(f"{saga_id[:26]}-1"))[0] == 404


def test_a_saga_is_started_again_with_its_stored_bytes(world: World) -> None:
    """A later release reserves with another definition; the saga keeps its own."""
    world.wire.plan(Fault(operation="StartExecution", action=Action.DROP))
    saga_id = accepted(world)
    world.wire.forget()
    world.clock.ms += DUE_AFTER_MS
    world.call(post())
    assert world.executions.by_name[saga_id].input == world.items("requests")[0][RecordAttribute.INPUT]["S"]


def test_a_start_without_a_response_is_accepted_nevertheless(world: World) -> None:
    """The record is durable: 202."""
    world.wire.plan(Fault(operation="StartExecution", action=Action.THROTTLE))
    assert world.call(post())[0] == 202


def _no_error(action: object) -> None:
    assert callable(action)
    try:
        action()
    except SagaError as error:
        raise AssertionError(repr(error)) from error
