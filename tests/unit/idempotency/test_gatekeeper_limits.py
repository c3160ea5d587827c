"""The gatekeeper after a deployment with other limits: what was recorded before keeps its answer."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from handlers import gatekeeper
from saga_runtime.http import operation
from saga_runtime.http.schema import compile_validator
from saga_runtime.protocol import REPLAYED_HEADER, Env, RecordStatus
from tests.unit.support.client import accepted, settled
from tests.unit.support.executions import ExecutionStatus
from tests.unit.support.samples import BODY, DAY_MS, DUE_AFTER_MS, post
from tests.unit.support.wire import Action, Fault
from tests.unit.support.world import World

RESULT = '{"saga_id":"x","status":"COMPLETED"}'


def _strict_schema(monkeypatch: pytest.MonkeyPatch) -> None:
    check = compile_validator({"type": "object", "required": ["reference"]})
    monkeypatch.setattr(operation, "load_validator", lambda _: check)
    operation.validator.cache_clear()


def _small_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(Env.MAX_BODY_BYTES, "10")
    gatekeeper.settings.cache_clear()


Deploy = Callable[[pytest.MonkeyPatch], None]
REFUSED_BY: dict[Deploy, tuple[int, str]] = {
    _strict_schema: (400, "urn:cdk-sagas:problem:invalid-body"),
    _small_limit: (413, "urn:cdk-sagas:problem:body-too-large"),
}
LIMITS = pytest.mark.parametrize("deploy", REFUSED_BY)


def _problem(answer: tuple[int, Any, dict[str, str]]) -> tuple[int, str]:
    return answer[0], answer[1]["type"]


@LIMITS
def test_new_request_is_refused(world: World, monkeypatch: pytest.MonkeyPatch, deploy: Deploy) -> None:
    deploy(monkeypatch)

    assert _problem(world.call(post())) == REFUSED_BY[deploy]
    assert world.wire.sent == ["GetItem"]
    assert world.items("requests") == []


@LIMITS
def test_recorded_request_in_progress_is_a_duplicate(
    world: World, monkeypatch: pytest.MonkeyPatch, deploy: Deploy
) -> None:
    saga_id = accepted(world)
    deploy(monkeypatch)
    world.clock.ms += 1

    status, document, headers = world.call(post())

    assert (status, document["saga_id"]) == (409, saga_id)
    assert headers["Retry-After"]


@LIMITS
def test_recorded_request_with_a_lost_start_is_started(
    world: World, monkeypatch: pytest.MonkeyPatch, deploy: Deploy
) -> None:
    world.wire.plan(Fault(operation="StartExecution", action=Action.DROP))
    saga_id = accepted(world)
    world.wire.forget()
    deploy(monkeypatch)
    world.clock.ms += DUE_AFTER_MS

    assert world.call(post())[0] == 409
    assert world.executions.by_name[saga_id].status is ExecutionStatus.RUNNING


@LIMITS
@pytest.mark.parametrize(("status", "code"), [(RecordStatus.COMPLETED, 200), (RecordStatus.FAILED, 422)])
def test_settled_request_gets_its_response(
    world: World,
    monkeypatch: pytest.MonkeyPatch,
    deploy: Deploy,
    status: RecordStatus,
    code: int,
) -> None:
    settled(world, accepted(world), status, RESULT)
    deploy(monkeypatch)

    answer = gatekeeper.handler(post(), None)

    assert (answer["statusCode"], answer["body"]) == (code, RESULT)
    assert answer["headers"][REPLAYED_HEADER] == "true"


@LIMITS
def test_key_of_another_request_is_reused(world: World, monkeypatch: pytest.MonkeyPatch, deploy: Deploy) -> None:
    accepted(world)
    deploy(monkeypatch)

    answer = world.call(post({**BODY, "amount": 1}))

    assert _problem(answer) == (422, "urn:cdk-sagas:problem:idempotency-key-reused")


@LIMITS
def test_key_that_is_free_again_is_refused_as_a_new_request(
    world: World, monkeypatch: pytest.MonkeyPatch, deploy: Deploy
) -> None:
    settled(world, accepted(world), RecordStatus.COMPLETED, RESULT)
    deploy(monkeypatch)
    world.clock.ms += 400 * DAY_MS

    assert _problem(world.call(post())) == REFUSED_BY[deploy]
    assert len(world.items("requests")) == 1


@LIMITS
def test_key_whose_response_has_expired_is_refused_as_such(
    world: World, monkeypatch: pytest.MonkeyPatch, deploy: Deploy
) -> None:
    settled(world, accepted(world), RecordStatus.COMPLETED, RESULT)
    deploy(monkeypatch)
    world.clock.ms += 7 * DAY_MS

    assert _problem(world.call(post())) == (410, "urn:cdk-sagas:problem:idempotency-key-expired")


@LIMITS
def test_no_outcome_is_returned_while_the_record_cannot_be_read(
    world: World, monkeypatch: pytest.MonkeyPatch, deploy: Deploy
) -> None:
    accepted(world)
    deploy(monkeypatch)
    world.wire.plan(Fault(operation="GetItem", action=Action.DROP))

    status, _, headers = world.call(post())

    assert status == 503
    assert headers["Retry-After"]


def test_a_body_that_could_never_be_recorded_reveals_nothing_of_the_record(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    accepted(world)
    _small_limit(monkeypatch)

    assert world.call(post("{" * 20))[0] == 413
    assert world.call(post("{"))[0] == 400


def test_body_in_the_bucket_is_stored_once(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    stored: list[str] = []

    def store(_bucket: str, owner: str, _text: str) -> dict[str, str]:
        stored.append(owner)
        return {"cdk_sagas_ref": f"{owner}/0"}

    monkeypatch.setattr(gatekeeper, "store", store)
    monkeypatch.setenv(Env.PAYLOADS, "bucket")
    monkeypatch.setenv(Env.INLINE_BODY_BYTES, "10")
    saga_id = accepted(world)
    _small_limit(monkeypatch)
    world.clock.ms += 1

    status, document, _ = world.call(post())

    assert (status, document["saga_id"]) == (409, saga_id)
    assert stored == [saga_id[:26]]
