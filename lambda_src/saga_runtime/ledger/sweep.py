"""The ledger's sweeper: releases holds whose time is over, and closes the shards of windows that are over.

Both are found in a sparse index by the time at which they become due. The index is behind the table by a moment, so
each is read strongly before it is written, and its condition decides. What fails is left to the next run.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from typing import Any, Final

from botocore.exceptions import BotoCoreError, ClientError

from saga_runtime.errors import SagaError
from saga_runtime.ledger.items import Item
from saga_runtime.ledger.store import Ledger
from saga_runtime.protocol import DUE_INDEX, LEDGER_DUE_SHARDS, LedgerAttribute, Metric
from saga_runtime.shared import aws, clock, telemetry

SPARE_MS: Final = 5_000
"""Time that is left for the last item and for reporting."""


def sweep_due(ledger: Ledger, *, remaining_ms: Callable[[], int]) -> int:
    """Sweep everything that is due, while there is time; returns how many items were swept.

    Reports the age of the oldest item that is still due, 0 without one; in partitions for which there was no time, too.
    """
    now_ms = clock.now_ms()
    swept = failed = oldest_ms = 0
    for shard in random.sample(range(LEDGER_DUE_SHARDS), LEDGER_DUE_SHARDS):
        for item in _due(ledger.table, f"{shard:02d}", now_ms):
            due_at = int(item[LedgerAttribute.DUE_AT]["N"])
            if remaining_ms() < SPARE_MS:
                oldest_ms = max(oldest_ms, now_ms - due_at)
                break  # the longest due is the first of each partition
            try:
                swept += _sweep(ledger, item)
            except (SagaError, ClientError, BotoCoreError, ValueError, KeyError) as error:
                # One item that fails must not keep the others: the alarm is on the age of what stays.
                failed += 1
                oldest_ms = max(oldest_ms, now_ms - due_at)
                telemetry.event("ledger_sweep_failed", error=type(error).__name__)
    telemetry.seconds(Metric.OLDEST_UNSWEPT, oldest_ms // 1_000)
    telemetry.event("ledger_swept", swept=swept, failed=failed, oldest_seconds=oldest_ms // 1_000)
    return swept


def _sweep(ledger: Ledger, item: Item) -> bool:
    kind, _, name = item[LedgerAttribute.PK]["S"].partition("#")
    if kind == "account":
        return ledger.expire(name, item[LedgerAttribute.SK]["S"].partition("#")[2])
    return ledger.sweep_shard({key: {"S": item[key]["S"]} for key in (LedgerAttribute.PK, LedgerAttribute.SK)})


def _due(table: str, shard: str, now_ms: int) -> Iterator[Item]:
    """Items of a partition of the index that are due, the longest first."""
    start: Any = {}
    while start is not None:
        answer = aws.dynamodb().query(
            TableName=table,
            IndexName=DUE_INDEX,
            KeyConditionExpression="#shard = :shard AND #due_at <= :now",
            ExpressionAttributeNames={
                "#shard": LedgerAttribute.DUE_SHARD,
                "#due_at": LedgerAttribute.DUE_AT,
            },
            ExpressionAttributeValues={":shard": {"S": shard}, ":now": {"N": str(now_ms)}},
            **({"ExclusiveStartKey": start} if start else {}),
        )
        yield from answer["Items"]
        start = answer.get("LastEvaluatedKey")
