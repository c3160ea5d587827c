"""Committing postings outside a saga: one transaction, tried again on conflicts only."""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Sequence
from typing import Any, Final

from botocore.exceptions import BotoCoreError, ClientError

from saga_runtime.errors import Conflict, SagaError, TransientError
from saga_runtime.protocol import Metric
from saga_runtime.saga_log.write import Write
from saga_runtime.shared import aws, telemetry
from saga_runtime.shared.backoff import Backoff

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
        PermanentError: what a write's ``refusal`` returned.
        Conflict: conflicts outlasted the tries; nothing was written.
        TransientError: throttled, or no answer.
    """
    for failures in range(1, backoff.attempts + 1):
        writes = plan()
        if not writes:
            return False
        entries: Any = [write.action for write in writes]
        try:
            aws.dynamodb().transact_write_items(TransactItems=entries)
            return True
        except (ClientError, BotoCoreError) as error:
            outcome = _outcome(error, writes)
        if not isinstance(outcome, Conflict):
            raise outcome
        telemetry.count(Metric.CONFLICT)
        if failures == backoff.attempts:
            raise outcome
        time.sleep(backoff.delay_ms(failures, random.random()) / 1_000)
    raise AssertionError("a backoff tries at least once")


def _outcome(error: ClientError | BotoCoreError, writes: Sequence[Write]) -> SagaError:
    if not isinstance(error, ClientError):
        return TransientError("the database did not answer")
    code = aws.error_code(error)
    if code == aws.TRANSACTION_CONFLICT:
        return Conflict("concurrent transactions met on one item")
    if code != aws.TRANSACTION_CANCELED:
        if aws.is_transient(error):
            return TransientError("the database is busy")
        raise error
    reasons = aws.cancellation_reasons(error)
    codes = {str(reason.get("Code")) for reason in reasons}
    for reason, write in zip(reasons, writes, strict=True):
        if reason.get("Code") == "ConditionalCheckFailed":
            if write.refusal is None:
                return Conflict("an item changed between read and write")
            return write.refusal(reason.get("Item") or None)
    if "TransactionConflict" in codes:
        return Conflict("concurrent transactions met on one item")
    if {"ThrottlingError", "ProvisionedThroughputExceeded"} & codes:
        return TransientError("the database is busy")
    raise error
