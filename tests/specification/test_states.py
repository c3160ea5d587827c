"""Copies of states are those that ``dataclasses`` makes."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass

from tests.specification.states import replace


@dataclass(frozen=True, slots=True)
class Place:
    name: str
    visits: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Town(Place):
    people: tuple[str, ...] = ()


@dataclass(frozen=True)
class Model:
    steps: int = 1


@dataclass(frozen=True, slots=True)
class Counted:
    members: tuple[str, ...]
    number: int = 0

    def __post_init__(self) -> None:
        object.__setattr__(self, "number", len(self.members))


def test_a_copy_is_that_of_dataclasses() -> None:
    town = Town("here", people=("ann",))

    assert replace(town) == town
    assert replace(town, visits=2) == dataclasses.replace(town, visits=2) == Town("here", 2, people=("ann",))
    assert replace(town, name="there", people=()) == Town("there")
    assert town == Town("here", people=("ann",)), "the original stays"
    assert replace(Model(), steps=3) == Model(3), "a class without slots"
    assert replace(Counted(()), members=("a", "b")).number == 2, "a class that derives fields"
