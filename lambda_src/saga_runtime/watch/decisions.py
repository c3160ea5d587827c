"""Decisions about a failed execution of a watched state machine. Pure: data in, data out.

::

    found                                            done
    its status is the row's, and the time has come   its function is called
    the same, after the last allowed call            an operator is notified
    redriven, and it runs                            checked again later
    redriven, and it succeeded                       nothing is reported
    redriven, and it failed again                    that is another end, with a grace of its own
    its status is an older one                       checked again later
    it is unknown, or its name is another one's      checked again later; after a day an operator is notified

``watcher`` does the calls.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from enum import StrEnum
from typing import Any, Final

from saga_runtime.protocol import FailedStatus, FailureEventField, WatchStatus
from saga_runtime.watch.rows import EndRow, ListRow, Watched, end_id

PAUSE_MS: Final = 60_000
"""After the first call that failed; it doubles."""
LONGEST_PAUSE_MS: Final = 15 * 60_000
QUEUED_MS: Final = 15 * 60_000
"""What is in the queue for as long is put there again: the message may be lost."""
LIST_MS: Final = 5 * 60_000
"""Interval of reading lists: status events are faster, unless one was lost."""
OVERLAP_MS: Final = 15 * 60_000
"""Lists are behind: an end is looked for in passes that begin up to so long after it."""
WHOLE_MS: Final = 86_400_000
"""Lists are read to their end so often: what was far behind, or not where it belongs, is found then."""
FIRST_MS: Final = 3_600_000
"""Ends of that long before the first check are reported, too: a deployment takes its time."""
_GONE_MS: Final = 86_400_000
"""Answers of Step Functions may be behind, but not for so long."""


class Need(StrEnum):
    """Actions for an end."""

    LATER = "LATER"
    OVER = "OVER"
    FOLLOW = "FOLLOW"
    """It ended again: that end is kept, and reported."""
    TELL = "TELL"
    STUCK = "STUCK"


@dataclass(frozen=True, slots=True, kw_only=True)
class Execution:
    """An execution, as Step Functions describes or lists it; times are epoch milliseconds.

    Attributes:
        arn: its ARN.
        status: as Step Functions names it.
        redrives: how often it was redriven.
        started_at: when it was started first.
        stopped_at: when it ended; 0: it runs.
    """

    arn: str
    status: str
    redrives: int
    started_at: int
    stopped_at: int

    @classmethod
    def of(cls, said: Mapping[str, Any]) -> Execution:
        """Read an answer, or an entry of a list."""
        return cls(
            arn=said["executionArn"],
            status=said["status"],
            redrives=said.get("redriveCount") or 0,
            started_at=_ms(said["startDate"]),
            stopped_at=_ms(said.get("stopDate")),
        )

    @property
    def end(self) -> FailedStatus | None:
        """Its status, if it failed."""
        return FailedStatus(self.status) if self.status in FailedStatus.__members__ else None

    @property
    def id(self) -> str:
        """The id of this end."""
        return end_id(self.arn, self.redrives)


def is_callable(row: EndRow, now_ms: int) -> bool:
    """Test whether its function may be called: it has not succeeded, and no grace, pause or lease holds."""
    return row.status is WatchStatus.PENDING and row.not_before <= now_ms


def decide(row: EndRow, execution: Execution | None, watched: Watched, now_ms: int) -> Need:
    """Decide the action for an end that is due.

    Args:
        row: what is kept of it.
        execution: its description; None: Step Functions has none.
        watched: its state machine.
        now_ms: the time.
    """
    if execution is None or execution.started_at > row.stopped_at:
        return Need.STUCK if now_ms - row.stopped_at >= _GONE_MS else Need.LATER
    if execution.redrives < row.redrives:
        return Need.LATER
    if execution.end is None:
        return Need.OVER if execution.status == "SUCCEEDED" else Need.LATER
    if execution.redrives > row.redrives:
        return Need.FOLLOW
    if execution.end not in watched.ends:
        return Need.OVER
    if row.attempt >= watched.attempts:
        return Need.STUCK
    return Need.TELL


def pause_after(attempt: int) -> int:
    """Delay until the check of an end whose n-th call failed."""
    if attempt < 1:
        raise ValueError(f"calls are numbered from 1, got {attempt}")
    return int(min(PAUSE_MS * 2 ** min(attempt - 1, 30), LONGEST_PAUSE_MS))


def event_of(row: EndRow, said: Mapping[str, Any]) -> dict[str, Any]:
    """Event of a function: the described execution, under the id of its end."""
    f = FailureEventField
    execution = Execution.of(said)
    return {
        f.ID: row.id,
        f.EXECUTION_ARN: execution.arn,
        f.NAME: said["name"],
        f.STATE_MACHINE_ARN: said["stateMachineArn"],
        f.STATUS: execution.status,
        f.ERROR: said.get("error"),
        f.CAUSE: said.get("cause"),
        f.INPUT: said.get("input"),
        f.STARTED_AT: execution.started_at,
        f.STOPPED_AT: execution.stopped_at,
        f.REDRIVE_COUNT: execution.redrives,
        f.ATTEMPT: row.attempt,
    }


def first_list(id: str, now_ms: int) -> ListRow:
    """Row of a list that was never read."""
    since = now_ms - FIRST_MS
    return ListRow(id=id, listed_until=since, verified_until=since, due_at=now_ms)


def is_whole(row: ListRow, scan_started_at: int) -> bool:
    """Test whether a pass that began then reads a list to its end, in whatever order it is."""
    return scan_started_at - row.verified_until >= WHOLE_MS


def looks_back_to(row: ListRow, scan_started_at: int) -> int:
    """Time since which ends may be missing."""
    return (row.verified_until if is_whole(row, scan_started_at) else row.listed_until) - OVERLAP_MS


def is_last(page: Sequence[Execution], row: ListRow, scan_started_at: int) -> bool:
    """Test whether what follows a page ended before all that is looked for: lists begin with what is most recent.

    A whole page has to be too old, so that a list may be out of order, by a page's length.
    """
    since = looks_back_to(row, scan_started_at)
    return bool(page) and not is_whole(row, scan_started_at) and all(execution.stopped_at < since for execution in page)


def read_on(row: ListRow, scan_started_at: int, page_token: str | None, now_ms: int) -> ListRow:
    """A list after one of its pages was read; the last one ends the pass.

    What ended during the pass may precede the page that was read first: all that is known is what
    ended before it began.
    """
    if page_token is not None:
        return replace(row, scan_started_at=scan_started_at, page_token=page_token, version=row.version + 1)
    return ListRow(
        id=row.id,
        listed_until=scan_started_at,
        verified_until=scan_started_at if is_whole(row, scan_started_at) else row.verified_until,
        due_at=now_ms + LIST_MS,
        version=row.version + 1,
    )


def begin_again(row: ListRow) -> ListRow:
    """A list with an expired token: its pass begins again."""
    return replace(row, scan_started_at=0, page_token=None, version=row.version + 1)


def _ms(moment: datetime | None) -> int:
    return round(moment.timestamp() * 1_000) if moment is not None else 0
