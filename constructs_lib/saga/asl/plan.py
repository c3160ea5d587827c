"""What a definition is made of: plain data, no CDK."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from constructs_lib.saga.retry import Retry

State = dict[str, Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class Notice:
    """A message to a FIFO queue. ``message`` is a JSONata expression, or None for the default document."""

    queue_url: str
    message: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class GoingOn:
    """A refusal that does not end the saga: the step is fenced, and counts as done with this output."""

    output: Mapping[str, Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class CompiledStep:
    """A step as the generator sees it: names and numbers."""

    name: str
    function_arn: str
    task_seconds: int
    permanent_errors: tuple[str, ...]
    retry: Retry
    pivot: bool = False
    when: str | None = None
    compensate_arn: str | None = None
    compensate_task_seconds: int = 0
    notice: Notice | None = None
    going_on: Mapping[str, GoingOn] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class SagaPlan:
    """Everything that a definition is made of."""

    steps: Sequence[CompiledStep]
    request_table: str
    log_table: str
    log_days: int
    retention_seconds: int
    timeout_seconds: int
    result: str
    failure_status: Mapping[str, int]
    refused_status: int
    comment: str
    partition: str = "aws"
    on_failed: Notice | None = None
    on_error: Mapping[str, Notice] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if not any(step.pivot for step in self.steps):
            raise ValueError(f"a plan needs a pivot, got none among {[step.name for step in self.steps]}")

    @property
    def last_pivot(self) -> int:
        """Index of the step after which a saga only goes forward, on whichever way."""
        return max(index for index, step in enumerate(self.steps) if step.pivot)
