"""DynamoDB's streams: the functions that receive a table's changes, in order, at least once."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any, Final
from zlib import crc32

from constructs_lib.testing.simulator.aws.dynamodb.service import DynamoDB
from constructs_lib.testing.simulator.aws.dynamodb.tables import Key, Table
from constructs_lib.testing.simulator.aws.dynamodb.values import Item, copied_item
from constructs_lib.testing.simulator.aws.events import matches
from constructs_lib.testing.simulator.aws.functions import Functions
from constructs_lib.testing.simulator.checks.trace import Trace
from constructs_lib.testing.simulator.deployment.blueprint import StreamSpec
from constructs_lib.testing.simulator.engine.kernel import SECOND, Kernel
from constructs_lib.testing.simulator.faults.climate import Event
from constructs_lib.testing.simulator.faults.weather import Weather

_MOST_SHARDS: Final = 3
_AT_MOST: Final = 86_400 * SECOND
"""Time for which DynamoDB keeps a change."""


class Streams:
    """Every stream that a function receives. Changes of one partition are in one shard, and keep their order there."""

    def __init__(self, kernel: Kernel, db: DynamoDB, functions: Functions, weather: Weather, trace: Trace) -> None:
        self._kernel = kernel
        self._db = db
        self._functions = functions
        self._weather = weather
        self._trace = trace
        self._shards: dict[tuple[str, str], list[_Shard]] = {}

    def map(self, spec: StreamSpec) -> None:
        """Let a function receive the changes of a table from now on."""
        if (spec.table, spec.function) in self._shards:
            return
        number = 1 if self._weather.is_over else 1 + int(self._weather.share() * _MOST_SHARDS)
        shards = [_Shard(spec, self._kernel, self._functions, self._weather, self._trace) for _ in range(number)]
        self._shards[spec.table, spec.function] = shards

        def changed(table: Table, key: Key, item: Item | None) -> None:
            shards[crc32(repr(key[0]).encode()) % number].changed(table, key, item)

        self._db.table(spec.table).listeners.append(changed)

    def waiting(self) -> dict[str, int]:
        """Number of changes that wait for a function, by table."""
        counted = ((table, sum(len(one.changes) for one in shards)) for (table, _), shards in self._shards.items())
        return {table: count for table, count in counted if count}


class _Shard:
    """Changes that one event source mapping receives one batch after another.

    Attributes:
        changes: those that were not received yet, with the time of each.
    """

    def __init__(self, spec: StreamSpec, kernel: Kernel, functions: Functions, weather: Weather, trace: Trace) -> None:
        self.changes: list[tuple[int, dict[str, Any]]] = []
        self._spec = spec
        self._kernel = kernel
        self._functions = functions
        self._weather = weather
        self._trace = trace
        self._number = self._failures = 0
        self._busy = False

    def changed(self, table: Table, key: Key, item: Item | None) -> None:
        """Hear of a write."""
        former = table.get_as_of(key, -1)
        if item == former:
            return
        record = self._record(table, former, item)
        if self._spec.patterns and not any(matches(pattern, record) for pattern in self._spec.patterns):
            return
        self.changes.append((self._kernel.now, record))
        self._kernel.after(self._weather.latency(), self._poll)

    def _record(self, table: Table, former: Item | None, item: Item | None) -> dict[str, Any]:
        self._number += 1
        images = {"OldImage": former, "NewImage": item}
        kept = {name for name in images if self._spec.view in ("NEW_AND_OLD_IMAGES", _VIEWS[name])}
        keys = table.schema.names
        return {
            "eventID": f"{self._number:032x}",
            "eventName": "REMOVE" if item is None else "INSERT" if former is None else "MODIFY",
            "eventSource": "aws:dynamodb",
            "eventSourceARN": f"{table.arn}/stream/1",
            "dynamodb": {
                "Keys": {name: dict((item or former or {})[name]) for name in keys},
                **{name: copied_item(image) for name, image in images.items() if name in kept and image is not None},
                "SequenceNumber": str(self._number),
                "StreamViewType": self._spec.view,
            },
        }

    def _poll(self) -> None:
        if self._busy or not self.changes:
            return
        oldest = self._kernel.now - min(self._spec.max_age * SECOND, _AT_MOST)
        if self.changes[0][0] < oldest:
            self._trace.note(self._spec.table, "changes are too old for the stream")
            self.changes = [one for one in self.changes if one[0] >= oldest]
        batch = [record for _, record in self.changes[: self._spec.batch]]
        if not batch:
            return
        self._busy = True
        outcome = self._functions.invoke(self._spec.function, json.dumps({"Records": batch}))
        outcome.then(lambda: self._handled(batch, outcome.value()))

    def _handled(self, batch: list[dict[str, Any]], outcome: Any) -> None:
        self._busy = False
        done = 0 if outcome.error is not None else self._done(batch, outcome.payload)
        self._failures = 0 if done else self._failures + 1
        if self._failures > self._spec.retries:
            self._trace.note(self._spec.table, f"{len(batch)} changes are discarded")
            done, self._failures = len(batch), 0
        if done and self._weather.happens(Event.MESSAGE_TWICE, self._spec.table):
            done = 0
        del self.changes[:done]
        if self.changes:
            self._kernel.after(SECOND if self._failures else self._weather.latency(), self._poll)

    def _done(self, batch: list[dict[str, Any]], payload: str) -> int:
        """Number of changes before the first one that comes again."""
        answer: Mapping[str, Any] = json.loads(payload) or {}
        named = {failure.get("itemIdentifier") for failure in (answer.get("batchItemFailures") or ())}
        if not self._spec.partial or not named:
            return len(batch)
        numbers = [record["dynamodb"]["SequenceNumber"] for record in batch]
        return min((numbers.index(name) if name in numbers else 0) for name in named)


_VIEWS: Final = {"OldImage": "OLD_IMAGE", "NewImage": "NEW_IMAGE"}
