"""Puts the function bundle into the wheel, so that its users need no pip at synth."""

from __future__ import annotations

import importlib.util
from pathlib import Path
from types import ModuleType
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface


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


def _load_builder(root: Path) -> ModuleType:
    """Loads the builder by its path: importing the package would need the CDK, which a build environment lacks."""
    path = root / "constructs_lib" / "functions" / "bundle_builder.py"
    spec = importlib.util.spec_from_file_location("bundle_builder", path)
    if spec is None or spec.loader is None:
        raise FileNotFoundError(path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module
