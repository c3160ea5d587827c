"""The outbox: what committed is published under its step key, whatever fails; what did not is not."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import pytest
from botocore.exceptions import BotoCoreError
from moto.events.models import EventsBackend

from handlers import outbox as publisher
from saga_runtime import Commit, EventExists, Invalid, Outbox, PermanentError, StepCall, Write, atomic_step
from saga_runtime.outbox.publisher import Publisher
from saga_runtime.protocol import MAX_EVENT_BYTES, Env, Metric, OutboxAttribute
from saga_runtime.shared import aws
from tests.unit.support.enumerated import require_all_run
from tests.unit.support.samples import SAGA_ID, step_event
from tests.unit.support.wire import Action, Fault, Killed, Moment
from tests.unit.support.world import Context, World

STEP_KEY = f"{SAGA_ID}#Transfer"
OUTBOX = Outbox(table="outbox")
ORDER = {"pk": {"S": "order"}, "sk": {"S": "1"}}


class NotForSale(PermanentError):
    """The order is refused."""


@atomic_step
def place(call: StepCall) -> Commit:
    """Write the order, and its event."""
    put = {"TableName": "ledger", "Item": ORDER, "ConditionExpression": "attribute_not_exists(pk)"}
    order = Write(action={"Put": put}, refusal=lambda _: NotForSale("it was ordered"))
    return Commit(writes=[order, OUTBOX.event(call, "OrderPlaced", {"order": call.saga_id})], output={"placed": True})


@dataclass
class Shop:
    """A step, its outbox' publisher, and what the bus took."""

    world: World
    taken: list[Mapping[str, Any]]

    def place(self) -> Any:
        """Run the step."""
        return place(step_event(), Context())

    def stream(self, *, lost: bool = False) -> list[dict[str, Any]]:
        """Changes of the outbox, as Lambda gives them to the publisher: those rows that are there."""
        rows = [] if lost else self.world.items("outbox")
        return [{"eventName": "INSERT", "dynamodb": {"NewImage": row}} for row in rows]

    def publish(self, records: list[dict[str, Any]] | None = None, context: Context | None = None) -> int:
        """Invoke the publisher, by the stream or by the schedule."""
        event = {} if records is None else {"Records": records}
        return int(publisher.handler(event, context or Context())["published"])

    def consumed(self) -> list[tuple[str, str, str, Any]]:
        """Bus, source, type and detail of the events that were published since."""
        found = [
            (each["EventBusName"], each["Source"], each["DetailType"], json.loads(each["Detail"]))
            for each in self.taken
        ]
        self.taken.clear()
        return found


@pytest.fixture
def shop(world: World, monkeypatch: pytest.MonkeyPatch) -> Shop:
    """A bus, and the publisher's environment."""
    aws.events().create_event_bus(Name="orders")
    taken: list[Mapping[str, Any]] = []
    put = EventsBackend.put_events

    def noted(backend: EventsBackend, events: list[dict[str, Any]]) -> Any:
        taken.extend(events)
        return put(backend, events)

    monkeypatch.setattr(EventsBackend, "put_events", noted)
    for name, value in {Env.OUTBOX_TABLE: "outbox", Env.OUTBOX_BUS: "orders", Env.OUTBOX_SOURCE: "shop.orders"}.items():
        monkeypatch.setenv(name, value)
    world.wire.forget()
    return Shop(world, taken)


PLACED = ("orders", "shop.orders", "OrderPlaced", {"order": SAGA_ID, "event_id": STEP_KEY})


class TestAnEvent:
    def test_of_a_step_costs_no_call_more(self, shop: Shop) -> None:
        assert shop.world.calls_of(shop.place) == ["TransactWriteItems"]
        assert len(shop.world.items("outbox")) == 1

    def test_is_published_by_the_stream_and_its_row_deleted(self, shop: Shop) -> None:
        shop.place()

        assert shop.publish(shop.stream()) == 1
        assert shop.consumed() == [PLACED]
        assert shop.world.items("outbox") == []
        assert shop.world.telemetry.counts[Metric.EVENT_PUBLISHED] == 1

    def test_that_the_stream_lost_is_published_by_the_sweep(self, shop: Shop) -> None:
        shop.place()
        assert shop.publish() == 0, "it is young: the stream has it"
        assert shop.world.telemetry.measured[Metric.OLDEST_UNPUBLISHED] == 0
        shop.world.clock.ms += 60_000

        assert shop.publish() == 1
        assert shop.consumed() == [PLACED]
        assert shop.world.items("outbox") == []

    def test_of_a_refused_step_is_never_published(self, shop: Shop) -> None:
        aws.dynamodb().put_item(TableName="ledger", Item=ORDER)

        with pytest.raises(NotForSale):
            shop.place()
        shop.world.clock.ms += 3_600_000
        assert (shop.publish(), shop.consumed()) == (0, [])

    def test_of_a_repeated_step_is_published_once(self, shop: Shop) -> None:
        shop.place()
        shop.publish(shop.stream())
        shop.place()
        shop.world.clock.ms += 60_000

        assert shop.publish() == 0
        assert shop.consumed() == [PLACED]

    def test_has_the_time_of_its_step(self, shop: Shop) -> None:
        shop.place()
        (row,) = shop.world.items("outbox")
        assert row[OutboxAttribute.PUT_AT] == {"N": str(shop.world.clock.ms)}

    def test_of_a_step_that_has_one_already_is_refused(self, shop: Shop) -> None:
        aws.dynamodb().put_item(TableName="outbox", Item={"id": {"S": STEP_KEY}})

        with pytest.raises(EventExists, match="give each event a call of its own"):
            shop.place()
        assert shop.world.items("ledger") == []

    def test_of_a_commit_that_has_one_already_is_invalid(self) -> None:
        event = OUTBOX.event(Call(), "OrderPlaced", {})

        with pytest.raises(Invalid, match="must be of different items, got number 0 and number 1 of one"):
            Commit(writes=[event, event])


class TestAPublisher:
    def test_leaves_an_event_that_the_bus_refuses_and_continues(
        self, shop: Shop, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        shop.place()
        records = shop.stream()
        other = {**records[0]["dynamodb"]["NewImage"], "id": {"S": "other"}, "detail": {"S": '{"event_id":"other"}'}}
        aws.dynamodb().put_item(TableName="outbox", Item=other)
        put = aws.events().put_events

        def refused(**request: Any) -> Any:
            refuses = STEP_KEY in request["Entries"][0]["Detail"]
            return {"FailedEntryCount": 1, "Entries": [{"ErrorCode": "x"}]} if refuses else put(**request)

        monkeypatch.setattr(aws.events(), "put_events", refused)
        assert shop.publish([*records, {"eventName": "INSERT", "dynamodb": {"NewImage": other}}]) == 1
        shop.world.clock.ms += 120_000
        assert shop.publish() == 0

        assert [row["id"]["S"] for row in shop.world.items("outbox")] == [STEP_KEY]
        assert shop.world.telemetry.measured[Metric.OLDEST_UNPUBLISHED] == 120
        assert ("publish_failed", {"error": "TransientError", "code": None}) in shop.world.telemetry.events

    @pytest.mark.parametrize("foreign", [{}, {"put_at": {"S": "x"}}, {"put_at": {"N": "0"}, "type": {"S": "t"}}])
    def test_publishes_the_others_next_to_a_row_without_an_event(self, shop: Shop, foreign: dict[str, Any]) -> None:
        aws.dynamodb().put_item(TableName="outbox", Item={"id": {"S": "foreign"}, **foreign})
        shop.place()
        shop.world.clock.ms += 60_000

        assert shop.publish() == 1
        assert shop.consumed() == [PLACED]
        assert shop.world.telemetry.measured[Metric.OLDEST_UNPUBLISHED] > 900, "the alarm is on"

    def test_ignores_its_own_deletions(self, shop: Shop) -> None:
        assert shop.publish([{"eventName": "REMOVE", "dynamodb": {"Keys": {"id": {"S": "x"}}}}]) == 0

    @pytest.mark.parametrize("swept", [False, True])
    def test_without_time_leaves_the_rest(self, shop: Shop, swept: bool) -> None:
        shop.place()
        records = None if swept else shop.stream()
        shop.world.clock.ms += 60_000

        assert shop.publish(records, Context(remaining_ms=5_000)) == 0
        assert len(shop.world.items("outbox")) == 1
        if swept:
            assert shop.world.telemetry.measured[Metric.OLDEST_UNPUBLISHED] == 60

    def test_reads_every_page_of_the_table(self, shop: Shop) -> None:
        row = {"type": {"S": "t"}, "put_at": {"N": "0"}, "padding": {"S": "x" * 390_000}}
        for number in range(4):
            detail = {"S": json.dumps({"event_id": str(number)})}
            aws.dynamodb().put_item(TableName="outbox", Item={**row, "id": {"S": str(number)}, "detail": detail})

        assert shop.publish() == 4
        assert shop.world.wire.sent.count("Scan") > 1
        assert {event["event_id"] for *_, event in shop.consumed()} == set("0123")

    def test_reads_no_more_pages_than_there_is_time_for(self, shop: Shop) -> None:
        row = {"type": {"S": "t"}, "put_at": {"N": "0"}, "padding": {"S": "x" * 390_000}, "detail": {"S": "{}"}}
        for number in range(40):
            aws.dynamodb().put_item(TableName="outbox", Item={**row, "id": {"S": str(number)}})
        left = iter([60_000, 60_000, *[4_000] * 8, *[1_999] * 999])
        shop.world.wire.forget()

        orders = Publisher(table="outbox", bus="orders", source="shop")
        orders.sweep(remaining_ms=lambda: next(left))

        assert shop.world.wire.sent.count("Scan") <= 4
        assert Metric.OLDEST_UNPUBLISHED not in shop.world.telemetry.measured, "the age of all is not known"


class TestAnArgument:
    @pytest.mark.parametrize("table", ["", " ", None, 7])
    def test_table_without_a_name_is_refused(self, table: Any) -> None:
        with pytest.raises(Invalid, match="table of an outbox must be a table's name"):
            Outbox(table=table)

    @pytest.mark.parametrize(
        ("type", "detail", "message"),
        [
            ("", {}, "type of an event must be 1 to 128 characters, got ''"),
            ("x" * 129, {}, "type of an event must be 1 to 128"),
            (None, {}, "type of an event must be 1 to 128 characters, got None"),
            ("T", [], r"detail of event T must be a JSON object, got \[\]"),
            ("T", {"event_id": "x"}, "detail of event T must leave event_id to the outbox"),
            ("T", {"x": "y" * MAX_EVENT_BYTES}, "detail of event T is too large"),
            ("T", {"x": 1.5}, "float"),
        ],
    )
    def test_that_cannot_be_published_is_refused(self, type: Any, detail: Any, message: str) -> None:
        call = StepCall.from_event(step_event(), attempt="a", now_ms=1)
        with pytest.raises(Invalid, match=message):
            OUTBOX.event(call, type, detail)

    def test_environment_without_an_outbox_is_a_key_error(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.delenv(Env.OUTBOX_TABLE, raising=False)
        with pytest.raises(KeyError, match=Env.OUTBOX_TABLE):
            Outbox.from_env()


CALLS = ("TransactWriteItems", "PutEvents", "DeleteItem", "Scan")
MATRIX = [
    (call, action, moment, lost)
    for call in CALLS
    for action in (Action.KILL, Action.DROP)
    for moment in Moment
    for lost in (False, True)
    if call != "Scan" or lost
]
RAN: set[str] = set()


@pytest.mark.parametrize(("call", "action", "moment", "lost"), MATRIX)
def test_what_committed_is_published_under_one_id_despite_crashes(
    shop: Shop, call: str, action: Action, moment: Moment, lost: bool, request: pytest.FixtureRequest
) -> None:
    shop.world.wire.plan(Fault(operation=call, action=action, moment=moment, times=1 if action is Action.KILL else 3))

    def until_done(work: Any) -> None:
        for _ in range(5):
            try:
                work()
            except (Killed, BotoCoreError):
                continue
            return
        pytest.fail("it was never done")

    until_done(shop.place)
    until_done(lambda: shop.publish(shop.stream(lost=lost)))
    shop.world.clock.ms += 60_000
    until_done(shop.publish)
    until_done(shop.publish)

    assert shop.world.wire.fired, "the fault never struck"
    assert shop.world.rows() == {STEP_KEY: "DONE"}
    assert shop.world.items("outbox") == []
    events = shop.consumed()
    assert events == [PLACED] * len(events) != []
    RAN.add(request.node.name)


def test_as_many_were_run_as_were_enumerated(request: pytest.FixtureRequest) -> None:
    require_all_run(
        request,
        test_what_committed_is_published_under_one_id_despite_crashes,
        RAN,
        enumerated=len(MATRIX),
        of="crash matrix of an outbox",
    )


class Call:
    """A call of a job's own."""

    def __init__(self, key: Any = "op-1", now_ms: Any = 1) -> None:
        self.key = key
        self.now_ms = now_ms


@pytest.mark.parametrize("call", [None, "saga-1"])
def test_something_else_than_a_call_is_refused(call: Any) -> None:
    with pytest.raises(Invalid, match="key of a call must be text that is not blank, got None; pass the step's call"):
        OUTBOX.event(call, "OrderPlaced", {})


@pytest.mark.parametrize("key", [None, " ", 7])
def test_a_call_must_have_a_key(key: Any) -> None:
    with pytest.raises(Invalid, match="key of a call must be text that is not blank"):
        OUTBOX.event(Call(key=key), "OrderPlaced", {})


@pytest.mark.parametrize("now_ms", [None, 1.5, True, "1"])
def test_the_time_of_a_call_must_be_whole_milliseconds(now_ms: Any) -> None:
    with pytest.raises(Invalid, match="now_ms of a call must be an integer of milliseconds"):
        OUTBOX.event(Call(now_ms=now_ms), "OrderPlaced", {})


def test_a_row_that_cannot_be_read_does_not_hold_back_those_behind_it(shop: Shop) -> None:
    bad: Any = {OutboxAttribute.ID: {"S": "0"}, OutboxAttribute.PUT_AT: {"N": "1.25"}}
    aws.dynamodb().put_item(TableName="outbox", Item=bad)
    shop.place()
    shop.world.clock.ms += 600_000

    assert shop.publish() == 1
    assert [row[OutboxAttribute.ID]["S"] for row in shop.world.items("outbox")] == ["0"]


class TestARestore:
    """A restore to a moment between a commit and its publication, which is consumed already."""

    @pytest.mark.parametrize("restored", [False, True], ids=["all but the outbox", "all tables"])
    def test_publishes_again_what_no_table_knows_of(self, shop: Shop, restored: bool) -> None:
        shop.place()
        (row,) = shop.world.items("outbox")
        assert shop.publish(shop.stream()) == 1
        assert shop.consumed() == [PLACED]

        if restored:
            aws.dynamodb().put_item(TableName="outbox", Item=row)
        shop.world.clock.ms += 60_000

        assert shop.publish() == int(restored)
        assert shop.consumed() == ([PLACED] if restored else [])
