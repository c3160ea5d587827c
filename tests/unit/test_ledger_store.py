"""The ledger over serialized DynamoDB: reading accounts, and moving money under a step key."""

from __future__ import annotations

from typing import Any

import pytest

from saga_runtime import Commit, StepCall, TransientError, atomic_step, aws, compensation
from saga_runtime.errors import Invalid
from saga_runtime.ledger import AccountUnknown, LedgerBuilder
from saga_runtime.ledger_store import Ledger
from saga_runtime.money import Money
from saga_runtime.protocol import Env
from tests.unit.support.samples import step_event
from tests.unit.support.world import Context, World

LEDGER = Ledger("ledger")
TEN = Money(10, "EUR")


@pytest.fixture(autouse=True)
def accounts(world: World) -> None:
    """Two accounts."""
    world.open_accounts(alice=500, bob=0)
    world.wire.forget()


@atomic_step
def debit(call: StepCall) -> Commit:
    """Take ten from alice."""
    return Commit(writes=LEDGER.debit(call, account="alice", amount=TEN, clearing="fx"))


@atomic_step
def credit(call: StepCall) -> Commit:
    """Give ten to bob."""
    return Commit(writes=LEDGER.credit(call, account="bob", amount=TEN, clearing="fx"))


@compensation
def refund(call: StepCall, _: Any) -> Commit:
    """Give ten back to alice."""
    return Commit(writes=LEDGER.refund(call, account="alice", amount=TEN, clearing="fx"))


def clearing(world: World, name: str) -> int:
    """What a clearing account's entries add up to."""
    entries = [entry for entry in world.entries() if entry["pk"]["S"].startswith(f"clearing#{name}#")]
    return sum(int(entry["amount"]["N"]) for entry in entries)


def test_accounts_are_read_in_one_call_in_the_order_asked_for(world: World) -> None:
    calls = world.calls_of(lambda: LEDGER.accounts("bob", "alice"))

    assert calls == ["BatchGetItem"]
    assert [account.account_id for account in LEDGER.accounts("bob", "alice", "bob")] == ["bob", "alice", "bob"]


def test_an_account_that_is_not_there_is_unknown(world: World) -> None:
    with pytest.raises(AccountUnknown, match="carol"):
        LEDGER.accounts("alice", "carol")


@pytest.mark.parametrize("account_id", ["", "a#b", "alice\n"])
def test_what_is_no_account_id_reaches_no_table(world: World, account_id: str) -> None:
    with pytest.raises(Invalid):
        LEDGER.accounts(account_id)

    assert world.wire.sent == []


def test_answers_that_the_database_keeps_back_are_asked_for_again(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    client = aws.dynamodb()
    whole = client.batch_get_item
    asked: list[int] = []

    def one_by_one(**arguments: Any) -> Any:
        keys = arguments["RequestItems"]["ledger"]["Keys"]
        asked.append(len(keys))
        answer: Any = whole(RequestItems={"ledger": {"Keys": keys[:1], "ConsistentRead": True}})
        answer["UnprocessedKeys"] = {"ledger": {"Keys": keys[1:]}} if keys[1:] else {}
        return answer

    monkeypatch.setattr(client, "batch_get_item", one_by_one)

    assert [account.balance.minor_units for account in LEDGER.accounts("alice", "bob")] == [500, 0]
    assert asked == [2, 1]


def test_a_database_that_keeps_all_answers_back_is_busy(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    def nothing(**arguments: Any) -> Any:
        return {"Responses": {}, "UnprocessedKeys": arguments["RequestItems"]}

    monkeypatch.setattr(aws.dynamodb(), "batch_get_item", nothing)

    with pytest.raises(TransientError):
        LEDGER.accounts("alice")


def test_a_debit_and_a_credit_leave_nothing_in_clearing(world: World) -> None:
    for handler, step in ((debit, "Debit"), (credit, "Credit")):
        for _ in range(2):
            handler(step_event(step=step), Context())

    assert world.balances() == {"alice": 490, "bob": 10}
    assert clearing(world, "fx") == 0


def test_a_refund_undoes_a_debit(world: World) -> None:
    debit(step_event(step="Debit"), Context())

    for _ in range(2):
        refund(step_event(step="Debit"), Context())

    assert world.balances() == {"alice": 500, "bob": 0}
    assert clearing(world, "fx") == 0


def test_a_refund_to_an_account_that_was_closed_waits_in_suspense(world: World) -> None:
    world.open_accounts(carol=10)
    take = atomic_step(lambda call: Commit(writes=LEDGER.debit(call, account="carol", amount=TEN, clearing="fx")))
    back = compensation(lambda call, _: Commit(writes=LEDGER.refund(call, account="carol", amount=TEN, clearing="fx")))
    take(step_event(step="Debit"), Context())
    close: Any = [w.action for w in LedgerBuilder(table="ledger").close_account(account=LEDGER.accounts("carol")[0])]
    aws.dynamodb().transact_write_items(TransactItems=close)

    back(step_event(step="Debit"), Context())

    assert world.balances()["carol"] == 0
    assert (clearing(world, "fx"), clearing(world, "suspense")) == (0, 10)
    assert list(world.rows().values()) == ["UNDONE"]


def test_a_ledger_comes_from_the_environment_or_says_how(monkeypatch: pytest.MonkeyPatch) -> None:
    assert Ledger.from_env() == LEDGER

    for missing in ("", " "):
        monkeypatch.setenv(Env.LEDGER_TABLE, missing)
        with pytest.raises(RuntimeError, match=r"environment=ledger\.environment"):
            Ledger.from_env()
