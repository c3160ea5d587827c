"""The only module that writes to DynamoDB: conditional writes, and transactions of them.

A write is made, or refused by its condition: then ``Refused`` has the existing item. Anything else is a failure:

* a conflict with another transaction: nothing is written;
* a throttle, or an error of the service;
* no answer: it is unknown whether it is written. The write is sent again, and its condition shows what happened;
* AWS refuses the call itself, for good.

A ``Retry`` declares which failures are sent again. Without one, a failure is raised as boto3 raises it.
"""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING, Any, Final, TypeVar

from botocore.exceptions import BotoCoreError, ClientError

from saga_runtime.errors import Conflict, NotYet, SagaError, TransientError
from saga_runtime.protocol import Metric
from saga_runtime.shared import aws, telemetry

if TYPE_CHECKING:
    from saga_runtime.shared.backoff import Retry

Entry = Mapping[str, Any]
"""One write: ``{"Put": {...}}``, ``{"Update": {...}}``, ``{"Delete": {...}}``, or, of a transaction,
``{"ConditionCheck": {...}}``; with typed attribute values."""
Item = Mapping[str, Mapping[str, Any]]
Planned = TypeVar("Planned")
Result = TypeVar("Result")

_KEYS_AT_MOST: Final = 100
"""Of one BatchGetItem."""
_OPERATIONS: Final = {"Put": "put_item", "Update": "update_item", "Delete": "delete_item"}
_REFUSED: Final = "ConditionalCheckFailed"
_CONFLICT: Final = "TransactionConflict"
_BUSY: Final = frozenset({"ThrottlingError", "ProvisionedThroughputExceeded"})


class Failure(StrEnum):
    """Failures that may pass."""

    CONFLICT = "CONFLICT"
    """Another transaction was about the same item: nothing is written."""
    THROTTLED = "THROTTLED"
    """The service was busy, or failed."""
    UNANSWERED = "UNANSWERED"
    """No answer came: it may be written."""

    @property
    def error(self) -> TransientError:
        """The error of it."""
        if self is Failure.CONFLICT:
            return Conflict("concurrent transactions met on one item")
        return TransientError(f"the database {'is busy' if self is Failure.THROTTLED else 'did not answer'}")


@dataclass(frozen=True, slots=True)
class Refused:
    """Conditions were not met: nothing is written.

    Attributes:
        items: by the positions of the refused entries, what exists there; None: no item, or it was not asked for.
        conflicts: positions of the entries that met another transaction.
    """

    items: Mapping[int, Item | None]
    conflicts: frozenset[int] = frozenset()

    @property
    def item(self) -> Item | None:
        """Existing item of the first entry."""
        return self.items.get(0)


@dataclass(slots=True)
class Tries:
    """State of a call's tries, for a caller to whom a refusal of the last one is not enough.

    Attributes:
        unsure: the failure of a try that may still be written; None: no try may.
    """

    unsure: TransientError | None = None


Judge = Callable[[Refused], SagaError | None]
"""The error of a refusal; None: it is returned. A ``TransientError`` other than ``NotYet`` is tried again."""


def write(entry: Entry, *, retry: Retry | None = None, client: Any = None) -> Refused | None:
    """Send one write.

    Args:
        entry: the write.
        retry: failures that are sent again; None: those that the SDK sends again.
        client: a DynamoDB client; None: the process's.

    Returns:
        None: it is written. An entry that repeats an earlier one may be refused by it: compare the item.

    Raises:
        Conflict, TransientError: more often than is retried; of the second it is unknown whether it is written.
        ClientError: AWS refused the call, and nothing was written; without ``retry``, any failure.
        BotoCoreError: without ``retry``, no answer.
    """
    return _tried(lambda: entry, lambda one: _send_one(client, one), retry, None)


def transact(entries: Sequence[Entry], *, retry: Retry | None = None, client: Any = None) -> Refused | None:
    """Write all entries, or none. One entry is a plain write, of half the units.

    Args:
        entries: the writes.
        retry: as of ``write``.
        client: as of ``write``.

    Returns, and raises: as ``write``.
    """
    return _tried(lambda: entries, lambda all_: _send_all(all_, client), retry, None)


def commit(
    plan: Callable[[], Sequence[Entry]],
    judge: Judge,
    *,
    retry: Retry,
    owned: bool = False,
    tries: Tries | None = None,
) -> Refused | None:
    """Write all entries of a plan, or none.

    Args:
        plan: makes the entries, again for each try: a conflict means that what was read is stale. None: nothing is
            written.
        judge: decides about a refusal.
        retry: failures that are sent again.
        owned: whether the first entry's item names its writer. Then one entry is a plain write, of half the units: if
            the SDK repeats it after a lost answer, and its own condition refuses it, the item shows that. Without a
            name only the token of a transaction does.
        tries: gets the state of the tries, also if an error is raised.

    Returns, and raises: as ``write``, and what ``judge`` returns.
    """
    return _tried(plan, _send_all if owned else _send_together, retry, judge, tries)


def read(request: Mapping[str, Any], *, retry: Retry) -> Item | None:
    """Get one item, strongly consistent.

    Raises: as ``write``.
    """
    asked: Any = {**request, "ConsistentRead": True}
    found: Any = _tried(lambda: asked, lambda one: aws.dynamodb().get_item(**one), retry, None)
    item: Item | None = found.get("Item")
    return item


def read_all(keys: Mapping[str, Sequence[Item]], *, retry: Retry) -> dict[str, list[Item]]:
    """Get many items, each strongly consistent, in as few calls as DynamoDB admits.

    Not guaranteed: that they are as of one moment, or in the order of their keys. What is decided by two of them is
    written on condition that both are as read.

    Args:
        keys: by table, different ones.
        retry: failures that are sent again; keys that DynamoDB leaves unprocessed are throttled.

    Returns:
        By table, the items that exist.

    Raises: as ``write``.
    """
    found: dict[str, list[Item]] = {table: [] for table in keys}
    waiting, failures = [(table, key) for table, each in keys.items() for key in each], 0

    def some() -> Sequence[tuple[str, Item]]:
        return waiting[:_KEYS_AT_MOST]

    while waiting:
        answer: Any = _tried(some, _get_all, retry, None)
        for table, items in answer["Responses"].items():
            found[table] += items
        unread = [(table, key) for table, left in answer.get("UnprocessedKeys", {}).items() for key in left["Keys"]]
        waiting = [*unread, *waiting[_KEYS_AT_MOST:]]
        if unread:
            failures += 1
            pause_ms = retry.pause_ms(failures, Failure.THROTTLED, random.random())
            if pause_ms is None:
                raise Failure.THROTTLED.error
            time.sleep(pause_ms / 1_000)
    return found


def _get_all(keys: Sequence[tuple[str, Item]]) -> Any:
    tables: dict[str, Any] = {}
    for table, key in keys:
        tables.setdefault(table, {"Keys": [], "ConsistentRead": True})["Keys"].append(key)
    return aws.dynamodb().batch_get_item(RequestItems=tables)


def _send_one(client: Any, entry: Entry) -> None:
    for kind, arguments in entry.items():
        getattr(client or aws.dynamodb(), _OPERATIONS[kind])(**arguments)


def _send_all(entries: Sequence[Any], client: Any = None) -> None:
    if len(entries) == 1 and _OPERATIONS.keys() >= entries[0].keys():
        _send_one(client, entries[0])
    else:
        _send_together(entries, client)


def _send_together(entries: Sequence[Any], client: Any = None) -> None:
    if entries:
        (client or aws.dynamodb()).transact_write_items(TransactItems=list(entries))


def _tried(
    plan: Callable[[], Planned],
    send: Callable[[Planned], Result],
    retry: Retry | None,
    judge: Judge | None,
    tries: Tries | None = None,
) -> Result | Refused:
    """Result of ``send``, or the refusal."""
    failures, tries = 0, tries or Tries()
    while True:
        try:
            failure, planned = None, plan()
        except ClientError as error:
            raise tries.unsure or error from None
        try:
            return send(planned)
        except (ClientError, BotoCoreError) as error:
            found = _outcome_of(error)
            if isinstance(found, Refused):
                if aws.sent_again(error):
                    tries.unsure = tries.unsure or Failure.UNANSWERED.error
                judged = _judged(found, judge)
                if judged is None:
                    return found
                last = judged
            elif found is None:
                raise tries.unsure or error from None
            elif retry is None:
                raise
            else:
                failure, last = found, found.error
        failures += 1
        if isinstance(last, Conflict):
            telemetry.count(Metric.CONFLICT)
        elif failure is not None:
            tries.unsure = last
        pause_ms = None if retry is None else retry.pause_ms(failures, failure, random.random())
        if pause_ms is None:
            raise last
        time.sleep(pause_ms / 1_000)


def _judged(refused: Refused, judge: Judge | None) -> TransientError | None:
    """The error for which a refused write is tried again; None: the refusal is returned. Any other error is raised."""
    judged = None if judge is None else judge(refused)
    if judged is None or (isinstance(judged, TransientError) and not isinstance(judged, NotYet)):
        return judged
    try:
        raise judged from None
    finally:
        del judged  # the error's traceback holds this frame: without the name, both are freed with the error


def passes(error: ClientError | BotoCoreError) -> bool:
    """True if a write's error may pass: a conflict, a throttle, an error of the service, no answer."""
    return isinstance(_outcome_of(error), Failure)


def _outcome_of(error: ClientError | BotoCoreError) -> Refused | Failure | None:
    """Meaning of a write's error; None: AWS refused the call."""
    if not isinstance(error, ClientError):
        return Failure.UNANSWERED
    code = aws.error_code(error)
    if code == aws.CONDITION_FAILED:
        response: Any = error.response
        return Refused({0: response.get("Item") or None})
    if code == aws.TRANSACTION_CANCELED:
        return _cancelled(aws.cancellation_reasons(error))
    if code == aws.TRANSACTION_CONFLICT:
        return Failure.CONFLICT
    return Failure.THROTTLED if aws.is_transient(error) else None


def _cancelled(reasons: Sequence[Mapping[str, Any]]) -> Refused | Failure | None:
    codes = [str(reason.get("Code")) for reason in reasons]
    conflicts = frozenset(index for index, code in enumerate(codes) if code == _CONFLICT)
    if _REFUSED in codes:
        items = {n: reasons[n].get("Item") or None for n, code in enumerate(codes) if code == _REFUSED}
        return Refused(items, conflicts)
    if conflicts:
        return Failure.CONFLICT
    return Failure.THROTTLED if _BUSY.intersection(codes) else None
