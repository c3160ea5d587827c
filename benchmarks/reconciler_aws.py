"""DynamoDB and Step Functions inside botocore, as far as a reconciler calls them: a store that counts what is read.

Not an emulator. Records are stored in a SQLite file with a sparse index like the table's, so that a million
of them fit; conditions and updates are evaluated by what the unit tests hold against moto. What is asked, and
what is answered, are real requests and responses of the SDK. What is billed is counted by the published rules
(``read_units``), of the items that each request reads.

Step Functions has a bucket of calls for each operation, if configured: calls that do not fit are throttled.
"""

from __future__ import annotations

import json
import sqlite3
import zlib
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from botocore.awsrequest import AWSPreparedRequest, AWSResponse

from benchmarks.aws_stub import response
from benchmarks.expressions import holds, updated
from benchmarks.read_units import item_size, units
from saga_runtime.idempotency.record import AttributeMap
from saga_runtime.protocol import DUE_INDEX, IN_FLIGHT_ATTRIBUTES, RecordAttribute

_DUE_QUERY: Final = "#shard = :shard AND #due_at <= :now"
_A: Final = RecordAttribute
_PROJECTED: Final = frozenset({_A.ID, _A.DUE_SHARD, _A.DUE_AT, *IN_FLIGHT_ATTRIBUTES})


class Store:
    """A table of request records, in a file."""

    def __init__(self, path: Path) -> None:
        # Threads take turns: there is never more than one in here.
        self._db = sqlite3.connect(path, check_same_thread=False, isolation_level=None)
        self._db.executescript("PRAGMA journal_mode = OFF; PRAGMA synchronous = OFF; PRAGMA cache_size = -200000;")
        self._db.execute("CREATE TABLE items (id TEXT PRIMARY KEY, shard TEXT, due INTEGER, item BLOB)")
        self._db.execute("CREATE INDEX due ON items (shard, due, id) WHERE shard IS NOT NULL")

    def put(self, items: Iterable[AttributeMap]) -> None:
        """Store items."""
        self._db.execute("BEGIN")
        self._db.executemany("INSERT OR REPLACE INTO items VALUES (?, ?, ?, ?)", map(_row, items))
        self._db.execute("COMMIT")

    def get(self, request_id: str) -> dict[str, Any] | None:
        """An item."""
        row = self._db.execute("SELECT item FROM items WHERE id = ?", [request_id]).fetchone()
        return _item(row[0]) if row is not None else None

    def due(self, shard: str, now_ms: int, after: tuple[int, str], limit: int) -> list[dict[str, Any]]:
        """Items of a shard that are due, the oldest first, behind one of them."""
        asked = "SELECT item FROM items WHERE shard = ? AND due <= ? AND (due, id) > (?, ?) ORDER BY due, id LIMIT ?"
        return [_item(row[0]) for row in self._db.execute(asked, [shard, now_ms, *after, limit])]

    def count(self, condition: str = "TRUE") -> int:
        """Count the items."""
        # The names are ours, the value is bound.
        return int(self._db.execute(f"SELECT COUNT(*) FROM items WHERE {condition}").fetchone()[0])  # noqa: S608

    def close(self) -> None:
        """Let go of the file."""
        self._db.close()


def _row(item: AttributeMap) -> tuple[str, str | None, int | None, bytes]:
    shard = item[_A.DUE_SHARD]["S"] if _A.DUE_SHARD in item else None
    due = int(item[_A.DUE_AT]["N"]) if _A.DUE_AT in item else None
    return item[_A.ID]["S"], shard, due, zlib.compress(json.dumps(item).encode("utf-8"), 1)


def _item(stored: bytes) -> dict[str, Any]:
    item: dict[str, Any] = json.loads(zlib.decompress(stored))
    return item


@dataclass(slots=True, kw_only=True)
class Bucket:
    """So many calls at once, and so many a second for long."""

    size: float
    refill: float
    _tokens: float = field(init=False)
    _at_ms: float = 0

    def __post_init__(self) -> None:
        self._tokens = self.size

    def takes(self, now_ms: float) -> bool:
        """Test whether a call fits."""
        self._tokens = min(self.size, self._tokens + (now_ms - self._at_ms) / 1_000 * self.refill)
        self._at_ms = now_ms
        if self._tokens < 1:
            return False
        self._tokens -= 1
        return True


@dataclass(slots=True, kw_only=True)
class Aws:
    """Responses of both services.

    Attributes:
        store: the request table's items; other tables are empty.
        status: returns an execution's status by its name; None: there is no such execution.
        started: called with each execution that was started.
        running: names of a state machine's executions that run, sorted.
        buckets: of calls, by operation; of others there are enough.
        takes_ms: how long each operation takes.
        wait: lets time pass.
        now_ms: the time, for buckets.
        calls, refused: calls by operation; those of them that were throttled.
        units: read units by operation.
        log: time, operation, and the shard of the record that was updated or the index that was read.
    """

    store: Store
    status: Callable[[str], str | None]
    started: Callable[[str], None] = lambda _: None
    running: Callable[[str], Sequence[str]] = lambda _: ()
    buckets: Mapping[str, Bucket] = field(default_factory=dict)
    takes_ms: Mapping[str, float] = field(default_factory=dict)
    wait: Callable[[float], None] = lambda _: None
    now_ms: Callable[[], float] = lambda: 0.0
    calls: Counter[str] = field(default_factory=Counter)
    refused: Counter[str] = field(default_factory=Counter)
    units: dict[str, float] = field(default_factory=dict)
    log: list[tuple[float, str, str]] = field(default_factory=list)

    def put_before(self, *clients: Any) -> None:
        """Answer what these clients send."""
        for client in clients:
            client.meta.events.register("before-send", self.answer)

    def answer(self, request: AWSPreparedRequest, **_: Any) -> AWSResponse:
        """Answer one request, before it is sent."""
        target: Any = request.headers["X-Amz-Target"]
        operation = (target.decode() if isinstance(target, bytes) else str(target)).rpartition(".")[2]
        body: Any = request.body
        self.wait(self.takes_ms.get(operation, 0))
        self.calls[operation] += 1
        bucket = self.buckets.get(operation)
        if bucket is not None and not bucket.takes(self.now_ms()):
            self.refused[operation] += 1
            return _response(400, {"__type": "ThrottlingException", "message": "Rate exceeded"})
        return _ANSWERS[operation](self, json.loads(body))

    def get(self, asked: Mapping[str, Any]) -> AWSResponse:
        """GetItem."""
        item = self.store.get(asked["Key"][_A.ID]["S"])
        strong = bool(asked.get("ConsistentRead"))
        self._read("GetItem", units([item_size(item)] if item is not None else [], strong=strong))
        return _response(200, {"Item": item} if item is not None else {})

    def query(self, asked: Mapping[str, Any]) -> AWSResponse:
        """Query: of the index of what is due, and of nothing else."""
        if (asked["IndexName"], asked["KeyConditionExpression"]) != (DUE_INDEX, _DUE_QUERY):
            raise ValueError(f"a query is of what is due, got {asked}")
        values, limit, start = asked["ExpressionAttributeValues"], asked["Limit"], asked.get("ExclusiveStartKey")
        shard = values[":shard"]["S"]
        after = (int(start[_A.DUE_AT]["N"]), start[_A.ID]["S"]) if start else (-1, "")
        found = self.store.due(shard, int(values[":now"]["N"]), after, limit)
        read = [{name: value for name, value in item.items() if name in _PROJECTED} for item in found]
        self._read("Query", units(map(item_size, read), strong=False))
        self.log.append((self.now_ms(), "Query", shard))
        names = {asked["ExpressionAttributeNames"][name] for name in asked["ProjectionExpression"].split(", ")}
        items = [{name: value for name, value in item.items() if name in names} for item in read]
        # A page that is full has a successor, which may be empty, as DynamoDB's has.
        more = {"LastEvaluatedKey": {key: read[-1][key] for key in _KEYS}} if len(read) == limit else {}
        return _response(200, {"Items": items, "Count": len(items), "ScannedCount": len(items), **more})

    def update(self, asked: Mapping[str, Any]) -> AWSResponse:
        """UpdateItem."""
        names, values = asked["ExpressionAttributeNames"], asked["ExpressionAttributeValues"]
        item = self.store.get(asked["Key"][_A.ID]["S"])
        if item is None or not holds(asked["ConditionExpression"], item, names, values):
            return _response(400, {"__type": "ConditionalCheckFailedException", "message": "refused"})
        self.store.put([updated(asked["UpdateExpression"], item, names, values)])
        self.log.append((self.now_ms(), "UpdateItem", item[_A.DUE_SHARD]["S"]))
        return _response(200, {})

    def describe(self, asked: Mapping[str, Any]) -> AWSResponse:
        """DescribeExecution."""
        arn = asked["executionArn"]
        status = self.status(arn.rpartition(":")[2])
        if status is None:
            return _response(400, {"__type": "ExecutionDoesNotExist", "message": "no"})
        ended = {} if status == "RUNNING" else {"stopDate": 1.0}
        return _response(200, {"executionArn": arn, "status": status, "startDate": 1.0, **ended})

    def list_running(self, asked: Mapping[str, Any]) -> AWSResponse:
        """ListExecutions: of those that run, and of nothing else."""
        if asked["statusFilter"] != "RUNNING":
            raise ValueError(f"what is listed are executions that run, got {asked}")
        names, first, size = self.running(asked["stateMachineArn"]), int(asked.get("nextToken", 0)), asked["maxResults"]
        page = names[first : first + size]
        more = {"nextToken": str(first + size)} if first + size < len(names) else {}
        listed = [{"executionArn": "arn", "stateMachineArn": "arn", "name": n, "status": "RUNNING"} for n in page]
        return _response(200, {"executions": [{**one, "startDate": 1.0} for one in listed], **more})

    def start(self, asked: Mapping[str, Any]) -> AWSResponse:
        """StartExecution."""
        self.started(asked["name"])
        self.log.append((self.now_ms(), "StartExecution", ""))
        return _response(200, {"executionArn": "arn", "startDate": 1.0})

    def _read(self, operation: str, read: float) -> None:
        self.units[operation] = self.units.get(operation, 0) + read


_KEYS: Final = (_A.ID, _A.DUE_SHARD, _A.DUE_AT)
_ANSWERS: Final[Mapping[str, Callable[[Aws, Mapping[str, Any]], AWSResponse]]] = {
    "GetItem": Aws.get,
    "Query": Aws.query,
    "UpdateItem": Aws.update,
    "DescribeExecution": Aws.describe,
    "ListExecutions": Aws.list_running,
    "StartExecution": Aws.start,
}


def _response(status: int, document: Mapping[str, Any]) -> AWSResponse:
    return response(status, json.dumps(document).encode("utf-8"))
