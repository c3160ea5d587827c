"""Violations that fail a soak, and the repeatability of a seed: without running one."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime
from typing import Any, Final

import pytest

from constructs_lib.testing import Fault, Share, StopAt
from constructs_lib.testing.invariants import Invariant

from .account import Account, Books, End, Reconciled, Saga, is_refusal
from .faults import SHARE, STOP_SHARE, Damage, Hit, planned
from .quiet import Stir
from .report import as_html, as_json
from .run import Run, Settings
from .troubles import troubles_of
from .wishes import Example, wish
from .world import Machine

BEGAN: Final = 1_000_000.0
SAGA: Final = Saga(
    example=Example.ORDERS,
    saga_id="a-1",
    end=End.COMPLETED,
    error=None,
    stuck=None,
    decidable=None,
    began=BEGAN + 1,
    ended=BEGAN + 40,
    recoveries=1,
    causes=("TIMED_OUT",),
    late=0,
)
BOOKS: Final = Books(
    invariants=(Invariant(name="goods add up", checked=3),),
    operators={},
    dead_letters={},
    contradictions=(),
    answered=1,
    unanswered=0,
)


def run_of(*, saga: dict[str, Any] | None = None, books: dict[str, Any] | None = None, **further: Any) -> Run:
    """A soak that is passed, except for the given violation."""
    account = Account(
        example=Example.ORDERS,
        sagas=(replace(SAGA, **(saga or {})),),
        reconciled=Reconciled(by_event=1, looks=3),
        recoveries_at=(datetime.fromtimestamp(BEGAN + 20, UTC),),
        books=replace(BOOKS, **(books or {})),
        asked=1,
    )
    hit = Hit(at=datetime.fromtimestamp(BEGAN + 5, UTC), kind="kill before", caller="f", call="dynamodb:PutItem")
    values: dict[str, Any] = {
        "settings": Settings(seed=1, seconds=10),
        "began": BEGAN,
        "faults_ended": BEGAN + 100,
        "quiet": BEGAN + 150,
        "stir": Stir(counts={}),
        "damage": Damage(
            calls={"functions": 15, "state machines": 5}, faults={"kill before": 1}, stops={"timed out": 1},
            hits=(hit,), troubles={"payments": {"silent": 1}, "carrier": {"double": 1}}, suppressed="abc",
        ),
        "accounts": (account,),
        "decisions": 0,
        "wallet_requests": 1,
        "wallet_problems": (),
        "migration_requests": (1, 1),
        "migration_problems": (),
        "real_seconds": 20.0,
    }  # fmt: skip
    return Run(**{**values, **further})


def test_a_soak_with_nothing_left_is_passed() -> None:
    run = run_of()

    assert run.problems() == []
    assert as_json(run)["passed"] is True
    assert "Passed: quiet 5 s after the last fault" in as_html(run)


@pytest.mark.parametrize(
    ("further", "said"),
    [
        ({"quiet": None, "stir": Stir(counts={"executions that run": 2})}, "2 executions that run"),
        ({"saga": {"end": End.IN_FLIGHT, "ended": None}}, "saga a-1 is in flight"),
        ({"saga": {"end": End.PARKED, "ended": None, "decidable": "its row is DONE"}}, "although its row is DONE"),
        ({"books": {"invariants": (Invariant(name="goods add up", checked=3, violations=("2 of 3",)),)}}, "2 of 3"),
        ({"books": {"contradictions": ("orders-1: saga a-1, and then a-2",)}}, "and then a-2"),
        ({"books": {"unanswered": 2}}, "2 clients never learned"),
        ({"damage": replace(run_of().damage, faults={})}, "nothing went wrong"),
        ({"damage": replace(run_of().damage, stops={})}, "nothing went wrong"),
        ({"damage": replace(run_of().damage, faults={"drop before": 9})}, "no process was killed"),
        ({"damage": replace(run_of().damage, troubles={"carrier": {"double": 1}})}, "no callback was lost"),
        ({"damage": replace(run_of().damage, troubles={"carrier": {"silent": 1}})}, "no callback came twice"),
        ({"wallet_problems": ("wallet: card-1 has -1 ECOPAY",)}, "card-1 has -1 ECOPAY"),
        ({"migration_problems": ("migration: c-00: 7 points, not 8",)}, "7 points, not 8"),
        ({"saga": {"recoveries": 0, "causes": ()}}, "no saga was recovered"),
        ({"books": {"invariants": (Invariant(name="goods add up", checked=0),)}}, "nothing was checked"),
    ],
)
def test_every_violation_fails_it_and_is_reported(further: dict[str, Any], said: str) -> None:
    run = run_of(**further)

    (problem,) = run.problems()
    assert said in problem
    assert as_json(run)["problems"] == [problem]
    assert "Failed: 1" in as_html(run)


def test_an_example_without_a_saga_fails_it() -> None:
    run = run_of()
    empty = replace(run.accounts[0], sagas=())

    assert replace(run, accounts=(*run.accounts, empty)).problems() == [
        "order processing: no saga was started: the soak has no evidence of it"
    ]


def test_a_saga_that_needs_an_operator_is_reported_and_does_not_fail_it() -> None:
    stuck = {"step": "Compensate ShippingLabel", "error": "StepInDoubt", "detail": "the carrier answered 409"}
    run = run_of(saga={"end": End.PARKED, "ended": None, "stuck": stuck})

    assert run.problems() == []
    assert "the carrier answered 409" in as_html(run)
    assert as_json(run)["examples"]["order processing"]["parked"][0]["stuck"] == stuck


def test_a_refusal_is_somebodys_no_and_an_interruption_is_not() -> None:
    assert is_refusal("OutOfStock")
    assert not is_refusal("SagaInterrupted")


def test_a_seed_is_the_same_requests_and_the_same_trouble_at_providers() -> None:
    asked = {seed: [wish(example, seed, number) for example in Example for number in range(40)] for seed in (1, 2)}

    assert asked[1] == [wish(example, 1, number) for example in Example for number in range(40)]
    assert asked[1] != asked[2]
    assert len({one.key for one in asked[1]}) == len(asked[1])
    assert troubles_of(1) == troubles_of(1) != troubles_of(2)


def test_a_seed_is_the_same_faults_of_five_in_a_hundred_calls_and_ends_at_every_state() -> None:
    machines = [
        Machine(example=Example.ORDERS, name="Orders/Saga", arn="arn", express=False, states=("Pay", "Settle")),
        Machine(example=Example.ORDERS, name="Orders/Check", arn="arn", express=True, states=("Look",)),
    ]

    faults = planned(machines, 1, SHARE, STOP_SHARE)

    assert faults == planned(machines, 1, SHARE, STOP_SHARE) != planned(machines, 2, SHARE, STOP_SHARE)
    for caller in ("*", "states:*"):
        spared = 1.0
        for fault in faults:
            if isinstance(fault, Fault) and (fault.function, fault.call) == (caller, "*"):
                assert isinstance(fault.on, Share)
                spared *= 1 - fault.on.probability
        assert 1 - spared == pytest.approx(SHARE)
    assert {(stop.machine, stop.state) for stop in faults if isinstance(stop, StopAt)} == {
        ("Orders/Saga", "Pay"),
        ("Orders/Saga", "Settle"),
    }
