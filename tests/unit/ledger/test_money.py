"""Amounts: integers of minor units, exactly, or refused."""

from __future__ import annotations

from decimal import Decimal, localcontext
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from saga_runtime import Money, Rounding, Unit
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
def test_an_inexact_amount_of_euros_is_invalid(amount: Any) -> None:
    with pytest.raises(Invalid):
        Money.of(amount, "EUR")


@pytest.mark.parametrize("minor", [1.0, 1.5, True, "1", None, Decimal(1), MAX_MINOR_UNITS + 1, -MAX_MINOR_UNITS - 1])
def test_minor_units_are_integers_in_range(minor: Any) -> None:
    with pytest.raises(Invalid):
        Money(minor, "EUR")


@pytest.mark.parametrize("currency", ["", "eur", "EURO", "XXX", "XAU", "EUR ", None, 978, ["EUR"]])
def test_an_invalid_currency_is_refused(currency: Any) -> None:
    with pytest.raises(Invalid, match=r"must be an ISO 4217 currency code or a Unit, got .*; declare Unit"):
        Money(1, currency)


def test_amounts_of_two_currencies_are_never_equal() -> None:
    assert Money(1, "EUR") != Money(1, "USD")


@pytest.mark.parametrize(("currency", "exponent"), [("EUR", 2), ("JPY", 0), ("KWD", 3), ("CLF", 4), ("ISK", 0)])
def test_exponents_are_those_of_iso_4217(currency: str, exponent: int) -> None:
    assert Money(1, currency).unit == Unit(currency, exponent)


POINT = Unit("POINT", 0)
KYOTO = Unit("REGIONAL:kyoto", 2)


@pytest.mark.parametrize(
    ("amount", "text"),
    [
        (Money(-123_456_789, "EUR"), "-1234567.89 EUR"),
        (Money(-5, "EUR"), "-0.05 EUR"),
        (Money(1_234, "BHD"), "1.234 BHD"),
        (Money(MAX_MINOR_UNITS, "JPY"), "1000000000000000000 JPY"),
    ],
)
def test_an_amount_is_written_in_full_whatever_the_decimal_context(amount: Money, text: str) -> None:
    with localcontext() as context:
        context.prec = 3
        assert str(amount) == text


def test_a_custom_unit_is_counted_like_currencies() -> None:
    assert str(Money.of("12", POINT)) == "12 POINT"
    assert str(Money(1234, KYOTO)) == "12.34 REGIONAL:kyoto"
    assert Money(1, POINT) != Money(1, Unit("POINT", 2))
    assert (Money(1, "EUR").unit.is_currency, POINT.is_currency) == (True, False)


@pytest.mark.parametrize(
    "code", ["", "point", "1UP", "P", "A" * 17, "POINT ", "A:", "A:b:c", ":b", "REGIONAL:*", None, 5]
)
def test_an_invalid_unit_code_is_refused(code: Any) -> None:
    with pytest.raises(Invalid, match="the code of a unit must match"):
        Unit(code, 0)


@pytest.mark.parametrize("places", [-1, 7, 1.0, True, None, "2"])
def test_places_of_a_unit_are_0_to_6(places: Any) -> None:
    with pytest.raises(Invalid, match="places of POINT must be an integer of 0 to 6"):
        Unit("POINT", places)


def test_a_unit_with_the_code_of_a_currency_is_that_currency() -> None:
    assert Money(1, Unit("JPY", 0)) == Money(1, "JPY")
    with pytest.raises(Invalid, match="places of JPY must be 0, as in ISO 4217, got 2; choose another code"):
        Unit("JPY", 2)


def test_amounts_of_one_unit_are_added_subtracted_and_negated() -> None:
    assert Money(100, "EUR") - Money(3, "EUR") == Money(97, "EUR")
    assert Money(97, "EUR") + Money(3, "EUR") == Money(100, "EUR")
    assert -Money(5, POINT) == Money(-5, POINT)


@pytest.mark.parametrize("other", [Money(1, "USD"), Money(1, Unit("EURO", 2)), 1, 1.0])
def test_amounts_of_two_units_are_neither_added_nor_subtracted(other: Any) -> None:
    for calculate in (Money.__add__, Money.__sub__):
        with pytest.raises(Invalid, match="amounts must be Money of one unit"):
            calculate(Money(1, "EUR"), other)


def test_a_sum_out_of_range_is_invalid() -> None:
    with pytest.raises(Invalid, match="an amount may have"):
        Money(MAX_MINOR_UNITS, "EUR") + Money(1, "EUR")


@pytest.mark.parametrize(
    ("minor", "factor", "rounding", "result"),
    [
        (250, "0.03", Rounding.DOWN, 7),
        (250, "0.03", Rounding.UP, 8),
        (250, "0.03", Rounding.HALF_UP, 8),
        (250, "0.03", Rounding.HALF_EVEN, 8),
        (150, "0.03", Rounding.HALF_EVEN, 4),
        (150, "0.03", Rounding.HALF_UP, 5),
        (-150, "0.03", Rounding.HALF_UP, -5),
        (-150, "0.03", Rounding.DOWN, -4),
        (-150, "0.03", Rounding.UP, -5),
        (100, "0.03", Rounding.UP, 3),
        (100, "0", Rounding.UP, 0),
    ],
)
def test_a_share_is_rounded_by_the_named_rule(minor: int, factor: str, rounding: Rounding, result: int) -> None:
    assert Money(minor, "EUR").times(Decimal(factor), rounding=rounding) == Money(result, "EUR")


@given(
    minor=st.integers(min_value=-(10**12), max_value=10**12),
    factor=st.decimals(min_value=0, max_value=1000, places=6),
    rounding=st.sampled_from(Rounding),
)
def test_rounding_is_that_of_decimal(minor: int, factor: Decimal, rounding: Rounding) -> None:
    with localcontext(prec=60):
        exact = Decimal(minor) * factor
        expected = int(exact.quantize(Decimal(1), rounding=f"ROUND_{rounding}"))

    assert Money(minor, "EUR").times(factor, rounding=rounding) == Money(expected, "EUR")


def test_a_conversion_is_from_whole_to_whole() -> None:
    co2 = Unit("CO2_KG", 3)

    assert Money(1234, "JPY").times(Decimal("0.01"), unit=co2, rounding=Rounding.DOWN) == Money(12_340, co2)
    assert Money(1299, "EUR").times(Decimal("0.5"), unit=POINT, rounding=Rounding.DOWN) == Money(6, POINT)
    assert Money(3, POINT).times(Decimal(1), unit="EUR", rounding=Rounding.DOWN) == Money(300, "EUR")


@pytest.mark.parametrize(
    "factor", [0.03, 1, "0.03", None, Decimal("NaN"), Decimal("Infinity"), Decimal(-1), Decimal("1e99")]
)
def test_a_factor_is_a_decimal_of_0_or_more(factor: Any) -> None:
    with pytest.raises(Invalid, match="a factor"):
        Money(100, "EUR").times(factor, rounding=Rounding.DOWN)


@pytest.mark.parametrize("rounding", [None, "DOWN", "ROUND_DOWN"])
def test_a_rounding_rule_is_named(rounding: Any) -> None:
    with pytest.raises(Invalid, match="rounding must be one of DOWN, UP, HALF_UP, HALF_EVEN"):
        Money(100, "EUR").times(Decimal("0.03"), rounding=rounding)


def test_floats_are_refused_by_the_type_checker_too() -> None:
    # mypy fails on an ignore that is not needed: each of these lines is one that it refuses.
    for refused in (
        lambda: Money(1.5, "EUR"),  # type: ignore[arg-type]
        lambda: Money.of(1.5, "EUR"),  # type: ignore[arg-type]
        lambda: Money(1, "EUR") + 1.5,  # type: ignore[operator]
        lambda: Money(1, "EUR").times(1.5, rounding=Rounding.DOWN),  # type: ignore[arg-type]
        lambda: Unit("POINT", 1.0),  # type: ignore[arg-type]
    ):
        with pytest.raises(Invalid):
            refused()


def test_an_amount_shows_how_it_is_made() -> None:
    assert repr(Money(5, "EUR")) == "Money(5, 'EUR')"
    assert repr(Money(5, POINT)) == "Money(5, Unit('POINT', 0))"
