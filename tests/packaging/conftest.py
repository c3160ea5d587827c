"""Fixtures of the packaging tests: a wheel, and minimal environments."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import venv
import zipfile
from importlib import metadata
from pathlib import Path

import pytest
from packaging.requirements import Requirement

from constructs_lib.functions import bundle_builder

ROOT = Path(__file__).resolve().parents[2]
SHIPPED = ("CHANGELOG.md", "LICENSE", "README.md", "hatch_build.py", "pyproject.toml")
SHIPPED_FOLDERS = ("constructs_lib", "lambda_src", "requirements")


def copy_of_checkout(target: Path, source: Path = ROOT) -> Path:
    """Copies what packages are built from, without anything generated."""
    target.mkdir(parents=True)
    litter = shutil.ignore_patterns("__pycache__", "_bundle")
    for name in SHIPPED_FOLDERS:
        shutil.copytree(source / name, target / name, ignore=litter)
    for name in SHIPPED:
        shutil.copyfile(source / name, target / name)
    return target


def lend_vendored_packages(checkout: Path) -> None:
    """Gives a copy the bundle's packages that are here already, so that it need not ask an index for them."""
    lock = ROOT / bundle_builder.LOCK_PATH
    vendor = bundle_builder.vendored(lock.read_bytes(), lock, ROOT / "build" / "cache")
    shutil.copytree(vendor, checkout / "build" / "cache" / vendor.name)


def build(checkout: Path) -> dict[str, bytes]:
    """Builds wheel and source distribution; gives their bytes by file name."""
    command = [sys.executable, "-m", "build", "--no-isolation", "--wheel", "--sdist", "--outdir", "dist", "."]
    run(command, cwd=checkout)
    return {path.name: path.read_bytes() for path in (checkout / "dist").iterdir()}


def run(command: list[str], *, cwd: Path, env: dict[str, str] | None = None) -> str:
    """Runs a command and gives its output; a failure shows it."""
    result = subprocess.run(command, check=False, cwd=cwd, env=env, capture_output=True, text=True, timeout=300)
    assert result.returncode == 0, f"{' '.join(command)}\n{result.stdout}\n{result.stderr}"
    return result.stdout


def link_distributions(names: list[str], target: Path) -> set[str]:
    """Puts locked distributions and all that they need into a folder, by links: quick, and no index is asked.

    Args:
        names: Requirements such as `boto3`; versions and markers are respected.
        target: A folder such as a `site-packages`.

    Returns:
        The names of what is in it then.
    """
    linked: set[str] = set()
    wanted = [Requirement(name) for name in names]
    while wanted:
        requirement = wanted.pop()
        distribution = metadata.distribution(requirement.name)
        name = str(distribution.metadata["Name"])
        assert requirement.specifier.contains(distribution.version), (
            f"{requirement} is locked to {distribution.version}"
        )
        if name in linked:
            continue
        linked.add(name)
        wanted += [
            need
            for need in map(Requirement, distribution.requires or [])
            if need.marker is None or need.marker.evaluate({"extra": ""})
        ]
        for file in distribution.files or []:
            if ".." in file.parts:
                continue  # scripts
            link = target / file
            link.parent.mkdir(parents=True, exist_ok=True)
            if not link.exists():  # two distributions may bring the same file
                link.symlink_to(Path(str(distribution.locate_file(file))))
    return linked


@pytest.fixture(scope="session")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The wheel, built from a copy of the checkout; the source distribution is next to it."""
    checkout = copy_of_checkout(tmp_path_factory.mktemp("wheel") / "checkout")
    lend_vendored_packages(checkout)
    build(checkout)
    (path,) = (checkout / "dist").glob("*.whl")
    return path


@pytest.fixture(scope="session")
def unpacked_wheel(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    target = tmp_path_factory.mktemp("unpacked-wheel")
    with zipfile.ZipFile(wheel) as archive:
        archive.extractall(target)
    return target


@pytest.fixture(scope="session")
def boto3_only(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with boto3 and what it needs: what Lambda's own runtime brings."""
    target = tmp_path_factory.mktemp("lambda-runtime")
    link_distributions(["boto3"], target)
    return target


@pytest.fixture(scope="session")
def clean_python(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A virtual environment outside the checkout: the wheel, what its metadata asks for, no pip."""
    folder = tmp_path_factory.mktemp("clean-venv")
    venv.create(folder, with_pip=False, symlinks=os.name != "nt")
    python = folder / "bin" / "python"
    pip = [sys.executable, "-m", "pip", "--disable-pip-version-check", "--python", str(python), "install", "--quiet"]
    run([*pip, "--no-index", "--no-deps", "--no-compile", str(wheel)], cwd=folder)
    code = "import sysconfig; print(sysconfig.get_path('purelib'))"
    site_packages = Path(run([str(python), "-c", code], cwd=folder).strip())
    (installed,) = metadata.distributions(name="cdk-sagas", path=[str(site_packages)])
    needs = [need for need in installed.requires or [] if "extra ==" not in need]
    link_distributions(needs, site_packages)
    return python
