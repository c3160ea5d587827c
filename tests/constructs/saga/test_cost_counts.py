"""Transitions counted from a description, compared with those of the generated definition: state by state.

Plain sagas, and phases in a machine of their own, are interpreted, every expression included. Parallel branches and
maps are walked: a branch for each, an item for each.
"""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Mapping
from typing import Any

import pytest
from aws_cdk import Stack

from constructs_lib import IdempotencyTable, SagaStateMachine, Step
from constructs_lib.saga.asl import (
    CompiledGroup,
    CompiledStep,
    Node,
    Notice,
    SagaPlan,
    definition_of,
    phase_definition,
)
from constructs_lib.saga.asl.begin import SAME_DEFINITION
from constructs_lib.saga.asl.states import CANCELED, CONDITION_FAILED
from constructs_lib.saga.cost.assumptions import Assumptions
from constructs_lib.saga.cost.compensation import CANCELED_RETRIES, longest_compensation
from constructs_lib.saga.cost.prices import Meter
from constructs_lib.saga.cost.usage import happy_path
from constructs_lib.saga.description.description import SagaDescription, StepDescription
from constructs_lib.saga.steps.direct import DirectCall, DirectTransaction, Effect
from saga_runtime.saga_log.provider import ProviderSettings
from tests.constructs.support.cloud import Cloud
from tests.constructs.support.interpreter import Failure, run
from tests.constructs.support.plans import PERMANENT, PLANS, QUEUE, step
from tests.constructs.support.plans import plan as plain_plan
from tests.constructs.support.sagas import plain_function

ITEMS = 3
_PROVIDER = ProviderSettings(grace=5, clock_skew=5, window=60, undo_window=60, verify=False, verify_undo=False)


def plan(*nodes: Node, **options: Any) -> SagaPlan:
    """A plan of steps and groups."""
    return dataclasses.replace(plain_plan(step("Only", pivot=True)), steps=nodes, **options)


def _external(name: str, **options: Any) -> CompiledStep:
    return step(name, provider=_PROVIDER, **options)


def _writes(name: str, *, undo: bool = False, **options: Any) -> CompiledStep:
    entries = ({"Delete": {"Key": {"id": {"S": "x"}}}},)
    transaction = DirectTransaction(table_name="items", writes=entries, compensate=entries if undo else ())
    return step(name, function_arn="", function=None, transaction=transaction, **options)


def _wait(name: str) -> CompiledStep:
    wait = DirectCall(fields={"Type": "Wait", "Seconds": 1}, effect=Effect.READ, output="{}", written={})
    return step(name, function_arn="", direct=wait)


def _group(name: str, kind: str, *branches: tuple[CompiledStep, ...], **options: Any) -> CompiledGroup:
    fields: dict[str, Any] = {"timeout": 60, "machine_arn": f"arn:{name}", "items": "$request.items", "key": "$item"}
    return CompiledGroup(name=name, kind=kind, branches=branches, **(fields | options))


_LOCAL = (step("Reserve", undo=True), step("Hold", undo=True))
_PICK = (step("Pick", undo=True), step("Pack", undo=True))
GROUPED = {
    "external steps": plan(_external("Charge", undo=True), _external("Capture", pivot=True)),
    "an external pivot that can be undone": plan(*_LOCAL, _external("Charge", undo=True, pivot=True)),
    "an Express phase": plan(_group("Prepare", "express", _LOCAL), step("Commit", pivot=True)),
    "everything in an Express phase": plan(_group("All", "express", (*_LOCAL, _external("Charge", pivot=True)))),
    "a child": plan(step("Open", undo=True), _group("Fulfil", "child", _PICK), step("Commit", pivot=True)),
    "branches": plan(_group("Both", "parallel", _LOCAL, (step("Book", undo=True),)), step("Commit", pivot=True)),
    "a map": plan(_group("Ship", "map", _PICK), step("Commit", pivot=True)),
    "a phase behind a condition": plan(
        _group("Prepare", "express", _LOCAL, when="$request.large"), step("Commit", pivot=True)
    ),
    "writes straight from the state machine": plan(
        _writes("Mark", undo=True), step("Hold", undo=True), _writes("Commit", pivot=True), _wait("Rest")
    ),
    "writes that are the last of a branch": plan(
        _group("Both", "parallel", (_writes("Mark", undo=True),), _LOCAL), step("Commit", pivot=True)
    ),
    "a step behind a condition in a branch": plan(
        _group("Fulfil", "child", (step("Pick", undo=True), step("Wrap", undo=True, when="$request.gift"))),
        step("Commit", pivot=True),
    ),
    "no pivot": plan(*_LOCAL),
}
ALL: dict[str, SagaPlan] = {**PLANS, **GROUPED}


def described(saga: SagaPlan) -> SagaDescription:
    """The description of a plan: what the construct would write into the assembly."""
    steps = tuple(
        StepDescription(
            name=node.name,
            kind=node.kind,
            side=saga.side_of(node.leaves[0]),
            when=node.when,
            branches=tuple(tuple(_described(saga, leaf) for leaf in branch) for branch in node.branches),
            max_items=node.max_items if node.kind == "map" else 0,
        )
        if isinstance(node, CompiledGroup)
        else _described(saga, node)
        for node in saga.steps
    )
    told = saga.on_failed is not None
    return SagaDescription(name="Saga", steps=steps, timeout=60, fingerprint="f", tells_of_failure=told)


def _described(saga: SagaPlan, node: CompiledStep) -> StepDescription:
    return StepDescription(
        name=node.name,
        kind=node.kind,
        side=saga.side_of(node),
        when=node.when,
        compensated=node.compensated,
        routes=dict.fromkeys(saga.on_error, "notify") if node is saga.steps[0] else {},
    )


@pytest.fixture(params=ALL)
def saga(request: pytest.FixtureRequest) -> SagaPlan:
    return ALL[str(request.param)]


def test_the_happy_path_has_as_many_transitions_as_are_counted(saga: SagaPlan) -> None:
    description, inputs = described(saga), Assumptions(map_items=ITEMS)
    counted = happy_path(description, inputs)

    taken = {node.name for node in saga.steps} & set(counted.way.split(", "))
    assert counted.total(Meter.TRANSITIONS) == _walked(saga, definition_of(saga), taken)


def test_the_longest_compensation_has_as_many_transitions_as_are_counted(saga: SagaPlan) -> None:
    description, inputs = described(saga), Assumptions(map_items=ITEMS)
    counted = longest_compensation(description, inputs)
    assert counted is not None

    refused = counted.way.removesuffix(" refuses")
    assert counted.total(Meter.TRANSITIONS) == _Back(saga, refused).transitions()


def _walked(saga: SagaPlan, machine: Mapping[str, Any], taken: set[str], name: str | None = None) -> int:
    """States entered along the happy path, those of branches, items and children included."""
    entered = 0
    name = name or machine["StartAt"]
    groups = {node.name: node for node in saga.steps if isinstance(node, CompiledGroup)}
    while name is not None:
        state = machine["States"][name]
        entered += 1
        if state["Type"] == "Map":
            entered += ITEMS * _walked(saga, state["ItemProcessor"], taken)
        elif state["Type"] == "Parallel":
            entered += sum(_walked(saga, branch, taken) for branch in state["Branches"])
        elif name in groups and groups[name].kind == "child":
            entered += _walked(saga, phase_definition(saga, groups[name]), taken)
        name = _next(state, name, taken)
    return entered


def _next(state: Mapping[str, Any], name: str, taken: set[str]) -> str | None:
    if state["Type"] != "Choice":
        return str(state["Next"]) if "Next" in state else None
    if name.endswith(" - result"):
        return str(state["Choices"][0]["Next"])
    # A condition in a branch always holds here; one of the saga, if its step is on the way.
    ahead = [str(rule["Next"]) for rule in state["Choices"]]
    chosen = [target for target in ahead if target in taken or name == "Select step after Pick"]
    return chosen[0] if chosen else str(state["Default"])


class _Back:
    """An execution that is refused at one step, interpreted; what happens inside branches is walked."""

    def __init__(self, saga: SagaPlan, refused: str) -> None:
        self.saga, self.refused = saga, refused
        self.at = next(node for node in saga.steps if any(leaf.name == refused for leaf in node.leaves))
        self.inside = 0
        leaves = {leaf.name: leaf for leaf in saga.leaves}
        self.step = leaves[refused]

    def transitions(self) -> int:
        definition = definition_of(_without_branches(self.saga))
        done = run(
            definition,
            self.answer,
            request=json.dumps({"to_ledger": "partner", "debit": True, "large": True, "items": ["a", "b", "c"]}),
        )
        assert done.output == {"saga_id": "aaaaaaaaaaaaaaaaaaaaaaaaaa-1", "status": "FAILED"}, done.trace
        again = CANCELED_RETRIES if self.step.transaction is not None else 0
        # Without branches no state of its own asks for the definition.
        again += int(definition_of(self.saga)["StartAt"] == SAME_DEFINITION != definition["StartAt"])
        return len(done.trace) + again + self._inside(set(done.trace))

    def answer(self, name: str, _: Any) -> Any:
        if name == self.at.name:
            return self._refuse()
        node = next((node for node in self.saga.steps if node.name == name), None)
        if isinstance(node, CompiledGroup):
            return self._phase({"ok": True, "outputs": {leaf.name: {"large": True} for leaf in node.leaves}}, node)
        if name == f"{self.refused} - read row":
            return {}
        if name.startswith("Fence ") and name.endswith(" - read row"):
            return {"Item": {"status": {"S": "REFUSED"}}}
        if name.endswith(" - read row"):
            row = "TOMBSTONE" if self.refused in name else "DONE"
            return {"Item": {"status": {"S": row}, "output": {"S": "{}"}}}
        if name == f"Fence {self.refused}" and self.step.provider is not None:
            raise Failure(CONDITION_FAILED)
        if self._undoes_writes(name):
            raise Failure(CONDITION_FAILED)
        return {"Count": 0} if name == "Query saga log" else {"Payload": {"output": {"large": True}}}

    def _undoes_writes(self, name: str) -> bool:
        """A tombstone over a row of the state machine is refused: the row is DONE."""
        step_name = name.removeprefix("Compensate ")
        written = {leaf.name for leaf in self.saga.leaves if leaf.transaction is not None}
        return name != step_name and step_name in written and (step_name != self.refused or self.step.pivot)

    def _refuse(self) -> Any:
        if isinstance(self.at, CompiledGroup):
            failure = {
                "step": self.refused,
                "error": PERMANENT[0],
                "detail": "",
                "status": 422,
                "kind": "",
                "title": "",
            }
            return self._phase({"ok": False, "outputs": {}, "failure": failure}, self.at)
        if self.step.transaction is not None:
            raise Failure(CANCELED, "ConditionalCheckFailed")
        raise Failure(PERMANENT[0], '{"errorMessage": "no"}')

    def _phase(self, answer: Mapping[str, Any], group: CompiledGroup) -> Any:
        if group.kind == "express":
            return {"Status": "SUCCEEDED", "Output": json.dumps(answer)}
        return {"Output": answer}

    def _inside(self, trace: set[str]) -> int:
        """States of branches, items and children, forward and back: the interpreter has walked around them."""
        entered = 0
        whole: dict[str, Any] = definition_of(self.saga)["States"]
        for node in self.saga.steps:
            if not isinstance(node, CompiledGroup) or node.name not in trace or node.kind == "express":
                continue
            if node.kind == "child":
                entered += _walked(self.saga, phase_definition(self.saga, node), set())
            else:
                state = {name: value for name, value in whole[node.name].items() if name != "Next"}
                entered += _walked(self.saga, {"StartAt": node.name, "States": {node.name: state}}, set()) - 1
            if node is self.at and self.step.transaction is None:
                entered += 1  # where a branch stops, instead of ending with its last step
            if node.kind == "map":
                back = whole[f"Compensate {node.name}"]["ItemProcessor"]
                entered += ITEMS * _walked(self.saga, back, set()) + 2
        return entered


def _without_branches(saga: SagaPlan) -> SagaPlan:
    """The same saga with children instead of branches and maps: the interpreter calls them, and continues."""
    nodes: list[Node] = []
    for node in saga.steps:
        if isinstance(node, CompiledGroup) and node.kind == "parallel":
            together = tuple(leaf for branch in node.branches for leaf in branch)
            nodes.append(_group(node.name, "child", together, when=node.when))
        elif isinstance(node, CompiledGroup) and node.kind == "map":
            # Its compensations hang off one state, so the children have none.
            idle = tuple(step(leaf.name, pivot=leaf.pivot) for leaf in node.leaves)
            nodes.append(_group(node.name, "child", idle, when=node.when))
        else:
            nodes.append(node)
    return plan(*nodes, on_failed=saga.on_failed, on_error=saga.on_error)


@pytest.mark.parametrize("passed", [{"Fee"}, {"Fee", "Ship"}, {"Ship"}], ids=str)
def test_a_path_around_the_pivot_costs_a_state_and_a_write_for_its_direction(passed: set[str]) -> None:
    around = plan(
        step("Debit", undo=True), step("Fee", pivot=True, when="$request.fee"), step("Ship", when="$request.ship")
    )
    request = {"fee": "Fee" not in passed, "ship": "Ship" not in passed}
    done = run(definition_of(around), lambda name, _: {"Payload": {"output": {}}}, request=json.dumps(request))

    counted = happy_path(described(around), Assumptions(skip=frozenset(passed)))

    assert counted.total(Meter.TRANSITIONS) == len(done.trace)
    directions = sum(use.by == "direction" and use.meter is Meter.WRITE_UNITS for use in counted.uses)
    assert directions == sum(state.startswith("Only forward to") for state in done.trace)


def test_a_notice_costs_one_state_and_its_choice_another() -> None:
    quiet = plan(step("Debit", undo=True), step("Credit", pivot=True))
    told = plan(*quiet.steps, on_failed=Notice(queue_url=QUEUE))

    counts = [longest_compensation(described(one)) for one in (quiet, told)]

    first, second = (usage.total(Meter.TRANSITIONS) for usage in counts if usage is not None)
    assert second == first + 1


def test_a_constructs_description_has_the_counts_of_its_definition(stack: Stack) -> None:
    first, second, third, last = (plain_function(stack, f"Function{n}") for n in range(4))
    undo = plain_function(stack, "Undo")
    machine = SagaStateMachine(
        stack,
        "Saga",
        requests=IdempotencyTable(stack, "Requests"),
        steps=[
            Step.express("Prepare", steps=[Step.atomic("Reserve", fn=first, compensate=undo)]),
            Step.parallel(
                "Both",
                branches=[
                    [Step.atomic("Hold", fn=second, compensate=undo)],
                    [Step.read_only("Quote", fn=third, when="$request.quoted")],
                ],
            ),
            Step.map(
                "Ship", items="$request.items", key="$item", steps=[Step.atomic("Pack", fn=last, compensate=undo)]
            ),
            Step.atomic("Commit", fn=first, pivot=True),
        ],
    )

    counted = happy_path(machine.description, Assumptions(map_items=ITEMS))

    assert counted.total(Meter.TRANSITIONS) == _walked(plan(), machine.definition, {"Quote"})
    assert counted.total(Meter.EXPRESS_REQUESTS) == 1


def test_counts_of_the_reference_app_are_those_of_its_interpretation(reference_stack: Stack, reference: Cloud) -> None:
    (saga,) = (one for one in reference_stack.node.find_all() if isinstance(one, SagaStateMachine))

    done = run(
        reference.definition("Transfer/StateMachine"),
        lambda *_: {"Payload": {"output": {}}},
        request='{"to_ledger": "partner"}',
        defined=saga.definition_fingerprint,
    )

    counted = happy_path(saga.description)
    assert counted.way == "Debit, Credit, Receipt"
    assert counted.total(Meter.TRANSITIONS) == len(done.trace)
