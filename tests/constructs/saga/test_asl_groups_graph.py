"""The shape of definitions with groups of steps: on every level, in every machine."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator, Mapping
from typing import Any

import pytest

from constructs_lib.saga.asl.states import MAX_STATE_NAME
from tests.constructs.support.asl import edges, endings, expressions, levels, reachable, tasks
from tests.constructs.support.groups import GROUPED, direct, machines_of, plan
from tests.constructs.support.jsonata import compiled
from tests.constructs.support.plans import PLANS, step

MACHINES = {f"{name}, {label}": made for name, saga in GROUPED.items() for label, made in machines_of(saga).items()}
ENDS = {"Settle completed", "Settle failed", "Already settled", "End fenced", "End parked", "Forward execution started"}
ENDS |= {"End under another definition"}


@pytest.fixture(params=MACHINES)
def machine(request: pytest.FixtureRequest) -> dict[str, Any]:
    return MACHINES[str(request.param)]


def test_on_every_level_each_way_leads_to_a_state_that_exists_and_each_state_can_be_reached(
    machine: dict[str, Any],
) -> None:
    for level in levels(machine):
        assert {edge.target for edge in edges(level["States"])} <= set(level["States"])
        assert set(level["States"]) == reachable(level)


def test_on_every_level_an_end_can_be_reached_from_every_state(machine: dict[str, Any]) -> None:
    for level in levels(machine):
        assert not [name for name in level["States"] if not endings(level, name)]


def test_a_name_is_unique_in_a_machine_and_fits(machine: dict[str, Any]) -> None:
    names = Counter(name for level in levels(machine) for name in level["States"])
    assert not [name for name, number in names.items() if number > 1 or len(name) > 80]


@pytest.mark.parametrize("name", GROUPED)
def test_a_step_name_of_40_characters_leaves_every_state_name_room(name: str) -> None:
    saga = GROUPED[name]
    own = [node.name for node in (*saga.steps, *saga.leaves)]
    for machine in machines_of(saga).values():
        for state in (state for level in levels(machine) for state in level["States"] if "(" not in state):
            longest = max((len(step) for step in own if step in state), default=40)
            assert len(state) - longest + 40 <= MAX_STATE_NAME, state


def test_every_task_has_a_timeout(machine: dict[str, Any]) -> None:
    assert not [name for name, state in tasks(machine) if not state.get("TimeoutSeconds", 0) > 0]
    assert machine["TimeoutSeconds"] > 0


def test_every_expression_compiles(machine: dict[str, Any]) -> None:
    for _, expression in expressions(machine):
        compiled(expression)


@pytest.mark.parametrize("name", [name for name in MACHINES if name.endswith((", forward", ", recovery"))])
def test_every_failure_ends_settled_fenced_parked_or_transferred(name: str) -> None:
    states = MACHINES[name]["States"]
    for edge in edges(states):
        if edge.kind == "catch":
            assert endings(MACHINES[name], edge.target) <= ENDS, edge


def _inner(machine: dict[str, Any]) -> Iterator[dict[str, Any]]:
    """Branches and items."""
    yield from (dict(level) for level in list(levels(machine))[1:])


def _branches() -> Iterator[tuple[str, dict[str, Any]]]:
    for name, machine in MACHINES.items():
        if not name.endswith((", forward", ", recovery")):
            yield name, machine
        for level in _inner(machine):
            if not level["StartAt"].endswith(" - items"):  # the state around it catches its failure
                yield f"{name}: {level['StartAt']}", level


BRANCHES = dict(_branches())


@pytest.mark.parametrize("name", BRANCHES)
def test_a_branch_never_fails_but_returns_its_failure(name: str) -> None:
    """Every function and every transaction in it catches everything; every end of it has ``ok``."""
    for state_name, state in BRANCHES[name]["States"].items():
        assert state["Type"] != "Fail", state_name
        if state.get("End"):
            assert "ok" in state["Output"], state_name
        may_fail = state["Type"] == "Task" and state["Resource"].endswith(("invoke", "transactWriteItems"))
        if may_fail:
            assert state["Catch"][-1]["ErrorEquals"] == ["States.ALL"], state_name


@pytest.mark.parametrize("name", BRANCHES)
def test_a_fenced_branch_reports_so_first(name: str) -> None:
    states = BRANCHES[name]["States"]
    for state_name, state in states.items():
        asks = (
            state.get("Arguments", {}).get("Payload", {}).get("mode") == "verify" if state["Type"] == "Task" else False
        )
        if state["Type"] == "Task" and state["Resource"].endswith("lambda:invoke") and not asks:
            first = state["Catch"][0]
            assert first["ErrorEquals"] == ["SagaFenced"], state_name
            assert states[first["Next"]]["Output"]["fenced"] is True, state_name


def _assigned(states: Mapping[str, Any]) -> set[str]:
    """Names that the states of one level assign."""
    holders = [
        holder
        for state in states.values()
        for holder in (state, *state.get("Catch", ()), *state.get("Choices", ()))
        if "Assign" in holder
    ]
    return {name for holder in holders for name in holder["Assign"]}


def test_a_scope_inside_never_assigns_a_name_that_the_outer_one_assigns(machine: dict[str, Any]) -> None:
    """Step Functions refuses such a definition."""
    outer = _assigned(machine["States"])
    for level in _inner(machine):
        assert not _assigned(level["States"]) & outer


def test_the_check_of_names_would_find_one() -> None:
    states = {"A?": {"Type": "Choice", "Choices": [{"Next": "B", "Assign": {"row": 1}}], "Assign": {"own": 1}}}
    assert _assigned(states) == {"row", "own"}


@pytest.mark.parametrize("name", GROUPED)
def test_no_path_leads_from_after_the_pivot_to_a_compensation(name: str) -> None:
    saga = GROUPED[name]
    forward = machines_of(saga)["forward"]
    for later in saga.steps[saga.last_pivot + 1 :]:
        assert not [
            state for state in reachable(forward, later.name) if state.startswith(("Begin compensation", "Compensate "))
        ]


@pytest.mark.parametrize("name", [*GROUPED, *PLANS])
def test_every_path_to_the_operators_has_a_reason(name: str) -> None:
    saga = GROUPED.get(name) or plan(*PLANS[name].steps)
    told = 0
    for machine in (machines_of(saga)[label] for label in ("forward", "recovery")):
        for source, state in machine["States"].items():
            ways = [(way, way.get("Assign", {})) for way in (*state.get("Catch", ()), *state.get("Choices", ()))]
            ways += [({"Next": state[key]}, state.get("Assign", {})) for key in ("Next", "Default") if key in state]
            for way, assigned in ways:
                if way["Next"] == "Notify operators":
                    told += 1
                    assert "parked_reason" in assigned, source
    assert told > 0


@pytest.mark.parametrize("name", GROUPED)
def test_operators_are_notified_before_the_saga_is_parked(name: str) -> None:
    for label in ("forward", "recovery"):
        states = machines_of(GROUPED[name])[label]["States"]
        parking = {edge.source for edge in edges(states) if edge.target == "Park saga"}
        assert parking == {"Notify operators"}


@pytest.mark.parametrize("name", GROUPED)
def test_the_same_saga_generated_twice_has_the_same_bytes(name: str) -> None:
    assert json.dumps(machines_of(GROUPED[name])) == json.dumps(machines_of(GROUPED[name]))


def test_a_group_costs_one_transition_and_one_choice() -> None:
    five = GROUPED["pivot in a child"]
    states = machines_of(five)["forward"]["States"]
    path = ["Money", states["Money"]["Next"], states["Money - result"]["Choices"][0]["Next"]]
    assert path == ["Money", "Money - result", "Settle completed"]


def test_states_of_the_users_own_must_have_names_of_their_own() -> None:
    inside = {"StartAt": "Settle completed", "States": {"Settle completed": {"Type": "Pass", "End": True}}}
    mine = direct("Mine", Type="Parallel", Branches=[inside])
    with pytest.raises(ValueError, match=r"must have different names, got \['Settle completed'\] twice; rename yours"):
        machines_of(plan(step("Move", pivot=True), mine))


def test_every_compensation_of_a_group_comes_after_the_direction_was_written() -> None:
    for name, saga in GROUPED.items():
        for label in ("forward", "recovery"):
            states = machines_of(saga)[label]["States"]
            for edge in edges(states):
                if edge.target.startswith("Compensate ") and not edge.source.startswith("Compensate "):
                    source = states[edge.source]
                    written = "#direction = :direction" in source.get("Arguments", {}).get("UpdateExpression", "")
                    read = edge.source.startswith(("Select direction", "Read output of "))
                    assert written or read, (name, edge)
