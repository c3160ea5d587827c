"""The runtime's surroundings: serialized DynamoDB, Step Functions, a clock, and what was logged."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Final

import pytest

from handlers import gatekeeper
from saga_runtime import LedgerBuilder, Money
from saga_runtime.http import direct_operation, operation
from saga_runtime.migration.store import forget_layouts
from saga_runtime.protocol import (
    DUE_INDEX,
    IN_FLIGHT_ATTRIBUTES,
    RESPONSE_INDEX,
    LedgerAttribute,
    LogAttribute,
    Metric,
    OutboxAttribute,
    RecordAttribute,
    TokenAttribute,
)
from saga_runtime.recovery import hold
from saga_runtime.shared import aws, clock, telemetry
from tests.unit.support.dynamodb import Database
from tests.unit.support.executions import Executions
from tests.unit.support.samples import NOW_MS
from tests.unit.support.tasks import Tasks
from tests.unit.support.wire import Wire

_KEYS: dict[str, list[str]] = {
    "requests": [RecordAttribute.ID],
    "log": [LogAttribute.SAGA_ID, LogAttribute.STEP],
    "ledger": [LedgerAttribute.PK, LedgerAttribute.SK],
    "tokens": [TokenAttribute.ID],
    "outbox": [OutboxAttribute.ID],
}
_KEYS_ONLY = {"ProjectionType": "KEYS_ONLY"}
_INDEXES: dict[str, list[tuple[str, tuple[str, str], list[str]]]] = {
    "requests": [
        (
            DUE_INDEX,
            (RecordAttribute.DUE_SHARD, RecordAttribute.DUE_AT),
            list(IN_FLIGHT_ATTRIBUTES),
        ),
        (RESPONSE_INDEX, (RecordAttribute.RESPONSE_SHARD, RecordAttribute.RESPONSE_EXPIRES_AT), []),
    ],
    "tokens": [(DUE_INDEX, (TokenAttribute.DUE_SHARD, TokenAttribute.DUE_AT), [])],
    "ledger": [(DUE_INDEX, (LedgerAttribute.DUE_SHARD, LedgerAttribute.DUE_AT), [])],
}
"""Index, its keys, and its further attributes."""
FUNCTION: Final = "arn:aws:lambda:eu-west-1:123456789012:function:Shop-Operators"
"""The function of a context."""


class Clock:
    """The one clock, which only moves when a test moves it."""

    def __init__(self, ms: int = NOW_MS, tick: int = 0) -> None:
        self.ms = ms
        self.tick = tick

    def now_ms(self) -> int:
        """The time; with a ``tick``, it moves on with every look."""
        self.ms += self.tick
        return self.ms


@dataclass
class Telemetry:
    """Log events and metrics of the runtime."""

    events: list[tuple[str, dict[str, Any]]] = field(default_factory=list)
    counts: Counter[Metric] = field(default_factory=Counter)
    measured: dict[Metric, float] = field(default_factory=dict)
    sums: dict[tuple[Metric, str], int] = field(default_factory=dict)

    def event(self, name: str, **fields: Any) -> None:
        """Replaces ``telemetry.event``."""
        self.events.append((name, fields))

    def count(self, metric: Metric, **fields: str) -> None:
        """Replaces ``telemetry.count``."""
        self.counts[metric] += 1
        self.events.append((metric, dict(fields)))

    def count_at(self, service: str, metric: Metric) -> None:
        """Replaces ``telemetry.count_at``."""
        self.count(metric, service=service)

    def gauge(self, metric: Metric, value: int) -> None:
        """Replaces ``telemetry.gauge``."""
        self.measured[metric] = value

    def money(self, metric: Metric, amount: int, currency: str) -> None:
        """Replaces ``telemetry.money``."""
        self.sums[metric, currency] = amount

    def seconds(self, metric: Metric, value: float) -> None:
        """Replaces ``telemetry.seconds``."""
        self.measured[metric] = value


@dataclass(slots=True, kw_only=True)
class Context:
    """A Lambda context."""

    remaining_ms: int = 15_000
    invoked_function_arn: str = FUNCTION

    def get_remaining_time_in_millis(self) -> int:
        """Time left for this invocation."""
        return self.remaining_ms


@dataclass
class World:
    """Everything around the runtime, for one test."""

    wire: Wire
    executions: Executions
    clock: Clock
    telemetry: Telemetry
    naps: list[float]
    tasks: Tasks = field(default_factory=Tasks)
    database: Database = field(default_factory=lambda: Database(TABLES))

    def call(self, event: dict[str, Any]) -> tuple[int, Any, dict[str, str]]:
        """Send an event through the gatekeeper: status, document, headers."""
        answer = gatekeeper.handler(event, None)
        return answer["statusCode"], json.loads(answer["body"]), answer["headers"]

    def items(self, table: str) -> list[dict[str, Any]]:
        """All items of a table."""
        return list(aws.dynamodb().scan(TableName=table, ConsistentRead=True)["Items"])

    def open_accounts(self, **balances: int) -> None:
        """Open accounts in euros."""
        for account_id, minor_units in balances.items():
            writes = LedgerBuilder(table="ledger").open_account(
                account_id=account_id, opening=Money(minor_units, "EUR"), now_ms=self.clock.ms
            )
            entries: Any = [write.action for write in writes]
            aws.dynamodb().transact_write_items(TransactItems=entries)

    def balances(self) -> dict[str, int]:
        """Balances by account."""
        a = LedgerAttribute
        return {
            item[a.PK]["S"].partition("#")[2]: int(item[a.BALANCE]["N"])
            for item in self.items("ledger")
            if item[a.KIND]["S"] == "account"
        }

    def entries(self) -> list[dict[str, Any]]:
        """All entries of the ledger."""
        return [item for item in self.items("ledger") if item[LedgerAttribute.KIND]["S"] == "entry"]

    def rows(self) -> dict[str, str]:
        """Status of each log row, by step key."""
        a = LogAttribute
        return {f"{item[a.SAGA_ID]['S']}#{item[a.STEP]['S']}": item[a.STATUS]["S"] for item in self.items("log")}

    def calls_of(self, action: Callable[[], object]) -> list[str]:
        """The AWS calls that something makes."""
        start = len(self.wire.sent)
        action()
        return self.wire.sent[start:]


def create_tables() -> None:
    """Create the tables, keyed as the constructs key them."""
    client: Any = aws.dynamodb()
    for request in TABLES:
        client.create_table(**request)


def table_of(name: str, kind: str) -> dict[str, Any]:
    """Request of CreateTable for a table of a kind, which is the name of the one that tests have anyway."""
    types = dict.fromkeys(_KEYS[kind], "S")
    indexes: list[dict[str, Any]] = []
    for index, (shard, time), projected in _INDEXES.get(kind, ()):
        types |= {shard: "S", time: "N"}
        projection = {"ProjectionType": "INCLUDE", "NonKeyAttributes": projected} if projected else _KEYS_ONLY
        indexes.append({"IndexName": index, "KeySchema": _schema([shard, time]), "Projection": projection})
    return {
        "TableName": name,
        "BillingMode": "PAY_PER_REQUEST",
        "AttributeDefinitions": [{"AttributeName": key, "AttributeType": type_} for key, type_ in types.items()],
        "KeySchema": _schema(_KEYS[kind]),
        **({"GlobalSecondaryIndexes": indexes} if indexes else {}),
    }


def _schema(keys: list[str]) -> list[dict[str, str]]:
    return [{"AttributeName": key, "KeyType": role} for key, role in zip(keys, ("HASH", "RANGE"), strict=False)]


TABLES: list[dict[str, Any]] = [table_of(name, name) for name in _KEYS]


def forget_cached() -> None:
    """Cold start: no client, no settings."""
    aws.forget_clients()
    hold._hold.cache_clear()
    forget_layouts()
    gatekeeper.settings.cache_clear()
    direct_operation.settings.cache_clear()
    operation.validator.cache_clear()


def replace_surroundings(monkeypatch: pytest.MonkeyPatch, moving: Clock, recorded: Telemetry) -> None:
    """Replace clock and telemetry."""
    monkeypatch.setattr(clock, "now_ms", moving.now_ms)
    monkeypatch.setattr(telemetry, "event", recorded.event)
    monkeypatch.setattr(telemetry, "count", recorded.count)
    monkeypatch.setattr(telemetry, "count_at", recorded.count_at)
    monkeypatch.setattr(telemetry, "seconds", recorded.seconds)
    monkeypatch.setattr(telemetry, "gauge", recorded.gauge)
    monkeypatch.setattr(telemetry, "money", recorded.money)
    monkeypatch.setattr(telemetry, "flush", lambda: None)
