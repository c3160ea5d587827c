"""Sagas in flight: those that are not settled, their ages, and the money that their requests move.

The sparse index of a request table holds all of them, due or not. The whole index is read, so the cost grows
with what is in flight, and not with what is stored. It lags the table by a moment: what is reserved or settled
meanwhile is in the next sum.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Collection, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import Any, Final

from saga_runtime.idempotency.record import AttributeMap
from saga_runtime.protocol import DUE_INDEX, Env, Metric, RecordAttribute, RecordStatus
from saga_runtime.recovery.reconciler import Served, served_of
from saga_runtime.shared import aws, clock, telemetry
from saga_runtime.shared.arns import machine_of

READERS: Final = 8
"""Shards that are read at once; fewer than the connections that a client keeps."""
SPARE_MS: Final = 5_000
"""Time left for adding up and emitting."""
UNATTENDED_MS: Final = 3 * 3_600_000
"""Three missed rechecks (the longest recheck interval is one hour)."""


class OutOfTime(Exception):
    """Not everything could be read: a sum of a part would be a lie."""


@dataclass(slots=True, kw_only=True)
class InFlight:
    """Sagas in flight.

    Attributes:
        sagas: sagas that are not settled, parked ones included.
        parked: those of them that are parked.
        oldest_seconds: age of the oldest that is not parked; 0: none.
        oldest_parked_seconds: for how long the longest has waited for a person; 0: none does.
        money: by currency, what the requests of all of them move, in minor units; exact.
        without_amount: sagas whose requests have no amount.
        unattended: further sagas, of other state machines on the same tables, that no reconciler has checked for hours;
            parked ones included.
    """

    sagas: int = 0
    parked: int = 0
    oldest_seconds: int = 0
    oldest_parked_seconds: int = 0
    money: dict[str, int] = field(default_factory=dict)
    without_amount: int = 0
    unattended: int = 0

    def add(self, item: AttributeMap, now_ms: int) -> None:
        """Add one saga from the index. An invalid number is unknown; everything else is added."""
        a = RecordAttribute
        self.sagas += 1
        made = _number(item, a.CREATED_AT)
        if a.PARKED_BY in item:
            self.parked += 1
            # A parked record has its time; one without it has been parked since it was made, at the longest.
            parked = _number(item, a.PARKED_AT)
            since = made if parked is None else parked
            self.oldest_parked_seconds = max(self.oldest_parked_seconds, _seconds_since(since, now_ms))
        else:
            self.oldest_seconds = max(self.oldest_seconds, _seconds_since(made, now_ms))
        amount, currency = _number(item, a.AMOUNT), item.get(a.CURRENCY, {}).get("S")
        if amount is None or currency is None:
            self.without_amount += 1
        else:
            self._add_money(currency, amount)

    def merge(self, other: InFlight) -> None:
        """Add what was found elsewhere."""
        self.sagas += other.sagas
        self.parked += other.parked
        self.oldest_seconds = max(self.oldest_seconds, other.oldest_seconds)
        self.oldest_parked_seconds = max(self.oldest_parked_seconds, other.oldest_parked_seconds)
        self.without_amount += other.without_amount
        self.unattended += other.unattended
        for currency, amount in other.money.items():
            self._add_money(currency, amount)

    def _add_money(self, currency: str, amount: int) -> None:
        self.money[currency] = self.money.get(currency, 0) + amount


def measure(remaining_ms: Callable[[], int]) -> InFlight:
    """Sum what is in flight of this function's sagas, and emit it as metrics.

    Missing data triggers the alarm; a partial sum would hide the problem.

    Args:
        remaining_ms: time that is left.

    Raises:
        OutOfTime: there is more in flight than could be read in that time.
        ClientError, BotoCoreError: a table does not answer.
    """
    found, now_ms = InFlight(), clock.now_ms()
    dynamodb = aws.dynamodb()  # once, before several threads want it

    def read(part: _Part) -> InFlight:
        pages = _pages(dynamodb, part, remaining_ms)
        return added_up(pages, machines=part.machines, now_ms=now_ms)

    with ThreadPoolExecutor(max_workers=READERS) as readers:  # left when all of them have ended
        for part in readers.map(read, _parts(served_of(os.environ[Env.RECONCILED]))):
            found.merge(part)
    _tell(found)
    return found


def added_up(pages: Iterator[list[AttributeMap]], *, machines: Collection[str], now_ms: int) -> InFlight:
    """Add up one shard: sagas of these state machines that are not settled, each once.

    A saga that is checked meanwhile moves towards the end of its shard, and is found there again.

    Args:
        pages: items of the index.
        machines: names of forward state machines.
        now_ms: the time.
    """
    found = InFlight()
    seen: set[str] = set()
    for page in pages:
        for item in page:
            request_id, machine = item[RecordAttribute.ID]["S"], _machine_of_open(item)
            if machine is None or request_id in seen:
                continue
            seen.add(request_id)
            if machine in machines:
                found.add(item, now_ms)
            elif _is_unattended(item, now_ms):
                found.unattended += 1
    return found


def _machine_of_open(item: AttributeMap) -> str | None:
    """The name of the state machine of a saga that is not settled; None: another item.

    A settled saga is in the index until a late effect of it is handled. An item that is not a saga's
    record does not prevent counting the others: the check of what is due reports it.
    """
    a = RecordAttribute
    try:
        machine = machine_of(item[a.EXECUTION_ARN]["S"])
        status = item[a.STATUS]["S"]
    except (KeyError, ValueError):
        return None
    if status != RecordStatus.IN_PROGRESS or _number(item, a.CREATED_AT) is None:
        return None
    return machine.rpartition(":")[2]


def _is_unattended(item: AttributeMap, now_ms: int) -> bool:
    """Test whether no reconciler handles a saga of another state machine, replaced or not named by any reconciler.

    Parked or not: a reconciler postpones the check of a parked saga, too, so ``due_at`` of one that it serves is never
    long ago. It is the saga of another reconciler only if that one has been held, or has failed, for as long.
    """
    due_at = _number(item, RecordAttribute.DUE_AT)
    return due_at is not None and now_ms - due_at >= UNATTENDED_MS


@dataclass(frozen=True, slots=True, kw_only=True)
class _Part:
    """One shard of a table, and the state machines of the table's sagas that count."""

    table: str
    shard: int
    machines: frozenset[str]


def _parts(served: tuple[Served, ...]) -> Iterator[_Part]:
    for table in dict.fromkeys(saga.requests for saga in served):
        sagas = [saga for saga in served if saga.requests == table]
        machines = frozenset(saga.machine for saga in sagas)
        for shard in range(max(saga.shards for saga in sagas)):
            yield _Part(table=table, shard=shard, machines=machines)


def _pages(dynamodb: Any, part: _Part, remaining_ms: Callable[[], int]) -> Iterator[list[AttributeMap]]:
    asked: dict[str, Any] = {
        "TableName": part.table,
        "IndexName": DUE_INDEX,
        "KeyConditionExpression": "#shard = :shard",
        "ExpressionAttributeNames": {"#shard": RecordAttribute.DUE_SHARD},
        "ExpressionAttributeValues": {":shard": {"S": f"{part.shard:02d}"}},
    }
    start: Mapping[str, Any] | None = {}
    while start is not None:
        if remaining_ms() < SPARE_MS:
            raise OutOfTime(f"shard {part.shard:02d} of {part.table}")
        answer = dynamodb.query(**asked, **({"ExclusiveStartKey": start} if start else {}))
        yield answer["Items"]
        start = answer.get("LastEvaluatedKey")


def _tell(found: InFlight) -> None:
    telemetry.gauge(Metric.IN_FLIGHT, found.sagas)
    telemetry.gauge(Metric.PARKED, found.parked)
    telemetry.gauge(Metric.UNATTENDED, found.unattended)
    telemetry.seconds(Metric.OLDEST_IN_FLIGHT, found.oldest_seconds)
    telemetry.seconds(Metric.OLDEST_PARKED, found.oldest_parked_seconds)
    for currency, amount in sorted(found.money.items()):
        telemetry.money(Metric.MONEY_IN_FLIGHT, amount, currency)
    telemetry.event(
        "in_flight",
        sagas=found.sagas,
        parked=found.parked,
        oldest_seconds=found.oldest_seconds,
        oldest_parked_seconds=found.oldest_parked_seconds,
        money=dict(sorted(found.money.items())),
        without_amount=found.without_amount,
        unattended=found.unattended,
    )


def _number(item: AttributeMap, name: RecordAttribute) -> int | None:
    try:
        return int(item[name]["N"])
    except (KeyError, ValueError):
        return None


def _seconds_since(moment: int | None, now_ms: int) -> int:
    return 0 if moment is None else max(0, now_ms - moment) // 1_000
