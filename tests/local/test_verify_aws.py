"""``make verify-aws``, on local AWS: every probe, and what remains after a crash."""

from __future__ import annotations

import re
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from constructs_lib.testing import LocalAws
from tests.on_aws.__main__ import confirmed, page, verified
from tests.on_aws.claims import BY_HAND, PROBES, Found
from tests.on_aws.resources import Account

SPEED = 10


@pytest.fixture(scope="module")
def fast() -> Iterator[LocalAws]:
    """Corrected local AWS, ten times faster than real time."""
    with LocalAws(speed=SPEED) as aws:
        yield aws


def _account(aws: LocalAws, folder: Path) -> Account:
    def sleep(seconds: float) -> None:
        time.sleep(seconds / SPEED)

    return Account(aws.client, folder / "left.jsonl", prefix="verify", sleep=sleep)


def _resources(aws: LocalAws) -> list[str]:
    machines = [one["name"] for one in aws.client("stepfunctions").list_state_machines()["stateMachines"]]
    roles = [one["RoleName"] for one in aws.client("iam").list_roles()["Roles"]]
    queues = aws.client("sqs").list_queues().get("QueueUrls", [])
    found = [*machines, *roles, *queues, *aws.client("dynamodb").list_tables()["TableNames"]]
    return [name for name in found if "verify" in name]


def test_local_aws_keeps_every_claim_and_nothing_is_left(fast: LocalAws, tmp_path: Path) -> None:
    account = _account(fast, tmp_path)

    found, failed = verified(account)

    assert failed == []
    assert [one for one in found if one.holds is False] == []
    assert len(found) >= 15
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

    account = Account(client, tmp_path / "left.jsonl", prefix="verify")
    with pytest.raises(ConnectionError):
        account.machine("one", {"End": {"Type": "Succeed"}})
    assert [made.name for made in account.left()] == ["verify-one"]


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
