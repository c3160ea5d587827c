"""Locks pin by hash, and no file names a machine or a registry."""

from __future__ import annotations

import json
import re
import subprocess
import tomllib
from collections.abc import Iterator
from pathlib import Path

from tests.for_each import for_each
from tests.packaging.conftest import ROOT

LOCKS = sorted((ROOT / "requirements").glob("*.txt"))
ADDRESS = re.compile(r"[a-z+]+://|--(?:extra-)?index-url|--find-links|--trusted-host|@ (?:file|git|http)")
MACHINE_PATH = re.compile(r"(?:^|[\s\"'=(:])(/(?:home|Users|tmp|opt)/\w|/(?:root|work)/|[A-Z]:\\Users)")
REGISTRY = re.compile(r"registry\.npmjs|registry\.yarnpkg|files\.pythonhosted|\bpypi\.org|artifactory|\bnexus\.")


def _tracked() -> Iterator[Path]:
    """Everything that is committed or would be."""
    command = ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"]
    listing = subprocess.run(command, check=True, cwd=ROOT, capture_output=True, text=True).stdout
    for name in filter(None, listing.split("\0")):
        if (ROOT / name).is_file():
            yield ROOT / name


@for_each(LOCKS)
def test_a_requirement_lock_names_no_address(lock: Path) -> None:
    assert [line for line in lock.read_text().splitlines() if ADDRESS.search(line)] == []


@for_each(LOCKS)
def test_every_locked_requirement_is_exact_and_has_a_hash(lock: Path) -> None:
    text = re.sub(r"(?m)^\s*#.*$\n?", "", lock.read_text()).replace("\\\n", " ")
    requirements = [line for line in text.splitlines() if line.strip()]

    assert len(requirements) >= 4
    assert [line for line in requirements if "==" not in line or "--hash=sha256:" not in line] == []


def test_the_bundled_versions_are_the_tested_ones() -> None:
    def pins(name: str) -> dict[str, str]:
        text = (ROOT / "requirements" / name).read_text()
        return dict(re.findall(r"(?m)^([a-z0-9._-]+)==([^\s;]+)", text))

    bundled, tested = pins("bundle.txt"), pins("dev.txt")

    assert {name: tested.get(name) for name in bundled} == bundled


def test_a_wheel_is_built_with_its_own_small_lock() -> None:
    def pins(name: str) -> dict[str, str]:
        return dict(re.findall(r"(?m)^([a-z0-9._-]+)==([^\s;]+)", (ROOT / "requirements" / name).read_text()))

    steps = subprocess.run(["make", "-n", "wheel"], check=True, cwd=ROOT, capture_output=True, text=True).stdout

    assert pins("build.txt").items() <= pins("dev.txt").items()
    assert len(pins("build.txt")) < 15
    assert steps.count("tools/setup.py") == 1
    assert "--build-only" in steps


def test_the_emulator_of_the_extra_is_the_one_that_is_locked() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    (emulator,) = (need for need in project["optional-dependencies"]["local"] if need.startswith("ministack"))

    assert f"\n{emulator} " in (ROOT / "requirements" / "dev.txt").read_text()


def test_the_node_lock_pins_exactly_by_integrity_and_names_no_address() -> None:
    manifest = json.loads((ROOT / "package.json").read_text())
    text = (ROOT / "package-lock.json").read_text()
    lock = json.loads(text)
    packages = {name: package for name, package in lock["packages"].items() if name}

    assert manifest["private"] is True
    assert manifest["devDependencies"]["aws-cdk"] == "2.1148.1"
    assert all(re.fullmatch(r"\d+\.\d+\.\d+", version) for version in manifest["devDependencies"].values())
    assert lock["packages"][""]["devDependencies"] == manifest["devDependencies"]
    assert [name for name, package in packages.items() if "integrity" not in package] == []
    assert not ADDRESS.search(text)
    assert "resolved" not in text


def test_no_file_names_a_registry_or_a_path_of_one_machine() -> None:
    found = []
    for path in _tracked():
        if path == Path(__file__).resolve():
            continue  # the patterns themselves
        text = path.read_text(encoding="utf-8", errors="replace")
        for number, line in enumerate(text.splitlines(), 1):
            if MACHINE_PATH.search(line) or REGISTRY.search(line):
                found.append(f"{path.relative_to(ROOT)}:{number}: {line.strip()[:100]}")

    assert found == []
