"""Installs locked packages for Lambda or for this machine, with pip or uv and without docker."""

from __future__ import annotations

import contextlib
import email.parser
import hashlib
import importlib.util
import shutil
import struct
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import Final

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from constructs_lib.packages.cache import cache_folder
from constructs_lib.packages.lock import Lock, PackageError, Target, environment_of, read_lock

_FORMAT: Final = "1"
"""Part of the cache's keys: raise it when the same lock shall give other files."""
_LEFT_OUT: Final = frozenset({"bin", "Scripts", "share"})
_NOT_REPRODUCIBLE: Final = frozenset({"RECORD", "INSTALLER", "REQUESTED", "direct_url.json"})
_CODE: Final = (".so", ".pyd", ".dylib")
_MACHINES: Final = {0x3E: "x86_64", 0xB7: "aarch64"}
"""``e_machine`` of an ELF file."""
_IN_LAMBDA: Final = frozenset({"boto3", "botocore", "s3transfer", "jmespath", "python-dateutil", "six", "urllib3"})
"""What Lambda's Python runtimes bring along."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Packages:
    """Packages as they are installed.

    Attributes:
        files: contents by POSIX path.
        wanted: by canonical name of a distribution, the requirements that the others have of it.
        versions: by canonical name of a distribution, its version.
        owners: by path, the canonical name of the distribution that it is of.
    """

    files: Mapping[str, bytes]
    wanted: Mapping[str, tuple[Requirement, ...]]
    versions: Mapping[str, str]
    owners: Mapping[str, str]


def install(name: str, text: str, target: Target | None) -> Packages:
    """Installs what a requirements file pins, once per content and target.

    Guaranteed: every file is of a wheel with one of the hashes, built for the target; nothing is compiled, and nothing
    of a package runs.

    Args:
        name: of the file, for errors.
        text: its content.
        target: None: this machine.

    Raises:
        PackageError: if the file is not a lock, a wheel is missing or has another hash, or a package lacks another one.
    """
    lock = read_lock(name, text, target)
    folder = _installed(name, lock, target)
    packages = _read(folder)
    _require_complete(name, lock, packages, target)
    return packages


def refuse_misfits(files: Mapping[str, bytes], target: Target, where: str) -> None:
    """Refuses compiled code that the target cannot load.

    Raises:
        PackageError: naming file, what it is for, and the remedy.
    """
    for name, content in sorted(files.items()):
        base = PurePosixPath(name).name
        if (base.endswith(_CODE) or ".so." in base) and (built := _built_for(base, content, target)) is not None:
            raise PackageError(
                f"{name} of {where} must be built for {target}, got {built}; install it with requirements=…, or "
                "choose the runtime and architecture that it is for"
            )


def _built_for(base: str, content: bytes, target: Target) -> str | None:
    """Names what a binary is for, if it is not the target."""
    if content[:4] != b"\x7fELF":
        return "a binary of another operating system"
    machine = _MACHINES.get(struct.unpack("<H", content[18:20])[0] if len(content) >= 20 else 0, "another processor")
    tag = base.split(".")[1] if base.count(".") > 1 else ""
    version = tag.split("-")[1] if tag.startswith("cpython-") else ""
    wanted = target.python.replace(".", "")
    if machine == target.machine and version in ("", wanted):
        return None
    return f"{machine}" if version in ("", wanted) else f"Python {version[:1]}.{version[1:]} on {machine}"


def _installed(name: str, lock: Lock, target: Target | None) -> Path:
    text = lock.text()
    told = repr(target) if target is not None else f"{sys.platform} {sys.version_info[:2]} {environment_of(None)}"
    key = hashlib.sha256(f"{_FORMAT}\n{told}\n{text}".encode()).hexdigest()[:24]
    cache = cache_folder()
    final = cache / f"packages-{key}"
    if final.is_dir():
        return final
    cache.mkdir(parents=True, exist_ok=True)
    workspace = Path(tempfile.mkdtemp(dir=cache, prefix=".packages-"))
    try:
        if lock.pins:
            _run(name, text, workspace, target)
        # Another process may have been faster: its folder has the same content.
        with contextlib.suppress(OSError):
            workspace.rename(final)
    finally:
        shutil.rmtree(workspace, ignore_errors=True)
    if not final.is_dir():
        raise PackageError(f"cannot write the folder {final}; make {cache} writable")
    return final


def _run(name: str, text: str, folder: Path, target: Target | None) -> None:
    options = ["--quiet", "--require-hashes", "--no-deps", "--only-binary", ":all:", "--target", str(folder)]
    if importlib.util.find_spec("pip") is not None:
        command = [sys.executable, "-m", "pip", "install", "--no-compile", "--no-user", "--no-input"]
        command += ["--disable-pip-version-check"]
        if target is not None:
            command += ["--implementation", "cp", "--python-version", target.python]
            for platform in target.platforms:
                command += ["--platform", platform]
    elif uv := shutil.which("uv"):
        command = [uv, "pip", "install", "--python", sys.executable]
        if target is not None:
            newest = target.platforms[0].removesuffix(f"_{target.machine}")
            command += ["--python-version", target.python, "--python-platform", f"{target.machine}-{newest}"]
    else:
        raise PackageError(
            f"installing {name} needs pip or uv, and {sys.executable} has neither; "
            f"run `{Path(sys.executable).name} -m ensurepip`"
        )
    with tempfile.NamedTemporaryFile("w", suffix=".txt", encoding="utf-8") as file:
        file.write(text)
        file.flush()
        result = subprocess.run(
            [*command, *options, "--requirement", file.name], check=False, capture_output=True, text=True
        )
    if result.returncode:
        said = (result.stderr.strip() or result.stdout.strip()).replace(file.name, name)
        raise PackageError(
            f"cannot install {name} for {target or 'this machine'}:\n{said}\n"
            "only wheels are installed, each of a pinned version and with a pinned hash"
        )


def _read(folder: Path) -> Packages:
    files = {
        path.relative_to(folder).as_posix(): path.read_bytes()
        for path in sorted(folder.rglob("*"))
        if path.is_file() and not _is_left_out(path.relative_to(folder))
    }
    wanted: dict[str, list[Requirement]] = {}
    versions: dict[str, str] = {}
    owners: dict[str, str] = {}
    for info in sorted(folder.glob("*.dist-info")):
        metadata = email.parser.HeaderParser().parsestr((info / "METADATA").read_text(encoding="utf-8"))
        own = canonicalize_name(str(metadata["Name"]))
        versions[own] = str(metadata["Version"])
        for requirement in metadata.get_all("Requires-Dist") or ():
            read = Requirement(str(requirement))
            wanted.setdefault(canonicalize_name(read.name), []).append(read)
        record = info / "RECORD"
        for line in record.read_text(encoding="utf-8").splitlines() if record.is_file() else ():
            owners[line.split(",", 1)[0]] = own
    return Packages(
        files=files, wanted={name: tuple(given) for name, given in wanted.items()}, versions=versions, owners=owners
    )


def _is_left_out(path: Path) -> bool:
    top = path.parts[0]
    return (
        top in _LEFT_OUT
        or "__pycache__" in path.parts
        or (top.endswith(".dist-info") and path.name in _NOT_REPRODUCIBLE)
    )


def _require_complete(name: str, lock: Lock, packages: Packages, target: Target | None) -> None:
    """Refuses a lock that leaves out what one of its packages needs: it would fail on its first import."""
    extras = {extra for pin in lock.pins.values() for extra in pin.extras} | {""}
    environment = environment_of(target)
    for needed, requirements in sorted(packages.wanted.items()):
        if needed in packages.versions or needed in _IN_LAMBDA:
            continue
        for requirement in requirements:
            marker = requirement.marker
            if marker is None or any(marker.evaluate({**environment, "extra": extra}) for extra in extras):
                raise PackageError(
                    f"{name} must pin {needed}, which another of its packages needs, got none; compile it with "
                    "all dependencies"
                )
