"""Generated definitions, as a linter of the States Language sees them."""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path

import pytest

from constructs_lib.saga.asl import definition_of, recovery_of
from tests.constructs.support.cloud import Cloud
from tests.constructs.support.factories import ROOT
from tests.constructs.support.plans import PLANS

FORWARD_MACHINE = "arn:aws:states:eu-west-1:111111111111:stateMachine:forward"
LINTER = ROOT / "node_modules" / "asl-validator" / "dist" / "bin" / "asl-validator.js"

pytestmark = pytest.mark.skipif(not LINTER.is_file(), reason="node_modules is missing; run `make setup`")


def _lint(*files: Path) -> subprocess.CompletedProcess[str]:
    """Lint in one process: starting node costs more than the work."""
    paths = [argument for file in files for argument in ("--json-path", str(file))]
    return subprocess.run(
        ["node", str(LINTER), *paths], capture_output=True, text=True, check=False, env=dict(os.environ), timeout=60
    )


def test_the_linter_finds_nothing(reference: Cloud, tmp_path: Path) -> None:
    definitions = [reference.definition(path) for path in ("Transfer/StateMachine", "Transfer/Recovery")]
    for plan in PLANS.values():
        definitions += [definition_of(plan), recovery_of(plan, FORWARD_MACHINE)]
    files = [tmp_path / f"{number}.json" for number in range(len(definitions))]
    for file, definition in zip(files, definitions, strict=True):
        file.write_text(json.dumps(definition), encoding="utf-8")
    result = _lint(*files)
    assert result.returncode == 0, result.stdout + result.stderr


def test_the_linter_would_find_a_missing_target(tmp_path: Path) -> None:
    definition = definition_of(PLANS["one step"])
    definition["States"]["Transfer"]["Next"] = "Nowhere"
    (tmp_path / "broken.json").write_text(json.dumps(definition), encoding="utf-8")
    result = _lint(tmp_path / "broken.json")
    assert result.returncode != 0
    assert "Nowhere" in result.stdout + result.stderr or "MISSING" in result.stdout + result.stderr
