"""Pydantic and requests, for every Lambda Python and processor. Needs a package index, or what was installed before.

A run installs for every third of them, from one that it draws; ``make samples`` for all.

``test_requirements.py`` tests the same without a network, by wheels that it writes.
"""

from __future__ import annotations

import os
import subprocess
import sys
import zipfile
from itertools import product
from pathlib import Path
from typing import Final

import pytest

from constructs_lib.functions.bundle import merged_code
from constructs_lib.packages.local import local_code
from constructs_lib.packages.lock import Target
from tests.sampling import a_third

TARGETS: Final = list(product(["3.11", "3.12", "3.13", "3.14"], ["aarch64", "x86_64"]))
_FIRST, _STEP = a_third()
LOCK: Final = Path(__file__).with_name("locks") / "pydantic.txt"


def _code(tmp_path: Path, target: Target) -> Path:
    folder = tmp_path / "functions"
    folder.mkdir()
    (folder / "pay.py").write_text("import pydantic, requests\n")
    return merged_code(folder, requirements=LOCK, target=target)


@pytest.mark.proof
@pytest.mark.parametrize(("python", "machine"), TARGETS[_FIRST::_STEP])
def test_pydantic_is_installed_for_the_function(tmp_path: Path, python: str, machine: str) -> None:
    code = _code(tmp_path, Target(python=python, machine=machine))

    with zipfile.ZipFile(code) as archive:
        names = archive.namelist()
    tag = f"cpython-{python.replace('.', '')}-{machine}-linux-gnu.so"
    assert f"pydantic_core/_pydantic_core.{tag}" in names
    assert "requests/__init__.py" in names
    assert [name for name in names if name.endswith(".so") and not name.endswith(tag)] == []


@pytest.mark.proof
def test_pydantic_of_a_function_for_arm64_imports_on_this_machine(tmp_path: Path) -> None:
    folder = tmp_path / "code"
    with zipfile.ZipFile(local_code(_code(tmp_path, Target(python="3.14", machine="aarch64")))) as archive:
        archive.extractall(folder)

    # Neither this environment's packages nor its variables: what was not bundled is not found.
    ran = subprocess.run(
        [sys.executable, "-S", "-c", "import pay, pydantic; print(pydantic.__file__)"],
        cwd=folder,
        env={"PYTHONPATH": str(folder), "PATH": os.environ["PATH"]},
        capture_output=True,
        text=True,
        check=False,
    )

    assert ran.stdout.strip() == str(folder / "pydantic" / "__init__.py"), ran.stderr
