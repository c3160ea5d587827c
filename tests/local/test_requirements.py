"""A function whose packages are those of Lambda on AWS and those of this machine on local AWS. Needs no network."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from constructs_lib.packages.lock import this_machine
from constructs_lib.testing import LocalAws
from tests.unit.packages.wheels import Index

HANDLER = "import place\n\n\ndef handler(event, context):\n    return place.NAME\n"


def test_a_function_imports_the_packages_of_this_machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CDK_SAGAS_CACHE", str(tmp_path / "cache"))
    index, here = Index(tmp_path / "wheels"), this_machine()
    version = here.python.replace(".", "")
    index.add("place", {"place.py": b"NAME = 'lambda'\n"}, tag="cp314-cp314-manylinux_2_28_aarch64")
    index.add("place", {"place.py": b"NAME = 'here'\n"}, tag=f"cp{version}-cp{version}-manylinux2014_{here.machine}")
    (tmp_path / "requirements.txt").write_text(index.lock())
    (tmp_path / "functions").mkdir()
    (tmp_path / "functions" / "pay.py").write_text(HANDLER)

    with LocalAws() as aws:
        aws.deploy(_synthesize(tmp_path))
        client = aws.client("lambda")
        (name,) = (function["FunctionName"] for function in client.list_functions()["Functions"])
        answer = json.loads(client.invoke(FunctionName=name)["Payload"].read())

    assert answer == "here"


def _synthesize(folder: Path) -> Path:
    # Imported here: the CDK takes seconds.
    from aws_cdk import App, Stack

    from constructs_lib import StepFunction

    app = App(outdir=str(folder / "cdk.out"), analytics_reporting=False)
    stack = Stack(app, "Packages")
    StepFunction(
        stack,
        "Pay",
        code=folder / "functions",
        handler="pay.handler",
        requirements=folder / "requirements.txt",
    )
    app.synth()
    return folder / "cdk.out"
