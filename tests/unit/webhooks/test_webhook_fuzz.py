"""Whatever is thrown at the endpoints: no 5xx, no exception, and nothing written by anything that is not signed."""

from __future__ import annotations

import base64
import hmac
import json
from collections.abc import Mapping
from typing import Any
from urllib.parse import urlencode

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from handlers import approval_page
from saga_runtime import Callback, Failed, Heartbeat, Invalid, Succeeded, WebhookEvent, webhook
from saga_runtime.approvals.links import Claims, token_of
from saga_runtime.protocol import Env, SchemeKind
from tests.unit.support.receiving import (
    JOB_ID,
    SECRET,
    WAIT_ID,
    Reception,
    http_event,
    open_reception,
    rest_event,
    sign_by,
    stripe_header,
)
from tests.unit.support.samples import NOW_MS
from tests.unit.support.world import World
from tests.unit.webhooks.test_signatures import hub, standard

pytestmark = pytest.mark.proof

NOW = NOW_MS // 1_000
KEY = "the key of approval links"
WRITES = {"PutItem", "UpdateItem", "DeleteItem", "TransactWriteItems", "SendMessage"}
HEADERS: dict[SchemeKind, Any] = {
    SchemeKind.STRIPE: {},
    SchemeKind.HMAC: {"header": "X-Hub-Signature-256", "prefix": "sha256="},
    SchemeKind.PADDLE: {},
    SchemeKind.STANDARD: {},
}
SCHEMES = list(HEADERS)
"""Those that sign a whole body with ``SECRET``."""
fuzzed = settings(max_examples=150, suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow])


@webhook
def anything(event: WebhookEvent) -> Callback | None:
    """Accepts any input, as a careless function does that at least raises Invalid."""
    told = event.json
    if not isinstance(told, Mapping):
        raise Invalid("an object is expected")
    match told.get("kind"):
        case "done":
            outcome: Any = Succeeded(told.get("output", {}))
        case "failed":
            outcome = Failed(told.get("error", ""), told.get("detail", ""))
        case "busy":
            outcome = Heartbeat()
        case None:
            return None
        case other:
            outcome = other
    return Callback(job_id=told.get("job", ""), event_id=told.get("event", ""), outcome=outcome)


@pytest.fixture
def reception(world: World, monkeypatch: pytest.MonkeyPatch) -> Reception:
    """A webhook and an approval page, and sagas that wait."""
    made = open_reception(world, monkeypatch)
    monkeypatch.setenv(Env.APPROVAL_SECRET, made.put_secret("approvals", KEY))
    made.wait()
    made.wait(WAIT_ID, token="other-token")
    return made


def scheme(reception: Reception, monkeypatch: pytest.MonkeyPatch, kind: SchemeKind) -> None:
    """Let the webhook expect one kind of signatures."""
    sign_by(monkeypatch, kind, reception.put_secret(f"hook-{kind}", SECRET), **HEADERS[kind])


def signature(kind: SchemeKind, body: bytes, *, secret: str = SECRET, at: int = NOW) -> dict[str, str]:
    """The headers of a provider."""
    match kind:
        case SchemeKind.STRIPE:
            return {"Stripe-Signature": stripe_header(body, at=at, secret=secret)}
        case SchemeKind.HMAC:
            return {"X-Hub-Signature-256": hub(body, secret=secret)}
        case SchemeKind.PADDLE:
            digest = hmac.digest(secret.encode(), f"{at}:".encode() + body, "sha256").hex()
            return {"Paddle-Signature": f"ts={at};h1={digest}"}
        case _:
            return {name: str(value) for name, value in standard(body, secret=secret, at=str(at)).items()}


def writes(reception: Reception) -> list[str]:
    """The calls that could have changed something."""
    return [operation for operation in reception.world.wire.sent if operation in WRITES]


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=6,
)
names = st.sampled_from(
    [JOB_ID, WAIT_ID, "their-id", "", "a b", "x" * 256, "\u00e9", "alias#x", "event#x", f"{JOB_ID}#undo"]
)
told = st.fixed_dictionaries(
    {},
    optional={
        "job": names | json_values,
        "event": names | json_values,
        "kind": st.sampled_from(["done", "failed", "busy", "other"]) | json_values,
        "output": json_values,
        "error": st.sampled_from(["OutOfStock", "SagaFenced", "TransientError", "States.ALL", ""]) | json_values,
        "detail": json_values,
    },
)
bodies = (
    st.binary(max_size=300)
    | st.text(max_size=200).map(lambda text: text.encode("utf-8", errors="surrogatepass"))
    | told.map(lambda value: json.dumps(value).encode())
)
pieces = st.sampled_from(
    [
        "t=",
        f"t={NOW}",
        ",",
        "v1=",
        "v1,",
        "sha256=",
        "00" * 32,
        "=",
        " ",
        "A" * 43 + "=",
        "\u00e9",
        "\x00",
        "msg_1",
        str(NOW),
    ]
)
header_values = st.text(max_size=80) | st.lists(pieces, max_size=8).map("".join)
header_names = st.sampled_from(
    [
        "stripe-signature",
        "Stripe-Signature",
        "x-hub-signature-256",
        "webhook-id",
        "webhook-timestamp",
        "webhook-signature",
        "content-type",
    ]
) | st.text(max_size=12)
odd = st.none() | st.booleans() | st.integers() | st.lists(st.text(), max_size=2) | st.text(max_size=20)
raw_events = st.fixed_dictionaries(
    {},
    optional={
        "body": odd,
        "isBase64Encoded": odd,
        "headers": odd | st.dictionaries(header_names, odd | header_values, max_size=4),
        "multiValueHeaders": odd | st.dictionaries(header_names, odd | st.lists(odd | header_values), max_size=4),
        "queryStringParameters": odd | st.dictionaries(st.text(max_size=5), odd),
        "requestContext": odd | st.dictionaries(st.sampled_from(["http", "identity"]), odd),
        "httpMethod": odd,
        "version": odd,
    },
)


@pytest.mark.parametrize("kind", SCHEMES)
def test_events_that_no_gateway_makes_are_refused(
    reception: Reception, monkeypatch: pytest.MonkeyPatch, kind: SchemeKind
) -> None:
    scheme(reception, monkeypatch, kind)

    @fuzzed
    @given(raw_events | odd)
    def refused(event: Any) -> None:
        assert 400 <= anything(event, None)["statusCode"] < 500

    refused()
    assert writes(reception) == []


@pytest.mark.parametrize("kind", SCHEMES)
def test_requests_that_are_not_signed_are_refused(
    reception: Reception, monkeypatch: pytest.MonkeyPatch, kind: SchemeKind
) -> None:
    scheme(reception, monkeypatch, kind)

    @fuzzed
    @given(
        bodies,
        st.dictionaries(header_names, header_values, max_size=5),
        st.sampled_from([rest_event, http_event]),
        st.sampled_from(["none", "wrong secret", "other body", "too old", "cut"]),
        st.data(),
    )
    def refused(body: bytes, headers: dict[str, str], event_of: Any, forgery: str, data: st.DataObject) -> None:
        made: dict[str, str] = {}
        match forgery:
            case "wrong secret":
                made = signature(kind, body, secret="whsec_b3RoZXI=")
            case "other body":
                made = signature(kind, body + data.draw(st.binary(min_size=1, max_size=4)))
            case "too old" if kind is not SchemeKind.HMAC:
                made = signature(kind, body, at=NOW - 301 - data.draw(st.integers(0, 10**8)))
            case "cut":
                whole = signature(kind, body)
                made = {name: value[: data.draw(st.integers(0, len(value) - 1))] for name, value in whole.items()}
        kept = {name: value for name, value in headers.items() if name.lower() not in {n.lower() for n in made}}
        answer = anything(event_of(body, {**kept, **made}, base64_encoded=True), None)
        assert answer["statusCode"] in (400, 401)
        assert json.loads(answer["body"])["type"].startswith("urn:cdk-sagas:problem:")

    refused()
    assert writes(reception) == []


@pytest.mark.parametrize("kind", SCHEMES)
def test_any_signed_event_is_answered_without_a_failure(
    reception: Reception, monkeypatch: pytest.MonkeyPatch, kind: SchemeKind
) -> None:
    scheme(reception, monkeypatch, kind)

    @fuzzed
    @given(bodies, st.dictionaries(header_names.filter(lambda n: "-" not in n), header_values, max_size=2))
    @example(b'{"kind":"done","job":"x","event":"e","output":[1]}', {})
    @example(b'{"kind":"failed","job":"x","event":"e","error":7}', {})
    @example(b'{"kind":"failed","job":"x","event":"e","error":"A","detail":null}', {})
    @example(b'{"kind":"done","job":"x","event":"e","output":{"cdk_sagas_ref":"x"}}', {})
    @example(json.dumps({"kind": "done", "job": JOB_ID, "event": "e", "output": {"a": "\ud800"}}).encode(), {})
    def answered(body: bytes, headers: dict[str, str]) -> None:
        event = rest_event(body, {**headers, **signature(kind, body)}, base64_encoded=True)
        assert anything(event, None)["statusCode"] in (200, 202, 400)

    answered()


def test_an_invalid_approval_link_decides_nothing(reception: Reception) -> None:
    good = token_of(Claims(job_id=WAIT_ID, reviewer="alice", expires=NOW + 600), KEY.encode())
    said, _, proof = good.partition(".")
    parts = st.sampled_from([said, proof, good, ".", "=", "A", "-_", "\u00e9", ""])
    tokens = st.text(max_size=60) | st.lists(parts, max_size=4).map("".join).filter(lambda text: text != good)

    @fuzzed
    @given(tokens, st.sampled_from(["GET", "POST", "HEAD"]), st.binary(max_size=60) | st.just(b"decision=approve"))
    def refused(token: str, method: str, form: bytes) -> None:
        event = {
            "httpMethod": method,
            "queryStringParameters": {"t": token},
            "body": base64.b64encode(form).decode(),
            "isBase64Encoded": True,
        }
        assert approval_page.handler(event, None)["statusCode"] == 403

    refused()
    assert writes(reception) == []


def test_a_form_that_makes_no_choice_decides_nothing(reception: Reception) -> None:
    good = token_of(Claims(job_id=WAIT_ID, reviewer="alice", expires=NOW + 600), KEY.encode())
    fields = st.dictionaries(st.sampled_from(["decision", "note", "x"]), st.text(max_size=20), max_size=3).map(
        lambda form: urlencode(form, errors="surrogatepass").encode()
    )

    @fuzzed
    @given(st.binary(max_size=80) | fields)
    def asked_again(form: bytes) -> None:
        if b"approve" in form or b"reject" in form:
            return
        event = {
            "httpMethod": "POST",
            "queryStringParameters": {"t": good},
            "body": base64.b64encode(form).decode(),
            "isBase64Encoded": True,
        }
        assert approval_page.handler(event, None)["statusCode"] == 400

    asked_again()
    assert writes(reception) == []


def test_events_that_no_gateway_makes_open_no_page(reception: Reception) -> None:
    @fuzzed
    @given(raw_events | odd)
    def refused(event: Any) -> None:
        assert 400 <= approval_page.handler(event, None)["statusCode"] < 500

    refused()
    assert writes(reception) == []
