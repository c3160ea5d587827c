"""The ledger: pure builders that turn postings into transaction writes.

An account is one item with its balance and a sequence number; every change of a balance writes an immutable entry in
the same transaction, with the balance after it and the next sequence number. Every posting nets to zero per unit before
it is written. Accounts that only pass money through (issuance, clearing) have entries and no balance item: it would be
the hottest item of all.

A step reads the accounts (``Ledger``), builds writes from what it read, and returns them. The
condition on the sequence number makes the read good: if anything moved in between, nothing is written, and the
runtime calls the step again.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import chain
from typing import Any

from saga_runtime.errors import Invalid, PermanentError
from saga_runtime.ledger.collecting import check_takes, credit_shard
from saga_runtime.ledger.errors import AccountNotFound, DuplicatePosting
from saga_runtime.ledger.items import (
    Account,
    AccountState,
    Clearing,
    Leg,
    Party,
    Shard,
    account_key,
    check_account_id,
    check_entry_id,
    clearing_key,
    entry_key,
    opening_id,
    unit_fields,
)
from saga_runtime.ledger.terms import LedgerTerms
from saga_runtime.ledger.writes import (
    account_update,
    changed,
    check_allows,
    check_amount,
    check_size,
    entry_put,
    grouped,
    net_of,
    put_new,
)
from saga_runtime.money import MAX_MINOR_UNITS, Money
from saga_runtime.protocol import LedgerAttribute
from saga_runtime.saga_log.write import Write
from saga_runtime.shared.expressions import update, when


@dataclass(frozen=True, slots=True, kw_only=True)
class LedgerBuilder:
    """Builds the writes of postings on one ledger table.

    Example:
        >>> builder = LedgerBuilder(table="ledger")
        >>> alice = Account(account_id="alice", balance=Money(500, "EUR"))
        >>> bob = Account(account_id="bob", balance=Money(0, "EUR"))
        >>> len(builder.transfer(source=alice, target=bob, amount=Money(200, "EUR"), entry_id="t-1", now_ms=1))
        4

    Attributes:
        table: name of the ledger's table.
        terms: what the ledger declares.
    """

    table: str
    terms: LedgerTerms = field(default_factory=LedgerTerms)

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
            Invalid: if the opening balance is negative or above the cap, its unit is unknown, or a collecting account
                is given a cap or another unit than its own.
        """
        if cap is not None and type(cap) is not int:
            raise Invalid(f"a cap is an integer of minor units, got {cap!r}")
        given: object = opening
        if not isinstance(given, Money):
            raise Invalid(f"an opening balance must be Money, got {given!r} ({type(given).__name__})")
        if opening.minor_units < 0 or (cap is not None and not opening.minor_units <= cap <= MAX_MINOR_UNITS):
            raise Invalid(f"an opening balance must be 0 or more and within the cap, got {opening} with cap {cap}")
        self.terms.check(opening.unit)
        account_id = check_account_id(account_id)
        collecting = self.terms.collecting_of(account_id)
        if collecting is not None and (cap is not None or opening.unit != collecting.unit):
            raise Invalid(
                f"a collecting account must be kept in {collecting.unit.code} and have no cap, got {account_id!r} in "
                f"{opening.currency} with cap {cap}"
            )
        a = LedgerAttribute
        item = {
            **account_key(account_id),
            a.KIND: {"S": "account"},
            a.BALANCE: {"N": str(opening.minor_units)},
            a.HELD: {"N": "0"},
            **unit_fields(opening.unit),
            a.STATE: {"S": AccountState.OPEN},
            a.SEQUENCE: {"N": "1" if opening.minor_units else "0"},
            a.OPENED_AT: {"N": str(now_ms)},
        }
        if cap is not None:
            item[a.CAP] = {"N": str(cap)}
        writes = [put_new(self.table, item, lambda _: DuplicatePosting(f"account {account_id} exists"))]
        if opening.minor_units:
            common: Any = {"entry_id": opening_id(account_id), "now_ms": now_ms}
            key = entry_key(account_id, common["entry_id"])
            after = (opening.minor_units, 1)
            writes.append(entry_put(self.table, key, amount=opening, counterparty=issuance, after=after, **common))
            writes += self.clearing_side(Clearing(issuance), [-opening], counterparty=account_id, **common)
        return writes

    def post(
        self,
        *,
        legs: Sequence[Leg],
        accounts: Iterable[Account],
        entry_id: str,
        now_ms: int,
        counterparty: str | None = None,
        release: Mapping[str, int] | None = None,
    ) -> list[Write]:
        """Write legs that net to zero per unit: one write per account, and an entry for each leg.

        Args:
            legs: who receives how much; negative: gives. Two legs may be on one account.
            accounts: the accounts as they were read; none of collecting accounts that receive more than they give.
            entry_id: id of all entries. It posts once: an account has at most one posting under it.
            now_ms: time of the posting, epoch milliseconds.
            counterparty: what each entry names; by default the other accounts of the posting in its unit.
            release: by account id, minor units that the posting releases of its holds.

        Raises:
            Invalid: if the legs do not net to zero, a unit is unknown, or there are more than 99 writes.
            PermanentError: what the accounts, as read, do not allow.
        """
        parties = grouped(legs)
        for amount in chain(*parties.values()):
            self.terms.check(amount.unit)
        return self._post(parties, accounts, entry_id, now_ms, counterparty, release)

    def _post(
        self,
        parties: Mapping[Party, list[Money]],
        accounts: Iterable[Account],
        entry_id: str,
        now_ms: int,
        counterparty: str | None = None,
        release: Mapping[str, int] | None = None,
    ) -> list[Write]:
        """Writes of a posting in whatever units."""
        _check_nets(parties)
        entry_id = check_entry_id(entry_id)
        known: Mapping[Party, Account] = {account.account_id: account for account in accounts}
        writes: list[Write] = []
        # Shards come last: the first refused write decides, and the entry of a party that gives shows a repetition. A
        # credit of a shard follows the window of the posting's time, which may be closed by then.
        for party, amounts in sorted(
            parties.items(), key=lambda side: isinstance(side[0], str) and side[0] not in known
        ):
            others = [
                other.name if isinstance(other, Clearing) else other
                for other, theirs in parties.items()
                if other != party and any(amount.unit == amounts[0].unit for amount in theirs)
            ]
            writes += self._side(
                party,
                amounts,
                known.get(party),
                release=(release or {}).get(party, 0) if isinstance(party, str) else 0,
                counterparty=",".join(others) if counterparty is None else counterparty,
                entry_id=entry_id,
                now_ms=now_ms,
            )
        check_size(writes)
        return writes

    def _side(
        self, party: Party, amounts: Sequence[Money], account: Account | None, *, release: int, **common: Any
    ) -> list[Write]:
        if isinstance(party, Clearing):
            return self.clearing_side(party, amounts, **common)
        collecting = self.terms.collecting_of(party)
        if account is None and collecting is not None and net_of(amounts) > 0:
            return credit_shard(self.table, collecting, party, amounts, **common)
        if account is None:
            raise AccountNotFound(f"account {party} does not exist")
        return self.account_side(account, amounts, release=release, **common)

    def clearing_side(
        self, clearing: Clearing, amounts: Sequence[Money], *, counterparty: str, entry_id: str, now_ms: int
    ) -> list[Write]:
        """A clearing account's side of a posting: an entry for each amount."""
        return [
            entry_put(
                self.table,
                clearing_key(clearing.name, entry_id, number),
                entry_id=entry_id,
                amount=amount,
                counterparty=counterparty,
                now_ms=now_ms,
            )
            for number, amount in enumerate(amounts, start=1)
        ]

    def account_side(
        self,
        account: Account,
        amounts: Sequence[Money],
        *,
        counterparty: str,
        entry_id: str,
        now_ms: int,
        release: int = 0,
    ) -> list[Write]:
        """An account's side of a posting: its balance, and an entry for each amount.

        Raises:
            PermanentError: what the account, as read, does not allow.
        """
        after = check_allows(account, amounts, released=release)
        writes = [account_update(self.table, account, after=after, entries=len(amounts), held=account.held - release)]
        # What is received comes first: no balance between two entries is below zero.
        balance, ordered = account.balance.minor_units, sorted(amounts, key=lambda amount: amount.minor_units < 0)
        for number, amount in enumerate(ordered, start=1):
            balance += amount.minor_units
            put = entry_put(
                self.table,
                entry_key(account.account_id, entry_id, number),
                entry_id=entry_id,
                amount=amount,
                counterparty=counterparty,
                now_ms=now_ms,
                after=(balance, account.sequence + number),
            )
            writes.append(put)
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
        check_amount(amount)
        legs: list[Leg] = [(source.account_id, -amount), (target.account_id, amount)]
        return self.post(legs=legs, accounts=[source, target], entry_id=entry_id, now_ms=now_ms)

    def debit(self, *, account: Account, amount: Money, clearing: str, entry_id: str, now_ms: int) -> list[Write]:
        """Take an amount out of an account, into a clearing account: the first half of a move between ledgers.

        Returns three writes: the balance, and two entries that net to zero.

        Raises:
            Invalid: if the amount is not positive.
            InsufficientFunds, AccountClosed, CurrencyMismatch: what the account, as read, does not allow.
        """
        check_amount(amount)
        legs: list[Leg] = [(account.account_id, -amount), (Clearing(clearing), amount)]
        return self.post(legs=legs, accounts=[account], entry_id=entry_id, now_ms=now_ms)

    def credit(self, *, account: Account, amount: Money, clearing: str, entry_id: str, now_ms: int) -> list[Write]:
        """Put an amount into an account, out of a clearing account: the second half.

        Returns three writes: the balance, and two entries that net to zero.

        Raises:
            Invalid: if the amount is not positive.
            CapExceeded, AccountClosed, CurrencyMismatch: what the account, as read, does not allow.
        """
        check_amount(amount)
        legs: list[Leg] = [(account.account_id, amount), (Clearing(clearing), -amount)]
        return self.post(legs=legs, accounts=[account], entry_id=entry_id, now_ms=now_ms)

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

        An account that is full, closed, gone, or kept in another unit by now gets nothing; the money is posted to
        the suspense account's entries, under the account's name, for a person to settle. A unit that the ledger no
        longer declares is given back as one that it does.

        Nothing is counted: ``Ledger.refund`` adds what waits to ``PostedToSuspense``.

        Raises:
            Invalid: if the amount is not positive, or clearing and suspense are one.
        """
        writes, _ = self.refund_and_party(
            account=account,
            account_id=account_id,
            amount=amount,
            clearing=clearing,
            suspense=suspense,
            entry_id=entry_id,
            now_ms=now_ms,
        )
        return writes

    def refund_and_party(
        self,
        *,
        account: Account | None,
        account_id: str,
        amount: Money,
        clearing: str,
        suspense: str,
        entry_id: str,
        now_ms: int,
        shard: Shard | None = None,
    ) -> tuple[list[Write], Party]:
        """Make the writes of ``refund``, and name who receives the amount: the account, or ``Clearing(suspense)``.

        Of a collecting account, ``shard`` is what takes the amount, as it was read; None: nothing was credited to it.

        Raises:
            Invalid: if the amount is not positive, or clearing and suspense are one.
        """
        check_amount(amount)
        if clearing == suspense:
            raise Invalid(f"a refund needs two clearing accounts, got {clearing!r} twice; name suspense differently")
        out: Leg = (Clearing(clearing), -amount)
        try:
            if shard is not None:
                check_takes(shard, amount)
            parties = grouped([(account_id, amount), out])
            return self._post(parties, [account] if account else [], entry_id, now_ms), account_id
        except PermanentError:
            waits = Clearing(suspense)
            return self._post(grouped([(waits, amount), out]), [], entry_id, now_ms, counterparty=account_id), waits

    def close_account(self, *, account: Account) -> list[Write]:
        """Close an account that holds nothing. A closed account takes no posting.

        What a collecting account's shards still receive goes to suspense when they are swept.

        Raises:
            Invalid: if it holds money.
        """
        if account.balance.minor_units:
            raise Invalid(f"account {account.account_id} holds {account.balance}; move it before closing")
        empty = when("#sequence = :read AND #balance = :zero", read={"N": str(account.sequence)}, zero={"N": "0"})
        change = update(empty, {LedgerAttribute.STATE: {"S": AccountState.CLOSED}})
        action = {"Update": {"TableName": self.table, "Key": account_key(account.account_id), **change}}
        return [Write(action=action, refusal=changed)]


def _check_nets(parties: Mapping[Party, Sequence[Money]]) -> None:
    sums: dict[str, int] = defaultdict(int)
    for party, amounts in parties.items():
        for amount in amounts:
            sums[amount.unit.code] += amount.minor_units
        if isinstance(party, str) and len({amount.unit for amount in amounts}) > 1:
            raise Invalid(f"legs of account {party} must be in one unit, got {', '.join(map(str, amounts))}")
    wrong = {code: total for code, total in sums.items() if total}
    legs = sum(map(len, parties.values()))
    if wrong or legs < 2:
        found = ", ".join(f"{total:+} {code}" for code, total in wrong.items()) or f"{legs} legs"
        raise Invalid(f"legs of a posting must net to zero in each unit, got {found}")
