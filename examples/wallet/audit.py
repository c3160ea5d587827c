"""Invariants of the wallet's table, whatever was killed, lost or sent twice."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence
from typing import Final

from constructs_lib.testing.invariants import Invariant, Item
from examples.wallet.functions.wallet.keys import BALANCE, HISTORY

_BETWEEN_CARDS: Final = {"pay", "transfer", "refund"}


def audit_wallet(items: Iterable[Item]) -> list[Invariant]:
    """Audit the table, also while requests are in progress: each of them is one transaction.

    Args:
        items: every item of the wallet's table.
    """
    known = list(items)
    return [_balances_are_sums(known), _nothing_is_lost_between_cards(known)]


def _balances_are_sums(items: Sequence[Item]) -> Invariant:
    balances: dict[tuple[str, str], int] = {}
    sums: dict[tuple[str, str], int] = defaultdict(int)
    for item in items:
        uuid, type_ = item["uuid"]["S"], item["type"]["S"]
        if type_.startswith(BALANCE):
            balances[uuid, type_.removeprefix(BALANCE).replace("#", ":")] = int(item["balance"]["N"])
        elif type_.startswith(HISTORY):
            sums[uuid, item["unit"]["S"]] += int(item["amount"]["N"])
    violations = [
        f"{uuid} has {balances.get((uuid, unit), 0)} {unit}, its history sums to {sums[uuid, unit]}"
        for uuid, unit in sorted({*balances, *sums})
        if balances.get((uuid, unit), 0) != sums[uuid, unit]
    ]
    violations += [f"{uuid} has {balance} {unit}" for (uuid, unit), balance in sorted(balances.items()) if balance < 0]
    name = "every balance is the sum of its history, and not negative"
    return Invariant(name=name, checked=len(balances), violations=tuple(violations))


def _nothing_is_lost_between_cards(items: Sequence[Item]) -> Invariant:
    net: dict[str, int] = defaultdict(int)
    rows = [item for item in items if item.get("operation", {}).get("S") in _BETWEEN_CARDS]
    for row in rows:
        net[row["unit"]["S"]] += int(row["amount"]["N"])
    violations = [f"{unit} nets to {amount}" for unit, amount in sorted(net.items()) if amount]
    name = "payments, refunds and transfers net to zero in each unit"
    return Invariant(name=name, checked=len(rows), violations=tuple(violations))
