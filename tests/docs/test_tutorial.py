"""The tutorial's own folder, copied elsewhere, does what the tutorial promises: its tests run on local AWS."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

from tests.docs.pages import DOCS


def test_the_first_saga_passes_its_own_tests(tmp_path: Path) -> None:
    folder = tmp_path / "first_saga"
    shutil.copytree(DOCS / "tutorial" / "first_saga", folder, ignore=shutil.ignore_patterns("__pycache__"))

    run = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider"],
        cwd=folder,
        env={name: value for name, value in os.environ.items() if not name.startswith("PYTEST_")},
        capture_output=True,
        text=True,
        timeout=570,
        check=False,
    )

    assert run.returncode == 0, run.stdout + run.stderr
    assert "3 passed" in run.stdout
