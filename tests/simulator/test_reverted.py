"""Each fix of a known defect can be reverted, and the simulator finds the defect of one that is."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import pytest

from tests.docs.pages import DOCS

from .reverted.__main__ import ROOT, copied, edit, look_for, reverted
from .reverted.reverts import REVERTS, Edit, Revert
from .reverted.stacks import STACKS

_SIMULATION: Final = (DOCS / "explanation/simulation.md").read_text(encoding="utf-8")
_DEFECTS: Final = (DOCS / "explanation/defects-found.md").read_text(encoding="utf-8")
_NAME: Final = re.compile(r"`([\w-]+)`")


@pytest.mark.parametrize("name", REVERTS)
def test_fix_can_be_reverted(name: str) -> None:
    revert = REVERTS[name]
    assert revert.stack in STACKS
    changed: dict[str, str] = {}
    for change in revert.edits:
        text = changed.get(change.file) or (ROOT / change.file).read_text(encoding="utf-8")
        assert text.count(change.text) == 1, change
        changed[change.file] = text.replace(change.text, change.by)
    for file, text in changed.items():
        compile(text, file, "exec")


@pytest.mark.proof
def test_reverted_sources_are_well_typed(tmp_path: Path) -> None:
    """A name that the sources do not have any more would fail where the defect was: nothing would be found."""
    copy = tmp_path / "copy"
    copy.mkdir()
    copied(copy)
    options = ["--no-warn-unreachable", f"--cache-dir={tmp_path / 'cache'}"]
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    wrong = {}
    for name, revert in REVERTS.items():
        files = {change.file: (copy / change.file).read_text(encoding="utf-8") for change in revert.edits}
        edit(revert, copy)
        command = [sys.executable, "-m", "mypy", *options, *files]
        done = subprocess.run(command, cwd=copy, env=environment, capture_output=True, text=True, check=False)
        if done.returncode:
            wrong[name] = done.stdout
        for file, text in files.items():
            (copy / file).write_text(text, encoding="utf-8")

    assert wrong == {}


def test_edit_of_a_text_that_is_gone_is_refused(tmp_path: Path) -> None:
    gone = Revert(name="gone", defect="", edits=[Edit("requirements/bundle.txt", "not in there", "")])
    with pytest.raises(ValueError, match=r"requirements/bundle.txt must have this text once, got 0"):
        reverted(gone, tmp_path)


def _rows(page: str, heading: str) -> Iterator[list[str]]:
    """Cells of each row of a section's tables."""
    (text,) = re.findall(rf"^#+ {re.escape(heading)}$(.*?)(?=^#+ |\Z)", page, re.MULTILINE | re.DOTALL)
    for line in re.findall(r"^\| (?!defect )(.+) \|$", text, re.MULTILINE):
        yield line.split(" | ")


def _found_in() -> list[str]:
    """Last cell of each defect that moved money, or left a saga stuck: its reverts, or its class."""
    return [cells[-1] for section in ("Money", "Stuck sagas") for cells in _rows(_DEFECTS, section)]


def test_each_defect_has_a_revert_or_is_of_a_class_that_the_page_defines() -> None:
    classes = re.findall(r"^- \*\*(\w+)\*\*: ", _SIMULATION.partition("### What it cannot find\n")[2], re.MULTILINE)
    found = _found_in()
    others = [cell for cell in found if not _NAME.search(cell)]

    assert {name for cell in found for name in _NAME.findall(cell)} <= REVERTS.keys()
    assert set(others) == set(classes)


def test_each_revert_has_its_row_and_its_defect() -> None:
    (without,) = re.findall(r"No defect was found of ([^.]+)\.", _SIMULATION)
    of_defects = {name for cell in _found_in() for name in _NAME.findall(cell)}

    assert sorted(_NAME.findall(cells[1])[0] for cells in _rows(_SIMULATION, "Does it find defects?")) == sorted(
        REVERTS
    )
    assert REVERTS.keys() - of_defects == {*_NAME.findall(without)}


@pytest.mark.proof
def test_defect_of_a_reverted_fix_is_found() -> None:
    found = look_for(REVERTS["condition-by-truth"], seed=293416, seconds=60, shrink=False)

    assert found["found"]
    assert found["with the fix"] is False
    assert any("conditions are true or false" in finding for finding in found["findings"])
