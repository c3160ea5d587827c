"""Books of a fake provider in one SQLite file: idempotency keys, the journal of requests, and tables of its own.

Naive on purpose: a request under two keys is processed twice, so that a caller's mistake shows in the books.
"""

from __future__ import annotations

import hashlib
import json
import sqlite3
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import closing, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, Generic, TypeVar

_SCHEMA: Final = """
CREATE TABLE IF NOT EXISTS keys (
    key TEXT PRIMARY KEY, parameters TEXT, status INTEGER, body TEXT, at_ms INTEGER);
CREATE TABLE IF NOT EXISTS requests (
    number INTEGER PRIMARY KEY, operation TEXT, key TEXT, reference TEXT, outcome TEXT, at_ms INTEGER);
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class ProviderRequest:
    """A request that reached the provider.

    Attributes:
        number: 1, 2, 3 …
        operation: name of the operation.
        key: the idempotency key, or that of a query.
        reference: the caller's name of the subject.
        outcome: HTTP status, followed by the trouble; "…" until then.
        at_ms: epoch milliseconds of its arrival.
    """

    number: int
    operation: str
    key: str
    reference: str
    outcome: str
    at_ms: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """An HTTP status and a JSON document."""

    status: int
    document: Mapping[str, Any]


def problem(status: int, code: str, message: str) -> Answer:
    """An error's answer."""
    return Answer(status=status, document={"error": {"code": code, "message": message}})


class Page:
    """The books in one transaction: all its writes are committed, or none."""

    def __init__(self, cursor: sqlite3.Cursor, now_ms: int) -> None:
        self._cursor = cursor
        self.now_ms = now_ms

    def execute(self, statement: str, *values: Any) -> sqlite3.Cursor:
        """Execute a statement."""
        return self._cursor.execute(statement, values)

    def remember(self, key: str, answer: Answer) -> None:
        """Keep a key's answer."""
        self.execute(
            "UPDATE keys SET status = ?, body = ? WHERE key = ?", answer.status, json.dumps(answer.document), key
        )

    def in_work(self, key: str) -> bool:
        """Test whether a request under a key is in progress."""
        return self.execute("SELECT 1 FROM keys WHERE key = ? AND status IS NULL", key).fetchone() is not None


PageOf = TypeVar("PageOf", bound=Page)


class BookKeeper(Generic[PageOf]):
    """Keeps the books.

    Args:
        file: the SQLite file.
        schema: statements that create the provider's own tables.
        page: makes a page of a transaction's cursor and time.
        window_ms: how long a key is remembered; afterwards the same key acts again.
        now_ms: the clock.
    """

    def __init__(
        self,
        file: Path,
        *,
        schema: str,
        page: Callable[[sqlite3.Cursor, int], PageOf],
        window_ms: int,
        now_ms: Callable[[], int],
    ) -> None:
        self._window_ms = window_ms
        self._page = page
        self.now_ms = now_ms
        self._lock = threading.Lock()
        self._database = sqlite3.connect(file, check_same_thread=False, isolation_level=None)
        self._database.row_factory = sqlite3.Row
        self._database.execute("PRAGMA journal_mode = WAL")
        self._database.execute("PRAGMA synchronous = NORMAL")
        self._database.executescript(schema + _SCHEMA)
        # A request that was in progress when the provider stopped had no effect.
        self._database.execute("DELETE FROM keys WHERE status IS NULL")

    @contextmanager
    def page(self) -> Iterator[PageOf]:
        """One transaction."""
        with self._lock:
            cursor = self._database.execute("BEGIN IMMEDIATE")
            try:
                yield self._page(cursor, self.now_ms())
            except BaseException:
                cursor.execute("ROLLBACK")
                raise
            cursor.execute("COMMIT")

    def close(self) -> None:
        """Close the file."""
        with self._lock:
            self._database.close()

    def clear(self) -> None:
        """Empty the books."""
        with self.page() as page:
            tables = page.execute("SELECT name FROM sqlite_master WHERE type = 'table'").fetchall()
            for (name,) in tables:
                page.execute(f"DELETE FROM {name}")  # noqa: S608 - the database's own names

    def forget(self, key: str) -> None:
        """Forget a key, as if its window were over."""
        with self.page() as page:
            page.execute("DELETE FROM keys WHERE key = ?", key)

    def note(self, operation: str, key: str, reference: str) -> int:
        """Write a request into the journal, and return its number."""
        with self.page() as page:
            written = page.execute(
                "INSERT INTO requests (operation, key, reference, outcome, at_ms) VALUES (?, ?, ?, '…', ?)",
                operation, key, reference, page.now_ms,
            )  # fmt: skip
            return int(written.lastrowid or 0)

    def note_outcome(self, number: int, outcome: str) -> None:
        """Write the outcome of a request into the journal."""
        with self.page() as page:
            page.execute("UPDATE requests SET outcome = ? WHERE number = ?", outcome, number)

    def claim(self, operation: str, key: str, body: Mapping[str, Any]) -> Answer | None:
        """Reserve a key; an answer if it was used before, or is in progress."""
        parameters = hashlib.sha256(json.dumps([operation, body], sort_keys=True).encode()).hexdigest()
        with self.page() as page:
            page.execute("DELETE FROM keys WHERE key = ? AND at_ms <= ?", key, page.now_ms - self._window_ms)
            found = page.execute("SELECT parameters, status, body FROM keys WHERE key = ?", key).fetchone()
            if found is None:
                page.execute("INSERT INTO keys (key, parameters, at_ms) VALUES (?, ?, ?)", key, parameters, page.now_ms)
                return None
        known, status, document = found
        if known != parameters:
            return problem(422, "idempotency_key_reused", "the key was used with other parameters")
        if status is None:
            return problem(409, "idempotency_key_in_use", "a request under this key is in work")
        return Answer(status=int(status), document=json.loads(document))


def read_requests(file: Path) -> list[ProviderRequest]:
    """Read the journal of requests, also when the provider is down."""
    with reading(file) as database:
        return [ProviderRequest(**row) for row in database.execute("SELECT * FROM requests ORDER BY number")]


@contextmanager
def reading(file: Path) -> Iterator[sqlite3.Connection]:
    """Open the file of the books to read it."""
    with closing(sqlite3.connect(f"{file.resolve().as_uri()}?mode=ro", uri=True)) as database:
        database.row_factory = sqlite3.Row
        yield database
