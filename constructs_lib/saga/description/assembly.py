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
    found = (SagaDescription.from_json(data) for _, data in metadata_in(assembly, METADATA_TYPE))
    return sorted(found, key=lambda saga: saga.name)


def metadata_in(assembly: Path, kind: str) -> Iterator[tuple[str, Any]]:
    """Metadata of one type in an assembly, those of its stages included: construct path, and data.

    Args:
        assembly: the folder that ``cdk synth`` wrote.
        kind: the type.

    Raises:
        ValueError: if the folder is not an assembly.
    """
    for folder, _, artifact in artifacts_in(assembly):
        for path, entries in _metadata(folder, artifact).items():
            for entry in entries:
                if entry["type"] == kind:
                    yield path.removeprefix("/"), entry["data"]


def artifacts_in(folder: Path) -> Iterator[tuple[Path, str, Mapping[str, Any]]]:
    """Artifacts of an assembly, those of its stages included: the folder of its files, its id, and its description.

    Args:
        folder: the one that ``cdk synth`` wrote.

    Raises:
        ValueError: if the folder is not an assembly.
    """
    file = folder / "manifest.json"
    try:
        manifest: Any = json.loads(file.read_text(encoding="utf-8"))
    except (FileNotFoundError, NotADirectoryError):
        raise ValueError(f"no cloud assembly is in {folder}; synthesize one first: cdk synth") from None
    except OSError as error:
        raise ValueError(f"{file} cannot be read ({error.strerror}); correct its rights") from None
    except ValueError as error:
        raise ValueError(f"{file} is not JSON ({error}); synthesize the app again: cdk synth") from None
    if not isinstance(manifest, dict) or "artifacts" not in manifest:
        raise ValueError(f"{file} is not the manifest of a cloud assembly; synthesize the app again: cdk synth")
    for name, artifact in manifest["artifacts"].items():
        if artifact.get("type") == "cdk:cloud-assembly":
            yield from artifacts_in(folder / artifact["properties"]["directoryName"])
        yield folder, name, artifact


def _metadata(folder: Path, artifact: Mapping[str, Any]) -> Mapping[str, list[Mapping[str, Any]]]:
    """An artifact's metadata by construct path. The CDK writes it into the manifest, or into a separate file."""
    inline: Mapping[str, list[Mapping[str, Any]]] = artifact.get("metadata") or {}
    beside = artifact.get("additionalMetadataFile")
    if beside is None:
        return inline
    found: Mapping[str, list[Mapping[str, Any]]] = json.loads((folder / beside).read_text(encoding="utf-8"))
    return {**inline, **found}
