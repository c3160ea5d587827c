"""The wheel is all that a CDK app elsewhere needs."""

from __future__ import annotations

import json
import os
import shutil
import sys
import tarfile
import zipfile
from pathlib import Path

import pytest

from constructs_lib.functions import bundle
from tests.packaging.conftest import ROOT, build, copy_of_checkout, lend_vendored_packages, run

FOREIGN_FUNCTION = """\
from saga_runtime import Commit, StepCall, atomic_step


@atomic_step
def handler(call: StepCall) -> Commit:
    return Commit(writes=(), output={"pong": call.key})
"""

FOREIGN_APP = """\
from pathlib import Path

from aws_cdk import App, Stack

from constructs_lib import (
    IdempotencyTable, LedgerTable, Operation, SagaStateMachine, Step, StepFunction, TransactionApi,
)

app = App(outdir="cdk.out")
stack = Stack(app, "Foreign")
ping = StepFunction(stack, "PingFunction", code=Path(__file__).parent / "functions", handler="ping.handler")
LedgerTable(stack, "Ledger").grant_post(ping)
requests = IdempotencyTable(stack, "Requests")
saga = SagaStateMachine(stack, "Ping", requests=requests, steps=[
    Step.atomic("Ping", fn=ping, pivot=True),
    Step.atomic("Pong", fn=ping, when="$request.ping = true"),
])
schema = {"type": "object", "required": ["ping"]}
TransactionApi(stack, "Api", operations={"pings": Operation(saga=saga, schema=schema)})
app.synth()
"""


def _foreign_app(folder: Path) -> Path:
    (folder / "functions").mkdir(parents=True)
    (folder / "functions" / "ping.py").write_text(FOREIGN_FUNCTION)
    (folder / "app.py").write_text(FOREIGN_APP)
    return folder


def _synthesize(app: Path, python: Path | str, tools: Path, **variables: str) -> dict[str, object]:
    """Synthesize an app in an environment without this checkout; returns templates and assets."""
    environment = {"PATH": str(tools), "HOME": os.environ["HOME"], "XDG_CACHE_HOME": str(app / "cache"), **variables}
    run([str(python), "app.py"], cwd=app, env=environment)
    output = app / "cdk.out"
    names = ["Foreign.template.json", "Foreign.assets.json"]
    return {name: json.loads((output / name).read_text()) for name in names}


@pytest.fixture
def tools(tmp_path: Path) -> Path:
    """A PATH with Node and nothing else: no pip, no uv."""
    folder = tmp_path / "tools"
    folder.mkdir()
    node = shutil.which("node")
    assert node is not None
    (folder / "node").symlink_to(node)
    return folder


def test_a_foreign_app_gets_the_same_template_and_assets_from_the_wheel_as_from_the_checkout(
    clean_python: Path, tools: Path, tmp_path: Path
) -> None:
    from_wheel = _synthesize(_foreign_app(tmp_path / "one"), clean_python, tools)
    checkout = os.pathsep.join([str(ROOT), str(ROOT / "lambda_src")])
    from_checkout = _synthesize(_foreign_app(tmp_path / "other"), sys.executable, tools, PYTHONPATH=checkout)

    assert from_wheel == from_checkout
    assets = from_wheel["Foreign.assets.json"]
    assert isinstance(assets, dict)
    zips = [asset for asset in assets["files"].values() if asset["source"]["path"].endswith(".zip")]
    assert len(zips) >= 2  # the step function, and the constructs' own


def test_the_wheel_carries_the_bundle_of_the_checkout(wheel: Path) -> None:
    with zipfile.ZipFile(wheel) as archive:
        assert archive.read("constructs_lib/_bundle/functions.zip") == bundle.functions_zip().read_bytes()


def test_the_wheel_holds_the_two_packages_typed_and_licensed_and_nothing_else(wheel: Path) -> None:
    with zipfile.ZipFile(wheel) as archive:
        names = archive.namelist()

    tops = {name.split("/", 1)[0] for name in names}
    (info,) = (top for top in tops if top.endswith(".dist-info"))
    assert tops == {"constructs_lib", "saga_runtime", info}
    assert {"constructs_lib/py.typed", "saga_runtime/py.typed", f"{info}/licenses/LICENSE"} <= set(names)
    assert [name for name in names if "__pycache__" in name or name.endswith(".pyc")] == []


def test_two_builds_give_the_same_bytes(wheel: Path, tmp_path: Path) -> None:
    """The second is built elsewhere, later, with other modes, and installs the bundle's packages again."""
    first = {path.name: path.read_bytes() for path in wheel.parent.iterdir()}
    checkout = copy_of_checkout(tmp_path / "another-place", source=wheel.parent.parent)
    for path in checkout.rglob("*.py"):
        os.utime(path, (1_000_000_000, 1_000_000_000))
        path.chmod(0o600)

    second = build(checkout)

    assert sorted(first) == sorted(second)
    assert [name for name in first if first[name] != second[name]] == []


def test_the_source_distribution_builds_the_same_wheel(wheel: Path, tmp_path: Path) -> None:
    (archive,) = wheel.parent.glob("*.tar.gz")
    with tarfile.open(archive) as source:
        source.extractall(tmp_path, filter="data")
    (checkout,) = tmp_path.iterdir()
    lend_vendored_packages(checkout)

    assert build(checkout)[wheel.name] == wheel.read_bytes()


def test_the_command_and_the_pytest_plugin_are_declared_where_they_are(clean_python: Path, tmp_path: Path) -> None:
    code = (
        "from importlib.metadata import distribution\n"
        "import importlib.util\n"
        "for point in distribution('cdk-sagas').entry_points:\n"
        "    assert importlib.util.find_spec(point.module), point\n"
        "    print(point.group, point.name)\n"
    )
    lines = run([str(clean_python), "-I", "-c", code], cwd=tmp_path).splitlines()

    assert sorted(lines) == ["console_scripts cdk-sagas", "pytest11 cdk_sagas"]


def test_metadata_has_the_addresses_of_the_repository_that_publishes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from hatchling.metadata.core import ProjectMetadata
    from hatchling.plugin.manager import PluginManager

    checkout = copy_of_checkout(tmp_path / "checkout")

    def described() -> ProjectMetadata[PluginManager]:
        return ProjectMetadata(str(checkout), PluginManager())

    assert described().core.urls == {}
    monkeypatch.setenv("CDK_SAGAS_REPOSITORY", "https://git.example/team/cdk-sagas")
    core = described().core
    assert core.urls["Changelog"] == f"https://git.example/team/cdk-sagas/blob/v{core.version}/CHANGELOG.md"
    assert f"(https://git.example/team/cdk-sagas/raw/v{core.version}/docs/images/architecture.svg)" in core.readme
    assert "](docs/" not in core.readme
    monkeypatch.setenv("CDK_SAGAS_REPOSITORY", "git.example")
    with pytest.raises(ValueError, match="must be an https address"):
        _ = described().core
