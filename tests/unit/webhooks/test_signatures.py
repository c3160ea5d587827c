"""Checking signatures: against Stripe's own package both ways, against vectors, and against whatever a header holds."""

from __future__ import annotations

import base64
import hashlib
import hmac
from collections.abc import Sequence
from typing import Any

import pytest
import stripe
from hypothesis import given
from hypothesis import strategies as st

from saga_runtime.protocol import SchemeField, SchemeKind
from saga_runtime.webhooks import signatures
from saga_runtime.webhooks.signatures import (
    HmacScheme,
    OwnScheme,
    PaddleScheme,
    Scheme,
    Signature,
    StandardScheme,
    StripeScheme,
    scheme_of,
)

NOW = 1_700_000_000
SECRET = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"
OTHER = "whsec_C2FVsBQIhrscChlQIMV+b5sSYspob7oD"
BODY = b'{"id":"evt_1","amount":1000,"name":"J\xc3\xb6rg"}'
ACCENT, THREE = "\u00e9", "\u0663"
ARN = ("arn:aws:secretsmanager:eu-central-1:111122223333:secret:hook",)

KEY = bytes(range(32))

STRIPE = StripeScheme(secrets=ARN)
GITHUB = HmacScheme(secrets=ARN, header="X-Hub-Signature-256", prefix="sha256=")
SHOP = HmacScheme(secrets=ARN, header="X-Shop-Hmac", hash="sha512", encoding="base64")
SLACK = HmacScheme(
    secrets=ARN,
    header="X-Slack-Signature",
    prefix="v0=",
    timestamp_header="X-Slack-Request-Timestamp",
    template="v0:{timestamp}:{body}",
)
STANDARD = StandardScheme(secrets=ARN)
SVIX = StandardScheme(secrets=ARN, header_prefix="svix")
PADDLE = PaddleScheme(secrets=ARN)
PODIUM = HmacScheme(
    secrets=ARN,
    header="Podium-Signature",
    timestamp_header="Podium-Timestamp",
    template="{timestamp}.{body}",
    time_unit="ms",
)


def found(
    scheme: Scheme,
    headers: dict[str, str | Sequence[str]],
    *,
    body: bytes = BODY,
    secrets: Sequence[str] = (SECRET,),
    now: float = NOW,
) -> Signature:
    """Result of the check."""
    several = {n.lower(): (v,) if isinstance(v, str) else tuple(v) for n, v in headers.items()}
    keys = [scheme.key_of(secret) for secret in secrets]
    return signatures.check_signature(scheme, headers=several, body=body, keys=keys, now_ms=int(now * 1_000))


def by_stripe(body: bytes = BODY, *, secret: str = SECRET, at: int = NOW) -> str:
    """A header that Stripe's package makes."""
    return str(stripe.WebhookSignature.generate_signature_header(body.decode(), secret, timestamp=at))


def hub(body: bytes = BODY, *, secret: str = SECRET) -> str:
    """A header as GitHub makes it."""
    return "sha256=" + hmac.new(secret.encode(), body, hashlib.sha256).hexdigest()


def standard(body: bytes = BODY, *, secret: str = SECRET, at: str = str(NOW), name: str = "msg_1") -> dict[str, Any]:
    """Headers as the specification of Standard Webhooks has them."""
    key = base64.b64decode(secret.removeprefix("whsec_"))
    digest = hmac.new(key, f"{name}.{at}.".encode() + body, hashlib.sha256).digest()
    signature = "v1," + base64.b64encode(digest).decode()
    return {"webhook-id": name, "webhook-timestamp": at, "webhook-signature": signature}


def slack(body: bytes = BODY, *, at: str = str(NOW)) -> dict[str, Any]:
    """Headers as Slack makes them."""
    digest = hmac.new(SECRET.encode(), f"v0:{at}:".encode() + body, hashlib.sha256).hexdigest()
    return {"X-Slack-Signature": f"v0={digest}", "X-Slack-Request-Timestamp": at}


def paddle(body: bytes = BODY, *, at: str = str(NOW)) -> dict[str, Any]:
    """A header as Paddle's documentation has it."""
    digest = hmac.new(SECRET.encode(), f"{at}:".encode() + body, hashlib.sha256).hexdigest()
    return {"Paddle-Signature": f"ts={at};h1={digest}"}


def podium(body: bytes = BODY, *, at: str = str(NOW * 1_000)) -> dict[str, Any]:
    """Headers with a time in milliseconds, as Podium's documentation has them."""
    digest = hmac.new(SECRET.encode(), f"{at}.".encode() + body, hashlib.sha256).hexdigest()
    return {"Podium-Signature": digest, "Podium-Timestamp": at}


def svix(**given: Any) -> dict[str, Any]:
    """Headers of Standard Webhooks under Svix's names."""
    return {name.replace("webhook-", "svix-"): value for name, value in standard(**given).items()}


def test_a_header_that_stripe_makes_is_genuine() -> None:
    assert found(STRIPE, {"Stripe-Signature": by_stripe()}) is Signature.GENUINE


@given(st.text(), st.integers(1, 2_000_000_000), st.text(min_size=1))
def test_every_signature_of_stripe_is_valid_at_its_time(text: str, at: int, secret: str) -> None:
    body, secret = _encodable(text), _encodable(secret).decode().strip() or "s"
    headers: dict[str, Any] = {"Stripe-Signature": by_stripe(body, secret=secret, at=at)}

    assert found(STRIPE, headers, body=body, secrets=[secret], now=at) is Signature.GENUINE


def _encodable(text: str) -> bytes:
    return text.encode("utf-8", errors="ignore")


@given(st.text(max_size=40), st.sampled_from([SECRET, OTHER]), st.integers(-400, 0), st.booleans())
def test_stripes_verifier_agrees_on_headers_old_and_new(text: str, secret: str, age: int, cut: bool) -> None:
    import time

    at = int(time.time()) + age
    header = by_stripe(_encodable(text), secret=secret, at=at)
    body = _encodable(text + "x") if cut else _encodable(text)
    if abs(age + 300) < 20:
        return  # its clock moves while the two look

    ours = found(STRIPE, {"Stripe-Signature": header}, body=body, now=time.time())
    assert (ours is Signature.GENUINE) == _stripe_accepts(body, header)


def _stripe_accepts(body: bytes, header: str) -> bool:
    try:
        return bool(stripe.WebhookSignature.verify_header(body, header, SECRET, tolerance=300))
    except stripe.SignatureVerificationError:
        return False


def test_every_signature_of_our_test_kit_is_valid_for_stripe() -> None:
    import time

    from tests.unit.support.receiving import stripe_header

    body = b'{"id":"evt_1","object":"event","type":"payment_intent.succeeded"}'
    header = stripe_header(body, at=int(time.time()), secret=SECRET)

    assert stripe.Webhook.construct_event(body, header, SECRET).id == "evt_1"


@pytest.mark.parametrize(
    ("header", "signature"),
    [
        (None, Signature.UNSIGNED),
        ("", Signature.MALFORMED),
        ("nonsense", Signature.MALFORMED),
        (f"t={NOW}", Signature.MALFORMED),
        (f"t={NOW},v1=", Signature.MALFORMED),
        (f"t={NOW},v1=zz", Signature.MALFORMED),
        (f"t={NOW},v1={ACCENT * 64}", Signature.MALFORMED),
        (f"t={NOW},v1={THREE * 64}", Signature.MALFORMED),
        (f"t={NOW},v1={'0 ' * 64}", Signature.MALFORMED),
        (f"t={NOW},v1={'00' * 31}", Signature.MALFORMED),
        (f"t={NOW},v0={'00' * 32}", Signature.MALFORMED),
        (f"v1={'00' * 32}", Signature.MALFORMED),
        (f"t=,v1={'00' * 32}", Signature.MALFORMED),
        (f"t=\u0661\u0667,v1={'00' * 32}", Signature.MALFORMED),
        (f"t=-1,v1={'00' * 32}", Signature.MALFORMED),
        (f"t=1e9,v1={'00' * 32}", Signature.MALFORMED),
        (f"t={'9' * 4000},v1={'00' * 32}", Signature.MALFORMED),
        (f"t={NOW},v1={'00' * 32}", Signature.WRONG),
        (f"t={NOW},v1={'00' * 32}," * 200, Signature.MALFORMED),
    ],
)
def test_an_invalid_stripe_signature_is_refused(header: str | None, signature: Signature) -> None:
    assert found(STRIPE, {} if header is None else {"Stripe-Signature": header}) is signature


def test_one_right_signature_among_several_is_enough() -> None:
    header = f"{by_stripe()},v1={'00' * 32},v0=ab"

    assert found(STRIPE, {"Stripe-Signature": header}) is Signature.GENUINE
    assert found(STRIPE, {"Stripe-Signature": f"v1={'00' * 32},{by_stripe()}"}) is Signature.GENUINE


def test_two_times_are_ambiguous() -> None:
    header = by_stripe()

    assert found(STRIPE, {"Stripe-Signature": f"t={NOW - 5},{header}"}) is Signature.MALFORMED
    assert found(STRIPE, {"Stripe-Signature": [header, header]}) is Signature.MALFORMED


SIGNED: list[tuple[Scheme, dict[str, Any]]] = [
    (STRIPE, {"Stripe-Signature": by_stripe()}),
    (GITHUB, {"X-Hub-Signature-256": hub()}),
    (
        SHOP,
        {"X-Shop-Hmac": base64.b64encode(hmac.new(SECRET.encode(), BODY, hashlib.sha512).digest()).decode()},
    ),
    (SLACK, slack()),
    (STANDARD, standard()),
    (SVIX, svix()),
    (PADDLE, paddle()),
    (PODIUM, podium()),
]
NAMES = ["stripe", "github", "shop", "slack", "standard", "svix", "paddle", "podium"]


@pytest.mark.parametrize(("scheme", "headers"), SIGNED, ids=NAMES)
def test_each_scheme_accepts_its_own_signature(scheme: Scheme, headers: dict[str, Any]) -> None:
    assert found(scheme, headers) is Signature.GENUINE


@pytest.mark.parametrize(("scheme", "headers"), SIGNED, ids=NAMES)
def test_one_changed_byte_is_another_body(scheme: Scheme, headers: dict[str, Any]) -> None:
    for at in range(len(BODY)):
        changed = BODY[:at] + bytes([BODY[at] ^ 1]) + BODY[at + 1 :]
        assert found(scheme, headers, body=changed) is Signature.WRONG
    assert found(scheme, headers, body=BODY + b"\n") is Signature.WRONG


@pytest.mark.parametrize(("scheme", "headers"), SIGNED, ids=NAMES)
def test_any_active_secret_counts_and_no_other(scheme: Scheme, headers: dict[str, Any]) -> None:
    assert found(scheme, headers, secrets=[OTHER, SECRET]) is Signature.GENUINE
    assert found(scheme, headers, secrets=[OTHER]) is Signature.WRONG
    assert found(scheme, headers, secrets=[]) is Signature.WRONG


@pytest.mark.parametrize(("scheme", "headers"), SIGNED, ids=NAMES)
def test_without_its_header_a_request_is_unsigned(scheme: Scheme, headers: dict[str, Any]) -> None:
    assert found(scheme, {}) is Signature.UNSIGNED


@pytest.mark.parametrize(
    ("age", "signature"),
    [
        (0, Signature.GENUINE),
        (300, Signature.GENUINE),
        (300.001, Signature.STALE),
        (-60, Signature.GENUINE),
        (-60.001, Signature.STALE),
        (10**6, Signature.STALE),
    ],
)
@pytest.mark.parametrize(("scheme", "headers"), [s for s in SIGNED if s[0] not in (GITHUB, SHOP)])
def test_a_signature_ages(scheme: Scheme, headers: dict[str, Any], age: float, signature: Signature) -> None:
    assert found(scheme, headers, now=NOW + age) is signature


@pytest.mark.parametrize("around", ["{}\n", "{}\r\n", " {}", "{} \n"])
@pytest.mark.parametrize(("scheme", "headers"), [s for s in SIGNED if s[0] in (STRIPE, STANDARD)])
def test_blanks_around_a_secret_are_ignored(scheme: Scheme, headers: dict[str, Any], around: str) -> None:
    """As ``put-secret-value --secret-string file://…`` stores it."""
    assert found(scheme, headers, secrets=[around.format(SECRET)]) is Signature.GENUINE


def test_a_line_break_after_an_hmac_secret_is_ignored_and_a_blank_is_not() -> None:
    headers: dict[str, Any] = {"X-Hub-Signature-256": hub()}

    assert found(GITHUB, headers, secrets=[f"{SECRET}\r\n"]) is Signature.GENUINE
    assert found(GITHUB, headers, secrets=[f"{SECRET} "]) is Signature.WRONG


def test_a_short_tolerance_is_short_both_ways() -> None:
    scheme = StripeScheme(secrets=ARN, tolerance=10)

    told = {age: found(scheme, {"Stripe-Signature": by_stripe()}, now=NOW + age) for age in (-11, -10, 10, 11)}
    assert list(told.values()) == [Signature.STALE, Signature.GENUINE, Signature.GENUINE, Signature.STALE]


def test_only_genuine_signatures_are_called_stale() -> None:
    """Else a stranger learns how far our clock is, and a bad secret looks like a slow network."""
    assert found(STRIPE, {"Stripe-Signature": by_stripe(secret=OTHER, at=1)}) is Signature.WRONG


def test_a_signed_time_cannot_be_changed() -> None:
    for scheme, headers in ((SLACK, slack(at=str(NOW - 900))), (STANDARD, standard(at=str(NOW - 900)))):
        name = "X-Slack-Request-Timestamp" if scheme is SLACK else "webhook-timestamp"
        assert found(scheme, headers) is Signature.STALE
        assert found(scheme, {**headers, name: str(NOW)}) is Signature.WRONG


def test_a_message_id_is_signed() -> None:
    assert found(STANDARD, {**standard(), "webhook-id": "msg_2"}) is Signature.WRONG


@pytest.mark.parametrize(
    "changed",
    [
        {"webhook-id": ""},
        {"webhook-id": "é"},
        {"webhook-id": ["a", "b"]},
        {"webhook-timestamp": ""},
        {"webhook-timestamp": "now"},
        {"webhook-timestamp": [str(NOW), str(NOW)]},
        {"webhook-signature": "v1,"},
        {"webhook-signature": "v1"},
        {"webhook-signature": "v1a,AAAA"},
        {"webhook-signature": "v1,!!!!"},
        {"webhook-signature": "v1,é"},
    ],
)
def test_malformed_headers_of_standard_webhooks_are_refused(changed: dict[str, Any]) -> None:
    assert found(STANDARD, {**standard(), **changed}) is Signature.MALFORMED


def test_a_published_vector_of_standard_webhooks_is_genuine() -> None:
    """From the reference implementations' tests."""
    secret, name, at = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw", "msg_p5jXN8AQM9LWM0D4loKWxJek", 1_614_265_330
    headers: dict[str, Any] = {
        "webhook-id": name,
        "webhook-timestamp": str(at),
        "webhook-signature": "v1,g0hM9SsE+OTPJTGt/tmIKtSyZlE3uFJELVlNIOLJ1OE=",
    }

    assert found(STANDARD, headers, body=b'{"test": 2432232314}', secrets=[secret], now=at) is Signature.GENUINE


def test_a_published_vector_of_an_hmac_in_a_header_is_genuine() -> None:
    """From GitHub's documentation of its webhooks."""
    header = "sha256=757107ea0eb2509fc211221cce984b8a37570b6d7586c22c46f4379c8b043e17"

    told = found(GITHUB, {"X-Hub-Signature-256": header}, body=b"Hello, World!", secrets=["It's a Secret to Everybody"])
    assert told is Signature.GENUINE


def test_a_published_vector_with_a_signed_time_is_genuine() -> None:
    """From Slack's documentation of signed requests."""
    body = (
        b"token=xyzz0WbapA4vBCDEFasx0q6G&team_id=T1DC2JH3J&team_domain=testteamnow&channel_id=G8PSS9T3V&"
        b"channel_name=foobar&user_id=U2CERLKJA&user_name=roadrunner&command=%2Fwebhook-collect&text=&"
        b"response_url=https%3A%2F%2Fhooks.slack.com%2Fcommands%2FT1DC2JH3J%2F397700885554%2F96rGlfmibIGlgcZRskXaIFfN&"
        b"trigger_id=398738663015.47445629121.803a0bc887a14d10d2c447fce8b6703c"
    )
    headers: dict[str, Any] = {
        "X-Slack-Signature": "v0=a2114d57b48eac39b9ad189dd8316235a7b4a8d21a10bd27519666489c69b503",
        "X-Slack-Request-Timestamp": "1531420618",
    }

    secrets = ["8f742231b10e8888abcd99yyyzzz85a5"]
    assert found(SLACK, headers, body=body, secrets=secrets, now=1_531_420_618) is Signature.GENUINE


@pytest.mark.parametrize("header", ["", "sha256=", "sha1=" + "0" * 64, "0" * 64, "sha256=xyz", "sha256=" + "0" * 63])
def test_an_invalid_hmac_is_refused(header: str) -> None:
    assert found(GITHUB, {"X-Hub-Signature-256": header}) is Signature.MALFORMED


def test_hex_may_be_in_capitals_and_signatures_may_be_listed() -> None:
    digest = hub().removeprefix("sha256=")

    assert found(GITHUB, {"X-Hub-Signature-256": f"sha256={digest.upper()}"}) is Signature.GENUINE
    assert found(GITHUB, {"X-Hub-Signature-256": f"sha256={'0' * 64}, sha256={digest}"}) is Signature.GENUINE


def test_a_body_with_the_templates_words_is_signed_unchanged() -> None:
    body = b"{timestamp} {body}"

    assert found(SLACK, slack(body), body=body) is Signature.GENUINE


def test_a_body_need_not_be_text() -> None:
    body = b"\xff\xfe\x00{"

    assert found(GITHUB, {"X-Hub-Signature-256": hub(body)}, body=body) is Signature.GENUINE


@pytest.mark.parametrize(
    "scheme",
    [
        pytest.param(scheme, id=name, marks=[pytest.mark.proof] if number else [])
        for number, ((scheme, _), name) in enumerate(zip(SIGNED, NAMES, strict=True))
    ],
)
@given(data=st.data())
def test_no_header_is_an_exception_and_none_is_genuine(scheme: Scheme, data: st.DataObject) -> None:
    names = ["stripe-signature", "x-hub-signature-256", "x-shop-hmac", "x-slack-signature", "x-slack-request-timestamp"]
    names += ["webhook-id", "webhook-timestamp", "webhook-signature", "svix-id", "svix-timestamp", "svix-signature"]
    names += ["paddle-signature", "podium-signature", "podium-timestamp"]
    pieces = st.sampled_from(["t=", str(NOW), ",", "v1=", "v1,", "sha256=", "v0=", "00" * 32, "=", " ", "A" * 43 + "="])
    text = st.text(max_size=60) | st.lists(pieces, max_size=9).map("".join)
    headers = data.draw(st.dictionaries(st.sampled_from(names), st.lists(text, max_size=3)))

    assert found(scheme, dict(headers)) is not Signature.GENUINE


@pytest.mark.parametrize("scheme", [scheme for scheme, _ in SIGNED], ids=NAMES)
def test_a_scheme_travels_as_json(scheme: Scheme) -> None:
    import json

    assert scheme_of(json.dumps(scheme.fields())) == scheme


@pytest.mark.parametrize(
    "text",
    [
        "",
        "[]",
        "{}",
        '{"kind":"rot13","secrets":["a"]}',
        '{"kind":"stripe"}',
        '{"kind":"stripe","secrets":[]}',
        '{"kind":"stripe","secrets":"arn"}',
        '{"kind":"stripe","secrets":[7]}',
        '{"kind":"stripe","secrets":[" "]}',
        '{"kind":"stripe","secrets":["a"],"tolerance":0}',
        '{"kind":"stripe","secrets":["a"],"tolerance":true}',
        '{"kind":"stripe","secrets":["a"],"hash":"sha256"}',
        '{"kind":"stripe","secrets":["a"],"colour":"red"}',
        '{"kind":"hmac","secrets":["a"]}',
        '{"kind":"hmac","secrets":["a"],"header":"a b"}',
        '{"kind":"hmac","secrets":["a"],"header":"A","hash":"md5"}',
        '{"kind":"hmac","secrets":["a"],"header":"A","encoding":"rot13"}',
        '{"kind":"hmac","secrets":["a"],"header":"A","template":"x"}',
        '{"kind":"hmac","secrets":["a"],"header":"A","template":"{body}{body}"}',
        '{"kind":"hmac","secrets":["a"],"header":"A","template":"{timestamp}{body}"}',
        '{"kind":"hmac","secrets":["a"],"header":"A","timestamp_header":"T"}',
        '{"kind":"hmac","secrets":["a"],"header":"A","timestamp_header":"","template":"{timestamp}{body}"}',
        '{"kind":"hmac","secrets":["a"],"header":"A","key_encoding":"rot13"}',
        '{"kind":"hmac","secrets":["a"],"header":"A","time_unit":"ms"}',
        '{"kind":"hmac","secrets":["a"],"header":"A","timestamp_header":"T","template":"{timestamp}{body}","time_unit":"h"}',
        '{"kind":"standard-webhooks","secrets":["a"],"header_prefix":"x"}',
    ],
)
def test_an_invalid_scheme_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match=r"."):
        scheme_of(text)


def test_the_fields_are_those_of_the_protocol() -> None:
    template = "{timestamp}{body}"
    fields = HmacScheme(secrets=ARN, header="A", timestamp_header="T", template=template, field="key").fields()

    own = OwnScheme(secrets=ARN, function="checks.verify")
    assert {*fields, *STANDARD.fields(), *own.fields()} == set(SchemeField)
    others = {SchemeKind.STANDARD_KEY_PAIR, SchemeKind.ADYEN, SchemeKind.OWN}
    assert {scheme.fields()[SchemeField.KIND] for scheme, _ in SIGNED} == set(SchemeKind) - others


@pytest.mark.parametrize(
    ("encoding", "spelled"),
    [("hex", KEY.hex()), ("hex", KEY.hex().upper()), ("base64", base64.b64encode(KEY).decode())],
)
def test_key_may_be_encoded(encoding: str, spelled: str) -> None:
    """Adyen's keys are hexadecimal, and its header holds base64."""
    scheme = HmacScheme(secrets=ARN, header="HmacSignature", encoding="base64", key_encoding=encoding)
    signed: dict[str, Any] = {"HmacSignature": base64.b64encode(hmac.digest(KEY, BODY, "sha256")).decode()}
    assert found(scheme, signed, secrets=[spelled]) is Signature.GENUINE
    assert found(scheme, signed, secrets=[f"{spelled}\n"]) is Signature.GENUINE
    assert found(scheme, signed, secrets=[KEY.hex()[:-2] + "00"]) is Signature.WRONG


@pytest.mark.parametrize("encoding", ["hex", "base64"])
def test_key_that_cannot_be_decoded_is_empty(encoding: str) -> None:
    assert HmacScheme(secrets=ARN, header="A", key_encoding=encoding).key_of("no key \u00e9!") == b""


def test_headers_of_the_other_name_are_not_read() -> None:
    assert found(SVIX, standard()) is Signature.UNSIGNED
    assert found(STANDARD, svix()) is Signature.UNSIGNED


def test_several_signatures_and_two_times_of_paddle() -> None:
    at, _, digest = paddle()["Paddle-Signature"].partition(";")
    assert found(PADDLE, {"Paddle-Signature": f"{at};h1={'00' * 32};{digest}"}) is Signature.GENUINE
    assert found(PADDLE, {"Paddle-Signature": f"{at};ts=1;{digest}"}) is Signature.MALFORMED
    assert found(PADDLE, {"Paddle-Signature": digest}) is Signature.MALFORMED
    assert found(PADDLE, {"Paddle-Signature": f"ts={NOW + 1};{digest}"}) is Signature.WRONG


def test_milliseconds_are_not_taken_for_seconds() -> None:
    """A time in the wrong unit lies far from now."""
    assert found(PODIUM, podium(at=str(NOW))) is Signature.STALE
    assert found(SLACK, slack(at=str(NOW * 1_000))) is Signature.MALFORMED


def test_stale_stays_stale() -> None:
    assert found(STRIPE, {"Stripe-Signature": by_stripe(at=NOW - 301)}) is Signature.STALE


def test_the_future_stays_stale() -> None:
    assert found(STRIPE, {"Stripe-Signature": by_stripe(at=NOW + 61)}) is Signature.STALE


def test_wrong_stays_wrong() -> None:
    assert found(STRIPE, {"Stripe-Signature": by_stripe(secret=OTHER)}) is Signature.WRONG


def test_any_secret_counts() -> None:
    assert found(STRIPE, {"Stripe-Signature": by_stripe(secret=OTHER)}, secrets=[SECRET, OTHER]) is Signature.GENUINE


def test_digests_are_whole() -> None:
    assert found(STRIPE, {"Stripe-Signature": f"t={NOW},v1="}) is Signature.MALFORMED
