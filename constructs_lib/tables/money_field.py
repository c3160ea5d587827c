"""MoneyField: the amount in the body of a request, or in what an event begins."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from constructs_lib.shared.types import check_fields
from constructs_lib.tables.units import unit_argument
from saga_runtime.idempotency.amounts import tokens_of
from saga_runtime.money import EXPONENTS, Unit
from saga_runtime.protocol import MoneyPathField


@dataclass(frozen=True, slots=True, kw_only=True)
class MoneyField:
    """The amount in the body of a request, so that money in flight can be summed.

    Of an ``EventIntake`` the body is the ``request`` of what its reader returns.

    Guaranteed: no request is refused for it. A body without an amount, or with one in another form, is reserved
    without; the ``schema`` decides what bodies must contain.
    Not guaranteed: that the saga moves exactly that. It is the requested amount.

    Attributes:
        amount: JSON pointer (RFC 6901) to the amount in minor units: ``/amount``, ``/payment/total``. An integer of 0
            or more, as a number or as a string of digits; at most 38 of them.
        currency: JSON pointer to the currency: an ISO 4217 code, or the code of one of ``units``. Money in any other
            unit is not added up.
        currency_code: the currency itself, where there is only one: ``"EUR"``, or a ``Unit``. Give either this or
            ``currency``.
        units: units that bodies may name in addition to ISO 4217 currencies.

    Raises:
        ValueError: for an invalid pointer, and unless the currency is declared in one of the two ways.
    """

    amount: str
    currency: str | None = None
    currency_code: str | Unit | None = None
    units: Sequence[Unit] = ()

    def __post_init__(self) -> None:
        check_fields(self)
        _require_pointer("amount", self.amount)
        if (self.currency is None) == (self.currency_code is None):
            raise ValueError(
                "money needs either currency or currency_code, got "
                + ("neither" if self.currency is None else "both")
                + '; use currency="/currency" if the body has it, and currency_code="EUR" if there is only one'
            )
        if self.currency is not None:
            _require_pointer("currency", self.currency)
        if self.currency_code is not None:
            unit_argument("currency_code", self.currency_code)
        for unit in self.units:
            unit_argument("units", unit)
        if self.units and self.currency is None:
            raise ValueError("units of money must be given with currency, got currency_code; leave them out")

    def may_be_in(self, unit: str) -> bool:
        """Test whether amounts may be in a unit, of this code."""
        if self.currency_code is not None:
            return unit_argument("currency_code", self.currency_code).code == unit
        return unit in EXPONENTS or unit in {each.code for each in self.units}

    @property
    def environment_value(self) -> str:
        """Configuration of the function that reserves."""
        f = MoneyPathField
        code = None if self.currency_code is None else unit_argument("currency_code", self.currency_code).code
        fields = {f.AMOUNT: self.amount, f.CURRENCY: self.currency, f.CODE: code}
        told: dict[str, Any] = {name: value for name, value in fields.items() if value is not None}
        if self.units:
            told[f.UNITS] = [unit.code for unit in self.units]
        return json.dumps(told, separators=(",", ":"))


def _require_pointer(name: str, pointer: str) -> None:
    try:
        tokens_of(pointer)
    except ValueError:
        raise ValueError(
            f"money's {name} must be a JSON pointer into the body (RFC 6901), got {pointer!r}; "
            f'begin with a slash: "/{name}"'
        ) from None
