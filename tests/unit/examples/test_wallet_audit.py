"""The wallet's audit finds what it is there for."""

from __future__ import annotations

from typing import Any

import pytest

from examples.wallet.audit import audit_wallet


def _balance(uuid: str, amount: int) -> dict[str, Any]:
    return {"uuid": {"S": uuid}, "type": {"S": "BALANCE#ECOPAY"}, "balance": {"N": str(amount)}}


def _row(uuid: str, amount: int, operation: str = "pay") -> dict[str, Any]:
    return {
        "uuid": {"S": uuid},
        "type": {"S": f"history#1#{uuid}#ECOPAY"},
        "operation": {"S": operation},
        "unit": {"S": "ECOPAY"},
        "amount": {"N": str(amount)},
    }


@pytest.mark.parametrize(
    ("items", "broken"),
    [
        ([_balance("a", 5), _row("a", 5, "topup")], []),
        ([_balance("a", -5), _row("a", -5), _balance("b", 5), _row("b", 5)], ["a has -5 ECOPAY"]),
        ([_balance("a", 5), _row("a", 4, "topup")], ["a has 5 ECOPAY, its history sums to 4"]),
        ([_row("a", 4, "topup")], ["a has 0 ECOPAY, its history sums to 4"]),
        ([_balance("a", 5), _row("a", 5)], ["ECOPAY nets to 5"]),
    ],
)
def test_it_finds_wrong_sums(items: list[dict[str, Any]], broken: list[str]) -> None:
    assert [violation for invariant in audit_wallet(items) for violation in invariant.violations] == broken
