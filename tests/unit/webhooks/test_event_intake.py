"""Events that begin something: applied once by their business key, kept, parked, or sent again."""

from __future__ import annotations

import json
import random
from concurrent.futures import ThreadPoolExecutor
from itertools import permutations
from typing import Any

import pytest
from botocore.exceptions import ReadTimeoutError

from saga_runtime import (
    Begin,
    Commit,
    Conflict,
    DirectCall,
    Invalid,
    NotYet,
    PermanentError,
    SagaError,
    TransientError,
    WebhookEvent,
    Write,
    event_operation,
)
from saga_runtime.migration.layout import LayoutChanged
from saga_runtime.protocol import MAX_WEBHOOK_BYTES, EventField, Metric, RecordStatus
from saga_runtime.shared import aws
from tests.unit.support.enumerated import require_all_run
from tests.unit.support.intake import (
    PAID,
    PAID_AGAIN,
    REFUNDED,
    Provider,
    delivered,
    handler,
    open_intake,
    stripe_event,
)
from tests.unit.support.receiving import rest_event, stripe_header
from tests.unit.support.samples import NOW_MS
from tests.unit.support.wire import Action, Fault, Moment
from tests.unit.support.world import Context, World


@pytest.fixture
def provider(world: World, monkeypatch: pytest.MonkeyPatch) -> Provider:
    """The provider, with bob as a customer."""
    opened = open_intake(world, monkeypatch)
    world.open_accounts(bob=0)
    world.wire.forget()
    return opened


@pytest.fixture
def without_bob(world: World, monkeypatch: pytest.MonkeyPatch) -> Provider:
    """The provider; the customer is unknown."""
    opened = open_intake(world, monkeypatch)
    world.wire.forget()
    return opened


LOST = ReadTimeoutError(endpoint_url="https://dynamodb")
PAYMENT: Any = {"saga_id": {"S": "pi_1"}, "step": {"S": "payment"}}


def _refused_by(error: SagaError) -> Write:
    """A write that is refused."""
    check: Any = {"TableName": "log", "Key": PAYMENT, "ConditionExpression": "attribute_exists(saga_id)"}
    return Write(action={"ConditionCheck": check}, refusal=lambda _: error)


def _any_write() -> Write:
    """A write that is never refused."""
    return Write(action={"Put": {"TableName": "log", "Item": PAYMENT}})


class TestAnEvent:
    def test_is_applied_with_its_record_in_one_transaction(self, provider: Provider) -> None:
        assert provider.post(PAID) == 200

        assert provider.world.wire.sent[-1] == "TransactWriteItems"
        (record,) = provider.records()
        assert (record.status, provider.credited) == (RecordStatus.COMPLETED, 200)
        assert json.loads(record.body or "")["result"] == {"credited": 200}
        assert provider.world.telemetry.counts[Metric.EVENT_APPLIED] == 1

    def test_that_is_redelivered_is_200_and_counted(self, provider: Provider) -> None:
        provider.post(PAID)
        provider.world.clock.ms += 1

        assert provider.post(PAID) == 200
        assert provider.credited == 200
        assert provider.world.telemetry.counts[Metric.EVENT_DUPLICATE] == 1

    def test_of_the_same_payment_under_another_id_has_no_effect(self, provider: Provider) -> None:
        provider.post(PAID)
        provider.world.clock.ms += 1

        assert provider.post(PAID_AGAIN) == 200
        assert (provider.credited, len(provider.records())) == (200, 1)

    def test_that_contradicts_its_payment_is_parked(self, provider: Provider) -> None:
        provider.post(PAID)

        assert provider.post(stripe_event(event_id="evt_9", amount=7)) == 202
        assert provider.credited == 200
        (message,) = provider.messages(provider.parked)
        assert message["MessageAttributes"][EventField.REASON]["StringValue"] == "KEY_REUSED"

    def test_of_another_product_is_200_and_leaves_nothing(self, provider: Provider) -> None:
        assert provider.post(stripe_event("invoice.created")) == 200

        assert provider.records() == []
        assert provider.messages(provider.kept) == provider.messages(provider.parked) == []
        assert not provider.world.telemetry.counts

    def test_with_a_wrong_signature_is_401_and_leaves_nothing(self, provider: Provider) -> None:
        event = rest_event(json.dumps(PAID), {"Stripe-Signature": f"t={NOW_MS // 1_000},v1={'0' * 64}"})

        assert handler(event, Context())["statusCode"] == 401
        assert provider.records() == []

    def test_expires_with_its_key(self, provider: Provider) -> None:
        provider.post(PAID)
        (record,) = provider.records()

        assert record.expiration is not None
        assert record.expiration - provider.world.clock.ms // 1_000 >= 30 * 86_400


class TestAFailure:
    def test_that_passes_has_the_event_planned_on_what_was_read(
        self, provider: Provider, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """Changes that its function makes to the request are not in the next try."""
        seen: list[int] = []
        plan = handler.function

        def changing(call: DirectCall) -> Commit:
            seen.append(call.request["amount"])
            wanted = plan(call)
            call.request["amount"] += 5
            return wanted

        monkeypatch.setattr(handler, "function", changing)
        provider.world.wire.plan(Fault(operation="TransactWriteItems", action=Action.CONFLICT, times=2))

        assert provider.post(PAID) == 200
        assert (seen, provider.credited) == ([200] * 3, 200)

    @pytest.mark.parametrize("action", [Action.CONFLICT, Action.DROP, Action.THROTTLE, Action.DENY])
    def test_leaves_no_record_and_the_redelivery_is_applied(self, provider: Provider, action: Action) -> None:
        provider.world.wire.plan(Fault(operation="TransactWriteItems", action=action, times=1_000))

        assert provider.post(PAID) == 503
        assert (provider.records(), provider.credited) == ([], 0)
        provider.world.wire.forget()
        assert provider.post(PAID) == 200
        assert provider.credited == 200

    def test_of_the_function_is_503_and_alarmed(self, provider: Provider, monkeypatch: pytest.MonkeyPatch) -> None:
        def broken(_: DirectCall) -> Commit:
            raise RuntimeError("secret 4711")

        monkeypatch.setattr(handler, "function", broken)

        assert provider.post(PAID) == 503
        assert provider.records() == []
        assert provider.world.telemetry.counts[Metric.EVENT_REFUSED] == 1
        assert "4711" not in str(provider.world.telemetry.events)

    @pytest.mark.parametrize("error", [TransientError("later"), Conflict("met"), LayoutChanged("another layout"), LOST])
    @pytest.mark.parametrize("by", ["reader", "plan"])
    def test_of_the_users_code_is_alarmed_though_it_may_pass(
        self, provider: Provider, monkeypatch: pytest.MonkeyPatch, by: str, error: Exception
    ) -> None:
        def fails(_: Any) -> Any:
            raise error

        monkeypatch.setattr(handler, "read" if by == "reader" else "function", fails)

        assert [provider.post(PAID), provider.post(PAID)] == [503, 503]
        assert provider.world.telemetry.counts[Metric.EVENT_REFUSED] == 2

    def test_of_a_write_that_is_always_refused_for_now_is_alarmed(
        self, provider: Provider, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(handler, "function", lambda _: Commit(writes=[_refused_by(TransientError("later"))]))

        assert provider.post(PAID) == 503
        assert provider.world.telemetry.counts[Metric.EVENT_REFUSED] == 1

    @pytest.mark.parametrize("call", ["TransactWriteItems", "GetItem", "SendMessage"])
    @pytest.mark.parametrize("action", [Action.CONFLICT, Action.DROP, Action.THROTTLE])
    def test_of_the_librarys_own_calls_is_not_alarmed(
        self, provider: Provider, monkeypatch: pytest.MonkeyPatch, call: str, action: Action
    ) -> None:
        refusal = _refused_by(PermanentError("no")) if call != "TransactWriteItems" else None
        monkeypatch.setattr(handler, "function", lambda _: Commit(writes=[refusal] if refusal else [_any_write()]))
        provider.world.wire.plan(Fault(operation=call, action=action, times=1_000))

        assert provider.post(PAID) == 503
        assert provider.world.telemetry.counts[Metric.EVENT_REFUSED] == 0

    def test_of_the_plan_of_an_event_that_was_applied_is_not_alarmed(
        self, provider: Provider, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        def fails(_: DirectCall) -> Commit:
            raise TransientError("later")

        provider.post(PAID)
        monkeypatch.setattr(handler, "function", fails)

        assert provider.post(PAID) == 200
        assert provider.world.telemetry.counts[Metric.EVENT_REFUSED] == 0

    def test_of_the_reader_is_400_if_the_event_is_invalid(self, provider: Provider) -> None:
        body = {"id": "evt", "type": "charge.refunded", "data": {"object": {"payment": "", "customer": 1, "amount": 1}}}

        def reader(event: WebhookEvent) -> Begin | None:
            return Begin(key=event.json["data"]["object"]["payment"], request={})

        spare = event_operation(reader)(handler.function)
        sent = json.dumps(body).encode()
        header = stripe_header(sent, at=provider.world.clock.ms // 1_000)
        answer = spare(rest_event(sent, {"Stripe-Signature": header}), Context())

        assert answer["statusCode"] == 400
        assert provider.world.telemetry.counts[Metric.EVENT_REFUSED] == 1

    def test_to_keep_an_event_is_503(self, provider: Provider) -> None:
        provider.world.wire.plan(Fault(operation="SendMessage", action=Action.DROP, times=1_000))

        assert provider.post(REFUNDED) == 503


class TestARefundBeforeItsPayment:
    def test_is_kept_and_applied_in_order(self, provider: Provider) -> None:
        assert provider.post(REFUNDED) == 202
        assert provider.work() == 0
        assert len(provider.messages(provider.kept)) == 1

        provider.post(PAID)
        assert provider.credited == 200

        assert provider.work() == 1
        assert (provider.credited, len(provider.records())) == (0, 2)
        assert provider.messages(provider.kept) == []

    def test_that_is_kept_twice_is_applied_once(self, provider: Provider) -> None:
        provider.post(REFUNDED)
        provider.post({**REFUNDED, "id": "evt_4"})
        provider.post(PAID)

        assert provider.work() == 2
        assert provider.credited == 0
        assert provider.world.telemetry.counts[Metric.EVENT_DUPLICATE] == 1

    @pytest.mark.parametrize("order", list(permutations([PAID, PAID_AGAIN, REFUNDED, REFUNDED])))
    def test_in_any_order_it_ends_the_same(self, provider: Provider, order: tuple[dict[str, Any], ...]) -> None:
        for event in order:
            provider.world.clock.ms += 1
            assert provider.post(event) in {200, 202}
        provider.work()

        assert (provider.credited, len(provider.records())) == (0, 2)
        assert provider.messages(provider.kept) == provider.messages(provider.parked) == []


class TestAnUnknownCustomer:
    def test_is_stored_alarmed_and_2xx(self, without_bob: Provider) -> None:
        assert without_bob.post(PAID) == 202

        (message,) = without_bob.messages(without_bob.parked)
        assert message["MessageAttributes"][EventField.REASON]["StringValue"] == "ACCOUNT_NOT_FOUND"
        assert without_bob.records() == []
        assert without_bob.world.telemetry.counts[Metric.EVENT_PARKED] == 1

    def test_whose_event_is_redriven_is_credited_once(self, without_bob: Provider) -> None:
        without_bob.post(PAID)
        without_bob.world.open_accounts(bob=0)

        without_bob.redrive()
        without_bob.work()
        without_bob.world.clock.ms += 1
        without_bob.post(PAID)

        assert without_bob.credited == 200

    def test_whose_event_is_redriven_too_early_is_parked_again(self, without_bob: Provider) -> None:
        without_bob.post(PAID)
        without_bob.redrive()

        assert without_bob.work() == 1
        assert len(without_bob.messages(without_bob.parked)) == 1


class TestARefusalAfterATryWithoutAnswer:
    """The first transaction travels on, unanswered; the second is refused; then the first arrives."""

    @pytest.fixture
    def lost(self, provider: Provider, monkeypatch: pytest.MonkeyPatch) -> list[Any]:
        """Requests that travel: the first one to refund. The payment is refunded otherwise meanwhile."""
        send: Any = aws.dynamodb().transact_write_items
        travelling: list[Any] = []

        def lost_once(**request: Any) -> Any:
            if travelling:
                return send(**request)
            travelling.append(request)
            _set_payment("REFUNDED")
            raise ReadTimeoutError(endpoint_url="https://dynamodb")

        provider.post(PAID)
        monkeypatch.setattr(aws.dynamodb(), "transact_write_items", lost_once)
        return travelling

    def test_parks_nothing_and_the_redelivery_is_a_duplicate(self, provider: Provider, lost: list[Any]) -> None:
        assert provider.post(REFUNDED) == 503
        assert provider.messages(provider.parked) == []
        assert provider.world.telemetry.counts[Metric.EVENT_REFUSED] == 0

        _set_payment("PAID")
        aws.dynamodb().transact_write_items(**lost[0])
        assert provider.post(REFUNDED) == 200
        assert provider.world.telemetry.counts[Metric.EVENT_DUPLICATE] == 1

    @pytest.mark.usefixtures("lost")
    def test_is_parked_by_the_redelivery_if_the_first_was_lost(self, provider: Provider) -> None:
        assert provider.post(REFUNDED) == 503
        assert provider.post(REFUNDED) == 202
        (message,) = provider.messages(provider.parked)
        assert message["MessageAttributes"][EventField.REASON]["StringValue"] == "ALREADY_REFUNDED"
        assert (provider.credited, len(provider.records())) == (200, 1)

    def test_that_comes_too_early_keeps_nothing(self, provider: Provider, lost: list[Any]) -> None:
        def plan(call: DirectCall) -> Commit:
            if lost:
                raise NotYet("the payment has not arrived yet")
            return handler.function(call)

        late = event_operation(handler.read)(plan)
        body = json.dumps(REFUNDED).encode()
        event = rest_event(body, {"Stripe-Signature": stripe_header(body, at=provider.world.clock.ms // 1_000)})

        assert late(event, Context())["statusCode"] == 503
        assert provider.messages(provider.kept) == []

    def test_parks_nothing_if_only_the_sdk_sent_it_again(
        self, provider: Provider, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(handler, "function", lambda _: Commit(writes=[_refused_by(PermanentError("no"))]))
        provider.world.wire.plan(Fault(operation="TransactWriteItems", action=Action.DROP, times=1))

        assert provider.post(PAID) == 503
        assert provider.post(PAID) == 202


def _set_payment(state: str) -> None:
    aws.dynamodb().put_item(TableName="log", Item={**PAYMENT, "state": {"S": state}})


class TestAMessage:
    def test_keeps_every_byte_of_its_event(self, provider: Provider) -> None:
        seen: list[WebhookEvent] = []

        def plan(_: DirectCall) -> Commit:
            raise NotYet("wait")

        def read(event: WebhookEvent) -> Begin | None:
            seen.append(event)
            return Begin(key="k", request={})

        keeping = event_operation(read)(plan)
        body = b'{"text":"\xff\xc3\xa4"}'
        header = stripe_header(body, at=provider.world.clock.ms // 1_000)
        event = rest_event(body, {"Stripe-Signature": header}, base64_encoded=True)
        assert keeping(event, Context())["statusCode"] == 202
        (message,) = provider.messages(provider.kept)
        keeping({"Records": [delivered(provider.kept, message["Body"])]}, Context())

        first, second = seen
        assert first.body == second.body == body
        assert second.headers["stripe-signature"] == header
        assert first.received_at == second.received_at

    def test_of_a_bus_is_read_as_it_was_published(self, provider: Provider) -> None:
        def read(event: dict[str, Any]) -> Begin | None:
            return Begin(key=event["detail"]["trade"], request={"trade": event["detail"]["trade"]})

        def plan(call: DirectCall) -> Commit:
            return Commit(output={"trade": call.request["trade"]})

        trades = event_operation(read)(plan)
        published = {"id": "e-1", "detail-type": "signal", "source": "market", "detail": {"trade": "t-1"}}
        for event_id in ("e-1", "e-2"):
            body = json.dumps({**published, "id": event_id})
            assert trades({"Records": [delivered(provider.kept, body)]}, Context()) == {"batchItemFailures": []}

        assert len(provider.records()) == 1
        assert provider.world.telemetry.counts[Metric.EVENT_DUPLICATE] == 1

    def test_that_is_invalid_is_parked(self, provider: Provider) -> None:
        def read(_: Any) -> Begin | None:
            raise Invalid("not an event")

        reader = event_operation(read)(handler.function)

        assert reader({"Records": [delivered(provider.kept, "{}")]}, Context()) == {"batchItemFailures": []}
        assert len(provider.messages(provider.parked)) == 1

    def test_that_fails_is_redelivered_without_the_others_of_its_batch(self, provider: Provider) -> None:
        provider.post(REFUNDED)
        (kept,) = provider.messages(provider.kept)
        provider.post(PAID)
        records = [delivered(provider.kept, kept["Body"], id="good"), delivered(provider.kept, "{}", id="bad")]

        answer = handler({"Records": records}, Context())

        assert answer == {"batchItemFailures": [{"itemIdentifier": "bad"}]}
        assert provider.credited == 0

    def test_of_the_largest_event_fits_into_a_queue(self, provider: Provider) -> None:
        padding = "x" * (MAX_WEBHOOK_BYTES - 1_000)

        assert provider.post({**REFUNDED, "padding": padding}) == 202

    @pytest.mark.parametrize(
        "of",
        [
            pytest.param(range(256), id="any"),
            pytest.param(range(128, 256), id="no-text", marks=pytest.mark.proof),
            pytest.param(range(32), id="controls", marks=pytest.mark.proof),
        ],
    )
    def test_of_the_largest_body_keeps_every_byte(self, provider: Provider, of: range) -> None:
        seen: list[WebhookEvent] = []

        def read(event: WebhookEvent) -> Begin | None:
            seen.append(event)
            raise NotYet("wait")

        keeping = event_operation(read)(handler.function)
        body = bytes(random.Random(1).choices(of, k=MAX_WEBHOOK_BYTES))
        header = stripe_header(body, at=provider.world.clock.ms // 1_000)
        signed = rest_event(body, {"Stripe-Signature": header}, base64_encoded=True)

        assert keeping(signed, Context())["statusCode"] == 202
        (message,) = provider.messages(provider.kept)
        keeping({"Records": [delivered(provider.kept, message["Body"])]}, Context())
        assert [event.body for event in seen] == [body, body]


def test_ten_threads_with_events_of_one_payment_have_one_effect(provider: Provider) -> None:
    events = [stripe_event(event_id=f"evt_{number}") for number in range(10)]
    with ThreadPoolExecutor(max_workers=10) as pool:
        statuses = list(pool.map(provider.post, events))

    assert statuses == [200] * 10
    assert provider.credited == 200


@pytest.mark.parametrize(
    ("key", "found"),
    [
        ("", "an empty or blank one"),
        (" ", "an empty or blank one"),
        ("x" * 256, "a longer one, of 256"),
        ("\u00e4", "another"),
        ("a\nb", "another"),
    ],
)
def test_a_key_that_cannot_be_one_is_refused(key: str, found: str) -> None:
    with pytest.raises(Invalid, match=f"key must be 1 to 255 printable ASCII characters, got {found}; use"):
        Begin(key=key, request={})


FAULTS = [(action, moment) for action in (Action.KILL, Action.DROP) for moment in Moment]
CALLS = {
    "paid": ("BatchGetItem", "TransactWriteItems"),
    "refunded too early": ("GetItem", "SendMessage"),
    "unknown customer": ("BatchGetItem", "GetItem", "SendMessage"),
}
MATRIX = [(case, call, *fault) for case, calls in CALLS.items() for call in calls for fault in FAULTS]
RAN: set[str] = set()


@pytest.mark.proof
@pytest.mark.parametrize(("case", "call", "action", "moment"), MATRIX)
def test_no_event_that_was_answered_2xx_is_lost_or_applied_twice(
    world: World,
    monkeypatch: pytest.MonkeyPatch,
    case: str,
    call: str,
    action: Action,
    moment: Moment,
    request: pytest.FixtureRequest,
) -> None:
    provider = open_intake(world, monkeypatch)
    if case != "unknown customer":
        world.open_accounts(bob=0)
    event = REFUNDED if case == "refunded too early" else PAID
    world.wire.forget()
    world.wire.plan(Fault(operation=call, action=action, moment=moment, times=1 if action is Action.KILL else 3))

    status = provider.post(event)

    assert world.wire.fired, "the fault never struck"
    world.wire.forget()
    if status is not None and status < 300:
        _audit(provider, event)
    while (status := provider.post(event)) is None or status >= 300:
        world.clock.ms += 1
    _audit(provider, event)
    if case == "unknown customer":
        world.open_accounts(bob=0)
    provider.redrive()
    provider.post(PAID)
    provider.work()
    provider.work()
    assert (provider.credited, len(provider.records())) == ((0, 2) if event is REFUNDED else (200, 1))
    assert provider.messages(provider.kept) == []
    RAN.add(request.node.name)


def _audit(provider: Provider, event: dict[str, Any]) -> None:
    """An event that was answered is recorded, kept or parked."""
    applied = bool(provider.records())
    assert applied == (provider.credited == 200)
    stored = [json.loads(m["Body"]) for queue in (provider.kept, provider.parked) for m in provider.messages(queue)]
    kept = any(json.loads(one[EventField.WEBHOOK][EventField.BODY])["id"] == event["id"] for one in stored)
    assert applied or kept


def test_as_many_were_run_as_were_enumerated(request: pytest.FixtureRequest) -> None:
    require_all_run(
        request,
        test_no_event_that_was_answered_2xx_is_lost_or_applied_twice,
        RAN,
        enumerated=len(MATRIX),
        of="crash matrix of events that begin something",
    )
