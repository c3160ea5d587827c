"""The sagas of a cloud assembly (``cdk.out``), as they were described at synth. Reads files, and nothing else."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from constructs_lib.saga.description.description import METADATA_TYPE, SagaDescription


def sagas_of(assembly: Path) -> list[SagaDescription]:
    """Every saga of an assembly, those of its stages included, by name.

    Args:
        assembly: the folder that ``cdk synth`` wrote.

    Raises:
        ValueError: if the folder is not an assembly, or a description in it was written by another release.
    """
    return sorted(_sagas_in(assembly), key=lambda saga: saga.name)


def _sagas_in(folder: Path) -> Iterator[SagaDescription]:
    for artifact in _artifacts(folder):
        if artifact.get("type") == "cdk:cloud-assembly":
            yield from _sagas_in(folder / artifact["properties"]["directoryName"])
        for entries in _metadata(folder, artifact).values():
            for entry in entries:
                if entry["type"] == METADATA_TYPE:
                    yield SagaDescription.from_json(entry["data"])


def _artifacts(folder: Path) -> Iterator[Mapping[str, Any]]:
    file = folder / "manifest.json"
    try:
        manifest: Any = json.loads(file.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise ValueError(f"no cloud assembly is in {folder}; synthesize one first: cdk synth") from None
    except json.JSONDecodeError as error:
        raise ValueError(f"{file} is not JSON ({error}); synthesize the app again: cdk synth") from None
    if not isinstance(manifest, dict) or "artifacts" not in manifest:
        raise ValueError(f"{file} is not the manifest of a cloud assembly; synthesize the app again: cdk synth")
    yield from manifest["artifacts"].values()


def _metadata(folder: Path, artifact: Mapping[str, Any]) -> Mapping[str, list[Mapping[str, Any]]]:
    """An artifact's metadata by construct path. The CDK writes it into the manifest, or into a separate file."""
    inline: Mapping[str, list[Mapping[str, Any]]] = artifact.get("metadata") or {}
    beside = artifact.get("additionalMetadataFile")
    if beside is None:
        return inline
    found: Mapping[str, list[Mapping[str, Any]]] = json.loads((folder / beside).read_text(encoding="utf-8"))
    return {**inline, **found}
