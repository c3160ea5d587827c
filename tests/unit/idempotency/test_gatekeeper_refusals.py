"""The front common over serialized DynamoDB: bad requests, and a database that does not answer."""

from __future__ import annotations

from typing import Any

import pytest

from handlers import gatekeeper
from saga_runtime.errors import ProtocolMismatch
from saga_runtime.http import operation
from saga_runtime.http.schema import compile_validator
from saga_runtime.protocol import (
    IDEMPOTENCY_KEY_HEADER,
    Env,
    Metric,
    RecordAttribute,
)
from tests.unit.support.client import accepted
from tests.unit.support.samples import DUE_AFTER_MS, post
from tests.unit.support.wire import Action, Fault, Moment
from tests.unit.support.world import World, forget_cached


@pytest.mark.parametrize(
    ("request_", "status", "code"),
    [
        pytest.param(post(key=None), 400, "missing-idempotency-key", id="no key"),
        pytest.param(post(key=" "), 400, "invalid-idempotency-key", id="blank key"),
        pytest.param(post(key="k" * 256), 400, "invalid-idempotency-key", id="long key"),
        pytest.param(post("{"), 400, "invalid-body", id="no JSON"),
        pytest.param(post(""), 400, "invalid-body", id="no body"),
        pytest.param(post('{"a":NaN}'), 400, "invalid-body", id="NaN"),
        pytest.param(post('{"a":1,"a":2}'), 400, "invalid-body", id="a member twice"),
        pytest.param(post('{"a":1e99999999999999999999}'), 400, "invalid-body", id="absurd exponent"),
        pytest.param(post("[" * 5000 + "]" * 5000), 400, "invalid-body", id="deep"),
        pytest.param(post('"\\ud800"'), 400, "invalid-body", id="half a surrogate pair"),
        pytest.param(post(principal=""), 403, "missing-identity", id="nobody"),
        pytest.param(post(principal=":session"), 403, "missing-identity", id="a session without a principal"),
    ],
)
def test_a_bad_request_is_refused_and_nothing_is_written(
    world: World, request_: dict[str, Any], status: int, code: str
) -> None:
    answer = world.call(request_)

    assert (answer[0], answer[1]["type"]) == (status, f"urn:cdk-sagas:problem:{code}")
    assert world.wire.sent == []


@pytest.mark.parametrize("body", ['"' + "x" * 100_000 + '"', "[" + ",".join(["1e300"] * 1000) + "]", "x" * 3_000_001])
def test_a_body_that_is_too_large_is_refused_and_nothing_is_written(world: World, body: str) -> None:
    status, document, _ = world.call(post(body))

    assert (status, document["type"]) == (413, "urn:cdk-sagas:problem:body-too-large")
    assert world.wire.sent == ["GetItem"]
    assert world.items("requests") == []


def test_a_body_against_the_schema_is_refused_and_nothing_is_written(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    check = compile_validator({"properties": {"amount": {"type": "integer"}}, "required": ["amount"]})
    monkeypatch.setattr(operation, "load_validator", lambda _: check)

    status, document, _ = world.call(post({"nonsense": 1}))

    assert status == 400
    assert "amount" in document["detail"]
    assert world.wire.sent == ["GetItem"]
    assert world.items("requests") == []


def test_a_request_without_a_key_is_accepted_and_counted_when_keys_are_optional(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(Env.KEY_POLICY, "OPTIONAL")

    sagas = {accepted(world, key=None) for _ in range(3)}

    assert len(sagas) == 3
    assert world.telemetry.counts[Metric.KEY_MISSING] == 3


@pytest.mark.parametrize("action", [Action.DROP, Action.THROTTLE])
@pytest.mark.parametrize("moment", list(Moment))
def test_nothing_is_promised_without_a_response_to_the_reservation(
    world: World, action: Action, moment: Moment
) -> None:
    world.wire.plan(Fault(operation="PutItem", action=action, moment=moment))

    status, document, headers = world.call(post())

    assert (status, document["type"]) == (503, "urn:cdk-sagas:problem:service-unavailable")
    assert headers["Retry-After"]
    assert "StartExecution" not in world.wire.sent


def test_a_reservation_repeated_by_the_sdk_is_met_as_ones_own(world: World) -> None:
    world.wire.plan(Fault(operation="PutItem", action=Action.DROP, moment=Moment.AFTER, times=1))

    status, _, _ = world.call(post())

    assert status == 202
    assert world.wire.sent == ["PutItem", "PutItem", "StartExecution"]
    assert world.telemetry.events[0][0] == "own_reservation_found"


@pytest.mark.parametrize("action", [Action.DROP, Action.THROTTLE])
@pytest.mark.parametrize("moment", list(Moment))
def test_a_request_is_accepted_whatever_the_outcome_of_the_start(world: World, action: Action, moment: Moment) -> None:
    world.wire.plan(Fault(operation="StartExecution", action=action, moment=moment))

    saga_id = accepted(world)

    assert world.telemetry.counts[Metric.START_FAILED] == 1
    assert [item[RecordAttribute.SAGA_ID]["S"] for item in world.items("requests")] == [saga_id]


FOR_GOOD = [
    "AccessDeniedException",
    "InvalidArn",
    "InvalidExecutionInput",
    "InvalidName",
    "KmsAccessDeniedException",
    "KmsInvalidStateException",
    "StateMachineDeleting",
    "StateMachineDoesNotExist",
    "ValidationException",
]


@pytest.mark.parametrize("code", FOR_GOOD)
def test_permanently_refused_start_is_a_503_and_counted(world: World, code: str) -> None:
    world.executions.refuses = code

    status, document, headers = world.call(post())

    (record,) = world.items("requests")
    assert (status, document["type"]) == (503, "urn:cdk-sagas:problem:saga-not-started")
    assert document["saga_id"] == record[RecordAttribute.SAGA_ID]["S"]
    assert headers["Retry-After"]
    assert headers["Location"].endswith(document["saga_id"])
    assert world.telemetry.counts[Metric.START_REFUSED] == 1
    assert world.telemetry.counts[Metric.START_FAILED] == 0
    assert ("start_refused", {"saga_id": document["saga_id"], "code": code}) in world.telemetry.events


def test_duplicate_with_a_permanently_refused_start_is_a_503(world: World) -> None:
    world.executions.refuses = "StateMachineDoesNotExist"
    saga_id = world.call(post())[1]["saga_id"]
    world.clock.ms += DUE_AFTER_MS

    status, document, _ = world.call(post())
    assert (status, document["saga_id"]) == (503, saga_id)

    world.executions.refuses = None
    assert world.call(post())[0] == 409
    assert list(world.executions.by_name) == [saga_id]


def test_a_start_of_another_invocation_is_a_success(world: World) -> None:
    world.wire.plan(Fault(operation="StartExecution", action=Action.DROP, moment=Moment.AFTER, times=1))

    accepted(world)

    assert world.telemetry.counts[Metric.START_FAILED] == 0


def test_a_gatekeeper_of_another_protocol_rejects_every_request(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(Env.PROTOCOL, "99")
    forget_cached()

    with pytest.raises(ProtocolMismatch, match="deployed for 99"):
        gatekeeper.handler(post(), None)


def test_logs_hold_neither_key_nor_body_nor_caller(world: World) -> None:
    accepted(world, key="very-secret-key", body={"iban": "DE00"}, principal="AIDASECRET")
    world.call(post({"iban": "DE00"}, key="very-secret-key", principal="AIDASECRET"))

    told = repr(world.telemetry.events)

    assert not any(secret in told for secret in ("very-secret-key", "DE00", "AIDASECRET", IDEMPOTENCY_KEY_HEADER))
