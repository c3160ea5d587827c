"""AWS calls, bytes and units of every path through the library, compared with the page."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from handlers import notifier, outbox
from saga_runtime import Commit, StepCall, Write, atomic_step, compensation, read_only_step
from saga_runtime.callbacks import Heartbeat
from saga_runtime.callbacks.sweeper import sweep
from saga_runtime.protocol import CallField, Env, RecordStatus
from saga_runtime.shared import aws
from tests.unit.outbox.test_outbox import place
from tests.unit.support import intake, wallet
from tests.unit.support.client import accepted, settled
from tests.unit.support.gateway import Shop
from tests.unit.support.metering import metered
from tests.unit.support.samples import DUE_AFTER_MS, get, post, step_event
from tests.unit.support.warehouse import Picking
from tests.unit.support.wire import Action, Fault, Killed
from tests.unit.support.world import Context, World

PAGE = Path(__file__).parents[2] / "docs" / "cost.md"
Act = Callable[[], object]
Path_ = Callable[[World, pytest.MonkeyPatch], Act]


def _commit(name: str) -> Commit:
    put = {"TableName": "ledger", "Item": {"pk": {"S": name}, "sk": {"S": "x"}, "n": {"N": "1"}}}
    return Commit(writes=[Write(action={"Put": put})])


@atomic_step
def _move(_: StepCall) -> Commit:
    return _commit("move")


@compensation
def _move_back(_: StepCall, __: Any) -> Commit:
    return _commit("back")


@read_only_step
def _quote(_: StepCall) -> dict[str, str]:
    return {"price": "2.00"}


def _new(world: World, _: pytest.MonkeyPatch) -> Act:
    return lambda: accepted(world)


def _duplicate(world: World, _: pytest.MonkeyPatch) -> Act:
    accepted(world)
    world.clock.ms += 1
    return lambda: world.call(post())


def _due_duplicate(world: World, _: pytest.MonkeyPatch) -> Act:
    accepted(world)
    world.clock.ms += DUE_AFTER_MS
    return lambda: world.call(post())


def _settled_duplicate(world: World, _: pytest.MonkeyPatch) -> Act:
    settled(world, accepted(world), RecordStatus.COMPLETED, "{}")
    return lambda: world.call(post())


def _look(world: World, _: pytest.MonkeyPatch) -> Act:
    saga_id = accepted(world)
    return lambda: world.call(get(saga_id))


def _settled_look(world: World, _: pytest.MonkeyPatch) -> Act:
    saga_id = accepted(world)
    settled(world, saga_id, RecordStatus.COMPLETED, "{}")
    return lambda: world.call(get(saga_id))


def _direct(world: World, monkeypatch: pytest.MonkeyPatch) -> Act:
    wallet.deploy(monkeypatch)
    world.open_accounts(alice=500, bob=0)
    return wallet.send


def _direct_duplicate(world: World, monkeypatch: pytest.MonkeyPatch) -> Act:
    send = _direct(world, monkeypatch)
    send()
    return send


def _moves(_: World, __: pytest.MonkeyPatch) -> Act:
    return lambda: _move(step_event(step="Only"), Context())


def _moves_again(_: World, __: pytest.MonkeyPatch) -> Act:
    _move(step_event(step="Only"), Context())
    return lambda: _move(step_event(step="Only"), Context())


def _moves_back(_: World, __: pytest.MonkeyPatch) -> Act:
    _move(step_event(step="Only"), Context())
    return lambda: _move_back(step_event(step="Only"), Context())


def _fences(_: World, __: pytest.MonkeyPatch) -> Act:
    return lambda: _move_back(step_event(step="Only"), Context())


def _quotes(_: World, __: pytest.MonkeyPatch) -> Act:
    return lambda: _quote({**step_event(step="Only"), CallField.RECORD: True}, Context())


def _charges(world: World, _: pytest.MonkeyPatch) -> Act:
    return Shop(world).run


def _refunds(world: World, _: pytest.MonkeyPatch) -> Act:
    shop = Shop(world)
    shop.run()
    return shop.undo


def _notifies(_: World, __: pytest.MonkeyPatch) -> Act:
    url = aws.sqs().create_queue(QueueName="told.fifo", Attributes={"FifoQueue": "true"})["QueueUrl"]
    event = {**step_event(step="Only"), CallField.QUEUE_URL: url, CallField.MESSAGE: "paid"}
    return lambda: notifier.handler(event, Context())


def _dispatches(world: World, monkeypatch: pytest.MonkeyPatch) -> Act:
    return Picking(world, monkeypatch).dispatch


def _reports(world: World, monkeypatch: pytest.MonkeyPatch) -> Act:
    picking = Picking(world, monkeypatch)
    picking.dispatch()
    return lambda: picking.job_saga.reports("answer")


def _reports_again(world: World, monkeypatch: pytest.MonkeyPatch) -> Act:
    report = _reports(world, monkeypatch)
    report()
    return report


def _reports_early(world: World, monkeypatch: pytest.MonkeyPatch) -> Act:
    picking = Picking(world, monkeypatch)
    return lambda: picking.job_saga.reports("answer")


def _beats(world: World, monkeypatch: pytest.MonkeyPatch) -> Act:
    picking = Picking(world, monkeypatch)
    picking.dispatch()
    world.clock.ms += 1_000
    return lambda: picking.job_saga.reports("beat", Heartbeat())


def _sweeps(world: World, monkeypatch: pytest.MonkeyPatch) -> Act:
    Picking(world, monkeypatch)
    return lambda: sweep(remaining_ms=lambda: 60_000)


def _delivers(world: World, monkeypatch: pytest.MonkeyPatch) -> Act:
    report = _reports(world, monkeypatch)
    world.wire.plan(Fault(operation="SendTaskSuccess", action=Action.KILL, times=1))
    with pytest.raises(Killed):
        report()
    world.clock.ms += 600_000
    world.wire.forget()
    return lambda: sweep(remaining_ms=lambda: 60_000)


def _receives(world: World, monkeypatch: pytest.MonkeyPatch) -> Act:
    provider = intake.open_intake(world, monkeypatch)
    world.open_accounts(bob=0)
    provider.post({"id": "evt_0", "type": "ping"})  # the secret is read once in five minutes
    return lambda: provider.post(intake.PAID)


def _keeps(world: World, monkeypatch: pytest.MonkeyPatch) -> Act:
    provider = intake.open_intake(world, monkeypatch)
    world.open_accounts(bob=0)
    provider.post({"id": "evt_0", "type": "ping"})
    return lambda: provider.post(intake.REFUNDED)


def _receives_again(world: World, monkeypatch: pytest.MonkeyPatch) -> Act:
    receive = _receives(world, monkeypatch)
    receive()
    return receive


def _publishes(world: World, monkeypatch: pytest.MonkeyPatch) -> Act:
    aws.events().create_event_bus(Name="orders")
    for name, value in {Env.OUTBOX_TABLE: "outbox", Env.OUTBOX_BUS: "orders", Env.OUTBOX_SOURCE: "shop"}.items():
        monkeypatch.setenv(name, value)
    place(step_event(), Context())
    records = [{"eventName": "INSERT", "dynamodb": {"NewImage": row}} for row in world.items("outbox")]
    return lambda: outbox.handler({"Records": records}, Context())


PATHS: dict[str, Path_] = {
    "gatekeeper: a new request": _new,
    "gatekeeper: a duplicate, in progress": _duplicate,
    "gatekeeper: a duplicate, and the saga is due": _due_duplicate,
    "gatekeeper: a duplicate, settled": _settled_duplicate,
    "gatekeeper: `GET`, in progress": _look,
    "gatekeeper: `GET`, settled": _settled_look,
    "direct operation: a new request": _direct,
    "direct operation: a duplicate": _direct_duplicate,
    "atomic step, one item": _moves,
    "atomic step, again": _moves_again,
    "atomic compensation, one item": _moves_back,
    "atomic compensation of a step without a row": _fences,
    "read-only step, recorded": _quotes,
    "external step": _charges,
    "external compensation": _refunds,
    "notification": _notifies,
    "dispatcher: a job": _dispatches,
    "receiver: an outcome": _reports,
    "receiver: the same event again": _reports_again,
    "receiver: an outcome before its task": _reports_early,
    "receiver: a heartbeat": _beats,
    "sweeper: nothing is due": _sweeps,
    "sweeper: an undelivered outcome": _delivers,
    "event intake: a payment": _receives,
    "event intake: the same event again": _receives_again,
    "event intake: a refund before its payment, kept": _keeps,
    "outbox: an event of the stream": _publishes,
}
RECOVERY = "reconciler: an interrupted saga, by its status event"
"""Compared in ``tests/unit/recovery/test_reconciler_calls.py``, whose surroundings it needs."""


def documented() -> dict[str, tuple[str, ...]]:
    """Rows of the table, by their first cell."""
    rows = PAGE.read_text("utf-8").split("<!-- measured: calls -->\n")[1].split("\n\n")[0].splitlines()[2:]
    cells = [[cell.strip() for cell in line.removeprefix("|").removesuffix("|").split("|")] for line in rows]
    return {first: tuple(others) for first, *others in cells}


def test_page_has_each_path_and_no_other() -> None:
    assert list(documented()) == [*PATHS, RECOVERY]


@pytest.mark.parametrize("name", PATHS)
def test_page_has_the_calls_and_units_of_each_path(world: World, monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    act = PATHS[name](world, monkeypatch)

    spent = metered(world, act)

    assert documented().get(name) == spent.row, f"| {name} | {' | '.join(spent.row)} |"
