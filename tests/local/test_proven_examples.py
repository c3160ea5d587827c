"""Every example is proven on local AWS, by other cases in each run of the tests.

The simulator breaks every call in every way (``tests/simulator/test_each_call.py``). It has neither processes that die
nor IAM as it is deployed: for these, the proof kit runs so many of the same cases here, and the deployed reconcilers
recover what was interrupted. ``make samples`` runs all of them.
"""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from random import Random
from typing import Any, Final

import pytest

from constructs_lib.testing.invariants import Invariant
from constructs_lib.testing.proof import Proof
from constructs_lib.testing.simulator import Intent, Result, Workload, World
from saga_runtime.idempotency.record import RequestRecord
from tests.sampling import DRAW, so_many

from . import cart_system, order_system
from .cart_system import DEAR, CartSystem, cart
from .order_system import ORDERS, OrderSystem, order
from .payout_system import AGENT, OPENING, Payout, PayoutSystem
from .two_ledgers import MAIN, PARTNER, TwoLedgers, deployed, drain

SKU: Final = "book"
SPEED: Final = 10.0
FUNCTION_SECONDS: Final = 200
"""In the emulator's time: long enough for a process to start on a busy machine."""
DRAWN: Final = {"transfers": 3, "orders": 3, "payouts": 3, "carts": 2}
"""Cases of each way; a cart waits for its providers."""
INTERNAL: Final = ("Traceback", "stackTrace", "errorType", "botocore", "dynamodb", "/var/task", ".py")


class Request(Workload):
    """One request of an example, and what it must have resulted in.

    Args:
        system: the deployed example.
    """

    system: Any

    def audit(self, world: World) -> Iterable[Invariant]:
        del world
        recovered = [record for record in map(RequestRecord.from_item, self.system.records()) if record.recoveries]
        reconciled = bool(self.system.aws.function_logs(self.system.outputs["ReconcilerName"]))
        yield Invariant(
            name="the deployed reconciler recovers",
            checked=len(recovered),
            violations=()
            if reconciled
            else tuple(f"{record.saga_id} was recovered without it" for record in recovered),
        )
        yield from self.system.audit()

    def audit_results(self, world: World, results: Sequence[Result]) -> Iterable[Invariant]:
        del world
        (result,) = results
        found, wanted = self.found(result), self.wanted(result)
        yield Invariant(
            name="the request resulted in what was wanted",
            checked=1,
            violations=() if found == wanted else (f"{found}, and not {wanted}",),
        )
        told = result.body or ""
        yield Invariant(
            name="no response reveals internals",
            checked=1,
            violations=tuple(word for word in INTERNAL if word in told),
        )

    def found(self, result: Result) -> object:
        """Contents of the books."""
        raise NotImplementedError

    def wanted(self, result: Result) -> object:
        """Contents that the result demands."""
        raise NotImplementedError


class Transfer(Request):
    """A transfer to the partner, which may refuse it."""

    def __init__(self, system: TwoLedgers, *, refused: bool = False) -> None:
        self.system = system
        self.refused = refused

    def prepare(self, world: World, random: Random) -> None:
        self.way = self.system.way("one", balance=1_000, amount=100, closed=self.refused)

    def intent(self, number: int, random: Random) -> Intent:
        return Intent(operation="transfers", body=self.way.body)

    def found(self, result: Result) -> object:
        main, partner = self.system.balances(MAIN), self.system.balances(PARTNER)
        moved = self.system.clearing(MAIN, "partner-clearing"), self.system.clearing(PARTNER, "main-clearing")
        told = Counter(message.get("status", message["step"]) for message in self.system.messages())
        # A failure whose settle is interrupted for more than five minutes is notified again.
        return main[self.way.source], partner[self.way.target], moved, told["Receipt"], told["FAILED"] > 0

    def wanted(self, result: Result) -> object:
        moved = 100 if result.completed else 0
        return 1_000 - moved, moved, (moved, -moved), moved // 100, not result.completed


class Order(Request):
    """An order, whose goods may not be on the shelf."""

    def __init__(self, system: OrderSystem, *, refused: bool = False) -> None:
        self.system = system
        self.refused = refused

    def prepare(self, world: World, random: Random) -> None:
        self.system.gateway.reset()
        self.system.offer(SKU, 2, on_shelf=0 if self.refused else 2)

    def intent(self, number: int, random: Random) -> Intent:
        return Intent(operation="orders", body={"order_id": "one", **order(SKU)})

    def found(self, result: Result) -> object:
        books = self.system.books(result.saga_id or "")
        told = Counter(message["status"] for message in self.system.messages())
        often = len(books.charges) <= 1 and len(books.refunds) <= 1
        return self.system.goods(SKU), books.taken, often, told["COMPLETED"], told["FAILED"] > 0

    def wanted(self, result: Result) -> object:
        done = bool(result.completed)
        goods = (1, 0, 1) if done else (2, 0, 0 if self.refused else 2)
        return goods, order_system.PRICE if done else 0, True, int(done), not done


class PayoutOf(Request):
    """A payout of what a model recommends; the payer may have too little."""

    def __init__(self, system: PayoutSystem, *, refused: bool = False) -> None:
        self.system = system
        self.payout = Payout(name="one")
        self.opening = 10 if refused else OPENING

    def prepare(self, world: World, random: Random) -> None:
        self.system.ready(self.payout, opening=self.opening)

    def intent(self, number: int, random: Random) -> Intent:
        return Intent(operation="payouts", body=self.payout.body, key=self.payout.key())

    def found(self, result: Result) -> object:
        balances = self.system.balances(MAIN)
        told = Counter(message.get("status", message["step"]) for message in self.system.messages())
        return (
            balances[self.payout.payee],
            self.opening - balances[self.payout.payer],
            self.system.spent()[AGENT],
            self.system.claim_of(self.payout) == "PAID",
            # The model's answer is lost with a process that dies before it has recorded it: once, with one fault.
            len(self.system.model_calls()) <= 2,
            (told["Notify"], told["FAILED"] > 0),
        )

    def wanted(self, result: Result) -> object:
        done = bool(result.completed)
        recorded = self.system.recorded().get(result.saga_id or "")
        paid = int(recorded["amount"]) if done and recorded is not None else 0
        return paid, paid, paid, done, True, (int(done), not done)


class Cart(Request):
    """An expensive cart, which a reviewer approves; the goods may not be in the warehouse."""

    def __init__(self, system: CartSystem, *, refused: bool = False) -> None:
        self.system = system
        self.sku = f"empty-shelf-{SKU}" if refused else SKU

    def prepare(self, world: World, random: Random) -> None:
        for provider in self.system.providers.values():
            provider.reset()
        self.system.forget()
        self.system.offer(self.sku, price=DEAR)

    def intent(self, number: int, random: Random) -> Intent:
        return Intent(operation="carts", body=cart(self.sku))

    def found(self, result: Result) -> object:
        told = Counter(message["order"] for message in self.system.messages())
        return self.system.stock(self.sku), max(told.values(), default=0) <= 1 or not result.completed

    def wanted(self, result: Result) -> object:
        return 0 if result.completed else 1, True


@contextmanager
def approving(system: CartSystem) -> Iterator[None]:
    """A reviewer approves every cart."""
    over = threading.Event()

    def review() -> None:
        while not over.wait(0.3):
            for mail in drain(system.aws, system.outputs["ReviewMailQueueUrl"]):
                system.decide(mail["link"], "approve")

    reviewer = threading.Thread(target=review, daemon=True)
    reviewer.start()
    try:
        yield
    finally:
        over.set()
        reviewer.join()


@pytest.fixture(scope="module", params=DRAWN)
def example(request: pytest.FixtureRequest) -> Iterator[tuple[str, Callable[..., Request]]]:
    """An example, and what makes its request."""
    with ExitStack() as stack:
        match request.param:
            case "transfers":
                transfers, _ = stack.enter_context(deployed(speed=SPEED, seconds=FUNCTION_SECONDS))
                yield request.param, lambda **how: Transfer(transfers, **how)
            case "orders":
                orders = stack.enter_context(order_system.deployed(asking=False))[ORDERS]
                yield request.param, lambda **how: Order(orders, **how)
            case "payouts":
                payouts: PayoutSystem = request.getfixturevalue("payout_system")
                yield request.param, lambda **how: PayoutOf(payouts, **how)
            case _:
                carts = stack.enter_context(cart_system.deployed(concurrency=2))
                stack.enter_context(approving(carts))
                yield request.param, lambda **how: Cart(carts, **how)


@pytest.mark.proof
@pytest.mark.parametrize("refused", [False, True], ids=["completed", "refused"])
def test_example_is_proven(
    example: tuple[str, Callable[..., Request]], refused: bool, capsys: pytest.CaptureFixture[str]
) -> None:
    name, request = example
    workload = request(refused=refused)
    with Proof(workload.system.aws, workload) as proof:
        check = proof.survives_crashes(at_most=so_many(DRAWN[name]), draw=DRAW)

    with capsys.disabled():
        print(f"\n{name}: {len(check.cases)} of {check.enumerated} cases, {check.seconds:.0f} s ", end="")
    # The first case is the request without a fault.
    assert check.cases[0].status == {False: 200, True: 402 if name == "payouts" else 422}[refused]
    assert check.enumerated > 40
    assert check.invariants["the request resulted in what was wanted"] == len(check.cases)
