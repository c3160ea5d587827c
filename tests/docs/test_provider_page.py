"""The page about the fake provider, typed into an empty folder: its tests pass, and fail without its remedy."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from tests.docs.pages import DOCS, snippets

PAGE = DOCS / "how-to" / "test-against-a-provider.md"


def _run(folder: Path, program: str) -> subprocess.CompletedProcess[str]:
    (folder / "test_charge.py").write_text(program, "utf-8")
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "test_charge.py"]
    return subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)


@pytest.mark.exhaustive
def test_typed_page_passes_and_finds_a_second_charge(tmp_path: Path) -> None:
    program = "\n\n".join(one.body for one in snippets() if one.page == PAGE and "run" in one.kind)
    careless = program.replace('found = send(f"{url}/charges?key={key}", key)["found"]', 'found, key = [], "another"')
    assert careless != program

    typed, wrong = _run(tmp_path, program), _run(tmp_path, careless)

    assert "2 passed" in typed.stdout, typed.stdout
    assert "1 failed, 1 passed" in wrong.stdout
    assert "assert [1250, 1250] == [1250]" in wrong.stdout
