"""Clients made while Lambda initializes a function, and what a restored snapshot must not repeat."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).resolve().parents[3]
_PROGRAM = """\
import json, random, sys, types
hooks = types.ModuleType("snapshot_restore_py")
registered = []
hooks.register_after_restore = lambda function, *given: registered.append(function)
sys.modules["snapshot_restore_py"] = hooks
import socket
def refused(*given, **named):
    raise AssertionError("a connection was opened")
socket.create_connection = socket.socket.connect = refused
import {module}
from saga_runtime.shared import aws
made = [name for name in ("dynamodb", "step_functions") if getattr(aws, name).cache_info().currsize]
random.seed(1)
snapshot = random.getstate()
drawn = []
for _ in range(2):
    random.setstate(snapshot)
    for hook in registered:
        hook()
    drawn.append([random.random() for _ in range(4)])
print(json.dumps({{"made": made, "hooks": len(registered), "differ": drawn[0] != drawn[1]}}))
"""


def _initialized(module: str, kind: str | None) -> Any:
    program = _PROGRAM.format(module=module)
    done = subprocess.run(
        [sys.executable, "-c", program], env=_environment(kind), capture_output=True, text=True, check=True
    )
    return json.loads(done.stdout)


def _environment(kind: str | None) -> dict[str, str]:
    return {
        "PATH": os.environ["PATH"],
        "PYTHONPATH": str(ROOT / "lambda_src"),
        "AWS_DEFAULT_REGION": "us-east-1",
        "AWS_ACCESS_KEY_ID": "a",
        "AWS_SECRET_ACCESS_KEY": "b",
        "POWERTOOLS_SERVICE_NAME": "test",
        **({"AWS_LAMBDA_INITIALIZATION_TYPE": kind} if kind else {}),
    }


@pytest.mark.parametrize("module", ["handlers.gatekeeper", "handlers.callback_direct", "handlers.approval_page"])
def test_a_snapshot_contains_clients_without_a_connection(module: str) -> None:
    assert _initialized(module, "snap-start")["made"] == ["dynamodb", "step_functions"]


@pytest.mark.parametrize("kind", ["on-demand", "provisioned-concurrency"])
def test_every_function_of_lambda_makes_its_clients_at_first(kind: str) -> None:
    assert _initialized("handlers.gatekeeper", kind) == {
        "made": ["dynamodb", "step_functions"],
        "hooks": 0,
        "differ": False,
    }


def test_environments_of_one_snapshot_draw_different_pauses() -> None:
    assert _initialized("saga_runtime.shared.aws", "snap-start") == {"made": ["dynamodb"], "hooks": 1, "differ": True}


def test_clients_are_of_the_session_of_a_function_that_imports_boto3() -> None:
    program = (
        "import boto3\n"
        "from saga_runtime.shared import aws\n"
        "print(boto3.DEFAULT_SESSION is not None, aws._botocore.cache_info().currsize)\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", program], env=_environment("on-demand"), capture_output=True, text=True, check=True
    )
    assert done.stdout.split() == ["True", "0"]


def test_no_client_is_made_outside_lambda() -> None:
    assert _initialized("handlers.gatekeeper", None) == {"made": [], "hooks": 0, "differ": False}
