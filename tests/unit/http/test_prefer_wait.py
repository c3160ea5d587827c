"""``Prefer: wait=N`` on a saga's operation: the settled response, if it comes in time; 202 or 409 as ever, if not."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest

from handlers import gatekeeper
from saga_runtime.http.idempotent_request import preferred_wait_of
from saga_runtime.http.waiting import settled_in_time
from saga_runtime.idempotency.identity import canonical_json
from saga_runtime.payloads import claim_check as payloads
from saga_runtime.protocol import (
    PREFER_HEADER,
    PREFERENCE_APPLIED_HEADER,
    REFERENCE_FIELD,
    REPLAYED_HEADER,
    Env,
    InProgressResponse,
    Metric,
    RecordStatus,
)
from saga_runtime.shared import aws
from tests.unit.support.client import accepted, settled
from tests.unit.support.samples import REQUEST_ID, SAGA_ID, get, post
from tests.unit.support.sleeps import replace_sleep
from tests.unit.support.wire import Action, Fault
from tests.unit.support.world import Context, World

RESULT = '{"result":{"moved":200}}'
LOOK = "GetItem"
BUCKET = "payloads"


@pytest.fixture(autouse=True)
def allowed(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    """The operation lets its clients wait for 10 s."""
    monkeypatch.setenv(Env.MAX_WAIT_SECONDS, "10")
    gatekeeper.settings.cache_clear()


@pytest.fixture
def slept(world: World, monkeypatch: pytest.MonkeyPatch) -> Callable[[Callable[[float], None]], None]:
    """Arrange sleeps that move the clock on, and call ``meanwhile`` with the time slept so far."""

    def arrange(meanwhile: Callable[[float], None]) -> None:
        begin = world.clock.ms

        def sleep(seconds: float) -> None:
            world.clock.ms += int(seconds * 1_000)
            world.naps.append(seconds)
            meanwhile((world.clock.ms - begin) / 1_000)

        replace_sleep(monkeypatch, sleep)

    return arrange


def _settles(
    world: World, after: float, status: RecordStatus = RecordStatus.COMPLETED, body: str = RESULT
) -> Callable[[float], None]:
    done: list[float] = []

    def meanwhile(passed: float) -> None:
        if passed >= after and not done:
            done.append(passed)
            settled(world, SAGA_ID, status, body)

    return meanwhile


def _nothing(_: float) -> None:
    """Nothing happens."""


def _send(wait: str | None = "wait=5", *, remaining_ms: int = 28_000, **request: Any) -> dict[str, Any]:
    headers = {PREFER_HEADER: wait} if wait is not None else {}
    return gatekeeper.handler(post(headers=headers, **request), Context(remaining_ms=remaining_ms))


Slept = Callable[[Callable[[float], None]], None]


class TestInTime:
    def test_the_first_request_gets_the_response_not_as_a_replay(self, world: World, slept: Slept) -> None:
        slept(_settles(world, after=1))

        answer = _send()

        assert (answer["statusCode"], answer["body"]) == (200, RESULT)
        assert REPLAYED_HEADER not in answer["headers"]
        assert answer["headers"][PREFERENCE_APPLIED_HEADER] == "wait=5"
        assert answer["headers"]["Location"] == f"/prod/transfers/{SAGA_ID}"
        assert (world.telemetry.counts[Metric.WAITED], world.telemetry.counts[Metric.REPLAYED]) == (1, 0)

    def test_the_first_response_and_every_replay_have_the_same_bytes(self, world: World, slept: Slept) -> None:
        slept(_settles(world, after=1))
        first = _send()

        again = _send(None)

        assert (again["statusCode"], again["body"]) == (first["statusCode"], first["body"])
        assert again["headers"][REPLAYED_HEADER] == "true"

    def test_a_refusal_is_a_response_too(self, world: World, slept: Slept) -> None:
        slept(_settles(world, after=1, status=RecordStatus.FAILED))

        answer = _send()

        (record,) = world.items("requests")
        assert (str(answer["statusCode"]), answer["body"]) == (record["http_status"]["N"], RESULT)

    def test_a_duplicate_waits_too_and_its_response_is_a_replay(self, world: World, slept: Slept) -> None:
        accepted(world)
        world.clock.ms += 1
        slept(_settles(world, after=1))

        answer = _send()

        assert (answer["statusCode"], answer["body"]) == (200, RESULT)
        assert answer["headers"][REPLAYED_HEADER] == "true"

    def test_a_settled_request_is_replayed_without_a_pause(self, world: World, slept: Slept) -> None:
        settled(world, accepted(world), RecordStatus.COMPLETED, RESULT)
        slept(_nothing)

        assert _send()["body"] == RESULT
        assert world.naps == []

    def test_it_only_reads(self, world: World, slept: Slept) -> None:
        slept(_nothing)

        _send()

        assert world.wire.sent[:2] == ["PutItem", "StartExecution"]
        assert set(world.wire.sent[2:]) == {LOOK}


class TestNotInTime:
    def test_it_is_202_after_the_requested_time(self, world: World, slept: Slept) -> None:
        slept(_nothing)

        answer = _send("wait=5")

        assert (answer["statusCode"], json.loads(answer["body"])["status"]) == (202, "IN_PROGRESS")
        assert PREFERENCE_APPLIED_HEADER not in answer["headers"], "only a stored response has it"
        assert sum(world.naps) == pytest.approx(5, abs=0.01)
        assert max(world.naps) <= 1
        assert world.telemetry.counts[Metric.WAITED_IN_VAIN] == 1

    def test_the_operation_bounds_the_requested_time(self, world: World, slept: Slept) -> None:
        slept(_nothing)

        _send("wait=600")

        assert sum(world.naps) == pytest.approx(10, abs=0.01)

    def test_the_last_read_is_when_the_time_is_over(self, world: World, slept: Slept) -> None:
        slept(_settles(world, after=5))

        assert _send("wait=5")["statusCode"] == 200

    @pytest.mark.parametrize(
        ("policy", "status"), [(InProgressResponse.CONFLICT, 409), (InProgressResponse.ACCEPTED, 202)]
    )
    def test_a_duplicate_gets_the_response_without_waiting(
        self, world: World, slept: Slept, monkeypatch: pytest.MonkeyPatch, policy: InProgressResponse, status: int
    ) -> None:
        monkeypatch.setenv(Env.IN_PROGRESS_RESPONSE, policy)
        gatekeeper.settings.cache_clear()
        accepted(world)
        world.clock.ms += 1
        slept(_nothing)

        answer = _send()

        assert answer["statusCode"] == status
        assert answer["headers"]["Retry-After"]

    def test_the_invocations_own_time_bounds_it_too(self, world: World, slept: Slept) -> None:
        slept(_nothing)

        assert _send(remaining_ms=3_100)["statusCode"] == 202
        assert world.naps == []

    @pytest.mark.parametrize("action", [Action.DROP, Action.THROTTLE])
    def test_an_outage_ends_it(self, world: World, slept: Slept, action: Action) -> None:
        slept(_nothing)
        world.wire.plan(Fault(operation=LOOK, action=action, times=1_000))

        assert _send()["statusCode"] == 202

    @pytest.mark.parametrize(("action", "status"), [(Action.DROP, 503), (None, 507)])
    def test_a_stored_response_that_cannot_be_read_is_not_the_preferred_one(
        self, world: World, slept: Slept, monkeypatch: pytest.MonkeyPatch, action: Action | None, status: int
    ) -> None:
        monkeypatch.setenv(Env.PAYLOADS, BUCKET)
        gatekeeper.settings.cache_clear()
        aws.s3.cache_clear()
        aws.s3().create_bucket(Bucket=BUCKET, CreateBucketConfiguration={"LocationConstraint": "eu-central-1"})
        body = canonical_json({"receipt": payloads.store(BUCKET, SAGA_ID, '"kept"')})
        slept(_settles(world, after=1, body=body))
        if action is not None:
            world.wire.plan(Fault(operation="GetObject", action=action, times=1_000))
        else:
            aws.s3().delete_object(Bucket=BUCKET, Key=json.loads(body)["receipt"][REFERENCE_FIELD])

        answer = _send()

        assert answer["statusCode"] == status
        assert PREFERENCE_APPLIED_HEADER not in answer["headers"]

    def test_another_saga_under_the_key_is_not_its_response(self, world: World, slept: Slept) -> None:
        settled(world, accepted(world), RecordStatus.COMPLETED, RESULT)
        slept(_nothing)

        assert settled_in_time("requests", REQUEST_ID, SAGA_ID, world.clock.ms + 5_000, lambda: 28_000) is not None
        assert (
            settled_in_time("requests", REQUEST_ID, f"{REQUEST_ID}-another", world.clock.ms + 5_000, lambda: 28_000)
            is None
        )
        assert settled_in_time("requests", "A" * 26, SAGA_ID, world.clock.ms + 5_000, lambda: 28_000) is None


class TestWhatDoesNotWait:
    def test_a_request_without_the_preference(self, world: World, slept: Slept) -> None:
        slept(_nothing)

        assert PREFERENCE_APPLIED_HEADER not in _send(None)["headers"]
        assert world.naps == []

    def test_an_operation_that_does_not_allow_it(
        self, world: World, slept: Slept, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.delenv(Env.MAX_WAIT_SECONDS)
        gatekeeper.settings.cache_clear()
        slept(_nothing)

        assert PREFERENCE_APPLIED_HEADER not in _send()["headers"]
        assert world.naps == []

    def test_another_body_under_the_key(self, world: World, slept: Slept) -> None:
        accepted(world)
        world.clock.ms += 1
        slept(_nothing)

        assert _send(body={"amount": 1})["statusCode"] == 422
        assert world.naps == []

    def test_a_start_that_is_refused_for_good(self, world: World, slept: Slept) -> None:
        slept(_nothing)
        world.wire.plan(Fault(operation="StartExecution", action=Action.DENY, times=1_000))

        assert _send()["statusCode"] == 503
        assert world.naps == []

    def test_a_get_request(self, world: World, slept: Slept) -> None:
        saga_id = accepted(world)
        slept(_nothing)

        event = {**get(saga_id), "headers": {PREFER_HEADER: "wait=5"}}

        assert gatekeeper.handler(event, None)["statusCode"] == 200
        assert world.naps == []


@pytest.mark.parametrize(
    ("sent", "seconds"),
    [
        ("wait=5", 5),
        ("Wait = 5", 5),
        ('wait="5"', 5),
        ("respond-async, wait=10", 10),
        ("wait=3; note=x, wait=9", 3),
        ("return=minimal", None),
        ("wait", None),
        ("wait=", None),
        ("wait=0", None),
        ("wait=-1", None),
        ("wait=1.5", None),
        ("wait=\u0665", None),
        ("wait=9999999", None),
        ("awaited=5", None),
        ("", None),
    ],
)
def test_the_preference_is_read_as_rfc_7240_has_it(sent: str, seconds: int | None) -> None:
    assert preferred_wait_of({"headers": {"prefer": sent}}) == seconds
    assert preferred_wait_of({"multiValueHeaders": {"Prefer": ["return=minimal", sent]}}) == seconds
