"""A condition is true or false. Anything else fails the saga before the step: nothing is skipped by a typo."""

from __future__ import annotations

import json
from typing import Any

import pytest

from constructs_lib.saga.asl import Node, Notice, definition_of, phase_definition
from tests.constructs.support.answers import answers, body, operators_are_told, record, row
from tests.constructs.support.groups import OPERATORS, child, express, of_items, parallel, plan
from tests.constructs.support.interpreter import Failure, Run, run
from tests.constructs.support.plans import QUEUE, step

NO_BOOLEANS: dict[str, Any] = {
    "missing": {},
    "null": {"big": None},
    "a number": {"big": 1},
    "a text": {"big": "true"},
    "an empty text": {"big": ""},
    "a list": {"big": [True]},
    "an object": {"big": {}},
}
BIG = "$request.big"
CONDITION_FAILED = "DynamoDB.ConditionalCheckFailedException"


def _run(*nodes: Node, request: Any, answer: Any = None, **options: Any) -> Run:
    return run(definition_of(plan(*nodes, **options)), answer or answers(), request=json.dumps(request))


@pytest.mark.parametrize("request_", NO_BOOLEANS.values(), ids=NO_BOOLEANS)
def test_a_condition_that_is_not_a_boolean_fails_the_saga_before_the_step(request_: Any) -> None:
    done = _run(step("Reserve", undo=True), step("Check", when=BIG), step("Pay", pivot=True), request=request_)

    assert done.trace[:3] == ["Reserve", "Select step after Reserve", "Begin compensation at Check"]
    assert {"Check", "Pay"}.isdisjoint(done.trace)
    assert "Compensate Reserve" in done.trace
    assert body(done, "Settle failed") == {
        "type": "urn:cdk-sagas:problem:saga-failed",
        "title": "The request failed and has no remaining effects",
        "status": 500,
        "detail": "the condition of the step is neither true nor false",
        "error": "ConditionNotBoolean",
        "step": "Check",
        "saga_id": done.sent["Reserve"]["Payload"]["saga_id"],
    }


@pytest.mark.parametrize(("value", "ran"), [(True, True), (False, False)])
def test_a_boolean_decides(value: bool, ran: bool) -> None:
    done = _run(step("Check", when=BIG), step("Pay", pivot=True), request={"big": value})

    assert ("Check" in done.trace) is ran
    assert done.trace[-1] == "Settle completed"


def test_the_first_step_fails_the_saga_as_well() -> None:
    done = _run(step("Check", undo=True, when=BIG), step("Pay", pivot=True), request={})

    assert done.trace == [
        "Select first step",
        "Begin compensation at Check",
        "Compensate Check",
        "Query saga log",
        "All compensated?",
        "Settle failed",
    ]


def test_of_several_conditions_the_first_that_is_not_a_boolean_is_reported() -> None:
    steps = [step("One", when=BIG), step("Two", when="$request.two"), step("Pay", pivot=True)]

    assert "Two" in _run(*steps, request={"big": False, "two": True}).trace
    assert body(_run(*steps, request={"big": False}), "Settle failed")["step"] == "Two"
    assert body(_run(*steps, request={"two": True}), "Settle failed")["step"] == "One"
    assert body(_run(*steps, request={"big": True}), "Settle failed")["step"] == "Two"


def test_on_the_pivot_its_row_decides() -> None:
    pay = [step("Reserve", undo=True), step("Pay", pivot=True, when=BIG), step("Book")]

    fresh = _run(*pay, request={})
    assert fresh.trace[:4] == ["Reserve", "Select step after Reserve", "Fence Pay", "Begin compensation at Pay"]
    assert fresh.trace[-1] == "Settle failed"

    refused = answers({"Fence Pay": Failure(CONDITION_FAILED), "Fence Pay - read row": row("DONE")})
    stood = _run(*pay, request={}, answer=refused)
    assert stood.trace[-3:] == ["Continue forward at Pay", "Book", "Settle completed"]


def test_after_the_pivot_the_saga_is_parked() -> None:
    done = _run(step("Pay", pivot=True), step("Book", when=BIG), request={})

    assert "Book" not in done.trace
    assert operators_are_told(done)["parked_reason"] == {
        "step": "Book",
        "error": "ConditionNotBoolean",
        "detail": "the condition of the step is neither true nor false",
    }


def test_a_step_after_the_pivot_without_a_boolean_condition_waits() -> None:
    """Conditions may change while sagas are in flight: another run may have passed the pivot under the former one."""
    forward = answers(
        {
            "Begin compensation at Check": Failure(CONDITION_FAILED),
            "Check direction": record(direction="forward"),
        }
    )
    done = _run(
        step("Check", undo=True, when=BIG), step("Pay", pivot=True), request={}, answer=forward, operators=OPERATORS
    )

    assert "Check" not in done.trace
    assert operators_are_told(done)["parked_reason"]["error"] == "ConditionNotBoolean"


GROUPS: dict[str, Any] = {
    "parallel": lambda *steps: parallel("Both", [step("Left", undo=True)], list(steps)),
    "map": lambda *steps: of_items("Both", *steps),
}


@pytest.mark.parametrize("kind", GROUPS)
def test_in_a_branch_the_step_and_later_ones_do_not_run(kind: str) -> None:
    group = GROUPS[kind](step("Near", undo=True), step("Far", undo=True, when=BIG), step("Behind", undo=True))
    done = _run(group, step("Pay", pivot=True), request={"items": [{"sku": "a"}, {"sku": "b"}]})

    assert {"Far", "Behind", "Pay"}.isdisjoint(done.trace)
    assert "Compensate Near" in done.trace
    assert (body(done, "Settle failed")["error"], body(done, "Settle failed")["step"]) == ("ConditionNotBoolean", "Far")


@pytest.mark.parametrize("make", [express, child])
def test_a_phase_returns_the_failed_step_and_the_reason(make: Any) -> None:
    group = make("Phase", step("Near", undo=True), step("Far", undo=True, when=BIG))
    saga = plan(group, step("Pay", pivot=True))

    done = run(phase_definition(saga, group), answers(), request="{}", outputs={})

    assert "Far" not in done.trace
    assert (done.output["ok"], done.output["failure"]["error"]) == (False, "ConditionNotBoolean")
    assert done.output["outputs"] == {"Near": {"of": "Near"}}


def test_a_group_with_a_condition_that_is_not_a_boolean_does_not_begin() -> None:
    done = _run(
        step("Reserve", undo=True),
        parallel("Both", [step("Left", undo=True)], [step("Right", undo=True)], when=BIG),
        step("Pay", pivot=True),
        request={},
    )

    assert {"Both", "Left", "Right"}.isdisjoint(done.trace)
    assert body(done, "Settle failed")["step"] == "Both"


def test_a_group_after_the_pivot_is_parked_at_once() -> None:
    """The same condition gives the same answer: waiting for it would be an hour for nothing."""
    group = parallel("Both", [step("Left")], [step("Right", when=BIG)])

    done = _run(step("Pay", pivot=True), group, request={}, operators=OPERATORS)

    assert done.trace.count("Both") == 1
    assert operators_are_told(done)["parked_reason"] == {
        "step": "Right",
        "error": "ConditionNotBoolean",
        "detail": "the condition of the step is neither true nor false",
    }


def test_it_is_sent_to_the_notification_of_failures() -> None:
    done = _run(step("Check", when=BIG), step("Pay", pivot=True), request={}, on_failed=Notice(queue_url=QUEUE))

    assert json.loads(done.sent["Notify failure"]["MessageBody"])["error"] == "ConditionNotBoolean"
