"""A condition of the protocol in the models: a flag, a reason, and the place in the code where it is written."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from pathlib import Path
from typing import Self

from tests.specification.checker import Verdict
from tests.specification.states import replace

ROOT = Path(__file__).resolve().parents[2]


@dataclass(frozen=True, slots=True)
class Because:
    """A condition's reason and place.

    Attributes:
        reason: one line.
        file: path of the module from the project's root.
        text: source text. A test checks it: a condition that leaves the code must leave the model, too.
    """

    reason: str
    file: str
    text: str

    @property
    def in_the_code(self) -> bool:
        """True if the place still exists."""
        source = " ".join((ROOT / self.file).read_text(encoding="utf-8").split())
        return " ".join(self.text.split()) in source


class Condition(Enum):
    """Base of every model's conditions: members are named after the code's names, values are ``Because``."""

    @property
    def because(self) -> Because:
        """Why it is there, and where."""
        value: Because = self.value
        return value

    def __str__(self) -> str:
        return self.name


@dataclass(frozen=True, slots=True, kw_only=True)
class Conditional:
    """Base of whatever heeds conditions.

    Attributes:
        off: conditions that are left out.
    """

    off: frozenset[Condition] = frozenset()

    def holds(self, condition: Condition) -> bool:
        """True if a condition is heeded."""
        return condition not in self.off

    def without(self, *conditions: Condition) -> Self:
        """The same, and these conditions are left out."""
        return replace(self, off=frozenset(conditions))


@dataclass(frozen=True, slots=True)
class Mutant:
    """A model without some of its conditions, and what goes wrong then.

    Attributes:
        off: the conditions that are left out. Of several, the first alone is redundant: the others keep its promise.
        harm: name of the broken promise, or ``STUCK``.
        setting: name of the configuration in which it shows.
    """

    off: tuple[Condition, ...]
    harm: str
    setting: str = "small"

    def __str__(self) -> str:
        return f"without {' and '.join(condition.name for condition in self.off)}: {self.harm}"


STUCK = "STUCK"


def found(verdict: Verdict) -> set[str]:
    """Names of what was found."""
    return {str(name) for name in verdict.violations} | ({STUCK} if verdict.stuck is not None else set())
