"""Exports of the package, and the cost of importing it."""

from __future__ import annotations

import subprocess
import sys
from importlib.metadata import version
from pathlib import Path
from types import ModuleType

import pytest

import constructs_lib
import constructs_lib.saga
import constructs_lib.testing
import saga_runtime
from constructs_lib.cli.main import main
from tests.for_each import for_each

ROOT = Path(__file__).resolve().parents[2]


@for_each(constructs_lib.__all__)
def test_every_exported_name_is_there(name: str) -> None:
    assert getattr(constructs_lib, name).__name__ == name


@pytest.mark.parametrize("package", ["constructs_lib", "constructs_lib.saga", "constructs_lib.testing", "saga_runtime"])
def test_dir_lists_every_public_name_before_its_first_use(package: str) -> None:
    code = f"import {package} as p; print(*(set(p.__all__) - set(dir(p))))"

    assert _run(code) == ""


@pytest.mark.parametrize("package", [constructs_lib, constructs_lib.saga, constructs_lib.testing, saga_runtime])
def test_a_name_that_a_package_does_not_export_is_an_attribute_error(package: ModuleType) -> None:
    with pytest.raises(AttributeError, match=f"module '{package.__name__}' has no attribute 'Nothing'"):
        getattr(package, "Nothing")  # noqa: B009  # the type checker knows that it is not there


def test_the_version_is_that_of_the_distribution(capsys: pytest.CaptureFixture[str]) -> None:
    assert constructs_lib.__version__ == version("cdk-sagas")

    with pytest.raises(SystemExit) as ended:
        main(["--version"])

    assert ended.value.code == 0
    assert capsys.readouterr().out == f"cdk-sagas {constructs_lib.__version__}\n"


@pytest.mark.parametrize(
    "module", ["constructs_lib", "constructs_lib.testing.pytest_plugin", "constructs_lib.cli.main"]
)
def test_command_and_pytest_plugin_do_not_start_the_cdk(module: str) -> None:
    code = f"import sys, {module}; print(sorted({{'aws_cdk', 'jsii', 'ministack'}} & set(sys.modules)))"

    assert _run(code) == "[]"


def test_costs_drawings_and_states_of_every_kind_need_no_cdk() -> None:
    code = """
import sys
from pathlib import Path
from constructs_lib.saga.description.kind import kind_named
import constructs_lib.saga.kinds
room = Path(constructs_lib.saga.kinds.__file__).parent
names = [file.stem.replace("_", "-") for file in room.glob("*.py") if file.stem != "__init__"]
print(len(names) > 10, [n for n in names if not kind_named(n)], sorted({"aws_cdk", "jsii"} & set(sys.modules)))
"""

    assert _run(code) == "True [] []"


def _run(code: str) -> str:
    """Output of code in a process of its own, without earlier imports."""
    result = subprocess.run(
        [sys.executable, "-c", code],
        check=True,
        cwd=ROOT,
        env={"PYTHONPATH": "lambda_src"},
        capture_output=True,
        text=True,
    )
    return result.stdout.strip()
