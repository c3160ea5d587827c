"""A crash or a lost response before and after every AWS call of credits, sweeps and holds; then a retry.

The calls are those of an undisturbed run. Each call is disturbed in each way, and its caller retries: a state machine,
a client with the same entry id, the sweeper's schedule. The numbers are printed, and have to agree.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from datetime import timedelta
from itertools import product
from typing import Any

import pytest

from constructs_lib.testing.invariants import assert_all_hold, audit_ledger
from handlers import ledger_sweeper
from saga_runtime import (
    CollectingAccounts,
    Commit,
    DirectEntry,
    DuplicatePosting,
    HoldState,
    Ledger,
    LedgerTerms,
    Money,
    StepCall,
    atomic_step,
)
from saga_runtime.ledger.items import closes_at, window_of
from saga_runtime.protocol import LEDGER_DUE_SHARDS, Env
from tests.unit.support.enumerated import require_all_run
from tests.unit.support.samples import NOW_MS, step_event
from tests.unit.support.transfers import settle_by
from tests.unit.support.wire import Action, Fault, Moment
from tests.unit.support.world import Context, World

pytestmark = pytest.mark.exhaustive

TERMS = LedgerTerms(collecting=(CollectingAccounts(prefix="merchant:", unit="EUR", shards=1),), holds=True)
LEDGER = Ledger("ledger", TERMS)
SHOP = "merchant:7"
TEN = Money(10, "EUR")
READ, WRITE = "BatchGetItem", "TransactWriteItems"
LOOKS = ("Query",) * LEDGER_DUE_SHARDS

CALLS: dict[str, tuple[str, ...]] = {
    "credit in a saga": (WRITE,),
    "payment": (READ, WRITE),
    "sweep": (*LOOKS, READ, WRITE),
    "sweep by need": (READ, READ, READ, WRITE, READ, WRITE),
    "authorize": (READ, WRITE),
    "capture": (READ, WRITE),
    "void": (READ, WRITE),
    "expiry": (*LOOKS, READ, WRITE),
}
"""What each sends; ``test_every_call_is_enumerated`` holds it against the code. The sweeper's order is drawn."""

DISTURBANCES = [
    (Action.KILL, Moment.BEFORE),
    (Action.KILL, Moment.AFTER),
    (Action.DROP, Moment.BEFORE),
    (Action.DROP, Moment.AFTER),
    (Action.THROTTLE, Moment.BEFORE),
    (Action.CONFLICT, Moment.BEFORE),
]


def _ways(party: str) -> list[tuple[str, int, Action, Moment, int]]:
    """Every call, by name and number; once (the SDK heals it), and as often as the SDK tries.

    Of the queries, which differ in the partition only, and come in an order that is drawn, the first and the last.
    """
    numbered, seen = [], Counter[str]()
    for call in CALLS[party]:
        seen[call] += 1
        if call != "Query" or seen[call] in {1, LEDGER_DUE_SHARDS}:
            numbered.append((call, seen[call]))
    return [
        (call, on, action, moment, times)
        for (call, on), (action, moment) in product(numbered, DISTURBANCES)
        for times in ((1,) if action is Action.KILL else (1, 3))
        if action is not Action.CONFLICT or call == WRITE
    ]


MATRIX = [
    pytest.param(party, *way, id=f"{party}: {way[2]} {way[3]} {way[0]} {way[1]} x{way[4]}")
    for party in CALLS
    for way in _ways(party)
]
RAN: set[str] = set()


@dataclass(frozen=True, slots=True, kw_only=True)
class Party:
    """A component that posts, and its expected result.

    Attributes:
        before: the history.
        act: acts once.
        moved: balance of the customer, of the merchant, and the held amount of the customer.
    """

    before: Callable[[World], object]
    act: Callable[[], object]
    moved: tuple[int, int, int]


@atomic_step
def credit_step(call: StepCall) -> Commit:
    """A credit in a saga."""
    return Commit(writes=LEDGER.credit(call, account=SHOP, amount=TEN, clearing="fx"))


def _once(key: str, plan: Callable[[DirectEntry], Any]) -> Callable[[], object]:
    """A client that retries under one entry id until it learns that the posting exists."""

    def act() -> object:
        call = DirectEntry(key)
        try:
            return LEDGER.commit(lambda: plan(call))
        except DuplicatePosting:
            return True

    return act


def _sweeper() -> object:
    swept = ledger_sweeper.handler({}, Context(remaining_ms=240_000))["swept"]
    if not swept and _anything_due():
        raise RuntimeError("the next run will")
    return swept


def _anything_due() -> bool:
    return bool(LEDGER.collected(SHOP).minor_units) or LEDGER.accounts("customer")[0].held > 0


PAY = _once("p-1", lambda call: LEDGER.post(call, [("customer", -TEN), (SHOP, TEN)]))
PAY_OUT = _once("out-1", lambda call: LEDGER.debit(call, account=SHOP, amount=TEN, clearing="bank"))
AUTHORIZE = _once(
    "h-1", lambda call: LEDGER.authorize(call, account="customer", amount=TEN, expires_in=timedelta(minutes=1))
)
CAPTURE = _once("c-1", lambda call: LEDGER.capture(call, account="customer", hold="h-1", legs=[("other", TEN)]))
VOID = _once("v-1", lambda call: LEDGER.void(call, account="customer", hold="h-1"))


def _due_hold(world: World) -> None:
    AUTHORIZE()
    world.clock.ms += 60_000


def _due_shard(world: World) -> None:
    PAY()
    world.clock.ms = closes_at(window_of(NOW_MS))


PARTIES: dict[str, Party] = {
    "credit in a saga": Party(
        before=lambda _: None, act=lambda: credit_step(step_event(step="Credit"), Context()), moved=(500, 10, 0)
    ),
    "payment": Party(before=lambda _: None, act=PAY, moved=(490, 10, 0)),
    "sweep": Party(before=_due_shard, act=_sweeper, moved=(490, 10, 0)),
    "sweep by need": Party(before=lambda _: PAY(), act=PAY_OUT, moved=(490, 0, 0)),
    "authorize": Party(before=lambda _: None, act=AUTHORIZE, moved=(500, 0, 10)),
    "capture": Party(before=lambda _: AUTHORIZE(), act=CAPTURE, moved=(490, 0, 0)),
    "void": Party(before=lambda _: AUTHORIZE(), act=VOID, moved=(500, 0, 0)),
    "expiry": Party(before=_due_hold, act=_sweeper, moved=(500, 0, 0)),
}


@pytest.fixture(autouse=True)
def accounts(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    """The accounts, and what the sweeper finds."""
    monkeypatch.setenv(Env.LEDGER_TERMS, TERMS.to_json())
    world.open_accounts(**{"customer": 500, SHOP: 0, "other": 0})


@pytest.mark.parametrize("name", CALLS)
def test_every_call_is_enumerated(world: World, name: str) -> None:
    PARTIES[name].before(world)
    world.wire.forget()

    PARTIES[name].act()

    assert sorted(world.wire.sent) == sorted(CALLS[name])
    _check(world, name)


@pytest.mark.parametrize(("party", "call", "on", "action", "moment", "times"), MATRIX)
def test_nothing_is_lost_or_made_by_a_disturbance_and_another_try(
    world: World,
    party: str,
    call: str,
    on: int,
    action: Action,
    moment: Moment,
    times: int,
    request: pytest.FixtureRequest,
) -> None:
    PARTIES[party].before(world)
    world.wire.forget()
    world.wire.plan(Fault(operation=call, action=action, moment=moment, on=on, times=times))

    settle_by(PARTIES[party].act)

    assert world.wire.fired, "the fault never struck"
    world.wire.forget()
    _check(world, party)
    settle_by(PARTIES[party].act)
    _check(world, party)
    RAN.add(request.node.name)


def _check(world: World, party: str) -> None:
    shop = LEDGER.accounts(SHOP)[0].balance + LEDGER.collected(SHOP)
    customer = LEDGER.accounts("customer")[0]
    assert (customer.balance.minor_units, shop.minor_units, customer.held) == PARTIES[party].moved
    assert_all_hold(audit_ledger(world.items("ledger")))
    if party in {"sweep", "sweep by need"}:
        assert LEDGER.collected(SHOP).minor_units == 0
    if party == "capture":
        assert LEDGER.hold("customer", "h-1").state is HoldState.CAPTURED


def test_as_many_were_run_as_were_enumerated(request: pytest.FixtureRequest) -> None:
    require_all_run(
        request,
        test_nothing_is_lost_or_made_by_a_disturbance_and_another_try,
        RAN,
        enumerated=len(MATRIX),
        of="crash matrix of the ledger",
    )
