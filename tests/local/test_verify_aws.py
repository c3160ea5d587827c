"""``make verify-aws``, on local AWS: every probe, and what remains after a crash."""

from __future__ import annotations

import argparse
import dataclasses
import json
import re
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import boto3
import pytest

from constructs_lib.testing import LocalAws
from tests.on_aws.__main__ import confirmed, main, page, run, verified
from tests.on_aws.claims import BY_HAND, PROBES, Found, counted
from tests.on_aws.resources import Account, Place, alone

SPEED = 10
PLACE = Place(account="111111111111", region="us-east-1")


@pytest.fixture(scope="module")
def fast() -> Iterator[LocalAws]:
    """Corrected local AWS, ten times faster than real time."""
    with LocalAws(speed=SPEED) as aws:
        yield aws


def _account(aws: LocalAws, folder: Path, place: Place | None = None) -> Account:
    def sleep(seconds: float) -> None:
        time.sleep(seconds / SPEED)

    place = place or Place(account=aws.account, region=aws.region)
    return Account(aws.client, place, folder / "left.jsonl", session=aws.session(), prefix="verify", sleep=sleep)


def _of_a_user(aws: LocalAws) -> boto3.Session:
    """A session of a user: the root user of local AWS has a key of another form than AWS gives out."""
    iam = aws.client("iam")
    iam.create_user(UserName="asks")
    allow = [{"Effect": "Allow", "Action": "sts:AssumeRole", "Resource": "*"}]
    document = json.dumps({"Version": "2012-10-17", "Statement": allow})
    iam.put_user_policy(UserName="asks", PolicyName="assume", PolicyDocument=document)
    key = iam.create_access_key(UserName="asks")["AccessKey"]
    return boto3.Session(key["AccessKeyId"], key["SecretAccessKey"], region_name=aws.region)


def _counts(aws: LocalAws, *qualifiers: str) -> None:
    """Write the metric of an execution, which local AWS does not; the dimension's value ends with each of these."""
    for end in qualifiers:
        machine = f"arn:aws:states:{aws.region}:{aws.account}:stateMachine:{end}"
        started = {
            "MetricName": "ExecutionsStarted",
            "Value": 1,
            "Dimensions": [{"Name": "StateMachineArn", "Value": machine}],
        }
        aws.client("cloudwatch").put_metric_data(Namespace="AWS/States", MetricData=[started])


def _resources(aws: LocalAws) -> list[str]:
    machines = [one["name"] for one in aws.client("stepfunctions").list_state_machines()["stateMachines"]]
    roles = [one["RoleName"] for one in aws.client("iam").list_roles()["Roles"]]
    queues = aws.client("sqs").list_queues().get("QueueUrls", [])
    found = [*machines, *roles, *queues, *aws.client("dynamodb").list_tables()["TableNames"]]
    return [name for name in found if "verify" in name]


def test_local_aws_keeps_every_claim_and_nothing_is_left(
    fast: LocalAws, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("AWS_ENDPOINT_URL", fast.endpoint_url)
    account = _account(fast, tmp_path)
    account.session = _of_a_user(fast)
    _counts(fast, "verify-alias")

    found, failed = verified(account)

    assert failed == [], [one.observed for one in found if not one.holds]
    assert [one.claim for one in found if one.holds is False] == []
    assert len(found) >= 30
    assert _resources(fast) == []
    assert account.left() == []
    assert not (tmp_path / "left.jsonl").exists()


def test_what_a_crash_left_is_listed_and_deleted(fast: LocalAws, tmp_path: Path) -> None:
    account = _account(fast, tmp_path)
    account.prepare()
    account.machine("one", {"End": {"Type": "Succeed"}})
    assert len(_resources(fast)) == 4

    other = _account(fast, tmp_path)  # as the next run's process
    assert [made.kind for made in other.left()] == ["queue", "table", "role", "machine"]
    assert other.destroy() == []
    assert _resources(fast) == []


def test_resource_is_in_the_journal_before_it_exists(tmp_path: Path) -> None:
    def client(_service: str) -> object:
        raise ConnectionError

    account = Account(client, PLACE, tmp_path / "left.jsonl", session=None, prefix="verify")
    with pytest.raises(ConnectionError):
        account.machine("one", {"End": {"Type": "Succeed"}})
    (made,) = account.left()
    assert (made.name, made.account, made.region) == ("verify-one", PLACE.account, PLACE.region)
    assert made.arn == "arn:aws:states:us-east-1:111111111111:stateMachine:verify-one"


@pytest.mark.parametrize("other", [{"account": "222222222222"}, {"region": "eu-west-1"}])
def test_resources_of_another_account_or_region_stay_in_the_journal(
    other: dict[str, str], fast: LocalAws, tmp_path: Path
) -> None:
    here = Place(account=fast.account, region=fast.region)
    account = _account(fast, tmp_path)
    account.prepare()
    made = account.left()

    elsewhere = _account(fast, tmp_path, dataclasses.replace(here, **other))
    assert elsewhere.destroy() == made
    assert len(_resources(fast)) == 3

    assert account.destroy() == []
    assert _resources(fast) == []


class Session:
    """A session of boto3 on local AWS, by which no account is reached without a region."""

    def __init__(self, aws: LocalAws, region: str | None) -> None:
        self.client: Any = aws.client
        self.region_name = region


def test_destroy_in_another_region_reports_what_is_left(
    fast: LocalAws, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    account = _account(fast, tmp_path)
    account.prepare()
    options = argparse.Namespace(account=fast.account, destroy=True)

    status = run(Session(fast, "eu-west-1"), tmp_path / "left.jsonl", tmp_path / "page.md", options)

    assert status == 1
    left = f"error: queue verify-queue in account {fast.account}, region {fast.region} is left; "
    assert left in capsys.readouterr().err
    assert run(Session(fast, fast.region), tmp_path / "left.jsonl", tmp_path / "page.md", options) == 0
    assert _resources(fast) == []


def test_region_must_be_configured_before_anything_is_asked(
    fast: LocalAws, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    options = argparse.Namespace(account=None, destroy=False)

    assert run(Session(fast, None), tmp_path / "left.jsonl", tmp_path / "page.md", options) == 1

    printed = capsys.readouterr()
    assert printed.err == "error: an AWS region must be configured, got none; set AWS_REGION, or AWS_PROFILE\n"
    assert printed.out == ""


def test_a_second_run_at_once_does_not_get_the_journal(tmp_path: Path) -> None:
    journal = tmp_path / "build" / "left.jsonl"
    with alone(journal) as first, alone(journal) as second:
        assert (first, second) == (True, False)
    with alone(journal) as third:
        assert third


def test_verification_ends_before_it_reaches_aws_while_another_one_runs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    journal = tmp_path / "left.jsonl"
    monkeypatch.setattr("tests.on_aws.__main__.JOURNAL", journal)
    monkeypatch.setattr("sys.argv", ["verify-aws", "--destroy"])
    with alone(journal):
        assert main() == 1
    assert capsys.readouterr().err == (
        "error: one verification must run at a time, got a second; wait until the first ends\n"
    )


def test_probe_that_fails_keeps_its_findings_and_those_of_the_others(
    fast: LocalAws, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    messages: list[str] = []

    def broken(_account: Account) -> Iterator[Found]:
        yield Found(claim="a", observed="b", holds=True)
        yield Found(claim="c", observed=messages[0], holds=True)

    def whole(_account: Account) -> Iterator[Found]:
        yield Found(claim="d", observed="e", holds=True)

    monkeypatch.setattr("tests.on_aws.__main__.PROBES", {"broken": broken, "whole": whole})

    found, failed = verified(_account(fast, tmp_path))

    assert failed == ["broken"]
    assert [(one.claim, one.holds) for one in found] == [
        ("a", True),
        ("broken: every probe runs to its end", False),
        ("d", True),
    ]


class Undeleted:
    """Step Functions that accepts a deletion and still describes the state machine as active."""

    def __init__(self) -> None:
        self.asked: list[str] = []

    def list_executions(self, *, stateMachineArn: str, **_filter: str) -> dict[str, list[str]]:  # noqa: N803
        self.asked.append(stateMachineArn)
        return {"executions": []}

    def delete_state_machine(self, *, stateMachineArn: str) -> None:  # noqa: N803
        self.asked.append(stateMachineArn)

    def describe_state_machine(self, *, stateMachineArn: str) -> dict[str, str]:  # noqa: N803
        self.asked.append(stateMachineArn)
        return {"status": "ACTIVE"}

    def create_state_machine(self, **_given: object) -> dict[str, str]:
        return {"stateMachineArn": ""}


def test_state_machine_that_is_still_described_stays_in_the_journal(tmp_path: Path) -> None:
    states = Undeleted()
    account = Account(
        lambda _: states, PLACE, tmp_path / "left.jsonl", session=None, prefix="verify", sleep=lambda _: None
    )
    account.machine("one", {"End": {"Type": "Succeed"}})

    (left,) = account.destroy()

    assert set(states.asked) == {left.arn}
    assert account.left() == [left]


class Metrics:
    """An account's CloudWatch that lists one metric for each of these values of its dimension, each on its page."""

    def __init__(self, *values: str) -> None:
        self._values = values

    def client(self, _service: str) -> Metrics:
        return self

    def sleep(self, _seconds: float) -> None:
        pass

    def get_paginator(self, _operation: str) -> Metrics:
        return self

    def paginate(self, **_filter: str) -> Iterator[dict[str, Any]]:
        for value in self._values:
            yield {"Metrics": [{"Dimensions": [{"Name": "StateMachineArn", "Value": value}]}]}


@pytest.mark.parametrize(
    ("values", "verdict"),
    [
        (("machine:live", "machine"), "proven"),
        (("machine:live", "machine:1"), "contradicted"),
        (("another",), "open"),
        ((), "open"),
    ],
)
def test_metrics_of_an_alias_are_judged_by_their_dimensions(values: tuple[str, ...], verdict: str) -> None:
    account: Any = Metrics(*values)
    assert counted(account, "machine").verdict == verdict


def test_interrupted_run_deletes_everything(fast: LocalAws, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupted(_account: Account) -> Iterator[Found]:
        raise KeyboardInterrupt

    monkeypatch.setattr("tests.on_aws.__main__.PROBES", {"one": interrupted})
    with pytest.raises(KeyboardInterrupt):
        verified(_account(fast, tmp_path))
    assert _resources(fast) == []


@pytest.mark.parametrize(("given", "typed", "goes"), [("123", "", True), (None, "123\n", True), (None, "yes", False)])
def test_account_must_be_named_after_the_cost_is_shown(
    given: str | None, typed: str, goes: bool, capsys: pytest.CaptureFixture[str]
) -> None:
    assert confirmed(given, "123", "us-east-1", lambda _question: typed) is goes
    assert re.search(r"below 0\.01 USD", capsys.readouterr().out)


def test_page_has_every_claim_with_its_verdict() -> None:
    found = [
        Found(claim="a", observed="b|c", holds=True),
        Found(claim="d", observed="e", holds=False),
        Found(claim="f", observed="g", holds=None),
    ]
    text = page(found, region="us-east-1", commit="abc")
    assert "| a | b c | proven |\n| d | e | contradicted |\n| f | g | open |\n" in text
    assert all(claim in text for claim in BY_HAND)
    assert len(PROBES) >= 5
