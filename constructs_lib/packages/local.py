"""Code of a function for this machine: the same files, with packages of this Python and processor."""

from __future__ import annotations

import hashlib
import json
import os
import tempfile
import zipfile
from pathlib import Path
from typing import Final

from constructs_lib.packages.cache import cache_folder

MANIFEST: Final = "CDK_SAGAS_PACKAGES"
"""The file in a function's code that names its packages: a JSON object of ``requirements`` and ``files``."""


def manifest_of(requirements: str, files: list[str]) -> bytes:
    """Gives the content of the file in a function's code that names its packages."""
    return json.dumps({"requirements": requirements, "files": sorted(files)}, indent=1, sort_keys=True).encode()


def local_code(code: Path) -> Path:
    """Gives a function's code for this machine.

    Code without a manifest is returned as it is. Otherwise its packages are replaced by those for this machine, from
    the same lock with the same hashes.

    Args:
        code: the zip that is deployed to AWS.

    Raises:
        PackageError: if the packages cannot be installed for this machine.
    """
    if not zipfile.is_zipfile(code):
        return code
    with zipfile.ZipFile(code) as archive:
        if MANIFEST not in archive.namelist():
            return code
        files = {name: archive.read(name) for name in archive.namelist()}
    # Only a function with packages needs to read locks.
    from constructs_lib.packages.install import install

    manifest = json.loads(files.pop(MANIFEST))
    packages = install("the requirements of a step function", manifest["requirements"], None)
    replaced = set(manifest["files"])
    kept = {name: content for name, content in files.items() if name not in replaced}
    merged = {**{name: content for name, content in packages.files.items() if name not in kept}, **kept}
    return _store(merged)


def _store(files: dict[str, bytes]) -> Path:
    digest = hashlib.sha256()
    for name in sorted(files):
        for part in (name.encode(), files[name]):
            digest.update(len(part).to_bytes(8, "big") + part)
    folder = cache_folder() / "local-code"
    target = folder / f"{digest.hexdigest()[:32]}.zip"
    if target.is_file():
        return target
    folder.mkdir(parents=True, exist_ok=True)
    handle, temporary = tempfile.mkstemp(dir=folder, suffix=".tmp")
    with os.fdopen(handle, "wb") as file, zipfile.ZipFile(file, "w", zipfile.ZIP_STORED) as archive:
        for name in sorted(files):
            info = zipfile.ZipInfo(name, (1980, 1, 1, 0, 0, 0))
            info.external_attr = 0o100755 << 16
            archive.writestr(info, files[name])
    Path(temporary).replace(target)
    return target
