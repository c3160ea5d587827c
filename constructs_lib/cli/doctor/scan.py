"""Reads whole tables: several segments concurrently, at a limited rate, with progress."""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any, Final

from constructs_lib.cli.doctor.aws import Aws, Item, refusal_of

SEGMENTS: Final = 4
RATE: Final = 500
"""Read units a second: a new table serves 12,000."""
_UNIT_BYTES: Final = 4_096
_PAGE: Final = 1_000
"""Items that a call reads at most: a page is paid for before the next one is asked for."""
_SAID_EVERY: Final = 10
"""Per cent."""


def units_of(size_bytes: int) -> int:
    """Read units that it takes to read so much, eventually consistent: half of what a strong read takes.

    >>> units_of(1_000_000)
    123
    """
    return -(-size_bytes // (2 * _UNIT_BYTES))


@dataclass(frozen=True, slots=True, kw_only=True)
class Scan:
    """Scans tables.

    A scan is not consistent: what it finds is read again strongly before it is reported.

    Attributes:
        rate: read units a second.
    """

    aws: Aws
    rate: int = RATE

    def announce(self, tables: Sequence[str]) -> None:
        """Print the estimated reads, by the sizes that DynamoDB reports: those of some hours ago."""
        for table in tables:
            said = self._said(table)
            if not said:
                sys.stderr.write(f"reads table {table} whole: its size is unknown\n")
                continue
            items, units = said.get("ItemCount", 0), units_of(said.get("TableSizeBytes", 0))
            sys.stderr.write(
                f"reads table {table} whole: about {items:,} items, {units:,} read units, "
                f"{-(-units // self.rate):,} s\n"
            )

    def items(self, table: str, names: Sequence[str]) -> Iterator[Item]:
        """Every item, with these attributes of it, in any order.

        Raises:
            ClientError, BotoCoreError: the table could not be read to its end.
        """
        about = self._said(table).get("ItemCount", 0)
        read = said = 0
        ahead: dict[int, Mapping[str, Any]] = {segment: {} for segment in range(SEGMENTS)}
        with ThreadPoolExecutor(max_workers=SEGMENTS) as pool:
            while ahead:
                began = time.monotonic()
                pages = list(pool.map(lambda part: self._page(table, names, *part), ahead.items()))
                ahead = {
                    number: page["LastEvaluatedKey"]
                    for number, page in zip(ahead, pages, strict=True)
                    if "LastEvaluatedKey" in page
                }
                for page in pages:
                    read += len(page["Items"])
                    yield from page["Items"]
                done = min(100 * read // about, 100) if about else 100
                if about > _PAGE and done - said >= _SAID_EVERY:
                    said = done
                    sys.stderr.write(f"table {table}: {done} %, {read:,} items\n")
                if ahead:
                    self._pay(pages, time.monotonic() - began)

    def _said(self, table: str) -> Any:
        """DynamoDB's description of a table; empty if that is refused: it may be read nevertheless."""
        from botocore.exceptions import ClientError

        try:
            return self.aws.dynamodb.describe_table(TableName=table)["Table"]
        except ClientError as error:
            if refusal_of(error) is None:
                raise
            return {}

    def _page(self, table: str, names: Sequence[str], segment: int, start: Mapping[str, Any]) -> Any:
        asked: dict[str, Any] = {
            "TableName": table,
            "Segment": segment,
            "TotalSegments": SEGMENTS,
            "Limit": _PAGE,
            "ReturnConsumedCapacity": "TOTAL",
            "ProjectionExpression": ", ".join(f"#{name}" for name in names),
            "ExpressionAttributeNames": {f"#{name}": name for name in names},
            **({"ExclusiveStartKey": start} if start else {}),
        }
        return self.aws.dynamodb.scan(**asked)

    def _pay(self, pages: Sequence[Any], took_seconds: float) -> None:
        """Wait for as long as what was read takes at the rate."""
        units = sum(float(page.get("ConsumedCapacity", {}).get("CapacityUnits", 0)) for page in pages)
        time.sleep(max(units / self.rate - took_seconds, 0))
