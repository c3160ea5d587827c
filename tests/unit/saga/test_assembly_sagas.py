"""Reading descriptions of sagas from a folder, without the CDK."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from constructs_lib.saga.description.assembly import sagas_of
from constructs_lib.saga.description.description import METADATA_TYPE, SagaDescription, StepDescription

_SAGA = SagaDescription(
    name="Shop/Order",
    steps=(StepDescription(name="Pay", kind="atomic", side="pivot"),),
    timeout=60,
    fingerprint="f",
)


def _write(folder: Path, artifacts: Any) -> Path:
    (folder / "manifest.json").write_text(json.dumps({"version": "1", "artifacts": artifacts}), "utf-8")
    return folder


def _metadata(data: str) -> dict[str, Any]:
    return {"/Shop/Order": [{"type": "aws:cdk:logicalId", "data": "Other"}, {"type": METADATA_TYPE, "data": data}]}


def test_a_saga_is_found_in_the_manifest_itself(tmp_path: Path) -> None:
    _write(tmp_path, {"Shop": {"type": "aws:cloudformation:stack", "metadata": _metadata(_SAGA.to_json())}})

    assert sagas_of(tmp_path) == [_SAGA]


def test_a_saga_is_found_in_the_file_next_to_the_manifest(tmp_path: Path) -> None:
    (tmp_path / "Shop.metadata.json").write_text(json.dumps(_metadata(_SAGA.to_json())), "utf-8")
    _write(tmp_path, {"Shop": {"type": "aws:cloudformation:stack", "additionalMetadataFile": "Shop.metadata.json"}})

    assert sagas_of(tmp_path) == [_SAGA]


def test_a_missing_manifest_is_reported(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=r"no cloud assembly is in .*cdk synth"):
        sagas_of(tmp_path)


@pytest.mark.parametrize("text", ["{", "[]", "{}"])
def test_an_invalid_manifest_is_reported(tmp_path: Path, text: str) -> None:
    (tmp_path / "manifest.json").write_text(text, "utf-8")

    with pytest.raises(ValueError, match="synthesize the app again"):
        sagas_of(tmp_path)


def test_a_description_of_another_release_is_refused(tmp_path: Path) -> None:
    other = json.dumps(json.loads(_SAGA.to_json()) | {"schema": 99})
    _write(tmp_path, {"Shop": {"type": "aws:cloudformation:stack", "metadata": _metadata(other)}})

    with pytest.raises(ValueError, match="schema"):
        sagas_of(tmp_path)


def test_no_cdk_is_needed_to_read_sagas() -> None:
    program = "import constructs_lib.saga.description.assembly, sys; sys.exit('aws_cdk' in sys.modules)"

    assert subprocess.run([sys.executable, "-c", program], check=False, cwd=Path(__file__).parents[3]).returncode == 0
