"""The function bundle: the same bytes everywhere, nothing compiled, nothing half-written."""

from __future__ import annotations

import io
import os
import zipfile
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from constructs_lib.functions import bundle_builder
from constructs_lib.functions.bundle_builder import BundleError


def _distribution(folder: Path, name: str = "demo", licence: str | None = "do what you like") -> None:
    (folder / name).mkdir(parents=True)
    (folder / name / "__init__.py").write_text("")
    info = folder / f"{name}-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text(
        f"Metadata-Version: 2.4\nName: {name}\nVersion: 1.0\nLicense-Expression: MIT\n\nText"
    )
    if licence is not None:
        (info / "licenses").mkdir()
        (info / "licenses" / "LICENSE").write_text(licence)


def _checkout(root: Path) -> Path:
    for package in bundle_builder.SOURCE_PACKAGES:
        folder = root / "lambda_src" / package
        folder.mkdir(parents=True)
        (folder / "__init__.py").write_text(f"NAME = '{package}'\n")
    lock = root / bundle_builder.LOCK_PATH
    lock.parent.mkdir()
    lock.write_text("demo==1.0\n")
    vendor = bundle_builder.vendored(
        lock.read_bytes(), lock, root / "build" / "cache", lambda _, target: _distribution(target)
    )
    assert vendor.is_dir()
    return root


def test_a_zip_depends_on_names_and_contents_only() -> None:
    there = bundle_builder.zip_bytes({"b.py": b"2", "a.py": b"1"})
    back = bundle_builder.zip_bytes({"a.py": b"1", "b.py": b"2"})

    assert there == back
    with zipfile.ZipFile(io.BytesIO(there)) as archive:
        infos = archive.infolist()
    assert [info.filename for info in infos] == ["a.py", "b.py"]
    assert {info.date_time for info in infos} == {(1980, 1, 1, 0, 0, 0)}
    assert {info.external_attr >> 16 for info in infos} == {0o100644}
    assert {info.compress_type for info in infos} == {zipfile.ZIP_STORED}


def test_two_checkouts_with_equal_contents_have_equal_bytes(tmp_path: Path) -> None:
    one = _checkout(tmp_path / "one")
    other = _checkout(tmp_path / "other")
    os.utime(other / "lambda_src" / "handlers" / "__init__.py", (1, 1))
    (other / "lambda_src" / "handlers" / "__init__.py").chmod(0o755)

    assert bundle_builder.build(one).read_bytes() == bundle_builder.build(other).read_bytes()


def test_a_bundle_is_built_again_only_when_an_input_changed(tmp_path: Path) -> None:
    root = _checkout(tmp_path)
    bundle = bundle_builder.build(root)
    first = bundle.stat().st_mtime_ns

    bundle_builder.build(root)
    assert bundle.stat().st_mtime_ns == first

    (root / "lambda_src" / "saga_runtime" / "__init__.py").write_text("CHANGED = True\n")
    bundle_builder.build(root)
    with zipfile.ZipFile(bundle) as archive:
        assert archive.read("saga_runtime/__init__.py") == b"CHANGED = True\n"

    (root / "lambda_src" / "saga_runtime" / "__init__.py").write_text("NAME = 'saga_runtime'\n")
    bundle_builder.build(root)
    with zipfile.ZipFile(bundle) as archive:
        assert archive.read("saga_runtime/__init__.py") == b"NAME = 'saga_runtime'\n"


def test_caches_of_the_interpreter_do_not_change_the_bundle(tmp_path: Path) -> None:
    root = _checkout(tmp_path)
    before = bundle_builder.build(root).read_bytes()
    cache = root / "lambda_src" / "handlers" / "__pycache__"
    cache.mkdir()
    (cache / "__init__.cpython-311.pyc").write_bytes(b"\0")
    (root / bundle_builder.BUNDLE_PATH).unlink()

    assert bundle_builder.build(root).read_bytes() == before


def test_a_broken_bundle_is_rebuilt(tmp_path: Path) -> None:
    root = _checkout(tmp_path)
    bundle = bundle_builder.build(root)
    whole = bundle.read_bytes()
    bundle.write_bytes(whole[:100])

    assert bundle_builder.build(root).read_bytes() == whole


def test_builds_at_the_same_time_end_in_one_whole_bundle(tmp_path: Path) -> None:
    root = _checkout(tmp_path)

    with ThreadPoolExecutor(max_workers=8) as pool:
        paths = list(pool.map(lambda _: bundle_builder.build(root), range(8)))

    assert len(set(paths)) == 1
    with zipfile.ZipFile(paths[0]) as archive:
        assert archive.testzip() is None
    assert [path.name for path in paths[0].parent.iterdir()] == ["functions.zip"]


def test_a_missing_source_package_is_named(tmp_path: Path) -> None:
    (tmp_path / "lambda_src").mkdir()

    with pytest.raises(BundleError, match="handlers is missing"):
        bundle_builder.build(tmp_path)


def test_dependencies_are_installed_once_per_lock(tmp_path: Path) -> None:
    lock = tmp_path / "bundle.txt"
    lock.write_text("demo==1.0\n")
    calls: list[Path] = []

    def install(_: Path, target: Path) -> None:
        calls.append(target)
        _distribution(target)

    first = bundle_builder.vendored(b"one", lock, tmp_path / "cache", install)
    again = bundle_builder.vendored(b"one", lock, tmp_path / "cache", install)
    other = bundle_builder.vendored(b"two", lock, tmp_path / "cache", install)

    assert first == again
    assert first != other
    assert len(calls) == 2


def test_metadata_and_scripts_stay_out_and_licences_stay_in(tmp_path: Path) -> None:
    def install(_: Path, target: Path) -> None:
        _distribution(target, licence="all rights given away")
        (target / "bin").mkdir()
        (target / "bin" / "demo").write_text("#!/somewhere/python\n")

    vendor = bundle_builder.vendored(b"", tmp_path / "bundle.txt", tmp_path / "cache", install)

    assert sorted(path.name for path in vendor.iterdir()) == ["THIRD_PARTY_NOTICES", "demo"]
    notices = (vendor / "THIRD_PARTY_NOTICES").read_text()
    assert "demo 1.0" in notices
    assert "License: MIT" in notices
    assert "all rights given away" in notices


def test_a_dependency_without_licence_text_is_refused(tmp_path: Path) -> None:
    with pytest.raises(BundleError, match=r"demo-1\.0\.dist-info has no licence text"):
        bundle_builder.vendored(
            b"", tmp_path / "bundle.txt", tmp_path / "cache", lambda _, target: _distribution(target, licence=None)
        )


@pytest.mark.parametrize(
    "name", ["fast.so", "fast.cpython-311-x86_64-linux-gnu.so", "libz.so.1", "fast.pyd", "f.dylib"]
)
def test_compiled_code_is_refused_by_name_and_leaves_nothing_behind(tmp_path: Path, name: str) -> None:
    def install(_: Path, target: Path) -> None:
        _distribution(target)
        (target / "demo" / name).write_bytes(b"\x7fELF")

    with pytest.raises(BundleError, match=f"must be pure Python, got demo/{name}; remove"):
        bundle_builder.vendored(b"", tmp_path / "bundle.txt", tmp_path / "cache", install)

    assert list((tmp_path / "cache").iterdir()) == []


def test_a_failed_installation_shows_the_installers_output(tmp_path: Path) -> None:
    lock = tmp_path / "bundle.txt"
    lock.write_text("this is not a requirement\n")

    with pytest.raises(BundleError, match=r"(?s)cannot install .*bundle\.txt:.*requirement"):
        bundle_builder.vendored(lock.read_bytes(), lock, tmp_path / "cache")


def test_a_link_to_a_folder_is_refused(tmp_path: Path) -> None:
    (tmp_path / "loop").symlink_to(tmp_path, target_is_directory=True)

    with pytest.raises(BundleError, match="loop is a symbolic link to a folder; replace it"):
        bundle_builder.read_folder(tmp_path)


def test_a_write_that_fails_leaves_the_old_content_and_no_other_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    target = tmp_path / "functions.zip"
    target.write_bytes(b"old")

    def refuse(*_: object) -> None:
        raise OSError("disk full")

    monkeypatch.setattr(Path, "replace", refuse)
    with pytest.raises(OSError, match="disk full"):
        bundle_builder.write_atomically(target, b"new")

    assert target.read_bytes() == b"old"
    assert list(tmp_path.iterdir()) == [target]
