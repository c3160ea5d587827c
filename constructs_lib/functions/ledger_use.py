"""Functions that post to a ledger: what they were given of it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Final
from weakref import WeakSet

from aws_cdk import Validations
from aws_cdk import aws_iam as iam
from constructs import Construct

from saga_runtime.protocol import Env

_may_post: Final[WeakSet[iam.IGrantable]] = WeakSet()


def may_post(grantee: iam.IGrantable) -> None:
    """Remember that a ledger was granted."""
    _may_post.add(grantee)


def warn_of_ledger(function: Construct, grantees: Iterable[iam.IGrantable], environment: Mapping[str, str]) -> None:
    """Warn of what a function lacks whose module asks for the ledger of its environment.

    Not an error: a variable may have been added to the Lambda function, and another policy may allow the calls.
    """
    path = function.node.path
    if Env.LEDGER_TABLE not in environment:
        Validations.of(function).add_warning(
            "cdk-sagas-ledger-environment",
            f"environment of {path} must have {Env.LEDGER_TABLE}, got none: its module calls Ledger.from_env(); "
            "give it environment=ledger.environment, or acknowledge this if the variable is added otherwise",
        )
    if not any(each in _may_post for each in grantees):
        Validations.of(function).add_warning(
            "cdk-sagas-ledger-grant",
            f"{path} must be granted the ledger that it posts to, got no grant; call ledger.grant_post(…), or "
            "acknowledge this if another policy allows it",
        )
