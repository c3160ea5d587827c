"""Reads the ledger and commits to it: the edge around the pure builders."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any, Final, Protocol, TypeVar

from saga_runtime.errors import Invalid, PermanentError, TransientError
from saga_runtime.ledger.builder import LedgerBuilder
from saga_runtime.ledger.collecting import shard_of, shards_of, sweep_shard
from saga_runtime.ledger.commit import DIRECT, commit_direct
from saga_runtime.ledger.errors import AccountNotFound, DuplicatePosting, HoldClosed, HoldUnknown, InsufficientFunds
from saga_runtime.ledger.holds import HoldBuilder
from saga_runtime.ledger.items import (
    DAY_MS,
    Account,
    AccountState,
    Clearing,
    Hold,
    HoldState,
    Item,
    Key,
    Leg,
    Party,
    Shard,
    account_key,
    check_account_id,
    check_name_of_entry,
    clearing_key,
    entry_key,
    hold_key,
    window_of,
)
from saga_runtime.ledger.terms import LedgerTerms
from saga_runtime.ledger.writes import check_amount, grouped, net_of
from saga_runtime.money import Money
from saga_runtime.protocol import Env, LedgerAttribute, Metric
from saga_runtime.saga_log.write import Write
from saga_runtime.shared import aws, clock, telemetry
from saga_runtime.shared.backoff import Backoff

SUSPENSE: Final = "suspense"
_ROUNDS: Final = 5
_KEYS_AT_MOST: Final = 100
"""Of one BatchGetItem."""
_LONGEST_HOLD: Final = timedelta(days=366)


class EntryCall(Protocol):
    """Whatever names a posting and its time: a ``StepCall``, or a ``DirectEntry``."""

    @property
    def key(self) -> str:
        """Id of the posting's entries, the same for every retry."""
        ...

    @property
    def now_ms(self) -> int:
        """Time of the posting, epoch milliseconds."""
        ...


def _nets(legs: Sequence[Leg]) -> dict[str, int]:
    """Net amount of each account."""
    return {party: net_of(amounts) for party, amounts in grouped(legs).items() if isinstance(party, str)}


def _accounts_in(items: Sequence[Item]) -> dict[str, Account]:
    """Accounts by their ids."""
    ids = [item[LedgerAttribute.PK]["S"].partition("#")[2] for item in items]
    return {account_id: Account.from_item(account_id, item) for account_id, item in zip(ids, items, strict=True)}


def _each(account_ids: Sequence[str], found: Mapping[str, Account]) -> list[Account]:
    """Accounts in this order.

    Raises:
        AccountNotFound: if one does not exist.
    """
    for account_id in account_ids:
        if account_id not in found:
            raise AccountNotFound(f"account {account_id} does not exist")
    return [found[account_id] for account_id in account_ids]


def _known(hold: Hold | None, account: str, hold_id: str) -> Hold:
    if hold is None:
        raise HoldUnknown(f"account {account} has no hold {hold_id}")
    return hold


def _milliseconds(expires_in: object) -> int:
    if not isinstance(expires_in, timedelta) or not timedelta(0) < expires_in <= _LONGEST_HOLD:
        raise Invalid(f"expires_in must be a timedelta of up to {_LONGEST_HOLD.days} days, got {expires_in!r}")
    return expires_in // timedelta(milliseconds=1)


@dataclass(frozen=True, slots=True)
class DirectEntry:
    """Names a posting that no saga makes, or one that exists once, whatever saga makes it.

    The latter in a pivot, or after it: what was refunded exists, too, and would refuse the next try.

    Attributes:
        key: id of its entries: the same for every retry of the same posting.
        time_ms: time of the posting, epoch milliseconds, up to now; None: the time of each try. A collecting account
            takes nothing more in a window that was closed.

    Raises:
        Invalid: if the key is blank, too long or one of the ledger's own, or the time is ahead.
    """

    key: str
    time_ms: int | None = None

    def __post_init__(self) -> None:
        check_name_of_entry(self.key)
        if self.time_ms is not None and not (type(self.time_ms) is int and 0 <= self.time_ms <= clock.now_ms()):
            raise Invalid(
                f"time_ms of an entry must be epoch milliseconds up to now, got {self.time_ms!r}; leave it out for now"
            )

    @property
    def now_ms(self) -> int:
        """Time of the posting, epoch milliseconds."""
        return clock.now_ms() if self.time_ms is None else self.time_ms


Built = TypeVar("Built")


@dataclass(frozen=True, slots=True)
class Ledger:
    """A ledger table, seen from a function.

    Methods that take a ``call`` return writes under its key as entry id: give them to the step's ``Commit``, or,
    outside a saga, to ``commit``.

    Example::

        ledger = Ledger.from_env()

        @atomic_step
        def handler(call: StepCall) -> Commit:
            r = call.request
            amount = Money(r["amount"], r["currency"])
            return Commit(writes=ledger.transfer(call, source=r["from"], target=r["to"], amount=amount))

    Attributes:
        table: name of the table.
        terms: what the ledger declares.
    """

    table: str
    terms: LedgerTerms = field(default_factory=LedgerTerms)

    def __post_init__(self) -> None:
        table: object = self.table
        if not isinstance(table, str) or not table.strip():
            raise Invalid(f"table of a Ledger must be a table's name, got {table!r}; write Ledger.from_env()")
        if not isinstance(self.terms, LedgerTerms):
            raise Invalid(f"terms of a Ledger must be LedgerTerms(…), got {self.terms!r}")

    @classmethod
    def from_env(cls) -> Ledger:
        """The ledger that the function was given with ``LedgerTable.environment``.

        Raises:
            RuntimeError: if the function has no ledger in its environment.
        """
        table = os.environ.get(Env.LEDGER_TABLE, "")
        if not table.strip():
            raise RuntimeError(
                f"the environment variable {Env.LEDGER_TABLE} is missing; "
                "give the function environment=ledger.environment"
            )
        return cls(table, LedgerTerms.from_json(os.environ.get(Env.LEDGER_TERMS, "")))

    @property
    def builder(self) -> LedgerBuilder:
        """Pure builder of writes."""
        return LedgerBuilder(table=self.table, terms=self.terms)

    @property
    def _holds(self) -> HoldBuilder:
        return HoldBuilder(ledger=self.builder)

    # -- reading ----------------------------------------------------------------------------------------------------

    def accounts(self, *account_ids: str) -> list[Account]:
        """Read accounts strongly, in one call.

        Raises:
            AccountNotFound: if one does not exist.
            Invalid: if an id is not one.
            TransientError: if the database keeps some of the answers back.
        """
        return _each(account_ids, self._find(account_ids))

    def hold(self, account: str, hold: str) -> Hold:
        """Read a hold strongly.

        Raises:
            HoldUnknown: if the account has no hold of this id.
        """
        held, _ = self._hold_and(account, hold, ())
        return _known(held, account, hold)

    def collected(self, account: str) -> Money:
        """Amounts in a collecting account's shards, of this and the previous window.

        Read the account before, and the sum of both is never more than there was: money that is swept in between is
        missing, and never counted twice.

        Raises:
            Invalid: if the account does not collect, or collected in another unit until yesterday.
        """
        shards = self._shards(account, clock.now_ms())
        collecting = self.terms.collecting_of(account)
        if collecting is None:
            raise Invalid(f"account {account} must be a collecting account; declare LedgerTable(collecting=…)")
        return sum((shard.balance for shard in shards), Money(0, collecting.unit))

    def _find(self, account_ids: Sequence[str]) -> dict[str, Account]:
        return _accounts_in(self._read([account_key(account_id) for account_id in dict.fromkeys(account_ids)]))

    def _hold_and(self, account: str, hold: str, account_ids: Sequence[str]) -> tuple[Hold | None, dict[str, Account]]:
        """A hold and accounts in one call, not as of one moment: each is written on condition that it is as read."""
        own, a = hold_key(account, hold), LedgerAttribute
        items = self._read([own, *(account_key(account_id) for account_id in dict.fromkeys(account_ids))])
        held = [item for item in items if item[a.SK] == own[a.SK]]
        others = [item for item in items if item[a.SK] != own[a.SK]]
        return (Hold.from_item(held[0]) if held else None), _accounts_in(others)

    def _shards(self, account_id: str, now_ms: int) -> list[Shard]:
        """The shards of this and the former window that were credited."""
        account_id = check_account_id(account_id)
        collecting = self.terms.collecting_of(account_id)
        if collecting is None:
            return []
        windows = [window_of(now_ms - DAY_MS), window_of(now_ms)]
        keys = [shard.key for window in windows for shard in shards_of(collecting, account_id, window)]
        return [Shard.from_item(item) for item in self._read(keys)]

    def _read(self, keys: Sequence[Key]) -> list[Item]:
        found: list[Item] = []
        for start in range(0, len(keys), _KEYS_AT_MOST):
            found += self._read_some(keys[start : start + _KEYS_AT_MOST])
        return found

    def _read_some(self, keys: Sequence[Key]) -> list[Item]:
        found: list[Item] = []
        asked: Any = list(keys)
        for _ in range(_ROUNDS):
            answer = aws.dynamodb().batch_get_item(RequestItems={self.table: {"Keys": asked, "ConsistentRead": True}})
            found += answer["Responses"].get(self.table, [])
            unread = answer.get("UnprocessedKeys", {}).get(self.table)
            if not unread:
                return found
            asked = unread["Keys"]
        raise TransientError("the database is busy")

    # -- postings ---------------------------------------------------------------------------------------------------

    def post(self, call: EntryCall, legs: Sequence[Leg]) -> Sequence[Write]:
        """Writes of a posting: legs that net to zero in each unit, all of them or none.

        Example::

            ledger.post(call, [("alice", -price), ("merchant:7", price - fee), ("fees", fee)])

        A collecting account that receives is not read. One that gives, and does not hold enough itself, is swept first.

        Args:
            call: names the entries: each account has at most one posting under one ``call.key``.
            legs: who receives how much; negative: gives. A clearing account is ``Clearing(name)``.

        Raises:
            Invalid: if the legs do not net to zero, a unit is unknown, or there are more than 99 writes.
            DuplicatePosting: of a ``DirectEntry``, if the accounts do not allow what was posted under its key before.
            PermanentError: what the accounts do not allow.
        """
        try:
            return self._covered(
                legs, lambda known: self.builder.post(legs=legs, accounts=known, entry_id=call.key, now_ms=call.now_ms)
            )
        except Invalid:
            raise
        except PermanentError as refusal:
            # Of any other call, the row or the record of its step or request shows what happened before.
            if isinstance(call, DirectEntry):
                self._refuse_repetition(call.key, legs, refusal)
            raise

    def _refuse_repetition(self, entry_id: str, legs: Sequence[Leg], refusal: PermanentError) -> None:
        """Raise ``DuplicatePosting`` if a refused posting exists: what it did may be what refuses it now."""
        keys = [
            clearing_key(party.name, entry_id) if isinstance(party, Clearing) else entry_key(party, entry_id)
            for party in grouped(legs)
        ]
        if self._read(keys):
            raise DuplicatePosting(f"a posting under the id {entry_id} exists") from refusal

    def transfer(self, call: EntryCall, *, source: str, target: str, amount: Money) -> Sequence[Write]:
        """Writes that move ``amount`` from one account of this table to another.

        Raises:
            PermanentError: what the accounts do not allow.
        """
        check_account_id(source)
        check_account_id(target)
        if source == target:
            raise Invalid(f"a transfer needs two accounts, got {source!r} twice")
        check_amount(amount)
        return self.post(call, [(source, -amount), (target, amount)])

    def debit(self, call: EntryCall, *, account: str, amount: Money, clearing: str) -> Sequence[Write]:
        """Writes that take ``amount`` out of an account into ``clearing``.

        Raises:
            PermanentError: what the account does not allow.
        """
        check_amount(amount)
        return self.post(call, [(account, -amount), (Clearing(clearing), amount)])

    def credit(self, call: EntryCall, *, account: str, amount: Money, clearing: str) -> Sequence[Write]:
        """Writes that put ``amount`` out of ``clearing`` into an account.

        Raises:
            PermanentError: what the account does not allow.
        """
        check_amount(amount)
        return self.post(call, [(account, amount), (Clearing(clearing), -amount)])

    def refund(
        self, call: EntryCall, *, account: str, amount: Money, clearing: str, suspense: str = SUSPENSE
    ) -> Sequence[Write]:
        """Writes that give ``amount`` back out of ``clearing``; never refused: what the account cannot take waits.

        It waits in ``suspense``, and adds to ``PostedToSuspense``.
        """
        collecting, shard = self.terms.collecting_of(account), None
        if collecting is not None:
            own = shard_of(collecting, check_account_id(account), call.key, call.now_ms)
            shard = next(map(Shard.from_item, self._read([own.key])), None)
        writes, party = self.builder.refund_and_party(
            account=None if collecting is not None else self._find([account]).get(account),
            account_id=account,
            amount=amount,
            clearing=clearing,
            suspense=suspense,
            entry_id=call.key,
            now_ms=call.now_ms,
            shard=shard,
        )
        self._tell_of_suspense(party, amount)
        return writes

    def _tell_of_suspense(self, party: Party, amount: Money) -> None:
        """Count and log what is about to be posted to suspense.

        Under the table's name, not the function's: one alarm is for all functions that post. Before the commit: after a
        crash or a lost answer, no later run finds anything to count. What is planned again is counted again.
        """
        if isinstance(party, Clearing):
            telemetry.count_at(self.table, Metric.SUSPENDED)
            telemetry.event("posted_to_suspense", amount=str(amount.minor_units), unit=amount.unit.code)

    def commit(self, plan: Callable[[], Sequence[Write]], *, backoff: Backoff = DIRECT) -> bool:
        """Commit writes outside a saga, in one transaction; conflicts are tried again.

        Example::

            entry = DirectEntry("payment-77")
            ledger.commit(lambda: ledger.post(entry, legs))

        After a ``TransientError`` the posting may exist: call again with the same entry id. A posting that exists is
        refused as ``DuplicatePosting``.

        Args:
            plan: makes the writes, again for every try.
            backoff: 3 more tries by default, after 50, 100 and 200 ms and up to half as much again.

        Returns:
            Whether anything was written.

        Raises:
            PermanentError: what the accounts do not allow.
            Conflict: conflicts outlasted the tries; this call wrote nothing.
            TransientError: throttled, or no answer.
        """
        return commit_direct(plan, backoff=backoff)

    def _covered(
        self, legs: Sequence[Leg], build: Callable[[list[Account]], Built], found: Mapping[str, Account] | None = None
    ) -> Built:
        """Build on the accounts as read; sweep what a collecting account lacks, and build again.

        Args:
            legs: who receives how much.
            build: makes the writes.
            found: the accounts that exist, if they were read before.
        """
        given = _nets(legs)
        read = self._read_for(given)
        try:
            return build(self.accounts(*read) if found is None else _each(read, found))
        except InsufficientFunds:
            short = [account for account in read if given[account] < 0 and self.terms.collecting_of(account)]
            if not short:
                raise
            # Read again also if nothing moved: another sweep, or one whose answer was lost, may have moved it before.
            for account in short:
                self.sweep(account)
        return build(self.accounts(*read))

    def _read_for(self, given: Mapping[str, int]) -> list[str]:
        """The accounts of a posting that are read: all but collecting ones that receive."""
        return [account for account, net in given.items() if net <= 0 or self.terms.collecting_of(account) is None]

    # -- holds ------------------------------------------------------------------------------------------------------

    def authorize(self, call: EntryCall, *, account: str, amount: Money, expires_in: timedelta) -> Sequence[Write]:
        """Writes that hold ``amount`` of an account; ``call.key`` is the hold's id.

        What is held stays in the balance, and no debit or other hold can have it. Called again with the same key and
        amount, it writes nothing, and the first expiry stays. If the hold was voided or has expired since, it is
        refused: nothing is held any more.

        Args:
            call: names the hold.
            account: whose money.
            amount: how much.
            expires_in: how long it is held at most, up to 366 days. The sweeper releases it then.

        Raises:
            RuntimeError: if the ledger does not declare holds.
            Invalid: if ``expires_in`` is out of range.
            DuplicatePosting: if another amount is held under the key.
            HoldClosed: if the hold was voided, or its time is over.
            PermanentError: what the account does not allow.
        """
        check_amount(amount)
        if not self.terms.holds:
            raise RuntimeError("holds need the sweeper; give LedgerTable(holds=True), and the function its environment")
        expires_at = call.now_ms + _milliseconds(expires_in)
        hold = Hold(account_id=check_account_id(account), hold_id=call.key, amount=amount, expires_at=expires_at)
        existing, found = self._hold_and(account, call.key, [account])

        def build(known: list[Account]) -> list[Write]:
            return self._holds.authorize(account=known[0], hold=hold, found=existing, now_ms=call.now_ms)

        return self._covered([(account, -amount)], build, found)

    def capture(self, call: EntryCall, *, account: str, hold: str, legs: Sequence[Leg]) -> Sequence[Write]:
        """Writes that give a part of what is held, or all of it, to others, and release the rest.

        Called again with the same key, it writes nothing. A capture that comes after the hold was voided or has
        expired is refused, and adds to ``LateCapture``.

        Args:
            call: names the entries.
            account: whose money.
            hold: id of the hold: the key under which it was authorized.
            legs: who receives how much, other accounts than this one, which gives what they receive together.

        Raises:
            HoldUnknown, HoldClosed, HoldExceeded: what the hold does not allow.
            DuplicatePosting: if other legs were captured under the key.
            PermanentError: what the accounts do not allow.
        """
        existing, found = self._hold_and(account, hold, [account, *self._read_for(_nets(legs))])
        held = _known(existing, account, hold)
        others: list[Leg] = [*legs]
        try:
            return self._covered(
                [(account, -held.amount), *others],
                lambda known: self._holds.capture(
                    hold=held, legs=others, accounts=known, entry_id=call.key, now_ms=call.now_ms
                ),
                found,
            )
        except HoldClosed:
            if held.state is not HoldState.CAPTURED:
                telemetry.count(Metric.LATE_CAPTURE)
                telemetry.event("late_capture", hold=hold, entry=call.key, state=held.state)
            raise

    def void(self, call: EntryCall, *, account: str, hold: str) -> Sequence[Write]:
        """Writes that release what is held; none if it was released before.

        Raises:
            HoldUnknown: if the account has no hold of this id.
            HoldClosed: if it was captured.
        """
        return self._holds.void(hold=self.hold(account, hold), entry_id=call.key, now_ms=call.now_ms)

    def expire(self, account: str, hold: str) -> bool:
        """Release a hold whose time is over; returns whether it did. The sweeper calls it."""
        return self.commit(lambda: self._holds.expire(hold=self.hold(account, hold), now_ms=clock.now_ms()))

    # -- collecting accounts ----------------------------------------------------------------------------------------

    def sweep(self, account: str) -> bool:
        """Move what the shards of a collecting account hold to the account; returns whether anything moved.

        Each shard in a transaction of its own. Safe at any time, any number of times, several at once.

        Raises:
            TransientError: if the database is busy; call again.
        """
        shards = self._shards(account, clock.now_ms())
        swept = [self.sweep_shard(shard.key) for shard in shards if shard.balance.minor_units]
        return any(swept)

    def sweep_shard(self, key: Key) -> bool:
        """Move what one shard holds to its account, and close it if its window is over; whether anything was written.

        What the account cannot take (closed, gone, full, kept in another unit) goes to the clearing account
        ``suspense`` under the account's name, and adds to ``PostedToSuspense``.
        """
        _, account_id, _, _ = key[LedgerAttribute.PK]["S"].split("#")
        owner = account_key(account_id)

        def plan() -> Sequence[Write]:
            found = {item[LedgerAttribute.PK]["S"]: item for item in self._read([key, owner])}
            collected, account = (found.get(one[LedgerAttribute.PK]["S"]) for one in (key, owner))
            if collected is None:
                return []
            shard = Shard.from_item(collected)
            if shard.state is not AccountState.OPEN:
                return []
            writes, leg = sweep_shard(
                self.builder,
                shard=shard,
                account=None if account is None else Account.from_item(account_id, account),
                suspense=SUSPENSE,
                now_ms=clock.now_ms(),
            )
            if leg is not None:
                self._tell_of_suspense(*leg)
            return writes

        return self.commit(plan)
