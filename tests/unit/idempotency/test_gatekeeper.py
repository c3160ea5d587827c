"""The gatekeeper over serialized DynamoDB: new requests, duplicates, and the calls that they make."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from handlers import gatekeeper
from saga_runtime.protocol import (
    REPLAYED_HEADER,
    Env,
    Metric,
    RecordAttribute,
    RecordStatus,
)
from saga_runtime.recovery.takeover import Recoverer
from saga_runtime.shared import aws
from saga_runtime.shared.arns import machine_of
from tests.unit.support.client import accepted, remove_response, settled
from tests.unit.support.executions import ExecutionStatus
from tests.unit.support.samples import DAY_MS, DUE_AFTER_MS, MACHINE_ARN, get, post
from tests.unit.support.settling import park
from tests.unit.support.wire import Action, Fault
from tests.unit.support.world import World


def test_a_new_request_is_reserved_and_started_in_exactly_two_calls(world: World) -> None:
    calls = world.calls_of(lambda: world.call(post()))

    assert calls == ["PutItem", "StartExecution"]


def test_a_new_request_is_accepted_with_its_saga_and_where_to_find_it(world: World) -> None:
    status, document, headers = world.call(post())

    saga_id = document["saga_id"]
    assert (status, document["status"]) == (202, "IN_PROGRESS")
    assert headers["Location"] == f"/prod/transfers/{saga_id}"
    assert world.executions.by_name[saga_id].input == world.items("requests")[0][RecordAttribute.INPUT]["S"]


def test_a_duplicate_makes_exactly_one_call_and_meets_the_same_saga(world: World) -> None:
    saga_id = accepted(world)
    world.clock.ms += 1

    calls = world.calls_of(lambda: world.call(post()))
    status, document, headers = world.call(post())

    assert calls == ["PutItem"]
    assert (status, document["saga_id"]) == (409, saga_id)
    assert headers["Retry-After"]
    assert headers["Content-Type"] == "application/problem+json"


def test_a_duplicate_may_be_202_by_choice(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(Env.IN_PROGRESS_RESPONSE, "ACCEPTED")
    saga_id = accepted(world)
    world.clock.ms += 1

    status, document, _ = world.call(post())

    assert (status, document) == (202, {"saga_id": saga_id, "status": "IN_PROGRESS"})


def test_a_duplicate_after_due_at_makes_two_calls_and_starts_nothing_twice(world: World) -> None:
    saga_id = accepted(world)
    world.clock.ms += DUE_AFTER_MS

    calls = world.calls_of(lambda: world.call(post()))

    assert calls == ["PutItem", "StartExecution"]
    assert list(world.executions.by_name) == [saga_id]
    assert world.telemetry.counts[Metric.RESTARTED] == 1


@pytest.fixture
def replaced(world: World, monkeypatch: pytest.MonkeyPatch) -> Callable[[], None]:
    """Deploy another saga in the place of the operation's: its gatekeeper starts another state machine from now on."""

    def replace() -> None:
        monkeypatch.setenv(Env.STATE_MACHINE_ARN, f"{MACHINE_ARN}V2")
        monkeypatch.setenv(Env.RECOVERY_MACHINE_ARN, f"{MACHINE_ARN}V2Recovery")
        monkeypatch.setenv(Env.DEFINITION, "definition-2")
        gatekeeper.settings.cache_clear()

    return replace


@pytest.mark.parametrize("age_ms", [0, DUE_AFTER_MS])
def test_duplicate_after_a_replacement_starts_nothing(world: World, replaced: Callable[[], None], age_ms: int) -> None:
    saga_id = accepted(world)
    replaced()
    world.clock.ms += age_ms

    calls = world.calls_of(lambda: world.call(post()))
    status, document, _ = world.call(post())

    assert calls == ["PutItem"]
    assert (status, document["saga_id"]) == (409, saga_id)
    assert [execution.machine for execution in world.executions.by_name.values()] == [MACHINE_ARN]
    assert world.executions.elsewhere == []


def test_start_lost_before_a_replacement_is_left_to_recovery(world: World, replaced: Callable[[], None]) -> None:
    world.wire.plan(Fault(operation="StartExecution", action=Action.DROP))
    saga_id = accepted(world)
    world.wire.forget()
    replaced()
    world.clock.ms += DUE_AFTER_MS

    world.call(post())
    assert not world.executions.by_name
    recoverer = Recoverer(table="requests", dynamodb=aws.dynamodb(), step_functions=aws.step_functions())
    record = recoverer.read(saga_id[:26])
    assert record is not None
    recoverer.start(machine_of(record.execution_arn), record.owner, record.input)

    assert world.executions.by_name[saga_id].machine == MACHINE_ARN


def test_request_after_a_replacement_starts_the_new_saga(world: World, replaced: Callable[[], None]) -> None:
    replaced()

    saga_id = accepted(world)

    assert world.executions.by_name[saga_id].machine == f"{MACHINE_ARN}V2"


def test_a_duplicate_just_before_due_at_starts_nothing(world: World) -> None:
    accepted(world)
    world.clock.ms += DUE_AFTER_MS - 1

    assert world.calls_of(lambda: world.call(post())) == ["PutItem"]


def test_a_duplicate_heals_a_start_that_was_lost_with_the_stored_bytes(world: World) -> None:
    world.wire.plan(Fault(operation="StartExecution", action=Action.DROP))
    saga_id = accepted(world)
    assert not world.executions.by_name
    world.wire.forget()
    world.clock.ms += DUE_AFTER_MS

    world.call(post())

    assert world.executions.by_name[saga_id].input == world.items("requests")[0][RecordAttribute.INPUT]["S"]


@pytest.mark.parametrize("age_days", [28, 29])
def test_a_duplicate_starts_nothing_once_the_name_could_be_free_again(world: World, age_days: int) -> None:
    accepted(world)
    world.clock.ms += age_days * DAY_MS

    calls = world.calls_of(lambda: world.call(post()))

    assert calls == (["PutItem", "StartExecution"] if age_days < 29 else ["PutItem"])


@pytest.mark.parametrize(
    ("status", "code", "content_type"),
    [(RecordStatus.COMPLETED, 200, "application/json"), (RecordStatus.FAILED, 422, "application/problem+json")],
)
def test_a_settled_request_is_replayed_from_its_record_byte_for_byte(
    world: World, status: RecordStatus, code: int, content_type: str
) -> None:
    saga_id = accepted(world)
    body = '{"z": 1.10,  "a": "\u00e4"}'
    settled(world, saga_id, status, body)

    answers = [gatekeeper.handler(post(), None) for _ in range(2)]

    assert [answer["body"] for answer in answers] == [body, body]
    assert answers[0]["statusCode"] == code
    assert answers[0]["headers"]["Content-Type"] == content_type
    assert answers[0]["headers"][REPLAYED_HEADER] == "true"
    assert world.telemetry.counts[Metric.REPLAYED] == 2


def test_a_settled_duplicate_makes_exactly_one_call(world: World) -> None:
    settled(world, accepted(world), RecordStatus.COMPLETED, "{}")
    world.clock.ms += 2 * DUE_AFTER_MS

    assert world.calls_of(lambda: world.call(post())) == ["PutItem"]


def test_an_expired_key_is_reserved_again(world: World) -> None:
    first = accepted(world)
    settled(world, first, RecordStatus.COMPLETED, "{}")
    world.clock.ms += 400 * DAY_MS

    second = accepted(world)

    assert second != first
    assert world.items("requests")[0][RecordAttribute.STATUS]["S"] == "IN_PROGRESS"
    assert set(world.executions.by_name) == {first, second}


@pytest.mark.parametrize("removed", [False, True])
@pytest.mark.parametrize("age_ms", [7 * DAY_MS, 400 * DAY_MS - 1_000])
@pytest.mark.parametrize(("status", "code"), [(RecordStatus.COMPLETED, 200), (RecordStatus.FAILED, 422)])
def test_key_whose_response_has_expired_is_refused_and_nothing_moves(
    world: World, status: RecordStatus, code: int, age_ms: int, removed: bool
) -> None:
    saga_id = accepted(world)
    settled(world, saga_id, status, '{"first":true}')
    world.clock.ms += age_ms
    if removed:
        remove_response(world)
    before = world.items("requests")

    calls = world.calls_of(lambda: world.call(post()))
    answer, document, headers = world.call(post())

    assert calls == ["PutItem"]
    assert (answer, document["type"]) == (410, "urn:cdk-sagas:problem:idempotency-key-expired")
    assert (document["saga_id"], document["saga_status"], document["http_status"]) == (saga_id, status, code)
    assert headers["Location"].endswith(saga_id)
    assert REPLAYED_HEADER not in headers
    assert world.items("requests") == before
    assert list(world.executions.by_name) == [saga_id]
    assert world.telemetry.counts[Metric.KEY_EXPIRED] == 2


def test_response_is_replayed_until_it_expires(world: World) -> None:
    settled(world, accepted(world), RecordStatus.COMPLETED, '{"first":true}')
    world.clock.ms += 7 * DAY_MS - 1_000

    assert world.call(post())[:2] == (200, {"first": True})


def test_response_that_a_fast_clock_removed_early_is_refused(world: World) -> None:
    settled(world, accepted(world), RecordStatus.COMPLETED, '{"first":true}')
    world.clock.ms += 7 * DAY_MS
    remove_response(world)
    world.clock.ms -= 2_000

    assert world.call(post())[0] == 410


@pytest.mark.parametrize("second_behind_ms", [0, 1, 2_000])
def test_two_retries_at_the_end_of_a_key_start_one_saga(world: World, second_behind_ms: int) -> None:
    first = accepted(world)
    settled(world, first, RecordStatus.COMPLETED, "{}")
    world.clock.ms += 400 * DAY_MS
    remove_response(world)

    anew = accepted(world)
    world.clock.ms -= second_behind_ms

    _, document, _ = world.call(post())
    assert document["saga_id"] == anew
    assert list(world.executions.by_name) == [first, anew]


def test_clocks_apart_at_the_end_of_a_response_disagree_and_nothing_moves(world: World) -> None:
    saga_id = accepted(world)
    settled(world, saga_id, RecordStatus.COMPLETED, '{"first":true}')
    world.clock.ms += 7 * DAY_MS
    before = world.items("requests")

    assert world.call(post())[0] == 410
    world.clock.ms -= 2_000
    assert world.call(post())[:2] == (200, {"first": True})

    assert world.items("requests") == before
    assert list(world.executions.by_name) == [saga_id]


@pytest.mark.parametrize("parked", [False, True])
def test_windows_begin_when_a_saga_settles_however_long_it_runs(world: World, parked: bool) -> None:
    saga_id = accepted(world)
    if parked:
        aws.dynamodb().update_item(**park(request_id=saga_id[:26], execution=saga_id, now_ms=world.clock.ms))
    for _ in range(3):
        world.clock.ms += 200 * DAY_MS
        assert world.call(post())[0] == 409

    settled(world, saga_id, RecordStatus.COMPLETED, '{"first":true}')

    world.clock.ms += 7 * DAY_MS - 1_000
    assert world.call(post())[:2] == (200, {"first": True})
    world.clock.ms += 1_000
    assert world.call(post())[0] == 410
    world.clock.ms += 393 * DAY_MS - 1_000
    assert world.call(post())[0] == 410
    assert list(world.executions.by_name) == [saga_id]


@pytest.mark.parametrize("age_days", [7, 399])
def test_another_body_under_an_expired_key_is_reused(world: World, age_days: int) -> None:
    settled(world, accepted(world), RecordStatus.COMPLETED, "{}")
    world.clock.ms += age_days * DAY_MS
    remove_response(world)

    assert world.call(post({"amount": 1}))[0] == 422


def test_a_status_request_after_the_response_expired_returns_the_outcome(world: World) -> None:
    saga_id = accepted(world)
    settled(world, saga_id, RecordStatus.COMPLETED, '{"first":true}')
    world.clock.ms += 7 * DAY_MS
    expected = (200, {"saga_id": saga_id, "status": "COMPLETED", "steps": [], "http_status": 200})

    assert world.call(get(saga_id))[:2] == expected
    remove_response(world)
    assert world.call(get(saga_id))[:2] == expected


def test_the_same_key_with_another_body_is_refused_whether_running_or_settled(world: World) -> None:
    saga_id = accepted(world)
    other = post({"amount": 1})

    running = world.call(other)[0]
    settled(world, saga_id, RecordStatus.COMPLETED, "{}")

    assert (running, world.call(other)[0]) == (422, 422)


def test_another_spelling_of_the_same_body_is_the_same_request(world: World) -> None:
    saga_id = accepted(world, body='{"amount": 1.50, "to": "b\u00f6b"}')
    world.clock.ms += 1

    status, document, _ = world.call(post(' {"to":"b\\u00f6b","amount":15e-1}'))

    assert (status, document["saga_id"]) == (409, saga_id)


def test_two_callers_with_one_key_have_two_sagas(world: World) -> None:
    assert accepted(world) != accepted(world, principal="AIDABOB")


def test_a_caller_from_another_session_of_the_same_role_is_the_same_caller(world: World) -> None:
    saga_id = accepted(world, principal="AROAROLE:host-1")
    world.clock.ms += 1

    assert world.call(post(principal="AROAROLE:host-2"))[1]["saga_id"] == saga_id


def test_users_of_an_identity_pool_are_callers_of_their_own(world: World) -> None:
    def sent_by(user: str, event: dict[str, Any]) -> dict[str, Any]:
        identity = {"caller": "AROAROLE:CognitoIdentityCredentials", "cognitoIdentityId": user}
        event["requestContext"]["identity"] |= identity
        return event

    of_alice = world.call(sent_by("eu:alice", post()))[1]["saga_id"]
    of_bob = world.call(sent_by("eu:bob", post()))[1]["saga_id"]

    assert of_alice != of_bob
    assert world.call(sent_by("eu:alice", get(of_alice)))[0] == 200
    assert world.call(sent_by("eu:bob", get(of_alice)))[0] == 404


def test_an_ended_execution_is_not_started_again_by_a_duplicate(world: World) -> None:
    saga_id = accepted(world)
    world.executions.end(saga_id, ExecutionStatus.FAILED)
    world.clock.ms += DUE_AFTER_MS

    assert world.call(post())[0] == 409
    assert world.executions.by_name[saga_id].status is ExecutionStatus.FAILED
    assert world.telemetry.counts[Metric.START_FAILED] == 0
