"""The folder for generated code."""

from __future__ import annotations

import functools
import os
import tempfile
from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).resolve().parents[2]
CACHE_VARIABLE: Final = "CDK_SAGAS_CACHE"


def cache_folder() -> Path:
    """Gives the folder for generated code: `$CDK_SAGAS_CACHE`, else `build/` of a checkout, else the user's cache.

    Not next to `cdk.out`, which the CDK empties and which differs per app; not next to the installed package, which may
    be read-only; and not a well-known name in the shared temporary folder, where another user of the machine could put
    a file for us to deploy.
    """
    if chosen := os.environ.get(CACHE_VARIABLE):
        return Path(chosen).expanduser().absolute()
    if is_checkout(ROOT):
        return ROOT / "build" / "cache"
    return _user_cache()


def is_checkout(root: Path) -> bool:
    """Tests whether a folder is the repository, rather than the place of an installed wheel."""
    return (root / "requirements" / "bundle.txt").is_file() and (root / "lambda_src").is_dir()


def _user_cache() -> Path:
    try:
        base = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
        folder = base / "cdk-sagas"
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    except (OSError, RuntimeError):
        return Path(_process_cache().name)  # no home folder, or a read-only one: build containers
    return folder if os.access(folder, os.W_OK) else Path(_process_cache().name)


@functools.cache
def _process_cache() -> tempfile.TemporaryDirectory[str]:
    """Makes a folder that goes away with this process: by then the CDK has copied what was in it."""
    return tempfile.TemporaryDirectory(prefix="cdk-sagas-")
