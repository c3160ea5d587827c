"""Options, errors and permissions of ``cdk-sagas doctor``."""

from __future__ import annotations

import json
import os
import re
from types import SimpleNamespace

import boto3
import pytest

from constructs_lib.shared.operator_actions import DOCTOR_LOOKS, DOCTOR_REPAIRS
from saga_runtime.protocol import StepStatus
from saga_runtime.shared import aws
from tests.unit.support.checked_stack import (
    READS,
    SCAN,
    CheckedStack,
)
from tests.unit.support.doctor_scenes import R1, ROOT
from tests.unit.support.manifests import manifest


@pytest.mark.parametrize(
    "words",
    [
        (),
        ("--stack", "Shop", "--rate", "5"),
        ("--stack", "Shop", "--full-scan", "--rate", "0"),
    ],
)
def test_wrong_options_are_refused_with_a_status_of_their_own(stack: CheckedStack, words: tuple[str, ...]) -> None:
    status, out, err = stack.run(system=words)

    assert (status, out) == (2, "")
    assert "error: " in err
    assert stack.world.wire.sent == []


@pytest.mark.parametrize(
    ("system", "denied", "says"),
    [
        (("--stack", "Bar"), "", "there is no stack Bar in this account and region"),
        (
            ("--stack", "Shop"),
            "DescribeStacks",
            "check the name, because AWS refuses one of no stack",
        ),
        (("--stack", ""), "", "--stack must be the name of a stack, got ''"),
        (("--stack", "Shop", "--stack", "Bar"), "", "there is no stack Bar in this account and region"),
    ],
)
def test_a_failed_start_is_reported_in_one_line(
    stack: CheckedStack, system: tuple[str, ...], denied: str, says: str
) -> None:
    stack.denied.add(denied)

    status, out, err = stack.run(system=system)

    assert (status, out, err.count("\n")) == (1, "", 1)
    assert err.startswith("cdk-sagas: ")
    assert says in err


def test_the_environment_and_the_clients_of_the_process_are_as_they_were(stack: CheckedStack) -> None:
    stack.dies()
    variables, mine = dict(os.environ), aws.dynamodb()

    stack.run("--repair")

    assert dict(os.environ) == variables
    assert aws.dynamodb().meta.region_name == mine.meta.region_name
    assert R1 in stack.world.executions.by_name


def test_the_runtime_works_with_the_clients_of_the_session_that_it_is_given() -> None:
    session = boto3.Session(aws_access_key_id="a", aws_secret_access_key="b", region_name="eu-north-1")
    with aws.clients_of(session):
        regions = {client().meta.region_name for client in (aws.dynamodb, aws.step_functions, aws.sqs, aws.s3)}

    assert regions == {"eu-north-1"}
    assert aws.dynamodb.cache_info().currsize == 0


def test_a_stack_without_a_saga_is_refused(stack: CheckedStack) -> None:
    stack.manifests["Shop"] = manifest()

    assert "stack Shop must have a saga, got none" in stack.run()[2]


def test_each_call_has_its_permission_and_those_are_in_the_guide() -> None:
    guide = (ROOT / "docs/how-to/find-stuck-sagas.md").read_text("utf-8")
    policies = [json.loads(text) for text in re.findall(r"```json\n(.*?)```", guide, re.DOTALL)]

    assert [tuple(policy["Statement"][0]["Action"]) for policy in policies] == [DOCTOR_LOOKS, DOCTOR_REPAIRS]
    assert {action.partition(":")[2] for action in DOCTOR_LOOKS} == READS


def test_a_scan_announces_its_size_and_keeps_to_its_rate(stack: CheckedStack, monkeypatch: pytest.MonkeyPatch) -> None:
    naps: list[float] = []
    monkeypatch.setattr(SCAN, "_PAGE", 10)
    monkeypatch.setattr(SCAN, "time", SimpleNamespace(monotonic=lambda: 0.0, sleep=naps.append))
    for number in range(30):
        stack.put_row(f"Step{number}", StepStatus.RECORDED)

    _, _, errors = stack.run("--full-scan", "--rate", "2")

    assert re.search(r"reads table log whole: about 30 items, [0-9]+ read units, [0-9]+ s", errors)
    assert re.findall(r"table log: (\d+) %, ([0-9,]+) items", errors) == [("33", "10"), ("66", "20"), ("100", "30")]
    # The page after the last item is empty: a full page does not show that it was the last one.
    assert len(naps) == 3
    assert all(nap > 0 for nap in naps)
