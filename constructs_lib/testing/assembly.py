"""Reads a synthesized cloud assembly (``cdk.out``): its stacks, their order, their assets and their paths."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from graphlib import TopologicalSorter
from pathlib import Path
from typing import Any, Final

from constructs_lib.packages.local import local_code

_PATH_METADATA: Final = "aws:cdk:path"
_LOGICAL_ID_METADATA: Final = "aws:cdk:logicalId"


class AssemblyError(ValueError):
    """The folder is not a synthesized assembly, or needs something that local AWS does not have."""


@dataclass(frozen=True, slots=True, kw_only=True)
class FileAsset:
    """A file of the assembly and the place where a template expects it.

    Attributes:
        source: File or folder in the assembly.
        zipped: Whether a folder has to be packed first.
        bucket: Name of the bucket.
        key: Key in the bucket.
    """

    source: Path
    zipped: bool
    bucket: str
    key: str


@dataclass(frozen=True, slots=True, kw_only=True)
class StackArtifact:
    """A stack of the assembly.

    Attributes:
        name: Its CloudFormation name.
        template: Its template.
        template_file: The file of its template.
        assets: What has to be uploaded before it is deployed.
        paths: The construct path of every logical id.
        account, region: Where it is to be deployed; None: wherever the deployment is made.
    """

    name: str
    template: dict[str, Any]
    template_file: Path
    assets: tuple[FileAsset, ...]
    paths: Mapping[str, str]
    account: str | None = None
    region: str | None = None


def read_assembly(folder: Path, *, account: str, region: str) -> list[StackArtifact]:
    """Return the stacks of an assembly, those of its stages included, each after what it depends on.

    Args:
        folder: The synthesized assembly.
        account: Value of ``${AWS::AccountId}`` in names of asset buckets.
        region: Value of ``${AWS::Region}``.

    Raises:
        AssemblyError: If it is not an assembly, or needs a container image.
    """
    manifest_file = folder / "manifest.json"
    if not manifest_file.is_file():
        raise AssemblyError(f"{folder} has no manifest.json; synthesize first (cdk synth)")
    try:
        manifest: Any = json.loads(manifest_file.read_text(encoding="utf-8"))
    except ValueError as error:
        raise AssemblyError(f"{manifest_file} is not JSON ({error}); synthesize again (cdk synth)") from None
    if not isinstance(manifest, dict) or not isinstance(manifest.get("artifacts"), dict):
        raise AssemblyError(f"{manifest_file} is not the manifest of a cloud assembly; synthesize (cdk synth)")
    artifacts: dict[str, Any] = manifest["artifacts"]
    order = TopologicalSorter({name: artifact.get("dependencies", []) for name, artifact in artifacts.items()})
    stacks: list[StackArtifact] = []
    for name in order.static_order():
        artifact = artifacts.get(name, {})
        properties = artifact.get("properties", {})
        if artifact.get("type") == "aws:cloudformation:stack":
            assets = [
                asset
                for dependency in artifact.get("dependencies", [])
                if artifacts.get(dependency, {}).get("type") == "cdk:asset-manifest"
                for asset in _read_assets(folder, artifacts[dependency]["properties"]["file"], account, region)
            ]
            template_file = folder / properties["templateFile"]
            template = json.loads(template_file.read_text(encoding="utf-8"))
            known = re.fullmatch(
                r"aws://(?:unknown-account|(.+))/(?:unknown-region|(.+))", artifact.get("environment", "")
            )
            stacks.append(
                StackArtifact(
                    name=properties.get("stackName", name),
                    template=template,
                    template_file=template_file,
                    assets=tuple(assets),
                    paths={**_read_paths(folder, artifact), **_template_paths(template)},
                    account=known[1] if known is not None else None,
                    region=known[2] if known is not None else None,
                )
            )
        elif artifact.get("type") == "cdk:cloud-assembly":
            stacks += read_assembly(folder / properties["directoryName"], account=account, region=region)
    return stacks


def _template_paths(template: dict[str, Any]) -> dict[str, str]:
    """Return the paths that the CDK CLI has put into the template."""
    return {
        logical_id: resource["Metadata"][_PATH_METADATA]
        for logical_id, resource in template.get("Resources", {}).items()
        if _PATH_METADATA in (resource.get("Metadata") or {})
    }


def _read_paths(folder: Path, artifact: dict[str, Any]) -> dict[str, str]:
    """Return the construct path of each logical id from the assembly's metadata; the CDK CLI is not needed."""
    metadata: dict[str, Any] = artifact.get("metadata", {})
    file = artifact.get("additionalMetadataFile")
    if file:
        metadata = {**metadata, **json.loads((folder / file).read_text(encoding="utf-8"))}
    return {
        entry["data"]: path.removeprefix("/")
        for path, entries in metadata.items()
        for entry in entries
        if entry["type"] == _LOGICAL_ID_METADATA
    }


def _read_assets(folder: Path, name: str, account: str, region: str) -> Iterator[FileAsset]:
    manifest = json.loads((folder / name).read_text(encoding="utf-8"))
    if manifest.get("dockerImages"):
        raise AssemblyError(f"{folder / name} asks for container images; local AWS runs none, bundle without docker")

    def fill(text: str) -> str:
        replaced = text.replace("${AWS::AccountId}", account).replace("${AWS::Region}", region)
        return replaced.replace("${AWS::Partition}", "aws")

    for asset in manifest.get("files", {}).values():
        source = asset["source"]
        if "path" not in source:
            raise AssemblyError(f"{folder / name} has an asset that is built by a command; synthesize it as a file")
        for destination in asset["destinations"].values():
            yield FileAsset(
                source=local_code(folder / source["path"]),
                zipped=source.get("packaging") == "zip",
                bucket=fill(destination["bucketName"]),
                key=fill(destination["objectKey"]),
            )
