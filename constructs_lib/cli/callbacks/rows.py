"""Rows of the token table for display: without their tokens, sorted by urgency."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING, Any, Final, TypeVar

from constructs_lib.cli.shared.process import CommandError, json_in
from constructs_lib.cli.shared.reads import Item, due_ids, projection, read_all
from saga_runtime.callbacks.decisions import conflict_id_of, reported_id_of
from saga_runtime.callbacks.notices import contradicting_outcome
from saga_runtime.callbacks.rows import JobId, Outcome, TokenRow
from saga_runtime.callbacks.writes import token_key
from saga_runtime.protocol import (
    ALIAS_PREFIX,
    NOTICE_PREFIX,
    TOKEN_DUE_SHARDS,
    OutcomeField,
    TokenAttribute,
    TokenStatus,
)
from saga_runtime.shared.decisions import Decision

if TYPE_CHECKING:
    from mypy_boto3_dynamodb import DynamoDBClient


View = TypeVar("View")
SHOWN: Final = tuple(name for name in TokenAttribute if name not in (TokenAttribute.TOKEN, TokenAttribute.DECISION))
"""Attributes that are read: the token never leaves the table."""
_NOT_SHOWN: Final = (TokenStatus.EVENT, TokenStatus.DECIDED, TokenStatus.NOTICE, TokenStatus.NOTIFIED)


class Kind(StrEnum):
    """Kinds of rows, in the order of urgency."""

    LATE = "late"
    """A late effect that is not compensated yet."""
    CONFLICT = "conflict"
    """Its provider reported two outcomes."""
    UNKNOWN = "unknown"
    """An outcome of an unknown job."""
    DELIVERING = "settling"
    """An outcome that is not delivered yet."""
    WAITING = "waiting"
    UNANSWERED = "unanswered"
    """The saga abandoned it, and no outcome ever arrived."""
    EARLY = "early"
    """An outcome that no task has waited for yet."""
    SETTLED = "settled"
    """An outcome that was delivered, or found no task."""
    ACKNOWLEDGED = "acknowledged"
    """A conflict that an operator has handled."""
    FORGOTTEN = "forgotten"
    """An outcome of an unknown job that an operator has closed."""


@dataclass(frozen=True, slots=True, kw_only=True)
class JobView:
    """A row for display. Times are epoch milliseconds; None: unknown.

    Attributes:
        job_id: the job; of an unknown one, the id that its provider used.
        saga_id, step: whose job it is; empty if that is not known. ``step`` is the name of the saga log's row.
        since: since when it is what it is.
        outcome, conflict: the outcome in a few words; outputs are not shown.
        conflict_id: id of the conflict, if it is of a job.
        reported_id: id of what was reported of an unknown job.
        told: whether a task waited at the delivery; None: it was not delivered.
        decisions: of operators who closed what was reported of an unknown job.
    """

    kind: Kind
    job_id: str
    saga_id: str
    step: str
    status: str
    since: int
    expected_at: int | None
    heartbeat_at: int | None
    dispatches: int
    dispatch_error: str
    outcome: str
    conflict: str
    conflict_id: str
    told: bool | None
    execution: str
    event_id: str
    log_table: str
    request_table: str
    reported_unanswered_at: int | None
    reported_id: str = ""
    decisions: tuple[Decision, ...] = ()

    def is_overdue(self, now_ms: int) -> bool:
        """Test whether a task waits for longer than expected."""
        return self.kind is Kind.WAITING and self.expected_at is not None and self.expected_at <= now_ms


def job_view(item: Item) -> JobView | None:
    """A row of the token table; None for one without a job's state: a marker, a decision, a notice, a plain alias.

    Raises:
        KeyError, ValueError: if it is not a row of a token table.
    """
    a = TokenAttribute

    def text(name: TokenAttribute) -> str:
        return str(item[name]["S"]) if name in item else ""

    def number(name: TokenAttribute) -> int | None:
        return int(item[name]["N"]) if name in item else None

    row_id, status, updated_at = item[a.ID]["S"], TokenStatus(item[a.STATUS]["S"]), int(item[a.UPDATED_AT]["N"])
    kind = _kind(item, row_id, status)
    if kind is None:
        return None
    since = {
        Kind.LATE: a.APPLIED_LATE_AT,
        Kind.UNKNOWN: a.CREATED_AT,
        Kind.WAITING: a.WAITING_SINCE,
        Kind.UNANSWERED: a.WAITING_SINCE,
        Kind.EARLY: a.CREATED_AT,
        Kind.FORGOTTEN: a.FORGOTTEN_AT,
    }.get(kind, a.UPDATED_AT)
    job_id = text(a.JOB_ID) or name_of(row_id) or row_id
    saga_id, step = job_parts(job_id)
    return JobView(
        kind=kind,
        job_id=job_id,
        saga_id=saga_id,
        step=step,
        status=status,
        since=number(since) or updated_at,
        expected_at=number(a.EXPECTED_AT),
        heartbeat_at=number(a.HEARTBEAT_AT),
        dispatches=number(a.FAILED_DISPATCHES) or 0,
        dispatch_error=text(a.DISPATCH_ERROR),
        outcome=_said(text(a.OUTCOME)),
        conflict=_said(text(a.CONFLICT)),
        conflict_id=_conflict_id(row_id, text(a.CONFLICT)),
        told={TokenStatus.DELIVERED: True, TokenStatus.UNDELIVERED: False}.get(status),
        execution=text(a.EXECUTION),
        event_id=text(a.EVENT_ID),
        log_table=text(a.LOG_TABLE),
        request_table=text(a.REQUEST_TABLE),
        reported_unanswered_at=number(a.REPORTED_UNANSWERED_AT),
        reported_id=_reported_id(row_id, status, text(a.OUTCOME), text(a.CONFLICT)),
        decisions=tuple(Decision.all_of(item)) if a.DECISIONS in item else (),
    )


def _kind(item: Item, row_id: str, status: TokenStatus) -> Kind | None:
    a = TokenAttribute
    if status in _NOT_SHOWN:
        return None
    if a.FORGOTTEN_AT in item:
        return Kind.FORGOTTEN
    if a.APPLIED_LATE_AT in item:
        return Kind.LATE
    if a.CONFLICT in item:
        return Kind.CONFLICT
    match status:
        case TokenStatus.EARLY:
            return Kind.UNKNOWN if row_id.startswith(ALIAS_PREFIX) else Kind.EARLY
        case TokenStatus.DELIVERING:
            return Kind.DELIVERING
        case TokenStatus.WAITING:
            return Kind.UNANSWERED if a.REPORTED_UNANSWERED_AT in item else Kind.WAITING
        case TokenStatus.DELIVERED | TokenStatus.UNDELIVERED:
            return Kind.SETTLED
        case _:
            return None


def name_of(row_id: str) -> str:
    """The id that a provider used, from that of its row; empty for another row."""
    # After the prefix come the integration and the provider's own id, which may hold the separator itself.
    return row_id.removeprefix(ALIAS_PREFIX).partition("#")[2] if row_id.startswith(ALIAS_PREFIX) else ""


def job_parts(job_id: str) -> tuple[str, str]:
    """A job's saga and the name of its row; empty, if the id is not one of ours."""
    job = JobId.parse(job_id)
    return (job.saga_id, job.row_name) if job is not None else ("", "")


def reason_of(notice: TokenRow) -> str:
    """Why operators were notified.

    Raises:
        ValueError: if the notice's entry does not state it.
    """
    try:
        return str(json.loads(notice.entry)["parked_reason"]["detail"])
    except (KeyError, TypeError) as error:
        raise ValueError(f"entry of notice {notice.id} must state its reason, got none: {error}") from None


def _notice_of(item: Item) -> TokenRow:
    notice = TokenRow.from_item(item)
    reason_of(notice)
    return notice


def _conflict_id(row_id: str, conflict: str) -> str:
    """Id of a job's conflict; an alias has no entry in the operators' queue."""
    if not conflict or JobId.parse(row_id) is None:
        return ""
    return conflict_id_of(row_id, Outcome.decode(conflict))


def _reported_id(row_id: str, status: TokenStatus, outcome: str, conflict: str) -> str:
    """Id of what was reported of an unknown job."""
    if status is not TokenStatus.EARLY or not row_id.startswith(ALIAS_PREFIX):
        return ""
    return reported_id_of(Outcome.decode(outcome), Outcome.decode(conflict) if conflict else None)


def _said(text: str) -> str:
    """An outcome in a few words."""
    f, said = OutcomeField, json_in(text)
    if not isinstance(said, dict):
        return ""
    if said.get(f.OK) is True:
        return "done"
    detail = f", {said[f.DETAIL]}" if said.get(f.DETAIL) else ""
    return f"failed: {said.get(f.ERROR, '')}{detail}"


@dataclass(frozen=True, slots=True, kw_only=True)
class TokenRows:
    """A token table, read without the right to see tokens.

    Attributes:
        dynamodb: the client.
        table: its name.
        unreadable: called with the id and the error of each item that is not a row; None: one ends the read.
    """

    dynamodb: DynamoDBClient
    table: str
    unreadable: Callable[[str, ValueError], None] | None = None

    def open(self) -> list[JobView]:
        """Rows that need attention: waiting, undelivered, late, contradicted, or unknown.

        Raises:
            CommandError: if the table is not one of tokens.
        """
        ids = self.due()
        return self.of([*ids, *(notice.job_id for notice in self.notices(ids) if contradicting_outcome(notice))])

    def due(self) -> list[str]:
        """Ids of the rows in the sparse index."""
        shards = range(TOKEN_DUE_SHARDS)
        return [one for shard in shards for one in due_ids(self.dynamodb, self.table, shard)]

    def notices(self, ids: Sequence[str]) -> list[TokenRow]:
        """Notices among rows, read strongly: of entries that are not sent, and of outcomes to acknowledge."""
        items = self._read(one for one in ids if one.startswith(NOTICE_PREFIX))
        return [notice for item in items if (notice := self._readable(_notice_of, item)) is not None]

    def of(self, ids: Sequence[str]) -> list[JobView]:
        """Rows by their ids, read strongly; missing ones, and those without a job's state, are left out.

        Raises:
            CommandError: if the table is not one of tokens.
        """
        return self.views(self._read(dict.fromkeys(ids)))

    def all(self) -> list[JobView]:
        """Every row with a job's state. Reads the whole table.

        Raises:
            CommandError: if the table is not one of tokens.
        """
        pages: Any = self.dynamodb.get_paginator("scan").paginate(
            TableName=self.table, ConsistentRead=True, **projection(SHOWN)
        )
        return self.views(item for page in pages for item in page["Items"])

    def _read(self, ids: Iterable[str]) -> Iterator[Item]:
        return read_all(self.dynamodb, self.table, (token_key(row_id) for row_id in ids), SHOWN)

    def views(self, items: Iterable[Item]) -> list[JobView]:
        """Items for display, in the order of urgency; those without a job's state are left out.

        Raises:
            CommandError: if the table is not one of tokens.
        """
        views = [view for item in items if (view := self._readable(job_view, item)) is not None]
        return sorted(views, key=lambda view: (list(Kind).index(view.kind), view.since, view.job_id))

    def _readable(self, view: Callable[[Item], View | None], item: Item) -> View | None:
        """An item for display; None: it is left out, or ``unreadable`` was called with it."""
        try:
            return view(item)
        except (KeyError, ValueError) as wrong:
            error = ValueError(f"attribute {wrong.args[0]} is missing") if isinstance(wrong, KeyError) else wrong
            if self.unreadable is None:
                raise CommandError(
                    f"table {self.table} has an item that is not a row of a token table: {error}; "
                    "name the table of the integration's TokenTable"
                ) from None
            self.unreadable(str(item.get(TokenAttribute.ID, {}).get("S", "")), error)
            return None
