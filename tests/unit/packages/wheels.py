"""Wheels in a folder, and locks of them."""

from __future__ import annotations

import hashlib
import zipfile
from collections.abc import Mapping
from pathlib import Path


class Index:
    """A folder of wheels, and a lock of them."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        folder.mkdir()
        self._hashes: dict[tuple[str, str], list[str]] = {}

    def add(
        self, name: str, files: Mapping[str, bytes], *, tag: str = "py3-none-any", version: str = "1.0", needs: str = ""
    ) -> None:
        """Write a wheel."""
        base = f"{name}-{version}"
        metadata = f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n"
        metadata += "".join(f"Requires-Dist: {need}\n" for need in needs.split(",") if need)
        whole = {
            **files,
            f"{base}.dist-info/METADATA": metadata.encode(),
            f"{base}.dist-info/WHEEL": f"Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: {tag}\n".encode(),
        }
        record = f"{base}.dist-info/RECORD"
        whole[record] = "".join(f"{path},,\n" for path in [*whole, record]).encode()
        path = self.folder / f"{base}-{tag}.whl"
        with zipfile.ZipFile(path, "w") as archive:
            for member, content in whole.items():
                archive.writestr(member, content)
        self._hashes.setdefault((name, version), []).append(hashlib.sha256(path.read_bytes()).hexdigest())

    def lock(self, markers: Mapping[str, str] | None = None) -> str:
        """The requirements file: no index but this folder."""
        lines = ["--no-index", f"--find-links {self.folder}"]
        for (name, version), hashes in self._hashes.items():
            marker = f" ; {markers[name]}" if markers and name in markers else ""
            options = " \\\n".join(f"    --hash=sha256:{value}" for value in hashes)
            lines.append(f"{name}=={version}{marker} \\\n{options}\n    # via something")
        return "\n".join(lines) + "\n"
