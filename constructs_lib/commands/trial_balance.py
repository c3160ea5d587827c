"""``cdk-sagas trial-balance``: prove that a ledger sums to zero, and that each balance is what its entries say."""

from __future__ import annotations

import argparse
import sys
from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from .aws import add_aws_options, one_line_errors, session_of

Item = Mapping[str, Mapping[str, Any]]


@dataclass(slots=True)
class Book:
    """One account, added up."""

    entries: int = 0
    total: int = 0
    balance: int | None = None
    sequence: int | None = None


@dataclass(slots=True)
class TrialBalance:
    """A ledger, added up: per currency and account."""

    books: dict[tuple[str, str], Book] = field(default_factory=lambda: defaultdict(Book))

    @property
    def wrong(self) -> list[str]:
        """What does not add up, one sentence each."""
        found = [
            f"{currency}: entries sum to {total}, must be 0" for currency, total in self.totals.items() if total != 0
        ]
        for (currency, name), book in sorted(self.books.items()):
            if book.balance is not None and book.balance != book.total:
                found.append(f"{currency} {name}: balance {book.balance}, entries sum to {book.total}")
            if book.sequence is not None and book.sequence != book.entries:
                found.append(f"{currency} {name}: sequence {book.sequence}, but {book.entries} entries")
        return found

    @property
    def totals(self) -> dict[str, int]:
        """Sum of all entries per currency: zero, in a ledger of two sides."""
        totals: dict[str, int] = defaultdict(int)
        for (currency, _), book in self.books.items():
            totals[currency] += book.total
        return dict(totals)


def add_up(items: Iterable[Item]) -> TrialBalance:
    """Add up the items of a ledger table. Memory grows with accounts, not with entries."""
    from saga_runtime.protocol import LedgerAttribute as A

    result = TrialBalance()
    for item in items:
        kind, name, *_ = item[A.PK]["S"].split("#")
        book = result.books[item[A.CURRENCY]["S"], f"{kind} {name}"]
        if item[A.KIND]["S"] == "account":
            book.balance, book.sequence = int(item[A.BALANCE]["N"]), int(item[A.SEQUENCE]["N"])
        else:
            book.entries += 1
            book.total += int(item[A.AMOUNT]["N"])
    return result


def add_parser(commands: Any) -> None:
    """Add ``trial-balance`` to the command."""
    parser: argparse.ArgumentParser = commands.add_parser(
        "trial-balance",
        help="prove that a ledger sums to zero",
        description="Reads a whole ledger table and adds it up: all entries of a currency must sum to zero, each "
        "balance to its entries. Reads are not one snapshot: while postings run, use a restored copy of the "
        "table. Exit status: 0 it adds up; 1 it does not, or the table could not be read.",
    )
    parser.add_argument("table", metavar="TABLE", help="name of the LedgerTable's table")
    parser.add_argument("--accounts", action="store_true", help="print every account, not only sums")
    add_aws_options(parser)
    parser.set_defaults(run=_run)


def _run(options: argparse.Namespace) -> int:
    session = session_of(options)
    with one_line_errors(f"table {options.table} was not added up"):
        pages = session.client("dynamodb").get_paginator("scan").paginate(TableName=options.table, ConsistentRead=True)
        result = add_up(item for page in pages for item in page["Items"])
    _print(result, accounts=options.accounts)
    return 1 if result.wrong else 0


def _print(result: TrialBalance, *, accounts: bool) -> None:
    out = sys.stdout.write
    if accounts:
        for (currency, name), book in sorted(result.books.items()):
            out(f"{currency}  {name:<48}{book.total:>20,}  {book.entries:>8,} entries\n")
    for currency, total in sorted(result.totals.items()):
        held = sum(book.balance or 0 for (of, _), book in result.books.items() if of == currency)
        count = sum(book.entries for (of, _), book in result.books.items() if of == currency)
        out(f"{currency}  accounts hold {held:,}; {count:,} entries sum to {total:,}\n")
    for sentence in result.wrong:
        out(f"WRONG  {sentence}\n")
    out("does not add up\n" if result.wrong else "adds up\n")
