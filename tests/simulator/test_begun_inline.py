"""Messages begin transfers that run inline: redelivered, by two queues, a day late, with another request."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from random import Random
from typing import Any, Final

import pytest

from constructs_lib.testing.invariants import Invariant
from constructs_lib.testing.simulator import Deployment, World, break_each_call, simulate
from constructs_lib.testing.simulator.aws.dynamodb import Condition, Table, clauses_of, without
from constructs_lib.testing.simulator.engine.kernel import SECOND
from saga_runtime.idempotency.identity import parse_json
from saga_runtime.protocol import RecordAttribute, StartField

from .begun.stack import OPERATION
from .examples import assembly_of
from .workloads.transfers import InlineTransfers

pytestmark = pytest.mark.proof

_DAY: Final = 86_400 * SECOND
_SOON: Final = (0, 0, SECOND // 10, SECOND, 30 * SECOND, 90 * SECOND)
"""Delays of a message: before, while and after its transfer runs, and after that is due."""


def _transfers(app: Any, run: str) -> object:
    from constructs_lib import Run

    from .begun.stack import BegunTransferStack

    return BegunTransferStack(app, "FundsTransfer", run=Run[run])


def _deployment(run: str) -> Deployment:
    return Deployment.of_assembly(assembly_of(_transfers, run))


@pytest.fixture
def inline() -> Iterator[Deployment]:
    with _deployment("INLINE") as deployment:
        yield deployment


class _Ordered(InlineTransfers):
    """Transfers of clients, and transfers that messages begin.

    Args:
        orders: how many of these there are.
        contradicted: whether a message with another request is sent under each key.
    """

    def __init__(self, orders: int, *, contradicted: bool = True) -> None:
        self._orders = orders
        self._contradicted = contradicted

    def prepare(self, world: World, random: Random) -> None:
        super().prepare(world, random)
        self._last = world.kernel.now
        self._sent: dict[str, set[str]] = {}
        drawn = Random(random.getrandbits(64))
        for number in range(self._orders):
            body = dict(super().intent(number, drawn).body)
            key = f"order-{number}"
            self._send(world, key, body, "QueueUrl", drawn.choice(_SOON))
            self._send(world, key, body, "FifoUrl", drawn.choice(_SOON))
            self._send(world, key, body, "QueueUrl", drawn.choice((*_SOON, _DAY)))
            if self._contradicted:
                self._send(world, key, {**body, "amount": 7}, "QueueUrl", drawn.choice((*_SOON, _DAY)))

    def _send(self, world: World, key: str, body: dict[str, Any], queue: str, delay: int) -> None:
        message = {"id": f"{key}-{len(self._sent)}", "key": key, "transfer": body}
        self._sent.setdefault(key, set()).add(_text(body))
        self._last = max(self._last, world.kernel.now + delay)
        address = world.output(queue)
        world.kernel.after(delay, lambda: world.queues.send(address, json.dumps(message), group=body["from"]))

    def has_sent(self, world: World) -> bool:
        return world.kernel.now > self._last

    def audit(self, world: World) -> Iterable[Invariant]:
        yield from super().audit(world)
        begun: dict[str, list[str]] = {}
        for record in world.table(world.output("RequestTableName")):
            if record[RecordAttribute.OPERATION]["S"] == OPERATION:
                request = json.loads(record[RecordAttribute.INPUT]["S"])[StartField.REQUEST]
                begun.setdefault(_text(parse_json(request)), []).append(request)
        dead = " ".join(_bodies(world, "QueueDeadUrl", "FifoDeadUrl"))
        parked = [json.loads(body) for body in _bodies(world, "ParkedUrl")]
        aside = {(one["key"], _text(one["transfer"])) for one in map(_own, parked)}
        wrong = []
        for key, requests in self._sent.items():
            left = {request for request in requests if (key, request) not in aside}
            if len(left) != 1 and key not in dead:
                wrong.append(f"{key}: {len(left)} of its requests are not parked, and one should not be")
            wrong += [f"{key}: its request has no record" for one in left if one not in begun and key not in dead]
        number = sum(map(len, begun.values()))
        if number > self._orders:
            wrong.append(f"{number} sagas of {self._orders} orders")
        yield Invariant(name="messages begin one saga per key", checked=self._orders, violations=tuple(wrong))


def _text(body: Any) -> str:
    return json.dumps(body, sort_keys=True)


def _own(message: dict[str, Any]) -> dict[str, Any]:
    """A parked message as it was sent: one of a queue of its own is wrapped."""
    wrapped = message.get("cdk_sagas_message", message)
    found: dict[str, Any] = json.loads(wrapped) if isinstance(wrapped, str) else wrapped
    return found


def _bodies(world: World, *queues: str) -> list[str]:
    return [message.body for name in queues for message in world.queues.queue(world.output(name)).messages]


def test_messages_begin_inline_transfers_once(inline: Deployment) -> None:
    report = simulate(inline, _Ordered(6), sagas=60)

    report.require_kept()
    assert report.coverage.events["EventDuplicate"] > 20


@pytest.mark.parametrize("seed", [19, 2, 17])
def test_message_keeps_its_promise_whichever_call_of_its_reader_breaks(inline: Deployment, seed: int) -> None:
    (reader,) = (name for name in inline.blueprint.functions if "Reader" in name)

    report = break_each_call(inline, _Ordered(1), seed=seed, of=[reader])

    report.require_kept()
    calls = {where.partition(" ")[2] for where, _ in report.coverage.faults}
    assert {"dynamodb:PutItem", "stepfunctions:StartExecution"} <= calls


@pytest.mark.parametrize("seed", [19, 2, 17])
def test_message_keeps_its_promise_whichever_drawn_call_breaks(inline: Deployment, seed: int) -> None:
    break_each_call(inline, _Ordered(1, contradicted=False), seed=seed, drawn=15).require_kept()


@pytest.mark.parametrize("runs", [("STANDARD", "PREPARED", "INLINE"), ("INLINE", "PREPARED", "STANDARD")], ids="-".join)
def test_messages_are_taken_while_the_saga_is_switched(runs: tuple[str, ...]) -> None:
    with _deployment(runs[0]) as before, _deployment(runs[1]) as between, _deployment(runs[2]) as after:
        report = simulate(before, _Ordered(3), sagas=40, releases=[between, after])

    report.require_kept()


def test_messages_are_taken_while_a_deployment_is_rolled_back() -> None:
    with _deployment("STANDARD") as before, _deployment("INLINE") as after:
        report = simulate(before, _Ordered(3), sagas=40, releases=[after, before, after])

    report.require_kept()


class _Weakened(_Ordered):
    """The same, with reservations that replace each other."""

    def prepare(self, world: World, random: Random) -> None:
        super().prepare(world, random)
        world.db.rewrite = _without_reservation


def _without_reservation(table: Table, _text: str, condition: Condition) -> Condition:
    if "Requests" in table.name:
        for clause in list(clauses_of(condition)):
            if str(clause) == "attribute_not_exists(#id)":
                condition = without(condition, clause)
    return condition


def test_saga_that_begins_twice_is_found(inline: Deployment) -> None:
    assert simulate(inline, _Weakened(3), sagas=30).violated
