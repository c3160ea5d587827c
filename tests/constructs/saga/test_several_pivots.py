"""Several pivots: a step between two of them is compensated only on a path on which none was applied."""

from __future__ import annotations

import json
from typing import Any

from constructs_lib.saga.asl import definition_of
from tests.constructs.support.interpreter import Failure, Run, run
from tests.constructs.support.plans import PLANS, plan, step

BETWEEN = definition_of(
    plan(
        step("Debit", undo=True),
        step("Credit", pivot=True, when="$exists($request.credit)"),
        step("Fee", undo=True),
        step("Transfer", pivot=True, when="$exists($request.transfer)"),
    )
)


def _run_with_failing(failing: str, request: dict[str, bool]) -> Run:
    def answer(name: str, _arguments: Any) -> Any:
        if name == failing:
            raise Failure("Invalid", json.dumps({"errorMessage": "no"}))
        return {"Count": 0} if name == "Query saga log" else {"Payload": {"output": {"of": name}}}

    return run(BETWEEN, answer, request=json.dumps(request))


def test_after_an_applied_pivot_a_refusal_is_parked_and_not_compensated() -> None:
    done = _run_with_failing("Fee", {"credit": True})

    assert done.trace[-4:] == ["Pivot passed before Fee?", "Pivot applied before Fee", "Park saga", "End parked"]
    assert done.sent["Pivot applied before Fee"]["ExpressionAttributeValues"][":direction"] == {"S": "forward"}


def test_on_a_way_without_the_earlier_pivot_the_same_refusal_is_compensated() -> None:
    done = _run_with_failing("Fee", {"transfer": True})

    assert "Begin compensation at Fee" in done.trace
    assert "Compensate Debit" in done.trace
    assert done.trace[-1] == "Settle failed"


def test_a_second_pivot_on_a_way_that_should_have_one_is_parked_too() -> None:
    done = _run_with_failing("Transfer", {"credit": True, "transfer": True})

    assert done.trace[-3:] == ["Pivot applied before Transfer", "Park saga", "End parked"]


def test_conditions_that_exclude_each_other_to_the_letter_cost_no_state() -> None:
    names = definition_of(PLANS["two pivots"])["States"]

    assert not [name for name in names if name.startswith(("Pivot passed before", "Pivot applied before"))]
