"""Committing a log row together with a step's writes, in one transaction.

What can come back, and what it means:

* committed: the row and all writes exist;
* our row refused: the row decides (replay, fenced, nothing to undo);
* our row in a conflict: another attempt may be writing it; try again after a jittered delay;
* a write refused: the write's ``refusal`` has the reason, whatever else conflicted;
* a conflict or a throttle anywhere: nothing was written, try again after a jittered delay;
* AWS refused the call itself: nothing was written, unless an earlier try was not answered;
* no response: unknown. It is sent again, and the row's condition shows the outcome.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from saga_runtime.errors import SagaError
from saga_runtime.saga_log.rows import LogRow
from saga_runtime.saga_log.write import Write, refusal_of
from saga_runtime.shared import writes
from saga_runtime.shared.backoff import Backoff, Retry

BACKOFF: Final = Backoff()
Plan = Callable[[], tuple[Any, Sequence[Write]]]
"""Makes the first entry (a log row, or a record) and the writes, again for every try: a conflict means that what was
read is stale."""


@dataclass(frozen=True, slots=True)
class Committed:
    """The transaction took effect in this call."""


@dataclass(frozen=True, slots=True)
class RowRefused:
    """The log row's condition failed; ``row`` is the existing row (None: no row)."""

    row: LogRow | None


@dataclass(frozen=True, slots=True)
class FirstRefused:
    """The first entry's condition was not met; ``item`` is what exists there, if the entry asks for it."""

    item: Mapping[str, Any] | None


def commit(plan: Plan, *, remaining_ms: Callable[[], int], backoff: Backoff = BACKOFF) -> Committed | RowRefused:
    """Commit a log row with its writes, trying again on conflicts and throttles while the invocation has time.

    Raises: as ``commit_first``.
    """
    result = commit_first(plan, remaining_ms=remaining_ms, backoff=backoff)
    if isinstance(result, FirstRefused):
        return RowRefused(row=LogRow.from_item(result.item) if result.item else None)
    return result


def commit_first(
    plan: Plan,
    *,
    remaining_ms: Callable[[], int],
    backoff: Backoff = BACKOFF,
    throttles: bool = True,
    tries: writes.Tries | None = None,
) -> Committed | FirstRefused:
    """Commit an entry that decides, with the writes behind it.

    Args:
        plan: makes the entry and the writes.
        remaining_ms: time that the invocation has left, in milliseconds.
        backoff: number and delays of the tries.
        throttles: whether a throttle is tried again, like a conflict; otherwise it is raised at once.
        tries: gets the state of the tries, also if an error is raised.

    Raises:
        SagaError: what a write's ``refusal`` returned.
        Conflict: conflicts outlasted the tries; nothing was written by the last one.
        TransientError: throttled, or no answer, more often than was tried.
        ClientError: AWS refused a call, of the plan or of the transaction; nothing was written.
    """
    planned: Sequence[Write] = ()

    def entries() -> Sequence[writes.Entry]:
        nonlocal planned
        first, planned = plan()
        return [first, *(write.action for write in planned)]

    def judge(refused: writes.Refused) -> SagaError | None:
        """The first entry decides: its refusal, or its conflict with another attempt. Then refusals, then conflicts."""
        if 0 in refused.items:
            return None
        if 0 in refused.conflicts:  # a write may be refused by what that attempt has just done
            return writes.Failure.CONFLICT.error
        return refusal_of(planned, refused, first=1)

    retry = Retry(backoff=backoff, throttled=throttles, remaining_ms=remaining_ms)
    refused = writes.commit(entries, judge, retry=retry, owned=True, tries=tries)
    return Committed() if refused is None else FirstRefused(item=refused.item)
