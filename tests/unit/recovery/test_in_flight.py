"""Sums of sagas in flight: over tables, shards and pages, each saga once, complete or not reported."""

from __future__ import annotations

import json
from collections.abc import Mapping
from importlib import import_module
from typing import Any

import pytest
from botocore.exceptions import ClientError

from handlers import reconciler as entry
from saga_runtime.protocol import Env, Look, LookField, Metric, RecordAttribute
from saga_runtime.recovery.in_flight import SPARE_MS, UNATTENDED_MS, InFlight, OutOfTime
from saga_runtime.shared import aws, telemetry
from tests.unit.support.samples import ACCOUNT, NOW_MS
from tests.unit.support.world import Context, World, table_of

A = RecordAttribute
IN_FLIGHT = import_module("saga_runtime.recovery.in_flight")
MINUTE_MS = 60_000
SERVED = [("transfers", "Transfers", 2), ("orders", "Returns", 2), ("orders", "Orders", 3), ("payouts", "Payouts", 1)]
"""Table, state machine, shards."""

Item = dict[str, dict[str, str]]


def record(
    request_id: str, machine: str, *, age_ms: int = 0, money: tuple[int, str] | None = None, **more: str
) -> Item:
    """A request record in shard 00, as far as it matters here."""
    item: Item = {
        A.ID: {"S": request_id},
        A.STATUS: {"S": "IN_PROGRESS"},
        A.EXECUTION_ARN: {"S": f"arn:aws:states:eu-central-1:{ACCOUNT}:execution:{machine}:{request_id}-1"},
        A.CREATED_AT: {"N": str(NOW_MS - age_ms)},
        A.DUE_SHARD: {"S": "00"},
        A.DUE_AT: {"N": str(NOW_MS + 10 * MINUTE_MS)},
    }
    if money is not None:
        item |= {A.AMOUNT: {"N": str(money[0])}, A.CURRENCY: {"S": money[1]}}
    return item | {name: {"N" if name.endswith("_at") else "S": value} for name, value in more.items()}


@pytest.fixture
def tables(world: World, monkeypatch: pytest.MonkeyPatch) -> World:
    """Three request tables, and a reconciler of four sagas."""
    for name in dict.fromkeys(table for table, _, _ in SERVED):
        aws.dynamodb().create_table(**table_of(name, "requests"))
    queue = aws.sqs().create_queue(QueueName="operators")["QueueUrl"]
    monkeypatch.setenv(Env.RECONCILED, json.dumps([{**_told(*saga), "operators": queue} for saga in SERVED]))
    monkeypatch.setenv(Env.RECOVERIES_LIMIT, "3")
    return world


def _told(table: str, machine: str, shards: int) -> dict[str, Any]:
    rest: dict[str, Any] = {"log": "log", "days": 400, "operators": "queue", "tokens": {}}
    return {"machine": machine, "requests": table, "shards": shards, **rest}


def put(table: str, *items: Item) -> None:
    """Store records."""
    for item in items:
        aws.dynamodb().put_item(TableName=table, Item=item)


def look(remaining_ms: int = 60_000) -> dict[str, Any]:
    """Have it measured as the schedule does."""
    return entry.handler({LookField.LOOK: Look.IN_FLIGHT}, Context(remaining_ms=remaining_ms))


def test_everything_that_is_not_settled_is_added_up_whether_or_not_it_is_due(tables: World) -> None:
    put(
        "transfers",
        record("a", "Transfers", age_ms=3 * MINUTE_MS, money=(10**17, "EUR")),
        record("b", "Transfers", money=(1, "EUR"), due_shard="01"),
        record("c", "Transfers", money=(5, "JPY"), due_at=str(NOW_MS - MINUTE_MS)),
    )
    put(
        "orders",
        record("d", "Orders", money=(7, "EUR"), due_shard="02"),
        record("e", "Returns", age_ms=9 * MINUTE_MS, parked_by="e-1", parked_at=str(NOW_MS - 2 * MINUTE_MS)),
    )
    put("payouts", record("f", "Payouts", money=(2, "USD"), parked_by="f-1", parked_at=str(NOW_MS - MINUTE_MS)))

    assert look() == {
        "sagas": 6,
        "parked": 2,
        "oldest_seconds": 180,
        "oldest_parked_seconds": 120,
        "money": {"EUR": 10**17 + 8, "JPY": 5, "USD": 2},
        "without_amount": 1,
        "unattended": 0,
    }
    assert tables.telemetry.measured == {
        Metric.IN_FLIGHT: 6,
        Metric.PARKED: 2,
        Metric.OLDEST_IN_FLIGHT: 180,
        Metric.OLDEST_PARKED: 120,
        Metric.UNATTENDED: 0,
    }
    assert tables.telemetry.sums == {
        (Metric.MONEY_IN_FLIGHT, "EUR"): 10**17 + 8,
        (Metric.MONEY_IN_FLIGHT, "JPY"): 5,
        (Metric.MONEY_IN_FLIGHT, "USD"): 2,
    }
    assert [name for name, _ in tables.telemetry.events] == ["in_flight"]


def test_foreign_items_of_the_table_are_not_counted(tables: World) -> None:
    settled = record("settled", "Transfers", money=(5, "EUR")) | {A.STATUS: {"S": "COMPLETED"}}
    elsewhere = record("elsewhere", "Orders", money=(5, "EUR"))
    powertools: Item = {A.ID: {"S": "fn#1"}, A.STATUS: {"S": "INPROGRESS"}, "data": {"S": "{}"}}
    torn: Item = {A.ID: {"S": "torn"}, A.DUE_SHARD: {"S": "00"}, A.DUE_AT: {"N": "1"}}
    unnamed = record("unnamed", "Transfers") | {A.EXECUTION_ARN: {"S": "nobody's"}}
    put("transfers", settled, elsewhere, powertools, torn, unnamed, record("mine", "Transfers", money=(5, "EUR")))

    assert (look()["sagas"], tables.telemetry.sums) == (1, {(Metric.MONEY_IN_FLIGHT, "EUR"): 5})


def test_sagas_of_other_machines_without_a_reconciler_are_counted(tables: World) -> None:
    """A state machine was replaced, and its sagas are in no reconciler's list any more."""
    put(
        "transfers",
        record("left", "TransfersOfLastYear", due_at=str(NOW_MS - UNATTENDED_MS), money=(5, "EUR")),
        record("reconciled", "Orders", due_at=str(NOW_MS - UNATTENDED_MS + 1)),
        record("of a person", "Orders", due_at="1", parked_by="of a person-1"),
        record("of a person, reconciled", "Orders", due_at=str(NOW_MS - 3_600_000), parked_by="of a person-1"),
        record("settled", "Orders", due_at="1") | {A.STATUS: {"S": "FAILED"}},
        record("own", "Transfers", due_at="1"),
    )
    put("orders", record("left, too", "Transfers", due_at="1", due_shard="01"))

    found = look()
    assert (found["unattended"], found["sagas"], found["parked"], found["money"]) == (3, 1, 0, {})
    assert tables.telemetry.measured[Metric.UNATTENDED] == 3


AMOUNTS: dict[str, Item] = {
    "none": {A.CURRENCY: {"S": "EUR"}},
    "no currency": {A.AMOUNT: {"N": "5"}},
    "a text": {A.AMOUNT: {"S": "5"}, A.CURRENCY: {"S": "EUR"}},
    "a fraction": {A.AMOUNT: {"N": "5.5"}, A.CURRENCY: {"S": "EUR"}},
    "in no currency that is a text": {A.AMOUNT: {"N": "5"}, A.CURRENCY: {"N": "978"}},
}


@pytest.mark.parametrize("amount", AMOUNTS)
def test_an_invalid_amount_is_unknown_and_everything_else_is_reported(tables: World, amount: str) -> None:
    put("transfers", record("odd", "Transfers") | AMOUNTS[amount], record("a", "Transfers", money=(7, "EUR")))

    found = look()
    assert (found["sagas"], found["money"], found["without_amount"]) == (2, {"EUR": 7}, 1)
    assert tables.telemetry.measured[Metric.IN_FLIGHT] == 2


ODD: dict[str, Item] = {
    "made at no time": {A.CREATED_AT: {"S": "yesterday"}},
    "a status of another type": {A.STATUS: {"N": "1"}},
    "an execution of another type": {A.EXECUTION_ARN: {"N": "1"}},
}


@pytest.mark.parametrize("odd", ODD)
def test_an_invalid_record_blocks_no_other(tables: World, odd: str) -> None:
    """The check of due sagas reports it."""
    put("transfers", record("odd", "Transfers") | ODD[odd], record("a", "Transfers", age_ms=MINUTE_MS))

    assert (look()["sagas"], tables.telemetry.measured[Metric.OLDEST_IN_FLIGHT]) == (1, 60)


def test_a_saga_that_was_parked_at_no_time_has_waited_since_it_was_made(tables: World) -> None:
    odd = record("odd", "Transfers", age_ms=MINUTE_MS, parked_by="odd-1") | {A.PARKED_AT: {"S": "yesterday"}}
    put("transfers", odd)

    assert look()["oldest_parked_seconds"] == 60


def test_zero_in_flight_is_reported_too(tables: World) -> None:
    assert look()["sagas"] == 0
    assert (tables.telemetry.measured[Metric.IN_FLIGHT], tables.telemetry.measured[Metric.OLDEST_IN_FLIGHT]) == (0, 0)
    assert tables.telemetry.sums == {}


def test_measuring_recovers_nothing(tables: World) -> None:
    put("transfers", record("a", "Transfers", due_at="1"))

    assert set(tables.calls_of(look)) == {"Query", "ReceiveMessage"}


@pytest.fixture
def paged(tables: World, monkeypatch: pytest.MonkeyPatch) -> list[Item]:
    """Five sagas in pages of two; what is put into the list is stored after the first page was read."""
    client: Any = aws.dynamodb()
    query, meanwhile = client.query, list[Item]()

    def by_twos(**asked: Any) -> Mapping[str, Any]:
        answer: Mapping[str, Any] = query(**asked, Limit=2)
        if answer["Items"]:
            put("transfers", *meanwhile)
            meanwhile.clear()
        return answer

    put("transfers", *(_moved(name, number) for number, name in enumerate("abcde")))
    monkeypatch.setattr(client, "query", by_twos)
    return meanwhile


def _moved(name: str, by_ms: int) -> Item:
    return record(name, "Transfers", money=(100, "EUR"), due_at=str(NOW_MS + by_ms))


@pytest.mark.usefixtures("paged")
def test_every_page_is_read() -> None:
    assert look()["money"] == {"EUR": 500}


def test_a_saga_that_is_rescheduled_meanwhile_is_counted_once(paged: list[Item]) -> None:
    paged.append(_moved("a", 99 * MINUTE_MS))

    assert look()["money"] == {"EUR": 500}


def test_a_measurement_is_written_although_the_rest_takes_all_the_time(
    tables: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    put("transfers", record("r1", "Transfers"))
    written: list[float] = []
    monkeypatch.setattr(telemetry, "flush", lambda: written.append(tables.telemetry.measured[Metric.IN_FLIGHT]))
    monkeypatch.setattr(entry, "clear_queues", lambda *_: written.append(-1))

    look()

    assert written[:2] == [1, -1]


def test_a_partial_sum_is_not_reported(tables: World) -> None:
    put("transfers", record("a", "Transfers", money=(5, "EUR")))

    assert look(SPARE_MS - 1) == {}
    assert (tables.telemetry.measured, tables.telemetry.sums) == ({}, {})
    assert [name for name, _ in tables.telemetry.events if name.startswith("in_flight")] == ["in_flight_not_measured"]


def test_a_table_that_does_not_respond_is_not_empty(tables: World, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(Env.RECONCILED, json.dumps([_told("gone", "Transfers", 1), _told("orders", "Orders", 1)]))

    with pytest.raises(ClientError, match="ResourceNotFound"):
        look()
    assert (tables.telemetry.measured, tables.telemetry.sums) == ({}, {})


def test_a_record_without_a_parking_time_counts_from_its_creation() -> None:
    found = InFlight()
    found.add(record("a", "Transfers", age_ms=MINUTE_MS, parked_by="a-1"), NOW_MS)

    assert (found.oldest_parked_seconds, found.oldest_seconds) == (60, 0)


def test_clock_skew_makes_no_age_negative() -> None:
    found = InFlight()
    found.add(record("a", "Transfers", age_ms=-MINUTE_MS), NOW_MS)

    assert found.oldest_seconds == 0


def _added(*pages: list[Item]) -> int:
    found: InFlight = IN_FLIGHT.added_up(iter(pages), machines={"Transfers"}, now_ms=NOW_MS)
    return found.sagas


def test_once() -> None:
    assert _added([record("a", "Transfers")], [record("a", "Transfers"), record("b", "Transfers")]) == 2


def test_only_open() -> None:
    assert _added([record("a", "Transfers") | {A.STATUS: {"S": "FAILED"}}]) == 0


def test_only_own() -> None:
    assert _added([record("a", "Orders")]) == 0


def _unattended(item: Item) -> int:
    found: InFlight = IN_FLIGHT.added_up(iter([[item]]), machines={"Transfers"}, now_ms=NOW_MS)
    return found.unattended


@pytest.mark.parametrize("parked", [False, True])
def test_parked_or_not(parked: bool) -> None:
    found = record("a", "Orders", due_at="1", parked_by="a-1") if parked else record("a", "Orders", due_at="1")
    assert _unattended(found) == 1


def test_only_after_hours() -> None:
    assert _unattended(record("a", "Orders", due_at=str(NOW_MS - UNATTENDED_MS + 1))) == 0


def test_in_time() -> None:
    part = IN_FLIGHT._Part(table="transfers", shard=1, machines=frozenset())
    with pytest.raises(OutOfTime):
        next(IN_FLIGHT._pages(_Empty(), part, lambda: SPARE_MS - 1))
    assert next(IN_FLIGHT._pages(_Empty(), part, lambda: SPARE_MS)) == []


class _Empty:
    def query(self, **_: Any) -> Mapping[str, Any]:
        return {"Items": []}
