"""Writes results, with a description of the machine that they were measured on."""

from __future__ import annotations

import json
import os
import platform
from pathlib import Path
from typing import Any, Final

FOLDER: Final = Path("build/benchmarks")


def machine() -> dict[str, Any]:
    """Return the data of the machine that a reader needs to compare."""
    return {"python": platform.python_version(), "system": platform.system(), "cores": os.cpu_count()}


def write_report(name: str, results: dict[str, Any]) -> Path:
    """Write results as JSON, with the machine's data."""
    FOLDER.mkdir(parents=True, exist_ok=True)
    path = FOLDER / f"{name}.json"
    path.write_text(json.dumps({"machine": machine(), **results}, indent=2) + "\n", "utf-8")
    return path
