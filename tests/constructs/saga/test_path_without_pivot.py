"""A request's path may lead around every pivot: behind the last one the saga only goes forward all the same."""

from __future__ import annotations

from typing import Any

import pytest

from constructs_lib.saga.asl import Node, definition_of
from tests.constructs.support.groups import child, direct, express, of_items, parallel, plan, writes
from tests.constructs.support.jsonata import EXECUTION, evaluate
from tests.constructs.support.plans import PLANS, QUEUE, job, step, wait
from tests.constructs.support.simulation import Moment, Simulation, Stop

DEBIT, FEE = step("Debit", undo=True), step("Fee", pivot=True, when="$request.fee")
RECEIPT = step("Receipt", queue_url=QUEUE, message='{"to": $request.who}')
BEHIND: dict[str, Node] = {
    "an event": direct("Said"),
    "a step that nothing undoes": step("Ship"),
    "a receipt": RECEIPT,
    "a job": job("Ship"),
    "a wait": wait("Scan"),
    "a child": child("Later", step("Ship")),
    "an Express phase": express("Quick", step("Ship")),
    "branches": parallel("Both", [step("Left")], [step("Right")]),
    "items": of_items("All", step("Pack"), items='["a", "b"]', key="$item"),
}


def _saga(behind: Node, **options: Any) -> Simulation:
    return Simulation(plan=plan(DEBIT, FEE, behind), request={"who": "x", "fee": False}, **options)


@pytest.mark.parametrize("behind", BEHIND.values(), ids=BEHIND)
def test_a_saga_that_is_stopped_right_before_it_settles_goes_forward(behind: Node) -> None:
    calls = _saga(behind).run().calls

    saga = _saga(behind, stops=frozenset({Stop(call=calls, moment=Moment.BEFORE)})).run()

    assert (saga.settled, saga.direction) == ("COMPLETED", "forward")
    assert "COMPENSATED" not in saga.rows.values()


@pytest.mark.parametrize("behind", BEHIND.values(), ids=BEHIND)
def test_the_direction_is_written_before_the_first_step_behind(behind: Node) -> None:
    trace = _saga(behind).run().traces[EXECUTION]

    assert trace[:4] == ["Debit", "Select step after Debit", f"Only forward to {behind.name}", behind.name]


def test_on_a_path_with_a_pivot_nothing_more_is_written() -> None:
    trace = Simulation(plan=plan(DEBIT, FEE, RECEIPT), request={"fee": True}).run().traces[EXECUTION]

    assert trace == ["Debit", "Select step after Debit", "Fee", "Receipt", "Settle completed"]


def test_a_path_that_ends_at_the_pivots_settles_at_once() -> None:
    trace = Simulation(plan=plan(DEBIT, FEE), request={"fee": False}).run().traces[EXECUTION]

    assert trace == ["Debit", "Select step after Debit", "Settle completed"]


def test_after_a_pivot_that_ran_the_last_one_may_be_skipped() -> None:
    to_a, to_b = (step(f"Pay{way}", pivot=True, when=f"$request.{way}") for way in "AB")
    trace = Simulation(plan=plan(DEBIT, to_a, to_b, RECEIPT), request={"A": True, "B": False}).run().traces[EXECUTION]

    assert trace == [
        "Debit",
        "Select step after Debit",
        "PayA",
        "Select step after PayA",
        "Receipt",
        "Settle completed",
    ]


def test_a_former_owner_runs_no_step_after_the_pivots() -> None:
    late = Stop(call=2, moment=Moment.BEFORE)
    first = _saga(direct("Said"), stops=frozenset({late}))
    first.run()

    assert first.settled == "FAILED"
    assert not first.sent


def test_a_condition_and_its_negation_both_fail_where_a_member_is_missing() -> None:
    neither = "[($request.fee) = true, ($not($request.fee)) = true, $exists($not($request.fee))]"
    assert evaluate(neither, request={}) == [False, False, False]

    fee, no_fee = (step(name, pivot=True, when=when) for name, when in (("A", "$request.x"), ("B", "$not($request.x)")))
    saga = Simulation(plan=plan(DEBIT, fee, no_fee, RECEIPT), request={}).run()

    assert (saga.settled, saga.effects["Receipt"], saga.effects["Debit"]) == ("FAILED", 0, 0)


def test_of_two_pivots_neither_may_be_on_the_path() -> None:
    ways = [step(f"PayTo{bank}", pivot=True, when=f'$request.bank = "{bank}"') for bank in "AB"]
    trace = Simulation(plan=plan(DEBIT, *ways, RECEIPT), request={"bank": "C"}).run().traces[EXECUTION]

    assert trace[:4] == ["Debit", "Select step after Debit", "Only forward to Receipt", "Receipt"]


def test_a_condition_that_is_known_to_be_false_is_not_evaluated_again() -> None:
    first = definition_of(PLANS["two pivots"])["States"]["Select first step"]

    taken = [rule["Next"] for rule in first["Choices"] if rule["Condition"].endswith("= true) %}")]
    assert taken == ["Transfer", "Debit"]
    assert first["Default"] == "Only forward to Receipt"


def test_a_transaction_of_the_state_machine_comes_after_it_like_any_other() -> None:
    states = definition_of(plan(DEBIT, FEE, writes("Mark", undo=False)))["States"]

    assert states["Only forward to Mark"]["Next"] == "Mark"
    direction = states["Only forward to Mark"]["Arguments"]
    assert direction["ExpressionAttributeValues"][":direction"] == {"S": "forward"}
    assert "#owner = :owner" in direction["ConditionExpression"]
