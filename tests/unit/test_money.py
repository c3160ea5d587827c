"""Amounts: integers of minor units, exactly, or refused."""

from __future__ import annotations

from decimal import Decimal
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from saga_runtime import Money, Unit
from saga_runtime.errors import Invalid
from saga_runtime.money import EXPONENTS, MAX_MINOR_UNITS

currencies = st.sampled_from(sorted(EXPONENTS))
amounts = st.integers(min_value=-MAX_MINOR_UNITS, max_value=MAX_MINOR_UNITS)


@given(minor=amounts, currency=currencies)
def test_an_amount_survives_its_decimal_form(minor: int, currency: str) -> None:
    money = Money(minor, currency)
    text, _, shown = str(money).partition(" ")

    assert shown == currency
    assert Money.of(Decimal(text), currency) == money


@pytest.mark.parametrize(
    ("amount", "currency", "minor"),
    [
        ("12.34", "EUR", 1234),
        ("12", "EUR", 1200),
        ("-0.01", "EUR", -1),
        ("12.5", "EUR", 1250),
        ("12.50", "JOD", 12_500),
        ("12", "JPY", 12),
        ("12.0", "JPY", 12),
        ("0.0001", "CLF", 1),
        (Decimal("1E+2"), "EUR", 10_000),
        (Decimal("0E+999999"), "EUR", 0),
        (Decimal("1.0000000000000000000000000000000000"), "EUR", 100),
    ],
)
def test_a_decimal_amount_becomes_minor_units(amount: Any, currency: str, minor: int) -> None:
    assert Money.of(amount, currency) == Money(minor, currency)


@pytest.mark.parametrize(
    "amount",
    [
        1.0,
        1.5,
        float("nan"),
        float("inf"),
        True,
        1,
        None,
        [],
        "",
        " ",
        "1_000",
        "1,00",
        "1e2",
        "+1",
        ".5",
        "1.",
        " 1",
        "1\n",
        "\u0661",
        "NaN",
        "Infinity",
        "0x10",
        Decimal("NaN"),
        Decimal("sNaN"),
        Decimal("Infinity"),
        Decimal("1e999999"),
        Decimal("1e-999999"),
        Decimal("1e30"),
        "0.001",
        Decimal("0.010000000000000000000000000000000001"),
        "1000000000000000000",
    ],
)
def test_what_is_no_exact_amount_of_euros_is_invalid(amount: Any) -> None:
    with pytest.raises(Invalid):
        Money.of(amount, "EUR")


@pytest.mark.parametrize("minor", [1.0, 1.5, True, "1", None, Decimal(1), MAX_MINOR_UNITS + 1, -MAX_MINOR_UNITS - 1])
def test_minor_units_are_integers_in_range(minor: Any) -> None:
    with pytest.raises(Invalid):
        Money(minor, "EUR")


@pytest.mark.parametrize("currency", ["", "eur", "EURO", "XXX", "XAU", "EUR ", None, 978, ["EUR"]])
def test_what_is_no_currency_is_invalid(currency: Any) -> None:
    with pytest.raises(Invalid, match=r"must be an ISO 4217 currency code or a Unit, got .*; declare Unit"):
        Money(1, currency)


def test_amounts_of_two_currencies_are_never_equal() -> None:
    assert Money(1, "EUR") != Money(1, "USD")


@pytest.mark.parametrize(("currency", "exponent"), [("EUR", 2), ("JPY", 0), ("KWD", 3), ("CLF", 4), ("ISK", 0)])
def test_exponents_are_those_of_iso_4217(currency: str, exponent: int) -> None:
    assert Money(1, currency).unit == Unit(currency, exponent)
