"""Collecting accounts: credits into shards without a read, and sweeps of a shard into its account. Pure.

A transaction meets another one on the same item as a conflict, whatever the two write. So the credits of one account
are spread over as many items as its ``CollectingAccounts`` declare, in a set of their own for each window (a day). A
credit adds to its shard and reads nothing; the shard refuses it only when it is closed, and then it is planned again
for the window of that moment. A sweep moves what a shard holds to the account in one transaction, and closes the shard
when its window is over. A closed shard holds nothing and never changes again.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any, Final, Protocol

from saga_runtime.errors import Conflict, PermanentError, SagaError
from saga_runtime.ledger.errors import AccountNotFound, CapExceeded, CurrencyMismatch
from saga_runtime.ledger.items import (
    Account,
    AccountState,
    Clearing,
    Item,
    Leg,
    Shard,
    due_fields,
    shard_entry_key,
    spread,
    sweep_id,
    unit_fields,
    window_of,
)
from saga_runtime.ledger.terms import CollectingAccounts
from saga_runtime.ledger.writes import changed, entry_put, net_of
from saga_runtime.money import MAX_MINOR_UNITS, Money
from saga_runtime.protocol import LedgerAttribute
from saga_runtime.saga_log.write import Write
from saga_runtime.shared.expressions import RETURNS_ITEM, update, when

_CREDITABLE: Final = (
    "attribute_not_exists(#pk) OR (#state = :state AND #currency = :currency AND #places = :places "
    "AND #balance <= :room)"
)


class Poster(Protocol):
    """Makes the writes of one side of a posting."""

    @property
    def table(self) -> str:
        """The ledger's table."""
        ...

    def account_side(
        self, account: Account, amounts: Sequence[Money], *, counterparty: str, entry_id: str, now_ms: int
    ) -> list[Write]:
        """The balance and the entries."""
        ...

    def clearing_side(
        self, clearing: Clearing, amounts: Sequence[Money], *, counterparty: str, entry_id: str, now_ms: int
    ) -> list[Write]:
        """The entries."""
        ...


def shards_of(accounts: CollectingAccounts, account_id: str, window: str) -> list[Shard]:
    """All shards of an account in a window, as if nothing was credited yet."""
    nothing = Money(0, accounts.unit)
    return [
        Shard(account_id=account_id, window=window, number=number, balance=nothing) for number in range(accounts.shards)
    ]


def shard_of(accounts: CollectingAccounts, account_id: str, entry_id: str, now_ms: int) -> Shard:
    """The shard that takes a credit, as if nothing was credited yet."""
    return shards_of(accounts, account_id, window_of(now_ms))[spread(entry_id, accounts.shards)]


def check_takes(shard: Shard, amount: Money) -> None:
    """Refuse what a shard, as it was read, does not take; of a closed one another window's is credited.

    Raises:
        CurrencyMismatch, CapExceeded: if it collects another unit, or too much.
    """
    if shard.balance.unit != amount.unit:
        raise CurrencyMismatch(f"account {shard.account_id} collects {shard.balance.currency}, not {amount.currency}")
    if shard.balance.minor_units > MAX_MINOR_UNITS - amount.minor_units:
        raise CapExceeded(f"account {shard.account_id} may not collect more than {MAX_MINOR_UNITS} minor units")


def credit_shard(
    table: str,
    accounts: CollectingAccounts,
    account_id: str,
    amounts: Sequence[Money],
    *,
    counterparty: str,
    entry_id: str,
    now_ms: int,
) -> list[Write]:
    """Writes that credit a collecting account without having read it: its shard, and an entry for each leg.

    The shard is chosen by the entry's id, its window by the time at which the credit is planned.

    Raises:
        CurrencyMismatch: if the account is kept in another unit.
    """
    unit = amounts[0].unit
    if unit != accounts.unit:
        raise CurrencyMismatch(f"account {account_id} is kept in {accounts.unit.code}, the amount is in {unit.code}")
    shard = shard_of(accounts, account_id, entry_id, now_ms)
    entries = [
        entry_put(
            table,
            shard_entry_key(shard, entry_id, number),
            entry_id=entry_id,
            amount=amount,
            counterparty=counterparty,
            now_ms=now_ms,
        )
        for number, amount in enumerate(amounts, start=1)
    ]
    return [_credit(table, shard, Money(net_of(amounts), unit), len(amounts)), *entries]


def _credit(table: str, shard: Shard, amount: Money, entries: int) -> Write:
    """Add to a shard; the first credit makes it."""
    a = LedgerAttribute
    fixed: dict[str, Any] = {
        a.KIND: {"S": "shard"},
        **unit_fields(amount.unit),
        a.STATE: {"S": AccountState.OPEN},
        **due_fields(shard.partition, shard.due_at),
    }
    added: dict[str, Any] = {a.BALANCE: {"N": str(amount.minor_units)}, a.SEQUENCE: {"N": str(entries)}}
    room = {"N": str(MAX_MINOR_UNITS - amount.minor_units)}
    change = update(when(_CREDITABLE, room=room) | RETURNS_ITEM, fixed, adds=added)
    action = {"Update": {"TableName": table, "Key": shard.key, **change}}
    return Write(action=action, refusal=lambda item: _refused(amount, item))


def _refused(amount: Money, item: Item | None) -> SagaError:
    found = Shard.from_item(item) if item is not None else None
    if found is not None and found.state is AccountState.OPEN:
        try:
            check_takes(found, amount)
        except PermanentError as refusal:
            return refusal
    return Conflict("the window of a collecting account was closed")


def sweep_shard(
    poster: Poster,
    *,
    shard: Shard,
    account: Account | None,
    suspense: str,
    now_ms: int,
) -> tuple[list[Write], Leg | None]:
    """Writes that move what a shard holds to its account, and close the shard if its window is over.

    Args:
        poster: makes the account's side.
        shard: the shard as it was read.
        account: the account as it was read; None: it does not exist.
        suspense: name of the clearing account for what the account cannot take.
        now_ms: the time.

    Returns:
        The writes, none if there is nothing to do, and the leg that receives the money.
    """
    closes = now_ms >= shard.due_at
    amount = shard.balance
    if shard.state is not AccountState.OPEN or not (amount.minor_units or closes):
        return [], None
    taken = _take(poster.table, shard, closes=closes)
    if not amount.minor_units:
        return [taken], None
    entry_id = sweep_id(shard)
    entry = entry_put(
        poster.table,
        shard_entry_key(shard, entry_id),
        entry_id=entry_id,
        amount=-amount,
        counterparty=shard.account_id,
        now_ms=now_ms,
    )
    common: Any = {"counterparty": shard.account_id, "entry_id": entry_id, "now_ms": now_ms}
    party: str | Clearing = shard.account_id
    try:
        given = poster.account_side(_existing(account, shard), [amount], **common)
    except PermanentError:
        party = Clearing(suspense)
        given = poster.clearing_side(party, [amount], **common)
    # The id contains what was read: an entry with this id is another sweep's, and what was read is stale.
    writes = [replace(write, refusal=changed) for write in (taken, entry, *given)]
    return writes, (party, amount)


def _existing(account: Account | None, shard: Shard) -> Account:
    if account is None:
        raise AccountNotFound(f"account {shard.account_id} does not exist")
    return account


def _take(table: str, shard: Shard, *, closes: bool) -> Write:
    """Take everything out of a shard, on condition that it is as it was read."""
    a = LedgerAttribute
    state = AccountState.CLOSED if closes else AccountState.OPEN
    change = update(
        when(
            "#balance = :held AND #sequence = :read AND #state = :open",
            held={"N": str(shard.balance.minor_units)},
            read={"N": str(shard.sequence)},
            open={"S": AccountState.OPEN},
        ),
        {
            a.BALANCE: {"N": "0"},
            a.SEQUENCE: {"N": str(shard.sequence + (1 if shard.balance.minor_units else 0))},
            a.STATE: {"S": state},
        },
        removes=(a.DUE_SHARD, a.DUE_AT) if closes else (),
    )
    return Write(action={"Update": {"TableName": table, "Key": shard.key, **change}}, refusal=changed)
