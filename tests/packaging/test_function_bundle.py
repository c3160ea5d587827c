"""The bundle runs where there is nothing but the bundle and boto3."""

from __future__ import annotations

import json
import sys
import zipfile
from pathlib import Path

import pytest

from constructs_lib.functions import bundle
from tests.packaging.conftest import link_distributions, run

IMPORT_ALL = """\
import importlib, json, pkgutil, sys
sys.path[:0] = json.loads(sys.argv[1])
names = []
for top in json.loads(sys.argv[2]):
    package = importlib.import_module(top)
    names.append(top)
    names += [module.name for module in pkgutil.walk_packages(package.__path__, f"{top}.")]
for name in names:
    importlib.import_module(name)
foreign = [name for name in ("aws_cdk", "constructs", "constructs_lib", "jsii", "pip") if name in sys.modules]
print(json.dumps({"imported": names, "foreign": foreign}))
"""
ENVIRONMENT = {"AWS_DEFAULT_REGION": "eu-central-1", "PYTHONDONTWRITEBYTECODE": "1"}


def _import_all(paths: list[Path], packages: list[str], cwd: Path) -> dict[str, list[str]]:
    """Imports every module of the packages in an interpreter without site-packages, user folder or environment."""
    command = [sys.executable, "-I", "-S", "-B", "-c", IMPORT_ALL, json.dumps([str(path) for path in paths])]
    result: dict[str, list[str]] = json.loads(run([*command, json.dumps(packages)], cwd=cwd, env=ENVIRONMENT))
    return result


@pytest.fixture(scope="module")
def unpacked(tmp_path_factory: pytest.TempPathFactory) -> Path:
    target = tmp_path_factory.mktemp("bundle")
    with zipfile.ZipFile(bundle.functions_zip()) as archive:
        archive.extractall(target)
    return target


def test_every_handler_and_the_whole_runtime_import_with_nothing_but_the_bundle_and_boto3(
    unpacked: Path, boto3_only: Path, tmp_path: Path
) -> None:
    result = _import_all([unpacked, boto3_only], ["handlers", "saga_runtime"], tmp_path)

    sources = Path(__file__).resolve().parents[2] / "lambda_src" / "handlers"
    expected = {f"handlers.{path.stem}" for path in sources.glob("*.py") if path.stem != "__init__"}
    assert expected
    assert expected <= set(result["imported"])
    assert result["foreign"] == []


def test_the_bundle_brings_no_boto3_of_its_own(unpacked: Path) -> None:
    names = {path.name for path in unpacked.iterdir()}

    assert names == {
        "BUNDLE_INPUTS",
        "THIRD_PARTY_NOTICES",
        "aws_lambda_powertools",
        "fastjsonschema",
        "handlers",
        "jmespath",
        "saga_runtime",
        "typing_extensions.py",
    }


def test_the_notices_name_every_locked_package(unpacked: Path) -> None:
    notices = (unpacked / "THIRD_PARTY_NOTICES").read_text().lower().replace("_", "-")
    lock = (Path(__file__).resolve().parents[2] / "requirements" / "bundle.txt").read_text()
    pins = [line.split(" ", 1)[0].split("==") for line in lock.splitlines() if "==" in line]

    assert len(pins) >= 4
    assert [name for name, version in pins if f"{name} {version}" not in notices] == []


def test_the_bundle_fits_a_function_with_room_for_the_users_own_code() -> None:
    # Lambda refuses above 250 MB unpacked; each megabyte is also paid in cold start.
    assert bundle.functions_zip().stat().st_size < 6_000_000


def test_the_installed_runtime_imports_without_the_cdk(unpacked_wheel: Path, tmp_path: Path) -> None:
    runtime = tmp_path / "runtime"
    runtime.mkdir()
    (runtime / "saga_runtime").symlink_to(unpacked_wheel / "saga_runtime", target_is_directory=True)
    needs = tmp_path / "needs"
    linked = link_distributions(["boto3", "aws-lambda-powertools", "fastjsonschema"], needs)
    assert not any("cdk" in name for name in linked)

    result = _import_all([runtime, needs], ["saga_runtime"], tmp_path)

    assert "saga_runtime.protocol" in result["imported"]
    assert result["foreign"] == []


def test_the_protocol_that_constructs_and_runtime_share_needs_the_standard_library_only(
    unpacked: Path, tmp_path: Path
) -> None:
    alone = tmp_path / "alone"
    alone.mkdir()
    (alone / "protocol.py").write_bytes((unpacked / "saga_runtime" / "protocol.py").read_bytes())
    code = f"import sys; sys.path.insert(0, {str(alone)!r}); import protocol; print(protocol.PROTOCOL_VERSION)"

    assert int(run([sys.executable, "-I", "-S", "-B", "-c", code], cwd=tmp_path)) >= 1
