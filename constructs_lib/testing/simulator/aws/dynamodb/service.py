"""DynamoDB: its operations, as requests in and answers out."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import Any, Final, Protocol

from constructs_lib.testing.simulator.aws.dynamodb import reads, transactions
from constructs_lib.testing.simulator.aws.dynamodb.tables import Moments, Table
from constructs_lib.testing.simulator.aws.dynamodb.transactions import Tokens
from constructs_lib.testing.simulator.aws.dynamodb.trees import Condition
from constructs_lib.testing.simulator.aws.dynamodb.values import copied_item, item_size, stored, stored_item
from constructs_lib.testing.simulator.aws.dynamodb.writes import Write, understood, write
from constructs_lib.testing.simulator.errors import NotSimulatedError, ServiceError, invalid

_NAME: Final = re.compile("[a-zA-Z0-9_.-]+")
_WRITES: Final = {"PutItem": "Put", "UpdateItem": "Update", "DeleteItem": "Delete"}
_EXPRESSIONS: Final = frozenset({"ExpressionAttributeNames", "ExpressionAttributeValues"})
_WRITTEN: Final = _EXPRESSIONS | {
    "TableName",
    "ConditionExpression",
    "ReturnValues",
    "ReturnValuesOnConditionCheckFailure",
    "ReturnConsumedCapacity",
    "ReturnItemCollectionMetrics",
}
_READ: Final = _EXPRESSIONS | {
    "TableName",
    "IndexName",
    "ConsistentRead",
    "ProjectionExpression",
    "FilterExpression",
    "Limit",
    "Select",
    "ExclusiveStartKey",
    "ReturnConsumedCapacity",
}
_TAKEN: Final[dict[str, frozenset[str]]] = {
    "PutItem": _WRITTEN | {"Item"},
    "UpdateItem": _WRITTEN | {"Key", "UpdateExpression"},
    "DeleteItem": _WRITTEN | {"Key"},
    "GetItem": frozenset(
        {
            "TableName",
            "Key",
            "ConsistentRead",
            "ProjectionExpression",
            "ExpressionAttributeNames",
            "ReturnConsumedCapacity",
        }
    ),
    "Query": _READ | {"KeyConditionExpression", "ScanIndexForward"},
    "Scan": _READ | {"Segment", "TotalSegments"},
    "BatchGetItem": frozenset({"RequestItems", "ReturnConsumedCapacity"}),
    "BatchWriteItem": frozenset({"RequestItems", "ReturnConsumedCapacity"}),
    "TransactWriteItems": frozenset({"TransactItems", "ClientRequestToken", "ReturnConsumedCapacity"}),
    "TransactGetItems": frozenset({"TransactItems", "ReturnConsumedCapacity"}),
    "DescribeTable": frozenset({"TableName"}),
}
_MOST_BATCH: Final = {"BatchGetItem": 100, "BatchWriteItem": 25}
_MOST_BATCH_BYTES: Final = 16 * 1024 * 1024
"""Of what a BatchGetItem returns."""


class Timing(Protocol):
    """Choices that DynamoDB leaves open, drawn for each request."""

    def index_lag(self) -> int:
        """Microseconds by which an index, or a read that is not consistent, is behind."""

    def commit_delay(self) -> int:
        """Microseconds for which a transaction holds its items before it is written; 0: none."""

    def unprocessed(self) -> float:
        """Share of the keys of a batch that are left unprocessed; below 1."""

    def page(self) -> int:
        """Items after which a page of a query or a scan ends; 0: as many as fit."""

    def moment_between(self, sent: int, now: int) -> int:
        """Moment at which a consistent read of several items reads one of them."""


class Prompt:
    """Timing of a DynamoDB that is never behind."""

    def index_lag(self) -> int:
        """None."""
        return 0

    def commit_delay(self) -> int:
        """None."""
        return 0

    def unprocessed(self) -> float:
        """None."""
        return 0.0

    def page(self) -> int:
        """As many as fit."""
        return 0

    def moment_between(self, _sent: int, now: int) -> int:
        """The last one."""
        return now


class Later:
    """An answer that is not there yet.

    Attributes:
        delay: microseconds until it is.
        finish: makes it.
    """

    __slots__ = ("delay", "finish")

    def __init__(self, delay: int, finish: Callable[[], dict[str, Any]]) -> None:
        self.delay = delay
        self.finish = finish


class DynamoDB:
    """Every table of a region.

    Attributes:
        tables: by name.
        rewrite: makes another condition of the condition of a write, given its table and its text: for tests
            without one of its clauses. None: conditions are as they were written.
        timing: what is left open.
    """

    def __init__(self, clock: Callable[[], int], timing: Timing | None = None) -> None:
        self.tables: dict[str, Table] = {}
        self.rewrite: Callable[[Table, str, Condition], Condition] | None = None
        self.timing: Timing = timing or Prompt()
        self._clock = clock
        self._tokens = Tokens()

    def table(self, name: Any) -> Table:
        """The table of a name or an ARN.

        Raises:
            ServiceError: ResourceNotFoundException; ValidationException for what can be no table's name.
        """
        plain = str(name).rpartition("table/")[2]
        found = self.tables.get(name) or self.tables.get(plain)
        if found is None and not _NAME.fullmatch(plain):
            raise invalid(
                "Invalid table/index name. Names must contain only the characters a-z, A-Z, 0-9, '_', '-', '.'"
            )
        if found is None:
            raise ServiceError("ResourceNotFoundException", "Requested resource not found")
        return found

    def call(self, operation: str, source: Mapping[str, Any], sent: int | None = None) -> dict[str, Any] | Later:
        """Do what a request asks for.

        Args:
            operation: its name.
            source: the request.
            sent: when the request was sent: a consistent read of several items reads each at some moment since then
                ("read-committed"; the developer guide's "Isolation levels for DynamoDB transactions"). None: now.

        Raises:
            ServiceError: as DynamoDB refuses it.
            NotSimulatedError: for what the simulator does not have.
        """
        taken = _TAKEN.get(operation)
        if taken is None:
            raise NotSimulatedError(f"dynamodb:{operation} is not simulated; add it to the simulator's DynamoDB")
        if not source.keys() <= taken:
            unknown = source.keys() - taken
            raise NotSimulatedError(f"{', '.join(sorted(unknown))} of dynamodb:{operation} is not simulated")
        now = self._clock()
        if operation in _WRITES:
            asked = understood(_WRITES[operation], self.table(source["TableName"]), source, self.rewrite)
            return write(operation, asked, now)
        match operation:
            case "TransactWriteItems":
                return self._transact(source, now)
            case "TransactGetItems":
                return transactions.transact_get(source, self.table)
            case "GetItem":
                lag = 0 if source.get("ConsistentRead") else self.timing.index_lag()
                return reads.get_item(self.table(source["TableName"]), source, now - lag)
            case "Query" | "Scan":
                read = reads.query if operation == "Query" else reads.scan
                lag = 0 if source.get("ConsistentRead") else self.timing.index_lag()
                return read(self.table(source["TableName"]), source, now - lag, self.timing.page(), self._moments(sent))
            case "DescribeTable":
                table = self.table(source["TableName"])
                return {"Table": {"TableName": table.name, "TableArn": table.arn, "TableStatus": "ACTIVE"}}
            case "BatchGetItem":
                return self._batch_get(source, now, self._moments(sent))
        return self._batch_write(source, now)

    def _moments(self, sent: int | None) -> Moments:
        """Moments at which the items of a consistent read are read."""
        now = self._clock()
        begun = now if sent is None else sent
        return Moments(begun, lambda: self.timing.moment_between(begun, now))

    def _transact(self, source: Mapping[str, Any], now: int) -> dict[str, Any] | Later:
        prepared = transactions.prepare(source, self.table, self._tokens, now, self.rewrite)
        if prepared is None:
            return {}
        delay = self.timing.commit_delay()
        if not delay:
            prepared.commit(now, self._tokens)
            return {}

        def finish() -> dict[str, Any]:
            prepared.commit(self._clock(), self._tokens)
            return {}

        return Later(delay, finish)

    def _batch_get(self, source: Mapping[str, Any], now: int, moments: Moments) -> dict[str, Any]:
        """Items that exist. AWS documents no order in which keys are left unprocessed: here the last ones are."""
        number = sum(len(asked["Keys"]) for asked in source["RequestItems"].values())
        _check_batch("BatchGetItem", number)
        for name, asked in source["RequestItems"].items():
            schema = self.table(name).schema
            if len({schema.key_of(stored_item(key), of_item=False) for key in asked["Keys"]}) < len(asked["Keys"]):
                raise invalid("Provided list of item keys contains duplicates")
        found: dict[str, list[Any]] = {name: [] for name in source["RequestItems"]}
        unprocessed: dict[str, Any] = {}
        most, room = number - int(number * self.timing.unprocessed()), _MOST_BATCH_BYTES
        for name, asked in source["RequestItems"].items():
            table, keys = self.table(name), list(asked["Keys"])
            horizon = now if asked.get("ConsistentRead") else now - self.timing.index_lag()
            each = {key: value for key, value in asked.items() if key != "Keys"}
            while keys and most and room > 0:
                answer = reads.get_item(table, {**each, "Key": keys[0]}, horizon, moments)
                if answer:
                    room -= item_size(stored_item(answer["Item"]))
                    if room < 0:
                        break
                    found[name].append(answer["Item"])
                most -= 1
                del keys[0]
            if keys:
                unprocessed[name] = {**asked, "Keys": keys}
        return {"Responses": found, "UnprocessedKeys": unprocessed}

    def _batch_write(self, source: Mapping[str, Any], now: int) -> dict[str, Any]:
        """Write each entry on its own. AWS documents no order in which entries are left: here it is the last ones.

        What a transaction holds is left, too.
        """
        asked = [
            (name, entry, _understood_entry(self.table(name), entry))
            for name, entries in source["RequestItems"].items()
            for entry in entries
        ]
        _check_batch("BatchWriteItem", len(asked))
        if len({(one.table.name, one.key) for _, _, one in asked}) < len(asked):
            raise invalid("Provided list of item keys contains duplicates")
        most = len(asked) - int(len(asked) * self.timing.unprocessed())
        left: dict[str, list[Any]] = {}
        for number, (name, entry, one) in enumerate(asked):
            if number < most and one.key not in one.table.locks:
                write("PutItem" if one.kind == "Put" else "DeleteItem", one, now)
            else:
                left.setdefault(name, []).append(entry)
        return {"UnprocessedItems": left}

    # --- For tests, and for who prepares a run: no request, no fault, nothing is counted

    def items(self, table: str) -> list[dict[str, Any]]:
        """Every item of a table."""
        return [copied_item(item) for item in self.table(table).every()]

    def put(self, table: str, item: Mapping[str, Any]) -> None:
        """Store an item."""
        found = self.table(table)
        kept = {name: stored(value) for name, value in item.items()}
        found.put(found.schema.key_of(kept, of_item=True), kept, self._clock())


def _understood_entry(table: Table, entry: Mapping[str, Any]) -> Write:
    """A write of a batch."""
    if len(entry) != 1 or not entry.keys() <= {"PutRequest", "DeleteRequest"}:
        raise invalid("Supplied WriteRequest must have either a PutRequest or a DeleteRequest")
    ((kind, request),) = entry.items()
    return understood(kind.removesuffix("Request"), table, request)


def _check_batch(operation: str, count: int) -> None:
    if not 1 <= count <= _MOST_BATCH[operation]:
        raise invalid(
            f"Too many items requested for the {operation} call: must be 1 to {_MOST_BATCH[operation]}, got {count}"
        )
