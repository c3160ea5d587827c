"""Checks at synth, because only then everything is declared."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

import jsii
from aws_cdk import CfnResource, Stack, Validations
from constructs import Construct, IValidation

_MOST_RESOURCES: Final = 500
"""Of one stack: https://docs.aws.amazon.com/AWSCloudFormation/latest/UserGuide/cloudformation-limits.html"""
_MANY_RESOURCES: Final = 450
_SIZE: Final = "CdkSagasStackSize"


@jsii.implements(IValidation)
class WhenAllIsKnown:
    """Checks a construct when the app is synthesized: everything that belongs to it was declared."""

    def __init__(self, look: Callable[[], None]) -> None:
        self._look = look

    def validate(self) -> list[str]:
        """Called by the CDK; what is wrong is reported where it can be acknowledged."""
        self._look()
        return []


def warn_of_size(stack: Stack) -> None:
    """Warn once, at synth, of a stack that comes near CloudFormation's limit of resources."""
    if stack.node.try_find_child(_SIZE) is None:
        Construct(stack, _SIZE).node.add_validation(WhenAllIsKnown(lambda: _warn_of_size(stack)))


def _warn_of_size(stack: Stack) -> None:
    count = _resources_of(stack)
    if count > _MANY_RESOURCES:
        Validations.of(stack).add_warning(
            "cdk-sagas-resources",
            f"resources of stack {stack.node.path} should be at most {_MANY_RESOURCES}, got {count}: CloudFormation "
            f"takes {_MOST_RESOURCES}; move tables, ledgers or sagas to a stack of their own",
        )


def _resources_of(stack: Stack) -> int:
    """Resources of a stack's own template: those below a stack inside it are in another one."""
    _, *inside = stack.node.find_all()
    others = sum(_resources_of(each) for each in inside if isinstance(each, Stack))
    return sum(isinstance(each, CfnResource) for each in inside) - others
