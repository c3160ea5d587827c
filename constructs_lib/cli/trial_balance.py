"""``cdk-sagas trial-balance``: check that a ledger sums to zero, and that its items agree."""

from __future__ import annotations

import argparse
import sys
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from constructs_lib.cli.shared.aws import add_stack_options, one_line_errors, session_of
from constructs_lib.cli.shared.manifest import read_manifest
from constructs_lib.cli.shared.process import CommandError
from constructs_lib.cli.shared.reads import UNREADABLE
from constructs_lib.cli.shared.terminal import safe
from saga_runtime.protocol import LedgerAttribute as A

Item = Mapping[str, Mapping[str, Any]]


@dataclass(slots=True)
class Book:
    """One account, clearing account or collecting shard, added up.

    Attributes:
        entries: number of its entries.
        total: their sum.
        balance: its item's balance; None: it has none.
        sequence: number of entries in its item.
        held: amount that an account's item holds.
        holds: sum of its open holds.
        closed: whether it is a collecting shard that was closed.
        kept: whether it has an item: a clearing account has entries only.
    """

    entries: int = 0
    total: int = 0
    balance: int | None = None
    sequence: int | None = None
    held: int = 0
    holds: int = 0
    closed: bool = False
    kept: bool = True

    def wrong(self) -> Iterator[str]:
        """Yield what does not add up."""
        if self.balance is None and self.kept:
            yield f"no item, but {self.entries} entries that sum to {self.total}"
        if self.balance is not None and self.balance != self.total:
            yield f"balance {self.balance}, entries sum to {self.total}"
        if self.sequence is not None and self.sequence != self.entries:
            yield f"sequence {self.sequence}, but {self.entries} entries"
        if self.held != self.holds:
            yield f"held {self.held}, open holds sum to {self.holds}"
        if self.held > (self.balance or 0):
            yield f"held {self.held}, more than the balance of {self.balance}"
        if self.closed and self.balance:
            yield f"closed with {self.balance} in it"


@dataclass(slots=True)
class TrialBalance:
    """A ledger, added up: per unit and account."""

    books: dict[tuple[str, str], Book] = field(default_factory=lambda: defaultdict(Book))
    exceeded: list[str] = field(default_factory=list)
    unreadable: list[str] = field(default_factory=list)

    @property
    def wrong(self) -> list[str]:
        """Return what does not add up, one sentence each."""
        found = [
            f"{currency}: entries sum to {total}, must be 0" for currency, total in self.totals.items() if total != 0
        ]
        for (currency, name), book in sorted(self.books.items()):
            found += [f"{currency} {name}: {wrong}" for wrong in book.wrong()]
        return found + self.exceeded + self.unreadable

    @property
    def totals(self) -> dict[str, int]:
        """Sum of all entries per unit: zero, in a ledger of two sides."""
        totals: dict[str, int] = defaultdict(int)
        for (currency, _), book in self.books.items():
            totals[currency] += book.total
        return dict(totals)


def add_up(items: Iterable[Item]) -> TrialBalance:
    """Add up the items of a ledger table. Memory grows with accounts and collecting shards, not with entries.

    An item that cannot be read is wrong, and ends nothing.
    """
    result = TrialBalance()
    for item in items:
        try:
            _add(result, item)
        except UNREADABLE as error:
            key = " ".join(str(item.get(name, {}).get("S", "")) for name in (A.PK, A.SK))
            result.unreadable.append(f"item {key} cannot be read: {type(error).__name__} {error}")
    return result


def _add(result: TrialBalance, item: Item) -> None:
    kind, name, *rest = item[A.PK]["S"].split("#")
    # Clearing accounts are one each, collecting shards are not: each must be right on its own.
    shard = " ".join(["", *rest]) if kind == "collecting" else ""
    book = result.books[item[A.CURRENCY]["S"], f"{kind} {name}{shard}"]
    book.kept = kind != "clearing"
    match item[A.KIND]["S"]:
        case "account":
            book.balance, book.sequence = int(item[A.BALANCE]["N"]), int(item[A.SEQUENCE]["N"])
            book.held = int(item[A.HELD]["N"])
        case "shard":
            book.balance, book.sequence = int(item[A.BALANCE]["N"]), int(item[A.SEQUENCE]["N"])
            book.closed = item[A.STATE]["S"] == "CLOSED"
        case "hold":
            amount, captured = int(item[A.AMOUNT]["N"]), int(item.get(A.CAPTURED, {"N": 0})["N"])
            book.holds += amount if item[A.STATE]["S"] == "OPEN" else 0
            if captured > amount:
                result.exceeded.append(f"hold {item[A.HOLD_ID]['S']} of {name}: holds {amount}, captured {captured}")
        case _:
            book.total += int(item[A.AMOUNT]["N"])
            book.entries += 1


def add_options(parser: argparse.ArgumentParser) -> None:
    """Describe ``trial-balance``, and add its options."""
    parser.description = (
        "Reads a whole ledger table and adds it up: all entries of a unit must sum to zero, each balance "
        "and each collecting shard to its entries, what an account holds to its open holds. Reads are not one "
        "snapshot: while postings run, use a restored copy of the table, which may have a posting of its moment in "
        "part. Exit status: 0 it adds up; 1 it does not, or the table could not be read."
    )
    add_stack_options(parser)
    parser.add_argument(
        "--ledger", metavar="TABLE", help="table of one ledger, or a copy of it; all of the stack by default"
    )
    parser.add_argument("--accounts", action="store_true", help="print every account, not only sums")


def run(options: argparse.Namespace) -> int:
    """Run the command, and return its exit status."""
    session = session_of(options)
    with one_line_errors("no ledger was added up"):
        manifest = read_manifest(session.client("cloudformation"), options.stack)
    # A restored copy has a name that no stack knows.
    tables = manifest.ledgers if options.ledger is None else (options.ledger,)
    if not tables:
        raise CommandError(f"{manifest.said} must have a LedgerTable, got none; name the stack that has it")
    wrong = False
    for table in tables:
        with one_line_errors(f"table {table} was not added up"):
            pages = session.client("dynamodb").get_paginator("scan").paginate(TableName=table, ConsistentRead=True)
            result = add_up(item for page in pages for item in page["Items"])
        if len(tables) > 1:
            sys.stdout.write(f"{table}\n")
        _print(result, accounts=options.accounts)
        wrong = wrong or bool(result.wrong)
    return 1 if wrong else 0


def _print(result: TrialBalance, *, accounts: bool) -> None:
    out = sys.stdout.write
    if accounts:
        for (currency, name), book in sorted(result.books.items()):
            out(f"{safe(currency)}  {safe(name):<48}{book.total:>20,}  {book.entries:>8,} entries\n")
    for currency, total in sorted(result.totals.items()):
        books = [book for (of, _), book in result.books.items() if of == currency]
        balance, held = sum(book.balance or 0 for book in books), sum(book.held for book in books)
        count = sum(book.entries for book in books)
        out(f"{safe(currency)}  balances {balance:,}, of it held {held:,}; {count:,} entries sum to {total:,}\n")
    for sentence in result.wrong:
        out(f"WRONG  {safe(sentence)}\n")
    out("does not add up\n" if result.wrong else "adds up\n")
