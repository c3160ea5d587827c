"""A migration under faults: while its phase goes ahead and back, what is added to a customer counts once."""

from __future__ import annotations

from random import Random
from typing import Final

import pytest

from constructs_lib.testing.simulator import Climate, Deployment, World
from constructs_lib.testing.simulator.aws.dynamodb.trees import Always
from constructs_lib.testing.simulator.checks.coverage import Coverage
from constructs_lib.testing.simulator.faults.climate import HOUR, drawn_climate
from constructs_lib.testing.simulator.run import START, RunResult, simulate_once

from .beyond_examples.customers import Customers
from .beyond_examples.stacks import add_migrating
from .examples import assembly_of

pytestmark = pytest.mark.proof

_NEW: Final = ("attribute_not_exists(pk)", "attribute_not_exists(#pk)")
"""Of an operation's record, and of its row in either form of the history."""


class _Unconditional(Customers):
    """The same, on a database that records an operation again and again."""

    def prepare(self, world: World, random: Random) -> None:
        super().prepare(world, random)
        world.db.rewrite = lambda _table, text, condition: Always() if text in _NEW else condition


def _run(deployment: Deployment, workload: Customers, seed: int) -> RunResult:
    services = ("dynamodb", "lambda", *sorted(deployment.blueprint.functions))
    climate: Climate = drawn_climate(Random(f"{seed}:migration"), start=START, length=12 * HOUR, services=services)
    return simulate_once(deployment, workload, seed, sagas=0, coverage=Coverage(), climate=climate)


def test_points_are_counted_once_wherever_they_are() -> None:
    with Deployment.of_assembly(assembly_of(add_migrating)) as deployment:
        results = [_run(deployment, Customers(), seed) for seed in range(12)]

    assert [finding for result in results for finding in result.findings] == []
    assert sum(result.faults for result in results) > 1_000


def test_operations_that_count_twice_are_found() -> None:
    with Deployment.of_assembly(assembly_of(add_migrating)) as deployment:
        results = [_run(deployment, _Unconditional(), seed) for seed in range(6)]

    assert "points are those of the history" in {finding.kind for result in results for finding in result.findings}
