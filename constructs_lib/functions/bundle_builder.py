"""Builds the function bundle: one deterministic zip with everything that runs inside Lambda.

Standard library only, and it imports nothing of this package: the wheel's build hook and the `Makefile` run it by its
path, before any dependency is installed.

The zip holds, at its root, `saga_runtime/`, `handlers/`, the packages that `requirements/bundle.txt` locks, and
`THIRD_PARTY_NOTICES`. Equal inputs give equal bytes on every machine and every supported Python: names are sorted,
timestamps and modes are fixed, nothing is compressed (zlib's output differs between versions), and only wheels without
compiled code are let in, so that one bundle serves both processor architectures.
"""

from __future__ import annotations

import contextlib
import email.parser
import functools
import hashlib
import importlib.util
import io
import os
import shutil
import subprocess
import sys
import tempfile
import zipfile
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path, PurePosixPath

BUNDLE_PATH = Path("constructs_lib") / "_bundle" / "functions.zip"
LOCK_PATH = Path("requirements") / "bundle.txt"
SOURCES_PATH = Path("lambda_src")
SOURCE_PACKAGES = ("handlers", "saga_runtime")
NOTICES_NAME = "THIRD_PARTY_NOTICES"
INPUTS_NAME = "BUNDLE_INPUTS"

# Part of the inputs: raise it when the same inputs shall give other bytes.
_FORMAT = "1"
_EPOCH = (1980, 1, 1, 0, 0, 0)  # the earliest time of a zip
_FILE_MODE = 0o100644
_COMPILED_SUFFIXES = frozenset({".so", ".pyd", ".dll", ".dylib", ".a", ".o"})
_LITTER_NAMES = frozenset({"__pycache__", ".DS_Store", ".git", ".mypy_cache", ".pytest_cache", ".ruff_cache", ".venv"})
_LITTER_SUFFIXES = frozenset({".pyc", ".pyo"})
# Scripts carry the path of the interpreter that installed them, and Lambda has no use for them.
_INSTALLER_FOLDERS = frozenset({"bin", "Scripts", "share"})


class BundleError(Exception):
    """The function bundle cannot be built or found; the message has the reason and the remedy."""


def build(root: Path) -> Path:
    """Builds the bundle of the checkout at `root`, unless the one that is there has the same inputs.

    Two builds at once do no harm: each writes a file of its own and renames it into place.

    Args:
        root: The folder with `lambda_src/` and `requirements/bundle.txt`.

    Returns:
        The path of the zip.

    Raises:
        BundleError: A dependency cannot be installed or is not pure Python.
    """
    sources = _read_sources(root)
    lock = (root / LOCK_PATH).read_bytes()
    inputs = _digest({**sources, str(LOCK_PATH.as_posix()): lock, _FORMAT: b""})
    target = root / BUNDLE_PATH
    if _inputs_of(target) == inputs:
        return target
    vendor = vendored(lock, root / LOCK_PATH, root / "build" / "cache")
    files = {**read_folder(vendor), **sources, INPUTS_NAME: f"{inputs}\n".encode()}
    write_atomically(target, zip_bytes(files))
    return target


def zip_bytes(files: Mapping[str, bytes]) -> bytes:
    """Makes a zip whose bytes depend on names and contents only.

    Args:
        files: Contents by POSIX path inside the zip.
    """
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", zipfile.ZIP_STORED) as archive:
        for name in sorted(files):
            info = zipfile.ZipInfo(name, _EPOCH)
            info.create_system = 3  # Unix, wherever it is built
            info.external_attr = _FILE_MODE << 16
            archive.writestr(info, files[name])
    return buffer.getvalue()


def read_folder(folder: Path) -> dict[str, bytes]:
    """Reads a folder's files by POSIX path, without caches and other litter.

    Raises:
        BundleError: A symbolic link leads to a folder; following it could leave the folder or never end.
    """
    return {path.relative_to(folder).as_posix(): path.read_bytes() for path in _walk(folder)}


def write_atomically(target: Path, content: bytes) -> None:
    """Writes a file so that no reader ever sees half of it."""
    target.parent.mkdir(parents=True, exist_ok=True)
    handle, name = tempfile.mkstemp(dir=target.parent, prefix=f".{target.name}.")
    try:
        with os.fdopen(handle, "wb") as file:
            file.write(content)
        Path(name).chmod(0o644)
        Path(name).replace(target)
    except BaseException:
        Path(name).unlink(missing_ok=True)
        raise


def vendored(lock: bytes, lock_path: Path, cache: Path, install: Callable[[Path, Path], None] | None = None) -> Path:
    """Installs the locked dependencies into a folder of the cache, once per content of the lock.

    Args:
        lock: The content of the lock.
        lock_path: Where the lock is.
        cache: Where finished folders are kept.
        install: Replaces pip in tests; gets the lock's path and the folder to fill.

    Returns:
        A folder with pure Python packages and the notices of their licences.
    """
    key = hashlib.sha256(_FORMAT.encode() + lock).hexdigest()[:24]
    target = cache / f"vendor-{key}"
    if target.is_dir():
        return target
    cache.mkdir(parents=True, exist_ok=True)
    workspace = Path(tempfile.mkdtemp(dir=cache, prefix=".vendor-"))
    try:
        (install or _install)(lock_path, workspace)
        refuse_compiled(workspace)
        notices = third_party_notices(workspace)
        for entry in workspace.iterdir():
            if entry.suffix == ".dist-info" or entry.name in _INSTALLER_FOLDERS:
                shutil.rmtree(entry)
        (workspace / NOTICES_NAME).write_bytes(notices)
        # Another process may have been faster: its folder has the same content.
        with contextlib.suppress(OSError):
            workspace.rename(target)
    finally:
        shutil.rmtree(workspace, ignore_errors=True)
    if not target.is_dir():
        raise BundleError(f"cannot write the folder {target}; make {cache} writable")
    return target


def refuse_compiled(folder: Path) -> None:
    """Checks that a folder holds no compiled code.

    Raises:
        BundleError: It does; names the files.
    """
    compiled = sorted(
        path.relative_to(folder).as_posix()
        for path in _walk(folder)
        if path.suffix in _COMPILED_SUFFIXES or ".so." in path.name
    )
    if compiled:
        raise BundleError(
            f"the function bundle must be pure Python, got {', '.join(compiled)}; "
            "remove the dependency that brings it from requirements/bundle.in"
        )


def third_party_notices(folder: Path) -> bytes:
    """Collects name, version and licence texts of every distribution installed in a folder.

    Raises:
        BundleError: A distribution brings no licence text.
    """
    sections = ["The function bundle of cdk-sagas contains the following third-party software.\n"]
    for info in sorted(folder.glob("*.dist-info"), key=lambda path: path.name.lower()):
        metadata = email.parser.HeaderParser().parsestr((info / "METADATA").read_text(encoding="utf-8"))
        licence = metadata["License-Expression"] or metadata["License"] or "see below"
        texts = [path.read_text(encoding="utf-8") for path in _licence_files(info)]
        if not texts:
            raise BundleError(f"{info.name} has no licence text; it cannot go into the function bundle")
        title = f"{metadata['Name']} {metadata['Version']}"
        sections.append("\n".join([title, "=" * len(title), f"License: {licence.splitlines()[0]}", "", *texts]))
    return "\n\n".join(section.rstrip() + "\n" for section in sections).encode()


def _licence_files(info: Path) -> list[Path]:
    names = ("LICENSE", "LICENCE", "COPYING", "NOTICE", "AUTHORS")
    found = {path for path in info.rglob("*") if path.is_file() and path.name.upper().startswith(names)}
    return sorted(found, key=lambda path: path.relative_to(info).as_posix())


def _install(lock_path: Path, target: Path) -> None:
    """Installs the lock into a folder with pip, or with uv where a virtual environment has no pip."""
    options = ["--quiet", "--require-hashes", "--no-deps", "--only-binary", ":all:", "--target", str(target)]
    options += ["--requirement", str(lock_path)]
    if importlib.util.find_spec("pip") is not None:
        # Wheels for `any` platform only: what pip picks does not depend on the machine that builds.
        command = [sys.executable, "-m", "pip", "install", "--no-compile", "--no-user", "--no-input"]
        command += ["--disable-pip-version-check", "--platform", "any", "--implementation", "py", "--abi", "none"]
    elif uv := shutil.which("uv"):
        command = [uv, "pip", "install", "--no-config", "--python", sys.executable]
    else:
        raise BundleError(
            f"building the function bundle needs pip or uv, and {sys.executable} has neither; "
            f"run `{Path(sys.executable).name} -m ensurepip`"
        )
    result = subprocess.run([*command, *options], check=False, capture_output=True, text=True)
    if result.returncode:
        raise BundleError(f"cannot install {lock_path}:\n{result.stderr.strip() or result.stdout.strip()}")


def _read_sources(root: Path) -> dict[str, bytes]:
    """Reads our own packages, by their path inside the zip."""
    for package in SOURCE_PACKAGES:
        if not (root / SOURCES_PATH / package).is_dir():
            raise BundleError(f"{SOURCES_PATH / package} is missing from {root}; check out the whole repository")
    return {
        str(PurePosixPath(package) / name): content
        for package in SOURCE_PACKAGES
        for name, content in read_folder(root / SOURCES_PATH / package).items()
    }


def _walk(folder: Path) -> Iterator[Path]:
    for path in sorted(folder.iterdir()):
        if path.name in _LITTER_NAMES or path.suffix in _LITTER_SUFFIXES:
            continue
        if path.is_dir():
            if path.is_symlink():
                raise BundleError(f"{path} is a symbolic link to a folder; replace it by the folder itself")
            yield from _walk(path)
        else:
            yield path


def _digest(files: Mapping[str, bytes]) -> str:
    """Hashes names and contents, each behind its length, so that no two sets of files look alike."""
    digest = hashlib.sha256()
    for name in sorted(files):
        for part in (name.encode(), files[name]):
            digest.update(len(part).to_bytes(8, "big") + part)
    return digest.hexdigest()


def _inputs_of(bundle: Path) -> str | None:
    """Reads which inputs a bundle was made from; none if there is no readable bundle."""
    try:
        status = bundle.stat()
    except OSError:
        return None
    return _inputs_in(bundle, status.st_mtime_ns, status.st_size)


@functools.lru_cache(maxsize=1)
def _inputs_in(bundle: Path, _mtime_ns: int, _size: int) -> str | None:
    """Reads them once per version of the file."""
    try:
        with zipfile.ZipFile(bundle) as archive:
            return archive.read(INPUTS_NAME).decode().strip()
    except (OSError, KeyError, ValueError, zipfile.BadZipFile):
        return None


if __name__ == "__main__":
    try:
        print(build(Path(__file__).resolve().parents[2]))
    except BundleError as error:
        sys.exit(f"error: {error}")
