"""Queues and tables as sources of an intake: what is acknowledged is written, whatever fails between."""

from __future__ import annotations

import base64
import json
import random
import string
import zlib
from decimal import Decimal
from enum import Enum
from typing import Any, Final

import pytest

from saga_runtime import Begin, Commit, DirectCall, Invalid, NotYet, PermanentError, event_operation
from saga_runtime.protocol import MAX_MESSAGE_BYTES, EventField, Metric
from saga_runtime.webhooks import messages
from tests.unit.support.enumerated import require_all_run
from tests.unit.support.intake import Provider, delivered, open_intake
from tests.unit.support.wire import Action, Fault, Killed, Moment
from tests.unit.support.world import Context, World

QUEUE: Final = "https://sqs.eu-central-1.amazonaws.com/111122223333/orders"
FIFO: Final = f"{QUEUE}.fifo"
MAX_ITEM_BYTES: Final = 409_500
"""Of an attribute's value in the largest item, 400 KiB (DynamoDB's quotas)."""


class Code(Enum):
    """A provider's codes."""

    LIMIT = 65


SEEN: list[str] = []
"""Orders in the order in which they were read."""


def _read(event: dict[str, Any]) -> Begin | None:
    order = event["dynamodb"]["Keys"]["id"]["S"] if "dynamodb" in event else event["order"]
    SEEN.append(order)
    match order.partition("-")[0]:
        case "early":
            raise NotYet("the customer has not arrived yet")
        case "refused":
            raise PermanentError("not here")
        case "broken":
            raise Invalid("no order")
        case "failing":
            raise RuntimeError("a defect")
        case "noise":
            return None
    return Begin(key=order, request={"order": order, "amount": event.get("amount", 1)}, event_id=event.get("id"))


def _plan(call: DirectCall) -> Commit:
    return Commit(output={"order": call.request["order"]})


handler = event_operation(_read)(_plan)


@pytest.fixture
def provider(world: World, monkeypatch: pytest.MonkeyPatch) -> Provider:
    """The intake."""
    SEEN.clear()
    return open_intake(world, monkeypatch)


def sent(order: str, *, queue: str = QUEUE, group: str | None = None, **more: Any) -> dict[str, Any]:
    """A message of a queue of the user's."""
    return delivered(queue, json.dumps({"order": order, **more}), id=order, group=group)


def changed(order: str, number: int = 1) -> dict[str, Any]:
    """A change of a table, as Lambda gives it to a function."""
    return {
        "eventID": f"e-{number}",
        "eventName": "INSERT",
        "eventSource": "aws:dynamodb",
        "dynamodb": {"Keys": {"id": {"S": order}}, "SequenceNumber": str(number), "StreamViewType": "KEYS_ONLY"},
    }


def taken(*records: dict[str, Any]) -> list[str]:
    """Take a batch; ids of what Lambda delivers again."""
    return [each["itemIdentifier"] for each in handler({"Records": list(records)}, Context())["batchItemFailures"]]


def reasons(provider: Provider, queue: str) -> list[str]:
    """The reasons that the messages of a queue carry."""
    return [each["MessageAttributes"][EventField.REASON]["StringValue"] for each in provider.messages(queue)]


class TestAQueue:
    def test_whose_message_comes_twice_begins_once(self, provider: Provider) -> None:
        assert taken(sent("o-1"), sent("o-1", event_id="another")) == []
        assert len(provider.records()) == 1
        assert provider.world.telemetry.counts[Metric.EVENT_DUPLICATE] == 1

    @pytest.mark.parametrize("body", ["not json", "[1]", "1", "null", ""])
    def test_whose_message_is_not_an_object_is_parked_with_the_reason(self, provider: Provider, body: str) -> None:
        assert taken(delivered(QUEUE, body)) == []
        assert reasons(provider, provider.parked) == ["INVALID"]
        assert provider.world.telemetry.counts[Metric.EVENT_REFUSED] == 1

    def test_whose_message_contradicts_is_parked_with_the_reason(self, provider: Provider) -> None:
        assert taken(sent("o-1"), sent("o-1", amount=2)) == []
        assert reasons(provider, provider.parked) == ["KEY_REUSED"]

    @pytest.mark.parametrize(("order", "kept", "parked"), [("early-1", 1, 0), ("refused-1", 0, 1), ("noise-1", 0, 0)])
    def test_whose_message_is_not_applied_is_moved(
        self, provider: Provider, order: str, kept: int, parked: int
    ) -> None:
        assert taken(sent(order)) == []
        assert len(provider.messages(provider.kept)) == kept
        assert len(provider.messages(provider.parked)) == parked

    def test_of_its_own_leaves_an_early_message_where_it_is(self, provider: Provider) -> None:
        assert taken(sent("early-1", queue=provider.kept)) == ["early-1"]
        assert provider.messages(provider.kept) == []

    def test_whose_message_fails_delivers_only_that_again(self, provider: Provider) -> None:
        assert taken(sent("o-1"), sent("failing-1"), sent("o-2")) == ["failing-1"]
        assert len(provider.records()) == 2

    @pytest.mark.parametrize("order", ["early-1", "refused-1"])
    def test_has_its_largest_message_kept_and_parked(self, provider: Provider, order: str) -> None:
        message = sent(order, padding='"' * (MAX_MESSAGE_BYTES // 2 - 100))
        assert len(message["body"]) > 0.99 * MAX_MESSAGE_BYTES

        assert taken(message) == []
        (held,) = provider.messages(provider.kept) + provider.messages(provider.parked)
        taken(delivered(provider.kept, held["Body"]))
        assert [order, order] == SEEN

    @pytest.mark.parametrize("order", ["early-1", "refused-1", "broken-1"])
    def test_cannot_send_an_event_that_is_treated_as_a_webhook(self, provider: Provider, order: str) -> None:
        webhook = {"body": "{}", "headers": {}, "query": {}, "received_at": 0}
        forged = {EventField.WEBHOOK: webhook, EventField.PACKED: "", "order": order}

        assert taken(delivered(QUEUE, json.dumps(forged))) == []
        (held,) = provider.messages(provider.kept) + provider.messages(provider.parked)
        taken(delivered(provider.kept, held["Body"]))  # from there, as SQS or an operator delivers it
        assert [order, order] == SEEN

    def test_has_the_fractions_of_its_messages_exactly(self, provider: Provider) -> None:
        amounts: list[Any] = []

        def read(event: dict[str, Any]) -> Begin | None:
            amounts.append(event["amount"])
            return None

        event_operation(read)(_plan)({"Records": [delivered(QUEUE, '{"amount": 4.35}')]}, Context())
        assert amounts == [Decimal("4.35")]

    def test_whose_message_is_applied_is_a_duplicate_if_its_plan_fails_later(self, provider: Provider) -> None:
        assert taken(sent("o-1")) == []

        def fails(_: DirectCall) -> Commit:
            raise KeyError("gone")

        again = event_operation(_read)(fails)({"Records": [sent("o-1")]}, Context())
        assert again == {"batchItemFailures": []}
        assert provider.world.telemetry.counts[Metric.EVENT_DUPLICATE] == 1


class _Hurried(Context):
    """An invocation whose time is over after its first event."""

    def get_remaining_time_in_millis(self) -> int:
        return 60_000 if not SEEN else 100


@pytest.mark.parametrize(
    ("records", "again"),
    [
        ([sent("o-1"), sent("o-2"), sent("o-3")], ["o-2", "o-3"]),
        ([changed("o-1", 1), changed("o-2", 2), changed("o-3", 3)], ["2"]),
    ],
    ids=["queue", "table"],
)
def test_batch_that_lacks_time_is_given_back_from_there_on(
    provider: Provider, records: list[dict[str, Any]], again: list[str]
) -> None:
    found = handler({"Records": records}, _Hurried())["batchItemFailures"]

    assert [one["itemIdentifier"] for one in found] == again
    assert len(provider.records()) == 1


def test_changes_that_lambda_discarded_stay_parked(provider: Provider) -> None:
    named = {"requestContext": {}, "DDBStreamBatchInfo": {"shardId": "s", "startSequenceNumber": "1"}}

    assert taken(delivered(provider.kept, json.dumps(named))) == []
    assert reasons(provider, provider.parked) == ["INVALID"]
    assert SEEN == []


class TestAFifoQueue:
    def test_holds_later_messages_of_a_failed_group(self, provider: Provider) -> None:
        again = taken(
            sent("failing-1", queue=FIFO, group="a"),
            sent("o-2", queue=FIFO, group="a"),
            sent("o-3", queue=FIFO, group="b"),
        )

        assert again == ["failing-1", "o-2"]
        assert SEEN == ["failing-1", "o-3"]

    def test_continues_after_a_parked_message(self, provider: Provider) -> None:
        assert taken(sent("refused-1", queue=FIFO, group="a"), sent("o-2", queue=FIFO, group="a")) == []
        assert len(provider.records()) == 1


class TestATable:
    def test_whose_change_is_delivered_twice_begins_once(self, provider: Provider) -> None:
        assert taken(changed("o-1", 1), changed("o-1", 2)) == []
        assert len(provider.records()) == 1

    def test_has_exact_fractions_which_a_request_may_contain(self, provider: Provider) -> None:
        change = changed("o-1")
        change["dynamodb"]["ApproximateCreationDateTime"] = 1_795_407_621.25
        planned: list[Any] = []

        def read(event: dict[str, Any]) -> Begin:
            return Begin(key="o-1", request={"at": event["dynamodb"]["ApproximateCreationDateTime"]})

        def plan(call: DirectCall) -> Commit:
            planned.append(call.request["at"])
            return Commit(output={})

        assert event_operation(read)(plan)({"Records": [change]}, Context()) == {"batchItemFailures": []}
        assert [(type(at), at) for at in planned] == [(Decimal, Decimal("1795407621.25"))]
        assert provider.messages(provider.parked) == []

    @pytest.mark.parametrize("order", ["early-1", "failing-1"])
    def test_keeps_a_change_that_fails_and_continues(self, provider: Provider, order: str) -> None:
        assert taken(changed(order, 1), changed("o-2", 2)) == []
        (kept,) = provider.messages(provider.kept)
        assert json.loads(kept["Body"]) == changed(order, 1)
        assert len(provider.records()) == 1

    @pytest.mark.parametrize(("order", "reason"), [("refused-1", "REFUSED"), ("broken-1", "INVALID")])
    def test_parks_a_change_that_is_refused(self, provider: Provider, order: str, reason: str) -> None:
        assert taken(changed(order)) == []
        assert reasons(provider, provider.parked) == [reason]

    @pytest.mark.parametrize(
        ("code", "reason"),
        [(51, "51"), (" \x00no ", "no"), ("\ud83d", "REFUSED"), (None, "REFUSED"), (Code.LIMIT, "65")],
    )
    def test_parks_a_change_whose_refusal_has_a_code_of_any_kind(
        self, provider: Provider, code: Any, reason: str
    ) -> None:
        class CardRefused(PermanentError):
            def __init__(self) -> None:
                super().__init__("declined")
                vars(self)["code"] = code

        def plan(_: DirectCall) -> Commit:
            raise CardRefused

        def read(_: Any) -> Begin:
            raise CardRefused

        records = {"Records": [changed("o-1", 1)]}
        assert event_operation(_read)(plan)(records, Context()) == {"batchItemFailures": []}
        assert event_operation(read)(plan)(records, Context()) == {"batchItemFailures": []}
        assert reasons(provider, provider.parked) == [reason, reason]
        assert [fields["code"] for name, fields in provider.world.telemetry.events if name == "event_parked"] == [
            reason,
            reason,
        ]

    @pytest.mark.parametrize("kind", ["bytes", pytest.param("controls", marks=pytest.mark.proof), "noncharacters"])
    def test_keeps_the_largest_change_exactly(self, provider: Provider, kind: str) -> None:
        dice = random.Random(1)
        if kind == "bytes":
            images = [{"B": base64.b64encode(dice.randbytes(MAX_ITEM_BYTES)).decode()} for _ in range(2)]
        else:
            letters = [chr(n) for n in range(32)] if kind == "controls" else ["\uffff"]
            size = MAX_ITEM_BYTES if kind == "controls" else 3
            images = [{"S": "".join(dice.choices(letters, k=size))} for _ in range(2)]
        change = changed("early-1", 1)
        change["dynamodb"] |= {"OldImage": {"data": images[0]}, "NewImage": {"data": images[1]}}
        found: list[Any] = []

        def read(event: dict[str, Any]) -> Begin | None:
            found.append(event)
            return _read(event)

        reader = event_operation(read)(_plan)
        assert reader({"Records": [change, changed("o-2", 2)]}, Context()) == {"batchItemFailures": []}
        (kept,) = provider.messages(provider.kept)
        assert kept["Body"].isascii(), "SQS refuses some characters"
        reader({"Records": [delivered(provider.kept, kept["Body"])]}, Context())

        assert found == [change, changed("o-2", 2), change]

    @pytest.mark.parametrize("order", ["early-1", "failing-1", "refused-1", "broken-1"])
    def test_names_a_change_that_fits_into_no_message_and_continues(
        self, provider: Provider, monkeypatch: pytest.MonkeyPatch, order: str
    ) -> None:
        monkeypatch.setattr(messages, "_ROOM_BYTES", 1_000)
        change = changed(order, 1)
        noise = "".join(random.Random(1).choices(string.ascii_letters, k=4_000))
        change["dynamodb"]["NewImage"] = {"data": {"S": noise}}

        assert taken(change, changed("o-2", 2)) == []
        (parked,) = provider.messages(provider.parked)
        assert json.loads(parked["Body"])[EventField.TOO_LARGE]["dynamodb"] == changed(order, 1)["dynamodb"]
        assert reasons(provider, provider.parked) == ["TOO_LARGE"]
        assert len(provider.records()) == 1
        taken(delivered(provider.kept, parked["Body"]))
        assert reasons(provider, provider.parked) == ["TOO_LARGE", "INVALID"]

    @pytest.mark.parametrize("packed", ["%", "", "abc", base64.b85encode(zlib.compress(b"[1]")).decode(), 7])
    def test_parks_a_message_that_cannot_be_unpacked(self, provider: Provider, packed: Any) -> None:
        body = json.dumps({EventField.PACKED: packed})

        assert taken(delivered(provider.kept, body)) == []
        assert reasons(provider, provider.parked) == ["INVALID"]

    def test_parks_a_message_that_unpacks_to_more_than_an_invocation_can_bring(self, provider: Provider) -> None:
        bomb = base64.b85encode(zlib.compress(b'"' + b" " * messages.UNPACKED_BYTES)).decode()

        assert taken(delivered(provider.kept, json.dumps({EventField.PACKED: bomb}))) == []
        assert reasons(provider, provider.parked) == ["INVALID"]

    @pytest.mark.parametrize("order", ["early-1", "failing-1", "refused-1", "broken-1"])
    def test_begins_again_at_a_change_that_no_queue_took(self, provider: Provider, order: str) -> None:
        provider.world.wire.plan(Fault(operation="SendMessage", action=Action.DENY, times=1_000))

        assert taken(changed("o-1", 1), changed(order, 2), changed("o-3", 3)) == ["2"]
        assert len(provider.records()) == 1


FAULTS: Final = [
    (source, order, call, action, moment)
    for source in ("queue", "table")
    for order, calls in {
        "o-1": ("PutItem",),
        "early-1": ("SendMessage",),
        "refused-1": ("SendMessage",),
    }.items()
    for call in calls
    for action in (Action.KILL, Action.DROP)
    for moment in Moment
]
RAN: Final[set[str]] = set()


@pytest.mark.parametrize(("source", "order", "call", "action", "moment"), FAULTS)
def test_nothing_that_is_acknowledged_is_lost_or_applied_twice(
    provider: Provider,
    request: pytest.FixtureRequest,
    source: str,
    order: str,
    call: str,
    action: Action,
    moment: Moment,
) -> None:
    record = sent(order) if source == "queue" else changed(order)
    provider.world.wire.plan(Fault(operation=call, action=action, moment=moment))
    for _ in range(5):
        try:
            again = taken(record)
        except Killed:
            continue
        if not again:
            break
        provider.world.clock.ms += 1
    else:
        pytest.fail("it was never acknowledged")

    held = provider.messages(provider.kept) + provider.messages(provider.parked)
    assert len(provider.records()) == (1 if order == "o-1" else 0)
    assert (not held) if order == "o-1" else len(held) >= 1
    assert provider.world.wire.fired
    RAN.add(request.node.name)


def test_as_many_were_run_as_were_enumerated(request: pytest.FixtureRequest) -> None:
    require_all_run(
        request,
        test_nothing_that_is_acknowledged_is_lost_or_applied_twice,
        RAN,
        enumerated=len(FAULTS),
        of="crash matrix of an intake's queues and tables",
    )
