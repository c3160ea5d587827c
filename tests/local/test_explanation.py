"""A test that fails on local AWS states what went wrong there. It runs in a folder of a user's, by its own pytest."""

from __future__ import annotations

import subprocess
import sys
from typing import Final

import pytest

from constructs_lib.cli.init.command import write
from constructs_lib.testing import LocalAws
from constructs_lib.testing.explanation import explain

FAILING: Final = """

def test_a_defect_of_the_step(send: Send, local_aws: LocalAws) -> None:
    function = "FirstSaga/TransferFunction/Function"
    local_aws.faults.plan(Fault(function=function, call="dynamodb:DeleteItem", moment="before", action="kill"))
    saga_id = send("invoice-9", 300).json()["saga_id"]
    while not any("Traceback" in log.text for log in local_aws.function_logs(function)):
        time.sleep(0.1)
    machine = local_aws.resolve_state_machine("FirstSaga/Transfer/StateMachine")
    arn = machine.replace(":stateMachine:", ":execution:") + f":{saga_id}"
    local_aws.client("stepfunctions").stop_execution(executionArn=arn, error="Stopped", cause="by the test")
    print("about one saga:", local_aws.explain(saga_id))
    assert send("invoice-9", 300).status == 200
"""


@pytest.fixture(scope="module")
def report(tmp_path_factory: pytest.TempPathFactory) -> str:
    """Output of pytest for a test whose step has a defect."""
    folder = tmp_path_factory.mktemp("failing") / "app"
    write(folder)
    step = folder / "functions" / "transfer.py"
    text = step.read_text(encoding="utf-8")
    assert 'wanted["amount"]' in text
    step.write_text(text.replace('wanted["amount"]', 'wanted["amuont"]'), encoding="utf-8")
    tests = folder / "test_transfer.py"
    tests.write_text(tests.read_text(encoding="utf-8") + FAILING, encoding="utf-8")
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-k", "defect", "test_transfer.py"]
    run = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False, timeout=570)
    assert run.returncode == 1, run.stdout + run.stderr
    print(run.stdout[run.stdout.index("local AWS") :])
    return run.stdout


def test_a_failed_test_shows_the_users_frames_of_what_raised(report: str) -> None:
    section = report[report.index("local AWS") :]

    assert "functions that raised:" in section
    assert "FirstSaga/TransferFunction/Function" in section
    assert 'amount = Money(wanted["amuont"], wanted["currency"])' in section
    assert "KeyError: 'amuont'" in section
    assert "saga_runtime/steps" not in section


def test_a_failed_test_shows_the_execution_and_its_state(report: str) -> None:
    section = report[report.index("local AWS") :]

    assert "executions that did not succeed:" in section
    assert "ABORTED at Transfer: Stopped by the test" in section


def test_a_failed_test_shows_the_faults_that_did_not_fire(report: str) -> None:
    section = report[report.index("local AWS") :]

    assert "faults that did not fire:" in section
    assert "dynamodb:DeleteItem" in section


def test_one_saga_is_explained_on_demand(report: str) -> None:
    assert ": IN_PROGRESS" in report[report.index("about one saga:") :]


def test_the_report_is_empty_where_nothing_went_wrong(local_aws: LocalAws) -> None:
    assert explain(local_aws) == ""
