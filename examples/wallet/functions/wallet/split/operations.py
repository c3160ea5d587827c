"""Releases 1 to 14: the same operations, wherever the customer's concerns are at the moment.

Compare with ``legacy.py``: an update of the record became ``store().writes``.
"""

from __future__ import annotations

from collections.abc import Mapping

from saga_runtime import Commit, DirectCall, InsufficientFunds, Write
from saga_runtime.migration import CLEAR, Change

from ..builders import CO2_PER_YEN
from ..operations import bonus_of, distinct, table
from .history import both_forms
from .layout import store


def pay(call: DirectCall) -> Commit:
    """Pay a merchant in ECOPAY, and with points."""
    body = call.request
    card, merchant, amount, points = body["card"], body["merchant"], body["amount"], body.get("points", 0)
    distinct(card, merchant)
    writes = [
        *store().writes(
            card,
            {
                "ECOPAY": _taken(amount),
                "POINT": _taken(points),
                "METRICS": Change(add={"co2_saved": amount * CO2_PER_YEN}),
            },
        ),
        *store().writes(merchant, {"ECOPAY": _given(amount), "POINT": _given(points)}),
        *_rows(call, "pay", {card: (-amount, -points), merchant: (amount, points)}),
    ]
    return Commit(writes=writes, output={"payment": call.key})


def top_up(call: DirectCall) -> Commit:
    """Charge a card with cash and its bonus."""
    card, amount = call.request["card"], call.request["amount"]
    total = amount + bonus_of(amount)
    writes = [*store().writes(card, {"ECOPAY": _given(total)}), *_rows(call, "topup", {card: (total, 0)})]
    return Commit(writes=writes, output={"charged": total})


def refund(call: DirectCall) -> Commit:
    """Give a payment back."""
    body = call.request
    card, merchant, amount = body["card"], body["merchant"], body["amount"]
    distinct(card, merchant)
    writes = [
        *store().writes(card, {"ECOPAY": _given(amount), "METRICS": Change(add={"co2_saved": -amount * CO2_PER_YEN})}),
        *store().writes(merchant, {"ECOPAY": _taken(amount)}),
        *_rows(call, "refund", {card: (amount, 0), merchant: (-amount, 0)}),
    ]
    return Commit(writes=writes, output={"refunded": amount})


def transfer(call: DirectCall) -> Commit:
    """Move points from a card to another one."""
    source, target, amount = call.request["card"], call.request["to"], call.request["amount"]
    distinct(source, target)
    writes = [
        *store().writes(source, {"POINT": _taken(amount)}),
        *store().writes(target, {"POINT": _given(amount)}),
        *_rows(call, "transfer", {source: (0, -amount), target: (0, amount)}),
    ]
    return Commit(writes=writes, output={"transferred": amount})


def change_profile(call: DirectCall) -> Commit:
    """Change the profile: an absent member leaves, null removes."""
    body = call.request
    given = {name: body[name] for name in ("name", "email", "phone_number") if name in body}
    change = Change(put={name: CLEAR if value is None else value for name, value in given.items()})
    return Commit(writes=store().writes(body["card"], {"PROFILE": change}), output={"card": body["card"]})


def open_card(call: DirectCall) -> Commit:
    """Create a customer in the form of the present phase."""
    body = call.request
    values = {
        "PROFILE": {"name": body["name"], "since": call.now_ms},
        "ECOPAY": {"balance": 0},
        "POINT": {"balance": 0},
    }
    return Commit(writes=store().born(body["card"], values), output={"card": body["card"]})


def _given(amount: int) -> Change:
    return Change(add={"balance": amount})


def _taken(amount: int) -> Change:
    return Change(
        add={"balance": -amount},
        at_least={"balance": amount},
        refusal=lambda: InsufficientFunds("the balance is too low"),
    )


def _rows(call: DirectCall, operation: str, changes: Mapping[str, tuple[int, int]]) -> list[Write]:
    return [
        write
        for uuid, amounts in changes.items()
        for unit, amount in zip(("ECOPAY", "POINT"), amounts, strict=True)
        for write in both_forms(
            table=table(),
            uuid=uuid,
            operation_id=call.key,
            operation=operation,
            unit=unit,
            amount=amount,
            now_ms=call.now_ms,
        )
    ]
