"""The shape of generated definitions: nothing dangles, everything ends, and the happy path is as short as it can be."""

from __future__ import annotations

import json
import re
from typing import Any

import pytest

from constructs_lib.saga.asl import definition_of, recovery_of
from constructs_lib.saga.description.retry import Retry
from saga_runtime.protocol import PERMANENT_ERRORS, TRANSIENT_ERRORS, ErrorName
from tests.constructs.support.asl import edges, endings, happy_path, reachable, tasks
from tests.constructs.support.cloud import Cloud
from tests.constructs.support.plans import PLANS, plan, step, with_steps

FORWARD_MACHINE = "arn:aws:states:eu-west-1:111111111111:stateMachine:forward"
IN_TEMPLATE = ["Transfer/StateMachine", "Transfer/Recovery"]
GENERATED = [f"{name}, {way}" for name in PLANS for way in ("forward", "recovery")]
LAMBDA = "arn:aws:states:::lambda:invoke"


def _generated(name: str) -> dict[str, Any]:
    saga, way = name.rsplit(", ", 1)
    return definition_of(PLANS[saga]) if way == "forward" else recovery_of(PLANS[saga], FORWARD_MACHINE)


@pytest.fixture(params=[*GENERATED, *IN_TEMPLATE])
def definition(request: pytest.FixtureRequest, reference: Cloud) -> dict[str, Any]:
    name = str(request.param)
    return reference.definition(name) if name in IN_TEMPLATE else _generated(name)


def test_every_way_leads_to_a_state_that_exists(definition: dict[str, Any]) -> None:
    missing = {edge.target for edge in edges(definition["States"])} - set(definition["States"])
    assert not missing
    assert definition["StartAt"] in definition["States"]


def test_every_state_can_be_reached(definition: dict[str, Any]) -> None:
    assert set(definition["States"]) == reachable(definition)


def test_an_ending_can_be_reached_from_every_state(definition: dict[str, Any]) -> None:
    assert not [name for name in definition["States"] if not endings(definition, name)]


def test_state_names_fit(definition: dict[str, Any]) -> None:
    assert not [name for name in definition["States"] if len(name) > 80]


def test_state_names_fit_for_the_longest_names_of_steps_and_errors() -> None:
    long = ["A" * 40, "B" * 40]
    for generated in (definition_of(with_steps(long)), recovery_of(with_steps(long), FORWARD_MACHINE)):
        assert not [name for name in generated["States"] if len(name) > 80]


def test_every_task_has_a_timeout(definition: dict[str, Any]) -> None:
    without = [name for name, state in tasks(definition) if not state.get("TimeoutSeconds", 0) > 0]
    assert not without
    assert definition["TimeoutSeconds"] > 0


def test_every_task_that_waits_for_a_callback_has_a_heartbeat(definition: dict[str, Any]) -> None:
    waiting = [(n, s) for n, s in tasks(definition) if s["Resource"].endswith(".waitForTaskToken")]
    assert not [name for name, state in waiting if "HeartbeatSeconds" not in state]


def test_every_failure_ends_settled_fenced_parked_or_transferred(definition: dict[str, Any]) -> None:
    known = {
        "Settle completed",
        "Settle failed",
        "Already settled",
        "End fenced",
        "End parked",
        "Forward execution started",
    }
    known |= {"Late effects compensated", "End late not compensated", "End under another definition"}
    for edge in edges(definition["States"]):
        if edge.kind == "catch":
            assert endings(definition, edge.target) <= known, edge


def test_every_success_has_settled_or_has_another_owner(definition: dict[str, Any]) -> None:
    succeeding = {
        name
        for name, state in definition["States"].items()
        if state["Type"] == "Succeed" or (state["Type"] == "Task" and state.get("End"))
    }
    assert succeeding <= {
        "Settle completed",
        "Settle failed",
        "Already settled",
        "Forward execution started",
        "Late effects compensated",
    }


def _functions(definition: dict[str, Any]) -> list[tuple[str, Any]]:
    """Calls of functions that act; a status query cannot be fenced or refused."""
    called = [(name, state) for name, state in tasks(definition) if state["Resource"] == LAMBDA]
    return [(name, state) for name, state in called if state["Arguments"]["Payload"].get("mode") != "verify"]


def test_fenced_is_caught_first_and_touches_nothing(definition: dict[str, Any]) -> None:
    for name, state in _functions(definition):
        first = state["Catch"][0]
        assert first["ErrorEquals"] == [ErrorName.FENCED], name
        assert definition["States"][first["Next"]]["Type"] == "Fail", name


def test_every_function_call_catches_everything_last(definition: dict[str, Any]) -> None:
    for name, state in _functions(definition):
        assert state["Catch"][-1]["ErrorEquals"] == ["States.ALL"], name
        assert state["Retry"][-1]["ErrorEquals"] == ["States.ALL"], name


def test_states_all_is_alone_and_last(definition: dict[str, Any]) -> None:
    for name, state in tasks(definition):
        for rules in (state.get("Retry", []), state.get("Catch", [])):
            for rule in rules[:-1]:
                assert "States.ALL" not in rule["ErrorEquals"], name
            if rules and "States.ALL" in rules[-1]["ErrorEquals"]:
                assert rules[-1]["ErrorEquals"] == ["States.ALL"], name


def _retry_of(state: Any, error: str) -> Any:
    """The rule that Step Functions would apply: the first that names the error."""
    return next(r for r in state["Retry"] if error in r["ErrorEquals"] or r["ErrorEquals"] == ["States.ALL"])


@pytest.mark.parametrize("error", [ErrorName.FENCED, ErrorName.UNDECIDED])
def test_permanent_errors_are_never_retried(definition: dict[str, Any], error: ErrorName) -> None:
    """Another execution owns the saga; or what the call did can only be found out by an operator."""
    called = [(name, state) for name, state in tasks(definition) if state["Resource"] == LAMBDA]
    for name, state in called:
        assert _retry_of(state, error)["MaxAttempts"] == 0, name


def _forward_steps(definition: dict[str, Any]) -> list[tuple[str, Any]]:
    return [(name, state) for name, state in _functions(definition) if not name.startswith("Compensate ")]


def test_a_refusal_is_never_retried(definition: dict[str, Any]) -> None:
    for name, state in _forward_steps(definition):
        for error in PERMANENT_ERRORS:
            assert _retry_of(state, error)["MaxAttempts"] == 0, (name, error)


def test_transient_errors_are_retried_with_full_jitter_and_a_cap(definition: dict[str, Any]) -> None:
    for name, state in _functions(definition):
        for error in TRANSIENT_ERRORS:
            rule = _retry_of(state, str(error))
            assert rule["JitterStrategy"] == "FULL", (name, error)
            assert rule["MaxAttempts"] > 0
            assert rule["MaxDelaySeconds"] >= rule["IntervalSeconds"]


@pytest.mark.parametrize(
    "error",
    ["StepInDoubt", "States.Timeout", "Sandbox.Timedout", "Lambda.Unknown", "Runtime.ExitError", "NameInNoList"],
)
def test_errors_in_doubt_are_retried_without_jitter(definition: dict[str, Any], error: str) -> None:
    for name, state in _functions(definition):
        rule = _retry_of(state, error)
        assert "JitterStrategy" not in rule, name
        assert rule["MaxAttempts"] > 0, name


def test_the_delays_of_errors_in_doubt_outlast_the_function(definition: dict[str, Any]) -> None:
    for name, state in _functions(definition):
        rule = _retry_of(state, ErrorName.IN_DOUBT)
        delays = [
            min(rule["IntervalSeconds"] * rule["BackoffRate"] ** n, rule["MaxDelaySeconds"])
            for n in range(rule["MaxAttempts"])
        ]
        assert sum(delays) > state["TimeoutSeconds"], name


@pytest.mark.parametrize(
    "retry",
    [
        Retry(in_doubt_attempts=99, in_doubt_interval=1, in_doubt_rate=1.0),
        Retry(in_doubt_interval=600, in_doubt_cap=600, transient_interval=400, transient_cap=400),
        Retry(transient_attempts=50),
    ],
    ids=["many short delays", "long delays", "many attempts"],
)
def test_after_the_pivot_nothing_is_retried_less_than_declared(retry: Retry) -> None:
    saga = plan(step("Debit", undo=True, retry=retry), step("Credit", pivot=True), step("Book", retry=retry))
    for name, state in _functions(definition_of(saga)):
        if name in {"Compensate Debit", "Book"}:
            doubt, transient = _retry_of(state, "StepInDoubt"), _retry_of(state, "TransientError")
            assert doubt["MaxAttempts"] >= retry.in_doubt_attempts
            assert doubt["MaxDelaySeconds"] >= max(doubt["IntervalSeconds"], retry.in_doubt_cap)
            assert transient["MaxAttempts"] >= retry.transient_attempts
            assert transient["MaxDelaySeconds"] >= max(transient["IntervalSeconds"], retry.transient_cap)


def test_a_refused_write_is_never_retried(definition: dict[str, Any]) -> None:
    for name, state in tasks(definition):
        if "ConditionExpression" in state["Arguments"]:
            refused = "DynamoDB.ConditionalCheckFailedException"
            assert _retry_of(state, refused)["MaxAttempts"] == 0, name
            assert any(refused in rule["ErrorEquals"] for rule in state["Catch"]), name


def test_every_write_has_a_condition(definition: dict[str, Any]) -> None:
    for name, state in tasks(definition):
        if state["Resource"].endswith(("dynamodb:putItem", "dynamodb:updateItem", "dynamodb:deleteItem")):
            assert state["Arguments"]["ConditionExpression"].strip(), name


def test_every_update_of_a_record_demands_that_it_is_owned_and_in_progress(definition: dict[str, Any]) -> None:
    for name, state in tasks(definition):
        if state["Resource"].endswith("dynamodb:updateItem"):
            condition = state["Arguments"]["ConditionExpression"]
            assert condition.startswith("attribute_exists(#id) AND #status = :in_progress AND #owner = :owner"), name
            assert "OR" not in condition.partition("(attribute_not_exists")[0], name
            values = state["Arguments"]["ExpressionAttributeValues"]
            assert values[":owner"] == {"S": "{% $states.context.Execution.Name %}"}, name
            assert values[":in_progress"] == {"S": "IN_PROGRESS"}, name


def test_a_direction_that_was_written_is_never_changed(definition: dict[str, Any]) -> None:
    updates = [(name, state["Arguments"]) for name, state in tasks(definition)]
    deciding = [(name, a) for name, a in updates if "#direction =" in a.get("UpdateExpression", "")]
    assert deciding
    for name, arguments in deciding:
        clause = " AND (attribute_not_exists(#direction) OR #direction = :direction)"
        assert arguments["ConditionExpression"].endswith(clause), name


def test_every_read_is_strong(definition: dict[str, Any]) -> None:
    for name, state in tasks(definition):
        if state["Resource"].endswith(("getItem", "query")):
            assert state["Arguments"]["ConsistentRead"] is True, name


def test_placeholders_of_expressions_are_defined_and_used(definition: dict[str, Any]) -> None:
    for name, state in tasks(definition):
        arguments = state["Arguments"]
        text = " ".join(str(v) for k, v in arguments.items() if k.endswith("Expression"))
        assert set(re.findall(r"#\w+", text)) == set(arguments.get("ExpressionAttributeNames", {})), name
        assert set(re.findall(r":\w+", text)) == set(arguments.get("ExpressionAttributeValues", {})), name


@pytest.mark.parametrize("name", PLANS)
def test_the_happy_path_takes_one_transition_per_step_and_one_to_settle(name: str) -> None:
    saga = PLANS[name]
    definition = definition_of(saga)
    path = [state for state in happy_path(definition) if definition["States"][state]["Type"] != "Choice"]
    assert path == [*(step.name for step in saga.steps), "Settle completed"]


@pytest.mark.parametrize("name", PLANS)
def test_a_condition_costs_at_most_one_further_transition(name: str) -> None:
    saga = PLANS[name]
    conditional = sum(1 for step in saga.steps if step.when)
    assert len(happy_path(definition_of(saga))) <= len(saga.steps) + 1 + conditional


def test_compensations_run_in_reverse_from_the_failed_step() -> None:
    definition = definition_of(with_steps(["One", "Two", "Three", "Last"]))
    states = definition["States"]
    assert _chain(states, "Begin compensation at Three") == [
        "Compensate Three",
        "Compensate Two",
        "Compensate One",
        "Query saga log",
    ]
    assert _chain(states, "Begin compensation at Two") == ["Compensate Two", "Compensate One", "Query saga log"]
    assert _chain(states, "Begin compensation at Last") == [
        "Compensate Three",
        "Compensate Two",
        "Compensate One",
        "Query saga log",
    ]


def test_a_recovery_compensates_from_the_last_step_and_skips_none() -> None:
    saga = plan(step("One", undo=True), step("Two", pivot=True, undo=True), step("Three", undo=True))
    recovery = recovery_of(saga, FORWARD_MACHINE)
    assert _chain(recovery["States"], "Set direction to compensate") == [
        "Compensate Three",
        "Compensate Two",
        "Compensate One",
        "Query saga log",
    ]


def _chain(states: dict[str, Any], start: str) -> list[str]:
    chain = [states[start]["Next"]]
    while chain[-1].startswith("Compensate "):
        chain.append(states[chain[-1]]["Next"])
    return chain


@pytest.mark.parametrize("name", PLANS)
def test_no_path_leads_from_after_the_pivot_to_a_compensation(name: str) -> None:
    saga = PLANS[name]
    definition = definition_of(saga)
    for later in saga.steps[saga.last_pivot + 1 :]:
        assert not [
            state
            for state in reachable(definition, later.name)
            if state.startswith(("Begin compensation", "Compensate "))
        ]


@pytest.mark.parametrize("name", PLANS)
def test_every_compensation_comes_after_the_direction_was_written(name: str) -> None:
    """Every entry to the chain has written or read ``compensate``, or is in the chain already.

    A late effect is compensated in any direction: its row marks it as not applied for the saga.
    """
    for definition in (definition_of(PLANS[name]), recovery_of(PLANS[name], FORWARD_MACHINE)):
        for edge in edges(definition["States"]):
            if edge.target.startswith("Compensate ") and not edge.source.startswith("Compensate "):
                source = definition["States"][edge.source]
                written = "#direction = :direction" in source.get("Arguments", {}).get("UpdateExpression", "")
                again = edge.source.startswith(("Select direction", "All compensated?", "Read output of "))
                assert written or again, edge


@pytest.mark.parametrize("name", PLANS)
def test_the_log_is_queried_before_a_saga_settles_as_failed(name: str) -> None:
    for definition in (definition_of(PLANS[name]), recovery_of(PLANS[name], FORWARD_MACHINE)):
        states = {n: s for n, s in definition["States"].items() if n != "Query saga log"}
        assert "Settle failed" not in reachable({"StartAt": definition["StartAt"], "States": _closed(states)})


def _closed(states: dict[str, Any]) -> dict[str, Any]:
    return {**states, "Query saga log": {"Type": "Fail"}}


@pytest.mark.parametrize("name", PLANS)
def test_the_same_saga_declared_twice_has_the_same_bytes(name: str) -> None:
    again = plan(
        *PLANS[name].steps, on_failed=PLANS[name].on_failed, on_error=dict(reversed(list(PLANS[name].on_error.items())))
    )
    assert json.dumps(definition_of(PLANS[name])) == json.dumps(definition_of(again))
    assert json.dumps(recovery_of(PLANS[name], "a")) == json.dumps(recovery_of(again, "a"))


@pytest.mark.parametrize("name", PLANS)
def test_a_definition_is_far_from_its_largest_size(name: str) -> None:
    assert len(json.dumps(definition_of(PLANS[name]))) < 100_000


def test_a_saga_without_a_pivot_compensates_until_it_settles() -> None:
    made = plan(step("Reserve", undo=True), step("Debit", undo=True))
    forward, recovery = definition_of(made), recovery_of(made, "arn:forward")
    assert not [
        name
        for name in (*forward["States"], *recovery["States"])
        if name.startswith(("Fence", "Continue forward", "Set direction to forward"))
    ]
    assert {"Compensate Reserve", "Compensate Debit"} <= reachable(recovery, recovery["StartAt"])
    assert "Start forward execution" in recovery["States"], "a direction that was once written is kept to"
