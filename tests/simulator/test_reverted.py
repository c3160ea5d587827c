"""Each fix of a known defect can be reverted, and the simulator finds the defect of one that is."""

from __future__ import annotations

from pathlib import Path

import pytest

from .reverted.__main__ import ROOT, look_for, reverted
from .reverted.reverts import REVERTS, Edit, Revert
from .reverted.stacks import STACKS


@pytest.mark.parametrize("name", REVERTS)
def test_fix_can_be_reverted(name: str) -> None:
    revert = REVERTS[name]
    assert revert.stack in STACKS
    changed: dict[str, str] = {}
    for edit in revert.edits:
        text = changed.get(edit.file) or (ROOT / edit.file).read_text(encoding="utf-8")
        assert text.count(edit.text) == 1, edit
        changed[edit.file] = text.replace(edit.text, edit.by)
    for file, text in changed.items():
        compile(text, file, "exec")


def test_edit_of_a_text_that_is_gone_is_refused(tmp_path: Path) -> None:
    gone = Revert(name="gone", defect="", edits=[Edit("requirements/bundle.txt", "not in there", "")])
    with pytest.raises(ValueError, match=r"requirements/bundle.txt must have this text once, got 0"):
        reverted(gone, tmp_path)


@pytest.mark.proof
def test_defect_of_a_reverted_fix_is_found() -> None:
    found = look_for(REVERTS["condition-by-truth"], seed=293416, seconds=60, shrink=False)

    assert found["found"]
    assert found["with the fix"] is False
    assert any("conditions are true or false" in finding for finding in found["findings"])
