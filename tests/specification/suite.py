"""Tests of every model: clean under all conditions, broken without any one of them.

A test file names its model's settings, mutants and conditions in a ``Suite`` and inherits the tests from here.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, ClassVar, Final, Protocol, TypeVar

import pytest

from tests.specification.checker import Model, check
from tests.specification.conditions import Condition, Mutant, found

State = TypeVar("State")


class Specified(Model[State], Protocol[State]):
    """A model that can do without some of its conditions."""

    def without(self, *conditions: Condition) -> Specified[State]:
        """The same, and the conditions are left out."""
        ...


# Every model has states of its own, and the tests read none of them.
Settings = Mapping[str, Specified[Any]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Suite:
    """Questions about one model.

    Attributes:
        conditions: all of its conditions.
        settings: configurations by name.
        mutants: conditions without which a promise is broken.
        large: configurations that are only checked on request.
        redundant: conditions without which a promise is only broken if companions are missing, too.
        spare: conditions without which no harm was found, and the reason why they can be removed.
        spare_in: the settings in which that is checked.
    """

    conditions: type[Condition]
    settings: Settings
    mutants: tuple[Mutant, ...]
    large: Settings = field(default_factory=dict)
    redundant: tuple[Mutant, ...] = ()
    spare: Mapping[Condition, str] = field(default_factory=dict)
    spare_in: tuple[str, ...] = ()


LARGE: Final = "test_the_same_holds_in_larger_configurations"
"""The test that is left out unless it is asked for."""


class SpecificationTests:
    """The tests. A file's class inherits them, and names its ``suite``."""

    suite: ClassVar[Suite]

    def pytest_generate_tests(self, metafunc: pytest.Metafunc) -> None:
        """Fill each test's arguments from the suite."""
        values: dict[str, tuple[object, ...]] = {
            "setting": tuple(self.suite.settings),
            "large": tuple(self.suite.large),
            "mutant": self.suite.mutants,
            "redundant": self.suite.redundant,
            "spare": tuple(self.suite.spare),
            "spare_in": self.suite.spare_in,
        }
        for name in values.keys() & set(metafunc.fixturenames):
            metafunc.parametrize(name, values[name], ids=str)

    @pytest.mark.proof
    def test_under_all_conditions_no_promise_is_broken_and_no_run_is_stuck(self, setting: str) -> None:
        verdict = check(self.suite.settings[setting])

        assert verdict.clean, verdict

    @pytest.mark.proof
    def test_without_a_condition_a_promise_is_broken(self, mutant: Mutant) -> None:
        verdict = check(self.suite.settings[mutant.setting].without(*mutant.off), until=mutant.harm)

        print(verdict)
        assert mutant.harm in found(verdict)

    def test_every_condition_has_its_mutant_or_is_known_to_be_spare(self) -> None:
        mutants = {mutant.off[0] for mutant in (*self.suite.mutants, *self.suite.redundant)}

        assert mutants | set(self.suite.spare) == set(self.suite.conditions)
        assert not mutants & set(self.suite.spare)


class RedundantConditionTests(SpecificationTests):
    """The same, for a suite with conditions that have companions."""

    @pytest.mark.proof
    def test_a_condition_that_is_redundant_alone_matters_when_its_companions_are_gone(self, redundant: Mutant) -> None:
        alone, *companions = redundant.off
        model = self.suite.settings[redundant.setting]

        assert check(model.without(alone)).clean
        assert redundant.harm not in found(check(model.without(*companions)))
        assert redundant.harm in found(check(model.without(*redundant.off), until=redundant.harm))


class LargeConfigurationTests(SpecificationTests):
    """The same, for a suite with large configurations."""

    def test_the_same_holds_in_larger_configurations(self, large: str) -> None:
        verdict = check(self.suite.large[large])

        assert verdict.clean, verdict


class SpareConditionTests(SpecificationTests):
    """The same, for a suite with spare conditions."""

    @pytest.mark.proof
    def test_without_a_spare_condition_no_promise_is_broken(self, spare: Condition, spare_in: str) -> None:
        verdict = check(self.suite.settings[spare_in].without(spare))

        assert verdict.clean, verdict
