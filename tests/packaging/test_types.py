"""Types of the CDK are read where they are used: mypy skips its other modules, whose every type is Any."""

from __future__ import annotations

import ast
import tomllib
from collections.abc import Iterator
from fnmatch import fnmatchcase

from tests.packaging.conftest import ROOT

SETTINGS = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["tool"]["mypy"]


def _imported(text: str) -> Iterator[str]:
    """Modules of the CDK that a file imports; of another name, the module that has it."""
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names if alias.name.partition(".")[0] == "aws_cdk")
        elif isinstance(node, ast.ImportFrom) and str(node.module).partition(".")[0] == "aws_cdk":
            yield str(node.module)
            if node.module == "aws_cdk":
                yield from (f"aws_cdk.{alias.name}" for alias in node.names if alias.name.islower())


def test_mypy_follows_each_module_of_the_cdk_that_is_imported() -> None:
    (followed,) = (
        override["module"] for override in SETTINGS["overrides"] if override.get("follow_imports") == "normal"
    )
    files = [
        file
        for path in SETTINGS["files"]
        for file in ([ROOT / path] if path.endswith(".py") else (ROOT / path).rglob("*.py"))
    ]

    found = {module for file in files for module in _imported(file.read_text("utf-8"))}

    assert len(found) > 20
    assert {module for module in found if not any(fnmatchcase(module, pattern) for pattern in followed)} == set()


def test_an_import_is_found_in_each_form() -> None:
    text = "import aws_cdk.aws_rds as rds\nfrom aws_cdk import App, aws_ses\nfrom aws_cdk.aws_s3 import Bucket\n"

    assert set(_imported(text)) == {"aws_cdk", "aws_cdk.aws_rds", "aws_cdk.aws_ses", "aws_cdk.aws_s3"}
