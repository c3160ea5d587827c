"""A watch under faults: each execution that timed out or was stopped has its function called, or an operator."""

from __future__ import annotations

from constructs_lib.testing.simulator import Deployment
from constructs_lib.testing.simulator.checks.coverage import Coverage
from constructs_lib.testing.simulator.run import simulate_once

from .beyond_examples.imports import Imports, Unwatched
from .beyond_examples.stacks import add_imports
from .examples import assembly_of


def test_each_lock_of_a_dead_execution_is_given_back() -> None:
    with Deployment.of_assembly(assembly_of(add_imports)) as deployment:
        results = [simulate_once(deployment, Imports(), seed, sagas=0, coverage=Coverage()) for seed in range(60)]

    assert [finding for result in results for finding in result.findings] == []
    assert sum(result.faults for result in results) > 1_000


def test_execution_that_is_not_watched_is_found() -> None:
    with Deployment.of_assembly(assembly_of(add_imports)) as deployment:
        result = simulate_once(deployment, Unwatched(), 0, sagas=0, coverage=Coverage())

    assert {finding.kind for finding in result.findings} >= {"locks are given back"}
