"""Steps that run as one: phases in a state machine of their own, parallel branches, and a map over items."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

from constructs_lib.saga.description.kind import group_kind
from constructs_lib.shared.arguments import require_between, require_match
from saga_runtime.protocol import STEP_NAME_PATTERN

if TYPE_CHECKING:
    from constructs_lib.saga.steps.step import Step


@dataclass(frozen=True, slots=True, kw_only=True)
class StepGroup:
    """Several steps that run as one. Made by ``Step.express``, ``Step.child``, ``Step.parallel``, ``Step.map``.

    Attributes:
        name: unique among the saga's steps and groups.
        kind: kind of the group.
        branches: the steps, in order; one branch, except in ``Step.parallel``.
        when: JSONata condition (without the ``{% %}``); the whole group is skipped when it is false.
        items: JSONata expression of the items of a map.
        key: JSONata expression of an item's key, over ``$item``.
        max_items: how many items a map may have.
        max_concurrency: items that run at once.
        timeout: of a phase in a state machine of its own, in seconds.
    """

    name: str
    kind: str
    branches: tuple[tuple[Step, ...], ...]
    when: str | None = None
    items: str | None = None
    key: str | None = None
    max_items: int = 40
    max_concurrency: int = 10
    timeout: int = 0

    def __post_init__(self) -> None:
        group_kind(self.kind)  # refuses one that nothing declares
        require_match("a group's name", self.name, STEP_NAME_PATTERN, "use PascalCase of at most 40 characters")
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
