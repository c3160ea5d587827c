"""Definitions that change, and change back, between any two starts of one saga: it never takes two paths.

A run takes every third history, from one that it draws; ``make samples`` takes all.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator
from functools import cache
from itertools import islice, product
from typing import Any

import pytest

from constructs_lib.saga.asl import Node, SagaPlan
from constructs_lib.saga.asl.begin import NOTE_FIRST, SAME_DEFINITION
from saga_runtime.protocol import WAYS_AT
from tests.constructs.support.groups import child, express, plan
from tests.constructs.support.once import once
from tests.constructs.support.plans import step
from tests.constructs.support.simulation import Moment, Simulation, Stop
from tests.sampling import a_third

pytestmark = pytest.mark.proof

Definition = dict[str, Any]
REQUEST = {"amount": 150, "items": [{"sku": "a", "id": "1"}]}
LOW, HIGH = "$request.amount < 100", "$request.amount >= 100"
LOWER, HIGHER = "$request.amount < 200", "$request.amount >= 200"
SWITCHES = [(), (1,), (2,), (3,), (1, 2), (1, 3), (2, 3), (2, 4), (3, 4), (3, 5)]
"""At which starts of executions the deployed definition has changed, and changed back."""


def _behind(one: str, other: str) -> list[Node]:
    return [step("Credit", pivot=True), step("One", when=one), step("Other", when=other), step("Tell")]


def _ahead(one: str, other: str) -> list[Node]:
    return [step("One", pivot=True, when=one), step("Other", pivot=True, when=other), step("Tell")]


def _renamed(name: str, _: str) -> list[Node]:
    return [step("Credit", pivot=True), step(name), step("Tell")]


def _phase(one: str, other: str) -> list[Node]:
    ways = express("Ways", step("One", when=one), step("Other", when=other), shape=f"{one}, {other}")
    return [step("Credit", pivot=True), ways]


def _phase_renamed(name: str, _: str) -> list[Node]:
    return [step("Credit", pivot=True), child("Ways", step(name), shape=name)]


def _phase_and(inside: str, behind: str) -> list[Node]:
    within = [step(name) for name in ("First", inside) if name]
    return [step("Credit", pivot=True), child("Phase", *within, shape=inside or "First"), step(behind or "Tell")]


CHANGES: dict[str, tuple[Callable[[str, str], list[Node]], tuple[str, str], tuple[str, str]]] = {
    "conditions": (_behind, (LOW, HIGH), (LOWER, HIGHER)),
    "conditions of pivots": (_ahead, (LOW, HIGH), (LOWER, HIGHER)),
    "a name": (_renamed, ("One", ""), ("Other", "")),
    "conditions in a phase": (_phase, (LOW, HIGH), (LOWER, HIGHER)),
    "a name in a phase": (_phase_renamed, ("One", ""), ("Other", "")),
    "a name, moved into a phase": (_phase_and, ("", "One"), ("Other", "")),
}


@cache
def _made(change: str, number: int) -> SagaPlan:
    make, *arguments = CHANGES[change]
    names, ways = ("other", "same") if number and "name" in change else ("shape", "later" if number else "same")
    outlived = {"outlived_seconds": 1_260, "phases_outlived_seconds": 1_260}
    return plan(*make(*arguments[number]), fingerprint=f"{names:{WAYS_AT}}{ways}", **outlived)


def _sagas(
    change: str, without: Callable[[Definition], Definition] = lambda definition: definition
) -> Iterator[Simulation]:
    """A saga that is stopped at any two calls, with the definition changed at any starts."""
    first, step = a_third()
    histories = product(SWITCHES, range(1, 7), Moment, (0, 1, 3, 5))
    for switches, call, moment, later in islice(histories, first, None, step):
        stops = {Stop(call=call, moment=moment), Stop(call=call + later, moment=Moment.AFTER)}
        yield Simulation(
            plan=_made(change, 0),
            other=_made(change, 1),
            switches=frozenset(switches),
            request=REQUEST,
            stops=frozenset(stops),
            change=without,
        ).run()


def _harm(saga: Simulation) -> str | None:
    stands = [row for row in saga.effects if saga.effects[row] and row in {"One", "Other"}]
    if len(stands) > 1:
        return "both"
    return "failed, and in effect" if saga.settled == "FAILED" and +saga.effects else None


@pytest.mark.parametrize("change", CHANGES)
def test_it_never_takes_two_paths_with_any_change_between_its_starts(change: str) -> None:
    ends = set()
    for saga in _sagas(change):
        assert _harm(saga) is None, (saga.switches, saga.stops, saga.rows, saga.traces)
        assert saga.settled or saga.parked, saga.traces
        ends.add(saga.told[-1]["parked_reason"]["error"] if saga.parked else saga.settled)
    assert ends == {"COMPLETED", "FAILED", "IncompatibleDefinition"}


@once
def _ends_instead(definition: Definition) -> Definition:
    """The definition, in which nothing catches an expression without a value."""
    ended = "Ended"
    states = json.loads(json.dumps(definition["States"]))
    for state in states.values():
        for catch in state.get("Catch", ()):
            if catch["ErrorEquals"] == ["States.QueryEvaluationError"] and catch["Next"] == SAME_DEFINITION:
                catch["Next"] = ended
    return definition | {"States": states | {ended: {"Type": "Fail", "Error": "States.Runtime"}}}


@pytest.mark.parametrize("change", CHANGES)
def test_it_never_takes_two_paths_if_a_missing_value_ends_the_execution(change: str) -> None:
    ends = set()
    for saga in _sagas(change, _ends_instead):
        assert _harm(saga) is None, (saga.switches, saga.stops, saga.rows, saga.traces)
        ends.add(saga.settled)
    assert {"COMPLETED", "FAILED"} <= ends


def _in_every_text(definition: Definition, pattern: str, instead: str) -> Definition:
    changed, found = re.subn(pattern, instead, json.dumps(definition))
    return json.loads(changed) if found else definition


def _begins_anyway(definition: Definition) -> Definition:
    return _in_every_text(definition, r"\(\$exists\(\$begun\) or [^)]*\)", "true")


def _phase_begins_anyway(definition: Definition) -> Definition:
    return _in_every_text(definition, r"\(\$states\.context\.Execution\.Input\.definition = [^)]*\)", "true")


def _notes_nothing(definition: Definition) -> Definition:
    states = definition["States"]
    if NOTE_FIRST not in states:
        return definition
    passed = {"Type": "Pass", "Assign": {"begun": True}, "Next": states[NOTE_FIRST]["Next"]}
    return definition | {"States": states | {NOTE_FIRST: passed}}


@pytest.mark.parametrize(
    ("without", "change"),
    [
        *product([_begins_anyway, _notes_nothing], ["conditions", "conditions of pivots", "a name"]),
        *product([_phase_begins_anyway], ["conditions in a phase", "a name in a phase", "a name, moved into a phase"]),
    ],
)
def test_without_the_query_of_its_first_state_it_takes_two_paths(
    without: Callable[[Definition], Definition], change: str
) -> None:
    assert any(_harm(saga) for saga in _sagas(change, without))
