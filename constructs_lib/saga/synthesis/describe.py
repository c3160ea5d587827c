"""From declared steps to the saga's description."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

from constructs_lib.saga.description.description import (
    SagaDescription,
    StepDescription,
    StepFacts,
    fields_in,
)
from constructs_lib.saga.description.kind import group_kind
from constructs_lib.saga.steps.group import StepGroup
from constructs_lib.saga.steps.step import Step
from constructs_lib.saga.validation.checks import sides_of


def describe(
    name: str,
    steps: Sequence[Step | StepGroup],
    *,
    timeout: int,
    fingerprint: str,
    tells_of_failure: bool,
    replayed: int = 0,
    remembered: int = 0,
    due_after: int = 0,
    log_days: int = 0,
    inline: bool = False,
    definition: Mapping[str, Any] | None = None,
) -> SagaDescription:
    """The saga as plain data."""
    sides = sides_of(steps)
    return SagaDescription(
        name=name,
        steps=tuple(_describe(node, sides) for node in steps),
        timeout=timeout,
        fingerprint=fingerprint,
        tells_of_failure=tells_of_failure,
        replayed=replayed,
        remembered=remembered,
        due_after=due_after,
        log_days=log_days,
        inline=inline,
        definition=definition or {},
    )


def _describe(node: Step | StepGroup, sides: Mapping[str, str]) -> StepDescription:
    if isinstance(node, StepGroup):
        return StepDescription(
            name=node.name,
            kind=node.kind,
            side=sides[next(node.steps).name],
            when=node.when,
            compensated=any(step.compensated for step in node.steps),
            timeout=node.timeout,
            max_items=node.max_items if group_kind(node.kind).per_item else 0,
            max_concurrency=node.max_concurrency if group_kind(node.kind).per_item else 1,
            branches=tuple(tuple(_describe(step, sides) for step in branch) for branch in node.branches),
        )
    return StepDescription(
        **fields_in(node, StepFacts),
        side=sides[node.name],
        compensated=node.compensated,
        writes=len(node.transaction.writes) if node.transaction is not None else None,
        timeout=_own_timeout(node),
        retried=node.direct is None or node.direct.retried,
        constant=_constant(node),
        instead=max((_size(route.output) for route in node.going_on.values()), default=0),
        routes={error: "continue" if error in node.going_on else "notify" for error in node.on_error},
    )


def _own_timeout(step: Step) -> int:
    """Timeout of a state without a function."""
    if step.wait is not None:
        return step.wait.timeout
    return step.direct.timeout if step.direct is not None else 0


def _constant(step: Step) -> int:
    """Bytes that a step's state sends from the definition."""
    sent: list[object] = [step.message or ""]
    if step.direct is not None:
        sent.append(step.direct.fields)
    if step.transaction is not None:
        sent.append(max((step.transaction.writes, step.transaction.compensate), key=_size))
    return sum(_size(value) for value in sent)


def _size(value: object) -> int:
    return len(json.dumps(value, default=dict).encode("utf-8"))
