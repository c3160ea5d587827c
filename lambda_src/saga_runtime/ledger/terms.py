"""Units of a ledger besides currencies, and its collecting accounts. Declared once, on the ``LedgerTable``."""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from itertools import pairwise
from typing import Final

from saga_runtime.errors import Invalid
from saga_runtime.money import Unit, unit_of
from saga_runtime.protocol import LedgerTermsField

MAX_SHARDS: Final = 64
_PREFIX: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9._:-]{0,62}")


def _is_prefix(value: object) -> bool:
    return isinstance(value, str) and _PREFIX.fullmatch(value) is not None


@dataclass(frozen=True, slots=True, kw_only=True, init=False)
class CollectingAccounts:
    """Accounts that many postings credit at once: all whose ids begin with a prefix.

    Credits of such an account are spread over shards and reach the account when the sweeper has run. Debits and holds
    use the account itself. The account has one unit, and no cap: no single item knows its sum.

    Args:
        prefix: how the accounts' ids begin, ``merchant:`` for instance.
        unit: the unit that all of them are kept in: an ISO 4217 code, or a ``Unit``.
        shards: 1 to 64. Raise it at any time. After lowering it, the amounts in the former shards are part of the
            account only when they were swept.

    Raises:
        Invalid: for a prefix, a unit or a number of shards that is not of that form.
    """

    prefix: str
    unit: Unit
    shards: int

    def __init__(self, *, prefix: str, unit: Unit | str, shards: int = 16) -> None:
        if not _is_prefix(prefix):
            raise Invalid(f"prefix of collecting accounts must match {_PREFIX.pattern}, got {prefix!r}")
        if type(shards) is not int or not 1 <= shards <= MAX_SHARDS:
            raise Invalid(f"shards of {prefix} must be an integer of 1 to {MAX_SHARDS}, got {shards!r}")
        object.__setattr__(self, "prefix", prefix)
        object.__setattr__(self, "unit", unit_of(unit))
        object.__setattr__(self, "shards", shards)


@dataclass(frozen=True, slots=True, kw_only=True)
class LedgerTerms:
    """Units, collecting accounts and holds of one ledger.

    Attributes:
        units: units in addition to the ISO 4217 currencies.
        collecting: accounts that collect.
        holds: whether amounts may be held.

    Raises:
        Invalid: if a type is wrong, two units have one code, two prefixes match one account, or a collecting account's
            unit is unknown.
    """

    units: tuple[Unit, ...] = ()
    collecting: tuple[CollectingAccounts, ...] = ()
    holds: bool = False

    def __post_init__(self) -> None:
        for name, given in (("units", self.units), ("collecting", self.collecting)):
            if not isinstance(given, tuple):
                raise Invalid(f"{name} of a ledger must be a tuple, got {given!r}; write LedgerTerms({name}=(…,))")
        for accounts in self.collecting:
            if not isinstance(accounts, CollectingAccounts):
                raise Invalid(f"collecting of a ledger must be CollectingAccounts(…), got {accounts!r}")
        if not isinstance(self.holds, bool):
            raise Invalid(f"holds of a ledger must be True or False, got {self.holds!r}")
        for unit in self.units:
            if not isinstance(unit, Unit):
                raise Invalid(f"units of a ledger must be Unit(code, places), got {unit!r}")
        codes = [unit.code for unit in self.units]
        if len(codes) != len(set(codes)):
            raise Invalid(f"units of a ledger must have different codes, got {', '.join(codes)}")
        prefixes = sorted(accounts.prefix for accounts in self.collecting)
        for one, next_one in pairwise(prefixes):
            if next_one.startswith(one):
                raise Invalid(
                    f"prefixes of collecting accounts must not begin with one another, got {one!r} and {next_one!r}"
                )
        for accounts in self.collecting:
            self.check(accounts.unit)

    @property
    def need_sweeper(self) -> bool:
        """True if there is anything that becomes due."""
        return self.holds or bool(self.collecting)

    def check(self, unit: Unit) -> None:
        """Refuse a unit that the ledger does not know.

        Raises:
            Invalid: if it is neither a currency nor declared, or was declared with other places.
        """
        if not unit.is_currency and unit not in self.units:
            known = ", ".join(f"{one.code} with {one.places} places" for one in self.units) or "none"
            raise Invalid(
                f"the unit of an amount must be an ISO 4217 currency or declared by the ledger ({known}), got "
                f"{unit.code} with {unit.places} places; give LedgerTable(units=…)"
            )

    def unit(self, code: str) -> Unit:
        """The unit of a code that a request names.

        Raises:
            Invalid: if the ledger does not know it.
        """
        for unit in self.units:
            if unit.code == code:
                return unit
        return unit_of(code)

    def collecting_of(self, account_id: str) -> CollectingAccounts | None:
        """Collecting settings of an account; None: it does not collect."""
        return next((one for one in self.collecting if account_id.startswith(one.prefix)), None)

    def to_json(self) -> str:
        """Value of ``Env.LEDGER_TERMS``."""
        f = LedgerTermsField
        told = {
            f.UNITS: {unit.code: unit.places for unit in self.units},
            f.COLLECTING: [
                {f.PREFIX: one.prefix, f.UNIT: one.unit.code, f.SHARDS: one.shards} for one in self.collecting
            ],
            f.HOLDS: self.holds,
        }
        return json.dumps(told, separators=(",", ":"))

    @classmethod
    def from_json(cls, text: str) -> LedgerTerms:
        """Read ``Env.LEDGER_TERMS``; an empty text means that nothing is declared."""
        if not text:
            return cls()
        f, told = LedgerTermsField, json.loads(text)
        units = cls(units=tuple(Unit(code, places) for code, places in told[f.UNITS].items()))
        collecting = (
            CollectingAccounts(prefix=one[f.PREFIX], unit=units.unit(one[f.UNIT]), shards=one[f.SHARDS])
            for one in told[f.COLLECTING]
        )
        return cls(units=units.units, collecting=tuple(collecting), holds=told[f.HOLDS])
