"""The code that Lambda runs: our function bundle, and a user's own step functions merged over it."""

from __future__ import annotations

import functools
import hashlib
import os
import tempfile
import time
import zipfile
from collections.abc import Mapping
from pathlib import Path

from constructs_lib.functions import bundle_builder
from constructs_lib.functions.bundle_builder import BundleError

__all__ = ["BundleError", "cache_folder", "functions_zip", "merged_code"]

_ROOT = Path(__file__).resolve().parents[2]
_HANDLERS = "handlers/"
_CACHE_VARIABLE = "CDK_SAGAS_CACHE"
_KEEP_SECONDS = 30 * 24 * 3600.0


def functions_zip() -> Path:
    """Gives the function bundle that the constructs' own functions run.

    An installed wheel carries it. In a checkout it is built when `lambda_src` or `requirements/bundle.txt` changed,
    which needs pip (or uv) and, the first time, a package index.

    Returns:
        The path of a zip with `saga_runtime`, `handlers` and their dependencies at its root.

    Raises:
        BundleError: The bundle is missing and cannot be built.
    """
    if _is_checkout(_ROOT):
        return bundle_builder.build(_ROOT)
    bundle = _ROOT / bundle_builder.BUNDLE_PATH
    if not bundle.is_file():
        raise BundleError(f"the function bundle {bundle} is missing; install cdk-sagas from its wheel again")
    return bundle


def merged_code(
    directory: Path | None, extra_files: Mapping[str, bytes] | None = None, *, include_handlers: bool = False
) -> Path:
    """Merges a folder with step functions over the function bundle.

    Equal contents give equal bytes, so the asset hash changes with the code and with nothing else. Caches
    (`__pycache__` and the like) are left out; modes and times of files are not kept.

    Args:
        directory: The user's folder; its content ends up at the root of the function's code. None: the bundle with
            the further files only.
        extra_files: Further files by their POSIX path at the root of the function's code.
        include_handlers: Whether the constructs' own `handlers/` are in it too. Without them, a change in one of the
            library's functions does not deploy the user's again.

    Returns:
        The path of a zip, named after its content, in `cache_folder()`. The CDK copies it into the cloud assembly, so
        the cache may be emptied between two synths.

    Raises:
        BundleError: The folder does not exist or is empty, or a file would hide one of the bundle or another file.
    """
    bundled = {
        name: content
        for name, content in _bundle_files(functions_zip()).items()
        if name != bundle_builder.INPUTS_NAME and (include_handlers or not name.startswith(_HANDLERS))
    }
    files = dict(bundled)
    if directory is not None:
        files |= _own_files(directory, bundled)
    for name, content in (extra_files or {}).items():
        if name in files:
            raise BundleError(f"{name} is generated into the function's code and is there already; rename yours")
        files[name] = content
    return _store(bundle_builder.zip_bytes(files))


def cache_folder() -> Path:
    """Gives the folder for generated code: `$CDK_SAGAS_CACHE`, else `build/` of a checkout, else the user's cache.

    Not next to `cdk.out`, which the CDK empties and which differs per app; not next to the installed package, which may
    be read-only; and not a well-known name in the shared temporary folder, where another user of the machine could put
    a file for us to deploy.
    """
    if chosen := os.environ.get(_CACHE_VARIABLE):
        return Path(chosen).expanduser().absolute()
    if _is_checkout(_ROOT):
        return _ROOT / "build" / "cache"
    return _user_cache()


def _store(content: bytes) -> Path:
    """Puts content into the cache under a name made of its hash; what is there under that name is not trusted."""
    folder = cache_folder() / "code"
    target = folder / f"{hashlib.sha256(content).hexdigest()[:32]}.zip"
    try:
        if target.is_file() and target.read_bytes() == content:
            target.touch()
        else:
            _forget_old(folder)
            bundle_builder.write_atomically(target, content)
    except OSError as error:
        raise BundleError(f"cannot write {target}: {error.strerror}; set {_CACHE_VARIABLE} to a folder") from error
    return target


def _forget_old(folder: Path) -> None:
    """Removes what no synth has asked for in a month: each change of a function leaves a file of some megabytes."""
    limit = time.time() - _KEEP_SECONDS
    for path in folder.glob("*.zip"):
        if path.stat().st_mtime < limit:
            path.unlink(missing_ok=True)


def _own_files(directory: Path, bundled: Mapping[str, bytes]) -> dict[str, bytes]:
    """Reads the user's folder; refuses a file that would replace, extend or hide a module of the bundle."""
    if not directory.is_dir():
        raise BundleError(f"code must be a folder, got {directory}; create it, or pass the folder with your functions")
    own = bundle_builder.read_folder(directory)
    if not own:
        raise BundleError(f"code must hold at least one file, got the empty folder {directory}; add your functions")
    taken = {_import_name(name): name for name in bundled}
    for name in sorted(own):
        if hidden := taken.get(_import_name(name)):
            hidden_root = hidden.split("/", 1)[0]
            raise BundleError(f"{directory / name} collides with {hidden_root} of the function bundle; rename it")
    return own


def _import_name(name: str) -> str:
    """Reduces a file's path to what `import` would find at the root: a package's folder or a module's stem."""
    return name.split("/", 1)[0].removesuffix(".py")


def _bundle_files(bundle: Path) -> dict[str, bytes]:
    status = bundle.stat()
    return _unpacked(bundle, status.st_mtime_ns, status.st_size)


@functools.lru_cache(maxsize=1)
def _unpacked(bundle: Path, _mtime_ns: int, _size: int) -> dict[str, bytes]:
    """Reads the bundle once per version of the file: an app has many functions."""
    with zipfile.ZipFile(bundle) as archive:
        return {name: archive.read(name) for name in archive.namelist()}


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


def _is_checkout(root: Path) -> bool:
    return (root / bundle_builder.LOCK_PATH).is_file() and (root / bundle_builder.SOURCES_PATH).is_dir()
