"""Golden vectors of the wallet's stored formats: keys, conditions, times to live. A change orphans stored items."""

from __future__ import annotations

from typing import Any

import pytest

from examples.wallet.functions.wallet import builders
from examples.wallet.functions.wallet.builders import CLEAR
from examples.wallet.functions.wallet.keys import (
    CARD,
    ECOPAY,
    JCREDIT,
    METRICS,
    POINT,
    PROFILE,
    balance_type,
    history_type,
    marker_type,
    stripe_type,
    unit_of,
)
from saga_runtime import CapExceeded, Invalid

NOW_MS = 1_700_000_000_123
WHERE: dict[str, Any] = {"table": "wallet", "uuid": "u-1"}
OPERATION_ID = "abcdefghijklmnopqrstuvwxyz-loyw3v4b"


@pytest.mark.parametrize(
    ("key", "golden"),
    [
        (CARD, "card"),
        (PROFILE, "PROFILE"),
        (METRICS, "METRICS"),
        (balance_type(ECOPAY), "BALANCE#ECOPAY"),
        (balance_type(POINT), "BALANCE#POINT"),
        (balance_type(JCREDIT), "BALANCE#JCREDIT"),
        (balance_type(unit_of("REGIONAL:kobe")), "BALANCE#REGIONAL#kobe"),
        (marker_type("topup", "5f0c"), "card_op_idem#topup#5f0c"),
        (history_type(OPERATION_ID), f"history#1700000000075#{OPERATION_ID}"),
        (stripe_type("pi_1"), "stripe#pi_1"),
    ],
)
def test_keys(key: str, golden: str) -> None:
    assert key == golden


@pytest.mark.parametrize("code", ["EUR", "", " ", "REGIONAL:", "ecopay"])
def test_a_unit_that_the_wallet_does_not_have_is_refused(code: str) -> None:
    with pytest.raises((Invalid, ValueError)):
        unit_of(code)


@pytest.mark.parametrize("payment", ["", "x", "-", "a-?", "abc"])
def test_an_id_that_is_not_an_operations_is_refused(payment: str) -> None:
    with pytest.raises(Invalid, match="operation's id"):
        history_type(payment)


def _only(writes: list[Any]) -> Any:
    (write,) = writes
    ((_, action),) = write.action.items()
    return action


def test_a_marker_lives_for_90_days_and_counts_once() -> None:
    put = _only(builders.marker(**WHERE, operation="topup", key="k", now_ms=NOW_MS))

    assert put["Item"] == {
        "uuid": {"S": "u-1"},
        "type": {"S": "card_op_idem#topup#k"},
        "processed_at": {"N": "1700000000"},
        "ttl": {"N": "1707776000"},
    }
    assert put["ConditionExpression"] == "attribute_not_exists(#uuid) OR #ttl <= :now"


def test_a_deduction_is_an_add_with_a_condition() -> None:
    update = _only(builders.deduct(**WHERE, unit=ECOPAY, amount=30, now_ms=NOW_MS))

    assert update["UpdateExpression"] == "ADD #balance :delta SET #updated_at = :now"
    assert update["ConditionExpression"] == "attribute_exists(#balance) AND #balance >= :amount"
    assert (update["ExpressionAttributeValues"][":delta"], update["ExpressionAttributeValues"][":amount"]) == (
        {"N": "-30"},
        {"N": "30"},
    )


def test_a_charge_leaves_room_for_amount_and_bonus() -> None:
    update = _only(builders.charge(**WHERE, unit=ECOPAY, amount=100, bonus=20, cap=1_000, now_ms=NOW_MS))

    assert update["ConditionExpression"] == "attribute_not_exists(#balance) OR #balance <= :room"
    assert update["ExpressionAttributeValues"][":room"] == {"N": "880"}
    assert update["ExpressionAttributeValues"][":total"] == {"N": "120"}


def test_an_amount_above_the_cap_is_refused_before_any_write() -> None:
    with pytest.raises(CapExceeded):
        builders.charge(**WHERE, unit=ECOPAY, amount=990, bonus=20, cap=1_000, now_ms=NOW_MS)


def test_co2_is_exact() -> None:
    update = _only(builders.co2(**WHERE, amount=7, now_ms=NOW_MS))

    assert update["Key"]["type"] == {"S": "METRICS"}
    assert update["ExpressionAttributeValues"][":co2"] == {"N": "0.07"}


@pytest.mark.parametrize(
    "nothing",
    [
        builders.deduct(**WHERE, unit=POINT, amount=0, now_ms=NOW_MS),
        builders.charge(**WHERE, unit=POINT, amount=0, now_ms=NOW_MS),
        builders.co2(**WHERE, amount=0, now_ms=NOW_MS),
        builders.history(**WHERE, operation_id=OPERATION_ID, operation="pay", unit=POINT, amount=0, other="x"),
        builders.profile(**WHERE, now_ms=NOW_MS),
    ],
)
def test_a_builder_with_nothing_to_write_returns_nothing(nothing: list[Any]) -> None:
    assert nothing == []


@pytest.mark.parametrize("amount", [-1, 1.0, True, "1"])
def test_an_amount_that_is_not_a_whole_number_is_refused(amount: Any) -> None:
    with pytest.raises(Invalid, match="an amount must be"):
        builders.deduct(**WHERE, unit=ECOPAY, amount=amount, now_ms=NOW_MS)


def test_a_profile_is_set_left_and_cleared_by_attribute() -> None:
    update = _only(builders.profile(**WHERE, now_ms=NOW_MS, name="Aki", email=None, phone_number=CLEAR))

    assert update["UpdateExpression"] == (
        "SET #name = :name, #created_at = if_not_exists(#created_at, :now), #updated_at = :now REMOVE #phone_number"
    )
    assert update["ExpressionAttributeValues"] == {":now": {"N": str(NOW_MS)}, ":name": {"S": "Aki"}}


def _condition(write: Any) -> tuple[str, str, str | None, str | None]:
    """Kind, sort key, update and condition of a write, with the attributes' names in place."""
    [(kind, action)] = write.action.items()
    names = action.get("ExpressionAttributeNames", {})

    def plain(expression: str | None) -> str | None:
        for alias, name in names.items():
            expression = expression and expression.replace(alias, name)
        return expression

    key = (action["Item"] if kind == "Put" else action["Key"])["type"]["S"]
    return kind, key, plain(action.get("UpdateExpression")), plain(action.get("ConditionExpression"))


ROW = f"history#1700000000075#{OPERATION_ID}#ECOPAY"
NEW = "attribute_not_exists(uuid)"
BALANCE, ADDED = "BALANCE#ECOPAY", "SET updated_at = :now"
GOLDEN: list[tuple[Any, tuple[str, str, str | None, str | None]]] = [
    (
        builders.marker(**WHERE, operation="pay", key="k", now_ms=NOW_MS),
        ("Put", "card_op_idem#pay#k", None, f"{NEW} OR ttl <= :now"),
    ),
    (builders.open_card(**WHERE, now_ms=NOW_MS), ("Put", "card", None, NEW)),
    (builders.active(**WHERE), ("ConditionCheck", "card", None, "state = :active")),
    (
        builders.deduct(**WHERE, unit=ECOPAY, amount=1, now_ms=NOW_MS),
        ("Update", BALANCE, f"ADD balance :delta {ADDED}", "attribute_exists(balance) AND balance >= :amount"),
    ),
    (
        builders.charge(**WHERE, unit=ECOPAY, amount=1, now_ms=NOW_MS),
        ("Update", BALANCE, f"ADD balance :total {ADDED}", None),
    ),
    (
        builders.charge(**WHERE, unit=ECOPAY, amount=1, now_ms=NOW_MS, cap=10),
        ("Update", BALANCE, f"ADD balance :total {ADDED}", "attribute_not_exists(balance) OR balance <= :room"),
    ),
    (
        builders.co2(**WHERE, amount=1, now_ms=NOW_MS),
        ("Update", "METRICS", f"ADD co2_saved :co2 {ADDED}", None),
    ),
    (
        builders.history(**WHERE, operation_id=OPERATION_ID, operation="pay", unit=ECOPAY, amount=1, other="s"),
        ("Put", ROW, None, NEW),
    ),
    (
        builders.refund_of(**WHERE, payment=OPERATION_ID, unit=ECOPAY, merchant="s", amount=1),
        ("Update", ROW, "ADD refundable :delta", "other = :merchant AND refundable >= :amount"),
    ),
    (
        builders.profile(**WHERE, now_ms=NOW_MS, name="Aki"),
        (
            "Update",
            "PROFILE",
            "SET name = :name, created_at = if_not_exists(created_at, :now), updated_at = :now",
            None,
        ),
    ),
]


@pytest.mark.parametrize(("writes", "golden"), GOLDEN, ids=lambda value: value[1] if isinstance(value, tuple) else "")
def test_each_write_has_its_key_and_condition(
    writes: list[Any], golden: tuple[str, str, str | None, str | None]
) -> None:
    [write] = writes
    assert _condition(write) == golden


def test_no_builder_is_left_out() -> None:
    """A new builder of writes needs a row."""
    made = {
        name
        for name, value in vars(builders).items()
        if getattr(value, "__annotations__", {}).get("return") == "list[Write]"
    }

    assert made == {"marker", "open_card", "active", "deduct", "charge", "co2", "history", "refund_of", "profile"}
