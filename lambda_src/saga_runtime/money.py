"""Amounts of money: integer minor units of an ISO 4217 currency. Floats are refused by type and at run time."""

from __future__ import annotations

import re
from dataclasses import dataclass
from decimal import Decimal
from typing import Any, Final

from saga_runtime.errors import Invalid

MAX_MINOR_UNITS: Final = 10**18
"""Far above any real amount, far below the 38 digits that DynamoDB keeps."""

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


@dataclass(frozen=True, slots=True, order=False)
class Money:
    """An amount in integer minor units.

    Example:
        >>> Money(1234, "EUR") == Money.of("12.34", "EUR")
        True

    Raises:
        Invalid: if the amount is no integer (a bool or a float, even 1.0), is out of range, or the currency is no
            ISO 4217 code.
    """

    minor_units: int
    currency: str

    def __post_init__(self) -> None:
        exponent_of(self.currency)
        if type(self.minor_units) is not int:
            raise Invalid(
                f"an amount is an integer of minor units, got {self.minor_units!r}; "
                'use Money.of("12.34", "EUR") for a decimal text'
            )
        if abs(self.minor_units) > MAX_MINOR_UNITS:
            raise Invalid(f"an amount may have {MAX_MINOR_UNITS} minor units, got {self.minor_units}")

    @classmethod
    def of(cls, amount: Decimal | str, currency: str) -> Money:
        """Money of a decimal amount in major units, exactly.

        Raises:
            Invalid: if the amount is a float, is no plain decimal number, or has more places than the currency.
        """
        exponent = exponent_of(currency)
        if isinstance(amount, Decimal):
            value = amount
        elif _DECIMAL.fullmatch(_text(amount)):
            value = Decimal(amount)
        else:
            raise Invalid(f"an amount is a Decimal or a plain decimal text, got {amount!r} ({type(amount).__name__})")
        if not value.is_finite():
            raise Invalid(f"an amount must be finite, got {amount!r}")
        if value != 0 and abs(value.adjusted()) > _MAX_MAGNITUDE:
            raise Invalid(f"an amount is out of range, got {amount!r}")
        # Integers only: Decimal's own arithmetic rounds to the context's 28 digits without a word.
        numerator, denominator = value.as_integer_ratio()
        minor, rest = divmod(numerator * 10**exponent, denominator)
        if rest:
            raise Invalid(f"{currency} has {exponent} decimal places, got {amount!r}")
        return cls(minor, currency)

    def __str__(self) -> str:
        exponent = exponent_of(self.currency)
        return f"{Decimal(self.minor_units).scaleb(-exponent):f} {self.currency}"


def _text(value: object) -> str:
    """Text that a caller sent; what is no text is no amount."""
    return value if isinstance(value, str) else ""


def exponent_of(currency: Any) -> int:
    """Decimal places of a currency's minor unit.

    Raises:
        Invalid: if ``currency`` is no ISO 4217 code that has money in it.
    """
    if not isinstance(currency, str) or currency not in EXPONENTS:
        raise Invalid(f"not an ISO 4217 currency code: {currency!r}")
    return EXPONENTS[currency]
