"""Publishing what is in an outbox: from the table's stream at once, and by a sweep whatever is left.

A row is deleted after its event was published. A crash in between publishes it again, under the same id. The table
holds unpublished events only, so a sweep reads all of it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, Final

from saga_runtime.errors import TransientError
from saga_runtime.protocol import Metric, OutboxAttribute
from saga_runtime.shared import aws, clock, telemetry, writes
from saga_runtime.shared.writes import Item

SPARE_MS: Final = 5_000
"""Time that is left for the last event, for reading the ages of the others, and for reporting."""
READ_MS: Final = 2_000
"""No page is read with less time left: a function that is ended reports nothing at all."""
SETTLED_MS: Final = 60_000
"""A younger row is left to the stream: swept as well, most events would be published twice."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Publisher:
    """Publishes the events of one outbox.

    Attributes:
        table: name of the outbox' table.
        bus: name of the bus.
        source: source of its events.
    """

    table: str
    bus: str
    source: str

    def take(self, records: Sequence[Mapping[str, Any]], *, remaining_ms: Callable[[], int]) -> int:
        """Publish the rows that were put, from records of the table's stream; returns how many.

        A row that fails stays in the table for the sweep, and does not hold back those behind it.
        """
        rows = (record["dynamodb"]["NewImage"] for record in records if record.get("eventName") == "INSERT")
        return sum(self._published(row) for row in rows if remaining_ms() > SPARE_MS)

    def sweep(self, *, remaining_ms: Callable[[], int]) -> int:
        """Publish the rows that the stream left, while there is time; returns how many.

        Reports the age of the oldest row that is still there, 0 without one; nothing if there was no time to read all
        of them: missing data triggers the alarm, and the age of some rows would hide that of the others.
        """
        now_ms = clock.now_ms()
        swept = oldest_ms = 0
        start: Item | None = {}
        while start is not None and remaining_ms() >= READ_MS:
            rows, start = self._page(start)
            for row in rows:
                age_ms = _age_ms(row, now_ms)
                if age_ms < SETTLED_MS:
                    continue
                if remaining_ms() > SPARE_MS and self._published(row):
                    swept += 1
                else:
                    oldest_ms = max(oldest_ms, age_ms)
        complete = start is None
        if complete:
            telemetry.seconds(Metric.OLDEST_UNPUBLISHED, oldest_ms // 1_000)
        telemetry.event("outbox_swept", swept=swept, oldest_seconds=oldest_ms // 1_000, complete=complete)
        return swept

    def _published(self, row: Item) -> bool:
        """True if the row's event was published, and the row is gone."""
        try:
            self._publish(row)
            writes.write({"Delete": {"TableName": self.table, "Key": {OutboxAttribute.ID: row[OutboxAttribute.ID]}}})
        except Exception as error:  # noqa: BLE001  # whatever it is: the row stays, and the alarm is on its age
            telemetry.event("publish_failed", error=type(error).__name__, code=aws.error_code(error))
            return False
        telemetry.count(Metric.EVENT_PUBLISHED)
        return True

    def _publish(self, row: Item) -> None:
        entry: Any = {
            "EventBusName": self.bus,
            "Source": self.source,
            "DetailType": row[OutboxAttribute.TYPE]["S"],
            "Detail": row[OutboxAttribute.DETAIL]["S"],
            "Time": datetime.fromtimestamp(int(row[OutboxAttribute.PUT_AT]["N"]) / 1_000, tz=UTC),
        }
        answer = aws.events().put_events(Entries=[entry])
        if answer["FailedEntryCount"]:
            raise TransientError("the bus did not take the event")

    def _page(self, start: Item) -> tuple[Sequence[Item], Item | None]:
        """A page of the table, and where the next one begins; None: it is the last one."""
        more: Any = {"ExclusiveStartKey": start} if start else {}
        found = aws.dynamodb().scan(TableName=self.table, ConsistentRead=True, **more)
        return found["Items"], found.get("LastEvaluatedKey")


def _age_ms(row: Item, now_ms: int) -> int:
    """Age of a row; of one whose time cannot be read, as if it had always been there: an alarm shows it."""
    try:
        return now_ms - int(row[OutboxAttribute.PUT_AT]["N"])
    except (KeyError, ValueError):
        return now_ms
