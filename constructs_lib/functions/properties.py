"""Checks of a function's properties at synth: the template may be changed until then."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final

from aws_cdk import aws_lambda as lambda_

from constructs_lib.shared.at_synth import WhenAllIsKnown
from constructs_lib.shared.stacks import stack_of

Check = Callable[[lambda_.Function, Mapping[str, Any]], None]
"""Is called with the function, and its ``environment`` and ``loggingConfig``, resolved; each may be None."""
_CHECKED: Final = ("environment", "loggingConfig")


def check_at_synth(function: lambda_.Function, *checks: Check) -> None:
    """Check a function's properties when everything is declared."""
    function.node.add_validation(WhenAllIsKnown(lambda: _check(function, checks)))


def _check(function: lambda_.Function, checks: tuple[Check, ...]) -> None:
    resource = function.node.default_child
    if not isinstance(resource, lambda_.CfnFunction):
        return
    # The attributes lose what is added later: the CDK's stubs make structures of the tokens that they are.
    given = resource._cfn_properties  # noqa: SLF001
    resolved = stack_of(function).resolve({name: given.get(name) for name in _CHECKED})
    properties = {name: resolved.get(name) for name in _CHECKED}
    for check in checks:
        check(function, properties)
