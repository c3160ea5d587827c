"""Holds: an amount is authorized, and captured or released later. Pure.

An authorization raises what the account holds for others (``held``) and makes the hold's item; nothing moves. A capture
posts at most what is held and releases the rest. A void and the expiry release all of it. Each of them changes hold and
account in one transaction, on condition that the hold is open: so exactly one of them closes it, whatever comes late,
twice, or at once.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Final

from saga_runtime.errors import Invalid
from saga_runtime.ledger.builder import LedgerBuilder
from saga_runtime.ledger.errors import DuplicatePosting, HoldClosed, HoldExceeded, InsufficientFunds
from saga_runtime.ledger.items import Account, Hold, HoldState, Leg, account_key, check_entry_id, digest_of, hold_key
from saga_runtime.ledger.writes import account_update, changed, check_amount, check_open, check_size, grouped, put_new
from saga_runtime.money import Money
from saga_runtime.protocol import LedgerAttribute
from saga_runtime.saga_log.write import Write
from saga_runtime.shared.expressions import update, when

_RELEASED: Final = (HoldState.VOIDED, HoldState.EXPIRED)
_Fields = dict[LedgerAttribute, dict[str, str]]


@dataclass(frozen=True, slots=True, kw_only=True)
class HoldBuilder:
    """Builds the writes of holds.

    Example:
        >>> holds = HoldBuilder(ledger=LedgerBuilder(table="ledger"))
        >>> alice = Account(account_id="alice", balance=Money(500, "EUR"))
        >>> hold = Hold(account_id="alice", hold_id="h-1", amount=Money(200, "EUR"), expires_at=2)
        >>> len(holds.authorize(account=alice, hold=hold, found=None, now_ms=1))
        2

    Attributes:
        ledger: builds the postings of captures.
    """

    ledger: LedgerBuilder

    def authorize(self, *, account: Account, hold: Hold, found: Hold | None, now_ms: int) -> list[Write]:
        """Hold an amount. Repeated under one id while it is held, or was captured, it writes nothing.

        Args:
            account: the account as it was read.
            hold: what to hold.
            found: the hold that was read under this id, if there is one.
            now_ms: the time, epoch milliseconds.

        Raises:
            Invalid: if the amount is not positive, or the expiry is not in the future.
            DuplicatePosting: if another amount is held under this id.
            HoldClosed: if the hold of this id was voided, or its time is over.
            InsufficientFunds, AccountClosed, CurrencyMismatch: what the account, as read, does not allow.
        """
        check_amount(hold.amount)
        check_entry_id(hold.hold_id)
        self.ledger.terms.check(hold.amount.unit)
        if found is not None:
            if found.amount != hold.amount:
                raise DuplicatePosting(f"hold {hold.hold_id} of account {hold.account_id} holds another amount")
            if found.state is not HoldState.CAPTURED:
                _check_held(found, now_ms)
            return []
        if hold.expires_at <= now_ms:
            raise Invalid(f"expires_at of a hold must be later than {now_ms}, got {hold.expires_at}")
        check_open(account, hold.amount)
        if account.available < hold.amount.minor_units:
            raise InsufficientFunds(f"account {account.account_id} does not hold the amount")
        update = account_update(
            self.ledger.table,
            account,
            after=account.balance.minor_units,
            entries=0,
            held=account.held + hold.amount.minor_units,
        )
        return [put_new(self.ledger.table, hold.item(now_ms), changed), update]

    def capture(
        self, *, hold: Hold, legs: Sequence[Leg], accounts: Iterable[Account], entry_id: str, now_ms: int
    ) -> list[Write]:
        """Post at most what is held to others, and release the rest. Repeated under one id, it writes nothing.

        Args:
            hold: the hold as it was read.
            legs: who receives how much. The account that holds gives what they receive together in its unit; in other
                units they net to zero.
            accounts: the account that holds and those of the legs, as they were read.
            entry_id: id of the entries.
            now_ms: the time, epoch milliseconds.

        Raises:
            DuplicatePosting: if other legs were captured under this id.
            HoldClosed: if the hold was captured under another id, was voided, or its time is over.
            HoldExceeded: if the legs receive more than is held.
            Invalid: if they receive nothing in the hold's unit, one is of the account that holds, or there are more
                than 99 writes.
            PermanentError: what the accounts, as read, do not allow.
        """
        if hold.account_id in grouped(legs):
            raise Invalid(
                f"legs of a capture must be of other accounts than the one that holds, got {hold.account_id!r}; leave "
                "that leg out"
            )
        captured = Money(
            sum(amount.minor_units for _, amount in legs if amount.unit == hold.amount.unit), hold.amount.unit
        )
        if captured.minor_units <= 0:
            raise Invalid(f"a capture must be of more than zero, got {captured}; void the hold to release all of it")
        if hold.state is HoldState.CAPTURED and hold.closed_by == entry_id:
            if hold.legs != digest_of(legs):
                raise DuplicatePosting(f"hold {hold.hold_id} was captured with other legs under the id {entry_id}")
            return []
        _check_held(hold, now_ms)
        if captured.minor_units > hold.amount.minor_units:
            raise HoldExceeded(f"hold {hold.hold_id} holds {hold.amount}, the capture is of {captured}")
        posting = self.ledger.post(
            legs=[(hold.account_id, -captured), *legs],
            accounts=accounts,
            entry_id=entry_id,
            now_ms=now_ms,
            release={hold.account_id: hold.amount.minor_units},
        )
        took: _Fields = {
            LedgerAttribute.CAPTURED: {"N": str(captured.minor_units)},
            LedgerAttribute.LEGS: {"S": digest_of(legs)},
        }
        writes = [self._close(hold, HoldState.CAPTURED, now_ms, entry_id, took), *posting]
        check_size(writes)
        return writes

    def void(self, *, hold: Hold, entry_id: str, now_ms: int) -> list[Write]:
        """Release what is held. Of a hold that was released before, it writes nothing.

        Raises:
            HoldClosed: if the hold was captured.
        """
        if hold.state in _RELEASED:
            return []
        if hold.state is HoldState.CAPTURED:
            raise HoldClosed(f"hold {hold.hold_id} is captured")
        return [self._close(hold, HoldState.VOIDED, now_ms, check_entry_id(entry_id)), self._release(hold)]

    def expire(self, *, hold: Hold, now_ms: int) -> list[Write]:
        """Release what is held, if its time is over."""
        if hold.state is not HoldState.OPEN or now_ms < hold.expires_at:
            return []
        return [self._close(hold, HoldState.EXPIRED, now_ms), self._release(hold)]

    def _close(
        self, hold: Hold, state: HoldState, now_ms: int, closed_by: str | None = None, more: _Fields | None = None
    ) -> Write:
        a = LedgerAttribute
        fields: _Fields = {a.STATE: {"S": state}, a.CLOSED_AT: {"N": str(now_ms)}, **(more or {})}
        if closed_by is not None:
            fields[a.CLOSED_BY] = {"S": closed_by}
        change = update(when("#state = :open", open={"S": HoldState.OPEN}), fields, removes=(a.DUE_SHARD, a.DUE_AT))
        key = hold_key(hold.account_id, hold.hold_id)
        return Write(action={"Update": {"TableName": self.ledger.table, "Key": key, **change}}, refusal=changed)

    def _release(self, hold: Hold) -> Write:
        """The account no longer holds the amount. The open hold vouches that it does."""
        holds = when("#held >= :amount", amount={"N": str(hold.amount.minor_units)})
        change = update(holds, {LedgerAttribute.HELD: "#held - :amount"})
        key = account_key(hold.account_id)
        return Write(action={"Update": {"TableName": self.ledger.table, "Key": key, **change}}, refusal=changed)


def _check_held(hold: Hold, now_ms: int) -> None:
    """Refuse a hold that is closed, or whose time is over, swept or not.

    Raises:
        HoldClosed: if it is.
    """
    if hold.state is not HoldState.OPEN:
        raise HoldClosed(f"hold {hold.hold_id} is {hold.state.lower()}")
    if now_ms >= hold.expires_at:
        raise HoldClosed(f"hold {hold.hold_id} is expired")
