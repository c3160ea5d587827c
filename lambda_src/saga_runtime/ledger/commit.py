"""Committing postings outside a saga: one transaction, tried again on conflicts only."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final

from saga_runtime.saga_log.write import Write, refusal_of, require_different_items
from saga_runtime.shared import writes
from saga_runtime.shared.backoff import Backoff, Retry

DIRECT: Final = Backoff(attempts=4, base_ms=50, cap_ms=200, full=False)
"""Three more tries, 50, 100 and 200 ms apart, and up to half as much again."""


def commit_direct(plan: Callable[[], Sequence[Write]], *, backoff: Backoff = DIRECT) -> bool:
    """Commit a posting: all of its writes, or none.

    Conflicts are tried again, each counted. Everything else comes back at once: a throttle, the loss of the answer, and
    a refusal, also one together with a conflict; of several, the first write's. After a lost answer the posting may
    exist: call again with the same entry id.

    Args:
        plan: makes the writes, again for every try: a conflict means that what was read is stale.
        backoff: how often, and how long apart.

    Returns:
        Whether anything was written: False if the plan had nothing to write.

    Raises:
        Invalid: if two writes are of one item.
        PermanentError: what a write's ``refusal`` returned.
        Conflict: conflicts outlasted the tries; this call wrote nothing.
        TransientError: throttled, or no answer.
    """
    planned: Sequence[Write] = ()

    def entries() -> Sequence[writes.Entry]:
        nonlocal planned
        planned = tuple(plan())
        require_different_items(planned)
        return [write.action for write in planned]

    retry = Retry(backoff=backoff, throttled=False, unanswered=False)
    writes.commit(entries, lambda refused: refusal_of(planned, refused), retry=retry)
    return bool(planned)
