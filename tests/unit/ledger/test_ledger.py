"""The ledger's builders: every posting nets to zero, and names its refusals before anything is written."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from saga_runtime import (
    Account,
    AccountClosed,
    AccountState,
    CapExceeded,
    CurrencyMismatch,
    DuplicatePosting,
    InsufficientFunds,
    LedgerBuilder,
    Money,
    account_key,
    check_account_id,
)
from saga_runtime.errors import Conflict, Invalid, PermanentError, SagaError
from saga_runtime.ledger.errors import FAILURES, LedgerFailure
from saga_runtime.ledger.items import CLEARING_SHARDS, clearing_key, entry_key
from saga_runtime.money import MAX_MINOR_UNITS
from saga_runtime.protocol import PERMANENT_ERRORS, TRANSIENT_ERRORS
from saga_runtime.saga_log.write import Write

BUILDER = LedgerBuilder(table="ledger")
EUR = "EUR"


def account(account_id: str = "alice", balance: int = 500, **rest: Any) -> Account:
    """An account in euros, as it was read."""
    return Account(account_id=account_id, balance=Money(balance, EUR), **rest)


def transfer(source: Account, target: Account, minor_units: int = 10, currency: str = EUR) -> list[Write]:
    """The writes of a transfer."""
    amount = Money(minor_units, currency)
    return BUILDER.transfer(source=source, target=target, amount=amount, entry_id="e", now_ms=1)


def amounts(writes: Sequence[Write]) -> list[int]:
    """Amounts of the entries among writes."""
    puts = [write.action["Put"]["Item"] for write in writes if "Put" in write.action]
    return [int(item["amount"]["N"]) for item in puts if item["kind"]["S"] == "entry"]


POSTINGS: dict[str, Callable[[int], list[Write]]] = {
    "transfer": lambda minor: transfer(account(), account("bob"), minor),
    "debit": lambda minor: BUILDER.debit(
        account=account(), amount=Money(minor, EUR), clearing="fx", entry_id="e", now_ms=1
    ),
    "credit": lambda minor: BUILDER.credit(
        account=account(), amount=Money(minor, EUR), clearing="fx", entry_id="e", now_ms=1
    ),
    "refund": lambda minor: refund(account(), minor),
    "refund to suspense": lambda minor: refund(None, minor),
}


def refund(to: Account | None, minor_units: int = 10) -> list[Write]:
    """The writes of a refund."""
    return BUILDER.refund(
        account=to,
        account_id="alice",
        amount=Money(minor_units, EUR),
        clearing="fx",
        suspense="suspense",
        entry_id="e",
        now_ms=1,
    )


@pytest.mark.parametrize("kind", POSTINGS)
@given(minor=st.integers(min_value=1, max_value=500))
def test_every_posting_has_two_entries_that_net_to_zero_and_no_item_twice(kind: str, minor: int) -> None:
    writes = POSTINGS[kind](minor)

    assert sorted(amounts(writes)) == [-minor, minor]
    keys = [_key(write) for write in writes]
    assert len(keys) == len(set(keys))


def _key(write: Write) -> tuple[str, str]:
    ((kind, arguments),) = write.action.items()
    item = arguments["Item"] if kind == "Put" else arguments["Key"]
    return item["pk"]["S"], item["sk"]["S"]


@pytest.mark.parametrize("kind", POSTINGS)
@pytest.mark.parametrize("minor", [0, -1])
def test_an_amount_that_is_not_positive_is_invalid(kind: str, minor: int) -> None:
    with pytest.raises(Invalid, match="must be positive"):
        POSTINGS[kind](minor)


@pytest.mark.parametrize("amount", [10, 10.0, "10", None])
def test_an_amount_that_is_not_money_is_invalid(amount: Any) -> None:
    with pytest.raises(Invalid, match="must be Money"):
        BUILDER.transfer(source=account(), target=account("bob"), amount=amount, entry_id="e", now_ms=1)


@pytest.mark.parametrize(
    ("source", "target", "minor", "error"),
    [
        (account(balance=9), account("bob"), 10, InsufficientFunds),
        (account(state=AccountState.CLOSED), account("bob"), 10, AccountClosed),
        (account(), account("bob", state=AccountState.CLOSED), 10, AccountClosed),
        (account(), account("bob", 95, cap=100), 10, CapExceeded),
        (account(), account("bob", MAX_MINOR_UNITS), 10, CapExceeded),
        (account(), Account(account_id="bob", balance=Money(0, "USD")), 10, CurrencyMismatch),
        (account(), account(), 10, Invalid),
    ],
)
def test_a_posting_that_its_accounts_forbid_is_a_typed_refusal(
    source: Account, target: Account, minor: int, error: type[PermanentError]
) -> None:
    with pytest.raises(error):
        transfer(source, target, minor)


def test_an_account_above_its_cap_may_still_pay() -> None:
    assert amounts(transfer(account(balance=500, cap=100), account("bob"))) == [-10, 10]


def test_the_last_cent_may_be_moved() -> None:
    update = transfer(account(balance=10), account("bob"))[0].action["Update"]

    assert update["ExpressionAttributeValues"][":balance"] == {"N": "0"}


@pytest.mark.parametrize(
    "to", [None, account(state=AccountState.CLOSED), account(balance=100, cap=100), account(balance=MAX_MINOR_UNITS)]
)
def test_a_refund_is_never_refused_but_waits_in_suspense(to: Account | None) -> None:
    puts = [write.action["Put"]["Item"] for write in refund(to)]

    assert [item["pk"]["S"].split("#")[:2] for item in puts] == [["clearing", "suspense"], ["clearing", "fx"]]
    assert puts[0]["counterparty"] == {"S": "alice"}


@pytest.mark.parametrize(
    ("opening", "cap"), [(-1, None), (11, 10), (0, -1), (0, MAX_MINOR_UNITS + 1), (0, 10.5), (0, True), (0, "10")]
)
def test_an_account_opens_with_nothing_or_more_and_within_its_cap(opening: int, cap: Any) -> None:
    with pytest.raises(Invalid):
        BUILDER.open_account(account_id="alice", opening=Money(opening, EUR), cap=cap, now_ms=1)


def test_a_first_balance_has_a_counterpart() -> None:
    assert amounts(BUILDER.open_account(account_id="alice", opening=Money(5, EUR), now_ms=1)) == [5, -5]


def test_an_account_that_holds_money_is_not_closed() -> None:
    with pytest.raises(Invalid, match="move it before closing"):
        BUILDER.close_account(account=account(balance=1))


@pytest.mark.parametrize("account_id", ["", " ", "a#b", "-a", "a b", "a\n", "\u00e4", "a" * 65, None, 1])
def test_an_invalid_account_id_is_refused(account_id: Any) -> None:
    for make in (check_account_id, account_key):
        with pytest.raises(Invalid, match="account id must match"):
            make(account_id)


@pytest.mark.parametrize("entry_id", ["", " ", "e" * 256])
def test_an_invalid_entry_id_is_refused(entry_id: str) -> None:
    for make in (entry_key, clearing_key):
        with pytest.raises(Invalid, match="entry's id"):
            make("alice", entry_id)


def test_a_clearing_account_is_spread_over_partitions() -> None:
    partitions = {clearing_key("fx", f"entry-{number}")["pk"]["S"] for number in range(400)}

    assert len(partitions) == CLEARING_SHARDS


@pytest.mark.parametrize("failure", LedgerFailure)
def test_every_failure_is_permanent_or_retried_in_one_place(failure: LedgerFailure) -> None:
    error = FAILURES[failure]
    known: tuple[str, ...] = TRANSIENT_ERRORS if error.retryable else PERMANENT_ERRORS

    assert error.code == failure
    assert error.__name__ in known


def test_a_refused_write_has_a_reason() -> None:
    update, entry, *_ = transfer(account(), account("bob"))
    refusals: list[SagaError] = [write.refusal(None) for write in (update, entry) if write.refusal]

    assert [type(error) for error in refusals] == [Conflict, DuplicatePosting]


def test_a_refund_is_not_collected() -> None:
    with pytest.raises(Invalid, match="a refund needs two clearing accounts, got 'clearing' twice"):
        BUILDER.refund(
            account=None,
            account_id="alice",
            amount=Money(10, "EUR"),
            clearing="clearing",
            suspense="clearing",
            entry_id="refund",
            now_ms=1,
        )
