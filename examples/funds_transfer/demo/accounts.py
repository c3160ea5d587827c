"""The accounts of both ledgers: what is opened at the beginning, and what is closed in the middle."""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Final

from constructs_lib.testing import LocalAws
from saga_runtime import Account, LedgerBuilder, Money, account_key
from saga_runtime.saga_log.write import Write

CURRENCY: Final = "EUR"
MAIN: Final = "main"
PARTNER: Final = "partner"
LEDGERS: Final[Mapping[str, str]] = {MAIN: "LedgerTableName", PARTNER: "PartnerLedgerTableName"}
"""The stack's output with the name of each ledger's table."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Opening:
    """An account at the beginning.

    Attributes:
        ledger: Which ledger has it.
        name: Its id.
        balance: What it holds, in minor units.
        cap: What it may hold at most.
        closed: Whether it is closed at once.
    """

    ledger: str
    name: str
    balance: int = 0
    cap: int | None = None
    closed: bool = False


def open_accounts(aws: LocalAws, outputs: Mapping[str, str], accounts: Iterable[Opening]) -> None:
    """Open accounts, each with its first balance, with the ledger's own builder."""
    for account in accounts:
        table = outputs[LEDGERS[account.ledger]]
        writes = LedgerBuilder(table=table).open_account(
            account_id=account.name,
            opening=Money(account.balance, CURRENCY),
            cap=account.cap,
            now_ms=int(time.time() * 1000),
        )
        _write(aws, writes)
        if account.closed:
            close_account(aws, table, account.name)


def close_account(aws: LocalAws, table: str, name: str) -> bool:
    """Close an account, and return whether it is closed now: one that holds money stays open."""
    found = aws.client("dynamodb").get_item(TableName=table, Key=account_key(name), ConsistentRead=True)
    account = Account.from_item(name, found["Item"])
    if account.balance.minor_units:
        return False
    _write(aws, LedgerBuilder(table=table).close_account(account=account))
    return True


def _write(aws: LocalAws, writes: Iterable[Write]) -> None:
    # The stubs know the entries of a transaction as literal shapes only.
    actions: list[Any] = [write.action for write in writes]
    aws.client("dynamodb").transact_write_items(TransactItems=actions)
