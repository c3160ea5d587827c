"""Webhooks: what is checked before anything is written, what is answered, and what is left when something fails."""

from __future__ import annotations

import json
from collections.abc import Callable as Function
from decimal import Decimal
from importlib import import_module
from typing import Any

import pytest
import stripe

from saga_runtime import Callback, Declined, Failed, Heartbeat, Invalid, Succeeded, WebhookEvent, webhook
from saga_runtime.protocol import (
    MAX_WEBHOOK_BYTES,
    PREVIOUS_SECONDS,
    PROTOCOL_VERSION,
    Env,
    Metric,
    SchemeKind,
    StepStatus,
    TokenStatus,
)
from tests.unit.support.receiving import (
    JOB_ID,
    SECRET,
    Reception,
    http_event,
    open_reception,
    rest_event,
    sign_by,
    stripe_header,
)
from tests.unit.support.samples import NOW_MS
from tests.unit.support.wire import Action, Fault, Killed, Moment
from tests.unit.support.world import World

module = import_module("saga_runtime.webhooks.receiver")

NOW = NOW_MS // 1_000
ONE, TWO = "one-of-sixteen-bytes", "two-of-sixteen-bytes"
PICKED = {"id": "evt-1", "reference": JOB_ID, "type": "picked", "parcel": "p-1"}


@webhook
def from_warehouse(event: WebhookEvent) -> Callback | None:
    """Reads a warehouse's events."""
    told = event.json
    match told["type"]:
        case "picked":
            outcome: Any = Succeeded({"parcel": told["parcel"]})
        case "sold out":
            outcome = Failed("OutOfStock", "none left")
        case "busy":
            outcome = Heartbeat()
        case _:
            return None
    return Callback(job_id=told["reference"], event_id=told["id"], outcome=outcome)


@pytest.fixture
def reception(world: World, monkeypatch: pytest.MonkeyPatch) -> Reception:
    """A webhook that expects Stripe's signatures."""
    made = open_reception(world, monkeypatch)
    sign_by(monkeypatch, SchemeKind.STRIPE, made.put_secret("hook", SECRET))
    return made


def signed(body: Any = PICKED, *, at: int = NOW, secret: str = SECRET, **changes: Any) -> dict[str, Any]:
    """A request that a warehouse signs."""
    raw = body if isinstance(body, bytes) else json.dumps({**body, **changes}).encode()
    return rest_event(raw, {"Stripe-Signature": stripe_header(raw, at=at, secret=secret)})


def answered(event: Any, handler: Any = from_warehouse) -> tuple[int, Any]:
    """Status and document."""
    answer = handler(event, None)
    return answer["statusCode"], json.loads(answer["body"])


def status(event: Any, handler: Any = from_warehouse) -> int:
    """The status alone."""
    return answered(event, handler)[0]


def test_a_signed_outcome_reaches_the_waiting_task(reception: Reception) -> None:
    reception.wait()

    assert answered(signed()) == (200, {"received": True})
    assert reception.outcome == {"parcel": "p-1"}
    assert reception.world.rows() == {JOB_ID: StepStatus.DONE}


def test_a_refusal_reaches_the_waiting_task(reception: Reception) -> None:
    reception.wait()

    assert status(signed(type="sold out")) == 200
    assert reception.outcome == "OutOfStock"


def test_a_header_that_stripe_makes_is_taken(reception: Reception) -> None:
    body = json.dumps({**PICKED, "name": "J\u00f6rg"}, ensure_ascii=False)
    header = stripe.WebhookSignature.generate_signature_header(body, SECRET, timestamp=NOW)
    reception.wait()

    assert status(rest_event(body, {"Stripe-Signature": header})) == 200
    assert reception.outcome == {"parcel": "p-1"}


@pytest.mark.parametrize("base64_encoded", [False, True])
@pytest.mark.parametrize("event_of", [rest_event, http_event])
@pytest.mark.parametrize("name", ["Stripe-Signature", "stripe-signature", "STRIPE-SIGNATURE"])
def test_each_gateways_event_is_read_byte_for_byte(
    reception: Reception, event_of: Function[..., dict[str, Any]], name: str, base64_encoded: bool
) -> None:
    body = json.dumps({**PICKED, "name": "J\u00f6rg"}, ensure_ascii=False, indent=1).encode()
    header = {name: stripe_header(body, at=NOW)}
    reception.wait()

    assert status(event_of(body, header, base64_encoded=base64_encoded)) == 200
    assert reception.outcome == {"parcel": "p-1"}


def test_headers_alone_and_headers_with_several_values_are_read_alike(reception: Reception) -> None:
    event = signed(type="opened")
    for name in ("headers", "multiValueHeaders"):
        assert status({key: value for key, value in event.items() if key != name}) == 200


def test_a_function_receives_the_event(reception: Reception) -> None:
    seen: list[WebhookEvent] = []
    handler = webhook(seen.append)
    body = b'{"amount": 1.10}'
    headers = {"Stripe-Signature": stripe_header(body, at=NOW), "X-Kind": "picked"}

    assert status(http_event(body, headers), handler) == 200
    (event,) = seen
    assert event.body == body
    assert (event.headers["x-kind"], event.headers["X-KIND"], event.headers.get("x-none")) == ("picked", "picked", None)
    assert "x-kind" in list(event.headers)
    assert event.query == {"source": "test"}
    assert event.received_at == NOW_MS
    assert str(event.json["amount"]) == "1.10"
    assert event.json is event.json


def test_an_event_does_not_show_itself_in_logs(reception: Reception) -> None:
    seen: list[WebhookEvent] = []
    status(signed(), webhook(seen.append))

    assert JOB_ID not in repr(seen)
    assert "v1=" not in repr(seen)


@pytest.mark.parametrize("size", [MAX_WEBHOOK_BYTES, MAX_WEBHOOK_BYTES + 1])
@pytest.mark.parametrize("base64_encoded", [False, True])
def test_a_body_over_the_limit_is_refused_before_its_signature_is_checked(
    reception: Reception, size: int, base64_encoded: bool
) -> None:
    body = json.dumps(PICKED).encode().ljust(size)
    event = rest_event(body, {"Stripe-Signature": stripe_header(body, at=NOW)}, base64_encoded=base64_encoded)

    told: list[int] = []
    calls = reception.world.calls_of(lambda: told.append(status(event)))
    assert told == [202 if size == MAX_WEBHOOK_BYTES else 413]
    assert (calls == []) == (size > MAX_WEBHOOK_BYTES)


def test_the_limit_is_in_bytes_and_not_in_characters(reception: Reception) -> None:
    body = ("\u00e9" * (MAX_WEBHOOK_BYTES // 2 + 1)).encode()

    assert status(rest_event(body, {"Stripe-Signature": stripe_header(body, at=NOW)})) == 413


@pytest.mark.parametrize(
    ("change", "wanted", "problem"),
    [
        ({"headers": {}, "multiValueHeaders": {}}, 401, "missing-signature"),
        ({"headers": None, "multiValueHeaders": None}, 401, "missing-signature"),
        ({"body": "{}"}, 401, "signature-mismatch"),
        ({"body": None}, 401, "signature-mismatch"),
        ({"headers": {"Stripe-Signature": "t=1"}, "multiValueHeaders": None}, 400, "malformed-signature"),
        ({"headers": {"Stripe-Signature": "\u00e9"}, "multiValueHeaders": None}, 400, "malformed-signature"),
        ({"isBase64Encoded": True, "body": "%%%"}, 400, "invalid-body"),
    ],
)
def test_an_unsigned_request_is_refused_and_leaves_no_trace(
    reception: Reception, change: dict[str, Any], wanted: int, problem: str
) -> None:
    reception.wait()

    code, document = answered({**signed(), **change})
    assert (code, document["status"], document["type"]) == (wanted, wanted, f"urn:cdk-sagas:problem:{problem}")
    assert reception.written() == []
    assert reception.outcome is None
    counts = reception.world.telemetry.counts
    assert counts[Metric.SIGNATURE_REFUSED] == (problem == "signature-mismatch")
    assert counts[Metric.UNSIGNED] == (problem in ("missing-signature", "malformed-signature"))


@pytest.mark.parametrize("event", [None, [], "text", 7, {}])
def test_an_invalid_request_is_refused(reception: Reception, event: Any) -> None:
    assert status(event) in (400, 401)


@pytest.mark.parametrize(("at", "wanted"), [(NOW - 300, 202), (NOW - 301, 400), (NOW + 60, 202), (NOW + 61, 400)])
def test_a_replay_outside_the_tolerance_is_refused(reception: Reception, at: int, wanted: int) -> None:
    assert status(signed(at=at)) == wanted
    assert (reception.written() == []) == (wanted == 400)
    assert reception.world.telemetry.counts[Metric.SIGNATURE_REFUSED] == (wanted == 400)


def test_a_refusal_reveals_nothing_of_the_request(reception: Reception) -> None:
    answer = from_warehouse(signed(secret="whsec_other"), None)

    said = json.dumps([answer, repr(reception.world.telemetry.events)])
    assert not [word for word in (JOB_ID, "evt-1", SECRET, "v1=", "whsec") if word in said]
    assert answer["headers"]["Content-Type"] == "application/problem+json"
    assert answer["headers"]["Cache-Control"] == "no-store"


def test_a_rotated_secret_is_known_at_once(reception: Reception, monkeypatch: pytest.MonkeyPatch) -> None:
    arn = reception.put_secret("rotating", ONE)
    sign_by(monkeypatch, SchemeKind.STRIPE, arn)
    assert status(signed(secret=ONE)) == 202

    reception.rotate(arn, TWO)
    assert status(signed(secret=TWO, id="evt-2")) == 202
    assert status(signed(secret=ONE, id="evt-3")) == 202


def test_the_version_before_counts_for_a_day_and_until_the_next_rotation(
    reception: Reception, monkeypatch: pytest.MonkeyPatch
) -> None:
    arn = reception.put_secret("rotating", ONE)
    sign_by(monkeypatch, SchemeKind.STRIPE, arn)
    for value in (TWO, "three-three-three"):
        reception.rotate(arn, value)

    assert [status(signed(secret=secret)) for secret in ("three-three-three", TWO, ONE)] == [202, 200, 401]
    reception.world.clock.ms += PREVIOUS_SECONDS * 1_000
    at = reception.world.clock.ms // 1_000
    assert [status(signed(secret=secret, at=at)) for secret in ("three-three-three", TWO)] == [200, 401]


def test_signature_mismatches_read_the_secrets_once(reception: Reception) -> None:
    status(signed(secret="whsec_other"))
    assert reception.world.calls_of(lambda: status(signed(secret="whsec_other"))) == []

    reception.world.clock.ms += 30_000
    at = reception.world.clock.ms // 1_000
    looks = reception.world.calls_of(lambda: status(signed(secret="whsec_other", at=at)))
    assert looks == ["GetSecretValue", "GetSecretValue"]


def test_unsigned_requests_do_not_read_the_secrets_again(reception: Reception) -> None:
    status(signed())

    assert reception.world.calls_of(lambda: status(rest_event("{}", {}))) == []


def test_an_event_of_an_unknown_job_is_kept_with_status_202(reception: Reception) -> None:
    assert answered(signed(reference="nobody-s")) == (202, {"received": True})

    row = reception.row("alias##nobody-s")
    assert row is not None
    assert row.status is TokenStatus.EARLY
    assert reception.world.telemetry.counts[Metric.CALLBACK_UNKNOWN] == 1


def test_an_irrelevant_event_is_200_and_leaves_no_trace(reception: Reception) -> None:
    assert answered(signed(type="opened")) == (200, {"received": True})
    assert reception.written() == []


def test_the_same_event_counts_once(reception: Reception) -> None:
    reception.wait()
    assert status(signed()) == 200
    written = reception.written()

    assert status(signed(parcel="p-2")) == 200
    assert reception.written() == written


def test_a_heartbeat_keeps_the_task_waiting(reception: Reception) -> None:
    reception.wait()

    assert status(signed(type="busy")) == 200
    assert reception.world.tasks.heartbeats == ["task-token"]
    assert reception.outcome is None


@pytest.mark.parametrize("body", [b"", b"{", b"\xff", b'{"a":1,"a":2}', b"[" * 200_000, b"NaN"])
def test_a_signed_body_that_is_not_json_is_refused_if_json_is_requested(reception: Reception, body: bytes) -> None:
    event = rest_event(body, {"Stripe-Signature": stripe_header(body, at=NOW)}, base64_encoded=True)

    assert status(event) == 400
    assert status(event, webhook(lambda _: None)) == 200
    assert reception.written() == []


@pytest.mark.parametrize("change", [{"reference": ""}, {"reference": "a b"}, {"id": "x" * 256}, {"id": 7}])
def test_ids_that_no_job_and_no_event_can_have_are_refused(reception: Reception, change: dict[str, Any]) -> None:
    assert status(signed(**change)) == 400
    assert reception.written() == []


def test_an_event_that_a_function_refuses_has_its_message(reception: Reception) -> None:
    def refuse(_: WebhookEvent) -> None:
        raise Invalid("the parcel is missing")

    code, document = answered(signed(), webhook(refuse))
    assert (code, document["detail"]) == (400, "the parcel is missing")


@pytest.mark.parametrize("error", [KeyError("whsec_x"), Declined("whsec_x"), RecursionError("whsec_x"), OSError()])
def test_a_function_that_fails_has_the_provider_send_again(reception: Reception, error: Exception) -> None:
    def fail(_: WebhookEvent) -> None:
        raise error

    answer = webhook(fail)(signed(), None)
    assert (answer["statusCode"], answer["headers"]["Retry-After"]) == (503, "30")
    (name, told), (metric, reason) = reception.world.telemetry.events
    assert (name, told["error"]) == ("receiver_failed", type(error).__name__)
    assert any(place.startswith("test_webhook.py:") for place in told["places"])
    assert (metric, reason["reason"]) == (Metric.CALLBACK_REFUSED, "FAILED")
    assert "whsec_x" not in repr((answer, reception.world.telemetry.events))


@pytest.mark.parametrize(
    ("change", "job_id"),
    [
        ({"parcel": Decimal("10.5")}, ""),
        ({"parcel": "x" * 40_000}, ""),
        ({"id": "evt 1"}, JOB_ID),
        ({"reference": "a b"}, ""),
    ],
    ids=["a fraction", "too large", "an event id with a blank", "a job id with a blank"],
)
def test_an_unprocessable_outcome_is_logged_and_counted_with_its_job(
    reception: Reception, change: dict[str, Any], job_id: str
) -> None:
    reception.wait()
    body = json.dumps({**PICKED, **change}, default=float).encode()

    code, document = answered(signed(body))

    assert code == 400
    assert not [word for word in ("Decimal", "Traceback", "NoneType") if word in document["detail"]]
    (name, told), (metric, reason) = reception.world.telemetry.events
    assert (name, told["error"], told["job_id"]) == ("receiver_failed", "Invalid", job_id or None)
    assert (metric, reason) == (Metric.CALLBACK_REFUSED, {"reason": "INVALID", "job_id": job_id})
    assert reception.written() == []


def test_an_outcome_blocked_by_a_missing_permission_is_counted(reception: Reception) -> None:
    reception.wait()
    reception.world.wire.plan(Fault(operation="TransactWriteItems", action=Action.DENY, times=60))

    assert status(signed()) == 503

    assert reception.world.telemetry.events[-1] == (Metric.CALLBACK_REFUSED, {"reason": "FAILED", "job_id": JOB_ID})


@pytest.mark.parametrize("value", [" ", "short", '{"webhook_secret": "whsec_0123456789"}'])
def test_an_unusable_secret_is_503_logged_and_counted(
    reception: Reception, monkeypatch: pytest.MonkeyPatch, value: str
) -> None:
    sign_by(monkeypatch, SchemeKind.STRIPE, reception.put_secret("unusable", value))

    answer = from_warehouse(signed(), None)

    assert (answer["statusCode"], answer["headers"]["Retry-After"]) == (503, "30")
    (name, _), (metric, reason) = reception.world.telemetry.events
    assert (name, metric, reason) == ("secret_unusable", Metric.CALLBACK_REFUSED, {"reason": "SECRET"})


def test_only_the_named_field_of_a_json_secret_signs(reception: Reception, monkeypatch: pytest.MonkeyPatch) -> None:
    arn = reception.put_secret("json", json.dumps({"key": ONE, "mode": TWO}))
    sign_by(monkeypatch, SchemeKind.STRIPE, arn, field="key")

    assert [status(signed(secret=secret)) for secret in (ONE, TWO)] == [202, 401]


def test_a_report_of_a_step_that_is_not_served_is_counted(
    reception: Reception, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A release has renamed it, or given it to another integration: the provider sends it again in vain."""
    reception.wait()
    monkeypatch.setenv(Env.CALLBACKS, "[]")

    assert status(signed()) == 503

    assert reception.world.telemetry.events[-1] == (Metric.CALLBACK_REFUSED, {"reason": "UNSERVED", "job_id": JOB_ID})


def test_an_outage_is_not_a_refusal(reception: Reception) -> None:
    reception.wait()
    reception.world.wire.plan(Fault(operation="TransactWriteItems", action=Action.THROTTLE, times=60))

    assert status(signed()) == 503

    assert reception.world.telemetry.counts[Metric.CALLBACK_REFUSED] == 0


@pytest.mark.parametrize("operation", ["SendTaskSuccess", "UpdateItem"])
def test_a_stored_outcome_is_200_though_it_cannot_be_delivered(reception: Reception, operation: str) -> None:
    reception.wait()
    reception.world.wire.plan(Fault(operation=operation, action=Action.DENY, times=60))

    assert [status(signed()), status(signed())] == [200, 200]

    row = reception.row()
    assert row is not None
    assert row.status is (TokenStatus.DELIVERING if operation == "SendTaskSuccess" else TokenStatus.UNDELIVERED)
    assert ("callback_delivery_deferred", JOB_ID) in [
        (name, told.get("job_id")) for name, told in reception.world.telemetry.events
    ]


def test_a_function_that_returns_something_else_has_failed(reception: Reception) -> None:
    handler: Any = webhook(lambda _: {"job_id": JOB_ID})  # type: ignore[arg-type, return-value]  # that is the point

    assert status(signed(), handler) == 503
    assert reception.written() == []


OUTAGES = [
    Fault(operation="BatchGetItem", action=Action.THROTTLE, times=60),
    Fault(operation="TransactWriteItems", action=Action.THROTTLE, times=60),
    Fault(operation="TransactWriteItems", action=Action.DROP, times=60),
    Fault(operation="TransactWriteItems", action=Action.CONFLICT, times=60),
    Fault(operation="GetSecretValue", action=Action.THROTTLE, times=60),
]


@pytest.mark.parametrize("fault", OUTAGES, ids=str)
def test_an_outage_is_503_and_the_redelivery_is_applied(reception: Reception, fault: Fault) -> None:
    reception.wait()
    reception.world.wire.plan(fault)

    answer = from_warehouse(signed(), None)
    assert (answer["statusCode"], answer["headers"]["Retry-After"]) == (503, "30")
    assert reception.written() == []

    reception.world.wire.forget()
    assert status(signed()) == 200
    assert reception.outcome == {"parcel": "p-1"}


@pytest.mark.parametrize("operation", ["TransactWriteItems", "SendTaskSuccess", "UpdateItem"])
@pytest.mark.parametrize("moment", Moment)
def test_a_receiver_that_dies_at_any_call_is_finished_by_the_redelivery(
    reception: Reception, operation: str, moment: Moment
) -> None:
    reception.wait()
    reception.world.wire.plan(Fault(operation=operation, action=Action.KILL, moment=moment))
    with pytest.raises(Killed):
        from_warehouse(signed(), None)

    reception.world.wire.forget()
    assert status(signed()) == 200
    assert reception.outcome == {"parcel": "p-1"}
    assert reception.world.rows() == {JOB_ID: StepStatus.DONE}
    row = reception.row()
    assert row is not None
    assert row.status in (TokenStatus.DELIVERED, TokenStatus.UNDELIVERED)


def test_a_redelivery_after_a_lost_response_does_no_harm(reception: Reception) -> None:
    reception.wait()
    fault = Fault(operation="TransactWriteItems", action=Action.DROP, moment=Moment.AFTER, times=1)
    reception.world.wire.plan(fault)

    assert status(signed()) == 200
    assert reception.outcome == {"parcel": "p-1"}


@pytest.mark.parametrize("kind", [SchemeKind.HMAC, SchemeKind.STANDARD])
def test_other_schemes_sign_webhooks_too(
    reception: Reception, monkeypatch: pytest.MonkeyPatch, kind: SchemeKind
) -> None:
    from tests.unit.webhooks.test_signatures import hub, standard

    arn = reception.put_secret("other", SECRET)
    members = {"header": "X-Hub-Signature-256", "prefix": "sha256="} if kind is SchemeKind.HMAC else {}
    sign_by(monkeypatch, kind, arn, **members)
    body = json.dumps(PICKED).encode()
    hubs = {"X-Hub-Signature-256": hub(body, secret=SECRET)}
    headers = hubs if kind is SchemeKind.HMAC else standard(body, secret=SECRET, at=str(NOW))

    assert status(rest_event(body, headers)) == 202
    assert status(rest_event(body + b" ", headers)) == 401


def test_a_function_of_another_release_rejects_every_request(
    reception: Reception, monkeypatch: pytest.MonkeyPatch
) -> None:
    from saga_runtime.errors import ProtocolMismatch

    monkeypatch.setenv(Env.PROTOCOL, str(PROTOCOL_VERSION + 1))
    with pytest.raises(ProtocolMismatch):
        from_warehouse(signed(), None)


def test_a_webhook_without_a_scheme_rejects_every_request(
    reception: Reception, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv(Env.WEBHOOK_SCHEME)
    module.scheme.cache_clear()

    with pytest.raises(KeyError, match=Env.WEBHOOK_SCHEME):
        from_warehouse(signed(), None)


def test_a_handler_keeps_its_functions_name() -> None:
    assert from_warehouse.__name__ == "from_warehouse"
    assert from_warehouse.__doc__ == "Reads a warehouse's events."


def test_unsigned_writes_nothing(reception: Reception) -> None:
    status(signed(secret="whsec_other"))
    assert reception.written() == []


def test_large_bodies_are_refused(reception: Reception) -> None:
    assert status(signed(b" " * (MAX_WEBHOOK_BYTES + 1))) == 413


def test_unknown_jobs_are_accepted(reception: Reception) -> None:
    assert status(signed(reference=f"nobody-{reception.world.clock.now_ms()}", id="evt-9")) == 202


def test_rotation_is_seen(reception: Reception) -> None:
    arn = module.scheme().secrets[0]
    reception.world.clock.ms += 30_000
    at, new = reception.world.clock.ms // 1_000, f"new-and-long-{reception.world.clock.ms}"
    status(signed(at=at))
    reception.rotate(arn, new)
    assert status(signed(secret=new, at=at)) != 401
