"""A provider's books: jobs, effects and events to send, next to the keys and the journal of every provider."""

from __future__ import annotations

import json
import sqlite3
import uuid
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from constructs_lib.testing.providers import books
from constructs_lib.testing.providers.books import Answer, ProviderRequest, problem, read_requests, reading

_SCHEMA: Final = """
CREATE TABLE IF NOT EXISTS jobs (
    id TEXT PRIMARY KEY, kind TEXT, key TEXT, reference TEXT, status TEXT, body TEXT, at_ms INTEGER);
CREATE TABLE IF NOT EXISTS effects (
    number INTEGER PRIMARY KEY, kind TEXT, key TEXT, reference TEXT, job TEXT, amount INTEGER, at_ms INTEGER);
CREATE TABLE IF NOT EXISTS timers (
    number INTEGER PRIMARY KEY, job TEXT, key TEXT, name TEXT, ends INTEGER, due_ms INTEGER);
CREATE TABLE IF NOT EXISTS deliveries (
    number INTEGER PRIMARY KEY, event TEXT, type TEXT, job TEXT, reference TEXT, body TEXT, forged INTEGER,
    due_ms INTEGER, attempts INTEGER DEFAULT 0, answers TEXT DEFAULT '', open INTEGER DEFAULT 1);
CREATE INDEX IF NOT EXISTS jobs_by_key ON jobs (key);
CREATE INDEX IF NOT EXISTS jobs_by_reference ON jobs (reference);
CREATE INDEX IF NOT EXISTS effects_by_key ON effects (key);
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Job:
    """Something that a provider was asked for, and that it works at.

    Attributes:
        id: the provider's name for it.
        kind: what it is.
        key: the idempotency key that it was asked for under.
        reference: what the caller calls it.
        status: how far it is.
        body: the request, and what came of it.
        at_ms: when it was asked for.
    """

    id: str
    kind: str
    key: str
    reference: str
    status: str
    body: Mapping[str, Any]
    at_ms: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Effect:
    """Something that happened: money was held, goods were taken off a shelf.

    Attributes:
        kind: what happened.
        key: the idempotency key that it was asked for under.
        reference: what the caller calls it.
        job: id of the job.
        amount: minor units; 0 where nothing is counted.
    """

    kind: str
    key: str
    reference: str
    job: str
    amount: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Delivery:
    """An event on its way to its subscriber.

    Attributes:
        number: orders them.
        event: the event's id; the same in a delivery that is doubled.
        type: the event's type.
        reference: what the caller calls the job.
        body: as it is sent.
        forged: whether its signature is wrong until it is refused.
        attempts: how often it was sent.
        answers: HTTP status of each attempt; 0 where no answer came.
        open: whether it will be sent, or sent again.
    """

    number: int
    event: str
    type: str
    reference: str
    body: str
    forged: bool
    attempts: int
    answers: tuple[int, ...]
    open: bool


class Page(books.Page):
    """The books, open for one transaction: all its writes are committed, or none."""

    def __init__(self, cursor: sqlite3.Cursor, now_ms: int, pace: float) -> None:
        super().__init__(cursor, now_ms)
        self._pace = pace
        self.errands: list[Callable[[], object]] = []
        """Calls to make outside, once this page is committed."""

    def add_job(self, prefix: str, *, kind: str, key: str, status: str, body: Mapping[str, Any]) -> Job:
        """Write down a job."""
        job = Job(
            id=f"{prefix}_{uuid.uuid4().hex}", kind=kind, key=key, reference=str(body.get("reference", "")),
            status=status, body=dict(body), at_ms=self.now_ms,
        )  # fmt: skip
        values = (job.id, job.kind, job.key, job.reference, job.status, json.dumps(job.body), job.at_ms)
        self._cursor.execute("INSERT INTO jobs VALUES (?, ?, ?, ?, ?, ?, ?)", values)
        return job

    def job(self, id: str) -> Job | None:
        """A job by its id."""
        row = self._cursor.execute("SELECT * FROM jobs WHERE id = ?", (id,)).fetchone()
        return None if row is None else _job(row)

    def jobs_under(self, key: str) -> list[Job]:
        """Every job that was asked for under a key."""
        return [_job(row) for row in self._cursor.execute("SELECT * FROM jobs WHERE key = ? ORDER BY rowid", (key,))]

    def jobs_with(self, name: str, value: str) -> list[Job]:
        """Every job whose body has this value."""
        rows = self._cursor.execute(
            "SELECT * FROM jobs WHERE json_extract(body, '$.' || ?) = ? ORDER BY rowid", (name, value)
        )
        return [_job(row) for row in rows]

    def change(self, job: Job, status: str, **more: Any) -> Job:
        """Change a job's status, and what is known of it."""
        self._cursor.execute(
            "UPDATE jobs SET status = ?, body = ? WHERE id = ?", (status, json.dumps({**job.body, **more}), job.id)
        )
        changed = self.job(job.id)
        assert changed is not None  # noqa: S101 - it was changed one line above
        return changed

    def happened(self, kind: str, *, key: str, job: Job, amount: int = 0) -> None:
        """Write down that something happened."""
        values = (kind, key, job.reference, job.id, amount, self.now_ms)
        self._cursor.execute(
            "INSERT INTO effects (kind, key, reference, job, amount, at_ms) VALUES (?, ?, ?, ?, ?, ?)", values
        )

    def effects_under(self, key: str) -> list[dict[str, Any]]:
        """Return the effects under a key."""
        rows = self._cursor.execute("SELECT kind, job, amount FROM effects WHERE key = ? ORDER BY number", (key,))
        return [dict(row) for row in rows]

    def wake(self, job: Job, name: str, seconds: float, *, key: str, ends: bool = False) -> None:
        """Set a timer for a job that was requested under a key: to work at it, or to end it."""
        self._cursor.execute(
            "INSERT INTO timers (job, key, name, ends, due_ms) VALUES (?, ?, ?, ?, ?)",
            (job.id, key, name, ends, self.now_ms + int(seconds * (1 if ends else self._pace) * 1000)),
        )

    def hurry(self, key: str) -> bool:
        """Let the work that was asked for under a key be due at once; whether there is any."""
        return self._cursor.execute("UPDATE timers SET due_ms = 0 WHERE key = ? AND NOT ends", (key,)).rowcount > 0

    def stall(self, key: str) -> None:
        """Stop the work that was requested under a key; timers that end it stay."""
        self._cursor.execute("DELETE FROM timers WHERE key = ? AND NOT ends", (key,))

    def due(self) -> list[tuple[Job, str]]:
        """Take what is due off the list."""
        rows = self._cursor.execute(
            "SELECT number, job, name FROM timers WHERE due_ms <= ? ORDER BY due_ms, number", (self.now_ms,)
        ).fetchall()
        self._cursor.executemany("DELETE FROM timers WHERE number = ?", [(row[0],) for row in rows])
        found = [(self.job(row[1]), str(row[2])) for row in rows]
        return [(job, name) for job, name in found if job is not None]

    def send(
        self, type: str, job: Job, body: str, *, event: str, after: float = 0.0, forged: bool = False, open: bool = True
    ) -> None:
        """Have an event delivered; one that is not open is only stored in the books."""
        values = (event, type, job.id, job.reference, body, forged, self.now_ms + int(after * 1000), open)
        self._cursor.execute(
            "INSERT INTO deliveries (event, type, job, reference, body, forged, due_ms, open)"
            " VALUES (?, ?, ?, ?, ?, ?, ?, ?)",
            values,
        )


class BookKeeper(books.BookKeeper[Page]):
    """Keeps the books.

    Args:
        file: the SQLite file.
        window_ms: how long a key is remembered; afterwards the same key acts again.
        now_ms: the clock.
        pace: how many times longer than usual work takes here.
    """

    def __init__(self, file: Path, *, window_ms: int, now_ms: Callable[[], int], pace: float) -> None:
        super().__init__(
            file, schema=_SCHEMA, page=lambda cursor, now: Page(cursor, now, pace), window_ms=window_ms, now_ms=now_ms
        )


def read_jobs(file: Path) -> list[Job]:
    """Every job, from the file of the books, also when the provider is down."""
    with reading(file) as database:
        return [_job(row) for row in database.execute("SELECT * FROM jobs ORDER BY rowid")]


def read_effects(file: Path) -> list[Effect]:
    """Everything that happened, in order."""
    with reading(file) as database:
        rows = database.execute("SELECT kind, key, reference, job, amount FROM effects ORDER BY number")
        return [Effect(**row) for row in rows]


def read_deliveries(file: Path) -> list[Delivery]:
    """Return every event, with its outcome."""
    with reading(file) as database:
        return [delivery_of(row) for row in database.execute("SELECT * FROM deliveries ORDER BY number")]


def delivery_of(row: sqlite3.Row) -> Delivery:
    """A row of the deliveries."""
    return Delivery(
        number=row["number"], event=row["event"], type=row["type"], reference=row["reference"], body=row["body"],
        forged=bool(row["forged"]), attempts=row["attempts"], open=bool(row["open"]),
        answers=tuple(int(text) for text in row["answers"].split()),
    )  # fmt: skip


def _job(row: sqlite3.Row) -> Job:
    return Job(**{**dict(row), "body": json.loads(row["body"])})


__all__ = [
    "Answer",
    "BookKeeper",
    "Delivery",
    "Effect",
    "Job",
    "Page",
    "ProviderRequest",
    "delivery_of",
    "problem",
    "read_deliveries",
    "read_effects",
    "read_jobs",
    "read_requests",
]
