"""Transfers on local AWS: the deployed stack, the real code of its functions, over HTTP."""

import time
from collections.abc import Callable, Mapping
from typing import Any

import pytest
from aws_cdk import App
from stack import FirstSagaStack

from constructs_lib.testing import Fault, HttpResponse, LocalAws
from constructs_lib.testing.invariants import assert_all_hold, audit_ledger, read_table
from saga_runtime import LedgerBuilder, Money

Send = Callable[[str, int], HttpResponse]


@pytest.fixture(scope="session")
def outputs(local_aws_server: LocalAws, tmp_path_factory: pytest.TempPathFactory) -> Mapping[str, str]:
    """The stack, synthesized and deployed once."""
    folder = tmp_path_factory.mktemp("cdk.out")
    app = App(outdir=str(folder))
    FirstSagaStack(app, "FirstSaga")
    app.synth()
    return local_aws_server.deploy(folder)["FirstSaga"]


@pytest.fixture
def send(outputs: Mapping[str, str], local_aws: LocalAws) -> Send:
    """Send a transfer from alice to bob as a user who may call the API and nothing else."""
    for account, balance in (("alice", 1000), ("bob", 0)):
        open_account(local_aws, outputs["LedgerTableName"], account, balance)
    user = local_aws.create_api_user("shop", api_id=outputs["ApiId"])
    url = local_aws.api_url(outputs["ApiId"], "v1") + "/transfers"

    def once(key: str, amount: int) -> HttpResponse:
        body = {"from": "alice", "to": "bob", "amount": amount, "currency": "EUR"}
        return user.request("POST", url, headers={"Idempotency-Key": key}, body=body)

    return once


def open_account(aws: LocalAws, table: str, account: str, balance: int) -> None:
    """Open an account with the ledger's own builder."""
    writes = LedgerBuilder(table=table).open_account(account_id=account, opening=Money(balance, "EUR"), now_ms=1)
    entries: list[Any] = [write.action for write in writes]
    aws.client("dynamodb").transact_write_items(TransactItems=entries)


def until_settled(send: Send, key: str, amount: int) -> HttpResponse:
    """Send the same request under the same key until its settled response arrives."""
    answer = send(key, amount)
    for _ in range(100):
        if "idempotent-replayed" in answer.headers:
            return answer
        time.sleep(0.2)
        answer = send(key, amount)
    raise AssertionError(f"{key} was not settled: {answer.status} {answer.text}")


def balances(aws: LocalAws, table: str) -> dict[str, int]:
    """Return every account's balance; the ledger must balance."""
    items = read_table(aws.client("dynamodb"), table)
    assert_all_hold(audit_ledger(items))
    return {item["pk"]["S"].removeprefix("account#"): int(item["balance"]["N"]) for item in items if "balance" in item}


def test_a_transfer_moves_money_once_however_often_it_is_sent(
    send: Send, local_aws: LocalAws, outputs: Mapping[str, str]
) -> None:
    first = send("invoice-1", 300)
    answers = [until_settled(send, "invoice-1", 300) for _ in range(3)]

    assert first.status == 202
    assert [answer.status for answer in answers] == [200, 200, 200]
    assert balances(local_aws, outputs["LedgerTableName"]) == {"alice": 700, "bob": 300}


def test_a_transfer_of_money_that_is_not_there_is_refused(
    send: Send, local_aws: LocalAws, outputs: Mapping[str, str]
) -> None:
    answer = until_settled(send, "invoice-2", 5000)

    assert answer.status == 422
    assert answer.json()["error"] == "InsufficientFunds"
    assert balances(local_aws, outputs["LedgerTableName"]) == {"alice": 1000, "bob": 0}


def test_a_worker_that_dies_right_after_its_write_does_not_move_money_twice(
    send: Send, local_aws: LocalAws, outputs: Mapping[str, str]
) -> None:
    local_aws.faults.plan(
        Fault(
            function="FirstSaga/TransferFunction/Function",
            call="dynamodb:TransactWriteItems",
            moment="after",
            action="kill",
        )
    )

    answer = until_settled(send, "invoice-3", 300)

    assert answer.status == 200
    assert balances(local_aws, outputs["LedgerTableName"]) == {"alice": 700, "bob": 300}
    local_aws.faults.report().require_all_fired()
