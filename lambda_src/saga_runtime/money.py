"""Amounts: integers of a unit's smallest part. Floats are refused by the type checker and at run time."""

from __future__ import annotations

import re
from dataclasses import dataclass
from decimal import Decimal
from enum import StrEnum
from functools import cache
from typing import Final

from saga_runtime.errors import Invalid
from saga_runtime.protocol import UNIT_PATTERN

MAX_MINOR_UNITS: Final = 10**18
"""Far above any real amount, far below the 38 digits that DynamoDB keeps."""
MAX_PLACES: Final = 6

_WITHOUT_MINOR_UNITS: Final = "BIF CLP DJF GNF ISK JPY KMF KRW PYG RWF UGX UYI VND VUV XAF XOF XPF".split()
_THOUSANDTHS: Final = "BHD IQD JOD KWD LYD OMR TND".split()
_TEN_THOUSANDTHS: Final = "CLF UYW".split()
_HUNDREDTHS: Final = """
    AED AFN ALL AMD AOA ARS AUD AWG AZN BAM BBD BDT BMD BND BOB BOV BRL BSD BTN BWP BYN BZD CAD CDF CHE CHF CHW CNY
    COP COU CRC CUP CVE CZK DKK DOP DZD EGP ERN ETB EUR FJD FKP GBP GEL GHS GIP GMD GTQ GYD HKD HNL HTG HUF IDR ILS
    INR IRR JMD KES KGS KHR KPW KYD KZT LAK LBP LKR LRD LSL MAD MDL MGA MKD MMK MNT MOP MRU MUR MVR MWK MXN MXV MYR
    MZN NAD NGN NIO NOK NPR NZD PAB PEN PGK PHP PKR PLN QAR RON RSD RUB SAR SBD SCR SDG SEK SGD SHP SLE SOS SRD SSP
    STN SVC SYP SZL THB TJS TMT TOP TRY TTD TWD TZS UAH USD USN UYU UZS VED VES WST XCD XCG YER ZAR ZMW ZWG
""".split()

EXPONENTS: Final[dict[str, int]] = {
    **dict.fromkeys(_WITHOUT_MINOR_UNITS, 0),
    **dict.fromkeys(_HUNDREDTHS, 2),
    **dict.fromkeys(_THOUSANDTHS, 3),
    **dict.fromkeys(_TEN_THOUSANDTHS, 4),
}
"""Decimal places of each currency's minor unit (ISO 4217, list one)."""

_MAX_MAGNITUDE: Final = 40
_DECIMAL: Final = re.compile(r"^-?[0-9]{1,18}(\.[0-9]{1,6})?$")
_CODE: Final = re.compile(UNIT_PATTERN)


class Rounding(StrEnum):
    """Rule for what is left over when an amount is multiplied. Negative amounts are rounded as positive ones are."""

    DOWN = "DOWN"
    """Towards zero."""
    UP = "UP"
    """Away from zero."""
    HALF_UP = "HALF_UP"
    """To the nearest; a half away from zero."""
    HALF_EVEN = "HALF_EVEN"
    """To the nearest; a half to the even neighbour."""


@dataclass(frozen=True, slots=True)
class Unit:
    """A unit of value in addition to the ISO 4217 currencies: points, credits, a regional currency.

    Example:
        >>> POINT = Unit("POINT", 0)
        >>> str(Money(30, POINT))
        '30 POINT'

    Attributes:
        code: an upper-case letter, then up to 15 letters, digits or underscores; for one of a family, a colon and a
            key behind it: ``REGIONAL:kyoto``.
        places: decimal places of its smallest part, 0 to 6.

    Raises:
        Invalid: if the code is not of that form, the places are out of range, or contradict ISO 4217.
    """

    code: str
    places: int

    def __post_init__(self) -> None:
        if not _CODE.fullmatch(_text(self.code)):
            raise Invalid(f"the code of a unit must match {UNIT_PATTERN}, got {self.code!r}")
        object.__setattr__(self, "code", str.__str__(self.code))  # of an enumeration's member: not its text
        if type(self.places) is not int or not 0 <= self.places <= MAX_PLACES:
            raise Invalid(f"places of {self.code} must be an integer of 0 to {MAX_PLACES}, got {self.places!r}")
        if EXPONENTS.get(self.code, self.places) != self.places:
            raise Invalid(
                f"places of {self.code} must be {EXPONENTS[self.code]}, as in ISO 4217, got {self.places}; "
                "choose another code for a unit of your own"
            )

    @property
    def is_currency(self) -> bool:
        """True if it is an ISO 4217 currency."""
        return self.code in EXPONENTS


@cache
def _currency(code: str) -> Unit:
    return Unit(code, EXPONENTS[code])


def unit_of(unit: object) -> Unit:
    """The unit itself, or the currency of an ISO 4217 code.

    Raises:
        Invalid: if it is neither.
    """
    if isinstance(unit, Unit):
        return unit
    if isinstance(unit, str) and unit in EXPONENTS:
        return _currency(str.__str__(unit))
    raise Invalid(f"a unit must be an ISO 4217 currency code or a Unit, got {unit!r}; declare Unit(code, places)")


@dataclass(frozen=True, slots=True, order=False, init=False)
class Money:
    """An amount in integer minor units of a currency, or in the smallest parts of a unit of your own.

    Amounts of one unit can be added, subtracted and negated. Nothing else is calculated without naming a rounding rule.

    Example:
        >>> Money(1234, "EUR") == Money.of("12.34", "EUR")
        True

    Args:
        minor_units: how many of the smallest parts.
        unit: an ISO 4217 code, or a ``Unit``.

    Raises:
        Invalid: if the amount is not an integer (a bool or a float, even 1.0), is out of range, or the unit is unknown.
    """

    minor_units: int
    unit: Unit

    def __init__(self, minor_units: int, unit: Unit | str) -> None:
        object.__setattr__(self, "unit", unit_of(unit))
        if type(minor_units) is not int:
            raise Invalid(
                f"an amount is an integer of minor units, got {minor_units!r}; "
                'use Money.of("12.34", "EUR") for a decimal text'
            )
        if abs(minor_units) > MAX_MINOR_UNITS:
            raise Invalid(f"an amount may have {MAX_MINOR_UNITS} minor units, got {minor_units}")
        object.__setattr__(self, "minor_units", minor_units)

    @classmethod
    def of(cls, amount: Decimal | str, unit: Unit | str) -> Money:
        """Money of a decimal amount in major units, exactly.

        Raises:
            Invalid: if the amount is a float, is not a plain decimal number, or has more places than the unit.
        """
        known = unit_of(unit)
        if isinstance(amount, Decimal):
            value = amount
        elif _DECIMAL.fullmatch(_text(amount)):
            value = Decimal(amount)
        else:
            raise Invalid(f"an amount is a Decimal or a plain decimal text, got {amount!r} ({type(amount).__name__})")
        _check_range("an amount", value)
        # Integers only: Decimal's own arithmetic rounds to the context's 28 digits without a word.
        numerator, denominator = value.as_integer_ratio()
        minor, rest = divmod(numerator * 10**known.places, denominator)
        if rest:
            raise Invalid(f"{known.code} has {known.places} decimal places, got {amount!r}")
        return cls(minor, known)

    def times(self, factor: Decimal, *, rounding: Rounding, unit: Unit | str | None = None) -> Money:
        """This amount times a factor, in the same unit or converted to another.

        Example:
            >>> Money(250, "JPY").times(Decimal("0.03"), rounding=Rounding.UP)
            Money(8, 'JPY')
            >>> Money(1250, "JPY").times(Decimal("0.01"), unit=Unit("POINT", 0), rounding=Rounding.DOWN)
            Money(12, Unit('POINT', 0))

        Args:
            factor: exact; of a conversion, how much one whole of this unit is in wholes of the other: a yen to points,
                not a cent to points.
            rounding: rule for a fraction of the smallest part.
            unit: the unit to convert to; the same by default.

        Raises:
            Invalid: if the factor is not a ``Decimal`` of 0 or more, or the result is out of range.
        """
        to = self.unit if unit is None else unit_of(unit)
        if not isinstance(factor, Decimal):
            raise Invalid(f'a factor must be a Decimal, got {factor!r}; use Decimal("0.03")')
        _check_range("a factor", factor)
        if factor < 0:
            raise Invalid(f"a factor must not be negative, got {factor!r}")
        if not isinstance(rounding, Rounding):
            raise Invalid(f"rounding must be one of {', '.join(Rounding)}, got {rounding!r}")
        numerator, denominator = factor.as_integer_ratio()
        whole, rest = divmod(abs(self.minor_units) * numerator * 10**to.places, denominator * 10**self.unit.places)
        if _rounds_up(rounding, whole, rest, denominator * 10**self.unit.places):
            whole += 1
        return Money(whole if self.minor_units >= 0 else -whole, to)

    @property
    def currency(self) -> str:
        """Code of the unit, as it is stored."""
        return self.unit.code

    def __neg__(self) -> Money:
        return Money(-self.minor_units, self.unit)

    def __add__(self, other: Money) -> Money:
        return Money(self.minor_units + _same_unit(self, other), self.unit)

    def __sub__(self, other: Money) -> Money:
        return Money(self.minor_units - _same_unit(self, other), self.unit)

    def __str__(self) -> str:
        # Not by Decimal, which rounds to the digits of its context: a function may have lowered them for its own sums.
        whole, places = str(abs(self.minor_units)).zfill(self.unit.places + 1), self.unit.places
        text = f"{whole[:-places]}.{whole[-places:]}" if places else whole
        return f"{'-' if self.minor_units < 0 else ''}{text} {self.unit.code}"

    def __repr__(self) -> str:
        unit = repr(self.unit.code) if self.unit.is_currency else f"Unit({self.unit.code!r}, {self.unit.places})"
        return f"Money({self.minor_units}, {unit})"


def _rounds_up(rounding: Rounding, whole: int, rest: int, of: int) -> bool:
    match rounding:
        case Rounding.DOWN:
            return False
        case Rounding.UP:
            return rest > 0
        case Rounding.HALF_UP:
            return 2 * rest >= of
        case Rounding.HALF_EVEN:
            return 2 * rest > of or (2 * rest == of and whole % 2 == 1)


def _same_unit(money: Money, other: object) -> int:
    if not isinstance(other, Money) or other.unit != money.unit:
        raise Invalid(f"amounts must be Money of one unit, got {money!r} and {other!r}; convert one with times()")
    return other.minor_units


def _check_range(name: str, value: Decimal) -> None:
    if not value.is_finite():
        raise Invalid(f"{name} must be finite, got {value!r}")
    if value != 0 and abs(value.adjusted()) > _MAX_MAGNITUDE:
        raise Invalid(f"{name} is out of range, got {value!r}")


def _text(value: object) -> str:
    """Text that a client sent; anything else is not an amount."""
    return value if isinstance(value, str) else ""
