"""A crash or a lost answer before and after every AWS call of gatekeeper, step and compensation; then a retry.

What is enumerated is what an undisturbed run sends. Each call is disturbed in each way, and the party that was served
by it tries again, as a client or a state machine does. The numbers are printed, and have to agree.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from itertools import product
from typing import Any

import pytest

from handlers import gatekeeper
from tests.unit.support.enumerated import require_all_run
from tests.unit.support.samples import DUE_AFTER_MS, SAGA_ID, post
from tests.unit.support.transfers import run, settle_by, undo
from tests.unit.support.wire import Action, Fault, Moment
from tests.unit.support.world import World

pytestmark = pytest.mark.exhaustive

CALLS: dict[str, tuple[str, ...]] = {
    "gatekeeper": ("PutItem", "StartExecution"),
    "gatekeeper's duplicate": ("PutItem", "StartExecution"),
    "step": ("BatchGetItem", "TransactWriteItems"),
    "step's duplicate": ("BatchGetItem", "TransactWriteItems"),
    "compensation": ("GetItem", "BatchGetItem", "TransactWriteItems"),
    "burial": ("GetItem", "PutItem"),
}
"""What each party sends, in order; ``test_every_call_is_enumerated`` holds it against the parties."""

DISTURBANCES = [
    (Action.KILL, Moment.BEFORE),
    (Action.KILL, Moment.AFTER),
    (Action.DROP, Moment.BEFORE),
    (Action.DROP, Moment.AFTER),
    (Action.THROTTLE, Moment.BEFORE),
]


def _repeats(call: str, action: Action) -> tuple[int, ...]:
    """Once (the SDK repairs a lost response), as often as the SDK retries, and as often as the runtime does."""
    if action is Action.KILL:
        return (1,)
    return (1, 3, 24) if call == "TransactWriteItems" else (1, 3)


MATRIX = [
    pytest.param(party, call, action, moment, times, id=f"{party}: {action} {moment} {call} x{times}")
    for party, calls in CALLS.items()
    for call, (action, moment) in product(calls, DISTURBANCES)
    for times in _repeats(call, action)
]
RAN: set[str] = set()


@dataclass(frozen=True, slots=True, kw_only=True)
class Party:
    """A component that makes AWS calls."""

    before: Callable[[World], object]
    act: Callable[[World], object]


def _send(world: World) -> int:
    return int(gatekeeper.handler(post(), None)["statusCode"])


def _accepted(world: World) -> object:
    """A client that retries, at growing intervals, until its response is not a 503."""
    for _ in range(20):
        world.clock.ms += DUE_AFTER_MS
        status = settle_by(_send, world)
        if status != 503:
            return status
    raise AssertionError("never accepted")


PARTIES: dict[str, Party] = {
    "gatekeeper": Party(before=lambda _: None, act=_accepted),
    "gatekeeper's duplicate": Party(before=_accepted, act=_accepted),
    "step": Party(before=lambda _: None, act=lambda _: settle_by(run)),
    "step's duplicate": Party(before=lambda _: run(), act=lambda _: settle_by(run)),
    "compensation": Party(before=lambda _: run(), act=lambda _: settle_by(undo)),
    "burial": Party(before=lambda _: None, act=lambda _: settle_by(undo)),
}


@pytest.fixture(autouse=True)
def accounts(world: World) -> None:
    """Two accounts, as the sample request wants them."""
    world.open_accounts(alice=500, bob=0)
    world.wire.forget()


@pytest.mark.parametrize("name", CALLS)
def test_every_call_is_enumerated(world: World, name: str) -> None:
    PARTIES[name].before(world)
    world.wire.forget()

    PARTIES[name].act(world)

    assert tuple(world.wire.sent) == CALLS[name]


@pytest.mark.parametrize(("party", "call", "action", "moment", "times"), MATRIX)
def test_the_invariants_hold_after_a_disturbance_and_a_retry(
    world: World, party: str, call: str, action: Action, moment: Moment, times: int, request: pytest.FixtureRequest
) -> None:
    PARTIES[party].before(world)
    world.wire.plan(Fault(operation=call, action=action, moment=moment, times=times))

    PARTIES[party].act(world)

    assert world.wire.fired, "the fault never struck"
    world.wire.forget()
    _check(world, party)
    RAN.add(request.node.name)


def _check(world: World, party: str) -> None:
    if party.startswith("gatekeeper"):
        _accepted(world)  # one more duplicate heals a start that was lost last
        assert len(world.items("requests")) == 1
        assert len(world.executions.by_name) == 1
        return
    moved: Any = {"alice": 300, "bob": 200} if party.startswith("step") else {"alice": 500, "bob": 0}
    row = {"compensation": "COMPENSATED", "burial": "TOMBSTONE"}.get(party, "DONE")
    assert world.balances() == moved
    assert world.rows() == {f"{SAGA_ID}#Transfer": row}


def test_as_many_were_run_as_were_enumerated(request: pytest.FixtureRequest) -> None:
    require_all_run(
        request,
        test_the_invariants_hold_after_a_disturbance_and_a_retry,
        RAN,
        enumerated=len(MATRIX),
        of="crash matrix",
    )
