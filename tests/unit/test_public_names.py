"""What the package exports, and what importing it costs."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

import constructs_lib

ROOT = Path(__file__).resolve().parents[2]


@pytest.mark.parametrize("name", constructs_lib.__all__)
def test_every_exported_name_is_there(name: str) -> None:
    assert getattr(constructs_lib, name).__name__ == name


def test_an_unknown_name_is_an_attribute_error() -> None:
    with pytest.raises(AttributeError, match="has no attribute 'Unknown'"):
        getattr(constructs_lib, "Unknown")  # noqa: B009  # the type checker knows that it is not there


@pytest.mark.parametrize("module", ["constructs_lib", "constructs_lib.testing.pytest_plugin", "constructs_lib.cli"])
def test_command_and_pytest_plugin_do_not_start_the_cdk(module: str) -> None:
    code = f"import sys, {module}; print(sorted({{'aws_cdk', 'jsii', 'ministack'}} & set(sys.modules)))"
    result = subprocess.run(
        [sys.executable, "-c", code],
        check=True,
        cwd=ROOT,
        env={"PYTHONPATH": "lambda_src"},
        capture_output=True,
        text=True,
    )

    assert result.stdout.strip() == "[]"
