"""``cdk-sagas trial-balance`` adds a ledger up and reports each difference."""

from __future__ import annotations

import json
from collections.abc import Iterator
from importlib import import_module
from pathlib import Path
from typing import Any

import boto3
import pytest
from moto import mock_aws

from constructs_lib.cli.main import main
from constructs_lib.cli.trial_balance import add_up
from saga_runtime import Account, LedgerBuilder, Money
from saga_runtime.saga_log.write import Write
from tests.unit.support.manifests import manifest

MANIFEST = import_module("constructs_lib.cli.shared.manifest")


BUILDER = LedgerBuilder(table="ledger")


def items(*writes: Write) -> list[Any]:
    """Items that these writes put."""
    return [write.action["Put"]["Item"] for write in writes if "Put" in write.action]


def books() -> list[Any]:
    """A ledger in which alice opened with 10.00 and bob with nothing."""
    return items(
        *BUILDER.open_account(account_id="alice", opening=Money(1_000, "EUR"), now_ms=1),
        *BUILDER.open_account(account_id="bob", opening=Money(0, "EUR"), now_ms=1),
    )


def test_a_ledger_of_two_sides_adds_up() -> None:
    result = add_up(books())

    assert result.wrong == []
    assert result.totals == {"EUR": 0}


def test_an_entry_without_its_counterpart_is_reported() -> None:
    lost_counter_entry = [item for item in books() if not item["pk"]["S"].startswith("clearing#")]

    assert add_up(lost_counter_entry).wrong == ["EUR: entries sum to 1000, must be 0"]


def test_an_item_that_cannot_be_read_is_reported_and_everything_else_added_up() -> None:
    foreign = {"pk": {"S": "account#carol"}, "sk": {"S": "note"}, "text": {"S": "from an operator"}}

    result = add_up([foreign, *books(), {"pk": {"N": "1"}}])

    assert result.totals == {"EUR": 0}
    assert [sentence.partition(": ")[0] for sentence in result.wrong] == [
        "item account#carol note cannot be read",
        "item   cannot be read",
    ]


def test_a_balance_without_matching_entries_is_reported() -> None:
    ledger = books()
    ledger[0] = {**ledger[0], "balance": {"N": "1001"}}

    assert add_up(ledger).wrong == ["EUR account alice: balance 1001, entries sum to 1000"]


def test_a_missing_entry_is_reported_by_its_sequence_number() -> None:
    ledger = books()
    ledger[0] = {**ledger[0], "sequence": {"N": "2"}}

    assert add_up(ledger).wrong == ["EUR account alice: sequence 2, but 1 entries"]


def test_entries_of_an_account_without_its_item_are_reported() -> None:
    """Its entries and theirs sum to zero, and its holder's money is gone."""
    lost = [item for item in books() if (item["pk"]["S"], item["sk"]["S"]) != ("account#alice", "account")]

    assert add_up(lost).wrong == ["EUR account alice: no item, but 1 entries that sum to 1000"]


def test_an_entry_in_another_unit_than_its_accounts_is_reported() -> None:
    ledger = [{**item, "currency": {"S": "USD"}} if item["kind"]["S"] == "entry" else item for item in books()]

    assert "USD account alice: no item, but 1 entries that sum to 1000" in add_up(ledger).wrong


def test_currencies_are_added_up_apart() -> None:
    account = Account(account_id="alice", balance=Money(5, "USD"), sequence=1)
    refund = BUILDER.refund(
        account=None,
        account_id=account.account_id,
        amount=Money(5, "USD"),
        clearing="clearing",
        suspense="suspense",
        entry_id="r",
        now_ms=1,
    )

    assert add_up([*books(), *items(*refund)]).totals == {"EUR": 0, "USD": 0}


@pytest.fixture
def deployed(monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    """A ledger table with ``books`` in it."""
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
        monkeypatch.setenv(name, "testing")
    monkeypatch.setenv("AWS_DEFAULT_REGION", "us-east-1")
    monkeypatch.setattr(MANIFEST, "_output", lambda *_: json.dumps(manifest(ledgers=[{"table": "ledger"}])))
    with mock_aws():
        client = boto3.client("dynamodb")
        client.create_table(
            TableName="ledger",
            KeySchema=[{"AttributeName": "pk", "KeyType": "HASH"}, {"AttributeName": "sk", "KeyType": "RANGE"}],
            AttributeDefinitions=[
                {"AttributeName": "pk", "AttributeType": "S"},
                {"AttributeName": "sk", "AttributeType": "S"},
            ],
            BillingMode="PAY_PER_REQUEST",
        )
        for item in books():
            client.put_item(TableName="ledger", Item=item)
        yield client


@pytest.mark.usefixtures("deployed")
def test_the_command_prints_sums_and_succeeds(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["trial-balance", "--stack", "Shop", "--accounts"]) == 0

    out = capsys.readouterr().out
    assert "account alice" in out
    assert "balances 1,000, of it held 0; 2 entries sum to 0" in out
    assert out.endswith("adds up\n")


def test_the_command_fails_when_the_ledger_does_not_add_up(deployed: Any, capsys: pytest.CaptureFixture[str]) -> None:
    deployed.put_item(TableName="ledger", Item={**books()[0], "balance": {"N": "7"}})

    assert main(["trial-balance", "--stack", "Shop"]) == 1
    assert "WRONG  EUR account alice: balance 7, entries sum to 1000" in capsys.readouterr().out


@pytest.mark.usefixtures("deployed")
def test_a_missing_table_is_reported_in_one_line(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["trial-balance", "--stack", "Shop", "--ledger", "nowhere"]) == 1

    error = capsys.readouterr().err
    assert error.startswith("cdk-sagas: table nowhere was not added up: ResourceNotFoundException")
    assert error.count("\n") == 1


def test_a_missing_region_is_reported_with_its_remedy(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for name in ("AWS_DEFAULT_REGION", "AWS_REGION", "AWS_PROFILE"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("AWS_CONFIG_FILE", str(tmp_path / "none"))

    assert main(["trial-balance", "--stack", "Shop"]) == 1
    assert "name one with --region" in capsys.readouterr().err
