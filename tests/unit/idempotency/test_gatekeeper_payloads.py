"""The gatekeeper with a payload bucket: large request bodies, and responses composed of stored parts."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest

from handlers import gatekeeper
from saga_runtime.idempotency.identity import canonical_json, request_id_from
from saga_runtime.payloads.claim_check import store
from saga_runtime.payloads.references import is_reference, reference_to
from saga_runtime.protocol import MAX_PAYLOAD_BYTES, REFERENCE_FIELD, Env, RecordAttribute, RecordStatus, StartField
from saga_runtime.shared import aws
from tests.unit.support.client import accepted, settled
from tests.unit.support.samples import BODY, REQUEST_ID, get, post
from tests.unit.support.wire import Action, Fault, Killed, Moment
from tests.unit.support.world import World

BUCKET = "payloads"
INLINE = 200
LARGE = {**BODY, "note": "ü" * INLINE}


@pytest.fixture
def door(world: World, monkeypatch: pytest.MonkeyPatch) -> Iterator[World]:
    """The world, with a bucket that is configured for the gatekeeper."""
    monkeypatch.setenv(Env.PAYLOADS, BUCKET)
    monkeypatch.setenv(Env.INLINE_BODY_BYTES, str(INLINE))
    gatekeeper.settings.cache_clear()
    aws.s3.cache_clear()
    aws.s3().create_bucket(Bucket=BUCKET, CreateBucketConfiguration={"LocationConstraint": "eu-central-1"})
    world.wire.forget()
    yield world
    aws.s3.cache_clear()


def objects() -> dict[str, str]:
    """Stored objects, by key."""
    keys = [item["Key"] for item in aws.s3().list_objects_v2(Bucket=BUCKET).get("Contents", [])]
    return {key: aws.s3().get_object(Bucket=BUCKET, Key=key)["Body"].read().decode() for key in keys}


def request_of(world: World) -> Any:
    """The request as the only record holds it."""
    (record,) = world.items("requests")
    return json.loads(json.loads(record[RecordAttribute.INPUT]["S"])[StartField.REQUEST])


class TestALargeBody:
    def test_is_stored_before_the_record_that_names_it(self, door: World) -> None:
        accepted(door, body=LARGE)

        assert door.wire.sent == ["PutObject", "PutItem", "StartExecution"]
        assert request_of(door) == reference_to(REQUEST_ID, canonical_json(LARGE))
        assert list(objects().values()) == [canonical_json(LARGE)]

    def test_states_its_amount_before_it_is_stored_elsewhere(
        self, door: World, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setenv(Env.MONEY, '{"amount":"/amount","currency":"/currency"}')
        gatekeeper.settings.cache_clear()
        accepted(door, body=LARGE)

        (record,) = door.items("requests")
        assert (record[RecordAttribute.AMOUNT], record[RecordAttribute.CURRENCY]) == ({"N": "200"}, {"S": "EUR"})
        assert is_reference(request_of(door))

    def test_is_the_same_request_only_with_the_same_bytes(self, door: World) -> None:
        accepted(door, body=LARGE)
        door.clock.ms += 1

        assert door.call(post(LARGE))[0] == 409
        assert door.call(post({**LARGE, "amount": 201}))[0] == 422

    def test_is_not_reserved_during_an_outage_of_the_bucket(self, door: World) -> None:
        door.wire.plan(Fault(operation="PutObject", action=Action.DROP))

        status, _, headers = door.call(post(LARGE))

        assert (status, bool(headers["Retry-After"])) == (503, True)
        assert door.items("requests") == []

    @pytest.mark.parametrize("moment", list(Moment))
    def test_makes_one_object_if_the_process_dies_around_the_write(self, door: World, moment: Moment) -> None:
        door.wire.plan(Fault(operation="PutObject", action=Action.KILL, moment=moment, times=1))
        with pytest.raises(Killed):
            door.call(post(LARGE))
        assert door.items("requests") == []

        accepted(door, body=LARGE)

        assert len(objects()) == 1

    def test_starts_again_with_the_stored_reference(self, door: World) -> None:
        door.wire.plan(Fault(operation="StartExecution", action=Action.DROP))
        accepted(door, body=LARGE)
        door.clock.ms += 120_000

        door.call(post(LARGE))

        (execution,) = door.executions.by_name.values()
        assert is_reference(json.loads(json.loads(execution.input)[StartField.REQUEST]))


class TestASmallBody:
    def test_travels_itself(self, door: World) -> None:
        accepted(door)

        assert request_of(door) == BODY
        assert "PutObject" not in door.wire.sent

    def test_of_just_the_limit_travels_itself(self, door: World) -> None:
        body = {"a": "x" * (INLINE - len('{"a":""}'))}
        accepted(door, body=body)

        assert request_of(door) == body

    def test_must_not_contain_a_reference(self, door: World) -> None:
        stored = store(BUCKET, "b" * 26, "{}")

        answers = [door.call(post(body))[0] for body in (stored, {"deep": [stored]}, {REFERENCE_FIELD: 1})]

        assert answers == [400, 400, 400]
        assert door.items("requests") == []


def test_without_a_bucket_a_large_body_travels_itself(world: World) -> None:
    accepted(world, body=LARGE)

    assert request_of(world) == LARGE


class TestASettledAnswer:
    OUTPUT = '{"amount":"12.50","text":"ü"}'

    def _settled(self, world: World, output: str | None = None) -> str:
        saga_id = accepted(world)
        reference = canonical_json(store(BUCKET, saga_id, output or self.OUTPUT))
        settled(world, saga_id, RecordStatus.COMPLETED, f'{{"result":{{"A":{reference}}}}}')
        world.wire.forget()
        return saga_id

    def test_is_composed_for_a_duplicate_and_for_a_status_request(self, door: World) -> None:
        saga_id = self._settled(door)

        first, second = (gatekeeper.handler(post(BODY), None) for _ in range(2))
        look = door.call(get(saga_id))

        assert first["body"] == second["body"] == f'{{"result":{{"A":{self.OUTPUT}}}}}'
        assert first["headers"]["Idempotent-Replayed"] == "true"
        assert look[1]["answer"] == {"result": {"A": json.loads(self.OUTPUT)}}

    def test_that_cannot_be_read_now_is_unavailable(self, door: World) -> None:
        saga_id = self._settled(door)
        door.wire.plan(Fault(operation="GetObject", action=Action.DROP, times=6))

        answers = [door.call(post(BODY)), door.call(get(saga_id))]

        assert [status for status, _, _ in answers] == [503, 503]
        assert all(headers["Retry-After"] for _, _, headers in answers)

    def test_that_is_too_large_is_neither_a_refusal_nor_a_failure(self, door: World) -> None:
        saga_id = self._settled(door, json.dumps("x" * MAX_PAYLOAD_BYTES))

        answers = [door.call(post(BODY)), door.call(get(saga_id))]

        for status, document, headers in answers:
            assert status == 507
            assert document["type"].endswith(":response-unavailable")
            assert (document["saga_id"], document["saga_status"], document["http_status"]) == (
                saga_id,
                "COMPLETED",
                200,
            )
            assert "Idempotent-Replayed" not in headers
            assert REFERENCE_FIELD not in json.dumps(document)

    def test_whose_payload_is_lost_is_reported(self, door: World) -> None:
        saga_id = self._settled(door)
        for key in objects():
            aws.s3().delete_object(Bucket=BUCKET, Key=key)

        status, document, _ = door.call(get(saga_id))

        assert (status, "cannot be read" in document["detail"]) == (507, True)

    def test_is_put_together_of_its_own_payloads_only(self, door: World) -> None:
        saga_id = accepted(door)
        foreign = canonical_json(store(BUCKET, "b" * 26 + "-abc", '"secret"'))
        settled(door, saga_id, RecordStatus.COMPLETED, f'{{"result":{foreign}}}')

        status, document, _ = door.call(post(BODY))

        assert status == 507
        assert "secret" not in json.dumps(document)
        assert request_id_from(saga_id) == REQUEST_ID
