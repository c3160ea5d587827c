"""A saga's entry in the manifest of its stack: what operators' commands know of it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

from constructs_lib.saga.description.kind import group_kind
from constructs_lib.saga.steps.group import StepGroup
from constructs_lib.saga.steps.step import Step
from constructs_lib.saga.validation.checks import leaves_of
from constructs_lib.shared.manifest_format import ManifestField as F

if TYPE_CHECKING:
    from constructs_lib.saga.description.description import SagaDescription


def steps_entry(nodes: Sequence[Step | StepGroup], saga: SagaDescription) -> list[dict[F, Any]]:
    """Steps that leave a row, or whose function is called, in order.

    A step whose row a function writes has its side. A step that the state machine itself writes has none: an operator
    decides nothing about it, since its effect and its row are one transaction.

    Args:
        nodes: the saga's steps and groups.
        saga: its description.
    """
    described = {step.name: step for step in saga.leaves}
    return [
        {
            F.NAME: step.name,
            **({F.SIDE: described[step.name].side} if step.transaction is None else {}),
            **({F.EXTERNAL: True} if step.provider is not None else {}),
            **({F.GRACE: step.provider.grace} if step.provider is not None else {}),
            **({F.SKIPPED_BY: sorted(step.going_on)} if step.going_on else {}),
            **({F.JOBS: True} if step.job else {}),
            **({F.MAP: True} if per_item else {}),
        }
        for step, per_item in _each(nodes)
        if described[step.name].recorded or described[step.name].function is not None
    ]


def always_taken(nodes: Sequence[Step | StepGroup], saga: SagaDescription) -> list[str]:
    """Steps without which the saga does not complete, and that leave a row.

    Steps in groups are left out: of those nothing is claimed.
    """
    described = {step.name: step for step in saga.leaves}
    return [
        node.name for node in nodes if isinstance(node, Step) and node.when is None and described[node.name].recorded
    ]


def _each(nodes: Sequence[Step | StepGroup]) -> Iterator[tuple[Step, bool]]:
    for node in nodes:
        per_item = isinstance(node, StepGroup) and group_kind(node.kind).per_item
        for step in leaves_of([node]):
            yield step, per_item
