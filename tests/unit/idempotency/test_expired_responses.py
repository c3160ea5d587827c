"""Expired responses are removed with their requests; nothing else is, whatever the index returns."""

from __future__ import annotations

import contextlib
import json
from typing import Any

import pytest

from handlers import reconciler as entry
from saga_runtime.idempotency.identity import request_id_from
from saga_runtime.idempotency.record import RequestRecord, remove_response_update
from saga_runtime.protocol import Env, Look, LookField, RecordAttribute, RecordStatus
from saga_runtime.recovery.expired_responses import Remover
from saga_runtime.recovery.hold import HOLD_KEY, KEPT_MS, hold_key
from saga_runtime.shared import aws
from tests.unit.support.checked_stack import create_hold_table
from tests.unit.support.client import accepted, settled
from tests.unit.support.samples import BODY, DAY_MS, post
from tests.unit.support.settling import settle
from tests.unit.support.wire import Action, Fault, Killed, Moment
from tests.unit.support.world import Context, World, table_of

A = RecordAttribute
CONTENT = {A.INPUT, A.RESPONSE, A.FAILURE, A.PARKED_REASON, A.AMOUNT, A.CURRENCY}


@pytest.fixture(autouse=True)
def reconciled(world: World, monkeypatch: pytest.MonkeyPatch) -> World:
    """A reconciler of two sagas that share a table."""
    rest: dict[str, Any] = {"requests": "requests", "log": "log", "days": 400, "operators": "queue", "tokens": {}}
    sagas = [{"machine": "Transfers", "shards": 16, **rest}, {"machine": "Payouts", "shards": 2, **rest}]
    monkeypatch.setenv(Env.RECONCILED, json.dumps(sagas))
    monkeypatch.setenv(Env.RECOVERIES_LIMIT, "3")
    return world


def measured(remaining_ms: int = 60_000) -> None:
    """Call the reconciler as its schedule for measuring does."""
    entry.handler({LookField.LOOK: Look.IN_FLIGHT}, Context(remaining_ms=remaining_ms))


def item_of(world: World) -> dict[str, Any]:
    (item,) = world.items("requests")
    return item


def test_expired_response_is_removed_with_its_request(world: World) -> None:
    saga_id = accepted(world)
    aws.dynamodb().update_item(
        TableName="requests",
        Key={A.ID: {"S": request_id_from(saga_id)}},
        UpdateExpression="SET #f = :f, #s = :f, #a = :a, #c = :c",
        ExpressionAttributeNames={
            "#f": A.FAILURE,
            "#s": A.PARKED_REASON,
            "#a": A.AMOUNT,
            "#c": A.CURRENCY,
        },
        ExpressionAttributeValues={":f": {"S": "{}"}, ":a": {"N": "1"}, ":c": {"S": "EUR"}},
    )
    settled(world, saga_id, RecordStatus.FAILED, '{"iban":"DE00"}')
    before = item_of(world)
    world.clock.ms += 7 * DAY_MS

    measured()

    after = item_of(world)
    assert set(before) - set(after) == CONTENT | {A.RESPONSE_SHARD}
    assert after == {name: before[name] for name in after}
    assert "DE00" not in str(after)
    assert str(BODY["amount"]) not in str(after)
    record = RequestRecord.from_item(after)
    assert (record.tombstone, record.status, record.http_status) == (True, RecordStatus.FAILED, 422)
    assert ("responses_removed", {"removed": 1, "complete": True}) in world.telemetry.events


def test_response_that_is_replayed_stays(world: World) -> None:
    settled(world, accepted(world), RecordStatus.COMPLETED, "{}")
    before = item_of(world)
    world.clock.ms += 7 * DAY_MS - 1_000

    measured()

    assert item_of(world) == before


def test_record_in_progress_is_kept_at_any_age(world: World) -> None:
    accepted(world)
    before = item_of(world)
    world.clock.ms += 500 * DAY_MS

    measured()

    assert item_of(world) == before


def test_removing_twice_is_removing_once(world: World) -> None:
    settled(world, accepted(world), RecordStatus.COMPLETED, "{}")
    world.clock.ms += 7 * DAY_MS
    measured()
    after = item_of(world)

    calls = world.calls_of(measured)

    assert item_of(world) == after
    assert "UpdateItem" not in calls
    aws.dynamodb().update_item(TableName="requests", **remove_response_update(after["id"]["S"], world.clock.ms))
    assert item_of(world) == after


def test_index_that_is_behind_removes_nothing_of_the_saga_that_has_the_key_now(world: World) -> None:
    settled(world, accepted(world), RecordStatus.COMPLETED, "{}")
    world.clock.ms += 401 * DAY_MS
    accepted(world)
    before = item_of(world)
    remover = Remover(tables={"requests": 16}, remaining_ms=lambda: 60_000)

    remover._remove("requests", world.clock.ms, before["id"]["S"], False)

    assert (item_of(world), remover.removed) == (before, 0)


def test_index_that_is_behind_creates_nothing(world: World) -> None:
    remover = Remover(tables={"requests": 16}, remaining_ms=lambda: 60_000)

    remover._remove("requests", world.clock.ms, "a" * 26, False)

    assert world.items("requests") == []


def test_settle_of_a_record_without_a_shard_is_found_in_the_first_one(world: World) -> None:
    saga_id = accepted(world)
    aws.dynamodb().update_item(
        TableName="requests",
        Key={A.ID: {"S": request_id_from(saga_id)}},
        UpdateExpression="REMOVE #s, #d",
        ExpressionAttributeNames={"#s": A.DUE_SHARD, "#d": A.DUE_AT},
    )
    update = settle(
        request_id=request_id_from(saga_id), execution=saga_id, status=RecordStatus.COMPLETED, now_ms=world.clock.ms
    )
    aws.dynamodb().update_item(**update)
    assert item_of(world)[A.RESPONSE_SHARD] == {"S": "00"}
    world.clock.ms += 7 * DAY_MS

    measured()

    assert RequestRecord.from_item(item_of(world)).tombstone


def test_response_of_a_held_saga_stays_until_it_is_released(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    create_hold_table()
    monkeypatch.setenv(Env.HOLD_TABLE, "hold")
    held, other = accepted(world, key="held"), accepted(world, key="other")
    for saga_id in (held, other):
        settled(world, saga_id, RecordStatus.COMPLETED, "{}")
    aws.dynamodb().put_item(TableName="hold", Item={**hold_key(held)})
    world.clock.ms += 7 * DAY_MS

    def tombstones() -> set[str]:
        records = map(RequestRecord.from_item, world.items("requests"))
        return {record.saga_id for record in records if record.tombstone}

    measured()
    assert tombstones() == {other}

    aws.dynamodb().delete_item(TableName="hold", Key=hold_key(held))
    measured()
    assert tombstones() == {held, other}


def test_responses_of_every_shard_and_table_are_removed(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    for number in range(60):
        settled(world, accepted(world, key=f"k{number}"), RecordStatus.COMPLETED, "{}")
    aws.dynamodb().create_table(**table_of("others", "requests"))
    aws.dynamodb().put_item(TableName="others", Item=world.items("requests")[0])
    monkeypatch.setenv(
        Env.RECONCILED,
        json.dumps([one | {"requests": table} for one in json.loads(_told()) for table in ("requests", "others")]),
    )
    world.clock.ms += 8 * DAY_MS

    measured()

    records = [RequestRecord.from_item(item) for table in ("requests", "others") for item in world.items(table)]
    assert len(records) == 61
    assert all(record.tombstone for record in records)
    assert ("responses_removed", {"removed": 61, "complete": True}) in world.telemetry.events


def _told() -> str:
    rest: dict[str, Any] = {"log": "log", "days": 400, "operators": "queue", "tokens": {}}
    return json.dumps([{"machine": "Transfers", "shards": 16, "requests": "", **rest}])


def test_nothing_is_removed_when_no_time_is_left(world: World) -> None:
    settled(world, accepted(world), RecordStatus.COMPLETED, "{}")
    before = item_of(world)
    world.clock.ms += 8 * DAY_MS

    measured(remaining_ms=6_000)

    assert item_of(world) == before
    assert ("responses_removed", {"removed": 0, "complete": False}) in world.telemetry.events


def test_held_reconciler_removes_nothing(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    create_hold_table()
    monkeypatch.setenv(Env.HOLD_TABLE, "hold")
    aws.dynamodb().put_item(TableName="hold", Item=HOLD_KEY)
    settled(world, accepted(world), RecordStatus.COMPLETED, "{}")
    before = item_of(world)
    world.clock.ms += 8 * DAY_MS

    measured()
    assert item_of(world) == before

    aws.dynamodb().delete_item(TableName="hold", Key=HOLD_KEY)
    world.clock.ms += KEPT_MS
    measured()
    assert RequestRecord.from_item(item_of(world)).tombstone


def test_failed_removal_is_logged_and_retried_later(world: World) -> None:
    settled(world, accepted(world), RecordStatus.COMPLETED, "{}")
    before = item_of(world)
    world.clock.ms += 8 * DAY_MS
    world.wire.plan(Fault(operation="UpdateItem", action=Action.THROTTLE, times=100))

    measured()
    assert item_of(world) == before
    events = world.telemetry.events
    assert [fields["code"] for name, fields in events if name == "remove_failed"] == ["ThrottlingException"]

    world.wire.forget()
    measured()
    assert RequestRecord.from_item(item_of(world)).tombstone


@pytest.mark.parametrize("action", [Action.KILL, Action.DROP])
@pytest.mark.parametrize("moment", list(Moment))
def test_removal_that_is_cut_off_is_done_once_by_the_next_one(world: World, action: Action, moment: Moment) -> None:
    settled(world, accepted(world), RecordStatus.COMPLETED, "{}")
    before = item_of(world)
    world.clock.ms += 8 * DAY_MS
    world.wire.plan(Fault(operation="UpdateItem", action=action, moment=moment, times=100))

    with contextlib.suppress(Killed):
        measured()
    assert (item_of(world) == before) is (moment is Moment.BEFORE)
    assert world.call(post())[0] == 410

    world.wire.forget()
    measured()
    assert RequestRecord.from_item(item_of(world)).tombstone
    assert world.call(post())[0] == 410


def test_a_tombstone_is_never_recovered(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(Env.LONGEST_LOOK, "900")
    saga_id = accepted(world)
    settled(world, saga_id, RecordStatus.COMPLETED, "{}")
    world.clock.ms += 8 * DAY_MS
    measured()
    before = item_of(world)
    ended = {"messageId": "1", "body": json.dumps({"detail": {"name": saga_id}})}

    assert world.calls_of(lambda: entry.handler({"Records": [ended]}, Context())) == ["GetItem"]
    aws.dynamodb().update_item(
        TableName="requests",
        Key={A.ID: before["id"]},
        UpdateExpression="SET #d = :now, #s = :shard",
        ExpressionAttributeNames={"#d": A.DUE_AT, "#s": A.DUE_SHARD},
        ExpressionAttributeValues={":now": {"N": str(world.clock.ms)}, ":shard": {"S": "00"}},
    )
    entry.handler({}, Context())

    assert item_of(world) == before
    assert list(world.executions.by_name) == [saga_id]


def test_response_of_another_spelling_of_the_request_is_refused_after_its_removal(world: World) -> None:
    settled(world, accepted(world), RecordStatus.COMPLETED, "{}")
    world.clock.ms += 8 * DAY_MS
    measured()

    assert world.call(post(json.dumps(BODY, indent=2)))[0] == 410
