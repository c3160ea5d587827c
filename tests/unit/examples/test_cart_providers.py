"""The cart's test providers apply their planned troubles, and their books are correct."""

from __future__ import annotations

import base64
import hashlib
import hmac
import json
import sqlite3
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from http.client import HTTPConnection, HTTPException
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, Final
from urllib.error import HTTPError
from urllib.parse import urlsplit

import pytest

from examples.cart_fulfilment.providers import Action, Moment, Provider, Trouble
from examples.cart_fulfilment.providers.courier import sign_like_stripe, sign_plainly, sign_standard

pytestmark = pytest.mark.proof

SPEED: Final = 25.0
SECRETS: Final = {
    "payments": "whsec_of-the-payments",
    "warehouse": "whsec_" + base64.b64encode(b"the warehouse's secret").decode(),
    "carrier": "the carrier's secret",
}
AUTHORIZED, FAILED = "payment_intent.amount_capturable_updated", "payment_intent.payment_failed"
CANCELED = "payment_intent.canceled"
EXPIRED = "payment_intent.canceled"
INTENT: Final = {"amount": 1250, "currency": "EUR", "card": "card-1", "reference": "order-1", "expires_in": 3600}
PICK: Final = {"reference": "order-1", "lines": [{"sku": "lamp", "quantity": 1}], "tracking": "T1", "pick_within": 3600}
LABEL: Final = {"reference": "order-1", "address": "10 Mill Lane"}
Answer = tuple[int, dict[str, Any]]


@dataclass
class Listener:
    """A receiver of events: keeps them, and responds as configured."""

    url: str
    heard: list[tuple[dict[str, str], bytes]] = field(default_factory=list)
    answers: list[int] = field(default_factory=list)

    def events(self) -> list[dict[str, Any]]:
        return [json.loads(body) for _, body in self.heard]

    def types(self) -> list[str]:
        return [event["type"] for event in self.events()]

    def await_types(self, *wanted: str) -> list[dict[str, Any]]:
        until(lambda: len(self.heard) >= len(wanted), f"{wanted}, heard {self.types()}")
        assert self.types() == list(wanted)
        return self.events()

    def await_created(self, *wanted: str) -> list[dict[str, Any]]:
        """Events in the order in which they happened: those that are due together are sent at once."""
        until(lambda: len(self.heard) >= len(wanted), f"{wanted}, heard {self.types()}")
        events = sorted(self.events(), key=lambda event: int(event["created"]))
        assert [event["type"] for event in events] == list(wanted)
        return events


def until(condition: Callable[[], object], what: str) -> None:
    deadline = time.monotonic() + 120
    while not condition():
        assert time.monotonic() < deadline, f"{what} did not happen"
        time.sleep(0.01)


@pytest.fixture(scope="module")
def own_listener() -> Iterator[Listener]:
    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["Content-Length"]))
            kept.heard.append(({name.lower(): value for name, value in self.headers.items()}, body))
            self.send_response(kept.answers.pop(0) if kept.answers else 200)
            self.send_header("Content-Length", "0")
            self.end_headers()

        def log_message(self, *_: object) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    kept = Listener(f"http://127.0.0.1:{server.server_port}/told")
    threading.Thread(target=server.serve_forever, daemon=True).start()
    yield kept
    server.shutdown()
    server.server_close()


@pytest.fixture(scope="module")
def running() -> Iterator[dict[str, Provider]]:
    with (
        Provider("payments", speed=SPEED) as payments,
        Provider("carrier", speed=SPEED) as carrier,
        Provider("warehouse", speed=SPEED, carrier=carrier.url) as warehouse,
    ):
        yield {"payments": payments, "carrier": carrier, "warehouse": warehouse}


@pytest.fixture
def listener(own_listener: Listener, running: Mapping[str, Provider]) -> Listener:
    for kind, provider in running.items():
        provider.reset()
        provider.tell(own_listener.url, secret=SECRETS[kind], now_ms=int(time.time() * 1000))
    own_listener.heard.clear()
    own_listener.answers.clear()
    return own_listener


@pytest.fixture
def payments(running: Mapping[str, Provider], listener: Listener) -> Provider:
    return running["payments"]


@pytest.fixture
def warehouse(running: Mapping[str, Provider], listener: Listener) -> Provider:
    return running["warehouse"]


@pytest.fixture
def carrier(running: Mapping[str, Provider], listener: Listener) -> Provider:
    return running["carrier"]


def ask(provider: Provider, method: str, path: str, *, key: str = "", body: Any = None, patience: float = 5) -> Answer:
    connection = HTTPConnection(urlsplit(provider.url).netloc, timeout=patience)
    try:
        headers = {"Idempotency-Key": key} if key else {}
        connection.request(method, path, body=None if body is None else json.dumps(body), headers=headers)
        answer = connection.getresponse()
        return answer.status, json.loads(answer.read())
    finally:
        connection.close()


def authorize(payments: Provider, key: str = "k-1", **changes: Any) -> Answer:
    return ask(payments, "POST", "/payment_intents", key=key, body={**INTENT, **changes})


def act(payments: Provider, id: str, what: str, key: str, **body: Any) -> Answer:
    return ask(payments, "POST", f"/payment_intents/{id}/{what}", key=key, body={"reference": "order-1", **body})


def refund(payments: Provider, id: str, key: str) -> Answer:
    body = {"payment_intent": id, "amount": 1250, "reference": "order-1"}
    return ask(payments, "POST", "/refunds", key=key, body=body)


def held(payments: Provider, listener: Listener) -> str:
    """An amount that is held; the payment's id."""
    _, payment = authorize(payments)
    listener.await_types(AUTHORIZED)
    return str(payment["id"])


def effects(provider: Provider) -> list[tuple[str, str]]:
    return [(effect.kind, effect.key) for effect in provider.effects()]


class TestAPayment:
    def test_is_held_later_and_reported_in_stripes_form(self, payments: Provider, listener: Listener) -> None:
        status, payment = authorize(payments)

        (event,) = listener.await_types(AUTHORIZED)
        assert (status, payment["status"]) == (202, "processing")
        told = event["data"]["object"]
        assert (told["id"], told["status"]) == (payment["id"], "requires_capture")
        assert told["metadata"] == {"reference": "order-1"}
        assert effects(payments) == [("authorized", "k-1")]

    def test_with_a_confirmation_by_the_owner_takes_minutes(self, payments: Provider, listener: Listener) -> None:
        _, payment = authorize(payments, card="card-3ds")
        time.sleep(0.5)

        assert payment["status"] == "requires_action"
        assert listener.heard == []
        listener.await_types(AUTHORIZED)

    def test_that_is_declined_is_reported_later_and_holds_nothing(self, payments: Provider, listener: Listener) -> None:
        assert authorize(payments, card="card-declined")[0] == 202

        (failed,) = listener.await_types(FAILED)
        assert failed["data"]["object"]["status"] == "requires_payment_method"
        assert effects(payments) == []

    def test_that_is_declined_waits_for_another_card_until_it_is_canceled(
        self, payments: Provider, listener: Listener
    ) -> None:
        authorize(payments, card="card-declined", expires_in=10)

        _, canceled = listener.await_types(FAILED, CANCELED)
        assert canceled["data"]["object"]["last_payment_error"] == {"code": "card_declined"}
        assert effects(payments) == []

    def test_of_a_blocked_card_is_declined_at_once(self, payments: Provider) -> None:
        status, answer = authorize(payments, card="card-blocked")

        assert (status, answer["error"]["code"]) == (402, "card_declined")

    def test_expires_automatically(self, payments: Provider, listener: Listener) -> None:
        authorize(payments, card="card-3ds", expires_in=10)

        listener.await_types(EXPIRED)
        found = ask(payments, "GET", "/payment_intents?key=k-1")[1]
        assert ([payment["status"] for payment in found["found"]], found["in_work"]) == (["canceled"], False)

    def test_is_captured_refunded_and_closed(self, payments: Provider, listener: Listener) -> None:
        payment = held(payments, listener)

        assert act(payments, payment, "capture", "k-2", amount=1250)[0] == 200
        assert act(payments, payment, "cancel", "k-3")[1]["error"]["code"] == "payment_captured"
        assert refund(payments, payment, "k-4")[0] == 201
        assert act(payments, payment, "cancel", "k-5")[0] == 200
        kinds = [("authorized", "k-1"), ("captured", "k-2"), ("refunded", "k-4"), ("canceled", "k-5")]
        assert effects(payments) == kinds
        assert [effect.amount for effect in payments.effects()] == [1250] * 4

    def test_that_is_released_cannot_be_taken(self, payments: Provider, listener: Listener) -> None:
        payment = held(payments, listener)

        assert act(payments, payment, "cancel", "k-2")[0] == 200
        assert act(payments, payment, "capture", "k-3", amount=1250)[0] == 402

    def test_is_held_once_under_a_key_and_twice_under_two(self, payments: Provider, listener: Listener) -> None:
        assert authorize(payments) == authorize(payments)
        authorize(payments, "k-2")

        listener.await_types(AUTHORIZED, AUTHORIZED)
        assert len(payments.jobs()) == 2

    def test_under_another_payments_key_is_refused(self, payments: Provider) -> None:
        authorize(payments)

        assert authorize(payments, amount=2)[1]["error"]["code"] == "idempotency_key_reused"

    @pytest.mark.parametrize("changes", [{"amount": 0}, {"amount": 1.5}, {"card": ""}, {"tip": 1}], ids=str)
    def test_with_an_invalid_request_is_not_in_the_books(self, payments: Provider, changes: dict[str, Any]) -> None:
        assert authorize(payments, **changes)[0] == 400
        assert authorize(payments, "")[0] == 400
        assert payments.jobs() == []

    def test_is_in_the_books_when_the_provider_is_down(self) -> None:
        with Provider("payments") as own:
            authorize(own)
            url = own.url
            own.stop()
            assert [job.reference for job in own.jobs()] == ["order-1"]
            own.start()

            assert own.url == url
            assert [effect.kind for effect in own.effects()] in ([], ["authorized"])


class TestAPick:
    def test_is_reported_while_in_progress_and_when_it_is_done(self, warehouse: Provider, listener: Listener) -> None:
        status, _ = ask(warehouse, "POST", "/picks", key="k-1", body=PICK)

        assert status == 202
        _, done = listener.await_types("pick.progress", "pick.completed")
        assert (done["data"]["reference"], bool(done["data"]["parcel"])) == ("order-1", True)
        assert effects(warehouse) == [("picked", "k-1")]

    @pytest.mark.parametrize(
        ("sku", "changes", "why"),
        [("empty-shelf-1", {}, "shelf_empty"), ("lamp", {"pick_within": 1}, "too_late")],
        ids=["empty", "late"],
    )
    def test_that_cannot_be_done_is_reported(
        self, warehouse: Provider, listener: Listener, sku: str, changes: dict[str, Any], why: str
    ) -> None:
        body = {**PICK, "lines": [{"sku": sku, "quantity": 1}], **changes}
        ask(warehouse, "POST", "/picks", key="k-1", body=body)

        (event,) = listener.await_types("pick.rejected")
        assert event["data"]["why"] == why
        assert effects(warehouse) == []

    def test_of_unknown_goods_is_refused_at_once(self, warehouse: Provider) -> None:
        body = {**PICK, "lines": [{"sku": "unlisted-1", "quantity": 1}]}

        assert ask(warehouse, "POST", "/picks", key="k-1", body=body)[1]["error"]["code"] == "sku_unknown"

    def test_that_is_called_off_is_not_done(self, warehouse: Provider, listener: Listener) -> None:
        _, pick = ask(warehouse, "POST", "/picks", key="k-1", body=PICK)
        ask(warehouse, "POST", f"/picks/{pick['id']}/cancel", key="k-2", body={"reference": "order-1"})
        time.sleep(0.5)

        assert listener.heard == []
        assert effects(warehouse) == [("put_back", "k-2")]
        assert ask(warehouse, "GET", "/effects?key=k-2")[1]["found"][0]["kind"] == "put_back"


class TestAParcel:
    def test_is_fetched_by_the_carrier_when_it_was_picked(
        self, warehouse: Provider, carrier: Provider, listener: Listener
    ) -> None:
        status, label = ask(carrier, "POST", "/labels", key="k-1", body={**LABEL, "reference": "scan-1"})
        ask(warehouse, "POST", "/picks", key="k-2", body={**PICK, "tracking": label["tracking"]})

        told = listener.await_types("pick.progress", "pick.completed", "parcel.picked_up")
        assert status == 201
        assert (told[-1]["reference"], told[-1]["tracking"]) == ("scan-1", label["tracking"])
        void = ask(carrier, "POST", f"/labels/{label['id']}/void", key="k-3", body={"reference": "order-1"})
        assert void[1]["error"]["code"] == "in_transit"

    def test_with_a_void_label_is_not_fetched(self, carrier: Provider, warehouse: Provider, listener: Listener) -> None:
        _, label = ask(carrier, "POST", "/labels", key="k-1", body=LABEL)
        ask(carrier, "POST", f"/labels/{label['id']}/void", key="k-2", body={"reference": "order-1"})
        ask(warehouse, "POST", "/picks", key="k-3", body={**PICK, "tracking": label["tracking"]})

        listener.await_types("pick.progress", "pick.completed")
        until(carrier.requests, "the handover")
        time.sleep(0.4)
        assert len(listener.heard) == 2
        assert effects(carrier) == [("labelled", "k-1"), ("voided", "k-2")]

    def test_to_nowhere_gets_no_label(self, carrier: Provider) -> None:
        assert ask(carrier, "POST", "/labels", key="k-1", body={**LABEL, "address": "nowhere 1"})[0] == 422
        assert carrier.jobs() == []


class TestASignature:
    """Against what is published, or computed by hand: the receiver's own code is not asked."""

    def test_like_stripes_covers_time_and_body(self, payments: Provider, listener: Listener) -> None:
        stripe = pytest.importorskip("stripe")
        authorize(payments)
        until(lambda: listener.heard, "the event")

        headers, body = listener.heard[0]
        event = stripe.Webhook.construct_event(body, headers["stripe-signature"], SECRETS["payments"])
        assert event["type"] == AUTHORIZED

    def test_of_standard_webhooks_is_the_published_example(self) -> None:
        found = sign_standard(
            "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw",
            "msg_p5jXN8AQM9LWM0D4loKWxJek",
            b'{"test": 2432232314}',
            1614265330,
        )

        assert found["webhook-signature"] == "v1,g0hM9SsE+OTPJTGt/tmIKtSyZlE3uFJELVlNIOLJ1OE="

    def test_of_the_carrier_covers_time_and_body(self) -> None:
        proof = hmac.new(b"s", b"12.{}", hashlib.sha256).hexdigest()

        assert sign_plainly("s", "e", b"{}", 12) == {
            "X-Carrier-Timestamp": "12",
            "X-Carrier-Signature": f"sha256={proof}",
        }

    def test_is_not_valid_for_another_body(self) -> None:
        assert sign_like_stripe("s", "e", b"{}", 12) != sign_like_stripe("s", "e", b"[]", 12)

    def test_is_made_by_the_listeners_time(self, payments: Provider, listener: Listener) -> None:
        payments.tell(listener.url, secret="s", now_ms=1_000_000_000_000)
        authorize(payments)
        until(lambda: listener.heard, "the event")

        assert listener.heard[0][0]["stripe-signature"].startswith("t=10000000")


class TestTroubleWithEvents:
    def plan(self, provider: Provider, action: Action, on: str = AUTHORIZED, **more: Any) -> None:
        provider.plan(Trouble(on=on, action=action, containing="order-1", **more))

    def test_silent_happens_and_is_not_reported(self, payments: Provider, listener: Listener) -> None:
        self.plan(payments, Action.SILENT)
        authorize(payments)
        until(payments.effects, "the authorization")
        time.sleep(0.2)

        assert listener.heard == []
        assert [delivery.open for delivery in payments.deliveries()] == [False]

    def test_double_is_reported_twice_by_one_id(self, payments: Provider, listener: Listener) -> None:
        self.plan(payments, Action.DOUBLE)
        authorize(payments)

        first, second = listener.await_types(AUTHORIZED, AUTHORIZED)
        assert first == second

    def test_late_is_reported_later(self, payments: Provider, listener: Listener) -> None:
        self.plan(payments, Action.LATE, seconds=100)
        authorize(payments)
        until(payments.effects, "the authorization")
        time.sleep(0.4)

        assert listener.heard == []
        listener.await_types(AUTHORIZED)

    def test_wrong_is_followed_by_the_opposite(self, payments: Provider, listener: Listener) -> None:
        self.plan(payments, Action.WRONG, seconds=1)
        authorize(payments)

        right, wrong = listener.await_created(AUTHORIZED, CANCELED)
        assert right["created"] < wrong["created"]
        assert right["data"]["object"]["id"] == wrong["data"]["object"]["id"]
        assert right["id"] != wrong["id"]

    def test_wrong_of_a_refusal_is_done_after_all(self, payments: Provider, listener: Listener) -> None:
        self.plan(payments, Action.WRONG, on=CANCELED, seconds=10)
        authorize(payments, card="card-declined", expires_in=10)

        listener.await_created(FAILED, CANCELED, AUTHORIZED)
        assert effects(payments) == [("authorized", "k-1")]

    def test_wrong_of_a_pick_reports_or_does_the_opposite(self, warehouse: Provider, listener: Listener) -> None:
        warehouse.plan(Trouble(on="pick.completed", action=Action.WRONG, seconds=5))
        warehouse.plan(Trouble(on="pick.rejected", action=Action.WRONG, seconds=5, nth=2))
        ask(warehouse, "POST", "/picks", key="k-1", body=PICK)
        listener.await_types("pick.progress", "pick.completed", "pick.rejected")
        ask(warehouse, "POST", "/picks", key="k-2", body={**PICK, "lines": [{"sku": "empty-shelf", "quantity": 1}]})

        until(lambda: listener.types()[3:] == ["pick.rejected", "pick.completed"], "the second change of mind")
        assert effects(warehouse) == [("picked", "k-1"), ("picked", "k-2")]

    def test_forged_is_signed_correctly_in_its_retry(self, payments: Provider, listener: Listener) -> None:
        stripe = pytest.importorskip("stripe")
        self.plan(payments, Action.FORGED)
        listener.answers.append(401)
        authorize(payments)
        listener.await_types(AUTHORIZED, AUTHORIZED)

        (forged, body), (right, _) = listener.heard
        with pytest.raises(stripe.SignatureVerificationError):
            stripe.Webhook.construct_event(body, forged["stripe-signature"], SECRETS["payments"])
        stripe.Webhook.construct_event(body, right["stripe-signature"], SECRETS["payments"])

    def test_unknown_reports_another_systems_job_too(self, payments: Provider, listener: Listener) -> None:
        self.plan(payments, Action.UNKNOWN)
        authorize(payments)

        events = listener.await_types(AUTHORIZED, AUTHORIZED)
        assert sorted("nobody" in event["data"]["object"]["id"] for event in events) == [False, True]

    def test_only_affects_matching_requests(self, payments: Provider, listener: Listener) -> None:
        self.plan(payments, Action.SILENT)
        authorize(payments, "k-2", reference="order-2")

        listener.await_types(AUTHORIZED)
        assert [report.matched for report in payments.report()] == [0]

    def test_ends_when_the_listener_accepts(self, payments: Provider, listener: Listener) -> None:
        listener.answers.extend([503, 500])
        authorize(payments)

        events = listener.await_types(AUTHORIZED, AUTHORIZED, AUTHORIZED)
        assert len({event["id"] for event in events}) == 1
        until(lambda: not payments.deliveries()[0].open, "the end")
        assert payments.deliveries()[0].answers == (503, 500, 200)


class TestTroubleWithJobs:
    def test_early_is_reported_before_the_response(self, payments: Provider, listener: Listener) -> None:
        payments.plan(Trouble(on="authorize", action=Action.EARLY))
        status, payment = authorize(payments)

        assert status == 202
        assert listener.types() == [AUTHORIZED]
        assert payment["status"] == "processing", "the answer is as old as the request"

    def test_early_of_a_pick_reports_its_progress(self, warehouse: Provider, listener: Listener) -> None:
        warehouse.plan(Trouble(on="pick", action=Action.EARLY))
        ask(warehouse, "POST", "/picks", key="k-1", body=PICK)

        assert "pick.completed" in listener.types()

    def test_stall_leaves_a_job_until_its_deadline(self, payments: Provider, listener: Listener) -> None:
        payments.plan(Trouble(on="authorize", action=Action.STALL))
        authorize(payments, expires_in=10)

        listener.await_types(EXPIRED)
        assert effects(payments) == []

    def test_stall_of_a_driver_leaves_the_parcel_at_the_dock(
        self, warehouse: Provider, carrier: Provider, listener: Listener
    ) -> None:
        _, label = ask(carrier, "POST", "/labels", key="k-1", body=LABEL)
        carrier.plan(Trouble(on="handover", action=Action.STALL, containing=label["tracking"]))
        ask(warehouse, "POST", "/picks", key="k-2", body={**PICK, "tracking": label["tracking"]})
        until(carrier.requests, "the handover")
        time.sleep(0.4)

        assert listener.types() == ["pick.progress", "pick.completed"]

    def test_refuse_is_reported_as_a_refusal(self, payments: Provider, listener: Listener) -> None:
        payments.plan(Trouble(on="authorize", action=Action.REFUSE))
        authorize(payments)

        listener.await_types(FAILED)


class TestTroubleWithRequests:
    @pytest.mark.parametrize("moment", Moment)
    def test_that_are_dropped_were_applied_or_not(self, payments: Provider, moment: Moment) -> None:
        payments.plan(Trouble(on="authorize", action=Action.DROP, moment=moment))

        with pytest.raises(HTTPException):
            authorize(payments)
        assert len(payments.jobs()) == (moment is Moment.AFTER)

    def test_errors_hide_an_effect(self, payments: Provider) -> None:
        payments.plan(Trouble(on="authorize", action=Action.ERROR, moment=Moment.AFTER))

        assert (authorize(payments)[0], authorize(payments)[0]) == (500, 202)
        assert len(payments.jobs()) == 1

    def test_a_slow_request_is_in_progress(self, payments: Provider) -> None:
        payments.plan(Trouble(on="authorize", action=Action.SLOW, seconds=20))
        slow = threading.Thread(target=authorize, args=(payments,))
        slow.start()
        until(payments.requests, "the request")

        until(lambda: ask(payments, "GET", "/payment_intents?key=k-1")[1]["in_work"], "the work")
        assert authorize(payments)[1]["error"]["code"] == "idempotency_key_in_use"
        slow.join()
        assert not ask(payments, "GET", "/payment_intents?key=k-1")[1]["in_work"]

    def test_a_hanging_caller_times_out(self, payments: Provider) -> None:
        payments.plan(Trouble(on="authorize", action=Action.HANG))

        with pytest.raises(TimeoutError):
            ask(payments, "POST", "/payment_intents", key="k-1", body=INTENT, patience=0.2)
        assert payments.jobs() == []

    def test_a_caller_may_be_killed(self, payments: Provider) -> None:
        payments.plan(Trouble(on="authorize", action=Action.KILL, moment=Moment.AFTER))
        program = f"import urllib.request as u; u.urlopen(u.Request({payments.url!r} + '/payment_intents', "
        program += f"data={json.dumps(INTENT).encode()!r}, headers={{'Idempotency-Key': 'k-1'}}))"
        ended = subprocess.run([sys.executable, "-c", program], check=False, capture_output=True)

        assert ended.returncode == -9
        assert len(payments.jobs()) == 1

    def test_are_in_the_journal_with_their_outcome(self, payments: Provider) -> None:
        payments.plan(Trouble(on="authorize", action=Action.ERROR))
        authorize(payments)

        assert [(r.operation, r.key, r.outcome) for r in payments.requests()] == [
            ("authorize", "k-1", "500, error before")
        ]


class TestATrouble:
    @pytest.mark.parametrize(
        ("trouble", "reason"),
        [
            ({"action": Action.LATE}, "seconds belong to"),
            ({"action": Action.DOUBLE, "seconds": 1.0}, "seconds belong to"),
            ({"action": Action.LATE, "seconds": 0.0}, "above 0"),
            ({"action": Action.SILENT, "moment": Moment.AFTER}, "must be before"),
            ({"action": Action.SILENT, "nth": 0}, "count from 1"),
            ({"action": Action.SILENT, "containing": ""}, "some text"),
        ],
    )
    def test_that_is_impossible_is_refused(self, trouble: dict[str, Any], reason: str) -> None:
        with pytest.raises(ValueError, match=reason):
            Trouble(on=AUTHORIZED, **trouble)

    @pytest.mark.parametrize(
        ("on", "action"), [("authorize", Action.SILENT), ("capture", Action.STALL), (AUTHORIZED, Action.DROP)]
    )
    def test_of_something_that_the_provider_does_not_have_is_refused(
        self, payments: Provider, on: str, action: Action
    ) -> None:
        with pytest.raises(HTTPError, match="400"):
            payments.plan(Trouble(on=on, action=action))

    def test_is_serialized_without_a_change(self) -> None:
        trouble = Trouble(on=AUTHORIZED, action=Action.LATE, seconds=3.0, containing="x", times=None)

        assert Trouble.from_json(json.loads(json.dumps(trouble.as_json()))) == trouble
        with pytest.raises(ValueError, match="has on, action"):
            Trouble.from_json({"on": AUTHORIZED, "action": "late", "what": 1})


def test_books_are_a_sqlite_file(payments: Provider) -> None:
    authorize(payments)

    with sqlite3.connect(payments._file) as database:
        assert database.execute("SELECT count(*) FROM jobs").fetchone() == (1,)
