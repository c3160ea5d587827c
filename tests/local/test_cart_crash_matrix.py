"""A crash or a lost response around a sample of the AWS calls of the dispatchers and of the receivers.

The calls are not listed here: one cart is recorded, and each third of its calls is broken in one way, the ways in
turn; the simulator breaks every call in every way (``tests/simulator/test_each_call.py``). A cart waits four times in
sequence, so each cart of the matrix has four broken calls, one for each wait: they cannot meet. Every cart is sent in
the end, and all books agree.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from typing import Final

import pytest

from constructs_lib.testing import HttpResponse
from constructs_lib.testing.fault_plan import Action, Attempts, Fault, Moment
from constructs_lib.testing.fault_schedules import Nth
from constructs_lib.testing.invariants import assert_all_hold
from examples.cart_fulfilment.providers import Action as ProviderAction
from examples.cart_fulfilment.providers import Trouble

from .cart_system import DEAR, CartSystem, cart, deployed, until
from .sampling import each_third, in_turn

PAGE: Final = "CartFulfilment/Reviewers/Page/Page/Function"
WAITS: Final[Mapping[str, Sequence[str]]] = {
    "AuthorizePayment": ("Authorize", "PaymentEvents"),
    "FraudReview": ("Review", PAGE),
    "Pick": ("PickEvents", "Pick"),
    "PickupScan": ("Look", "PublishScan", "Scan"),
}
"""Dispatcher and receiver by waiting step; the slow ones are apart."""
WAYS: Final = tuple((action, moment) for action in (Action.KILL, Action.DROP) for moment in Moment)
CLIENTS: Final = 48
ROUNDS: Final = 3
PACES: Final = {"payments": 8.0, "warehouse": 8.0, "carrier": 20.0}
"""Delay of the providers' callbacks, so that every dispatch has completed: the same calls in every cart."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Point:
    """One call: of which function, which, and the how many-th."""

    function: str
    call: str
    occurrence: int

    def __str__(self) -> str:
        return f"{self.function}: {self.call}#{self.occurrence}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Break:
    """One call that is broken in one way."""

    point: Point
    action: Action
    moment: Moment

    def __str__(self) -> str:
        return f"{self.point}, {self.action} {self.moment}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Matrix:
    """The matrix after its run."""

    system: CartSystem
    points: Mapping[str, Sequence[Point]]
    fired: Sequence[tuple[str, Break]]
    answers: Mapping[str, HttpResponse]
    seconds: float


def breaks_of(points: Sequence[Point]) -> Iterator[Break]:
    """One way to break each third call, the ways in turn."""
    for point, (action, moment) in in_turn(each_third(points), lambda _: WAYS):
        yield Break(point=point, action=action, moment=moment)


def path_of(system: CartSystem, function: str) -> str:
    """The path of a function."""
    return function if "/" in function else system.function(function)


def drive(system: CartSystem, key: str) -> HttpResponse:
    """Send an expensive cart, approve it, and wait for its end."""
    body = cart(key)
    saga_id = system.begin(key, body)
    until(lambda: system.review_links(saga_id), f"the link of {key}")
    system.decide(system.review_links(saga_id)[0], "approve", note=key)
    system.await_settled(saga_id)
    return system.replayed(key, body)


def recorded(system: CartSystem) -> dict[str, list[Point]]:
    """The calls of one cart, by the step that waits."""
    for key in ("warm", "clean"):
        system.offer(key, price=DEAR)
    drive(system, "warm")  # what starts only now would not be the same in every cart
    names = {path_of(system, f): f for functions in WAITS.values() for f in functions}
    callers = {system.aws.resolve_function(path): name for path, name in names.items()}
    with system.aws.calls.record() as calls:
        drive(system, "clean")
    found = [c for c in calls.calls if c.caller in callers]
    return {
        step: [
            Point(function=callers[c.caller], call=c.call, occurrence=c.occurrence)
            for function in functions
            for c in found
            if callers[c.caller] == function
        ]
        for step, functions in WAITS.items()
    }


def fault(system: CartSystem, one: Break, key: str) -> Fault:
    """The fault for a break of one cart."""
    point, request_id = one.point, system.request_id(key)
    # A call is matched by the text that it contains. The query for the payment's own id names no cart: it is broken
    # in one of the first carts, and the provider's retry repairs it.
    alias = point.function == "PaymentEvents" and point.call == "dynamodb:GetItem"
    nameless = alias and point.occurrence == 1
    # The delivered output contains a part that is unique to the cart.
    marks = {"PaymentEvents": str(price_of(key)), PAGE: key, "PickEvents": request_id, "Scan": request_id[:12]}
    named = marks[point.function] if point.call == "states:SendTaskSuccess" else request_id
    return Fault(
        function=path_of(system, point.function),
        call=point.call,
        action=one.action,
        moment=one.moment,
        attempts=Attempts.ALL,
        containing=None if nameless else named,
        on=Nth(2 * WAYS.index((one.action, one.moment)) + 1 if nameless else point.occurrence - alias),
    )


def price_of(key: str) -> int:
    """Price of a cart's goods: unique per cart."""
    return DEAR + int(key.rpartition("-")[2])


class Run:
    """Breaks calls, each cart's in another wait, and drives the carts to their ends.

    Args:
        system: the deployed stack.
    """

    def __init__(self, system: CartSystem) -> None:
        self._system = system
        self._planned: dict[str, tuple[str, Break]] = {}
        self.answers: dict[str, HttpResponse] = {}

    def break_all(self, columns: Mapping[str, Sequence[Break]]) -> None:
        """Break everything, one call of each wait in each cart."""
        first = len(self.answers)
        keys = [f"cart-{first + number:03d}" for number in range(max(map(len, columns.values()), default=0))]
        for number, key in enumerate(keys):
            self._system.offer(key, price=price_of(key))
            for column in columns.values():
                for one in column[number : number + 1]:
                    self._planned[self._system.aws.faults.plan(fault(self._system, one, key))[0]] = (key, one)
        with ThreadPoolExecutor(CLIENTS) as pool:
            self.answers |= dict(zip(keys, pool.map(partial(drive, self._system), keys), strict=True))

    def fired(self) -> list[tuple[str, Break]]:
        """Faults that fired, and their carts."""
        outcomes = self._system.aws.faults.report().outcomes
        return [self._planned[outcome.id] for outcome in outcomes if outcome.fired]


@pytest.fixture(scope="module")
def matrix() -> Iterator[Matrix]:
    """Every cart, run to its end."""
    with deployed(paces=PACES, concurrency=2) as system:
        assert system.user_scope  # once: many threads will ask for it
        # A heartbeat contains only the task token, so it cannot be attributed to a cart; runtime tests cover it.
        system.providers["warehouse"].plan(Trouble(on="pick.progress", action=ProviderAction.SILENT, times=None))
        points = recorded(system)
        started = time.monotonic()
        run = Run(system)
        left = {step: list(breaks_of(found)) for step, found in points.items()}
        # On a busy machine an answer may come when its cart is being asked for, and meets other calls: once more.
        for _ in range(ROUNDS):
            run.break_all(left)
            done = {one for _, one in run.fired()}
            left = {step: [one for one in column if one not in done] for step, column in left.items()}
        yield Matrix(
            system=system, points=points, fired=run.fired(), answers=run.answers, seconds=time.monotonic() - started
        )


def test_it_breaks_calls_of_every_wait(matrix: Matrix, capsys: pytest.CaptureFixture[str]) -> None:
    enumerated = [one for points in matrix.points.values() for one in breaks_of(points)]
    ran = [one for _, one in matrix.fired]

    with capsys.disabled():
        calls = sum(map(len, matrix.points.values()))
        print(f"\n{calls} calls; calls x faults: {len(enumerated)} enumerated, {len(ran)} run ", end="")
        print(f"in {len(matrix.answers)} carts, {matrix.seconds:.0f} s ", end="")
    missing = Counter(map(str, enumerated)) - Counter(map(str, ran))
    assert not missing, "\n".join(missing)


def test_it_has_every_function_that_dispatches_or_receives(matrix: Matrix) -> None:
    found = {step: {point.function for point in points} for step, points in matrix.points.items()}

    assert found == {step: set(functions) for step, functions in WAITS.items()}


def test_every_cart_is_sent(matrix: Matrix) -> None:
    wrong = {key: answer.text for key, answer in matrix.answers.items() if answer.status != 200}

    broken = {key: [str(one) for whose, one in matrix.fired if whose == key] for key in wrong}
    assert not wrong, "\n".join(f"{broken[key]}: {text}" for key, text in wrong.items())


def test_everything_that_must_hold_does(matrix: Matrix) -> None:
    audits = matrix.system.audit()

    assert_all_hold(audits)
    assert all(audit.checked >= len(matrix.answers) for audit in audits if "undone" not in audit.name), audits


def test_each_task_received_its_outcome_once(matrix: Matrix) -> None:
    told = Counter(message["order"] for message in matrix.system.messages())

    assert {told[answer.json()["saga_id"]] for answer in matrix.answers.values()} == {1}
