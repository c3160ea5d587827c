"""Functions that timed out, as the explanation of a failed test finds them."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

from constructs_lib.testing import DeployedResource
from constructs_lib.testing.explanation import _timed_out


def test_functions_that_timed_out_since_the_reset_are_named() -> None:
    log = (
        "Lambda shop-pay timed out after 20s — killing worker\n" * 2
        + "Lambda gone timed out after 3s — killing worker\n"
    )
    functions = [_function("shop-pay", "Shop/Pay/Function"), _function("shop-send", "Shop/Send/Function")]
    aws: Any = SimpleNamespace(
        emulator_log=lambda *, since_reset: log if since_reset else "", functions=lambda: functions
    )

    assert list(_timed_out(aws, None)) == ["Shop/Pay/Function, 2 times"]


def _function(name: str, path: str) -> DeployedResource:
    return DeployedResource(
        stack="Shop", logical_id=name, path=f"{path}/Resource", physical_id=name, type="AWS::Lambda::Function"
    )
