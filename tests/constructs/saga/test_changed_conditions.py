"""Conditions, or keys of a map, that a deployment changes: a saga never takes two paths."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from itertools import product
from typing import Any

import pytest
from aws_cdk import Duration, Stack

from constructs_lib import ContinueWith, Effect, IdempotencyTable, SagaStateMachine, Step, StepGroup
from constructs_lib.saga.asl import Node, SagaPlan
from constructs_lib.saga.asl.recovery import NOTE_DEFINITION, SAME_WAYS
from saga_runtime.protocol import WAYS_AT
from tests.constructs.support.groups import of_items, plan
from tests.constructs.support.plans import step
from tests.constructs.support.sagas import plain_function
from tests.constructs.support.simulation import Moment, Simulation, Stop

REQUEST = {"amount": 150, "items": [{"sku": "a", "id": "1"}]}
LOW, HIGH = "$request.amount < 100", "$request.amount >= 100"
LOWER, HIGHER = "$request.amount < 200", "$request.amount >= 200"


def _made(nodes: list[Node], ways: str, shape: str = "shape") -> SagaPlan:
    return plan(*nodes, fingerprint=f"{shape:{WAYS_AT}}{ways}", outlived_seconds=1_260)


def _pivots(one: str, other: str) -> list[Node]:
    ways = [step("One", pivot=True, when=one), step("Other", pivot=True, when=other)]
    return [step("Debit", undo=True), *ways, step("Tell")]


def _before(one: str, other: str) -> list[Node]:
    ways = [step("One", undo=True, when=one), step("Other", undo=True, when=other)]
    return [*ways, step("Credit", pivot=True), step("Tell")]


def _behind(one: str, other: str) -> list[Node]:
    return [step("Credit", pivot=True), step("One", when=one), step("Other", when=other), step("Tell")]


def _items(key: str, _: str) -> list[Node]:
    return [step("Credit", pivot=True), of_items("All", step("Pay"), key=key), step("Tell")]


CHANGES = {
    "pivots": (_pivots, (LOW, HIGH), (LOWER, HIGHER)),
    "pivots, the other way round": (_pivots, (LOWER, HIGHER), (LOW, HIGH)),
    "before the pivot": (_before, (LOW, HIGH), (LOWER, HIGHER)),
    "behind the pivot": (_behind, (LOW, HIGH), (LOWER, HIGHER)),
    "keys of items": (_items, ("$item.sku", ""), ("$item.id", "")),
}


def _stopped(change: str, without: str = "", **options: Any) -> Iterator[Simulation]:
    """A saga that is stopped anywhere and recovered under other conditions; and again anywhere in its recovery."""
    make, earlier, later = CHANGES[change]
    began, deployed = _made(make(*earlier), "earlier"), _made(make(*later), "later", **options)

    def changed(definition: dict[str, Any]) -> dict[str, Any]:
        states = definition["States"]
        if without in states:
            following = next(one["Next"] for one in states[without].get("Choices", [states[without]]))
            definition = definition | {"States": states | {without: {"Type": "Pass", "Next": following}}}
        return definition

    for call, moment, later_call in product(range(1, 6), Moment, (0, 2, 3, 4, 5, 6)):
        stops = {Stop(call=call, moment=moment), Stop(call=call + later_call, moment=Moment.AFTER)}
        yield Simulation(
            plan=began, deployed=(deployed,), request=REQUEST, stops=frozenset(stops), change=changed
        ).run()


def _both(saga: Simulation) -> bool:
    return len([row for row in saga.effects if saga.effects[row] and row.startswith(("One", "Other", "Pay"))]) > 1


@pytest.mark.exhaustive
@pytest.mark.parametrize("shape", ["shape", "another"])
@pytest.mark.parametrize("change", CHANGES)
def test_a_saga_never_takes_another_path_after_a_change(change: str, shape: str) -> None:
    ends = set()
    for saga in _stopped(change, shape=shape):
        assert not _both(saga), (saga.rows, saga.traces)
        assert saga.settled or saga.parked, saga.traces
        ends.add(saga.told[-1]["parked_reason"]["error"] if saga.parked else saga.settled)
    assert ends == {"COMPLETED", "FAILED", "IncompatibleDefinition"}


@pytest.mark.exhaustive
@pytest.mark.parametrize("change", CHANGES)
def test_without_comparing_conditions_it_takes_both_paths_or_does_not_end(change: str) -> None:
    ended = {"both" if _both(saga) else saga.settled or saga.parked for saga in _stopped(change, without=SAME_WAYS)}

    # The first pivot is fenced before the second one is found to be DONE: that saga never ends.
    assert (False if change == "pivots" else "both") in ended


def test_a_resumed_saga_does_not_take_both_paths() -> None:
    began, deployed = _made(_pivots(LOW, HIGH), "earlier"), _made(_pivots(LOWER, HIGHER), "later", "another")
    saga = Simulation(
        plan=began, deployed=(deployed,), request=REQUEST, stops=frozenset({Stop(call=3, moment=Moment.BEFORE)})
    ).run()
    assert saga.parked
    assert NOTE_DEFINITION in saga.traces["aaaaaaaaaaaaaaaaaaaaaaaaaa-1-r1"]

    saga.resume()

    assert saga.parked
    assert not _both(saga)


def test_under_the_earlier_conditions_it_ends() -> None:
    began = _made(_pivots(LOW, HIGH), "earlier")
    other = _made(_pivots(LOWER, HIGHER), "later")
    saga = Simulation(
        plan=began, deployed=(other, began), request=REQUEST, stops=frozenset({Stop(call=3, moment=Moment.BEFORE)})
    ).run()
    assert saga.parked

    saga.resume()

    assert (saga.settled, +saga.effects) == ("COMPLETED", {"Debit": 1, "Other": 1, "Tell": 1})


class TestTheFingerprint:
    def test_differs_by_conditions_and_keys_and_nothing_else(self, stack: Stack) -> None:
        requests, fn = IdempotencyTable(stack, "Requests"), plain_function(stack, "One")
        made = iter(range(100))

        def ways(*steps: Step | StepGroup) -> str:
            last = Step.atomic("Last", fn=fn, pivot=True)
            saga = SagaStateMachine(stack, f"S{next(made)}", requests=requests, steps=[*steps, last])
            return saga.definition_fingerprint[WAYS_AT:]

        def one(when: str | None, name: str = "One") -> Step:
            return Step.atomic(name, fn=fn, compensate=fn, when=when)

        def of(key: str, items: str = "$request.items") -> StepGroup:
            return Step.map("Each", items=items, key=key, steps=[one(None)])

        def look(when: str | None) -> Step:
            return Step.read_only("Look", fn=fn, when=when)

        def instead(number: int) -> Step:
            go_on = {"Unknown": ContinueWith(output={"a": number})}
            return Step.atomic("One", fn=fn, compensate=fn, refusals=["Unknown"], on_error=go_on)

        def call(effect: Effect, when: str) -> Step:
            state = {"Type": "Pass"}
            return Step.custom("Call", state=state, effect=effect, when=when)

        told = [
            ways(one(None)),
            ways(one("$request.a")),
            ways(one("$request.b")),
            ways(one("$request.a", "Two")),
            ways(Step.express("Phase", steps=[one("$request.a")])),
            ways(Step.express("Phase", steps=[one(None)], when="$request.a")),
            ways(of("$item.sku")),
            ways(of("$item.id")),
            ways(of("$item.id", "$request.lines")),
            ways(look("$request.a")),
            ways(instead(1)),
            ways(instead(2)),
        ]
        same = [
            ways(Step.read_only("Look", fn=fn, record=False, when="$request.a")),
            ways(Step.atomic("Other", fn=fn, compensate=fn)),
            ways(call(Effect.READ, "$request.a")),
        ]

        # The place of a step with a condition does not matter; a phase has a condition of its own.
        assert len({*told}) == len(told) - 1
        assert told[1] == told[4]
        assert {*same} == {told[0]}


class TestAPhase:
    """A phase and the saga that calls it name its steps by one digest, made by the construct."""

    def _shape(self, stack: Stack, number: int, *inside: Step, **options: Any) -> str:
        requests, fn = IdempotencyTable(stack, f"Requests{number}"), plain_function(stack, f"Function{number}")
        last = Step.atomic("Last", fn=fn, pivot=not any(step.pivot for step in inside))
        phase = Step.express("Phase", steps=list(inside), **options)
        saga = SagaStateMachine(stack, f"S{number}", requests=requests, steps=[phase, last])
        given = re.findall(r'"definition": "([0-9a-f]{16})"', json.dumps(saga.definition).replace("\\", ""))
        own = re.findall(r'Input.definition = "([0-9a-f]{16})"', json.dumps(saga.phase_definitions).replace("\\", ""))
        assert {*given} == {*own}
        return str(own[0])

    def test_has_another_digest_with_any_other_step_or_condition(self, stack: Stack) -> None:
        fn = plain_function(stack, "Fn")

        def step(name: str, **options: Any) -> Step:
            return Step.atomic(name, fn=fn, **{"compensate": fn, **options})

        look = Step.read_only("Look", fn=fn)
        other = [
            [step("A")],
            [step("A"), step("B")],
            [step("A"), look],
            [step("Renamed")],
            [step("A", when="$request.a")],
            [step("A", when="$request.b")],
            [step("A", compensate=None, pivot=True)],
            [step("A", refusals=["No"], on_error={"No": ContinueWith(output={"a": 1})})],
            [step("A", refusals=["No"], on_error={"No": ContinueWith(output={"a": 2})})],
        ]
        shapes = [self._shape(stack, number, *inside) for number, inside in enumerate(other)]

        assert len({*shapes}) == len(other)
        same = self._shape(stack, 20, step("A"), when="$request.c", timeout=Duration.minutes(2))
        assert same == shapes[0]
