"""Uses the ledger as its caller asks, outside a saga."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import timedelta
from typing import Any

from saga_runtime import Clearing, DirectEntry, Ledger, Money, Unit, Write

ledger = Ledger.from_env()
POINT = Unit("POINT", 0)


def handler(event: dict[str, Any], _: object) -> dict[str, Any]:
    """Commit what the event asks for."""
    entry = DirectEntry(event["key"], *([event["now_ms"]] if "now_ms" in event else []))
    return {"written": ledger.commit(lambda: _writes(event, entry))}


def _writes(event: dict[str, Any], entry: DirectEntry) -> Sequence[Write]:
    account, amount = event["account"], Money(event["amount"], "JPY")
    match event["do"]:
        case "open":
            opening = Money(event["amount"], POINT if event.get("points") else "JPY")
            return ledger.builder.open_account(account_id=account, opening=opening, now_ms=entry.now_ms)
        case "pay":
            legs: list[Any] = [(account, -amount), ("merchant:7", amount)]
            legs += [(f"{account}.points", Money(1, POINT)), (Clearing("points"), Money(-1, POINT))]
            return ledger.post(entry, legs)
        case "pay out":
            return ledger.debit(entry, account=account, amount=amount, clearing="bank")
        case "hold":
            seconds = timedelta(seconds=event["seconds"])
            return ledger.authorize(entry, account=account, amount=amount, expires_in=seconds)
        case "capture":
            return ledger.capture(entry, account=account, hold=event["hold"], legs=[("merchant:7", amount)])
        case _:
            return ledger.void(entry, account=account, hold=event["hold"])
