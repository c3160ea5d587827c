"""Parts of a definition: plain data, no CDK."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from constructs_lib.saga.description.description import sides_in
from constructs_lib.saga.description.kind import Machine, group_kind
from constructs_lib.saga.steps.jsonata import outputs_named
from constructs_lib.saga.steps.retry import Retry
from saga_runtime.protocol import Side

State = dict[str, Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class Notice:
    """A message to a FIFO queue. ``message`` is a JSONata expression, or None for the default document."""

    queue_url: str
    message: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class GoingOn:
    """A refusal that does not end the saga: the step is fenced, and is done with this output."""

    output: Mapping[str, Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class DirectState:
    """A state that is not a function's: its fields, without where it leads, and an expression of the step's output."""

    fields: Mapping[str, Any]
    output: str = "{}"


@dataclass(frozen=True, slots=True, kw_only=True)
class DirectWrites:
    """Entries of a transaction that the state machine sends, together with the log row."""

    writes: Sequence[Mapping[str, Any]]
    compensate: Sequence[Mapping[str, Any]] = ()
    output: str = "{}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Waiting:
    """Times and queue of a step that waits for an outcome. Times are seconds.

    Attributes:
        queue_url: the queue that receives the job and its task token.
        heartbeat: longest time without an outcome or a heartbeat.
        timeout: when the step fails.
        attempts: how often the outcome may be treated as lost.
    """

    queue_url: str
    heartbeat: int
    timeout: int
    attempts: int


@dataclass(frozen=True, slots=True, kw_only=True)
class CompiledStep:
    """A step as the generator sees it: names and numbers; its kind compiles it."""

    name: str
    kind: str
    permanent_errors: tuple[str, ...]
    retry: Retry
    function_arn: str = ""
    task_seconds: int = 0
    transient_errors: tuple[str, ...] = ()
    pivot: bool = False
    when: str | None = None
    compensate_arn: str | None = None
    compensate_task_seconds: int = 0
    recorded: bool = True
    inline: bool = False
    provider: Mapping[str, Any] | None = None
    notice: Notice | None = None
    wait: Waiting | None = None
    direct: DirectState | None = None
    writes: DirectWrites | None = None
    going_on: Mapping[str, GoingOn] = field(default_factory=dict)

    @property
    def compensated(self) -> bool:
        """True if it has a compensation."""
        return self.compensate_arn is not None or (self.writes is not None and bool(self.writes.compensate))

    @property
    def job(self) -> bool:
        """True if a provider works on it and reports later: its effect may be late."""
        return self.wait is not None and self.provider is not None

    @property
    def logged(self) -> bool:
        """True if a row of the saga log keeps its output."""
        return self.recorded and self.direct is None

    @property
    def undo_texts(self) -> Iterator[str]:
        """Texts with the expressions that undo it."""
        if self.writes is not None:
            yield json.dumps(list(self.writes.compensate), default=dict)

    @property
    def leaves(self) -> tuple[CompiledStep, ...]:
        """The step itself: a group has several."""
        return (self,)


@dataclass(frozen=True, slots=True, kw_only=True)
class CompiledGroup:
    """Steps that run as one.

    Attributes:
        shape: identifies its steps, by what a saga that calls it must know of them.
    """

    name: str
    kind: str
    branches: tuple[tuple[CompiledStep, ...], ...]
    when: str | None = None
    items: str = ""
    key: str = ""
    max_items: int = 40
    max_concurrency: int = 10
    seconds: int = 0
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
    def undo_texts(self) -> Iterator[str]:
        """Texts with the expressions that undo its steps."""
        if self.per_item and self.compensated:
            yield from (self.items, self.key)
        for step in self.leaves:
            yield from step.undo_texts

    @property
    def pivot(self) -> bool:
        """True if one of its steps is the pivot."""
        return any(step.pivot for step in self.leaves)


Node = CompiledStep | CompiledGroup


PHASES_AT: Final = 16
"""Where the part of a fingerprint begins that identifies the steps in phases."""
WAYS_AT: Final = 24
"""Where the part begins that identifies by which conditions, and keys of a map's items, a saga goes its way."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SagaPlan:
    """Everything that a definition is made of.

    Attributes:
        alongside: whether several executions of one saga may run at once: Express ones, and Standard. Only plain steps.
        standard_arn: of an Express machine: the Standard machine to which it delegates.
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
