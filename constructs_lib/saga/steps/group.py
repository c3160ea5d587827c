"""Steps that run as one: phases in a state machine of their own, parallel branches, and a map over items."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

from constructs_lib.saga.description.description import GroupFacts
from constructs_lib.saga.description.kind import group_kind
from constructs_lib.shared.arguments import require_between, require_match
from saga_runtime.protocol import STEP_NAME_PATTERN

if TYPE_CHECKING:
    from constructs_lib.saga.steps.step import Step


@dataclass(frozen=True, slots=True, kw_only=True)
class StepGroup(GroupFacts):
    """Several steps that run as one. Made by ``Step.express``, ``Step.child``, ``Step.parallel``, ``Step.map``.

    Attributes:
        branches: the steps, in order; one branch, except in ``Step.parallel``.
    """

    branches: tuple[tuple[Step, ...], ...]

    def __post_init__(self) -> None:
        group_kind(self.kind)  # refuses one that nothing declares
        require_match("a group's name", self.name, STEP_NAME_PATTERN, "use PascalCase of at most 40 characters")
        object.__setattr__(self, "name", str.__str__(self.name))  # of an enumeration's member: not its text
        require_between(f"max_concurrency of {self.name}", self.max_concurrency, at_least=1, at_most=40)
        require_between(f"max_items of {self.name}", self.max_items, at_least=1, at_most=1_000)
        if not self.branches or any(not branch for branch in self.branches):
            raise ValueError(f"{self.name} must hold at least one step in every branch, got an empty one; add a step")
        if self.when is not None and not self.when.strip():
            raise ValueError(f"when of {self.name} must be a JSONata condition, got {self.when!r}; leave it out")
        for name in ("items", "key"):
            text: str | None = getattr(self, name)
            if text is not None and not text.strip():
                raise ValueError(f"{name} of {self.name} must be a JSONata expression, got {text!r}; write one")

    @property
    def steps(self) -> Iterator[Step]:
        """Every step in it, branch by branch, in order."""
        for branch in self.branches:
            yield from branch
