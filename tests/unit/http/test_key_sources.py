"""Sources of keys: what identifies a request, at the gatekeeper and at a direct operation."""

from __future__ import annotations

import json
from typing import Any

import pytest

from handlers import gatekeeper
from saga_runtime.http.idempotent_request import BadKey
from saga_runtime.http.key_source import KeySource
from saga_runtime.protocol import IDEMPOTENCY_KEY_HEADER, REPLAYED_HEADER, Env
from tests.unit.support.samples import BODY, post
from tests.unit.support.wallet import PLANNED, deploy, moved, send, told
from tests.unit.support.world import World

NATURAL = KeySource.natural("/order_id")
ORDER = {**BODY, "order_id": "o-1"}


def headed(key: str | None) -> dict[str, Any]:
    """An event with a header."""
    return {"headers": {IDEMPOTENCY_KEY_HEADER: key} if key else {}}


class TestTheKey:
    @pytest.mark.parametrize(
        ("source", "header", "body", "key"),
        [
            (KeySource.header(), "h-1", None, "h-1"),
            (KeySource.header(), None, {"order_id": "o-1"}, None),
            (KeySource.body("/idempotencyKey"), None, {"idempotencyKey": "b-1"}, "b-1"),
            (KeySource.body("/idempotencyKey"), "h-1", {"idempotencyKey": "b-1"}, "b-1"),
            (KeySource.body("/meta/key"), None, {"meta": {"key": "b-1"}}, "b-1"),
            (KeySource.body("/idempotencyKey"), "h-1", {}, None),
            (NATURAL, "h-1", {"order_id": "o-1"}, "o-1"),
            (NATURAL, None, {"order_id": 4711}, "4711"),
            (NATURAL, None, {"order_id": "ü"}, "ü"),
            (NATURAL, "h-1", {}, None),
            (NATURAL, "h-1", [], None),
            (NATURAL, None, {"order_id": None}, None),
            (KeySource.natural("/shop", "/order"), None, {"shop": "a", "order": 1}, '["a","1"]'),
            (KeySource.composite("/order_id"), "h-1", {"order_id": "o-1"}, '["h-1","o-1"]'),
            (KeySource.composite("/order_id"), None, {"order_id": "o-1"}, None),
            (KeySource.composite("/order_id"), "h-1", {}, None),
        ],
    )
    def test_is_read_from_its_source(self, source: KeySource, header: str | None, body: Any, key: str | None) -> None:
        assert source.key_of(headed(header), body) == key

    def test_of_an_integer_and_its_text_is_one(self) -> None:
        """Two bodies, one key: the second is refused with 422, never applied as another request."""
        source = KeySource.natural("/shop", "/order")

        assert source.key_of({}, {"shop": "a", "order": 1}) == source.key_of({}, {"shop": "a", "order": "1"})

    def test_of_several_members_does_not_run_together(self) -> None:
        source = KeySource.natural("/a", "/b")

        assert source.key_of({}, {"a": "x,y", "b": "z"}) != source.key_of({}, {"a": "x", "b": "y,z"})

    @pytest.mark.parametrize("value", ["", " ", "a\n", True, 1.5, ["o-1"], {"id": 1}, "x" * 256])
    def test_of_another_type_or_blank_is_refused(self, value: Any) -> None:
        for source in (NATURAL, KeySource.body("/order_id")):
            with pytest.raises(BadKey, match="/order_id must"):
                source.key_of({}, {"order_id": value})

    def test_of_a_body_is_ascii_as_a_header_is(self) -> None:
        with pytest.raises(BadKey, match="printable ASCII"):
            KeySource.body("/k").key_of({}, {"k": "ü"})


class TestADeclaration:
    @pytest.mark.parametrize(
        "source",
        [KeySource.header(), KeySource.body("/k"), KeySource.natural("/a", "/b/c"), KeySource.composite("/a")],
    )
    def test_travels_in_a_variable(self, source: KeySource) -> None:
        assert KeySource.from_json(source.to_json()) == source

    def test_is_the_header_by_default(self) -> None:
        assert KeySource.from_json(None) == KeySource.header()

    @pytest.mark.parametrize(
        "members", [(), ("order_id",), ("/a", "/a"), ("/",), ("/ ",), ("/a//b",), tuple(f"/{n}" for n in range(6))]
    )
    def test_that_is_wrong_is_refused(self, members: tuple[str, ...]) -> None:
        for make in (KeySource.natural, KeySource.composite):
            with pytest.raises(ValueError, match=r"members of a|a JSON pointer begins with a slash"):
                make(*members)

    @pytest.mark.parametrize("member", [5, None, True, ["/a"], b"/a"])
    def test_of_another_type_than_text_is_refused(self, member: Any) -> None:
        for make in (KeySource.body, KeySource.natural, KeySource.composite):
            with pytest.raises(TypeError, match="members of a key must be text, got"):
                make(member)
        with pytest.raises(TypeError, match="kind must be a KeySourceKind, got str"):
            KeySource(kind="NATURAL", members=("/a",))  # type: ignore[arg-type]  # on purpose


class TestOrders:
    """Sagas under their order's id."""

    @pytest.fixture(autouse=True)
    def natural(self, world: World, monkeypatch: pytest.MonkeyPatch) -> None:
        del world
        monkeypatch.setenv(Env.KEY_SOURCE, NATURAL.to_json())
        gatekeeper.settings.cache_clear()

    def test_of_one_id_under_two_headers_are_one_saga(self, world: World) -> None:
        status, first, _ = world.call(post(ORDER, key="click-1"))
        world.clock.ms += 1
        again, second, _ = world.call(post(ORDER, key="click-2"))

        assert (status, again) == (202, 409)
        assert first["saga_id"] == second["saga_id"]
        assert (len(world.items("requests")), len(world.executions.by_name)) == (1, 1)

    def test_need_no_header(self, world: World) -> None:
        event = post(ORDER)
        event["headers"], event["multiValueHeaders"] = {}, {}

        assert world.call(event)[0] == 202

    def test_of_one_id_with_other_content_are_refused(self, world: World) -> None:
        world.call(post(ORDER))

        status, document, _ = world.call(post({**ORDER, "amount": 1}))

        assert (status, document["type"]) == (422, "urn:cdk-sagas:problem:idempotency-key-reused")
        assert len(world.executions.by_name) == 1

    def test_of_two_callers_are_two(self, world: World) -> None:
        world.call(post(ORDER))

        assert world.call(post(ORDER, principal="AIDABOB"))[0] == 202

    def test_without_an_id_are_refused_with_the_remedy(self, world: World) -> None:
        status, document, _ = world.call(post(BODY))

        assert (status, document["type"]) == (400, "urn:cdk-sagas:problem:missing-idempotency-key")
        assert "/order_id" in document["detail"]
        assert world.items("requests") == []

    def test_with_a_blank_id_are_refused(self, world: World) -> None:
        status, document, _ = world.call(post({**ORDER, "order_id": " "}))

        assert (status, document["type"]) == (400, "urn:cdk-sagas:problem:invalid-idempotency-key")

    def test_with_a_malformed_or_large_body_are_refused(self, world: World) -> None:
        assert world.call({**post(ORDER), "body": "{"})[0] == 400
        assert world.call(post({**ORDER, "note": "x" * 100_000}))[0] == 413
        assert world.call(post({**ORDER, "note": "x" * 4_000_000}))[0] == 413
        assert world.items("requests") == []

    def test_that_were_recorded_under_a_larger_limit_are_duplicates(
        self, world: World, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        body = {**ORDER, "note": "x" * 500}
        world.call(post(body))
        world.clock.ms += 1
        monkeypatch.setenv(Env.MAX_BODY_BYTES, "100")
        gatekeeper.settings.cache_clear()

        assert world.call(post(body))[0] == 409
        assert world.call(post({**body, "order_id": "o-2"}))[0] == 413


class TestPayments:
    """Direct operations with a key in their body, and with a composite one."""

    @pytest.fixture(autouse=True)
    def accounts(self, world: World) -> None:
        world.open_accounts(alice=500, bob=0)

    def test_under_one_member_are_one(self, world: World, monkeypatch: pytest.MonkeyPatch) -> None:
        deploy(monkeypatch, KEY_SOURCE=KeySource.body("/idempotencyKey").to_json())
        body = {**BODY, "idempotencyKey": "pay-1"}

        first, again = send(post(body, key="a")), send(post(body, key="b"))

        assert (again["body"], again["headers"][REPLAYED_HEADER]) == (first["body"], "true")
        assert moved(world) == 200
        assert PLANNED[0].idempotency_key == "pay-1"

    def test_of_two_orders_under_one_header_are_two(self, world: World, monkeypatch: pytest.MonkeyPatch) -> None:
        deploy(monkeypatch, KEY_SOURCE=KeySource.composite("/order_id").to_json())

        for order in ("o-1", "o-2", "o-1"):
            assert told(send(post({**ORDER, "order_id": order})))[0] == 200

        assert moved(world) == 400
        assert json.loads(PLANNED[0].idempotency_key) == ["key-1", "o-1"]
