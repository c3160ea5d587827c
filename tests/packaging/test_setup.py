"""Set-up on a machine that lacks something: one clear line with the remedy."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.packaging.conftest import ROOT

TARGETS = ("demo", "test", "check", "lint", "synth", "up", "down", "deploy", "wheel", "clean", "help")


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    """A checkout in which nothing is installed."""
    root = tmp_path / "checkout"
    shutil.copytree(ROOT / "tools", root / "tools", ignore=shutil.ignore_patterns("__pycache__"))
    shutil.copyfile(ROOT / "Makefile", root / "Makefile")
    return root


def _make(checkout: Path, *arguments: str, **variables: str) -> subprocess.CompletedProcess[str]:
    make = shutil.which("make")
    assert make is not None
    # Make hands its own settings to the makes below it: `make test` must not change what this one does.
    outer = {"MAKEFLAGS", "MAKEOVERRIDES", "MFLAGS", "PYTHON", "VENV"}
    environment = {name: value for name, value in os.environ.items() if name not in outer} | variables
    return subprocess.run(
        [make, *arguments], check=False, cwd=checkout, env=environment, capture_output=True, text=True, timeout=600
    )


def _script(path: Path, body: str) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(f"#!/bin/sh\n{body}\n")
    path.chmod(0o755)
    return path


def _errors(result: subprocess.CompletedProcess[str]) -> list[str]:
    return [line for line in result.stderr.splitlines() if line.startswith("error: ")]


def test_help_is_the_default_and_lists_every_target(checkout: Path) -> None:
    listed = {line.split()[1] for line in _make(checkout).stdout.splitlines()}

    assert set(TARGETS) <= listed


def test_an_unsupported_python_is_refused_in_one_line(checkout: Path, tmp_path: Path) -> None:
    old = _script(tmp_path / "python3.9", "exit 1")

    result = _make(checkout, "test", f"PYTHON={old}")

    assert result.returncode != 0
    assert _errors(result) == [
        f"error: PYTHON={old} is not Python 3.11 or newer; install one, or set PYTHON=/path/to/python3.11"
    ]


def test_a_machine_without_python_gets_one_line(checkout: Path, tmp_path: Path) -> None:
    tools = tmp_path / "bin"
    tools.mkdir()
    for name in ("sh", "bash", "make"):
        if found := shutil.which(name):
            (tools / name).symlink_to(found)

    result = _make(checkout, "demo", PATH=str(tools))

    assert result.returncode != 0
    assert _errors(result) == [
        "error: no python3 on the PATH is 3.11 or newer; install one, or set PYTHON=/path/to/python3.11"
    ]


def test_a_python_without_pip_names_the_package_to_install(checkout: Path, tmp_path: Path) -> None:
    (tmp_path / "stripped").mkdir()
    (tmp_path / "stripped" / "ensurepip.py").write_text("raise ImportError\n")

    result = _make(checkout, "setup", f"PYTHON={sys.executable}", PYTHONPATH=str(tmp_path / "stripped"))

    assert result.returncode != 0
    (error,) = _errors(result)
    version = f"{sys.version_info.major}.{sys.version_info.minor}"
    assert f"has no venv or pip; install them (Debian and Ubuntu: apt install python{version}-venv)" in error
    assert not (checkout / ".venv").exists()


def test_an_environment_of_another_python_is_not_touched(checkout: Path) -> None:
    _script(checkout / ".venv" / "bin" / "python", "echo 3.99")

    result = _make(checkout, "setup", f"PYTHON={sys.executable}")

    assert result.returncode != 0
    (error,) = _errors(result)
    assert ".venv was made with Python 3.99, and PYTHON is" in error
    assert "add VENV=.venv-" in error


def test_a_package_that_cannot_be_installed_shows_why_and_where_to_look(checkout: Path) -> None:
    version = f"{sys.version_info.major}.{sys.version_info.minor}"
    pip = f"if [ \"$1\" = -c ]; then echo {version}; else echo 'no such package' >&2; exit 1; fi"
    _script(checkout / ".venv" / "bin" / "python", pip)
    (checkout / "requirements").mkdir()
    (checkout / "requirements" / "dev.txt").write_text("demo==1.0\n")

    result = _make(checkout, "setup", f"PYTHON={sys.executable}")

    assert result.returncode != 0
    assert "  | no such package" in result.stderr
    assert _errors(result) == [
        "error: cannot install requirements/dev.txt; see build/setup.log and check the network and pip's index settings"
    ]


def test_continuous_integration_runs_tests_and_proofs(tmp_path: Path) -> None:
    _script(tmp_path / "make", 'echo "$PWD make $*"')

    result = subprocess.run(
        [str(ROOT / ".ci" / "run")],
        check=True,
        cwd=tmp_path,
        env={"PATH": f"{tmp_path}{os.pathsep}{os.environ['PATH']}"},
        capture_output=True,
        text=True,
    )

    assert result.stdout.splitlines() == [f"{ROOT} make test", f"{ROOT} make prove"]
