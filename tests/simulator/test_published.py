"""Versions and aliases in the simulator: which definition an execution gets, and how a release moves aliases."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace

import pytest

from constructs_lib.testing.simulator import Deployment, World
from constructs_lib.testing.simulator.checks.coverage import Coverage
from constructs_lib.testing.simulator.deployment.blueprint import AliasSpec, Blueprint
from constructs_lib.testing.simulator.engine.kernel import SECOND
from constructs_lib.testing.simulator.errors import ServiceError
from constructs_lib.testing.simulator.faults.climate import CALM
from constructs_lib.testing.simulator.run import START
from constructs_lib.testing.simulator.world import running

from .support import add_machine, blueprint, output_of

MANY = 300


def version_of(text: str, number: str, *, steps: tuple[int, ...] = (), pause: int = 0, alias: bool = True) -> Blueprint:
    """A release whose state machine has a text as its output."""
    made = blueprint()
    machine = add_machine(made, "m", {"StartAt": "S", "States": {"S": {"Type": "Pass", "Output": text, "End": True}}})
    made.published = {machine: number}
    if alias:
        made.aliases = [AliasSpec(machine=machine, name="live", version=number, steps=steps, pause=pause)]
    return made


@contextmanager
def released(after: Blueprint) -> Iterator[World]:
    """A world in which a release follows one with the output "one"."""
    with (
        Deployment(version_of("one", "1")) as first,
        Deployment(after) as second,
        running(first, CALM, "1", start=START, coverage=Coverage()) as world,
    ):
        world.rollout.add(second, itertools.repeat(0))
        world.kernel.run(until=START + SECOND)
        yield world


def outputs(world: World, qualifier: str, times: int = 1) -> list[str]:
    """Outputs of executions that are started by a version, an alias, or neither."""
    (machine,) = world.machines.machines
    arn = f"{machine}:{qualifier}" if qualifier else machine
    executions = [
        world.machines.start(arn, f"{qualifier}-{number}-{world.kernel.now}", "{}") for number in range(times)
    ]
    world.kernel.run(until=world.kernel.now + SECOND)
    assert {execution.machine.arn for execution in executions} == {machine}
    return [str(output_of(execution.described())) for execution in executions]


def test_execution_gets_the_definition_of_its_version() -> None:
    with released(version_of("two", "2")) as world:
        assert [outputs(world, qualifier) for qualifier in ("1", "2", "live", "")] == [
            ["one"],
            ["two"],
            ["two"],
            ["two"],
        ]


def test_release_moves_an_alias_step_by_step() -> None:
    with released(version_of("two", "2", steps=(10, 60), pause=600)) as world:
        seen = []
        for _ in range(3):
            seen.append(outputs(world, "live", MANY).count("two") / MANY)
            world.kernel.run(until=world.kernel.now + 600 * SECOND)
        assert 0.03 < seen[0] < 0.2
        assert 0.45 < seen[1] < 0.75
        assert seen[2] == 1
        assert world.rollout.done


def test_alias_is_turned_back() -> None:
    with released(version_of("two", "2")) as world:
        (machine,) = world.machines.machines
        turn(world, "1")
        assert (outputs(world, "live"), outputs(world, "")) == (["one"], ["two"])
        found = world.call("stepfunctions", "ListStateMachineVersions", {"stateMachineArn": machine})
        assert [one["stateMachineVersionArn"] for one in found["stateMachineVersions"]] == [
            f"{machine}:2",
            f"{machine}:1",
        ]
        with pytest.raises(ServiceError, match="ResourceNotFound"):
            turn(world, "3")


def turn(world: World, number: str) -> None:
    """Point the alias to a version, as an operator does."""
    (machine,) = world.machines.machines
    routes = [{"stateMachineVersionArn": f"{machine}:{number}", "weight": 100}]
    given = {"stateMachineAliasArn": f"{machine}:live", "routingConfiguration": routes}
    world.call("stepfunctions", "UpdateStateMachineAlias", given)


def shares(world: World) -> dict[str, int]:
    (weights,) = world.machines.published.aliases.values()
    return weights


def test_alias_moves_from_the_version_that_the_former_template_names() -> None:
    with (
        released(version_of("two", "2")) as world,
        Deployment(version_of("three", "3", steps=(10,), pause=60)) as next_,
    ):
        turn(world, "1")
        world.rollout.add(next_, itertools.repeat(0))
        world.kernel.run(until=world.kernel.now + SECOND)
        assert shares(world) == {"3": 10, "2": 90}
        world.kernel.run(until=world.kernel.now + 120 * SECOND)
        assert shares(world) == {"3": 100}


@pytest.mark.parametrize(("steps", "after"), [((), {"1": 100}), ((10,), {"2": 100})])
def test_same_version_moves_an_alias_only_if_the_template_changes_it(
    steps: tuple[int, ...], after: dict[str, int]
) -> None:
    with released(version_of("two", "2")) as world, Deployment(version_of("two", "2", steps=steps)) as next_:
        turn(world, "1")
        world.rollout.add(next_, itertools.repeat(0))
        world.kernel.run(until=world.kernel.now + SECOND)
        assert shares(world) == after


STEPS = [{"3": 10, "2": 90}, {"3": 20, "2": 80}, {"3": 30, "2": 70}, {"3": 100}]


@pytest.mark.parametrize(("failing", "moves"), [(0.0, STEPS), (0.85, [*STEPS[:3], {"2": 100}, *STEPS])])
def test_release_that_fails_moves_an_alias_back_at_once_if_it_has_moved_it(
    failing: float, moves: list[dict[str, int]]
) -> None:
    with (
        released(version_of("two", "2")) as world,
        Deployment(version_of("three", "3", steps=(10, 20, 30), pause=60)) as next_,
    ):
        seen: list[dict[str, int]] = []
        vars(world.machines.published)["point"] = lambda _, weights: seen.append(weights)
        world.rollout.add(next_, itertools.repeat(0), failing=failing)
        world.kernel.run(until=world.kernel.now + 600 * SECOND)
        assert seen == moves
        assert world.rollout.done


def test_alias_that_a_release_leaves_out_is_gone() -> None:
    with released(version_of("two", "2", alias=False)) as world:
        with pytest.raises(ServiceError, match="StateMachineDoesNotExist"):
            outputs(world, "live")
        assert outputs(world, "1") == ["one"]


def test_versions_go_with_their_state_machine() -> None:
    other = version_of("two", "2")
    spec = other.machines.pop("m")
    other.machines["n"] = replace(spec, name="n")
    other.published, other.aliases = {}, []
    with released(other) as world:
        with pytest.raises(ServiceError, match="StateMachineDoesNotExist"):
            world.machines.start(f"{spec.arn}:1", "x", "{}")
        assert not world.machines.published.aliases
