"""Functions that post to a ledger: what they were given of it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Final
from weakref import WeakKeyDictionary

from aws_cdk import Validations
from aws_cdk import aws_iam as iam
from constructs import Construct

from saga_runtime.protocol import Env

_granted: Final[WeakKeyDictionary[iam.IGrantable, dict[str, str]]] = WeakKeyDictionary()
"""Paths of ledgers that were granted, by their tables' names."""


def may_post(grantee: iam.IGrantable, table_name: str, path: str) -> None:
    """Remember that a ledger was granted."""
    _granted.setdefault(grantee, {})[table_name] = path


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
    granted = {name: ledger for each in grantees for name, ledger in _granted.get(each, {}).items()}
    if not granted:
        Validations.of(function).add_warning(
            "cdk-sagas-ledger-grant",
            f"{path} must be granted the ledger that it posts to, got no grant; call ledger.grant_post(…), or "
            "acknowledge this if another policy allows it",
        )
    elif Env.LEDGER_TABLE in environment and environment[Env.LEDGER_TABLE] not in granted:
        Validations.of(function).add_warning(
            "cdk-sagas-ledger-grant",
            f"{path} must be granted the ledger of its environment, got a grant of {', '.join(granted.values())}; call "
            "grant_post(…) of the ledger whose environment it has, or acknowledge this if another policy allows it",
        )
