"""Calls that AWS refused for good: they fail at once under their own name, where nothing was written for certain."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from botocore.exceptions import ClientError

from saga_runtime import Commit, StepCall, TransientError, Write, atomic_step, read_only_step
from saga_runtime.errors import ServiceRefused
from saga_runtime.protocol import SERVICE_REFUSALS, CallField
from saga_runtime.shared import aws
from tests.unit.support.gateway import Shop
from tests.unit.support.samples import step_event
from tests.unit.support.transfers import run, undo
from tests.unit.support.wire import SDK_ATTEMPTS, Action, Fault, Moment
from tests.unit.support.world import Context, World

REFUSALS = (Action.DENY, Action.INVALID, Action.MISSING)
TRANSACT = "TransactWriteItems"


@pytest.fixture(autouse=True)
def accounts(world: World) -> None:
    """Two accounts, as the sample request wants them."""
    world.open_accounts(alice=500, bob=0)
    world.wire.forget()


def _name(error: pytest.ExceptionInfo[ServiceRefused]) -> str:
    """The error name that Lambda reports and the state machine matches."""
    return type(error.value).__name__


def test_every_refusal_has_a_name_that_the_state_machine_matches() -> None:
    assert set(SERVICE_REFUSALS) == {f"AWS.{action}" for action in REFUSALS}


# ---- atomic steps ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("action", REFUSALS)
@pytest.mark.parametrize("operation", ["BatchGetItem", TRANSACT])
def test_an_atomic_step_fails_at_once(world: World, action: Action, operation: str) -> None:
    world.wire.plan(Fault(operation=operation, action=action, times=10_000))

    with pytest.raises(ServiceRefused, match=f"^AWS refused {operation}: ") as raised:
        run()

    assert _name(raised) == f"AWS.{action}"
    assert world.wire.sent.count(operation) == 1
    assert world.rows() == {}


def test_a_write_that_dynamodb_cannot_read_fails_at_once(world: World) -> None:
    missing = Write(action={"Put": {"TableName": "no-such-table", "Item": {"pk": {"S": "a"}}}})
    handler = atomic_step(lambda _: Commit(writes=[missing]))

    with pytest.raises(ServiceRefused) as raised:
        handler(step_event(), Context())

    assert _name(raised) == "AWS.ResourceNotFoundException"


def test_a_reason_of_a_cancellation_is_a_refusal_of_the_call(world: World) -> None:
    aws.dynamodb().put_item(TableName="ledger", Item={"pk": {"S": "a"}, "sk": {"S": "x"}, "n": {"S": "text"}})
    add = Write(
        action={
            "Update": {
                "TableName": "ledger",
                "Key": {"pk": {"S": "a"}, "sk": {"S": "x"}},
                "UpdateExpression": "SET n = n + :one",
                "ExpressionAttributeValues": {":one": {"N": "1"}},
            }
        }
    )

    with pytest.raises(ServiceRefused) as raised:
        atomic_step(lambda _: Commit(writes=[add]))(step_event(), Context())

    assert _name(raised) == "AWS.ValidationException"
    assert world.rows() == {}


def test_an_applied_step_replays_though_its_call_is_refused_now(world: World) -> None:
    first = run()
    world.wire.plan(Fault(operation=TRANSACT, action=Action.INVALID))

    assert run() == first


def test_a_call_that_the_sdk_sent_twice_is_in_doubt(world: World) -> None:
    """The first may have been written, and its answer lost."""
    world.wire.plan(Fault(operation=TRANSACT, action=Action.DROP, times=1))
    world.wire.plan(Fault(operation=TRANSACT, action=Action.DENY, on=2, times=1))

    with pytest.raises(ClientError):
        run()


def test_a_refusal_after_a_lost_response_is_in_doubt(world: World) -> None:
    world.wire.plan(Fault(operation=TRANSACT, action=Action.DROP))
    world.wire.plan(Fault(operation=TRANSACT, action=Action.DENY, on=SDK_ATTEMPTS + 1))

    with pytest.raises(TransientError, match="did not answer"):
        run()


def test_a_refused_read_after_a_lost_response_is_in_doubt(world: World) -> None:
    world.wire.plan(Fault(operation=TRANSACT, action=Action.DROP))
    world.wire.plan(Fault(operation="BatchGetItem", action=Action.DENY, on=2))

    with pytest.raises(TransientError, match="did not answer"):
        run()


def test_another_error_of_aws_is_raised_unchanged(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    def limited(**_: Any) -> None:
        raise ClientError({"Error": {"Code": "ItemCollectionSizeLimitExceededException"}}, TRANSACT)

    monkeypatch.setattr(aws.dynamodb(), "transact_write_items", limited)

    with pytest.raises(ClientError, match="ItemCollectionSizeLimitExceeded"):
        run()


@pytest.mark.parametrize("action", REFUSALS)
def test_a_compensation_stays_in_doubt(world: World, action: Action) -> None:
    """A compensation is retried for an hour: permissions may be corrected meanwhile."""
    run()
    world.wire.plan(Fault(operation=TRANSACT, action=action, times=10_000))

    with pytest.raises(ClientError, match=action):
        undo()


# ---- read-only steps ------------------------------------------------------------------------------------------------


def _quote(read: Callable[[], object]) -> Callable[[], Any]:
    @read_only_step
    def quote(_: StepCall) -> dict[str, str]:
        read()
        return {"price": "1"}

    return lambda: quote({**step_event(step="Quote"), CallField.RECORD: True}, Context())


@pytest.mark.parametrize("action", REFUSALS)
@pytest.mark.parametrize("operation", ["GetItem", "PutItem"])
def test_a_read_only_step_fails_at_once(world: World, action: Action, operation: str) -> None:
    world.wire.plan(Fault(operation=operation, action=action, times=10_000))

    with pytest.raises(ServiceRefused) as raised:
        _quote(lambda: None)()

    assert _name(raised) == f"AWS.{action}"


def test_a_refused_read_of_a_read_only_function_fails_at_once(world: World) -> None:
    with pytest.raises(ServiceRefused) as raised:
        _quote(lambda: aws.dynamodb().get_item(TableName="no-such-table", Key={"pk": {"S": "a"}}))()

    assert _name(raised) == "AWS.ResourceNotFoundException"


# ---- external steps -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("action", REFUSALS)
def test_an_external_step_that_cannot_write_its_intent_fails_at_once(world: World, action: Action) -> None:
    shop = Shop(world)
    world.wire.plan(Fault(operation="PutItem", action=action, times=10_000))

    with pytest.raises(ServiceRefused) as raised:
        shop.run()

    assert _name(raised) == f"AWS.{action}"
    assert (shop.gateway.charged, world.rows()) == ([], {})


@pytest.mark.parametrize("action", REFUSALS)
def test_after_the_providers_call_a_refusal_of_the_row_is_in_doubt(world: World, action: Action) -> None:
    shop = Shop(world)
    world.wire.plan(Fault(operation="UpdateItem", action=action, times=10_000))

    with pytest.raises(ClientError, match=action):
        shop.run()

    assert (len(shop.gateway.charged), shop.status) == (1, "INTENT")


@pytest.mark.parametrize("action", REFUSALS)
def test_after_an_earlier_attempts_call_a_refusal_is_in_doubt(world: World, action: Action) -> None:
    shop = Shop(world)
    world.wire.plan(Fault(operation="gateway:charge", action=Action.DROP, moment=Moment.AFTER, times=1))
    with pytest.raises(ConnectionError):
        shop.run()
    world.wire.plan(Fault(operation="PutItem", action=action, times=10_000))

    with pytest.raises(ClientError, match=action):
        shop.run()


def test_a_refusal_of_a_provider_in_aws_is_in_doubt(world: World) -> None:
    """Only the provider knows whether the service acted before it refused."""
    shop = Shop(world)
    shop.gateway.broken["charge"] = ClientError({"Error": {"Code": "ValidationException"}}, "SendEmail")

    with pytest.raises(ClientError, match="SendEmail"):
        shop.run()

    assert shop.status == "INTENT"
