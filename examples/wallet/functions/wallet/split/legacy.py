"""Release 0: every operation updates the customer's one record. It knows no marks, and no other item."""

from __future__ import annotations

import uuid as ids
from collections.abc import Mapping
from decimal import Decimal
from typing import Any

from saga_runtime import Commit, DirectCall, InsufficientFunds, Write
from saga_runtime.migration import CustomerUnknown

from ..builders import CO2_PER_YEN
from ..operations import bonus_of, distinct, table
from .history import old_form
from .layout import RECORD


def pay(call: DirectCall) -> Commit:
    """Pay a merchant in ECOPAY, and with points."""
    body = call.request
    distinct(body["card"], body["merchant"])
    amount, points = body["amount"], body.get("points", 0)
    taken = {"ecopay": -amount, "point": -points, "co2_saved": amount * CO2_PER_YEN}
    writes = [
        *_change(body["card"], taken, {"ecopay": amount, "point": points}),
        *_change(body["merchant"], {"ecopay": amount, "point": points}),
        *_rows(call, "pay", {body["card"]: (-amount, -points), body["merchant"]: (amount, points)}),
    ]
    return Commit(writes=writes, output={"payment": call.key})


def top_up(call: DirectCall) -> Commit:
    """Charge a card with cash and its bonus."""
    body = call.request
    total = body["amount"] + bonus_of(body["amount"])
    writes = [*_change(body["card"], {"ecopay": total}), *_rows(call, "topup", {body["card"]: (total, 0)})]
    return Commit(writes=writes, output={"charged": total})


def refund(call: DirectCall) -> Commit:
    """Give a payment back."""
    body = call.request
    distinct(body["card"], body["merchant"])
    amount = body["amount"]
    writes = [
        *_change(body["card"], {"ecopay": amount, "co2_saved": -amount * CO2_PER_YEN}),
        *_change(body["merchant"], {"ecopay": -amount}, {"ecopay": amount}),
        *_rows(call, "refund", {body["card"]: (amount, 0), body["merchant"]: (-amount, 0)}),
    ]
    return Commit(writes=writes, output={"refunded": amount})


def transfer(call: DirectCall) -> Commit:
    """Move points from a card to another one."""
    body = call.request
    distinct(body["card"], body["to"])
    amount = body["amount"]
    writes = [
        *_change(body["card"], {"point": -amount}, {"point": amount}),
        *_change(body["to"], {"point": amount}),
        *_rows(call, "transfer", {body["card"]: (0, -amount), body["to"]: (0, amount)}),
    ]
    return Commit(writes=writes, output={"transferred": amount})


def change_profile(call: DirectCall) -> Commit:
    """Change the profile: null removes."""
    body = call.request
    given = {name: body[name] for name in ("name", "email", "phone_number") if name in body}
    sets = {name: {"S": value} for name, value in given.items() if value is not None}
    return Commit(
        writes=[_update(body["card"], {}, {}, sets, [name for name, value in given.items() if value is None])],
        output={"card": body["card"]},
    )


def open_card(call: DirectCall) -> Commit:
    """Create a customer's record."""
    body = call.request
    record = {"uuid": {"S": body["card"]}, "type": {"S": RECORD}, "since": {"N": str(call.now_ms)}}
    put = {
        "TableName": table(),
        "Item": {**record, "name": {"S": body["name"]}, **{name: {"N": "0"} for name in ("ecopay", "point")}},
        "ConditionExpression": "attribute_not_exists(#uuid)",
        "ExpressionAttributeNames": {"#uuid": "uuid"},
    }
    return Commit(writes=[Write(action={"Put": put})], output={"card": body["card"]})


def _change(uuid: str, add: Mapping[str, int | Decimal], least: Mapping[str, int] | None = None) -> list[Write]:
    changes = {name: number for name, number in add.items() if number}
    return [_update(uuid, changes, {k: v for k, v in (least or {}).items() if v}, {}, [])] if changes else []


def _update(
    uuid: str,
    add: Mapping[str, int | Decimal],
    least: Mapping[str, int],
    sets: Mapping[str, Any],
    removed: list[str],
) -> Write:
    names = {f"#{name}": name for name in ("uuid", *add, *least, *sets, *removed)}
    values = {f":{name}": {"N": format(Decimal(number), "f")} for name, number in add.items()}
    values |= {f":least_{name}": {"N": str(number)} for name, number in least.items()}
    values |= {f":{name}": value for name, value in sets.items()}
    clauses = [
        ("ADD", [f"#{name} :{name}" for name in add]),
        ("SET", [f"#{name} = :{name}" for name in sets]),
        ("REMOVE", [f"#{name}" for name in removed]),
    ]
    action: dict[str, Any] = {
        "TableName": table(),
        "Key": {"uuid": {"S": uuid}, "type": {"S": RECORD}},
        "UpdateExpression": " ".join(f"{kind} {', '.join(parts)}" for kind, parts in clauses if parts),
        "ConditionExpression": " AND ".join(
            ["attribute_exists(#uuid)", *(f"#{name} >= :least_{name}" for name in least)]
        ),
        "ExpressionAttributeNames": names,
        "ReturnValuesOnConditionCheckFailure": "ALL_OLD",
    }
    if values:
        action["ExpressionAttributeValues"] = values
    return Write(
        action={"Update": action},
        refusal=lambda item: InsufficientFunds("the balance is too low") if item else CustomerUnknown("unknown card"),
    )


def _rows(call: DirectCall, operation: str, changes: Mapping[str, tuple[int, int]]) -> list[Write]:
    """Rows of the old form: two purchases of one second differ in nothing but a random suffix."""
    rows = []
    for uuid, amounts in changes.items():
        for unit, amount in zip(("ECOPAY", "POINT"), amounts, strict=True):
            if amount:
                row = old_form(
                    uuid=uuid, suffix=ids.uuid4().hex, operation=operation, unit=unit, amount=amount, ms=call.now_ms
                )
                rows.append(Write(action={"Put": {"TableName": table(), "Item": row}}))
    return rows
