"""An inline saga's first request: Express first; Standard only where Express was certainly not started."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from typing import Any

import pytest
from botocore.exceptions import (
    ClientError,
    ConnectionClosedError,
    ConnectTimeoutError,
    EndpointConnectionError,
    NoCredentialsError,
    ReadTimeoutError,
)

from handlers import gatekeeper
from saga_runtime.protocol import PREFER_HEADER, SAGA_DELEGATED, Env, Metric, RecordStatus
from saga_runtime.shared import aws
from tests.unit.support.samples import REQUEST_ID, SAGA_ID, post
from tests.unit.support.settling import settle
from tests.unit.support.sleeps import replace_sleep
from tests.unit.support.world import Context, World

EXPRESS = "arn:aws:states:eu-central-1:111111111111:stateMachine:Express"
RESULT = '{"result":{"moved":200}}'


class Sync:
    """A client of synchronous executions."""

    def __init__(self, outcome: Callable[[], Mapping[str, Any]]) -> None:
        self.outcome = outcome
        self.sent: list[dict[str, Any]] = []
        self.patience: list[int] = []

    def start_sync_execution(self, **request: Any) -> Mapping[str, Any]:
        """Run one."""
        self.sent.append(request)
        return self.outcome()


@pytest.fixture(autouse=True)
def inline(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    """The saga runs inline, and clients may wait for 10 s."""
    monkeypatch.setenv(Env.EXPRESS_MACHINE_ARN, EXPRESS)
    monkeypatch.setenv(Env.MAX_WAIT_SECONDS, "10")
    replace_sleep(monkeypatch, lambda seconds: setattr(world.clock, "ms", world.clock.ms + int(seconds * 1_000)))
    gatekeeper.settings.cache_clear()


@pytest.fixture
def sync(monkeypatch: pytest.MonkeyPatch) -> Callable[[Callable[[], Mapping[str, Any]]], Sync]:
    def arrange(outcome: Callable[[], Mapping[str, Any]]) -> Sync:
        client = Sync(outcome)

        def made(seconds: int) -> Sync:
            client.patience.append(seconds)
            return client

        monkeypatch.setattr(aws, "step_functions_for", made)
        return client

    return arrange


Arranged = Callable[[Callable[[], Mapping[str, Any]]], Sync]


def _send(wait: str | None = "wait=5", remaining_ms: int = 28_000) -> dict[str, Any]:
    headers = {PREFER_HEADER: wait} if wait is not None else {}
    return gatekeeper.handler(post(headers=headers), Context(remaining_ms=remaining_ms))


def _settle(world: World) -> None:
    settles = settle(
        request_id=REQUEST_ID,
        execution=SAGA_ID,
        status=RecordStatus.COMPLETED,
        now_ms=world.clock.ms,
        body=RESULT,
    )
    aws.dynamodb().update_item(**settles)


def _raises(error: Exception) -> Callable[[], Mapping[str, Any]]:
    def outcome() -> Mapping[str, Any]:
        raise error

    return outcome


def _refusal(code: str, status: int) -> ClientError:
    response: Any = {"Error": {"Code": code, "Message": ""}, "ResponseMetadata": {"HTTPStatusCode": status}}
    return ClientError(response, "StartSyncExecution")


def test_first_response_is_what_express_stored(world: World, sync: Arranged) -> None:
    def settles() -> Mapping[str, Any]:
        _settle(world)
        (record,) = world.items("requests")
        stored = {
            name: record[name] for name in ("status", "http_status", "response", "response_expires_at", "expiration")
        }
        return {"status": "SUCCEEDED", "output": json.dumps({"record": stored})}

    client = sync(settles)
    before = len(world.wire.sent)
    answer = _send()

    assert (answer["statusCode"], answer["body"]) == (200, RESULT)
    assert [call for call in world.wire.sent[before:] if call in ("StartExecution", "GetItem")] == []
    assert [(sent["stateMachineArn"], sent["name"]) for sent in client.sent] == [(EXPRESS, SAGA_ID)]
    assert world.telemetry.counts[Metric.INLINE_SETTLED] == 1
    assert _send()["body"] == RESULT
    assert len(client.sent) == 1


@pytest.mark.parametrize("code", ["ThrottlingException", "AccessDeniedException", "StateMachineDoesNotExist"])
def test_standard_starts_where_express_is_refused(world: World, sync: Arranged, code: str) -> None:
    sync(_raises(_refusal(code, 400)))

    answer = _send()

    assert answer["statusCode"] == 202
    assert world.executions.by_name[SAGA_ID].machine != EXPRESS
    assert world.telemetry.counts[Metric.INLINE_NOT_STARTED] == 1


@pytest.mark.parametrize(
    "error", [ReadTimeoutError(endpoint_url="https://sync-states"), _refusal("InternalServerError", 500)], ids=str
)
def test_nothing_else_starts_where_express_may_run(world: World, sync: Arranged, error: Exception) -> None:
    client = sync(_raises(error))

    answer = _send()

    assert answer["statusCode"] == 202
    assert world.executions.by_name == {}
    assert len(client.sent) == 1


@pytest.mark.parametrize(("remaining_ms", "patience"), [(28_000, 5), (8_000, 5), (7_999, 4), (4_000, 1)])
def test_synchronous_start_leaves_time_to_the_invocation(sync: Arranged, remaining_ms: int, patience: int) -> None:
    client = sync(_raises(ReadTimeoutError(endpoint_url="https://sync-states")))

    assert _send(remaining_ms=remaining_ms)["statusCode"] == 202
    assert client.patience == [patience]


def test_execution_is_started_asynchronously_where_no_time_is_left(world: World, sync: Arranged) -> None:
    client = sync(_raises(ReadTimeoutError(endpoint_url="https://sync-states")))

    assert _send(remaining_ms=3_999)["statusCode"] == 202
    assert client.sent == []
    assert world.executions.by_name[SAGA_ID].machine == EXPRESS


@pytest.mark.parametrize(
    ("error", "unclear"),
    [
        (ReadTimeoutError(endpoint_url="https://sync-states"), 0),
        (ConnectTimeoutError(endpoint_url="https://sync-states"), 0),
        (ConnectionClosedError(endpoint_url="https://sync-states"), 1),
        (_refusal("InternalServerError", 500), 1),
    ],
    ids=str,
)
def test_read_timeout_of_a_synchronous_start_counts_nothing(
    world: World, sync: Arranged, error: Exception, unclear: int
) -> None:
    sync(_raises(error))

    _send()

    assert world.telemetry.counts[Metric.START_FAILED] == unclear


@pytest.mark.parametrize(
    "error",
    [ConnectTimeoutError(endpoint_url="x"), EndpointConnectionError(endpoint_url="x"), NoCredentialsError()],
    ids=lambda error: type(error).__name__,
)
def test_start_that_was_never_sent_leaves_the_saga_to_standard(world: World, sync: Arranged, error: Exception) -> None:
    sync(_raises(error))

    assert _send()["statusCode"] == 202
    assert world.executions.by_name[SAGA_ID].machine != EXPRESS


def test_response_of_a_delegated_saga_is_waited_for(world: World, sync: Arranged) -> None:
    def delegates() -> Mapping[str, Any]:
        _settle(world)
        return {"status": "FAILED", "error": SAGA_DELEGATED, "cause": "{}"}

    sync(delegates)

    answer = _send()

    assert (answer["statusCode"], answer["body"]) == (200, RESULT)
    assert world.telemetry.counts[Metric.INLINE_DELEGATED] == 1
    assert world.executions.by_name == {}


@pytest.mark.parametrize(
    ("ended", "reason"),
    [
        (
            {"status": "FAILED", "error": SAGA_DELEGATED, "cause": '{"step":"Credit","error":"StepFailed"}'},
            "StepFailed",
        ),
        ({"status": "FAILED", "error": SAGA_DELEGATED, "cause": "{}"}, SAGA_DELEGATED),
        ({"status": "FAILED", "error": "SagaFenced", "cause": "another execution owns this saga"}, "SagaFenced"),
        ({"status": "TIMED_OUT"}, "TIMED_OUT"),
    ],
    ids=str,
)
def test_what_express_leaves_to_standard_is_counted_by_reason(
    world: World, sync: Arranged, ended: Mapping[str, Any], reason: str
) -> None:
    sync(lambda: ended)

    assert _send()["statusCode"] == 202
    assert (Metric.INLINE_DELEGATED, {"reason": reason}) in world.telemetry.events


def test_client_that_does_not_wait_starts_an_asynchronous_execution(world: World) -> None:
    assert _send(None)["statusCode"] == 202
    assert world.executions.by_name[SAGA_ID].machine == EXPRESS


def test_asynchronous_express_that_is_refused_leaves_the_saga_to_standard(world: World) -> None:
    world.executions.refuses = "StateMachineDeleting"

    answer = _send(None)

    assert answer["statusCode"] == 503  # Standard was refused, too
    assert world.telemetry.counts[Metric.INLINE_NOT_STARTED] == 1
    assert world.telemetry.counts[Metric.START_REFUSED] == 1
