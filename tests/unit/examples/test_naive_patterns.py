"""Naive forms of idempotency patterns, each with the trace that breaks it, and the form here that holds."""

from __future__ import annotations

import uuid
from concurrent.futures import ThreadPoolExecutor
from threading import Barrier
from typing import Any

import pytest

from handlers import gatekeeper
from saga_runtime import Commit, VersionedItem, commit_once
from saga_runtime.http.key_source import KeySource
from saga_runtime.protocol import Env
from saga_runtime.shared import aws
from tests.unit.support.samples import BODY, post
from tests.unit.support.wallet import deploy, moved, send
from tests.unit.support.world import World

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
