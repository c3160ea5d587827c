"""The rooms that CONTRIBUTING.md lists are those that there are, in the order of their layers."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path

from tests.docs.pages import ROOT
from tests.for_each import for_each

PACKAGES = {"saga_runtime": ROOT / "lambda_src" / "saga_runtime", "constructs_lib": ROOT / "constructs_lib"}
BESIDE_THE_LAYERS = {"saga_runtime": [], "constructs_lib": ["testing"]}
"""Rooms that have a contract of their own."""


@for_each(PACKAGES)
def test_the_page_lists_every_room_from_the_top_down(package: str) -> None:
    assert listed(package) == [*layers(package), *BESIDE_THE_LAYERS[package]]
    assert set(listed(package)) == rooms(PACKAGES[package])


def test_every_room_has_a_description() -> None:
    doors = [folder / "__init__.py" for path in PACKAGES.values() for folder in path.iterdir() if is_room(folder)]

    assert [door for door in doors if not re.match(r'"""[A-Z`].{10,}', door.read_text("utf-8"))] == []


def listed(package: str) -> list[str]:
    """Rooms of the table in CONTRIBUTING.md."""
    table = (
        (ROOT / "CONTRIBUTING.md").read_text("utf-8").partition(f"<!-- rooms: {package} -->\n")[2].partition("\n\n")[0]
    )
    return re.findall(r"^\| `(\w+)` \| ", table, re.MULTILINE)


def layers(package: str) -> list[str]:
    """Rooms of the contract that import-linter checks."""
    contracts = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["tool"]["importlinter"]["contracts"]
    (contract,) = (one for one in contracts if one.get("containers") == [package])
    return [room for layer in contract["layers"] for room in layer.split(" | ")]


def rooms(package: Path) -> set[str]:
    """Folders and modules of a package."""
    return {
        path.stem for path in package.iterdir() if is_room(path) or (path.suffix == ".py" and path.stem != "__init__")
    }


def is_room(path: Path) -> bool:
    """True if a folder holds modules of ours."""
    return (path / "__init__.py").is_file()
