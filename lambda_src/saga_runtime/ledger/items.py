"""Items of a ledger's table: accounts, entries, holds and collecting shards; their keys and their ids."""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from enum import StrEnum
from typing import Any, Final

from saga_runtime.errors import Invalid
from saga_runtime.money import Money, Unit
from saga_runtime.protocol import LEDGER_DUE_SHARDS, LedgerAttribute

ACCOUNT_ID_PATTERN: Final = r"^[A-Za-z0-9][A-Za-z0-9._:-]{0,63}$"
"""Pattern of an account's id."""
CLEARING_SHARDS: Final = 16
DAY_MS: Final = 86_400_000
CLOSES_AFTER_MS: Final = 900_000
"""A shard is closed this long after its window: no invocation that planned within the window lives longer."""
_ACCOUNT_ID: Final = re.compile(ACCOUNT_ID_PATTERN)
_ACCOUNT_SK: Final = "account"
_SHARD_SK: Final = "shard"
_OPENING: Final = "open#"
SWEEP: Final = "sweep#"
"""With it the ids of entries begin that a sweep posts."""
_OWN_ENTRIES: Final = (_OPENING, SWEEP)

Item = Mapping[str, Mapping[str, Any]]
Key = dict[str, dict[str, str]]


class AccountState(StrEnum):
    """States of an account, and of a collecting shard."""

    OPEN = "OPEN"
    CLOSED = "CLOSED"


class HoldState(StrEnum):
    """States of a hold. Only ``OPEN`` ever changes."""

    OPEN = "OPEN"
    CAPTURED = "CAPTURED"
    VOIDED = "VOIDED"
    EXPIRED = "EXPIRED"


@dataclass(frozen=True, slots=True, kw_only=True)
class Account:
    """An account as it was read: a posting built on it is written only if it has not changed since.

    Attributes:
        account_id: its id.
        balance: what it holds. Of a collecting account, without what its shards hold.
        state: whether it takes postings.
        cap: the most that it may hold, in minor units; None: no limit.
        sequence: number of its entries.
        held: sum of its open holds, in minor units: part of the balance, and not available.
    """

    account_id: str
    balance: Money
    state: AccountState = AccountState.OPEN
    cap: int | None = None
    sequence: int = 0
    held: int = 0

    @property
    def available(self) -> int:
        """Amount that may be debited or held, in minor units."""
        return self.balance.minor_units - self.held

    @classmethod
    def from_item(cls, account_id: str, item: Item) -> Account:
        """Read an account's item."""
        a = LedgerAttribute
        return cls(
            account_id=account_id,
            balance=_money(item, a.BALANCE),
            state=AccountState(item[a.STATE]["S"]),
            cap=int(item[a.CAP]["N"]) if a.CAP in item else None,
            sequence=int(item[a.SEQUENCE]["N"]),
            held=int(item[a.HELD]["N"]),
        )


@dataclass(frozen=True, slots=True)
class Clearing:
    """A clearing account: it has entries and no balance, and nothing is refused by it.

    Args:
        name: an account id.
    """

    name: str

    def __post_init__(self) -> None:
        object.__setattr__(self, "name", check_account_id(self.name))


Party = str | Clearing
"""Whose leg it is: an account, by its id, or a clearing account."""
Leg = tuple[Party, Money]
"""What an account receives; negative: what it gives."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Hold:
    """An amount of an account that is held for a later capture.

    Attributes:
        account_id: the account.
        hold_id: the entry id of its authorization.
        amount: what is held.
        expires_at: when it expires, epoch milliseconds.
        state: whether it is still held, or how it was closed.
        closed_by: entry id of its capture or void; None while it is open, and if it has expired.
        captured: minor units that were captured.
        legs: digest of the legs of its capture; None: it was not captured.
    """

    account_id: str
    hold_id: str
    amount: Money
    expires_at: int
    state: HoldState = HoldState.OPEN
    closed_by: str | None = None
    captured: int = 0
    legs: str | None = None

    @classmethod
    def from_item(cls, item: Item) -> Hold:
        """Read a hold's item."""
        a = LedgerAttribute
        return cls(
            account_id=item[a.PK]["S"].partition("#")[2],
            hold_id=item[a.HOLD_ID]["S"],
            amount=_money(item, a.AMOUNT),
            expires_at=int(item[a.EXPIRES_AT]["N"]),
            state=HoldState(item[a.STATE]["S"]),
            closed_by=item[a.CLOSED_BY]["S"] if a.CLOSED_BY in item else None,
            captured=int(item[a.CAPTURED]["N"]) if a.CAPTURED in item else 0,
            legs=item[a.LEGS]["S"] if a.LEGS in item else None,
        )

    def item(self, now_ms: int) -> dict[str, dict[str, str]]:
        """The item of a hold that is made now."""
        a = LedgerAttribute
        return {
            **hold_key(self.account_id, self.hold_id),
            a.KIND: {"S": "hold"},
            a.HOLD_ID: {"S": self.hold_id},
            a.AMOUNT: {"N": str(self.amount.minor_units)},
            **unit_fields(self.amount.unit),
            a.STATE: {"S": self.state},
            a.OPENED_AT: {"N": str(now_ms)},
            a.EXPIRES_AT: {"N": str(self.expires_at)},
            **due_fields(self.hold_id, self.expires_at),
        }


@dataclass(frozen=True, slots=True, kw_only=True)
class Shard:
    """A collecting account's shard of one window, as it was read.

    Attributes:
        account_id: the account that it collects for.
        window: day in UTC, ``2026-11-22``.
        number: which of the window's shards.
        balance: what it holds.
        sequence: number of its entries.
        state: whether it takes credits.
    """

    account_id: str
    window: str
    number: int
    balance: Money
    sequence: int = 0
    state: AccountState = AccountState.OPEN

    @property
    def due_at(self) -> int:
        """When it may be closed, epoch milliseconds."""
        return closes_at(self.window)

    @property
    def key(self) -> Key:
        """Its primary key."""
        a = LedgerAttribute
        return {a.PK: {"S": self.partition}, a.SK: {"S": _SHARD_SK}}

    @property
    def partition(self) -> str:
        """Partition key of the shard and of its entries."""
        return f"collecting#{self.account_id}#{self.window}#{self.number:02d}"

    @classmethod
    def from_item(cls, item: Item) -> Shard:
        """Read a shard's item."""
        a = LedgerAttribute
        _, account_id, window, number = item[a.PK]["S"].split("#")
        return cls(
            account_id=account_id,
            window=window,
            number=int(number),
            balance=_money(item, a.BALANCE),
            sequence=int(item[a.SEQUENCE]["N"]),
            state=AccountState(item[a.STATE]["S"]),
        )


def window_of(now_ms: int) -> str:
    """The window of a moment: its day in UTC."""
    return datetime.fromtimestamp(now_ms // 1_000, UTC).date().isoformat()


def closes_at(window: str) -> int:
    """When the shards of a window may be closed, epoch milliseconds."""
    begins = datetime.fromisoformat(f"{window}T00:00:00+00:00")
    return int(begins.timestamp()) * 1_000 + DAY_MS + CLOSES_AFTER_MS


def check_account_id(account_id: object) -> str:
    """The account id, if it is one: of a member of an enumeration its value, which is not its text in a key.

    Raises:
        Invalid: if it is blank, too long, or has characters that could be mistaken for a key's separators.
    """
    if not isinstance(account_id, str) or not _ACCOUNT_ID.fullmatch(account_id):
        raise Invalid(f"an account id must match {ACCOUNT_ID_PATTERN}, got {account_id!r}")
    return str.__str__(account_id)


def check_entry_id(entry_id: object) -> str:
    """The id of an entry or a hold, if it is one, as that of an account.

    Raises:
        Invalid: if it is blank or too long.
    """
    if not isinstance(entry_id, str) or not entry_id.strip() or not _fits(entry_id):
        raise Invalid(f"an entry's id must have 1 to 255 bytes of UTF-8 that are not all blank, got {entry_id!r}")
    return str.__str__(entry_id)


def _fits(entry_id: str) -> bool:
    """A sort key has at most 1,024 bytes, and the ids of sagas' entries are far shorter."""
    try:
        return len(entry_id.encode("utf-8")) <= 255
    except UnicodeEncodeError:
        return False


def check_name_of_entry(entry_id: object) -> str:
    """The id that a caller gives entries, if it is not reserved for the ledger.

    Raises:
        Invalid: if it is blank, too long, or could be the id of an opening or a sweep.
    """
    known = check_entry_id(entry_id)
    if known.startswith(_OWN_ENTRIES):
        raise Invalid(
            f"an entry's id must not begin with {' or '.join(_OWN_ENTRIES)}, got {known!r}; put a word before it"
        )
    return known


def opening_id(account_id: str) -> str:
    """Id of the entries that open an account."""
    return f"{_OPENING}{account_id}"


def sweep_id(shard: Shard) -> str:
    """Id of the entries of the sweep that takes what a shard holds, as it was read."""
    return f"{SWEEP}{shard.partition}#{shard.sequence}"


def account_key(account_id: str) -> Key:
    """Primary key of an account's item."""
    a = LedgerAttribute
    return {a.PK: {"S": f"account#{check_account_id(account_id)}"}, a.SK: {"S": _ACCOUNT_SK}}


def hold_key(account_id: str, hold_id: str) -> Key:
    """Primary key of a hold."""
    a = LedgerAttribute
    return {**account_key(account_id), a.SK: {"S": f"hold#{check_entry_id(hold_id)}"}}


def entry_key(account_id: str, entry_id: str, number: int = 1) -> Key:
    """Primary key of an account's entry; ``number`` counts the entries of one posting on the account."""
    return _entry_of(f"account#{check_account_id(account_id)}", entry_id, number)


def clearing_key(name: str, entry_id: str, number: int = 1) -> Key:
    """Primary key of an entry of a clearing account. Its partitions are spread by the entry's id."""
    shard = spread(check_entry_id(entry_id), CLEARING_SHARDS)
    return _entry_of(f"clearing#{check_account_id(name)}#{shard:02d}", entry_id, number)


def shard_entry_key(shard: Shard, entry_id: str, number: int = 1) -> Key:
    """Primary key of an entry of a collecting shard."""
    return _entry_of(shard.partition, entry_id, number)


def _entry_of(partition: str, entry_id: str, number: int) -> Key:
    # The number comes first: no other id can be mistaken for the second entry of this one.
    kind = "entry" if number == 1 else f"entry{number}"
    return {
        LedgerAttribute.PK: {"S": partition},
        LedgerAttribute.SK: {"S": f"{kind}#{check_entry_id(entry_id)}"},
    }


def unit_fields(unit: Unit) -> dict[str, dict[str, str]]:
    """Attributes of a unit, next to an amount."""
    a = LedgerAttribute
    return {a.CURRENCY: {"S": unit.code}, a.PLACES: {"N": str(unit.places)}}


def due_fields(name: str, due_at: int) -> dict[str, dict[str, str]]:
    """Attributes of an item in the index of due items."""
    a = LedgerAttribute
    return {
        a.DUE_SHARD: {"S": f"{spread(name, LEDGER_DUE_SHARDS):02d}"},
        a.DUE_AT: {"N": str(due_at)},
    }


def digest_of(legs: Iterable[Leg]) -> str:
    """Digest of legs, in whatever order."""
    each = sorted(
        [f"clearing#{party.name}" if isinstance(party, Clearing) else party, amount.currency, amount.minor_units]
        for party, amount in legs
    )
    return hashlib.sha256(json.dumps(each).encode("utf-8")).hexdigest()


def spread(name: str, shards: int) -> int:
    """The shard of a name: the same for ever."""
    return int.from_bytes(hashlib.sha256(name.encode("utf-8")).digest()[:4], "big") % shards


def _money(item: Item, amount: LedgerAttribute) -> Money:
    """An amount as it is stored. A unit whose places have changed since is refused, not misread."""
    a = LedgerAttribute
    return Money(int(item[amount]["N"]), Unit(item[a.CURRENCY]["S"], int(item[a.PLACES]["N"])))
