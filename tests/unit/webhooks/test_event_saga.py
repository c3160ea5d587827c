"""Events that begin a saga: one saga per business key, whatever is lost, killed or sent again."""

from __future__ import annotations

import json
from typing import Any

import pytest

from saga_runtime import Begin, Commit, Invalid, NotYet, PermanentError, event_operation, event_saga
from saga_runtime.idempotency.record import RequestRecord
from saga_runtime.protocol import REFERENCE_FIELD, Env, Metric, MoneyPathField, RecordAttribute, RecordStatus
from saga_runtime.shared import aws
from saga_runtime.webhooks import intake
from tests.unit.support.client import settled
from tests.unit.support.enumerated import require_all_run
from tests.unit.support.intake import Provider, delivered, open_intake
from tests.unit.support.receiving import rest_event, stripe_header
from tests.unit.support.samples import MACHINE_ARN
from tests.unit.support.wire import Action, Fault, Killed, Moment
from tests.unit.support.world import Context, World

PLACED = {"id": "evt_1", "type": "order.placed", "order": "o-1", "amount": 5}
READY: set[str] = set()
"""Orders whose customer exists."""


@event_saga
def handler(event: Any) -> Begin | None:
    """Begin an order of a known customer."""
    found = event["detail"] if isinstance(event, dict) else event.json
    match found["type"]:
        case "order.placed":
            return Begin(key=found["order"], request={"order": found["order"], "amount": found["amount"]})
        case "order.early":
            if found["order"] not in READY:
                raise NotYet("the customer has not arrived yet")
            return Begin(key=found["order"], request={"order": found["order"], "amount": found["amount"]})
        case "order.refused":
            raise PermanentError("not here")
        case "order.broken":
            raise Invalid("no order")
    return None


@pytest.fixture
def provider(world: World, monkeypatch: pytest.MonkeyPatch) -> Provider:
    """The provider, and the saga that its events begin."""
    READY.clear()
    opened = open_intake(world, monkeypatch)
    for name in (Env.REPLAY_SECONDS, Env.REMEMBER_SECONDS):
        monkeypatch.delenv(name)
    monkeypatch.setenv(Env.STATE_MACHINE_ARN, MACHINE_ARN)
    intake.settings.cache_clear()
    world.wire.forget()
    return opened


def post(world: World, event: dict[str, Any]) -> int | None:
    """Send an event; the response's status, None if the function died."""
    body = json.dumps(event).encode()
    header = stripe_header(body, at=world.clock.ms // 1_000)
    try:
        return int(handler(rest_event(body, {"Stripe-Signature": header}), Context())["statusCode"])
    except Killed:
        return None


def work(provider: Provider) -> None:
    """Deliver every kept message once."""
    for message in provider.messages(provider.kept):
        record = delivered(provider.kept, message["Body"])
        if not handler({"Records": [record]}, Context())["batchItemFailures"]:
            aws.sqs().delete_message(QueueUrl=provider.kept, ReceiptHandle=message["ReceiptHandle"])


def test_an_event_reserves_and_starts_in_two_calls(provider: Provider) -> None:
    assert post(provider.world, PLACED) == 200

    assert provider.world.wire.sent[-2:] == ["PutItem", "StartExecution"]
    (record,) = provider.records()
    assert record.status is RecordStatus.IN_PROGRESS
    assert record.execution_arn.startswith(MACHINE_ARN.replace(":stateMachine:", ":execution:"))
    assert list(provider.world.executions.by_name) == [record.saga_id]


def test_its_amount_is_in_the_record(provider: Provider, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(Env.MONEY, json.dumps({MoneyPathField.AMOUNT: "/amount", MoneyPathField.CODE: "EUR"}))
    intake.settings.cache_clear()

    assert post(provider.world, PLACED) == 200
    assert post(provider.world, {**PLACED, "order": "o-2", "amount": "much"}) == 200
    kept = sorted(
        (item.get(RecordAttribute.AMOUNT, {}).get("N", ""), item.get(RecordAttribute.CURRENCY, {}).get("S", ""))
        for item in provider.world.items("requests")
    )
    assert kept == [("", ""), ("5", "EUR")]


def test_an_event_cannot_refer_to_a_payload(provider: Provider) -> None:
    """A step would read the reference's payload in the place of the event's own data, or fail for ever."""
    reference = {REFERENCE_FIELD: "a" * 26 + "/" + "0" * 64}

    assert post(provider.world, {**PLACED, "amount": reference}) == 400
    assert provider.records() == []


@pytest.mark.parametrize("end", [False, True])
def test_a_duplicate_starts_nothing(provider: Provider, end: bool) -> None:
    post(provider.world, PLACED)
    if end:
        settled(provider.world, provider.records()[0].saga_id, RecordStatus.COMPLETED, "{}")
    provider.world.clock.ms += 1

    assert post(provider.world, {**PLACED, "id": "evt_2"}) == 200
    assert len(provider.world.executions.by_name) == len(provider.records()) == 1
    assert provider.world.telemetry.counts[Metric.EVENT_DUPLICATE] == 1


def test_a_number_that_a_later_release_reads_refuses_no_event_that_was_begun(
    provider: Provider, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Refused, each redelivery would be parked, and again after each redrive, though its saga runs."""
    amount = 1_234_567_890_123_456
    exact = {**PLACED, "amount": amount}
    assert post(provider.world, exact) == 200
    monkeypatch.setenv(Env.EXPRESSION_PATHS, json.dumps([["amount"]]))
    intake.settings.cache_clear()
    provider.world.clock.ms += 1

    assert post(provider.world, {**exact, "id": "evt_2"}) == 200
    assert provider.world.telemetry.counts[Metric.EVENT_DUPLICATE] == 1
    assert post(provider.world, {**exact, "amount": amount + 1}) == 202, "it contradicts what was begun"
    assert post(provider.world, {**exact, "order": "o-2"}) == 400
    (record,) = provider.records()
    aws.dynamodb().update_item(
        TableName="requests",
        Key={"id": {"S": record.request_id}},
        UpdateExpression="SET #status = :completed, #expiration = :over",
        ExpressionAttributeNames={"#status": RecordAttribute.STATUS, "#expiration": RecordAttribute.EXPIRATION},
        ExpressionAttributeValues={":completed": {"S": RecordStatus.COMPLETED}, ":over": {"N": "1"}},
    )
    assert post(provider.world, {**exact, "id": "evt_3"}) == 400, "it would begin another saga"


def test_an_event_that_contradicts_is_parked(provider: Provider) -> None:
    post(provider.world, PLACED)
    provider.world.clock.ms += 1

    assert post(provider.world, {**PLACED, "amount": 6}) == 202
    assert len(provider.messages(provider.parked)) == 1


@pytest.mark.parametrize(
    ("kind", "status", "parked"), [("order.refused", 202, 1), ("order.broken", 400, 0), ("order.seen", 200, 0)]
)
def test_an_event_that_begins_nothing_reserves_nothing(provider: Provider, kind: str, status: int, parked: int) -> None:
    assert post(provider.world, {**PLACED, "type": kind}) == status
    assert len(provider.messages(provider.parked)) == parked
    assert provider.records() == []


def test_an_early_event_is_kept_and_begins_its_saga_later(provider: Provider) -> None:
    early = {**PLACED, "type": "order.early"}
    assert post(provider.world, early) == 202
    work(provider)
    assert provider.records() == []

    READY.add("o-1")
    work(provider)

    assert len(provider.records()) == 1
    assert provider.messages(provider.kept) == []


def test_a_start_that_is_refused_for_good_is_503_and_alarmed_and_started_later(provider: Provider) -> None:
    provider.world.wire.plan(Fault(operation="StartExecution", action=Action.DENY, times=1_000))

    assert post(provider.world, PLACED) == 503
    assert provider.world.telemetry.counts[Metric.START_REFUSED] == 1
    provider.world.wire.forget()
    provider.world.clock.ms += 1
    assert post(provider.world, PLACED) == 200
    assert len(provider.world.executions.by_name) == 1


CALLS = ("PutItem", "StartExecution")
MATRIX = [(call, action, moment) for call in CALLS for action in (Action.KILL, Action.DROP) for moment in Moment]
RAN: set[str] = set()


@pytest.mark.exhaustive
@pytest.mark.parametrize(("call", "action", "moment"), MATRIX)
def test_one_saga_starts_despite_crashes_and_losses(
    provider: Provider, call: str, action: Action, moment: Moment, request: pytest.FixtureRequest
) -> None:
    provider.world.wire.plan(
        Fault(operation=call, action=action, moment=moment, times=1 if action is Action.KILL else 1_000)
    )

    first = post(provider.world, PLACED)

    assert provider.world.wire.fired
    provider.world.wire.forget()
    records = [RequestRecord.from_item(item) for item in provider.world.items("requests")]
    assert first is None or first == 503 or records, "a 2xx without a record"
    provider.world.clock.ms += 1
    assert post(provider.world, PLACED) == 200, "long before it is due: no third event will come"
    assert len(provider.records()) == len(provider.world.executions.by_name) == 1
    RAN.add(request.node.name)


def test_as_many_were_run_as_were_enumerated(request: pytest.FixtureRequest) -> None:
    require_all_run(
        request,
        test_one_saga_starts_despite_crashes_and_losses,
        RAN,
        enumerated=len(MATRIX),
        of="crash matrix of events that begin a saga",
    )


def test_the_handler_of_the_other_kind_is_refused_before_anything_is_read(
    world: World, provider: Provider, monkeypatch: pytest.MonkeyPatch
) -> None:
    applied = event_operation(handler.read)(lambda _: Commit(output={}))
    with pytest.raises(TypeError, match=r"begin sagas; make its handler with event_saga"):
        applied({"Records": []}, Context())

    monkeypatch.delenv(Env.STATE_MACHINE_ARN)
    monkeypatch.setenv(Env.REPLAY_SECONDS, "60")
    monkeypatch.setenv(Env.REMEMBER_SECONDS, "120")
    intake.settings.cache_clear()
    with pytest.raises(TypeError, match=r"direct operations; make its handler with event_operation"):
        handler({"Records": []}, Context())


@pytest.mark.parametrize("missing", [Env.REPLAY_SECONDS, Env.REMEMBER_SECONDS])
def test_an_intake_of_direct_operations_does_not_start_without_its_windows(missing: Env) -> None:
    windows = {Env.REPLAY_SECONDS: "60", Env.REMEMBER_SECONDS: "120"}
    with pytest.raises(KeyError, match=missing):
        intake.DirectSettings.from_env({name: value for name, value in windows.items() if name != missing})
