"""Packages of step functions: locks, wheels for Lambda and for this machine. Needs no network."""

from __future__ import annotations

import json
import struct
import sys
import zipfile
from collections.abc import Mapping
from pathlib import Path

import pytest

from constructs_lib.functions.bundle import BundleError, merged_code
from constructs_lib.packages.install import install, refuse_misfits
from constructs_lib.packages.local import MANIFEST, local_code
from constructs_lib.packages.lock import PackageError, Target, read_lock, this_machine
from tests.unit.packages.wheels import Index

LAMBDA = Target(python="3.14", machine="aarch64")
OLD = Target(python="3.11", machine="x86_64")
MACHINES = {"x86_64": 0x3E, "aarch64": 0xB7}


def _elf(machine: str, note: str = "") -> bytes:
    """The beginning of a shared library for a processor."""
    return b"\x7fELF" + bytes(14) + struct.pack("<H", MACHINES[machine]) + note.encode()


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("CDK_SAGAS_CACHE", str(tmp_path / "cache"))
    return tmp_path / "cache"


@pytest.fixture
def index(tmp_path: Path, cache: Path) -> Index:
    return Index(tmp_path / "wheels")


def _local_tag() -> str:
    here = this_machine()
    version = here.python.replace(".", "")
    return f"cp{version}-cp{version}-manylinux2014_{here.machine}"


def _compiled(index: Index) -> None:
    """A package with a wheel for Lambda and one for this machine."""
    for tag, machine, version in (
        ("cp314-cp314-manylinux_2_28_aarch64", "aarch64", "314"),
        (_local_tag(), this_machine().machine, this_machine().python.replace(".", "")),
    ):
        binary = f"fast/core.cpython-{version}-{machine}-linux-gnu.so"
        index.add("fast", {"fast/__init__.py": b"", binary: _elf(machine)}, tag=tag)


def _folder(tmp_path: Path, files: Mapping[str, bytes]) -> Path:
    folder = tmp_path / "functions"
    folder.mkdir()
    for name, content in {"pay.py": b"import fast\n", **files}.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_bytes(content)
    return folder


def _lock_file(tmp_path: Path, text: str) -> Path:
    file = tmp_path / "requirements.txt"
    file.write_text(text)
    return file


def _names(code: Path) -> list[str]:
    with zipfile.ZipFile(code) as archive:
        return archive.namelist()


def test_wheels_are_those_of_the_functions_python_and_processor(index: Index, tmp_path: Path) -> None:
    _compiled(index)

    code = merged_code(_folder(tmp_path, {}), requirements=_lock_file(tmp_path, index.lock()), target=LAMBDA)

    assert [name for name in _names(code) if name.endswith(".so")] == ["fast/core.cpython-314-aarch64-linux-gnu.so"]
    assert "pay.py" in _names(code)
    assert "saga_runtime/__init__.py" in _names(code)


def test_local_code_has_the_wheels_of_this_machine_and_all_other_files(index: Index, tmp_path: Path) -> None:
    _compiled(index)
    code = merged_code(_folder(tmp_path, {}), requirements=_lock_file(tmp_path, index.lock()), target=LAMBDA)

    here = this_machine()
    local = _names(local_code(code))

    version = here.python.replace(".", "")
    binary = f"fast/core.cpython-{version}-{here.machine}-linux-gnu.so"
    assert [name for name in local if name.endswith(".so")] == [binary]
    others = {name for name in _names(code) if not name.startswith("fast")} - {MANIFEST}
    assert {name for name in local if not name.startswith("fast")} == others
    assert local_code(code) == local_code(code)


def test_code_without_packages_is_local_code(tmp_path: Path, cache: Path) -> None:
    code = merged_code(_folder(tmp_path, {}), target=LAMBDA)

    assert local_code(code) == code


def test_equal_locks_give_equal_code_without_installing_again(
    index: Index, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    index.add("pure", {"pure.py": b""})
    folder, lock = _folder(tmp_path, {}), _lock_file(tmp_path, index.lock())
    before = merged_code(folder, requirements=lock, target=LAMBDA)
    for wheel in index.folder.iterdir():
        wheel.unlink()

    assert merged_code(folder, requirements=lock, target=LAMBDA) == before


def test_a_marker_is_that_of_the_target(index: Index) -> None:
    index.add("old", {"old.py": b""})
    text = index.lock({"old": 'python_version < "3.12"'})

    assert "old.py" in install("r.txt", text, OLD).files
    assert "old.py" not in install("r.txt", text, LAMBDA).files


def test_a_wheel_with_another_hash_is_refused(index: Index) -> None:
    index.add("pure", {"pure.py": b"one"})
    text = index.lock()
    index.add("pure", {"pure.py": b"two"})

    with pytest.raises(PackageError, match=r"(?is)^cannot install r.txt for Python 3.14 on aarch64:.*hash"):
        install("r.txt", text, LAMBDA)


def test_a_package_without_a_wheel_for_the_target_is_refused(index: Index) -> None:
    index.add("fast", {"fast.py": b""}, tag=_local_tag())

    with pytest.raises(PackageError, match=r"(?s)^cannot install r.txt for Python 3.13 on aarch64:.*fast==1.0"):
        install("r.txt", index.lock(), Target(python="3.13", machine="aarch64"))


def test_a_lock_that_leaves_out_a_dependency_is_refused(index: Index) -> None:
    index.add("needy", {"needy.py": b""}, needs='other>=2,new; python_version < "3.12",more; extra == "all"')

    with pytest.raises(PackageError, match=r"^r.txt must pin other, which another of its packages needs, got none; "):
        install("r.txt", index.lock(), LAMBDA)


def test_a_package_that_the_bundle_has_is_the_bundles(index: Index, tmp_path: Path) -> None:
    index.add("typing_extensions", {"typing_extensions.py": b"old"}, version="4.6.0")
    index.add("needy", {"needy.py": b""}, needs="typing-extensions>=4")

    code = merged_code(_folder(tmp_path, {}), requirements=_lock_file(tmp_path, index.lock()), target=LAMBDA)

    with zipfile.ZipFile(code) as archive:
        assert archive.read("typing_extensions.py") != b"old"
    assert not [name for name in _names(code) if name.startswith("typing_extensions-4.6")]


def test_packages_that_refuse_the_bundles_version_are_refused(index: Index, tmp_path: Path) -> None:
    index.add("typing_extensions", {"typing_extensions.py": b"old"}, version="4.6.0")
    index.add("needy", {"needy.py": b""}, needs="typing-extensions<4.7")

    with pytest.raises(BundleError, match=r"must take typing-extensions 4\..*, which the function bundle has, got"):
        merged_code(_folder(tmp_path, {}), requirements=_lock_file(tmp_path, index.lock()), target=LAMBDA)


def test_a_package_that_hides_a_module_of_the_user_is_refused(index: Index, tmp_path: Path) -> None:
    index.add("pay", {"pay.py": b"theirs"})

    with pytest.raises(BundleError, match=r"^pay.py of .*requirements.txt collides with pay.py of the function"):
        merged_code(_folder(tmp_path, {}), requirements=_lock_file(tmp_path, index.lock()), target=LAMBDA)


def test_an_identical_file_does_not_collide(index: Index, tmp_path: Path) -> None:
    with zipfile.ZipFile(merged_code(_folder(tmp_path, {}), target=LAMBDA)) as archive:
        bundled = archive.read("typing_extensions.py")
    (tmp_path / "functions" / "typing_extensions.py").write_bytes(bundled)
    (tmp_path / "functions" / "same.py").write_bytes(b"same")
    index.add("same", {"same.py": b"same"})

    code = merged_code(tmp_path / "functions", requirements=_lock_file(tmp_path, index.lock()), target=LAMBDA)

    assert "same.py" in _names(code)


@pytest.mark.parametrize(
    ("name", "content", "built"),
    [
        ("a.cpython-311-aarch64-linux-gnu.so", _elf("aarch64"), "Python 3.11 on aarch64"),
        ("a.cpython-314-x86_64-linux-gnu.so", _elf("x86_64"), "x86_64"),
        ("a.abi3.so", _elf("x86_64"), "x86_64"),
        ("lib/libz.so.1", _elf("x86_64"), "x86_64"),
        ("a.cp314-win_amd64.pyd", b"MZ", "a binary of another operating system"),
        ("a.cpython-314-darwin.so", b"\xcf\xfa\xed\xfe", "a binary of another operating system"),
    ],
)
def test_compiled_code_that_does_not_fit_is_refused(tmp_path: Path, name: str, content: bytes, built: str) -> None:
    folder = _folder(tmp_path, {name: content})

    with pytest.raises(
        BundleError, match=rf"^{name} of .* must be built for Python 3.14 on aarch64, got {built}; install it with req"
    ):
        merged_code(folder, target=LAMBDA)


def test_compiled_code_that_fits_is_taken() -> None:
    fits = {
        "a.cpython-314-aarch64-linux-gnu.so": _elf("aarch64"),
        "b.abi3.so": _elf("aarch64"),
        "c.so": _elf("aarch64"),
    }

    refuse_misfits(fits, LAMBDA, "functions")


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("requests", "must pin each version with ==, got requests; compile it"),
        ("requests>=2", "must pin each version with ==, got requests>=2; compile it"),
        ("requests==2.*", r"must pin each version with ==, got requests==2.\*; compile it"),
        ("requests==2.0", "must have a --hash for each requirement, got none for requests; compile it"),
        ("-r other.txt", "must hold pins and the location of indexes only, got '-r'; compile it"),
        ("-e .", "must hold pins and the location of indexes only, got '-e'; compile it"),
        ("a b c", "must hold requirements, got 'a b c': "),
        ("a @ https://x/a.whl --hash=sha256:0", "must pin versions of an index, got the address of a; compile it"),
    ],
)
def test_a_line_that_is_not_a_pin_with_a_hash_is_refused(line: str, message: str) -> None:
    with pytest.raises(PackageError, match=f"^r.txt {message}"):
        read_lock("r.txt", line, LAMBDA)


def test_a_missing_lock_is_refused(tmp_path: Path, cache: Path) -> None:
    with pytest.raises(BundleError, match=r"^requirements must be a file, got .*nowhere.txt; create it"):
        merged_code(_folder(tmp_path, {}), requirements=tmp_path / "nowhere.txt", target=LAMBDA)


def test_the_manifest_has_the_lock_and_the_files_of_packages(index: Index, tmp_path: Path) -> None:
    index.add("pure", {"pure.py": b""})
    code = merged_code(_folder(tmp_path, {}), requirements=_lock_file(tmp_path, index.lock()), target=LAMBDA)

    with zipfile.ZipFile(code) as archive:
        manifest = json.loads(archive.read(MANIFEST))

    assert manifest["requirements"] == index.lock()
    assert {name.split("/")[0] for name in manifest["files"]} == {"pure.py", "pure-1.0.dist-info"}


def test_this_machine_is_the_one_of_this_process() -> None:
    assert this_machine().python == f"{sys.version_info.major}.{sys.version_info.minor}"
