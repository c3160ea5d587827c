"""Hooks of hatchling: the function bundle in the wheel, addresses in the metadata."""

from __future__ import annotations

import importlib.util
import os
import re
from pathlib import Path
from types import ModuleType
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface
from hatchling.metadata.plugin.interface import MetadataHookInterface

REPOSITORY_VARIABLE = "CDK_SAGAS_REPOSITORY"
"""Address of the repository that publishes, such as `https://git.example/team/cdk-sagas`; no trailing slash."""
_LINK = re.compile(r"(!?)(\[(?:[^\]\[]|\[[^\]]*\])*\])\((?!https?:|#)([^)\s]+)\)")


class FunctionBundleHook(BuildHookInterface):  # type: ignore[type-arg]  # generic at type-checking time only
    """Builds the bundle before the wheel; an editable install builds it at its first use instead."""

    PLUGIN_NAME = "custom"

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        """Builds the bundle and adds it to the wheel's files.

        Args:
            version: `standard` or `editable`.
            build_data: Data that the builder continues with; changed in place.
        """
        if version == "editable":
            return
        builder = _load_builder(Path(self.root))
        bundle = builder.build(Path(self.root))
        build_data["force_include"][str(bundle)] = builder.BUNDLE_PATH.as_posix()


class AddressesHook(MetadataHookInterface):
    """Adds project URLs, and makes the README's links absolute: an index shows the README without the repository."""

    PLUGIN_NAME = "custom"

    def update(self, metadata: dict[str, Any]) -> None:
        """Adds the README and the URLs.

        Args:
            metadata: The project's table; changed in place. Without the variable there are no URLs.
        """
        text = (Path(self.root) / "README.md").read_text("utf-8")
        repository = os.environ.get(REPOSITORY_VARIABLE)
        if repository:
            if not re.fullmatch(r"https://[^/\s]+(/[^/\s]+)+", repository):
                raise ValueError(
                    f"{REPOSITORY_VARIABLE} must be an https address without a trailing slash, got {repository!r}; "
                    "set it to the address of the repository that publishes"
                )
            version = f"v{metadata['version']}"
            text = _LINK.sub(
                lambda link: f"{link[1]}{link[2]}({repository}/{'raw' if link[1] else 'blob'}/{version}/{link[3]})",
                text,
            )
            metadata["urls"] = {
                "Repository": repository,
                "Documentation": f"{repository}/blob/{version}/docs/index.md",
                "Changelog": f"{repository}/blob/{version}/CHANGELOG.md",
                "Issues": f"{repository}/issues",
            }
        metadata["readme"] = {"content-type": "text/markdown", "text": text}


def _load_builder(root: Path) -> ModuleType:
    """Loads the builder by its path: importing the package would need the CDK, which a build environment lacks."""
    path = root / "constructs_lib" / "functions" / "bundle_builder.py"
    spec = importlib.util.spec_from_file_location("bundle_builder", path)
    if spec is None or spec.loader is None:
        raise FileNotFoundError(path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module
