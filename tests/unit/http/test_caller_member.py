"""Operations that add the caller's identity to the request: functions receive it, and no client can state it."""

from __future__ import annotations

import json
from typing import Any

import pytest

from handlers import gatekeeper
from saga_runtime.idempotency.record import RequestRecord
from saga_runtime.protocol import Env, StartField
from tests.unit.support.samples import BODY, post
from tests.unit.support.wallet import PLANNED, deploy, send, told
from tests.unit.support.world import World

MEMBER = "customer"
ALICE = "AIDAALICE"


@pytest.fixture
def asked(world: World, monkeypatch: pytest.MonkeyPatch) -> World:
    """A gatekeeper that adds the member."""
    _add_the_member(monkeypatch)
    return world


def _add_the_member(monkeypatch: pytest.MonkeyPatch, **settings: str) -> None:
    monkeypatch.setenv(Env.CALLER_MEMBER, MEMBER)
    for name, value in settings.items():
        monkeypatch.setenv(Env[name], value)
    gatekeeper.settings.cache_clear()


def _requests(world: World) -> list[Any]:
    records = (RequestRecord.from_item(item) for item in world.items("requests"))
    return [json.loads(json.loads(record.input)[StartField.REQUEST]) for record in records]


def test_a_saga_receives_the_caller_with_what_the_client_sent(asked: World) -> None:
    assert asked.call(post())[0] == 202
    assert _requests(asked) == [{**BODY, MEMBER: ALICE}]


def test_each_caller_is_its_own(asked: World) -> None:
    for principal in (ALICE, "AROABOB:session"):
        asked.call(post(principal=principal))
    assert sorted(request[MEMBER] for request in _requests(asked)) == [ALICE, "AROABOB"]


@pytest.mark.parametrize("stated", ["AIDABOB", ALICE, None])
def test_a_client_that_states_the_member_is_refused(asked: World, stated: str | None) -> None:
    status, body, _ = asked.call(post({**BODY, MEMBER: stated}))
    assert (status, body["detail"]) == (
        400,
        "the body must not have a member customer, which is added to it; remove it",
    )
    assert asked.items("requests") == []


@pytest.mark.parametrize("body", [["a"], "5", '"text"', "null"])
def test_a_body_that_can_have_no_member_is_refused(asked: World, body: Any) -> None:
    status, answer, _ = asked.call(post(body))
    assert (status, answer["detail"]) == (400, "the body must be a JSON object")


def test_the_member_has_room_or_the_request_is_refused(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    size = len(json.dumps(BODY, separators=(",", ":"))) + len(f',"{MEMBER}":"{ALICE}"')
    _add_the_member(monkeypatch, MAX_BODY_BYTES=str(size - 1))
    assert world.call(post(json.dumps(BODY, separators=(",", ":"))))[0] == 413
    assert world.items("requests") == []

    _add_the_member(monkeypatch, MAX_BODY_BYTES=str(size))
    assert world.call(post(json.dumps(BODY, separators=(",", ":"))))[0] == 202


@pytest.mark.parametrize("body", [BODY, {**BODY, MEMBER: "AIDABOB"}])
def test_a_request_from_before_is_a_duplicate(world: World, monkeypatch: pytest.MonkeyPatch, body: Any) -> None:
    """The fingerprint is of what the client sent, so that a release may add the member while requests are repeated."""
    assert world.call(post(body))[0] == 202
    _add_the_member(monkeypatch)
    world.clock.ms += 1

    assert world.call(post(body))[0] == 409
    assert _requests(world) == [body]


def test_a_direct_operation_receives_it(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    deploy(monkeypatch, CALLER_MEMBER=MEMBER)
    world.open_accounts(alice=500, bob=0)

    assert told(send())[0] == 200
    assert [call.request for call in PLANNED] == [{**BODY, MEMBER: ALICE}]
