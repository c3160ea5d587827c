"""The amount of a request: read from its body, kept by its reservation, and never a reason to refuse it."""

from __future__ import annotations

import json
from decimal import Decimal
from typing import Any

import pytest

from handlers import gatekeeper
from saga_runtime.idempotency.amounts import MAX_DIGITS, MoneyPath, StatedMoney, tokens_of
from saga_runtime.idempotency.identity import parse_json
from saga_runtime.protocol import Env, RecordAttribute
from tests.unit.support.samples import post
from tests.unit.support.world import World

PATH = MoneyPath(amount=("amount",), currency=("currency",))
POINTERS = {"amount": "/amount", "currency": "/currency"}


@pytest.mark.parametrize(
    ("amount", "read"),
    [
        ("200", 200),
        ("0", 0),
        ("200.0", 200),
        ("2e2", 200),
        ('"200"', 200),
        ('"007"', 7),
        (str(10**MAX_DIGITS - 1), 10**MAX_DIGITS - 1),
        (str(10**MAX_DIGITS), None),
        ("1e300", None),
        (f'"{10**MAX_DIGITS}"', None),
        ("-1", None),
        ("2.5", None),
        ("true", None),
        ("null", None),
        ("[200]", None),
        ('""', None),
        ('"-1"', None),
        ('"+1"', None),
        ('"1_0"', None),
        ('" 1"', None),
        ('"1\\n"', None),
        ('"\u0661\u0662"', None),
        ('"2.00"', None),
    ],
)
def test_an_amount_is_an_integer_of_minor_units_or_its_digits(amount: str, read: int | None) -> None:
    body = parse_json(f'{{"amount":{amount},"currency":"EUR"}}')

    expected = None if read is None else StatedMoney(amount=read, currency="EUR")
    assert PATH.read(body) == expected


@pytest.mark.parametrize(
    "currency", ["eur", "EURO", "EU", "XYZ", "", "EUR\n", "E R", "POINT", None, 978, ["EUR"], {"code": "EUR"}]
)
def test_an_amount_without_a_currency_is_not_money(currency: Any) -> None:
    assert PATH.read({"amount": 200, "currency": currency}) is None


def test_a_unit_is_known_if_the_operation_declares_it() -> None:
    path = MoneyPath.from_json('{"amount":"/amount","currency":"/currency","units":["POINT"]}')

    assert path.read({"amount": 200, "currency": "POINT"}) == StatedMoney(amount=200, currency="POINT")
    assert path.read({"amount": 200, "currency": "MILES"}) is None


@pytest.mark.parametrize("body", [{}, [], "text", None, 5, Decimal("1.5"), {"amount": 200}, {"currency": "EUR"}])
def test_a_body_without_an_amount_states_none(body: Any) -> None:
    assert PATH.read(body) is None


def test_pointers_lead_through_objects_and_arrays() -> None:
    body = {"a/b": [{"m~n": 5}], "": {"": 6}}

    def at(pointer: str) -> int | None:
        read = MoneyPath(amount=tokens_of(pointer), code="EUR").read(body)
        return None if read is None else read.amount

    assert at("/a~1b/0/m~0n") == 5
    assert at("//") == 6
    nowhere = ("/a~1b/1/m~0n", "/a~1b/-/m~0n", "/a~1b/00/m~0n", "/a~1b/x", "/a~1b/-1/m~0n", "/a~1b/0/m~0n/x")
    assert {pointer: at(pointer) for pointer in nowhere} == dict.fromkeys(nowhere)


@pytest.mark.parametrize("pointer", ["", "amount", "#/amount", "/a~", "/a~2b"])
def test_an_invalid_pointer_is_refused(pointer: str) -> None:
    with pytest.raises(ValueError, match="a JSON pointer begins with a slash"):
        tokens_of(pointer)


@pytest.fixture
def told(world: World, monkeypatch: pytest.MonkeyPatch) -> World:
    """A gatekeeper with a configured money field."""
    monkeypatch.setenv(Env.MONEY, json.dumps(POINTERS))
    gatekeeper.settings.cache_clear()
    return world


def _kept(world: World) -> tuple[Any, Any]:
    (item,) = world.items("requests")
    return item.get(RecordAttribute.AMOUNT), item.get(RecordAttribute.CURRENCY)


def test_a_reservation_keeps_the_amount_with_its_one_put(told: World) -> None:
    calls = told.calls_of(lambda: told.call(post({"amount": "1200", "currency": "EUR"})))

    assert calls == ["PutItem", "StartExecution"]
    assert _kept(told) == ({"N": "1200"}, {"S": "EUR"})


@pytest.mark.parametrize("body", [{"amount": 10**40, "currency": "EUR"}, {"amount": 5}, ["a"], {"amount": "much"}])
def test_a_body_without_an_amount_is_reserved_without_one(told: World, body: Any) -> None:
    status, _, _ = told.call(post(body))

    assert status == 202
    assert _kept(told) == (None, None)


def test_a_gatekeeper_without_a_money_field_keeps_no_amount(world: World) -> None:
    world.call(post({"amount": 1200, "currency": "EUR"}))

    assert _kept(world) == (None, None)
