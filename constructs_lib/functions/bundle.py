"""The code that Lambda runs: our function bundle, and a user's own step functions merged over it."""

from __future__ import annotations

import functools
import hashlib
import re
import time
import zipfile
from collections.abc import Mapping
from pathlib import Path

from packaging.utils import canonicalize_name

from constructs_lib.functions import bundle_builder
from constructs_lib.functions.bundle_builder import BundleError
from constructs_lib.packages.cache import CACHE_VARIABLE, ROOT, cache_folder, is_checkout
from constructs_lib.packages.install import Packages, install, refuse_misfits
from constructs_lib.packages.local import MANIFEST, manifest_of
from constructs_lib.packages.lock import PackageError, Target

__all__ = ["BundleError", "functions_zip", "merged_code"]

_HANDLERS = "handlers/"
_TITLE = re.compile(r"^(\S+) (\S+)\n=+$", re.MULTILINE)
_SECRETS = re.compile(
    r"(?:^|/)(?:\.env(?:\.(?!example$|sample$|template$|dist$)[^/]+)?|\.netrc|\.pypirc|\.npmrc|\.aws/.*|\.ssh/.*"
    r"|id_(?:rsa|ecdsa|ed25519))$"
)
"""Files that tools keep secrets in. Everybody who may read a function reads its code."""
_KEEP_SECONDS = 30 * 24 * 3600.0
_TOUCH_SECONDS = 24 * 3600.0


def functions_zip() -> Path:
    """Gives the function bundle that the constructs' own functions run.

    An installed wheel carries it. In a checkout the first call of a process builds it if `lambda_src` or
    `requirements/bundle.txt` changed, which needs pip (or uv) and, the first time, a package index.

    Returns:
        The path of a zip with `saga_runtime`, `handlers` and their dependencies at its root.

    Raises:
        BundleError: The bundle is missing and cannot be built.
    """
    if is_checkout(ROOT):
        return _built(ROOT)
    bundle = ROOT / bundle_builder.BUNDLE_PATH
    if not bundle.is_file():
        raise BundleError(f"the function bundle {bundle} is missing; install cdk-sagas from its wheel again")
    return bundle


def merged_code(
    directory: Path | None,
    extra_files: Mapping[str, bytes] | None = None,
    *,
    include_handlers: bool = False,
    requirements: Path | None = None,
    target: Target | None = None,
) -> Path:
    """Merges a folder with step functions, and packages, over the function bundle.

    Equal contents give equal bytes, so the asset hash changes with the code and with nothing else. Caches
    (`__pycache__` and the like) are left out; modes and times of files are not kept.

    Args:
        directory: The user's folder; its content ends up at the root of the function's code. None: the bundle with
            the further files only.
        extra_files: Further files by their POSIX path at the root of the function's code.
        include_handlers: Whether the constructs' own `handlers/` are in it too. Without them, a change in one of the
            library's functions does not deploy the user's again.
        requirements: A lock with hashes, whose packages are installed for the target.
        target: Python and processor of the function; None if no compiled code can be in it.

    Returns:
        The path of a zip, named after its content, in `cache_folder()`. The CDK copies it into the cloud assembly, so
        the cache may be emptied between two synths.

    Raises:
        BundleError: The folder does not exist, is empty or has a file in which tools keep secrets, a file would hide
            one of the bundle or another file, packages cannot be installed, or compiled code does not fit the target.
    """
    bundled = {
        name: content
        for name, content in _bundle_files(functions_zip()).items()
        if name != bundle_builder.INPUTS_NAME and (include_handlers or not name.startswith(_HANDLERS))
    }
    files = dict(bundled)
    if directory is not None:
        files |= _own_files(directory, bundled)
    try:
        if requirements is not None:
            files |= _package_files(requirements, files, target)
        if target is not None:
            refuse_misfits(files, target, str(directory or "the function bundle"))
    except PackageError as error:
        raise BundleError(str(error)) from None
    for name, content in (extra_files or {}).items():
        if name in files:
            raise BundleError(f"{name} is generated into the function's code and is there already; rename yours")
        files[name] = content
    return _stored(tuple(sorted(files.items())))


@functools.cache
def _built(root: Path) -> Path:
    """Builds the bundle once: an app has many functions."""
    return bundle_builder.build(root)


def _package_files(requirements: Path, present: Mapping[str, bytes], target: Target | None) -> dict[str, bytes]:
    """Installs packages; leaves out those of the bundle, and refuses one that would hide another module."""
    if not requirements.is_file():
        raise BundleError(f"requirements must be a file, got {requirements}; create it, or pass its path")
    text = requirements.read_text(encoding="utf-8")
    packages = install(str(requirements), text, target)
    shared = _shared_with_bundle(str(requirements), packages)
    taken = {_import_name(name): name for name in present}
    added: dict[str, bytes] = {}
    for name, content in packages.files.items():
        if packages.owners.get(name) in shared or present.get(name) == content:
            continue
        if hidden := taken.get(_import_name(name)):
            raise BundleError(
                f"{name} of {requirements} collides with {hidden} of the function's code; rename your module, or "
                "remove the package"
            )
        added[name] = content
    return {**added, MANIFEST: manifest_of(text, list(added))}


def _shared_with_bundle(name: str, packages: Packages) -> frozenset[str]:
    """Names the distributions that the bundle has too: one version serves both, if the packages take the bundle's."""
    shared = set()
    for distribution, version in _bundle_versions(functions_zip()).items():
        pinned = packages.versions.get(distribution)
        if pinned is None:
            continue
        if pinned != version and not all(
            requirement.specifier.contains(version, prereleases=True)
            for requirement in packages.wanted.get(distribution, ())
        ):
            raise BundleError(
                f"{name} must take {distribution} {version}, which the function bundle has, got {pinned} and packages "
                f"that refuse {version}; choose versions of them that take it"
            )
        shared.add(distribution)
    return frozenset(shared)


def _bundle_versions(bundle: Path) -> dict[str, str]:
    """Reads versions of the bundle's distributions, by canonical name, from its notices."""
    notices = _bundle_files(bundle)[bundle_builder.NOTICES_NAME].decode()
    return {canonicalize_name(name): version for name, version in _TITLE.findall(notices)}


def _stored(files: tuple[tuple[str, bytes], ...]) -> Path:
    """Puts a zip of files into the cache, named after its hash; what is there under that name is not trusted."""
    digest, folder = _digest_of_zip(files), cache_folder() / "code"
    target = folder / f"{digest[:32]}.zip"
    try:
        status = target.stat() if target.is_file() else None
        if status and _digest_of_file(target, status.st_mtime_ns, status.st_size) == digest:
            if time.time() - status.st_mtime > _TOUCH_SECONDS:
                target.touch()
        else:
            _forget_old(folder)
            bundle_builder.write_atomically(target, bundle_builder.zip_bytes(dict(files)))
    except OSError as error:
        raise BundleError(f"cannot write {target}: {error.strerror}; set {CACHE_VARIABLE} to a folder") from error
    return target


@functools.lru_cache(maxsize=64)
def _digest_of_zip(files: tuple[tuple[str, bytes], ...]) -> str:
    """Hashes the zip of files once: an app has many functions from one folder."""
    return hashlib.sha256(bundle_builder.zip_bytes(dict(files))).hexdigest()


@functools.lru_cache(maxsize=64)
def _digest_of_file(path: Path, _mtime_ns: int, _size: int) -> str:
    """Hashes a file once per version of it."""
    return hashlib.sha256(path.read_bytes()).hexdigest()


def _forget_old(folder: Path) -> None:
    """Removes what no synth has asked for in a month: each change of a function leaves a file of some megabytes."""
    limit = time.time() - _KEEP_SECONDS
    for path in folder.glob("*.zip"):
        if path.stat().st_mtime < limit:
            path.unlink(missing_ok=True)


def _own_files(directory: Path, bundled: Mapping[str, bytes]) -> dict[str, bytes]:
    """Reads the user's folder; refuses files that have secrets, or would replace, extend or hide one of the bundle."""
    if not directory.is_dir():
        raise BundleError(f"code must be a folder, got {directory}; create it, or pass the folder with your functions")
    own = bundle_builder.read_folder(directory)
    if not own:
        raise BundleError(f"code must hold at least one file, got the empty folder {directory}; add your functions")
    secret = next((name for name in sorted(own) if _SECRETS.search(name)), None)
    if secret is not None:
        raise BundleError(
            f"code must have no file of secrets, got {directory / secret}; move it out of the folder: everybody who "
            "may read the function would read it"
        )
    taken = {_import_name(name): name for name in bundled}
    for name in sorted(own):
        if own[name] != bundled.get(name) and (hidden := taken.get(_import_name(name))):
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
