"""Waiting and dead-lettered jobs as text for a terminal. Pure."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Final

from constructs_lib.cli.callbacks.dead_letters import DeadKind, DeadMessage
from constructs_lib.cli.callbacks.rows import JobView, Kind
from constructs_lib.cli.shared.moments import moment
from constructs_lib.saga.graph.terminal import clean, pad, shorten, widest, wrap
from constructs_lib.saga.graph.timeline import duration
from saga_runtime.protocol import UnansweredField

_GAP: Final = "  "
_LEAST_JOB: Final = 16
_HEADINGS: Final = {
    Kind.LATE: "late: a late effect that is not compensated",
    Kind.CONFLICT: "conflict: the provider reported two outcomes; the first is kept; ask it",
    Kind.UNKNOWN: "unknown: outcome stored until a job with this id registers",
    Kind.DELIVERING: "settling: outcome recorded, not yet delivered",
    Kind.WAITING: "waiting",
    Kind.UNANSWERED: "unanswered: the wait ended without an outcome",
    Kind.EARLY: "early: outcome recorded before a task waited",
    Kind.SETTLED: "settled",
}
_DEAD_HEADINGS: Final = {
    DeadKind.JOB: "dead: dispatch failed; --redrive retries it",
    DeadKind.UNANSWERED: "never answered: the saga gave the job up; ask the provider, then --delete-unanswered",
    DeadKind.UNREADABLE: "unreadable: no message of a saga",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Listing:
    """Rows and messages that were found.

    Attributes:
        rows: of the token table.
        dead: of the dead-letter queue; None: it was not read.
        reasons: errors of failed dispatches, by job.
        busy: how many dead messages another process was reading.
        complete: whether all other dead messages were read.
        commands: what to run about a late job, by job.
    """

    table: str
    now_ms: int
    rows: Sequence[JobView]
    dead: Sequence[DeadMessage] | None
    reasons: dict[str, str]
    busy: int
    complete: bool
    commands: dict[str, str]


@dataclass(frozen=True, slots=True, kw_only=True)
class _Line:
    job: str
    facts: tuple[str, ...]
    below: tuple[str, ...]
    command: str = ""


def text_of(listing: Listing, *, width: int = 100, unicode: bool = True) -> str:
    """The whole text.

    Args:
        listing: what was found.
        width: columns of the terminal. Commands are never wrapped: they are to be copied.
        unicode: whether the terminal shows more than ASCII.
    """
    parts = [[f"table {listing.table}, {moment(listing.now_ms)}"]]
    for kind, heading in _HEADINGS.items():
        found = [_row(listing, row) for row in listing.rows if row.kind is kind]
        if found:
            parts.append(_section(_counted(listing, kind, heading, len(found)), found, width, unicode))
    for dead_kind, heading in _DEAD_HEADINGS.items():
        dead = [_dead(listing, message) for message in listing.dead or () if message.kind is dead_kind]
        if dead:
            parts.append(_section(f"{heading} ({len(dead)})", dead, width, unicode))
    parts += [[*wrap(note, max(width, 20))] for note in _notes(listing)]
    return "\n\n".join("\n".join(part) for part in parts) + "\n"


def _counted(listing: Listing, kind: Kind, heading: str, count: int) -> str:
    overdue = sum(row.is_overdue(listing.now_ms) for row in listing.rows if row.kind is kind)
    return f"{heading} ({count}{f', {overdue} overdue' if overdue else ''})"


def _notes(listing: Listing) -> Iterator[str]:
    if not listing.rows and not listing.dead:
        yield "nothing waits, and nothing is dead" if listing.dead is not None else "nothing waits"
    if listing.busy:
        yield (
            f"{listing.busy} dead messages were being read by another process, a redrive or a listing, and may be "
            "missing here; list again in two minutes"
        )
    if not listing.complete:
        yield "there are more dead messages than were read"


def _row(listing: Listing, row: JobView) -> _Line:
    facts = (moment(row.since), _whole(listing.now_ms - row.since), _expected(listing.now_ms, row))
    return _Line(job=row.job_id, facts=facts, below=tuple(_below(row)), command=listing.commands.get(row.job_id, ""))


def _expected(now_ms: int, row: JobView) -> str:
    if row.kind is not Kind.WAITING or row.expected_at is None:
        return ""
    if row.is_overdue(now_ms):
        return f"OVERDUE by {_whole(now_ms - row.expected_at)}"
    return f"in time for {_whole(row.expected_at - now_ms)}"


def _below(row: JobView) -> Iterator[str]:
    if row.dispatches:
        yield _dispatches(row.dispatches, row.dispatch_error)
    if row.kind is Kind.WAITING and row.heartbeat_at is not None:
        yield f"last heartbeat {moment(row.heartbeat_at)}"
    if row.kind is Kind.UNANSWERED and row.reported_unanswered_at is not None:
        yield f"its dead-letter queue was notified {moment(row.reported_unanswered_at)}"
    if row.outcome:
        told = {True: ", delivered", False: ", and no task waited any more", None: ""}[row.told]
        yield f"{row.outcome}{told}{f' (event {row.event_id})' if row.event_id else ''}"
    if row.conflict:
        yield f"and then: {row.conflict}"


def _dispatches(count: int, error: str) -> str:
    times = "one delivery" if count == 1 else f"{count} deliveries"
    return f"{times} failed{f', the last one by {error}' if error else ''}"


def _dead(listing: Listing, message: DeadMessage) -> _Line:
    f = UnansweredField
    since, below = message.sent_at, []
    if message.kind is DeadKind.UNANSWERED:
        about = message.about
        since = int(about.get(f.WAITING_SINCE, 0)) or since
        states = [f"its row {about.get(f.LOG_STATUS) or 'gone'}", f"its saga {about.get(f.RECORD_STATUS) or 'gone'}"]
        taken = int(about.get(f.ACCEPTED_AT, 0))
        states.append(f"taken on by its provider {moment(taken)}" if taken else "never known to be taken on")
        below.append(", ".join(states))
        if failed := int(about.get(f.FAILED_DISPATCHES, 0)):
            below.append(_dispatches(failed, str(about.get(f.DISPATCH_ERROR, ""))))
    elif reason := listing.reasons.get(message.job_id):
        below.append(reason)
    facts = (moment(since), _whole(listing.now_ms - since), _received(message.receives))
    return _Line(job=message.job_id or f"message {message.message_id}", facts=facts, below=tuple(below))


def _received(count: int) -> str:
    return "received once" if count == 1 else f"received {count} times"


def _whole(milliseconds: int) -> str:
    """A duration in whole seconds."""
    return duration(max(milliseconds, 0) // 1_000 * 1_000).removeprefix("0 ms") or "0 s"


def _section(heading: str, lines: Sequence[_Line], width: int, unicode: bool) -> list[str]:
    """A heading, and a row for each job; what does not fit next to it is below it."""
    show: Callable[[str], str] = lambda text: clean(text, unicode=unicode)  # noqa: E731  # one setting, used for all
    jobs = [show(line.job) for line in lines]
    columns = [widest([line.facts[index] for line in lines]) for index in range(len(lines[0].facts))]
    facts = sum(column + len(_GAP) for column in columns if column)
    beside = width - len(_GAP) - facts
    narrow = beside < _LEAST_JOB
    room = max(width - len(_GAP), _LEAST_JOB) if narrow else min(widest(jobs), beside)
    text = [*wrap(heading, max(width, 20))]
    for job, line in zip(jobs, lines, strict=True):
        cells = [pad(fact, column) for fact, column in zip(line.facts, columns, strict=True) if column]
        name = shorten(job, room, "…" if unicode else "~")
        if narrow:
            text.append(f"{_GAP}{name}")
            text += [f"    {part}" for part in wrap(", ".join(fact for fact in line.facts if fact), max(width - 4, 20))]
        else:
            text.append(f"{_GAP}{_GAP.join([pad(name, room), *cells])}".rstrip())
        for sentence in line.below:
            text += [f"    {part}" for part in wrap(show(sentence), max(width - 4, 20))]
        if line.command:
            text.append(f"      {line.command}")
    return text
