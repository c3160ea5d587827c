"""Every AWS call of every operation of the wallet is killed or disturbed; and a bank runs under 5 % faults."""

from __future__ import annotations

import json
import random
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from itertools import product
from typing import Any

import pytest

from examples.wallet.functions.wallet import stripe
from saga_runtime.protocol import REPLAYED_HEADER
from tests.unit.support.enumerated import require_all_run
from tests.unit.support.wallets import CARD, FRIEND, SHOP, Wallet, open_wallet
from tests.unit.support.wire import Action, Fault, Moment
from tests.unit.support.world import World

WRITE, STORE = "TransactWriteItems", "PutItem"
PAY = {"card": CARD, "merchant": SHOP, "amount": 50}
Effect = tuple[int, int, int]
"""ECOPAY of the card, of the friend and of the shop."""
CASES: dict[str, tuple[str, dict[str, Any], int, Effect, tuple[str, ...]]] = {
    "pay": ("terminal/payments", PAY, 200, (35, 0, 85), (WRITE,)),
    "top up": ("terminal/top-ups", {"card": CARD, "amount": 10}, 200, (97, 0, 35), (WRITE,)),
    "refund": ("merchant/refunds", {"card": CARD, "merchant": SHOP, "amount": 35}, 200, (120, 0, 0), (WRITE,)),
    "transfer": (
        "customer/transfers",
        {"card": CARD, "to": FRIEND, "amount": 5, "unit": "ECOPAY"},
        200,
        (80, 5, 35),
        (WRITE,),
    ),
    "pay too much": ("terminal/payments", {**PAY, "amount": 86}, 400, (85, 0, 35), (WRITE, STORE)),
    "exceed the cap": ("terminal/top-ups", {"card": CARD, "amount": 900}, 400, (85, 0, 35), (STORE,)),
}
"""Path, body, status, balances afterwards, calls."""
DISTURBANCES = [
    *product((Action.KILL, Action.DROP), Moment),
    (Action.THROTTLE, Moment.BEFORE),
    (Action.CONFLICT, Moment.BEFORE),
]
MATRIX = [
    (case, call, action, moment, times)
    for case, (*_, calls) in CASES.items()
    for call in calls
    for action, moment in DISTURBANCES
    if action is not Action.CONFLICT or call == WRITE
    for times in ((1,) if action is Action.KILL else (1, 3, 1_000))
]
RAN: set[str] = set()


def _prepared(world: World, monkeypatch: pytest.MonkeyPatch, case: str) -> tuple[Wallet, dict[str, Any]]:
    """The wallet: the card paid 35 of its 120; and the body of the case."""
    wallet = open_wallet(world, monkeypatch)
    payment = wallet.result("terminal/payments", {**PAY, "amount": 35}, key="first")["payment"]
    world.wire.forget()
    world.clock.ms += 1
    body = CASES[case][1]
    return wallet, {**body, "payment": payment} if case == "refund" else body


def _effect(wallet: Wallet) -> Effect:
    return wallet.balance(CARD), wallet.balance(FRIEND), wallet.balance(SHOP)


@pytest.mark.parametrize("case", CASES)
def test_every_call_is_enumerated(world: World, monkeypatch: pytest.MonkeyPatch, case: str) -> None:
    wallet, body = _prepared(world, monkeypatch, case)
    path, _, status, effect, calls = CASES[case]

    assert wallet.status(path, body) == status
    assert tuple(wallet.world.wire.sent) == calls
    assert _effect(wallet) == effect


@pytest.mark.exhaustive
@pytest.mark.parametrize(("case", "call", "action", "moment", "times"), MATRIX)
def test_an_operation_has_its_effect_once_and_one_response(
    world: World,
    monkeypatch: pytest.MonkeyPatch,
    case: str,
    call: str,
    action: Action,
    moment: Moment,
    times: int,
    request: pytest.FixtureRequest,
) -> None:
    wallet, body = _prepared(world, monkeypatch, case)
    path, _, status, effect, _ = CASES[case]
    world.wire.plan(Fault(operation=call, action=action, moment=moment, times=times))

    first = wallet.send(path, body)

    assert world.wire.fired, "the fault never struck"
    world.wire.forget()
    wallet.audit()
    if first is not None and first["statusCode"] == 200:
        assert _effect(wallet) == effect
    world.clock.ms += 1
    second, third = wallet.send(path, body), wallet.send(path, body)
    assert second is not None
    assert third is not None
    assert second["statusCode"] == third["statusCode"] == status
    finals = {a["body"] for a in (first, second, third) if a is not None and a["statusCode"] != 503}
    assert finals == {third["body"]}
    assert third["headers"][REPLAYED_HEADER] == "true"
    assert _effect(wallet) == effect
    assert wallet.status(path, {**body, "amount": 1}) == 422
    wallet.audit()
    RAN.add(request.node.name)


def test_as_many_were_run_as_were_enumerated(request: pytest.FixtureRequest) -> None:
    require_all_run(
        request,
        test_an_operation_has_its_effect_once_and_one_response,
        RAN,
        enumerated=len(MATRIX),
        of="crash matrix of the wallet",
    )


OPERATIONS = 400
FAULTS = 0.05
WORKERS = 4


def test_a_bank_under_faults_loses_and_makes_no_money(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    """Payments, top-ups, refunds and transfers by several threads, each repeated until its answer is final."""
    wallet = open_wallet(world, monkeypatch)
    cards = [CARD, FRIEND, *(f"card-{number}" for number in range(3, 7))]
    for card in cards[2:]:
        wallet.result("admin/cards", {"card": card}, key=f"open-{card}")
    payments: list[tuple[str, str, int]] = []
    answered: dict[str, int] = {}
    chance, lock = random.Random(7), threading.Lock()
    struck: list[Fault] = []

    def due(operation: str) -> Fault | None:
        with lock:
            if operation not in {WRITE, STORE} or chance.random() >= FAULTS:
                return None
            actions = [Action.KILL, Action.DROP, Action.THROTTLE, *([Action.CONFLICT] if operation == WRITE else [])]
            action = chance.choice(actions)
            moment = chance.choice(list(Moment)) if action in {Action.KILL, Action.DROP} else Moment.BEFORE
            struck.append(Fault(operation=operation, action=action, moment=moment))
            return struck[-1]

    def run(number: int) -> None:
        wish = random.Random(number)
        path, body = _wish(wish, cards, payments)
        answer: dict[str, Any] | None = None
        while answer is None or answer["statusCode"] == 503:
            answer = wallet.send(path, body, key=f"op-{number}")
        again = wallet.send(path, body, key=f"op-{number}")
        while again is None or again["statusCode"] == 503:
            again = wallet.send(path, body, key=f"op-{number}")
        assert (again["statusCode"], again["body"]) == (answer["statusCode"], answer["body"])
        with lock:
            answered[path] = answered.get(path, 0) + (answer["statusCode"] == 200)
            if path == "terminal/payments" and answer["statusCode"] == 200:
                payments.append((body["card"], _payment_of(answer), body["amount"]))

    with monkeypatch.context() as disturbed, ThreadPoolExecutor(max_workers=WORKERS) as pool:
        disturbed.setattr(world.wire, "_due", due)
        list(pool.map(run, range(OPERATIONS)))

    wallet.audit()
    assert len(struck) > OPERATIONS * FAULTS
    assert all(answered[path] > 5 for path in ("terminal/payments", "terminal/top-ups", "customer/transfers"))
    assert answered["merchant/refunds"] > 5
    assert all(wallet.balance(card) <= 1_000 + _refunded(wallet, card) for card in cards)


def _wish(wish: random.Random, cards: list[str], payments: list[tuple[str, str, int]]) -> tuple[str, dict[str, Any]]:
    card, other = wish.sample(cards, 2)
    choices: list[Callable[[], tuple[str, dict[str, Any]]]] = [
        lambda: ("terminal/payments", {"card": card, "merchant": SHOP, "amount": wish.randint(1, 60)}),
        lambda: ("terminal/top-ups", {"card": card, "amount": wish.randint(1, 300)}),
        lambda: (
            "customer/transfers",
            {"card": card, "to": other, "amount": wish.randint(1, 80), "unit": "ECOPAY"},
        ),
    ]
    if payments:
        of, payment, amount = wish.choice(payments)
        refund = {"card": of, "merchant": SHOP, "payment": payment, "amount": wish.randint(1, amount)}
        choices.append(lambda: ("merchant/refunds", refund))
    return wish.choice(choices)()


def _payment_of(answer: dict[str, Any]) -> str:
    return str(json.loads(answer["body"])["result"]["payment"])


def _refunded(wallet: Wallet, card: str) -> int:
    rows = [item for type_, item in wallet.items(card).items() if type_.startswith("history#")]
    return sum(int(row["amount"]["N"]) for row in rows if row["operation"]["S"] == "refund")


def test_an_event_that_dies_anywhere_charges_the_card_once(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    wallet = open_wallet(world, monkeypatch)
    for moment in Moment:
        world.wire.plan(Fault(operation=WRITE, action=Action.DROP, moment=moment, times=1_000))
        wallet.event(stripe.PAID)
        world.wire.forget()

    assert wallet.event(stripe.PAID) == 200
    assert wallet.balance(CARD) == 240
    wallet.audit()
