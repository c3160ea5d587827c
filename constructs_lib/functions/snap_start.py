"""Functions that start from a snapshot of their initialized state: Lambda SnapStart."""

from __future__ import annotations

from typing import Any, Final

from aws_cdk import Stack, Token
from aws_cdk import aws_lambda as lambda_

_WITHOUT: Final = ("ap-east-2", "ap-southeast-6")
"""Regions that have no SnapStart: https://docs.aws.amazon.com/lambda/latest/dg/snapstart.html"""
_NOT_COMMERCIAL: Final = ("cn-", "eu-isoe-", "eusc-", "us-gov-", "us-iso")
"""Beginnings of names of regions: SnapStart is documented for the commercial ones only."""
_MOST_STORAGE_MIB: Final = 512
_LIVE: Final = "Live"


def from_snapshot(name: str, function: lambda_.Function) -> lambda_.Alias:
    """Let a function start from a snapshot; return what has to be invoked in its place.

    Lambda takes a snapshot of each version that is published, and of nothing else. So the function has a version, which
    a deployment replaces when code or configuration changed, and an alias ``live`` of the newest one.

    Args:
        name: what the function is, for errors.
        function: of this app; a second call returns the same alias.

    Raises:
        ValueError: if Lambda has no snapshots of such a function, or in its region.
    """
    made = function.node.try_find_child(_LIVE)
    if isinstance(made, lambda_.Alias):
        return made
    _check(name, function)
    resource: Any = function.node.default_child
    resource.snap_start = lambda_.CfnFunction.SnapStartProperty(apply_on="PublishedVersions")
    return lambda_.Alias(function, _LIVE, alias_name="live", version=function.current_version)


def _check(name: str, function: lambda_.Function) -> None:
    stack, resource = Stack.of(function), function.node.default_child
    assert isinstance(resource, lambda_.CfnFunction)  # noqa: S101  # made by lambda_.Function
    runtime = function.runtime
    if runtime.family is not lambda_.RuntimeFamily.PYTHON or not runtime.supports_snap_start:
        raise ValueError(
            f"the runtime of {name} must be python3.12 or newer, got {runtime.name}, of which Lambda takes no "
            "snapshots that this library knows; set snap_start=False"
        )
    region = stack.region
    if not Token.is_unresolved(region) and (region in _WITHOUT or region.startswith(_NOT_COMMERCIAL)):
        raise ValueError(f"the region of {name} must be one that has SnapStart, got {region}; set snap_start=False")
    storage: Any = stack.resolve(resource.ephemeral_storage) or {}
    size = storage.get("size", _MOST_STORAGE_MIB)
    if size > _MOST_STORAGE_MIB:
        raise ValueError(
            f"the ephemeral storage of {name} must be {_MOST_STORAGE_MIB} MiB with a snapshot, got {size} MiB; lower "
            "it, or set snap_start=False"
        )
    if stack.resolve(resource.file_system_configs):
        raise ValueError(f"{name} must have no file system with a snapshot, got one; set snap_start=False")
