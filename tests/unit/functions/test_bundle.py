"""A user's step functions, merged over the function bundle."""

from __future__ import annotations

import hashlib
import os
import re
import zipfile
from pathlib import Path

import pytest

from constructs_lib.functions import bundle, bundle_builder
from constructs_lib.functions.bundle import BundleError, functions_zip, merged_code
from constructs_lib.packages import cache as cache_module
from constructs_lib.packages.cache import cache_folder

BUNDLED = {
    "BUNDLE_INPUTS": b"abc\n",
    "THIRD_PARTY_NOTICES": b"notices",
    "handlers/gatekeeper.py": b"",
    "jmespath/__init__.py": b"",
    "saga_runtime/__init__.py": b"",
    "typing_extensions.py": b"",
}


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("CDK_SAGAS_CACHE", str(tmp_path / "cache"))
    return tmp_path / "cache"


@pytest.fixture(autouse=True)
def installed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An installed package: a bundle and no sources."""
    root = tmp_path / "site-packages"
    bundle_builder.write_atomically(root / bundle_builder.BUNDLE_PATH, bundle_builder.zip_bytes(BUNDLED))
    monkeypatch.setattr(bundle, "ROOT", root)
    monkeypatch.setattr(cache_module, "ROOT", root)
    return root


@pytest.fixture
def functions(tmp_path: Path) -> Path:
    folder = tmp_path / "functions"
    (folder / "rules").mkdir(parents=True)
    (folder / "transfer.py").write_text("import rules\n")
    (folder / "rules" / "__init__.py").write_text("")
    return folder


def _names(path: Path) -> set[str]:
    with zipfile.ZipFile(path) as archive:
        return set(archive.namelist())


def test_an_installed_package_returns_its_own_bundle(installed: Path) -> None:
    assert functions_zip() == installed / "constructs_lib" / "_bundle" / "functions.zip"


def test_an_installed_package_without_bundle_is_reported(installed: Path) -> None:
    (installed / bundle_builder.BUNDLE_PATH).unlink()

    with pytest.raises(BundleError, match=r"functions\.zip is missing; install cdk-sagas from its wheel again"):
        functions_zip()


def test_step_functions_are_bundled_with_the_runtime_without_our_handlers(functions: Path) -> None:
    merged = merged_code(functions, {"_schema.json": b"{}"})

    assert _names(merged) == {
        "THIRD_PARTY_NOTICES",
        "_schema.json",
        "jmespath/__init__.py",
        "rules/__init__.py",
        "saga_runtime/__init__.py",
        "transfer.py",
        "typing_extensions.py",
    }


def test_our_handlers_are_included_on_request() -> None:
    merged = merged_code(None, {"schemas.json": b"{}"}, include_handlers=True)

    assert _names(merged) == set(BUNDLED) - {"BUNDLE_INPUTS"} | {"schemas.json"}


def test_a_change_in_our_handlers_does_not_change_step_functions(functions: Path, installed: Path) -> None:
    before = merged_code(functions)
    changed = BUNDLED | {"handlers/gatekeeper.py": b"changed = True", "BUNDLE_INPUTS": b"def\n"}
    bundle_builder.write_atomically(installed / bundle_builder.BUNDLE_PATH, bundle_builder.zip_bytes(changed))

    assert merged_code(functions) == before


def test_equal_contents_have_equal_files_despite_times_modes_and_caches(functions: Path, tmp_path: Path) -> None:
    before = merged_code(functions)
    twin = tmp_path / "twin"
    (twin / "rules").mkdir(parents=True)
    for name in ("rules/__init__.py", "transfer.py"):
        (twin / name).write_bytes((functions / name).read_bytes())
        os.utime(twin / name, (1, 1))
        (twin / name).chmod(0o755)
    (twin / "__pycache__").mkdir()
    (twin / "__pycache__" / "transfer.cpython-311.pyc").write_bytes(b"\0")

    assert merged_code(twin) == before


def test_the_file_is_named_after_its_content_and_an_existing_one_checked(functions: Path) -> None:
    merged = merged_code(functions)
    whole = merged.read_bytes()
    assert merged.stem == hashlib.sha256(whole).hexdigest()[:32]

    merged.write_bytes(b"somebody else's code")
    assert merged_code(functions).read_bytes() == whole


@pytest.mark.parametrize(
    ("name", "hidden"),
    [
        ("saga_runtime/extra.py", "saga_runtime"),
        ("saga_runtime.py", "saga_runtime"),
        ("jmespath.py", "jmespath"),
        ("typing_extensions/__init__.py", "typing_extensions.py"),
        ("THIRD_PARTY_NOTICES", "THIRD_PARTY_NOTICES"),
    ],
)
def test_a_file_that_would_hide_a_part_of_the_bundle_is_refused_by_name(
    functions: Path, name: str, hidden: str
) -> None:
    (functions / name).parent.mkdir(exist_ok=True)
    (functions / name).write_text("")

    with pytest.raises(BundleError, match=rf"{name} collides with {hidden} of the function bundle; rename it"):
        merged_code(functions)


def test_a_folder_of_handlers_of_the_users_own_is_theirs(functions: Path) -> None:
    (functions / "handlers").mkdir()
    (functions / "handlers" / "mine.py").write_text("")

    assert "handlers/mine.py" in _names(merged_code(functions))


def test_a_generated_file_never_replaces_one_of_the_users(functions: Path) -> None:
    with pytest.raises(BundleError, match=r"transfer\.py is generated into the function's code and is there already"):
        merged_code(functions, {"transfer.py": b""})


@pytest.mark.parametrize("name", [".env", ".env.production", "sub/.env.local", ".npmrc", ".aws/credentials", "id_rsa"])
def test_a_file_in_which_tools_keep_secrets_is_refused(functions: Path, name: str) -> None:
    """Everybody who may read a function could read it, and copies stay in the CDK's bucket."""
    file = functions / name
    file.parent.mkdir(exist_ok=True)
    file.write_text("KEY=sk_live_1")

    with pytest.raises(BundleError, match=rf"no file of secrets, got .*{re.escape(name)}; move it"):
        merged_code(functions)


@pytest.mark.parametrize("name", [".env.example", "env.py", "environment", "ca.pem", "my.env.txt"])
def test_other_files_are_code(functions: Path, name: str) -> None:
    (functions / name).write_text("")

    assert name in zipfile.ZipFile(merged_code(functions)).namelist()


def test_a_missing_folder_is_refused(tmp_path: Path) -> None:
    with pytest.raises(BundleError, match=r"code must be a folder, got .*nowhere; create it"):
        merged_code(tmp_path / "nowhere")


def test_an_empty_folder_is_refused(tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()

    with pytest.raises(BundleError, match="got the empty folder"):
        merged_code(tmp_path / "empty")


def test_code_that_was_unused_for_a_month_is_deleted(functions: Path, cache: Path) -> None:
    old = merged_code(functions)
    os.utime(old, (1, 1))
    (functions / "transfer.py").write_text("changed = True\n")

    new = merged_code(functions)

    assert list((cache / "code").iterdir()) == [new]


def test_code_that_is_used_again_is_kept(functions: Path) -> None:
    kept = merged_code(functions)
    os.utime(kept, (1, 1))
    merged_code(functions)
    (functions / "transfer.py").write_text("changed = True\n")
    merged_code(functions)

    assert kept.is_file()


def test_a_cache_that_cannot_be_written_is_named_with_the_remedy(
    functions: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("CDK_SAGAS_CACHE", str(tmp_path / "file"))

    with pytest.raises(BundleError, match=r"cannot write .*; set CDK_SAGAS_CACHE to a folder"):
        merged_code(functions)


def test_an_installed_package_caches_in_the_users_own_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("CDK_SAGAS_CACHE")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "xdg"))

    assert cache_folder() == tmp_path / "xdg" / "cdk-sagas"
    assert (tmp_path / "xdg" / "cdk-sagas").stat().st_mode & 0o077 == 0


def test_without_a_home_the_cache_is_a_private_temporary_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "file").write_text("")
    monkeypatch.delenv("CDK_SAGAS_CACHE")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "file"))

    folder = cache_folder()

    assert folder == cache_folder()
    assert folder.stat().st_mode & 0o077 == 0
