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

import random
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from botocore.exceptions import BotoCoreError, ClientError

from saga_runtime.errors import Conflict, NotYet, SagaError, TransientError
from saga_runtime.protocol import Metric
from saga_runtime.saga_log.rows import LogRow
from saga_runtime.saga_log.write import Write
from saga_runtime.shared import aws
from saga_runtime.shared.backoff import Backoff
from saga_runtime.shared.telemetry import count

BACKOFF: Final = Backoff()
Plan = Callable[[], tuple[Any, Sequence[Write]]]
"""Makes the first entry (a log row, or a record) and the writes, again for every try: a conflict means that what was
read is stale."""


class _Throttled(TransientError):
    """DynamoDB refused the transaction for its load; nothing was written."""


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
    plan: Plan, *, remaining_ms: Callable[[], int], backoff: Backoff = BACKOFF, throttles: bool = True
) -> Committed | FirstRefused:
    """Commit an entry that decides, with the writes behind it.

    Args:
        plan: makes the entry and the writes.
        remaining_ms: time that the invocation has left, in milliseconds.
        backoff: number and delays of the tries.
        throttles: whether a throttle is tried again, like a conflict; otherwise it is raised at once.

    Raises:
        SagaError: what a write's ``refusal`` returned.
        Conflict: conflicts outlasted the tries; nothing was written by the last one.
        TransientError: throttled, or no answer, more often than was tried.
        ClientError: AWS refused a call, of the plan or of the transaction; nothing was written.
    """
    last: SagaError = TransientError("no time was left to try")
    unanswered = False
    for failures in range(1, backoff.attempts + 1):
        try:
            result = _try(plan)
        except ClientError as error:
            if unanswered:  # an earlier try may have written what this one was not allowed to
                raise TransientError("the database did not answer") from error
            raise
        if not isinstance(result, TransientError):
            return result
        last = result
        if isinstance(last, _Throttled) and not throttles:
            break
        if isinstance(last, Conflict):
            count(Metric.CONFLICT)
        else:
            unanswered = True
        delay = backoff.delay_ms(failures, random.random())
        if failures == backoff.attempts or delay * 2 + 1_000 > remaining_ms():
            break
        time.sleep(delay / 1_000)
    raise last


def _try(plan: Plan) -> Committed | FirstRefused | TransientError:
    first, writes = plan()
    entries: Any = [first, *(write.action for write in writes)]
    try:
        aws.dynamodb().transact_write_items(TransactItems=entries)
    except (ClientError, BotoCoreError) as error:
        outcome = _outcome(error, writes)
        if isinstance(outcome, FirstRefused | TransientError) and not isinstance(outcome, NotYet):
            return outcome
        raise outcome from None
    return Committed()


def _outcome(error: ClientError | BotoCoreError, writes: Sequence[Write]) -> FirstRefused | SagaError:
    if not isinstance(error, ClientError):
        return TransientError("the database did not answer")
    code = aws.error_code(error)
    if code == aws.TRANSACTION_CONFLICT:
        return Conflict("concurrent transactions met on one item")
    if code != aws.TRANSACTION_CANCELED:
        if aws.is_transient(error):
            return _Throttled("the database is busy")
        raise error
    return _cancelled(aws.cancellation_reasons(error), writes, error)


def _cancelled(reasons: list[dict[str, Any]], writes: Sequence[Write], error: ClientError) -> FirstRefused | SagaError:
    """The first entry decides: its refusal, or its conflict with another attempt. Then refusals, then conflicts."""
    codes = [str(reason.get("Code")) for reason in reasons]
    if codes[:1] == ["ConditionalCheckFailed"]:
        return FirstRefused(item=reasons[0].get("Item") or None)
    if codes[:1] == ["TransactionConflict"]:  # a write may be refused by what that attempt has just done
        return Conflict("concurrent transactions met on one item")
    for reason, code, write in zip(reasons[1:], codes[1:], writes, strict=True):
        if code == "ConditionalCheckFailed":
            if write.refusal is None:
                return Conflict("an item changed between read and write")
            return write.refusal(reason.get("Item") or None)
    if "TransactionConflict" in codes:
        return Conflict("concurrent transactions met on one item")
    if {"ThrottlingError", "ProvisionedThroughputExceeded"}.intersection(codes):
        return _Throttled("the database is busy")
    raise error
