"""Naive forms of idempotency patterns, each with the trace that breaks it, and the form here that holds."""

from __future__ import annotations

import uuid
from concurrent.futures import ThreadPoolExecutor
from threading import Barrier
from typing import Any

import pytest

from handlers import gatekeeper
from saga_runtime import Commit, ExternalCall, VersionedItem, commit_once, external_compensation, external_step
from saga_runtime.http.key_source import KeySource
from saga_runtime.protocol import CallField, Env, RecordStatus
from saga_runtime.saga_log.provider import ProviderSettings
from saga_runtime.shared import aws
from tests.unit.support.client import accepted, settled
from tests.unit.support.samples import BODY, post, step_event
from tests.unit.support.wallet import deploy, moved, send
from tests.unit.support.world import Context, World

BALANCE: dict[str, Any] = {"id": {"S": "balance"}}


def _marker(key: str) -> dict[str, Any]:
    return {"id": {"S": f"done#{key}"}}


def _pay(amount: int) -> None:
    aws.dynamodb().update_item(
        TableName="tokens",
        Key=BALANCE,
        UpdateExpression="ADD paid :n",
        ExpressionAttributeValues={":n": {"N": str(amount)}},
    )


def _paid() -> int:
    found = aws.dynamodb().get_item(TableName="tokens", Key=BALANCE, ConsistentRead=True).get("Item")
    return int(found["paid"]["N"]) if found else 0


def test_look_run_store_pays_for_every_thread(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    """All of them look before one of them stores: ten payments under one key. One conditional write: one."""
    looked = Barrier(10)
    assert _paid() == 0  # makes the client, before there are threads

    def naive(_: int) -> None:
        found = aws.dynamodb().get_item(TableName="tokens", Key=_marker("k"), ConsistentRead=True)
        looked.wait(timeout=30)
        if "Item" not in found:
            _pay(1)
            aws.dynamodb().put_item(TableName="tokens", Item=_marker("k"))

    with ThreadPoolExecutor(max_workers=10) as pool:
        list(pool.map(naive, range(10)))
    assert _paid() == 10

    deploy(monkeypatch)
    world.open_accounts(alice=500, bob=0)
    with ThreadPoolExecutor(max_workers=10) as pool:
        statuses = set(pool.map(lambda _: send()["statusCode"], range(10)))
    assert (statuses, moved(world)) == ({200}, 200)


@pytest.mark.usefixtures("world")
def test_a_marker_after_the_effect_pays_again_after_a_crash() -> None:
    """The process dies between effect and marker, and the message is delivered again. In one transaction it is once."""

    def naive(*, dies: bool) -> None:
        if "Item" not in aws.dynamodb().get_item(TableName="tokens", Key=_marker("k"), ConsistentRead=True):
            _pay(1)
            if not dies:
                aws.dynamodb().put_item(TableName="tokens", Item=_marker("k"))

    naive(dies=True)
    naive(dies=False)
    assert _paid() == 2


@pytest.mark.usefixtures("world")
def test_a_marker_before_the_effect_loses_the_payment_after_a_crash() -> None:
    """The other order: the marker exists, the effect never will."""

    def naive(*, dies: bool) -> None:
        if "Item" in aws.dynamodb().get_item(TableName="tokens", Key=_marker("k"), ConsistentRead=True):
            return
        aws.dynamodb().put_item(TableName="tokens", Item=_marker("k"))
        if not dies:
            _pay(1)

    naive(dies=True)
    naive(dies=False)
    assert _paid() == 0


@pytest.mark.usefixtures("world")
@pytest.mark.parametrize("repeated", [True, False])
def test_a_marker_with_the_effect_pays_once(repeated: bool) -> None:
    def plan() -> Commit:
        return Commit(writes=VersionedItem(table="tokens", key={**BALANCE}).create({"paid": {"N": "1"}}))

    for _ in range(2 if repeated else 1):
        commit_once(plan, marker=VersionedItem(table="tokens", key=_marker("k")), request={})

    assert _paid() == 1


@pytest.mark.usefixtures("world")
def test_an_increment_is_repeated_and_a_set_is_not() -> None:
    """For a provider or store without keys: write the result, not the change."""
    for _ in range(2):
        _pay(5)
    assert _paid() == 10

    for _ in range(2):
        aws.dynamodb().put_item(TableName="tokens", Item={**BALANCE, "paid": {"N": "5"}})
    assert _paid() == 5


def test_a_key_that_the_server_makes_is_new_for_every_retry(world: World) -> None:
    for _ in range(2):  # a client whose first answer was lost
        world.call(post(BODY, key=str(uuid.uuid4())))

    assert len(world.executions.by_name) == 2


def test_a_customers_id_as_the_key_refuses_the_second_order(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    """A false duplicate: another order of the same customer."""
    monkeypatch.setenv(Env.KEY_SOURCE, KeySource.natural("/customer").to_json())
    gatekeeper.settings.cache_clear()

    assert world.call(post({"customer": "ada", "order_id": "o-1"}))[0] == 202
    assert world.call(post({"customer": "ada", "order_id": "o-2"}))[0] == 422
    assert len(world.executions.by_name) == 1


def test_the_orders_id_as_the_key_takes_both(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(Env.KEY_SOURCE, KeySource.natural("/order_id").to_json())
    gatekeeper.settings.cache_clear()

    for order in ("o-1", "o-2"):
        assert world.call(post({"customer": "ada", "order_id": order}))[0] == 202
    assert len(world.executions.by_name) == 2


def test_the_orders_id_alone_as_the_key_refuses_each_further_try(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    """A failure settles the id as a success does: the order is never paid. With a number of the try it is."""
    monkeypatch.setenv(Env.KEY_SOURCE, KeySource.natural("/order_id").to_json())
    gatekeeper.settings.cache_clear()
    settled(world, accepted(world, body={"order_id": "o-1"}), RecordStatus.FAILED, "{}")

    assert world.call(post({"order_id": "o-1"}, key="another"))[0] == 422
    assert world.call(post({"order_id": "o-1", "attempt": 2}))[0] == 422

    monkeypatch.setenv(Env.KEY_SOURCE, KeySource.natural("/order_id", "/attempt").to_json())
    gatekeeper.settings.cache_clear()
    for attempt in (1, 2):
        settled(world, accepted(world, body={"order_id": "o-2", "attempt": attempt}), RecordStatus.FAILED, "{}")


@pytest.mark.usefixtures("world")
@pytest.mark.parametrize(("shared", "left"), [(True, 0), (False, 1)])
def test_one_key_of_two_sagas_at_a_provider_returns_what_one_of_them_completed_with(shared: bool, left: int) -> None:
    """Two regions take one intent, and share a charge: the compensation of one leaves the other one unpaid."""
    charged: set[str] = set()
    refunded: list[str] = []

    @external_step
    def charge(call: ExternalCall) -> dict[str, str]:
        key = "order-7" if shared else call.provider_key
        charged.add(key)  # an idempotent provider
        return {"payment": key}

    @external_compensation(of=charge)
    def refund(call: ExternalCall, output: dict[str, str]) -> None:
        refunded.append(output["payment"])

    completes, fails = (_charging(region * 26 + "-mdwqr4j1") for region in "ab")
    for event in (completes, fails):
        charge(event, Context())
    refund(fails, Context())

    assert len(charged) - len(refunded) == left


def _charging(saga_id: str) -> dict[str, Any]:
    provider = ProviderSettings(grace=30, clock_skew=5, verify=False, verify_undo=False, window=600, undo_window=600)
    return {**step_event(saga_id=saga_id, step="Charge"), CallField.PROVIDER: provider.to_event()}
