"""The ledger over serialized DynamoDB: reading accounts, and moving money under a step key."""

from __future__ import annotations

from typing import Any

import pytest
from botocore.exceptions import ClientError

from saga_runtime import (
    AccountClosed,
    AccountNotFound,
    Clearing,
    Commit,
    CurrencyMismatch,
    DirectEntry,
    DuplicatePosting,
    Ledger,
    LedgerBuilder,
    LedgerTerms,
    Money,
    StepCall,
    TransientError,
    Unit,
    account_key,
    atomic_step,
    compensation,
)
from saga_runtime.errors import Invalid, SagaError
from saga_runtime.ledger.items import Leg
from saga_runtime.protocol import Env, Metric
from saga_runtime.shared import aws
from tests.unit.support.samples import SAGA_ID, step_event
from tests.unit.support.world import Context, World

LEDGER = Ledger("ledger")
TEN = Money(10, "EUR")
OTHER_SAGA_ID = "b" * 26 + "-mdwqr4j2"


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
    """Sum of a clearing account's entries."""
    entries = [entry for entry in world.entries() if entry["pk"]["S"].startswith(f"clearing#{name}#")]
    return sum(int(entry["amount"]["N"]) for entry in entries)


def test_accounts_are_read_in_one_call_in_the_requested_order(world: World) -> None:
    calls = world.calls_of(lambda: LEDGER.accounts("bob", "alice"))

    assert calls == ["BatchGetItem"]
    assert [account.account_id for account in LEDGER.accounts("bob", "alice", "bob")] == ["bob", "alice", "bob"]


def test_an_account_that_is_not_there_is_unknown(world: World) -> None:
    with pytest.raises(AccountNotFound, match="carol"):
        LEDGER.accounts("alice", "carol")


@pytest.mark.parametrize("account_id", ["", "a#b", "alice\n"])
def test_an_invalid_account_id_reaches_no_table(world: World, account_id: str) -> None:
    with pytest.raises(Invalid):
        LEDGER.accounts(account_id)

    assert world.wire.sent == []


def test_unprocessed_keys_are_requested_again(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
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


def test_a_database_without_processed_keys_is_busy(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
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


def test_a_refund_compensates_a_debit(world: World) -> None:
    debit(step_event(step="Debit"), Context())

    for _ in range(2):
        refund(step_event(step="Debit"), Context())

    assert world.balances() == {"alice": 500, "bob": 0}
    assert clearing(world, "fx") == 0


@pytest.mark.parametrize(
    ("edited", "balance", "error"),
    [
        ({"balance": {"N": "450"}}, 440, None),
        ({"sequence": {"N": "7"}}, 490, None),
        ({"currency": {"S": "USD"}}, 500, CurrencyMismatch),
        ({"state": {"S": "CLOSED"}}, 500, AccountClosed),
    ],
    ids=lambda value: next(iter(value)) if isinstance(value, dict) else "",
)
def test_nothing_is_posted_on_an_outdated_read_of_an_account(
    world: World, edited: dict[str, Any], balance: int, error: type[SagaError] | None
) -> None:
    """By hand, or by a restore: without the sequence that every posting moves on."""
    changes = [edited]

    @atomic_step
    def debit_late(call: StepCall) -> Commit:
        planned = LEDGER.debit(call, account="alice", amount=TEN, clearing="fx")
        for attributes in changes:
            _change("alice", attributes)
        changes.clear()
        return Commit(writes=planned)

    if error is None:
        debit_late(step_event(step="Debit"), Context())
    else:
        with pytest.raises(error):
            debit_late(step_event(step="Debit"), Context())

    assert world.balances()["alice"] == balance


def _change(account_id: str, attributes: dict[str, Any]) -> None:
    (name, value) = next(iter(attributes.items()))
    aws.dynamodb().update_item(
        TableName="ledger",
        Key=account_key(account_id),
        UpdateExpression="SET #name = :value",
        ExpressionAttributeNames={"#name": name},
        ExpressionAttributeValues={":value": value},
    )


@pytest.mark.parametrize("other", ["TransactionConflict", "ThrottlingError", "ConditionalCheckFailed"])
def test_an_existing_row_decides_at_once_whatever_else_was_refused(
    world: World, monkeypatch: pytest.MonkeyPatch, other: str
) -> None:
    debit(step_event(step="Debit"), Context())
    row = next(item for item in world.items("log") if item["step"]["S"] == "Debit")
    sent = []

    def refuse(**arguments: Any) -> Any:
        sent.append(arguments)
        none = [{"Code": "None"} for _ in arguments["TransactItems"][2:]]
        reasons = [{"Code": "ConditionalCheckFailed", "Item": row}, {"Code": other}, *none]
        error = {"Error": {"Code": aws.TRANSACTION_CANCELED}, "CancellationReasons": reasons}
        raise ClientError(error, "TransactWriteItems")  # type: ignore[arg-type]

    monkeypatch.setattr(aws.dynamodb(), "transact_write_items", refuse)
    debit(step_event(step="Debit"), Context())

    assert len(sent) == 1
    assert world.balances()["alice"] == 490


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
    assert (Metric.SUSPENDED, {"service": "ledger"}) in world.telemetry.events
    assert ("posted_to_suspense", {"amount": "10", "unit": "EUR"}) in world.telemetry.events
    assert list(world.rows().values()) == ["COMPENSATED"]


def test_what_waits_in_suspense_is_posted_once_to_any_account(world: World) -> None:
    world.open_accounts(carol=10)
    close: Any = [
        w.action
        for w in LEDGER.builder.post(
            legs=[("carol", -TEN), ("bob", TEN)], accounts=LEDGER.accounts("carol", "bob"), entry_id="all", now_ms=1
        )
    ]
    aws.dynamodb().transact_write_items(TransactItems=close)
    close = [w.action for w in LEDGER.builder.close_account(account=LEDGER.accounts("carol")[0])]
    aws.dynamodb().transact_write_items(TransactItems=close)
    given = DirectEntry("refund-1")
    LEDGER.commit(lambda: LEDGER.refund(given, account="carol", amount=TEN, clearing="fx"))

    def settle(account: str) -> None:
        legs: list[Leg] = [(account, TEN), (Clearing("suspense"), -TEN)]
        LEDGER.commit(lambda: LEDGER.post(DirectEntry(f"settled:{given.key}"), legs))

    settle("bob")
    for account in ("bob", "alice"):
        with pytest.raises(DuplicatePosting):
            settle(account)

    assert (world.balances(), clearing(world, "suspense")) == ({"alice": 500, "bob": 20, "carol": 0}, 0)


@pytest.mark.parametrize("declared", [(), (Unit("POINT", 2),)])
@pytest.mark.parametrize("closed", [False, True])
def test_a_refund_in_a_unit_that_is_no_longer_declared(world: World, declared: tuple[Unit, ...], closed: bool) -> None:
    point = Unit("POINT", 0)
    five = Money(5, point)
    before, after = Ledger("ledger", LedgerTerms(units=(point,))), Ledger("ledger", LedgerTerms(units=declared))
    before.commit(lambda: before.builder.open_account(account_id="carol", opening=five, now_ms=1))
    before.commit(lambda: before.debit(DirectEntry("d-1"), account="carol", amount=five, clearing="fx"))
    if closed:
        after.commit(lambda: after.builder.close_account(account=after.accounts("carol")[0]))

    after.commit(lambda: after.refund(DirectEntry("u-1"), account="carol", amount=five, clearing="fx"))

    assert (world.balances()["carol"], clearing(world, "suspense")) == ((0, 5) if closed else (5, 0))
    assert clearing(world, "fx") == 0
    with pytest.raises(Invalid, match="the unit of an amount must be an ISO 4217 currency or declared by the ledger"):
        after.debit(DirectEntry("d-2"), account="carol", amount=five, clearing="fx")


def test_a_refund_that_the_account_takes_is_not_counted(world: World) -> None:
    debit(step_event(step="Debit"), Context())

    refund(step_event(step="Debit"), Context())

    assert world.telemetry.counts[Metric.SUSPENDED] == 0


def test_a_ledger_needs_its_environment_variable(monkeypatch: pytest.MonkeyPatch) -> None:
    assert Ledger.from_env() == LEDGER

    for missing in ("", " "):
        monkeypatch.setenv(Env.LEDGER_TABLE, missing)
        with pytest.raises(RuntimeError, match=r"environment=ledger\.environment"):
            Ledger.from_env()


# -- a payment that exists once, whatever saga makes it --------------------------------------------------------------


@atomic_step
def pay_order(call: StepCall) -> Commit:
    """Pay an order under its own name."""
    legs: list[Leg] = [("alice", -TEN), ("bob", TEN)]
    return Commit(writes=LEDGER.post(DirectEntry("order-7"), legs))


@compensation
def take_back(call: StepCall, _: Any) -> Commit:
    """Take an order's money back."""
    return Commit(writes=LEDGER.transfer(call, source="bob", target="alice", amount=TEN))


def test_of_two_tries_of_an_order_the_pivot_pays_one(world: World) -> None:
    first, second = (step_event(step="Pay", saga_id=saga_id) for saga_id in (SAGA_ID, OTHER_SAGA_ID))
    for _ in range(2):
        pay_order(first, Context())

    with pytest.raises(DuplicatePosting):
        pay_order(second, Context())

    assert world.balances() == {"alice": 490, "bob": 10}


def test_an_order_that_was_paid_and_compensated_is_refused_under_its_name(world: World) -> None:
    """The reason for which only a pivot, or a step after it, posts under such a name."""
    pay_order(step_event(step="Pay"), Context())
    take_back(step_event(step="Pay"), Context())

    with pytest.raises(DuplicatePosting):
        pay_order(step_event(step="Pay", saga_id=OTHER_SAGA_ID), Context())

    assert world.balances() == {"alice": 500, "bob": 0}
