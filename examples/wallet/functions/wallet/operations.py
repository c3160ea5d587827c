"""The operations: each makes one transaction of a call, for whichever face it comes through. Nothing is read."""

from __future__ import annotations

import os
from decimal import ROUND_DOWN, Decimal
from typing import Any, Final

from saga_runtime import Commit, DirectCall, Invalid

from . import builders
from .builders import CLEAR, Clear
from .keys import ECOPAY, POINT, unit_of
from .logs import logger

CAP: Final = "WALLET_CAP"
TABLE: Final = "WALLET_TABLE"
BONUS_RATE: Final = Decimal("0.20")


def bonus_of(amount: int) -> int:
    """Bonus of a top-up, rounded down."""
    return int((amount * BONUS_RATE).quantize(Decimal(1), rounding=ROUND_DOWN))


def pay(call: DirectCall) -> Commit:
    """Pay a merchant in ECOPAY, and with points if the card has them."""
    body = call.request
    card, merchant, amount, points = body["card"], body["merchant"], body["amount"], body.get("points", 0)
    distinct(card, merchant)
    here, now_ms = table(), call.now_ms
    writes = [
        *marked(call, card, "pay"),
        *builders.active(table=table(), uuid=card),
        *builders.active(table=table(), uuid=merchant),
        *builders.deduct(uuid=card, unit=ECOPAY, amount=amount, table=here, now_ms=now_ms),
        *builders.deduct(uuid=card, unit=POINT, amount=points, table=here, now_ms=now_ms),
        *builders.charge(uuid=merchant, unit=ECOPAY, amount=amount, table=here, now_ms=now_ms),
        *builders.charge(uuid=merchant, unit=POINT, amount=points, table=here, now_ms=now_ms),
        *builders.co2(uuid=card, amount=amount, table=here, now_ms=now_ms),
        *row(call, card, "pay", ECOPAY.code, -amount, merchant, refundable=amount),
        *row(call, card, "pay", POINT.code, -points, merchant),
        *row(call, merchant, "pay", ECOPAY.code, amount, card),
        *row(call, merchant, "pay", POINT.code, points, card),
    ]
    log("pay", body)
    return Commit(writes=writes, output={"payment": call.key, "paid": amount, "points": points})


def top_up(call: DirectCall) -> Commit:
    """Charge a card with cash and its bonus, up to the cap."""
    body = call.request
    card, amount = body["card"], body["amount"]
    bonus = bonus_of(amount)
    writes = [
        *marked(call, card, "topup"),
        *builders.active(table=table(), uuid=card),
        *builders.charge(
            table=table(), uuid=card, unit=ECOPAY, amount=amount, bonus=bonus, cap=cap(), now_ms=call.now_ms
        ),
        *row(call, card, "topup", ECOPAY.code, amount + bonus, "cash"),
    ]
    log("topup", body)
    return Commit(writes=writes, output={"charged": amount, "bonus": bonus})


def refund(call: DirectCall) -> Commit:
    """Give back a payment, in whole or in part. The cap does not refuse it: the money was the card's."""
    body = call.request
    card, merchant, amount = body["card"], body["merchant"], body["amount"]
    distinct(card, merchant)
    here, now_ms = table(), call.now_ms
    writes = [
        *marked(call, card, "refund"),
        *builders.active(table=table(), uuid=card),
        *builders.refund_of(
            table=table(), uuid=card, payment=body["payment"], unit=ECOPAY, merchant=merchant, amount=amount
        ),
        *builders.deduct(uuid=merchant, unit=ECOPAY, amount=amount, table=here, now_ms=now_ms),
        *builders.charge(uuid=card, unit=ECOPAY, amount=amount, table=here, now_ms=now_ms),
        *builders.co2(uuid=card, amount=-amount, table=here, now_ms=now_ms),
        *row(call, card, "refund", ECOPAY.code, amount, merchant),
        *row(call, merchant, "refund", ECOPAY.code, -amount, card),
    ]
    log("refund", body)
    return Commit(writes=writes, output={"refunded": amount})


def transfer(call: DirectCall) -> Commit:
    """Move an amount of one unit from a card to another one."""
    body = call.request
    source, target, amount, unit = body["card"], body["to"], body["amount"], unit_of(body["unit"])
    distinct(source, target)
    limit = cap() if unit == ECOPAY else None
    writes = [
        *marked(call, source, "transfer"),
        *builders.active(table=table(), uuid=source),
        *builders.active(table=table(), uuid=target),
        *builders.deduct(table=table(), uuid=source, unit=unit, amount=amount, now_ms=call.now_ms),
        *builders.charge(table=table(), uuid=target, unit=unit, amount=amount, cap=limit, now_ms=call.now_ms),
        *row(call, source, "transfer", unit.code, -amount, target),
        *row(call, target, "transfer", unit.code, amount, source),
    ]
    log("transfer", body)
    return Commit(writes=writes, output={"transferred": amount})


def issue(call: DirectCall) -> Commit:
    """Issue points, carbon credits or a region's units to a card."""
    body = call.request
    card, amount, unit = body["card"], body["amount"], unit_of(body["unit"])
    if unit == ECOPAY:
        raise Invalid("unit must be another one than ECOPAY, got ECOPAY; money enters by a top-up")
    writes = [
        *marked(call, card, "issue"),
        *builders.active(table=table(), uuid=card),
        *builders.charge(table=table(), uuid=card, unit=unit, amount=amount, now_ms=call.now_ms),
        *row(call, card, "issue", unit.code, amount, "issuer"),
    ]
    log("issue", body)
    return Commit(writes=writes, output={"issued": amount})


def open_card(call: DirectCall) -> Commit:
    """Open a card, or a merchant's account, with its profile."""
    body = call.request
    changes = _profile_of(body)
    writes = [
        *builders.open_card(table=table(), uuid=body["card"], now_ms=call.now_ms),
        *builders.profile(table=table(), uuid=body["card"], now_ms=call.now_ms, **changes),
    ]
    log("open", body)
    return Commit(writes=writes, output={"card": body["card"]})


def change_profile(call: DirectCall) -> Commit:
    """Change a profile: an absent member leaves, null removes."""
    body = call.request
    writes = [
        *builders.active(table=table(), uuid=body["card"]),
        *builders.profile(table=table(), uuid=body["card"], now_ms=call.now_ms, **_profile_of(body)),
    ]
    log("profile", body)
    return Commit(writes=writes, output={"card": body["card"]})


def cap() -> int:
    """Most that a card may hold in ECOPAY."""
    return int(os.environ[CAP])


def _profile_of(body: Any) -> dict[str, str | Clear]:
    members = ("name", "email", "phone_number")
    return {member: CLEAR if body[member] is None else body[member] for member in members if member in body}


def marked(call: DirectCall, card: str, operation: str) -> list[Any]:
    return builders.marker(table=table(), uuid=card, operation=operation, key=call.idempotency_key, now_ms=call.now_ms)


def row(
    call: DirectCall, uuid: str, operation: str, unit: str, amount: int, other: str, *, refundable: int | None = None
) -> list[Any]:
    return builders.history(
        table=table(),
        uuid=uuid,
        operation_id=call.key,
        operation=operation,
        unit=unit_of(unit),
        amount=amount,
        other=other,
        refundable=refundable,
    )


def distinct(one: str, other: str) -> None:
    if one == other:
        raise Invalid("both sides must differ, got the same card twice; a transaction writes an item once")


def table() -> str:
    return os.environ[TABLE]


def log(operation: str, body: Any) -> None:
    logger.info("planned", operation=operation, request=body)
