"""Parts of a definition: plain data, no CDK."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

from constructs_lib.saga.description.description import FunctionDescription, GroupFacts, seconds_of, sides_in
from constructs_lib.saga.description.kind import Machine, group_kind
from constructs_lib.saga.steps.contents import StepContents
from constructs_lib.saga.steps.jsonata import outputs_named
from saga_runtime.protocol import Side

if TYPE_CHECKING:
    from constructs_lib.saga.steps.routes import ContinueWith

State = dict[str, Any]

TASK_MARGIN_SECONDS: Final = 10
"""A task waits longer than its function may run: the state machine never gives up on a function that still lives."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Notice:
    """A message to a FIFO queue. ``message`` is a JSONata expression, or None for the default document."""

    queue_url: str
    message: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class CompiledStep(StepContents):
    """A step as the generator sees it: its facts and contents, with names and ARNs; its kind compiles it.

    Attributes:
        function_arn: of what it runs; empty if it runs nothing.
        compensate_arn: of what undoes it.
        queue_url: of the queue to which it sends its job or notification.
        pivot: whether the saga only goes forward after it.
        inline: whether an expression reads a part of its output, which therefore never travels by reference.
        going_on: refusals that do not end the saga: the step is fenced, and is done with an output of its own.
    """

    function_arn: str = ""
    compensate_arn: str | None = None
    queue_url: str = ""
    pivot: bool = False
    inline: bool = False
    going_on: Mapping[str, ContinueWith] = field(default_factory=dict)

    @property
    def undo_texts(self) -> Iterator[str]:
        """Texts with the expressions that undo it."""
        if self.transaction is not None:
            yield json.dumps(list(self.transaction.compensate), default=dict)

    @property
    def leaves(self) -> tuple[CompiledStep, ...]:
        """The step itself: a group has several."""
        return (self,)


def task_seconds(function: FunctionDescription | None) -> int:
    """Timeout of a task: longer than its function may run, so that no attempt begins while a function still lives."""
    return seconds_of(function) + TASK_MARGIN_SECONDS


@dataclass(frozen=True, slots=True, kw_only=True)
class CompiledGroup(GroupFacts):
    """Steps that run as one.

    Attributes:
        branches: the steps, in order.
        machine_arn: of the state machine of its own, if it has one.
        shape: identifies its steps, by what a saga that calls it must know of them.
    """

    branches: tuple[tuple[CompiledStep, ...], ...]
    machine_arn: str = ""
    shape: str = ""

    @property
    def machine(self) -> Machine | None:
        """Type of the state machine of its own; None if its steps run in the saga's."""
        return group_kind(self.kind).machine

    @property
    def per_item(self) -> bool:
        """True if its steps run once for each item."""
        return group_kind(self.kind).per_item

    @property
    def leaves(self) -> tuple[CompiledStep, ...]:
        """Its steps, branch by branch, in order."""
        return tuple(step for branch in self.branches for step in branch)

    @property
    def compensated(self) -> bool:
        """True if one of its steps has a compensation."""
        return any(step.compensated for step in self.leaves)

    @property
    def items_and_key(self) -> tuple[str, str]:
        """Expressions of a map's items, and of an item's key."""
        if self.items is None or self.key is None:
            raise TypeError(f"{self.name} is not a map")
        return self.items, self.key

    @property
    def undo_texts(self) -> Iterator[str]:
        """Texts with the expressions that undo its steps."""
        if self.per_item and self.compensated:
            yield from self.items_and_key
        for step in self.leaves:
            yield from step.undo_texts

    @property
    def pivot(self) -> bool:
        """True if one of its steps is the pivot."""
        return any(step.pivot for step in self.leaves)


Node = CompiledStep | CompiledGroup


PHASES_AT: Final = 16
"""Where the part of a fingerprint begins that identifies the steps in phases."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SagaPlan:
    """Everything that a definition is made of.

    Attributes:
        alongside: whether several executions of one saga may run at once: Express ones, and Standard. Only plain steps.
        standard_arn: of an Express machine: the Standard machine to which it delegates.
        reads_request: whether an expression reads the request: it finds nothing in one that travels by reference.
    """

    steps: Sequence[Node]
    request_table: str
    log_table: str
    log_days: int
    replay_seconds: int
    remember_seconds: int
    timeout_seconds: int
    result: str
    http_status_by_error: Mapping[str, int]
    refused_http_status: int
    comment: str
    partition: str = "aws"
    fingerprint: str = ""
    outlived_seconds: int = 0
    phases_outlived_seconds: int = 0
    payloads: str | None = None
    operators: str | None = None
    on_failed: Notice | None = None
    on_error: Mapping[str, Notice] = field(default_factory=dict)
    alongside: bool = False
    standard_arn: str | None = None
    reads_request: bool = False

    @property
    def leaves(self) -> Iterator[CompiledStep]:
        """Every plain step, in order."""
        for node in self.steps:
            yield from node.leaves

    @property
    def has_conditions(self) -> bool:
        """True if any step or group has a condition."""
        return any(node.when is not None for node in (*self.steps, *self.leaves))

    @property
    def pivots(self) -> list[CompiledStep]:
        """The steps after which a saga only goes forward; empty if it can compensate until it settles."""
        return [step for step in self.leaves if step.pivot]

    @property
    def last_pivot(self) -> int:
        """Index of the node after which a saga only goes forward, on whichever way."""
        return max((index for index, node in enumerate(self.steps) if node.pivot), default=len(self.steps))

    def side_of(self, step: CompiledStep) -> Side:
        """Position of a step in its saga."""
        return sides_in([leaf.name for leaf in self.leaves], {pivot.name for pivot in self.pivots})[step.name]

    @property
    def named_to_undo(self) -> frozenset[str]:
        """Names of the steps whose outputs an expression names that undoes something."""
        texts = [text for node in self.steps for text in node.undo_texts]
        return outputs_named(texts, [leaf.name for leaf in self.leaves])
