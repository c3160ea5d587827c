"""Pure builders: each returns items of a transaction, ``[]`` when nothing is to be written.

Nothing here reads, knows the time, or talks to AWS. Balances change by ``ADD`` with a condition. So an operation needs
no read, and two of them at once never make a balance negative or exceed the cap.
"""

from __future__ import annotations

from collections.abc import Mapping
from decimal import Decimal
from enum import Enum
from typing import Any, Final

from saga_runtime import CapExceeded, InsufficientFunds, Invalid, SagaError, Unit, Write

from .errors import CardExists, CardUnknown, KeyTaken, PaymentUnknown, RefundExceeded
from .keys import CARD, MARKER_SECONDS, METRICS, PROFILE, balance_type, history_type, marker_type

CO2_PER_YEN: Final = Decimal("0.01")
"""Kilograms of CO2 that a yen spent in ECOPAY saves."""
ACTIVE: Final = "ACTIVE"
Item = Mapping[str, Mapping[str, Any]]


class Clear(Enum):
    """The value that removes an attribute."""

    CLEAR = "CLEAR"


CLEAR: Final = Clear.CLEAR


def marker(
    *, table: str, uuid: str, operation: str, key: str, now_ms: int, ttl_seconds: int = MARKER_SECONDS
) -> list[Write]:
    """The operation's marker on the card: a key counts once, whichever face it comes through."""
    now = now_ms // 1_000
    put = {
        "TableName": table,
        "Item": {
            "uuid": {"S": uuid},
            "type": {"S": marker_type(operation, key)},
            "processed_at": {"N": str(now)},
            "ttl": {"N": str(now + ttl_seconds)},
        },
        "ConditionExpression": "attribute_not_exists(#uuid) OR #ttl <= :now",
        "ExpressionAttributeNames": {"#uuid": "uuid", "#ttl": "ttl"},
        "ExpressionAttributeValues": {":now": {"N": str(now)}},
    }
    return [Write(action={"Put": put}, refusal=lambda _: KeyTaken("the key was used for this card; use a new key"))]


def open_card(*, table: str, uuid: str, now_ms: int) -> list[Write]:
    """A card that does not exist yet."""
    put = {
        "TableName": table,
        "Item": {**_key(uuid, CARD), "state": {"S": ACTIVE}, "created_at": {"N": str(now_ms)}},
        "ConditionExpression": "attribute_not_exists(#uuid)",
        "ExpressionAttributeNames": {"#uuid": "uuid"},
    }
    return [Write(action={"Put": put}, refusal=lambda _: CardExists("the card was opened before"))]


def active(*, table: str, uuid: str) -> list[Write]:
    """The condition that the card exists and is active: a balance alone does not show that."""
    check = {
        "TableName": table,
        "Key": _key(uuid, CARD),
        "ConditionExpression": "#state = :active",
        "ExpressionAttributeNames": {"#state": "state"},
        "ExpressionAttributeValues": {":active": {"S": ACTIVE}},
    }
    return [Write(action={"ConditionCheck": check}, refusal=lambda _: CardUnknown("there is no such active card"))]


def deduct(*, table: str, uuid: str, unit: Unit, amount: int, now_ms: int) -> list[Write]:
    """Take an amount from a balance that has it."""
    if _amount(amount) == 0:
        return []
    update = {
        "TableName": table,
        "Key": _key(uuid, balance_type(unit)),
        "UpdateExpression": "ADD #balance :delta SET #updated_at = :now",
        "ConditionExpression": "attribute_exists(#balance) AND #balance >= :amount",
        "ExpressionAttributeNames": {"#balance": "balance", "#updated_at": "updated_at"},
        "ExpressionAttributeValues": {
            ":delta": {"N": str(-amount)},
            ":amount": {"N": str(amount)},
            ":now": {"N": str(now_ms)},
        },
    }
    return [Write(action={"Update": update}, refusal=lambda _: InsufficientFunds("the balance is too low"))]


def charge(
    *, table: str, uuid: str, unit: Unit, amount: int, now_ms: int, bonus: int = 0, cap: int | None = None
) -> list[Write]:
    """Add an amount and its bonus to a balance, which is at most the cap afterwards.

    Raises:
        CapExceeded: if amount and bonus alone exceed the cap.
    """
    total = _amount(amount) + _amount(bonus)
    if total == 0:
        return []
    update: dict[str, Any] = {
        "TableName": table,
        "Key": _key(uuid, balance_type(unit)),
        "UpdateExpression": "ADD #balance :total SET #updated_at = :now",
        "ExpressionAttributeNames": {"#balance": "balance", "#updated_at": "updated_at"},
        "ExpressionAttributeValues": {":total": {"N": str(total)}, ":now": {"N": str(now_ms)}},
    }
    if cap is None:
        return [Write(action={"Update": update})]
    if total > cap:
        raise _cap_exceeded(None)
    update["ConditionExpression"] = "attribute_not_exists(#balance) OR #balance <= :room"
    update["ExpressionAttributeValues"][":room"] = {"N": str(cap - total)}
    return [Write(action={"Update": update}, refusal=_cap_exceeded)]


def co2(*, table: str, uuid: str, amount: int, now_ms: int) -> list[Write]:
    """Count the CO2 that a payment saved; of a refund the amount is negative."""
    if amount == 0:
        return []
    update = {
        "TableName": table,
        "Key": _key(uuid, METRICS),
        "UpdateExpression": "ADD #co2 :co2 SET #updated_at = :now",
        "ExpressionAttributeNames": {"#co2": "co2_saved", "#updated_at": "updated_at"},
        "ExpressionAttributeValues": {":co2": {"N": format(amount * CO2_PER_YEN, "f")}, ":now": {"N": str(now_ms)}},
    }
    return [Write(action={"Update": update})]


def history(
    *,
    table: str,
    uuid: str,
    operation_id: str,
    operation: str,
    unit: Unit,
    amount: int,
    other: str,
    refundable: int | None = None,
) -> list[Write]:
    """A row of the history: the signed change of a balance. The sum of a balance's rows is the balance.

    ``other`` is the other card, merchant or source. ``refundable`` is the amount of a payment that may be refunded.
    """
    if amount == 0:
        return []
    item = {
        **_key(uuid, f"{history_type(operation_id)}#{unit.code}"),
        "operation": {"S": operation},
        "unit": {"S": unit.code},
        "amount": {"N": str(amount)},
        "other": {"S": other},
    }
    if refundable is not None:
        item["refundable"] = {"N": str(refundable)}
    put = {
        "TableName": table,
        "Item": item,
        "ConditionExpression": "attribute_not_exists(#uuid)",
        "ExpressionAttributeNames": {"#uuid": "uuid"},
    }
    return [Write(action={"Put": put})]


def refund_of(*, table: str, uuid: str, payment: str, unit: Unit, merchant: str, amount: int) -> list[Write]:
    """Take an amount from what is left of a payment: all its refunds together never exceed it."""
    update = {
        "TableName": table,
        "Key": _key(uuid, f"{history_type(payment)}#{unit.code}"),
        "UpdateExpression": "ADD #refundable :delta",
        "ConditionExpression": "#other = :merchant AND #refundable >= :amount",
        "ExpressionAttributeNames": {"#other": "other", "#refundable": "refundable"},
        "ExpressionAttributeValues": {
            ":merchant": {"S": merchant},
            ":amount": {"N": str(amount)},
            ":delta": {"N": str(-amount)},
        },
        "ReturnValuesOnConditionCheckFailure": "ALL_OLD",
    }

    def refusal(item: Item | None) -> SagaError:
        if item is None or item.get("other") != {"S": merchant} or "refundable" not in item:
            return PaymentUnknown("the card has no such payment to this merchant")
        return RefundExceeded("the refunds of a payment must not exceed it")

    return [Write(action={"Update": update}, refusal=refusal)]


def profile(
    *,
    table: str,
    uuid: str,
    now_ms: int,
    name: str | Clear | None = None,
    email: str | Clear | None = None,
    phone_number: str | Clear | None = None,
) -> list[Write]:
    """Change a profile: ``None`` leaves an attribute, ``CLEAR`` removes it."""
    given = {"name": name, "email": email, "phone_number": phone_number}
    changes = {attribute: value for attribute, value in given.items() if value is not None}
    if not changes:
        return []
    sets = [f"#{attribute} = :{attribute}" for attribute, value in changes.items() if value is not CLEAR]
    removed = [f"#{attribute}" for attribute, value in changes.items() if value is CLEAR]
    sets += ["#created_at = if_not_exists(#created_at, :now)", "#updated_at = :now"]
    update = {
        "TableName": table,
        "Key": _key(uuid, PROFILE),
        "UpdateExpression": f"SET {', '.join(sets)}" + (f" REMOVE {', '.join(removed)}" if removed else ""),
        "ExpressionAttributeNames": {f"#{each}": each for each in (*changes, "created_at", "updated_at")},
        "ExpressionAttributeValues": {
            ":now": {"N": str(now_ms)},
            **{f":{attribute}": {"S": value} for attribute, value in changes.items() if isinstance(value, str)},
        },
    }
    return [Write(action={"Update": update})]


def _cap_exceeded(_: object) -> CapExceeded:
    return CapExceeded("the balance may not hold that much, the bonus included")


def _key(uuid: str, type_: str) -> dict[str, Any]:
    return {"uuid": {"S": uuid}, "type": {"S": type_}}


def _amount(value: int) -> int:
    """An amount that may be written.

    Raises:
        Invalid: if it is not a whole number of 0 or more.
    """
    if type(value) is not int or value < 0:
        raise Invalid(f"an amount must be a whole number of 0 or more, got {type(value).__name__}; use minor units")
    return value
