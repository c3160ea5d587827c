"""Questions to a kind about a step as it is declared."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING

from constructs_lib.saga.description.kind import plain_kind

if TYPE_CHECKING:
    from aws_cdk import aws_iam as iam

    from constructs_lib.saga.steps.step import Step
    from constructs_lib.tables.saga_log import SagaLog

FunctionGrant = tuple[Callable[["iam.IGrantable"], object], "iam.IGrantable"]
"""A grant, and the function that receives it."""


class DeclaredKind:
    """A kind of plain step: what it grants to the functions."""

    def grants(self, step: Step, log: SagaLog) -> Iterator[FunctionGrant]:
        """Grants of the saga log to its functions: by default to its compensation."""
        if step.compensate is not None:
            yield log.grant_compensate, step.compensate


def declared_kind(step: Step) -> DeclaredKind:
    """The kind of a step.

    Raises:
        TypeError: if it cannot be declared.
    """
    kind = plain_kind(step.kind)
    if not isinstance(kind, DeclaredKind):
        raise TypeError(f"kind of step {step.name} must be a DeclaredKind, got {step.kind!r}; make it a PlainStep")
    return kind
