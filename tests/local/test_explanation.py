"""A test that fails on local AWS states what went wrong there. It runs in a folder of a user's, by its own pytest."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path
from typing import Final

import pytest

from constructs_lib.cli.init.command import write
from constructs_lib.testing import LocalAws
from constructs_lib.testing.explanation import explain

FAILING: Final = """

def test_a_defect_of_the_step(send: Send, local_aws: LocalAws) -> None:
    function = "FirstSaga/TransferFunction/Function"
    local_aws.faults.plan(Fault(function=function, call="dynamodb:DeleteItem", moment="before", action="kill"))
    reconciler = "FirstSaga/Reconciler/Function/Function"  # must not settle the saga before it is shown
    local_aws.faults.plan(Fault(function=reconciler, call="*", moment="before", action="kill", on=First(times=99)))
    saga_id = send("invoice-9", 300).json()["saga_id"]
    while not any("Traceback" in log.text for log in local_aws.function_logs(function)):
        time.sleep(0.1)
    machine = local_aws.resolve_state_machine("FirstSaga/Transfer/StateMachine")
    arn = machine.replace(":stateMachine:", ":execution:") + f":{saga_id}"
    local_aws.client("stepfunctions").stop_execution(executionArn=arn, error="Stopped", cause="by the test")
    print("about one saga:", local_aws.explain(saga_id))
    assert send("invoice-9", 300).status == 200


def test_a_defect_that_needs_an_operator(send: Send, local_aws: LocalAws) -> None:
    saga_id = send("invoice-10", 300).json()["saga_id"]
    queues = {one.path: one.physical_id for one in local_aws.resources() if one.type == "AWS::SQS::Queue"}
    dead = next(url for path, url in queues.items() if path.startswith("FirstSaga/Reconciler/DeadLetters/"))
    local_aws.client("sqs").send_message(QueueUrl=dead, MessageBody="{}")
    tables = [one for one in local_aws.resources() if one.path.startswith("FirstSaga/Requests/")]
    local_aws.client("dynamodb").update_item(
        TableName=next(one.name for one in tables if one.type.startswith("AWS::DynamoDB")),
        Key={"id": {"S": request_id_from(saga_id)}},
        UpdateExpression="SET parked_at = :at, parked_by = :by, parked_reason = :why",
        ExpressionAttributeValues={
            ":at": {"N": "1"}, ":by": {"S": "execution"}, ":why": {"S": "the provider does not answer"}
        },
    )
    assert saga_id == ""
"""
IMPORTS: Final = """
from constructs_lib.testing import First
from saga_runtime.idempotency.identity import request_id_from
"""
OPENED: Final = """
import json

import pytest

from constructs_lib.testing import LocalAws


def queue(**properties):
    return {"Type": "AWS::SQS::Queue", "Properties": properties}


def fill(aws):
    redrive = {"deadLetterTargetArn": {"Fn::GetAtt": ["Dead", "Arn"]}, "maxReceiveCount": 1}
    resources = {"Dead": queue(QueueName="dead"), "Live": queue(RedrivePolicy=redrive)}
    stacks = aws.client("cloudformation")
    stacks.create_stack(StackName="Queues", TemplateBody=json.dumps({"Resources": resources}))
    stacks.get_waiter("stack_create_complete").wait(StackName="Queues", WaiterConfig={"Delay": 1})
    sqs = aws.client("sqs")
    sqs.send_message(QueueUrl=sqs.get_queue_url(QueueName="dead")["QueueUrl"], MessageBody="{}")


@pytest.fixture
def undeployed(tmp_path):
    link = {"Type": "AWS::WAFv2::WebACLAssociation", "Properties": {"WebACLArn": "arn:none", "ResourceArn": "x"}}
    (tmp_path / "broken.json").write_text(json.dumps({"Resources": {"Link": link}}))
    broken = {"type": "aws:cloudformation:stack", "properties": {"templateFile": "broken.json"}}
    (tmp_path / "manifest.json").write_text(json.dumps({"version": "40.0.0", "artifacts": {"Broken": broken}}))
    with LocalAws() as aws:
        fill(aws)
        aws.deploy(tmp_path)
        yield


def test_of_a_fixture_whose_setup_fails(undeployed):
    raise AssertionError("not reached")


def test_that_opens_its_own():
    with pytest.raises(RuntimeError), LocalAws() as caught:
        fill(caught)
        raise RuntimeError("caught")
    with LocalAws() as aws:
        fill(aws)
        raise RuntimeError("while open")


@pytest.fixture
def kept(local_aws_server):
    yield
    fill(local_aws_server)
    raise RuntimeError("while closing")


def test_of_a_fixture_whose_teardown_fails(kept):
    pass


def test_that_uses_none():
    raise AssertionError("no local AWS")
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
    tests.write_text(IMPORTS + tests.read_text(encoding="utf-8") + FAILING, encoding="utf-8")
    return _run(folder, "-k", "defect", "test_transfer.py")


def _run(folder: Path, *arguments: str) -> str:
    """Output of pytest for tests that fail."""
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", *arguments]
    run = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False, timeout=570)
    assert run.returncode == 1, run.stdout + run.stderr
    print(run.stdout[run.stdout.index("local AWS") :])
    return run.stdout


def _of(report: str, test: str) -> str:
    """The part of a report that is about one test."""
    return re.split("\n_{5,}", report.partition(f" {test} _")[2])[0]


@pytest.fixture(scope="module")
def opened(tmp_path_factory: pytest.TempPathFactory) -> str:
    """Output of pytest for tests and fixtures that open local AWS themselves."""
    folder = tmp_path_factory.mktemp("opened")
    (folder / "test_opened.py").write_text(OPENED, encoding="utf-8")
    return _run(folder, "test_opened.py")


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


def test_a_failed_test_shows_the_sagas_in_progress(report: str) -> None:
    section = _of(report, "test_a_defect_of_the_step")

    assert "sagas in progress:" in section
    assert ": no step has a row" in section


def test_a_failed_test_shows_parked_sagas_with_the_reason(report: str) -> None:
    section = _of(report, "test_a_defect_that_needs_an_operator")

    assert re.search(r"parked sagas:\n  \S+: \w+, parked, parked_reason the provider does not answer\n", section)


def test_a_failed_test_shows_dead_letters_by_queue(report: str) -> None:
    section = _of(report, "test_a_defect_that_needs_an_operator")

    assert "dead letters:\n  FirstSaga/Reconciler/DeadLetters: 1\n" in section


@pytest.mark.parametrize(
    ("test", "error"),
    [
        ("ERROR at setup of test_of_a_fixture_whose_setup_fails", "DeploymentError: stack Broken ended as ROLLBACK"),
        ("test_that_opens_its_own", "RuntimeError: while open"),
        ("ERROR at teardown of test_of_a_fixture_whose_teardown_fails", "RuntimeError: while closing"),
    ],
)
def test_every_phase_that_fails_is_explained_once(opened: str, test: str, error: str) -> None:
    section = _of(opened, test)

    assert error in section
    assert section.count("dead letters:\n  Queues/Dead: 1") == 1
    assert section.count("- local AWS -") == 1


def test_local_aws_of_another_test_is_not_explained(opened: str) -> None:
    section = _of(opened, "test_that_uses_none")

    assert "AssertionError: no local AWS" in section
    assert "- local AWS -" not in section


def test_one_saga_is_explained_on_demand(report: str) -> None:
    assert ": IN_PROGRESS" in report[report.index("about one saga:") :]


def test_the_report_is_empty_where_nothing_went_wrong(local_aws: LocalAws) -> None:
    assert explain(local_aws) == ""
