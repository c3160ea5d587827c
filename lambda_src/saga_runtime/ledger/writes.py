"""Single writes of the ledger, from which its builders compose transactions. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

from saga_runtime.errors import Conflict, Invalid
from saga_runtime.ledger.errors import AccountClosed, CapExceeded, CurrencyMismatch, DuplicatePosting, InsufficientFunds
from saga_runtime.ledger.items import Account, AccountState, Clearing, Key, Party, account_key, check_account_id
from saga_runtime.money import MAX_MINOR_UNITS, Money
from saga_runtime.protocol import MAX_TRANSACT_ITEMS, LedgerAttribute
from saga_runtime.saga_log.write import Refusal, Write
from saga_runtime.shared.expressions import update, when

_AS_READ: Final = (
    "#sequence = :read AND #balance = :before AND #held = :reserved AND #state = :open AND #currency = :currency"
)


def changed(_: object = None) -> Conflict:
    """Stale read: read again."""
    return Conflict("an account changed between read and write")


def put_new(table: str, item: dict[str, Any], refusal: Refusal) -> Write:
    """Put an item that does not exist yet."""
    put = {
        "TableName": table,
        "Item": item,
        **when("attribute_not_exists(#pk)"),
    }
    key: dict[str, Any] = {name: item[name] for name in (LedgerAttribute.PK, LedgerAttribute.SK)}
    return Write(action={"Put": put}, refusal=refusal, key=key)


def account_update(table: str, account: Account, *, after: int, entries: int, held: int) -> Write:
    """Change an account, on condition that it is as it was read.

    Args:
        table: the ledger's table.
        account: the account as it was read.
        after: balance after it, in minor units.
        entries: how many entries are written with it.
        held: sum of its open holds after it.
    """
    a = LedgerAttribute
    change = update(
        when(
            _AS_READ,
            read={"N": str(account.sequence)},
            before={"N": str(account.balance.minor_units)},
            reserved={"N": str(account.held)},
            open={"S": AccountState.OPEN},
            currency={"S": account.balance.unit.code},
        ),
        {
            a.BALANCE: {"N": str(after)},
            a.SEQUENCE: {"N": str(account.sequence + entries)},
            a.HELD: {"N": str(held)},
        },
    )
    action = {"Update": {"TableName": table, "Key": account_key(account.account_id), **change}}
    return Write(action=action, refusal=changed)


def entry_put(
    table: str,
    key: Key,
    *,
    entry_id: str,
    amount: Money,
    counterparty: str,
    now_ms: int,
    after: tuple[int, int] | None = None,
) -> Write:
    """Put an entry; ``after`` is the account's balance and sequence with it, where there is such a thing."""
    a = LedgerAttribute
    item: dict[str, Any] = {
        **key,
        a.KIND: {"S": "entry"},
        a.ENTRY_ID: {"S": entry_id},
        a.AMOUNT: {"N": str(amount.minor_units)},
        a.CURRENCY: {"S": amount.unit.code},
        a.COUNTERPARTY: {"S": counterparty},
        a.POSTED_AT: {"N": str(now_ms)},
    }
    if after is not None:
        item |= {a.BALANCE_AFTER: {"N": str(after[0])}, a.SEQUENCE: {"N": str(after[1])}}
    exists = f"entry {entry_id} of {key[a.PK]['S'].split('#')[1]} exists"
    return put_new(table, item, lambda _: DuplicatePosting(exists))


def check_amount(amount: object) -> None:
    """Refuse what is not a positive amount.

    Raises:
        Invalid: if it is not.
    """
    if not isinstance(amount, Money):
        raise Invalid(f"an amount must be Money, got {amount!r} ({type(amount).__name__})")
    if amount.minor_units <= 0:
        raise Invalid(f"an amount must be positive, got {amount}")


def check_size(writes: Sequence[Write]) -> None:
    """Refuse a posting that does not fit into one transaction with the log row of its step.

    Raises:
        Invalid: if it does not.
    """
    room = MAX_TRANSACT_ITEMS - 1
    if len(writes) > room:
        raise Invalid(
            f"a posting must have at most {room} writes, one for each account and one for each leg, got {len(writes)}; "
            "split it"
        )


def net_of(amounts: Sequence[Money]) -> int:
    """Sum of amounts of one unit, in minor units."""
    return sum(amount.minor_units for amount in amounts)


def grouped(legs: object) -> dict[Party, list[Money]]:
    """Amounts by account, in the order of the legs.

    Raises:
        Invalid: for what is not a list, and a leg that is not an account and an amount other than zero.
    """
    if not isinstance(legs, Sequence) or isinstance(legs, str):
        raise Invalid(f"legs must be a list of (account, Money), got {legs!r}")
    found: dict[Party, list[Money]] = {}
    for leg in legs:
        party, amount = leg if isinstance(leg, tuple) and len(leg) == 2 else (None, None)
        if not isinstance(party, str | Clearing) or not isinstance(amount, Money):
            raise Invalid(f"a leg must be (account, Money), got {leg!r}")
        if not amount.minor_units:
            raise Invalid(f"the amount of a leg must not be zero, got {leg!r}; leave it out")
        found.setdefault(party if isinstance(party, Clearing) else check_account_id(party), []).append(amount)
    return found


def check_allows(account: Account, amounts: Sequence[Money], *, released: int = 0) -> int:
    """The balance that a posting leads to.

    Args:
        account: the account as it was read.
        amounts: its legs.
        released: what the posting releases of the account's holds.

    Raises:
        PermanentError: what the account, as it was read, does not allow.
    """
    check_open(account, amounts[0])
    net = net_of(amounts)
    after = account.balance.minor_units + net
    if net < 0 and after < account.held - released:
        raise InsufficientFunds(f"account {account.account_id} does not hold the amount")
    if account.cap is not None and net > 0 and after > account.cap:
        raise CapExceeded(f"account {account.account_id} may not hold that much")
    if after > MAX_MINOR_UNITS:
        raise CapExceeded(f"account {account.account_id} may not hold more than {MAX_MINOR_UNITS} minor units")
    return after


def check_open(account: Account, amount: Money) -> None:
    """Refuse an account that is closed or kept in another unit.

    Raises:
        AccountClosed, CurrencyMismatch: if it is.
    """
    if account.state is not AccountState.OPEN:
        raise AccountClosed(f"account {account.account_id} is {account.state.lower()}")
    if account.balance.unit != amount.unit:
        raise CurrencyMismatch(
            f"account {account.account_id} is kept in {account.balance.currency}, the amount is in {amount.currency}"
        )
