"""A call that AWS refused for good is not retried, and the saga fails under the call's own name."""

from __future__ import annotations

from typing import Any

import pytest

from constructs_lib.saga.asl import Node, definition_of
from saga_runtime.protocol import SERVICE_REFUSALS
from tests.constructs.support.answers import answers, body, operators_are_told, refusal
from tests.constructs.support.groups import direct, external, parallel, plan, writes
from tests.constructs.support.interpreter import Run, run
from tests.constructs.support.plans import job, step, wait


def _run(*nodes: Node, **by_state: Any) -> Run:
    return run(definition_of(plan(*nodes)), answers(by_state))


def _retries(state: dict[str, Any], error: str) -> int:
    """Number of retries of a state after an error."""
    rules = (rule for rule in state["Retry"] if error in rule["ErrorEquals"] or rule["ErrorEquals"] == ["States.ALL"])
    return int(next(rules)["MaxAttempts"])


@pytest.mark.parametrize("error", SERVICE_REFUSALS)
@pytest.mark.parametrize("kind", [step, external])
def test_it_is_not_retried_and_compensated(kind: Any, error: str) -> None:
    nodes = [step("Reserve", undo=True), kind("Book", undo=True), step("Pay", pivot=True)]

    done = _run(*nodes, Book=refusal(error, "of AWS, with internals"))

    assert _retries(definition_of(plan(*nodes))["States"]["Book"], error) == 0
    assert done.trace[2:4] == ["Begin compensation at Book", "Compensate Book"]
    answer = body(done, "Settle failed")
    assert (answer["status"], answer["error"], answer["step"]) == (500, error, "Book")
    assert answer["detail"] == "the step could not be completed"


def test_in_a_branch_it_is_the_reason_too() -> None:
    both = parallel("Both", [step("Left", undo=True)], [step("Right", undo=True)])

    done = _run(both, step("Pay", pivot=True), Right=refusal("AWS.ValidationException"))

    assert body(done, "Settle failed")["error"] == "AWS.ValidationException"


def test_after_the_pivot_the_saga_is_parked_with_the_message_of_aws() -> None:
    done = _run(step("Pay", pivot=True), step("Book"), Book=refusal("AWS.AccessDeniedException", "not authorized"))

    stuck = operators_are_told(done)["parked_reason"]
    assert stuck == {"step": "Book", "error": "AWS.AccessDeniedException", "detail": "not authorized"}


def test_a_compensation_is_tried_for_an_hour() -> None:
    states = definition_of(plan(step("Reserve", undo=True), step("Pay", pivot=True)))["States"]

    assert _retries(states["Compensate Reserve"], "AWS.AccessDeniedException") == 20


@pytest.mark.parametrize("node", [direct("Look"), writes("Mark"), job("Ship", undo=True), wait("Review")])
def test_states_without_a_function_do_not_catch_the_names(node: Any) -> None:
    state = definition_of(plan(node, step("Pay", pivot=True)))["States"][node.name]

    assert _retries(state, "AWS.ValidationException") > 0
