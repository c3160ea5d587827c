"""Sagas of a state machine with an alias: each first start goes by it, and none depends on it."""

from __future__ import annotations

import pytest

from handlers import gatekeeper
from saga_runtime.protocol import Env, RecordAttribute
from saga_runtime.recovery.takeover import Finding, Recoverer
from saga_runtime.shared import aws
from tests.unit.support.client import accepted
from tests.unit.support.samples import DUE_AFTER_MS, MACHINE_ARN, post
from tests.unit.support.wire import Action, Fault, Moment
from tests.unit.support.world import World


@pytest.fixture(autouse=True)
def alias(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    """The operation's saga has an alias, which exists."""
    monkeypatch.setenv(Env.ALIAS, "live")
    gatekeeper.settings.cache_clear()
    world.executions.aliases = {"live"}


def recover(world: World, saga_id: str) -> Finding:
    """Recover a saga as a reconciler does."""
    recoverer = Recoverer(table="requests", dynamodb=aws.dynamodb(), step_functions=aws.step_functions())
    record = recoverer.read(saga_id[:26])
    assert record is not None
    return recoverer.recover(record, world.clock.ms)[0]


def test_request_starts_its_saga_by_the_alias_in_two_calls(world: World) -> None:
    assert world.calls_of(lambda: world.call(post())) == ["PutItem", "StartExecution"]

    (item,) = world.items("requests")
    (execution,) = world.executions.by_name.values()
    assert item[RecordAttribute.ALIAS] == {"S": "live"}
    assert item[RecordAttribute.EXECUTION_ARN]["S"].startswith(MACHINE_ARN.replace("stateMachine", "execution") + ":")
    assert (execution.machine, execution.alias) == (MACHINE_ARN, "live")


def test_start_that_was_lost_is_repeated_by_the_alias_of_the_record(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    world.wire.plan(Fault(operation="StartExecution", action=Action.DROP))
    saga_id = accepted(world)
    world.wire.forget()
    monkeypatch.delenv(Env.ALIAS)
    gatekeeper.settings.cache_clear()
    world.clock.ms += DUE_AFTER_MS

    world.call(post())

    assert world.executions.by_name[saga_id].alias == "live"


def test_reconciler_starts_what_was_never_started_by_the_alias(world: World) -> None:
    world.wire.plan(Fault(operation="StartExecution", action=Action.DROP))
    saga_id = accepted(world)
    world.wire.forget()
    world.clock.ms += DUE_AFTER_MS

    assert recover(world, saga_id) is Finding.NOT_STARTED

    assert world.executions.by_name[saga_id].alias == "live"


def test_without_the_alias_the_state_machine_itself_is_started(world: World) -> None:
    world.executions.aliases = set()

    assert world.calls_of(lambda: world.call(post())) == ["PutItem", "StartExecution", "StartExecution"]

    (execution,) = world.executions.by_name.values()
    assert (execution.machine, execution.alias) == (MACHINE_ARN, "")


def test_start_whose_answer_is_lost_is_not_repeated_on_the_state_machine(world: World) -> None:
    world.wire.plan(Fault(operation="StartExecution", action=Action.DROP, moment=Moment.AFTER))

    saga_id = accepted(world)

    assert (list(world.executions.by_name), world.executions.elsewhere) == ([saga_id], [])
    assert world.executions.by_name[saga_id].alias == "live"


def test_saga_without_an_alias_keeps_none(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(Env.ALIAS)
    gatekeeper.settings.cache_clear()
    saga_id = accepted(world)

    (item,) = world.items("requests")
    assert RecordAttribute.ALIAS not in item
    assert world.executions.by_name[saga_id].alias == ""
