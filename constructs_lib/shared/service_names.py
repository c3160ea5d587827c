"""The dimension ``service`` of metrics: which deployment of which construct they are of."""

from __future__ import annotations

from typing import Final

from aws_cdk import Stack
from constructs import IConstruct

from constructs_lib.shared.stacks import name_of_stack, path_of, stack_of

_LONGEST: Final = 255
"""Characters of a dimension's value."""


def service_of(construct: IConstruct, stack: Stack | None = None) -> str:
    """The stack's name, and the construct's path in its stack.

    The name, not the stack's construct id: an app that is deployed twice to an account and region, under other stack
    names, has the same ids twice, and would have one set of metrics: the silence of one would be hidden by the other.

    Args:
        construct: what the metrics are of.
        stack: one around the construct; its own by default.

    Raises:
        ValueError: for a path that no dimension can have.
    """
    stack, whole = stack or stack_of(construct), path_of(construct)
    path = whole.removeprefix(path_of(stack)).strip("/")
    if not (path.isascii() and path.isprintable()):
        raise ValueError(
            f"path of {whole} must have only printable ASCII characters, got {path!r}: CloudWatch takes "
            "no others in a dimension; change the construct ids"
        )
    name = "-".join([name_of_stack(stack), *filter(None, path.split("/"))])
    if len(name) > _LONGEST:
        raise ValueError(
            f"path of {whole} must have at most {_LONGEST} characters with the stack's name, got "
            f"{len(name)}: CloudWatch takes no longer dimension; shorten the construct ids"
        )
    return name
