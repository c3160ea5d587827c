"""Amount of a request, from its body: kept in its record, to be summed while it is in flight. Pure.

A missing amount, or one in another form, is ignored. It is never a reason to refuse a request:
that is the schema's business.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from decimal import Decimal
from typing import Any, Final

from saga_runtime.money import EXPONENTS
from saga_runtime.protocol import MoneyPathField

MAX_DIGITS: Final = 38
"""What DynamoDB keeps of a number; a larger one would make it refuse the record."""
_DIGITS: Final = re.compile(rf"[0-9]{{1,{MAX_DIGITS}}}")
_POINTER: Final = re.compile(r"(/([^~/]|~[01])*)+")
_INDEX: Final = re.compile(r"0|[1-9][0-9]{0,5}")


@dataclass(frozen=True, slots=True, kw_only=True)
class StatedMoney:
    """An amount in minor units, 0 or more, and the code of its unit."""

    amount: int
    currency: str


@dataclass(frozen=True, slots=True, kw_only=True)
class MoneyPath:
    """Location of the amount in a body.

    Attributes:
        amount: reference tokens of the JSON pointer to the amount.
        currency: likewise, to the code of the unit; None: there is only one.
        code: that one.
        units: codes that bodies may name in addition to ISO 4217 currencies. Other codes are ignored: senders
            could otherwise create metrics.
    """

    amount: tuple[str, ...]
    currency: tuple[str, ...] | None = None
    code: str | None = None
    units: frozenset[str] = frozenset()

    @classmethod
    def from_json(cls, text: str) -> MoneyPath:
        """Read ``Env.MONEY``."""
        f, told = MoneyPathField, json.loads(text)
        currency = told.get(f.CURRENCY)
        return cls(
            amount=tokens_of(told[f.AMOUNT]),
            currency=None if currency is None else tokens_of(currency),
            code=told.get(f.CODE),
            units=frozenset(told.get(f.UNITS, ())),
        )

    def read(self, body: Any) -> StatedMoney | None:
        """Amount in a body; None: it has none, or something that is not an amount of money."""
        amount = _amount(value_at(body, self.amount))
        if amount is None:
            return None
        if self.currency is None:
            return None if self.code is None else StatedMoney(amount=amount, currency=self.code)
        currency = value_at(body, self.currency)
        if not isinstance(currency, str) or not (currency in EXPONENTS or currency in self.units):
            return None
        return StatedMoney(amount=amount, currency=currency)


def tokens_of(pointer: str) -> tuple[str, ...]:
    """Reference tokens of a JSON pointer (RFC 6901), unescaped.

    Raises:
        ValueError: for an invalid pointer, or one to the whole document.
    """
    if not _POINTER.fullmatch(pointer):
        raise ValueError(f"a JSON pointer begins with a slash and has ~ only as ~0 or ~1, got {pointer!r}")
    return tuple(token.replace("~1", "/").replace("~0", "~") for token in pointer[1:].split("/"))


def index_of(token: str) -> int | None:
    """Index of an array that a reference token means; None: it is not an index."""
    return int(token) if _INDEX.fullmatch(token) else None


def value_at(value: Any, tokens: tuple[str, ...]) -> Any:
    """Value at the tokens; None: there is nothing."""
    for token in tokens:
        if isinstance(value, Mapping):
            value = value.get(token)
        elif isinstance(value, list) and (index := index_of(token)) is not None and index < len(value):
            value = value[index]
        else:
            return None
    return value


def _amount(value: Any) -> int | None:
    """An integer, as a number or as digits. 200.0 is one: it is the same JSON number as 200."""
    if isinstance(value, str):
        return int(value) if _DIGITS.fullmatch(value) else None
    if isinstance(value, Decimal) and value == value.to_integral_value():
        value = int(value)
    # A bool is an int in Python.
    return value if type(value) is int and 0 <= value < 10**MAX_DIGITS else None
