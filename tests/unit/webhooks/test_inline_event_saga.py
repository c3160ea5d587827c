"""Events that begin an inline saga: Express once, Standard where Express certainly did not start, or is due."""

from __future__ import annotations

import json
from typing import Any

import pytest

from saga_runtime import Begin, event_saga
from saga_runtime.protocol import EXPRESS_MARK, Env, Metric, RecordStatus, StartField
from saga_runtime.shared import aws
from saga_runtime.webhooks import intake
from tests.unit.support.enumerated import require_all_run
from tests.unit.support.executions import Execution
from tests.unit.support.intake import Provider, delivered, open_intake
from tests.unit.support.samples import DUE_AFTER_MS, MACHINE_ARN
from tests.unit.support.settling import settle
from tests.unit.support.wire import SDK_ATTEMPTS, Action, Fault, Killed, Moment
from tests.unit.support.world import Context, World

EXPRESS = f"{MACHINE_ARN}Express"
QUEUE = "https://sqs.eu-central-1.amazonaws.com/111111111111/orders"
FIFO = f"{QUEUE}.fifo"
_DAY_MS = 86_400_000


@event_saga
def handler(event: Any) -> Begin | None:
    """Begin an order."""
    return Begin(key=event["order"], request={"order": event["order"], "amount": event["amount"]})


@pytest.fixture
def provider(world: World, monkeypatch: pytest.MonkeyPatch) -> Provider:
    """The intake of a saga that runs inline."""
    opened = open_intake(world, monkeypatch)
    for name in (Env.REPLAY_SECONDS, Env.REMEMBER_SECONDS):
        monkeypatch.delenv(name)
    monkeypatch.setenv(Env.STATE_MACHINE_ARN, MACHINE_ARN)
    switch(monkeypatch, inline=True)
    world.executions.express_machines.add(EXPRESS)
    world.wire.forget()
    return opened


def switch(monkeypatch: pytest.MonkeyPatch, *, inline: bool) -> None:
    """Deploy the saga with ``Run.INLINE``, or with ``Run.PREPARED``."""
    if inline:
        monkeypatch.setenv(Env.EXPRESS_MACHINE_ARN, EXPRESS)
    else:
        monkeypatch.delenv(Env.EXPRESS_MACHINE_ARN)
    intake.settings.cache_clear()


def deliver(world: World, *orders: tuple[str, int], queue: str = QUEUE) -> list[str] | None:
    """Deliver messages in one batch; those to redeliver, None if the function died. A millisecond passes."""
    world.clock.ms += 1
    group = "g" if queue == FIFO else None
    batch = [
        delivered(queue, json.dumps({"order": order, "amount": amount}), id=f"{at}", group=group)
        for at, (order, amount) in enumerate(orders)
    ]
    try:
        answer = handler({"Records": batch}, Context())
    except Killed:
        return None
    return [each["itemIdentifier"] for each in answer["batchItemFailures"]]


def standard(world: World) -> list[Execution]:
    """Executions of the Standard machine."""
    return [one for one in world.executions.by_name.values() if one.machine == MACHINE_ARN]


def pass_due(world: World) -> None:
    """Let the records in progress become due."""
    world.clock.ms += DUE_AFTER_MS


@pytest.mark.parametrize("queue", [QUEUE, FIFO])
def test_message_reserves_and_starts_express_in_two_calls(provider: Provider, queue: str) -> None:
    world = provider.world

    assert deliver(world, ("o-1", 5), queue=queue) == []

    assert world.wire.sent == ["PutItem", "StartExecution"]
    (record,) = provider.records()
    (execution,) = world.executions.express
    assert (execution.name, execution.input) == (record.saga_id, record.input)
    assert json.loads(record.input)[StartField.DEFINITION].endswith(EXPRESS_MARK)
    assert standard(world) == []


def test_redelivery_before_it_is_due_starts_nothing(provider: Provider) -> None:
    world = provider.world
    deliver(world, ("o-1", 5))

    assert deliver(world, ("o-1", 5), ("o-1", 5)) == []

    assert len(world.executions.express) == 1
    assert standard(world) == []
    assert world.telemetry.counts[Metric.EVENT_DUPLICATE] == 2


def test_redelivery_after_it_is_due_starts_standard_by_the_sagas_name(provider: Provider) -> None:
    world = provider.world
    deliver(world, ("o-1", 5))
    pass_due(world)

    assert deliver(world, ("o-1", 5)) == []
    assert deliver(world, ("o-1", 5)) == []

    (record,) = provider.records()
    assert [(one.name, one.input) for one in standard(world)] == [(record.saga_id, record.input)]
    assert len(world.executions.express) == 1


def test_message_of_a_settled_saga_that_comes_a_day_late_starts_nothing(provider: Provider) -> None:
    world = provider.world
    deliver(world, ("o-1", 5))
    (record,) = provider.records()
    settles = settle(
        request_id=record.request_id,
        execution=record.saga_id,
        status=RecordStatus.FAILED,
        now_ms=world.clock.ms,
        body="{}",
    )
    aws.dynamodb().update_item(**settles)
    world.clock.ms += _DAY_MS

    assert deliver(world, ("o-1", 5)) == []

    assert len(world.executions.express) == 1
    assert standard(world) == []


@pytest.mark.parametrize("due", [False, True])
def test_redelivery_with_another_body_is_parked(provider: Provider, due: bool) -> None:
    world = provider.world
    deliver(world, ("o-1", 5))
    if due:
        pass_due(world)

    assert deliver(world, ("o-1", 6)) == []

    assert len(provider.messages(provider.parked)) == 1
    assert len(world.executions.express) == 1
    assert standard(world) == []


@pytest.mark.parametrize("action", [Action.THROTTLE, Action.DENY, Action.MISSING])
def test_standard_starts_where_express_is_refused(provider: Provider, action: Action) -> None:
    world = provider.world
    times = SDK_ATTEMPTS if action is Action.THROTTLE else 1  # the SDK repeats no other refusal
    world.wire.plan(Fault(operation="StartExecution", action=action, times=times))

    assert deliver(world, ("o-1", 5)) == []

    assert world.executions.express == []
    (record,) = provider.records()
    assert [(one.name, one.input) for one in standard(world)] == [(record.saga_id, record.input)]
    assert world.telemetry.counts[Metric.INLINE_NOT_STARTED] == 1


def test_message_comes_again_where_both_machines_refuse(provider: Provider) -> None:
    world = provider.world
    world.wire.plan(Fault(operation="StartExecution", action=Action.DENY, times=1_000))

    assert deliver(world, ("o-1", 5), ("o-2", 5)) == ["0", "1"]

    assert world.telemetry.counts[Metric.START_REFUSED] == 2
    world.wire.forget()
    pass_due(world)
    assert deliver(world, ("o-1", 5), ("o-2", 5)) == []
    assert len(standard(world)) == 2


def test_batch_redelivers_only_what_failed(provider: Provider) -> None:
    world = provider.world
    world.wire.plan(Fault(operation="PutItem", action=Action.THROTTLE))

    assert deliver(world, ("o-1", 5), ("o-2", 5)) == ["0"]

    assert [json.loads(one.input)["request"] for one in world.executions.express] == [
        json.dumps({"amount": 5, "order": "o-2"}, separators=(",", ":"))
    ]
    assert deliver(world, ("o-1", 5)) == []
    assert len(world.executions.express) == 2


def test_fifo_batch_redelivers_what_is_behind_a_failure(provider: Provider) -> None:
    world = provider.world
    world.wire.plan(Fault(operation="PutItem", action=Action.THROTTLE))

    assert deliver(world, ("o-1", 5), ("o-2", 5), queue=FIFO) == ["0", "1"]
    assert deliver(world, ("o-1", 5), ("o-2", 5), queue=FIFO) == []
    assert len(world.executions.express) == 2


def test_prepared_saga_begins_in_standard_and_one_of_express_waits_until_due(
    provider: Provider, monkeypatch: pytest.MonkeyPatch
) -> None:
    world = provider.world
    deliver(world, ("o-1", 5))
    switch(monkeypatch, inline=False)

    assert deliver(world, ("o-1", 5), ("o-2", 5), ("o-2", 5)) == []

    (execution,) = standard(world)
    assert EXPRESS_MARK not in json.loads(execution.input)[StartField.DEFINITION]
    switch(monkeypatch, inline=True)
    assert deliver(world, ("o-2", 5)) == []
    assert len(world.executions.express) == 1
    pass_due(world)
    assert deliver(world, ("o-1", 5)) == []
    assert len(standard(world)) == 2


CALLS = ("PutItem", "StartExecution")
MATRIX = [(call, action, moment) for call in CALLS for action in (Action.KILL, Action.DROP) for moment in Moment]
RAN: set[str] = set()


@pytest.mark.exhaustive
@pytest.mark.parametrize(("call", "action", "moment"), MATRIX)
def test_deleted_message_has_a_record_and_its_saga_starts_when_due(
    provider: Provider, call: str, action: Action, moment: Moment, request: pytest.FixtureRequest
) -> None:
    world = provider.world
    times = 1 if action is Action.KILL else 1_000
    world.wire.plan(Fault(operation=call, action=action, moment=moment, times=times))

    first = deliver(world, ("o-1", 5))

    assert world.wire.fired
    world.wire.forget()
    assert first in (None, ["0"]) or provider.records(), "a message was deleted without a record"
    assert deliver(world, ("o-1", 5)) == []
    pass_due(world)
    assert deliver(world, ("o-1", 5)) == []
    (record,) = provider.records()
    names = {one.name for one in (*world.executions.express, *standard(world))}
    inputs = {one.input for one in (*world.executions.express, *standard(world))}
    assert (names, inputs) == ({record.saga_id}, {record.input})
    RAN.add(request.node.name)


def test_as_many_were_run_as_were_enumerated(request: pytest.FixtureRequest) -> None:
    require_all_run(
        request,
        test_deleted_message_has_a_record_and_its_saga_starts_when_due,
        RAN,
        enumerated=len(MATRIX),
        of="crash matrix of messages that begin an inline saga",
    )
