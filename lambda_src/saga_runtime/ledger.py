"""The ledger: pure builders that turn postings into transaction writes.

An account is one item with its balance and a sequence number; every change of a balance writes an immutable entry in
the same transaction, with the balance after it and the next sequence number. Every posting has two sides and nets to
zero before it is written. Accounts that only pass money through (issuance, clearing) have entries and no balance
item: it would be the hottest item of all.

A step reads the accounts (``ledger_store.Ledger``), builds writes from what it read, and returns them. The
condition on the sequence number makes the read good: if anything moved in between, nothing is written, and the
runtime calls the step again.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, ClassVar, Final

from saga_runtime.errors import Conflict, Invalid, PermanentError, SagaError, TransientError
from saga_runtime.money import MAX_MINOR_UNITS, Money
from saga_runtime.protocol import LedgerAttribute
from saga_runtime.step import Write

ACCOUNT_ID_PATTERN: Final = r"^[A-Za-z0-9][A-Za-z0-9._:-]{0,63}$"
CLEARING_SHARDS: Final = 16
_ACCOUNT_ID: Final = re.compile(ACCOUNT_ID_PATTERN)
_ACCOUNT_SK: Final = "account"


class LedgerFailure(StrEnum):
    """Why a posting did not happen. ``FAILURES`` says which are permanent and which are retried."""

    INSUFFICIENT = "INSUFFICIENT"
    CAP_EXCEEDED = "CAP_EXCEEDED"
    ACCOUNT_UNKNOWN = "ACCOUNT_UNKNOWN"
    ACCOUNT_CLOSED = "ACCOUNT_CLOSED"
    CURRENCY_MISMATCH = "CURRENCY_MISMATCH"
    DUPLICATE = "DUPLICATE"
    INVALID = "INVALID"
    CONFLICT = "CONFLICT"
    THROTTLED = "THROTTLED"


class InsufficientFunds(PermanentError):
    """The account does not hold the amount."""

    code: ClassVar[str] = LedgerFailure.INSUFFICIENT


class CapExceeded(PermanentError):
    """The account may not hold that much."""

    code: ClassVar[str] = LedgerFailure.CAP_EXCEEDED


class AccountUnknown(PermanentError):
    """There is no such account."""

    code: ClassVar[str] = LedgerFailure.ACCOUNT_UNKNOWN


class AccountClosed(PermanentError):
    """The account is closed."""

    code: ClassVar[str] = LedgerFailure.ACCOUNT_CLOSED


class CurrencyMismatch(PermanentError):
    """The account is kept in another currency."""

    code: ClassVar[str] = LedgerFailure.CURRENCY_MISMATCH


class DuplicatePosting(PermanentError):
    """The entry exists: this posting was made before, under the same id."""

    code: ClassVar[str] = LedgerFailure.DUPLICATE


@dataclass(frozen=True, slots=True, kw_only=True)
class Verdict:
    """Whether a failure passes by itself, and the error that says so."""

    retryable: bool
    error: type[SagaError]


FAILURES: Final[Mapping[LedgerFailure, Verdict]] = {
    LedgerFailure.INSUFFICIENT: Verdict(retryable=False, error=InsufficientFunds),
    LedgerFailure.CAP_EXCEEDED: Verdict(retryable=False, error=CapExceeded),
    LedgerFailure.ACCOUNT_UNKNOWN: Verdict(retryable=False, error=AccountUnknown),
    LedgerFailure.ACCOUNT_CLOSED: Verdict(retryable=False, error=AccountClosed),
    LedgerFailure.CURRENCY_MISMATCH: Verdict(retryable=False, error=CurrencyMismatch),
    LedgerFailure.DUPLICATE: Verdict(retryable=False, error=DuplicatePosting),
    LedgerFailure.INVALID: Verdict(retryable=False, error=Invalid),
    LedgerFailure.CONFLICT: Verdict(retryable=True, error=Conflict),
    LedgerFailure.THROTTLED: Verdict(retryable=True, error=TransientError),
}
"""The one place that says which failures are permanent and which are retried."""


class AccountState(StrEnum):
    """States of an account."""

    OPEN = "OPEN"
    CLOSED = "CLOSED"


@dataclass(frozen=True, slots=True, kw_only=True)
class Account:
    """An account as it was read: a posting built on it is written only if it has not changed since."""

    account_id: str
    balance: Money
    state: AccountState = AccountState.OPEN
    cap: int | None = None
    sequence: int = 0

    @classmethod
    def from_item(cls, account_id: str, item: Mapping[str, Mapping[str, Any]]) -> Account:
        """Read an account's item."""
        a = LedgerAttribute
        return cls(
            account_id=account_id,
            balance=Money(int(item[a.BALANCE]["N"]), item[a.CURRENCY]["S"]),
            state=AccountState(item[a.STATE]["S"]),
            cap=int(item[a.CAP]["N"]) if a.CAP in item else None,
            sequence=int(item[a.SEQUENCE]["N"]),
        )


def check_account_id(account_id: object) -> str:
    """The account id, if it is one.

    Raises:
        Invalid: if it is blank, too long, or has characters that could be mistaken for a key's separators.
    """
    if not isinstance(account_id, str) or not _ACCOUNT_ID.fullmatch(account_id):
        raise Invalid(f"an account id must match {ACCOUNT_ID_PATTERN}, got {account_id!r}")
    return account_id


def account_key(account_id: str) -> dict[str, dict[str, str]]:
    """Primary key of an account's item."""
    a = LedgerAttribute
    return {a.PK.value: {"S": f"account#{check_account_id(account_id)}"}, a.SK.value: {"S": _ACCOUNT_SK}}


def entry_key(account_id: str, entry_id: str) -> dict[str, dict[str, str]]:
    """Primary key of an account's entry."""
    a = LedgerAttribute
    return {
        a.PK.value: {"S": f"account#{check_account_id(account_id)}"},
        a.SK.value: {"S": f"entry#{_check_entry_id(entry_id)}"},
    }


def clearing_key(name: str, entry_id: str) -> dict[str, dict[str, str]]:
    """Primary key of an entry of a clearing account. Its partitions are spread by the entry's id."""
    a = LedgerAttribute
    digest = hashlib.sha256(_check_entry_id(entry_id).encode("utf-8")).digest()
    shard = int.from_bytes(digest[:4], "big") % CLEARING_SHARDS
    return {
        a.PK.value: {"S": f"clearing#{check_account_id(name)}#{shard:02d}"},
        a.SK.value: {"S": f"entry#{entry_id}"},
    }


def _check_entry_id(entry_id: str) -> str:
    if not entry_id.strip() or len(entry_id) > 255:
        raise Invalid(f"an entry's id has 1 to 255 characters that are not all blank, got {entry_id!r}")
    return entry_id


@dataclass(frozen=True, slots=True, kw_only=True)
class LedgerBuilder:
    """Builds the writes of postings on one ledger table.

    Example:
        >>> builder = LedgerBuilder(table="ledger")
        >>> alice = Account(account_id="alice", balance=Money(500, "EUR"))
        >>> bob = Account(account_id="bob", balance=Money(0, "EUR"))
        >>> len(builder.transfer(source=alice, target=bob, amount=Money(200, "EUR"), entry_id="t-1", now_ms=1))
        4
    """

    table: str

    def open_account(
        self,
        *,
        account_id: str,
        opening: Money,
        issuance: str = "issuance",
        cap: int | None = None,
        now_ms: int,
    ) -> list[Write]:
        """Open an account; a first balance comes from the clearing account ``issuance``, so that all sums to zero.

        Raises:
            Invalid: if the opening balance is negative or above the cap.
        """
        if cap is not None and type(cap) is not int:
            raise Invalid(f"a cap is an integer of minor units, got {cap!r}")
        if opening.minor_units < 0 or (cap is not None and not opening.minor_units <= cap <= MAX_MINOR_UNITS):
            raise Invalid(f"an opening balance must be 0 or more and within the cap, got {opening} with cap {cap}")
        a = LedgerAttribute
        item = {
            **account_key(account_id),
            a.KIND.value: {"S": "account"},
            a.BALANCE.value: {"N": str(opening.minor_units)},
            a.CURRENCY.value: {"S": opening.currency},
            a.STATE.value: {"S": AccountState.OPEN.value},
            a.SEQUENCE.value: {"N": "1" if opening.minor_units else "0"},
            a.OPENED_AT.value: {"N": str(now_ms)},
        }
        if cap is not None:
            item[a.CAP.value] = {"N": str(cap)}
        writes = [self._put_new(item, lambda _: DuplicatePosting(f"account {account_id} exists"))]
        if opening.minor_units:
            entry_id = f"open#{account_id}"
            counter = Money(-opening.minor_units, opening.currency)
            writes += [
                self._account_entry(account_id, entry_id, opening, opening.minor_units, 1, issuance, now_ms),
                self._clearing_entry(issuance, entry_id, counter, account_id, now_ms),
            ]
        return writes

    def transfer(self, *, source: Account, target: Account, amount: Money, entry_id: str, now_ms: int) -> list[Write]:
        """Move an amount between two accounts of this table, both sides and both entries in one transaction.

        Returns four writes: two balances, two entries that net to zero.

        Raises:
            Invalid: if the amount is not positive, or both accounts are one.
            InsufficientFunds, CapExceeded, AccountClosed, CurrencyMismatch: what the accounts, as read, do not allow.
        """
        if source.account_id == target.account_id:
            raise Invalid(f"a transfer needs two accounts, got {source.account_id!r} twice")
        _check_amount(amount)
        debit = Money(-amount.minor_units, amount.currency)
        return [
            *self._post(source, debit, entry_id, target.account_id, now_ms),
            *self._post(target, amount, entry_id, source.account_id, now_ms),
        ]

    def debit(self, *, account: Account, amount: Money, clearing: str, entry_id: str, now_ms: int) -> list[Write]:
        """Take an amount out of an account, into a clearing account: the first half of a move between ledgers.

        Returns three writes: the balance, and two entries that net to zero.

        Raises:
            Invalid: if the amount is not positive.
            InsufficientFunds, AccountClosed, CurrencyMismatch: what the account, as read, does not allow.
        """
        _check_amount(amount)
        out = Money(-amount.minor_units, amount.currency)
        return [
            *self._post(account, out, entry_id, clearing, now_ms),
            self._clearing_entry(clearing, entry_id, amount, account.account_id, now_ms),
        ]

    def credit(self, *, account: Account, amount: Money, clearing: str, entry_id: str, now_ms: int) -> list[Write]:
        """Put an amount into an account, out of a clearing account: the second half.

        Returns three writes: the balance, and two entries that net to zero.

        Raises:
            Invalid: if the amount is not positive.
            CapExceeded, AccountClosed, CurrencyMismatch: what the account, as read, does not allow.
        """
        _check_amount(amount)
        out = Money(-amount.minor_units, amount.currency)
        return [
            *self._post(account, amount, entry_id, clearing, now_ms),
            self._clearing_entry(clearing, entry_id, out, account.account_id, now_ms),
        ]

    def refund(
        self,
        *,
        account: Account | None,
        account_id: str,
        amount: Money,
        clearing: str,
        suspense: str,
        entry_id: str,
        now_ms: int,
    ) -> list[Write]:
        """Give back what a debit took. Never refused: what the account cannot take waits in ``suspense``.

        An account that is full, closed, gone, or kept in another currency by now gets nothing; the money stands in
        the suspense account's entries, under the account's name, for a person to settle.

        Raises:
            Invalid: if the amount is not positive, or clearing and suspense are one.
        """
        _check_amount(amount)
        if clearing == suspense:
            raise Invalid(f"a refund needs two clearing accounts, got {clearing!r} twice; name suspense differently")
        if account is not None:
            try:
                return self.credit(account=account, amount=amount, clearing=clearing, entry_id=entry_id, now_ms=now_ms)
            except PermanentError:
                pass
        out = Money(-amount.minor_units, amount.currency)
        return [
            self._clearing_entry(suspense, entry_id, amount, account_id, now_ms),
            self._clearing_entry(clearing, entry_id, out, account_id, now_ms),
        ]

    def close_account(self, *, account: Account) -> list[Write]:
        """Close an account that holds nothing. A closed account takes no posting.

        Raises:
            Invalid: if it holds money.
        """
        if account.balance.minor_units:
            raise Invalid(f"account {account.account_id} holds {account.balance}; move it before closing")
        a = LedgerAttribute
        update = {
            "Update": {
                "TableName": self.table,
                "Key": account_key(account.account_id),
                "UpdateExpression": "SET #state = :closed",
                "ConditionExpression": "#sequence = :read AND #balance = :zero",
                "ExpressionAttributeNames": {
                    "#state": a.STATE.value,
                    "#sequence": a.SEQUENCE.value,
                    "#balance": a.BALANCE.value,
                },
                "ExpressionAttributeValues": {
                    ":closed": {"S": AccountState.CLOSED.value},
                    ":read": {"N": str(account.sequence)},
                    ":zero": {"N": "0"},
                },
            }
        }
        return [Write(action=update, refusal=lambda _: Conflict("an account changed between read and write"))]

    def _post(self, account: Account, amount: Money, entry_id: str, counterparty: str, now_ms: int) -> list[Write]:
        """One side: the balance (on condition that the account is as it was read) and its entry."""
        after = _balance_after(account, amount)
        a = LedgerAttribute
        sequence = account.sequence + 1
        update = {
            "Update": {
                "TableName": self.table,
                "Key": account_key(account.account_id),
                "UpdateExpression": "SET #balance = :after, #sequence = :next",
                "ConditionExpression": (
                    "#sequence = :read AND #balance = :before AND #state = :open AND #currency = :currency"
                ),
                "ExpressionAttributeNames": {
                    "#balance": a.BALANCE.value,
                    "#sequence": a.SEQUENCE.value,
                    "#state": a.STATE.value,
                    "#currency": a.CURRENCY.value,
                },
                "ExpressionAttributeValues": {
                    ":after": {"N": str(after)},
                    ":before": {"N": str(account.balance.minor_units)},
                    ":next": {"N": str(sequence)},
                    ":read": {"N": str(account.sequence)},
                    ":open": {"S": AccountState.OPEN.value},
                    ":currency": {"S": amount.currency},
                },
            }
        }
        return [
            Write(action=update, refusal=lambda _: Conflict("an account changed between read and write")),
            self._account_entry(account.account_id, entry_id, amount, after, sequence, counterparty, now_ms),
        ]

    def _account_entry(
        self, account_id: str, entry_id: str, amount: Money, after: int, sequence: int, counterparty: str, now_ms: int
    ) -> Write:
        a = LedgerAttribute
        item = {
            **entry_key(account_id, entry_id),
            **_entry_fields(entry_id, amount, counterparty, now_ms),
            a.BALANCE_AFTER.value: {"N": str(after)},
            a.SEQUENCE.value: {"N": str(sequence)},
        }
        return self._put_new(item, lambda _: DuplicatePosting(f"entry {entry_id} of account {account_id} exists"))

    def _clearing_entry(self, name: str, entry_id: str, amount: Money, counterparty: str, now_ms: int) -> Write:
        item = {**clearing_key(name, entry_id), **_entry_fields(entry_id, amount, counterparty, now_ms)}
        return self._put_new(item, lambda _: DuplicatePosting(f"entry {entry_id} of {name} exists"))

    def _put_new(self, item: dict[str, Any], refusal: Callable[[Any], SagaError]) -> Write:
        put = {
            "TableName": self.table,
            "Item": item,
            "ConditionExpression": "attribute_not_exists(#pk)",
            "ExpressionAttributeNames": {"#pk": LedgerAttribute.PK.value},
        }
        return Write(action={"Put": put}, refusal=refusal)


def _entry_fields(entry_id: str, amount: Money, counterparty: str, now_ms: int) -> dict[str, dict[str, str]]:
    a = LedgerAttribute
    return {
        a.KIND.value: {"S": "entry"},
        a.ENTRY_ID.value: {"S": entry_id},
        a.AMOUNT.value: {"N": str(amount.minor_units)},
        a.CURRENCY.value: {"S": amount.currency},
        a.COUNTERPARTY.value: {"S": counterparty},
        a.POSTED_AT.value: {"N": str(now_ms)},
    }


def _check_amount(amount: object) -> None:
    if not isinstance(amount, Money):
        raise Invalid(f"an amount must be Money, got {amount!r} ({type(amount).__name__})")
    if amount.minor_units <= 0:
        raise Invalid(f"an amount must be positive, got {amount}")


def _balance_after(account: Account, amount: Money) -> int:
    """The balance that a posting leads to.

    Raises:
        PermanentError: what the account, as it was read, does not allow.
    """
    if account.state is not AccountState.OPEN:
        raise AccountClosed(f"account {account.account_id} is {account.state.value.lower()}")
    if account.balance.currency != amount.currency:
        raise CurrencyMismatch(
            f"account {account.account_id} is kept in {account.balance.currency}, the amount is in {amount.currency}"
        )
    after = account.balance.minor_units + amount.minor_units
    if after < 0:
        raise InsufficientFunds(f"account {account.account_id} does not hold the amount")
    if account.cap is not None and amount.minor_units > 0 and after > account.cap:
        raise CapExceeded(f"account {account.account_id} may not hold that much")
    if after > MAX_MINOR_UNITS:
        raise CapExceeded(f"account {account.account_id} may not hold more than {MAX_MINOR_UNITS} minor units")
    return after
