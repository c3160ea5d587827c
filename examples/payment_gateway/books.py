"""The gateway's books: charges, refunds, idempotency keys and the journal of requests, in one SQLite file.

The gateway is naive on purpose: what a caller asks for under two keys happens twice, and a charge can be refunded
more often than it was made. A caller that gets it wrong shows in the books, and is not saved by the provider.
"""

from __future__ import annotations

import hashlib
import json
import sqlite3
import threading
import uuid
from collections.abc import Callable, Iterator, Mapping
from contextlib import closing, contextmanager
from dataclasses import asdict, astuple, dataclass
from pathlib import Path
from typing import Any, Final

from examples.payment_gateway.troubles import Operation

DECLINED_CARD: Final = "card-declined"
"""A card that is always declined, as providers have them for tests."""

_SCHEMA: Final = """
CREATE TABLE IF NOT EXISTS charges (
    id TEXT PRIMARY KEY, key TEXT, reference TEXT, amount INTEGER, currency TEXT, status TEXT, at_ms INTEGER);
CREATE TABLE IF NOT EXISTS refunds (
    id TEXT PRIMARY KEY, key TEXT, reference TEXT, charge TEXT, amount INTEGER, at_ms INTEGER);
CREATE TABLE IF NOT EXISTS keys (
    key TEXT PRIMARY KEY, parameters TEXT, status INTEGER, body TEXT, at_ms INTEGER);
CREATE TABLE IF NOT EXISTS requests (
    number INTEGER PRIMARY KEY, operation TEXT, key TEXT, reference TEXT, outcome TEXT, at_ms INTEGER);
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
class Received:
    """A request that reached the gateway.

    Attributes:
        number: 1, 2, 3 …
        operation: what was asked for.
        key: the idempotency key, or that of what was looked for.
        reference: what the caller calls it.
        outcome: HTTP status, followed by the error; "…" until then.
        at_ms: when it arrived.
    """

    number: int
    operation: str
    key: str
    reference: str
    outcome: str
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


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """An HTTP status and a JSON document."""

    status: int
    document: Mapping[str, Any]


def problem(status: int, code: str, message: str) -> Answer:
    """An error's answer."""
    return Answer(status=status, document={"error": {"code": code, "message": message}})


class BookKeeper:
    """Writes the books. Every effect and the record of its key are one transaction.

    Args:
        file: the SQLite file.
        window_ms: how long a key is remembered; afterwards the same key charges again.
        now_ms: the clock.
    """

    def __init__(self, file: Path, *, window_ms: int, now_ms: Callable[[], int]) -> None:
        self._window_ms = window_ms
        self._now_ms = now_ms
        self._lock = threading.Lock()
        self._database = sqlite3.connect(file, check_same_thread=False, isolation_level=None)
        self._database.row_factory = sqlite3.Row
        self._database.execute("PRAGMA journal_mode = WAL")
        self._database.execute("PRAGMA synchronous = NORMAL")
        self._database.executescript(_SCHEMA)
        # What was in work when the gateway went down has had no effect.
        self._database.execute("DELETE FROM keys WHERE status IS NULL")

    def close(self) -> None:
        """Close the file."""
        with self._lock:
            self._database.close()

    def clear(self) -> None:
        """Empty the books."""
        with self._transaction() as cursor:
            for table in ("charges", "refunds", "keys", "requests"):
                cursor.execute(f"DELETE FROM {table}")  # noqa: S608 - the names are in the line above

    def forget(self, key: str) -> None:
        """Forget a key, as if its window were over."""
        with self._transaction() as cursor:
            cursor.execute("DELETE FROM keys WHERE key = ?", (key,))

    def note(self, operation: Operation, key: str, reference: str) -> int:
        """Write a request into the journal, and return its number."""
        with self._transaction() as cursor:
            cursor.execute(
                "INSERT INTO requests (operation, key, reference, outcome, at_ms) VALUES (?, ?, ?, '…', ?)",
                (operation, key, reference, self._now_ms()),
            )
            return int(cursor.lastrowid or 0)

    def note_outcome(self, number: int, outcome: str) -> None:
        """Write the outcome of a request into the journal."""
        with self._transaction() as cursor:
            cursor.execute("UPDATE requests SET outcome = ? WHERE number = ?", (outcome, number))

    def claim(self, operation: Operation, key: str, body: Mapping[str, Any]) -> Answer | None:
        """Take a key into work; an answer, if there is nothing to do: it was used before, or is in use."""
        parameters = _parameters(operation, body)
        with self._transaction() as cursor:
            cursor.execute("DELETE FROM keys WHERE key = ? AND at_ms <= ?", (key, self._now_ms() - self._window_ms))
            found = cursor.execute("SELECT parameters, status, body FROM keys WHERE key = ?", (key,)).fetchone()
            if found is None:
                cursor.execute(
                    "INSERT INTO keys (key, parameters, at_ms) VALUES (?, ?, ?)", (key, parameters, self._now_ms())
                )
                return None
        known, status, document = found
        if known != parameters:
            return problem(422, "idempotency_key_reused", "the key was used with other parameters")
        if status is None:
            return problem(409, "idempotency_key_in_use", "a request under this key is in work")
        return Answer(status=int(status), document=json.loads(document))

    def charge(self, key: str, body: Mapping[str, Any], *, decline: bool) -> Answer:
        """Charge a card under a key that was claimed."""
        declined = decline or body["card"] == DECLINED_CARD
        charge = Charge(
            id=f"ch_{uuid.uuid4().hex}", key=key, reference=body["reference"], amount=body["amount"],
            currency=body["currency"], status="declined" if declined else "succeeded", at_ms=self._now_ms(),
        )  # fmt: skip
        answer = Answer(status=201, document=asdict(charge))
        if declined:
            answer = problem(402, "card_declined", "the card was declined")
        with self._transaction() as cursor:
            cursor.execute("INSERT INTO charges VALUES (?, ?, ?, ?, ?, ?, ?)", astuple(charge))
            self._remember(cursor, key, answer)
        return answer

    def refund(self, key: str, body: Mapping[str, Any]) -> Answer:
        """Give a charge's money back under a key that was claimed."""
        with self._transaction() as cursor:
            found = cursor.execute("SELECT status FROM charges WHERE id = ?", (body["charge"],)).fetchone()
            if found is None or found[0] != "succeeded":
                answer = problem(404, "charge_unknown", "there is no such charge")
            else:
                refund = Refund(
                    id=f"re_{uuid.uuid4().hex}", key=key, reference=body["reference"], charge=body["charge"],
                    amount=body["amount"], at_ms=self._now_ms(),
                )  # fmt: skip
                cursor.execute("INSERT INTO refunds VALUES (?, ?, ?, ?, ?, ?)", astuple(refund))
                answer = Answer(status=201, document=asdict(refund))
            self._remember(cursor, key, answer)
        return answer

    def find(self, operation: Operation, key: str) -> Answer:
        """Return every effect under a key, and whether a request is in progress.

        Books are kept for longer than keys are remembered.
        """
        with self._transaction() as cursor:
            table = "charges" if operation is Operation.FIND_CHARGE else "refunds"
            # The names are ours, the value is bound.
            rows = cursor.execute(f"SELECT * FROM {table} WHERE key = ? ORDER BY rowid", (key,))  # noqa: S608
            found = [dict(row) for row in rows]
            in_work = cursor.execute("SELECT 1 FROM keys WHERE key = ? AND status IS NULL", (key,)).fetchone()
        return Answer(status=200, document={"found": found, "in_work": in_work is not None})

    def _remember(self, cursor: sqlite3.Cursor, key: str, answer: Answer) -> None:
        cursor.execute(
            "UPDATE keys SET status = ?, body = ? WHERE key = ?", (answer.status, json.dumps(answer.document), key)
        )

    @contextmanager
    def _transaction(self) -> Iterator[sqlite3.Cursor]:
        with self._lock:
            cursor = self._database.execute("BEGIN IMMEDIATE")
            try:
                yield cursor
            except BaseException:
                cursor.execute("ROLLBACK")
                raise
            cursor.execute("COMMIT")


def read_books(file: Path) -> Books:
    """Read the books from their file, also when the gateway is down."""
    with _reading(file) as database:
        return Books(
            charges=tuple(Charge(**row) for row in database.execute("SELECT * FROM charges ORDER BY rowid")),
            refunds=tuple(Refund(**row) for row in database.execute("SELECT * FROM refunds ORDER BY rowid")),
        )


def read_requests(file: Path) -> list[Received]:
    """Read the journal of requests from the file of the books."""
    with _reading(file) as database:
        return [Received(**row) for row in database.execute("SELECT * FROM requests ORDER BY number")]


@contextmanager
def _reading(file: Path) -> Iterator[sqlite3.Connection]:
    with closing(sqlite3.connect(f"{file.resolve().as_uri()}?mode=ro", uri=True)) as database:
        database.row_factory = sqlite3.Row
        yield database


def _parameters(operation: Operation, body: Mapping[str, Any]) -> str:
    return hashlib.sha256(json.dumps([operation, body], sort_keys=True).encode()).hexdigest()
