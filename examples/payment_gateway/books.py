"""The gateway's books: charges and refunds, next to the keys and the journal of every provider.

The gateway is naive on purpose: what a caller asks for under two keys happens twice, and a charge can be refunded
more often than it was made. A caller that gets it wrong shows in the books, and is not saved by the provider.
"""

from __future__ import annotations

import uuid
from collections.abc import Callable, Mapping
from dataclasses import asdict, astuple, dataclass
from pathlib import Path
from typing import Any, Final

from constructs_lib.testing.providers import books
from constructs_lib.testing.providers.books import Answer, Page, ProviderRequest, problem, read_requests, reading
from examples.payment_gateway.troubles import Operation

DECLINED_CARD: Final = "card-declined"
"""A card that is always declined, as providers have them for tests."""

_SCHEMA: Final = """
CREATE TABLE IF NOT EXISTS charges (
    id TEXT PRIMARY KEY, key TEXT, reference TEXT, amount INTEGER, currency TEXT, status TEXT, at_ms INTEGER);
CREATE TABLE IF NOT EXISTS refunds (
    id TEXT PRIMARY KEY, key TEXT, reference TEXT, charge TEXT, amount INTEGER, at_ms INTEGER);
CREATE INDEX IF NOT EXISTS charges_by_key ON charges (key);
CREATE INDEX IF NOT EXISTS refunds_by_key ON refunds (key);
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Charge:
    """A charge that was tried.

    Attributes:
        id: the gateway's name for it.
        key: the idempotency key that it was asked for under.
        reference: what the caller calls it (an order).
        amount: minor units.
        currency: three letters.
        status: ``succeeded`` or ``declined``.
        at_ms: when.
    """

    id: str
    key: str
    reference: str
    amount: int
    currency: str
    status: str
    at_ms: int

    @property
    def succeeded(self) -> bool:
        """True if money was taken."""
        return self.status == "succeeded"


@dataclass(frozen=True, slots=True, kw_only=True)
class Refund:
    """Money that was given back.

    Attributes:
        id: the gateway's name for it.
        key: the idempotency key that it was asked for under.
        reference: what the caller calls it (an order).
        charge: id of the charge.
        amount: minor units.
        at_ms: when.
    """

    id: str
    key: str
    reference: str
    charge: str
    amount: int
    at_ms: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Books:
    """Contents of the books.

    Attributes:
        charges: in the order in which they happened, declined ones included.
        refunds: likewise.
    """

    charges: tuple[Charge, ...]
    refunds: tuple[Refund, ...]

    def of(self, reference: str) -> Books:
        """The part that is about one order."""
        return Books(
            charges=tuple(charge for charge in self.charges if charge.reference == reference),
            refunds=tuple(refund for refund in self.refunds if refund.reference == reference),
        )

    @property
    def taken(self) -> int:
        """Amount charged, less the amount refunded, in minor units."""
        return sum(c.amount for c in self.charges if c.succeeded) - sum(refund.amount for refund in self.refunds)


class BookKeeper(books.BookKeeper[Page]):
    """Keeps the books. Every effect and the record of its key are one transaction.

    Args:
        file: the SQLite file.
        window_ms: how long a key is remembered; afterwards the same key charges again.
        now_ms: the clock.
    """

    def __init__(self, file: Path, *, window_ms: int, now_ms: Callable[[], int]) -> None:
        super().__init__(file, schema=_SCHEMA, page=Page, window_ms=window_ms, now_ms=now_ms)

    def charge(self, key: str, body: Mapping[str, Any], *, decline: bool) -> Answer:
        """Charge a card under a key that was claimed."""
        declined = decline or body["card"] == DECLINED_CARD
        charge = Charge(
            id=f"ch_{uuid.uuid4().hex}", key=key, reference=body["reference"], amount=body["amount"],
            currency=body["currency"], status="declined" if declined else "succeeded", at_ms=self.now_ms(),
        )  # fmt: skip
        answer = Answer(status=201, document=asdict(charge))
        if declined:
            answer = problem(402, "card_declined", "the card was declined")
        with self.page() as page:
            page.execute("INSERT INTO charges VALUES (?, ?, ?, ?, ?, ?, ?)", *astuple(charge))
            page.remember(key, answer)
        return answer

    def refund(self, key: str, body: Mapping[str, Any]) -> Answer:
        """Give a charge's money back under a key that was claimed."""
        with self.page() as page:
            found = page.execute("SELECT status FROM charges WHERE id = ?", body["charge"]).fetchone()
            if found is None or found[0] != "succeeded":
                answer = problem(404, "charge_unknown", "there is no such charge")
            else:
                refund = Refund(
                    id=f"re_{uuid.uuid4().hex}", key=key, reference=body["reference"], charge=body["charge"],
                    amount=body["amount"], at_ms=self.now_ms(),
                )  # fmt: skip
                page.execute("INSERT INTO refunds VALUES (?, ?, ?, ?, ?, ?)", *astuple(refund))
                answer = Answer(status=201, document=asdict(refund))
            page.remember(key, answer)
        return answer

    def find(self, operation: Operation, key: str) -> Answer:
        """Return every effect under a key, and whether a request is in progress.

        Books are kept for longer than keys are remembered.
        """
        with self.page() as page:
            table = "charges" if operation is Operation.FIND_CHARGE else "refunds"
            # The names are ours, the value is bound.
            rows = page.execute(f"SELECT * FROM {table} WHERE key = ? ORDER BY rowid", key)  # noqa: S608
            found = [dict(row) for row in rows]
            in_work = page.in_work(key)
        return Answer(status=200, document={"found": found, "in_work": in_work})


def read_books(file: Path) -> Books:
    """Read the books from their file, also when the gateway is down."""
    with reading(file) as database:
        return Books(
            charges=tuple(Charge(**row) for row in database.execute("SELECT * FROM charges ORDER BY rowid")),
            refunds=tuple(Refund(**row) for row in database.execute("SELECT * FROM refunds ORDER BY rowid")),
        )


__all__ = [
    "DECLINED_CARD",
    "Answer",
    "BookKeeper",
    "Books",
    "Charge",
    "ProviderRequest",
    "Refund",
    "read_books",
    "read_requests",
]
