"""TransactWriteItems and TransactGetItems.

A transaction holds its items from the moment at which it was found to be allowed until it is written. Meanwhile
DynamoDB refuses other requests for one of them: another transaction with ``TransactionConflict`` among its reasons, a
single write with TransactionConflictException, a TransactGetItems likewise. Reads of single items are not held up.

Source: the developer guide's "Amazon DynamoDB Transactions: How it works".
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from constructs_lib.testing.simulator.aws.dynamodb.reads import get_item
from constructs_lib.testing.simulator.aws.dynamodb.tables import Table
from constructs_lib.testing.simulator.aws.dynamodb.values import item_size, stored
from constructs_lib.testing.simulator.aws.dynamodb.writes import Write, reason_of, understood
from constructs_lib.testing.simulator.errors import ServiceError, invalid

MOST_ITEMS: Final = 100
MOST_BYTES: Final = 4_194_304
TOKEN_MICROSECONDS: Final = 600_000_000
"""For so long a token is known: ten minutes."""
_FIELDS: Final = {
    "Put": {"TableName", "Item"},
    "Update": {"TableName", "Key", "UpdateExpression"},
    "Delete": {"TableName", "Key"},
    "ConditionCheck": {"TableName", "Key", "ConditionExpression"},
}
_OPTIONAL: Final = {
    "ConditionExpression",
    "ExpressionAttributeNames",
    "ExpressionAttributeValues",
    "ReturnValuesOnConditionCheckFailure",
}

_SPELLED: Final = json.JSONEncoder(sort_keys=True, default=repr).encode
Find = Callable[[Any], Table]
Change = Callable[[Table, str, Any], Any] | None


@dataclass(slots=True)
class Tokens:
    """ClientRequestTokens of transactions that were committed or are about to be."""

    known: dict[str, tuple[int, str, bool]] = field(default_factory=dict)

    def meets(self, token: str, said: str, now: int) -> bool:
        """Test whether the same transaction was committed under a token.

        Raises:
            ServiceError: if it is in flight, or another one was.
        """
        found = self.known.get(token)
        if found is None or now - found[0] > TOKEN_MICROSECONDS:
            return False
        _, former, committed = found
        if former != said:
            raise ServiceError("IdempotentParameterMismatchException", "Request contains a token that was used before")
        if not committed:
            raise ServiceError("TransactionInProgressException", "The transaction with the given token is in progress")
        return True


@dataclass(slots=True)
class Prepared:
    """A transaction that is allowed: its items are held, and nothing is written."""

    writes: Sequence[Write]
    token: str | None
    said: str

    def commit(self, now: int, tokens: Tokens) -> None:
        """Write everything."""
        for write in self.writes:
            write.table.locks.discard(write.key)
        for write in self.writes:
            if write.kind != "ConditionCheck":
                write.table.put(write.key, write.result(), now)
        if self.token is not None:
            tokens.known[self.token] = (now, self.said, True)


def prepare(source: Mapping[str, Any], find: Find, tokens: Tokens, now: int, change: Change) -> Prepared | None:
    """Decide about a transaction, and hold its items.

    Args:
        source: the request.
        find: the table of a name.
        tokens: those that are known.
        now: the moment.
        change: makes other conditions of conditions; None: they stay.

    Returns:
        None: it was committed before, under the same token.

    Raises:
        ServiceError: TransactionCanceledException with its reasons in order, or why it is not a transaction.
    """
    token = source.get("ClientRequestToken")
    said = _said(source) if token is not None else ""
    if token is not None and tokens.meets(token, said, now):
        return None
    writes = _writes(source, find, change)
    reasons = [reason_of(write, held=write.key in write.table.locks) for write in writes]
    if any(reason["Code"] != "None" for reason in reasons):
        raise cancelled(reasons)
    for write in writes:
        write.table.locks.add(write.key)
    if token is not None:
        tokens.known[token] = (now, said, False)
    return Prepared(writes, token, said)


def cancelled(reasons: Sequence[Mapping[str, Any]]) -> ServiceError:
    """The error of a transaction that was not committed."""
    codes = ", ".join(reason["Code"] for reason in reasons)
    return ServiceError(
        "TransactionCanceledException",
        f"Transaction cancelled, please refer cancellation reasons for specific reasons [{codes}]",
        members={"CancellationReasons": list(reasons)},
    )


def refused_at(source: Mapping[str, Any], position: int, code: str, message: str) -> ServiceError:
    """The error of a transaction for one of its items: it met another one, or its table has no room for now."""
    reasons: list[dict[str, Any]] = [{"Code": "None"} for _ in source["TransactItems"]]
    reasons[position] = {"Code": code, "Message": message}
    return cancelled(reasons)


def _said(source: Mapping[str, Any]) -> str:
    """Spell a request without its token, in one way."""
    return _SPELLED(source["TransactItems"])


def _writes(source: Mapping[str, Any], find: Find, change: Change) -> list[Write]:
    entries = source.get("TransactItems") or ()
    if not 1 <= len(entries) <= MOST_ITEMS:
        raise invalid(
            "1 validation error detected: Value at 'transactItems' failed to satisfy constraint: Member must have "
            f"length between 1 and {MOST_ITEMS}"
        )
    writes: list[Write] = []
    seen = set()
    for entry in entries:
        if len(entry) != 1:
            raise invalid("TransactItems can only contain one of Check, Put, Update or Delete")
        ((kind, request),) = entry.items()
        if kind not in _FIELDS:
            raise invalid(f"TransactItems can only contain one of Check, Put, Update or Delete, got {kind}")
        present = set(request)
        if missing := _FIELDS[kind] - present:
            raise invalid(f"{kind} of a transaction needs {', '.join(sorted(missing))}")
        if unknown := present - _FIELDS[kind] - _OPTIONAL:
            raise invalid(f"{kind} of a transaction takes no {', '.join(sorted(unknown))}")
        write = understood(kind, find(request["TableName"]), request, change)
        place = (write.table.name, write.key)
        if place in seen:
            raise invalid("Transaction request cannot include multiple operations on one item")
        seen.add(place)
        writes.append(write)
    if sum(item_size(write.item) for write in writes if write.item is not None) > MOST_BYTES:
        raise invalid("Transaction request size has exceeded the maximum of 4 MB")
    return writes


def transact_get(source: Mapping[str, Any], find: Find) -> dict[str, Any]:
    """TransactGetItems.

    Raises:
        ServiceError: TransactionCanceledException if a transaction in flight holds one of the items.
    """
    entries = source.get("TransactItems") or ()
    if not 1 <= len(entries) <= MOST_ITEMS:
        raise invalid("1 validation error detected: Value at 'transactItems' must have length between 1 and 100")
    requests = [(find(entry["Get"]["TableName"]), entry["Get"]) for entry in entries]
    keys = [
        table.schema.key_of({name: stored(value) for name, value in request["Key"].items()}, of_item=False)
        for table, request in requests
    ]
    if len({(table.name, key) for (table, _), key in zip(requests, keys, strict=True)}) < len(keys):
        raise invalid("Transaction request cannot include multiple operations on one item")
    held = [key in table.locks for (table, _), key in zip(requests, keys, strict=True)]
    if any(held):
        raise cancelled(
            [
                {"Code": "TransactionConflict", "Message": "Transaction is ongoing for the item"}
                if one
                else {"Code": "None"}
                for one in held
            ]
        )
    return {"Responses": [get_item(table, {**request, "ConsistentRead": True}, 0) for table, request in requests]}
