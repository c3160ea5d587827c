"""The wallet's demo, at a smaller size: it succeeds, and reports so with its exit status."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]


def test_demo_moves_money_once_and_exits_with_0() -> None:
    command = [sys.executable, "-m", "examples.wallet.demo", "--requests", "12"]

    ended = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False, timeout=600)

    assert ended.returncode == 0, ended.stdout + ended.stderr
    assert "all hold" in ended.stdout
    assert "a completed request is one operation" in ended.stdout
