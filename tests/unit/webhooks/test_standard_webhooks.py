"""Standard Webhooks and Stripe, against the official packages: what they accept, we accept, and vice versa."""

from __future__ import annotations

import base64
import hashlib
import hmac
import time
from typing import Any

import pytest
import standardwebhooks
import stripe
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from hypothesis import assume, given
from hypothesis import strategies as st

from saga_runtime.protocol import MIN_KEY_BYTES
from saga_runtime.webhooks.signatures import (
    MAX_KEY_PAIR_SIGNATURES,
    MAX_SKEW,
    KeyPairScheme,
    Scheme,
    Signature,
    StandardScheme,
    StripeScheme,
    check_signature,
)

ARN = ("arn:aws:secretsmanager:eu-central-1:111122223333:secret:hook",)
STANDARD, STRIPE = StandardScheme(secrets=ARN), StripeScheme(secrets=ARN)
KEY_PAIR = KeyPairScheme(secrets=ARN)
SVIX = StandardScheme(secrets=ARN, header_prefix="svix")
MARGIN = 20
"""Seconds: the packages have a clock of their own, which moves while both look."""

keys = st.binary(min_size=MIN_KEY_BYTES, max_size=64)
ages = st.sampled_from([0, 0, 0, 30, 250, 350, -30, -200, -350])
bodies = st.text(max_size=30).map(lambda text: text.encode("utf-8", errors="ignore"))


@st.composite
def spelled(draw: st.DrawFn) -> tuple[bytes, str]:
    """A key, and a secret that the official library reads it from."""
    key = draw(keys)
    text = base64.b64encode(key).decode()
    if draw(st.booleans()):
        text = text.rstrip("=")
    for junk in draw(st.lists(st.sampled_from("\n\r\t .-_:;!"), max_size=3)):
        at = draw(st.integers(0, len(text)))
        text = text[:at] + junk + text[at:]
    prefix, end = draw(st.sampled_from(["", "whsec_"])), draw(st.sampled_from(["", "\n", "\r\n", " ", "=", "==="]))
    return key, f"{prefix}{text}{end}"


@st.composite
def changed(draw: st.DrawFn, signature: str) -> str:
    """A header with a signature in it, in any form."""
    version, _, digest = signature.partition(",")
    return str(
        draw(
            st.sampled_from(
                [
                    signature,
                    f"v2,abc {signature}",
                    f"v1,AAAA {signature}",
                    f"{signature} {signature}",
                    f"v1a,{digest}",
                    f"{version},{digest[:-3]}A{digest[-2:]}",
                    f"{version},{digest.swapcase()}",
                    f"{version},",
                    signature.replace(",", " "),
                ]
            )
        )
    )


def ours(scheme: Scheme, headers: dict[str, str], body: bytes, secret: str) -> Signature:
    """Our result."""
    several = {name.lower(): (value,) for name, value in headers.items()}
    now_ms = int(time.time() * 1_000)
    return check_signature(scheme, headers=several, body=body, keys=[scheme.key_of(secret)], now_ms=now_ms)


def theirs(headers: dict[str, str], body: bytes, secret: str) -> bool:
    """Result of the official library of Standard Webhooks."""
    try:
        standardwebhooks.Webhook(secret).verify(body, headers, json_parse=False)
    except (standardwebhooks.WebhookVerificationError, ValueError):
        return False
    return True


@given(st.data(), spelled(), bodies, ages, st.sampled_from(["msg_1", "msg.1.2", "a b"]))
def test_only_what_the_official_library_accepts_is_valid(
    data: st.DataObject, secret: tuple[bytes, str], body: bytes, age: int, name: str
) -> None:
    key, text = secret
    at = int(time.time()) - age
    digest = hmac.digest(key, f"{name}.{at}.".encode() + body, "sha256")
    header = data.draw(changed(f"v1,{base64.b64encode(digest).decode()}"))
    headers = {"webhook-id": name, "webhook-timestamp": str(at), "webhook-signature": header}
    sent = body if data.draw(st.booleans()) else body + b" "

    accepted, found = theirs(headers, sent, text), ours(STANDARD, headers, sent, text)

    if -age > MAX_SKEW - MARGIN:
        assert found is not Signature.GENUINE or -age <= MAX_SKEW, "we allow less of the future"
    elif accepted:
        assert found is Signature.GENUINE
    elif found is Signature.GENUINE:
        # Junk in the header makes the library refuse; the matching digest is there all the same.
        assert sent == body
        assert base64.b64encode(digest).decode() in header


@given(st.data(), spelled(), bodies, ages)
def test_svix_headers_are_those_of_standard_webhooks_by_another_name(
    data: st.DataObject, secret: tuple[bytes, str], body: bytes, age: int
) -> None:
    """Svix's package (2.9.1) renames the headers as this does, and verifies with the official library."""
    key, text = secret
    at = int(time.time()) - age
    digest = hmac.digest(key, f"msg.{at}.".encode() + body, "sha256")
    header = data.draw(changed(f"v1,{base64.b64encode(digest).decode()}"))
    headers = {"webhook-id": "msg", "webhook-timestamp": str(at), "webhook-signature": header}
    renamed = {name.replace("webhook", "svix"): value for name, value in headers.items()}

    assert ours(SVIX, renamed, body, text) is ours(STANDARD, headers, body, text)


@given(spelled())
def test_a_secret_of_the_official_library_is_the_same_key(secret: tuple[bytes, str]) -> None:
    key, text = secret

    assert STANDARD.key_of(text) == key


def test_a_prefix_after_a_blank_is_a_prefix() -> None:
    """The library would decode it with the rest, into a key that no provider has."""
    text = base64.b64encode(b"k" * 24).decode()

    assert STANDARD.key_of(f" whsec_{text}") == b"k" * 24


@pytest.mark.parametrize("secret", ["A", "AAAAA", "\u00e9"])
def test_a_key_that_is_not_base64_is_refused(secret: str) -> None:
    assert len(STANDARD.key_of(secret)) < MIN_KEY_BYTES


printable = st.text(st.characters(min_codepoint=33, max_codepoint=126), min_size=MIN_KEY_BYTES, max_size=60)


@given(st.data(), printable, bodies, ages)
def test_only_what_stripes_library_accepts_is_valid(data: st.DataObject, secret: str, body: bytes, age: int) -> None:
    assume(abs(age - 300) > MARGIN)
    at = int(time.time()) - age
    digest = hmac.new(secret.encode(), f"{at}.".encode() + body, hashlib.sha256).hexdigest()
    header = data.draw(
        st.sampled_from(
            [
                f"t={at},v1={digest}",
                f"t={at},v1={'0' * 64},v1={digest}",
                f"t={at},v0={digest}",
                f"v1={digest},t={at}",
                f"t={at},v1={digest[:-1]}",
                f"t={at},v1={digest},v2=x",
                f"t={at + 1},v1={digest}",
            ]
        )
    )
    stored = data.draw(st.sampled_from(["{}", "{}\n", "{}\r\n", " {} "])).format(secret)

    accepted: Any = _stripe_accepts(body, header, secret)
    found = ours(STRIPE, {"Stripe-Signature": header}, body, stored)

    if -age <= MAX_SKEW - MARGIN:
        assert (found is Signature.GENUINE) == accepted


def _stripe_accepts(body: bytes, header: str, secret: str) -> bool:
    try:
        return bool(stripe.WebhookSignature.verify_header(body, header, secret, tolerance=300))
    except stripe.SignatureVerificationError:
        return False


def _pair(seed: bytes = b"s" * 32) -> tuple[Ed25519PrivateKey, str]:
    """A private key, and its public one as Standard Webhooks spells it."""
    private = Ed25519PrivateKey.from_private_bytes(seed)
    return private, "whpk_" + base64.b64encode(private.public_key().public_bytes_raw()).decode()


def _by_key_pair(private: Ed25519PrivateKey, body: bytes, *, at: int) -> dict[str, str]:
    signature = base64.b64encode(private.sign(f"msg.{at}.".encode() + body)).decode()
    return {"webhook-id": "msg", "webhook-timestamp": str(at), "webhook-signature": f"v1a,{signature}"}


@given(st.binary(min_size=32, max_size=32), bodies, ages, st.booleans())
def test_signatures_of_a_key_pair_are_valid_for_its_public_key(
    seed: bytes, body: bytes, age: int, changed: bool
) -> None:
    assume(abs(age - 300) > MARGIN)
    private, public = _pair(seed)
    headers = _by_key_pair(private, body, at=int(time.time()) - age)

    found = ours(KEY_PAIR, headers, body + b"x" * changed, public)

    assert found is (Signature.WRONG if changed else _aged(age))
    assert ours(KEY_PAIR, headers, body, _pair()[1]) is Signature.WRONG


def _aged(age: int) -> Signature:
    return Signature.GENUINE if -MAX_SKEW <= age <= 300 else Signature.STALE


def test_who_knows_a_public_key_cannot_sign_with_it() -> None:
    """Neither version takes the other's keys or signatures, whatever the sender names."""
    private, public = _pair()
    at = int(time.time())
    raw = private.public_key().public_bytes_raw()
    digest = base64.b64encode(hmac.digest(raw, f"msg.{at}.".encode(), "sha256")).decode()
    forged = {"webhook-id": "msg", "webhook-timestamp": str(at), "webhook-signature": f"v1,{digest} v1a,{digest}"}

    assert STANDARD.key_of(public) == STANDARD.key_of(public.replace("whpk_", "whsk_")) == b""
    assert ours(KEY_PAIR, forged, b"", public) is Signature.MALFORMED
    genuine = _by_key_pair(private, b"", at=at)
    assert ours(STANDARD, genuine, b"", "whsec_" + base64.b64encode(raw).decode()) is Signature.MALFORMED


@pytest.mark.parametrize(
    "secret",
    ["", "whpk_", "whpk_AAAA", "whpk_!", "whsec_" + "A" * 43 + "=", "whsk_" + "A" * 43 + "=", "whpk_" + "A" * 43 + "="],
)
def test_a_text_without_a_public_key_is_refused(secret: str) -> None:
    """The last one is a point of small order: anybody could sign under it."""
    assert KEY_PAIR.key_of(secret) == b""


def test_a_rotated_key_pair_signs_twice_and_a_stranger_as_often_as_may_be_checked() -> None:
    private, public = _pair()
    headers = _by_key_pair(private, b"{}", at=int(time.time()))
    genuine, other = headers["webhook-signature"], f"v1a,{base64.b64encode(bytes(64)).decode()}"

    for listed, result in (
        ([other, genuine], Signature.GENUINE),
        ([other] * (MAX_KEY_PAIR_SIGNATURES - 1) + [genuine], Signature.GENUINE),
        ([other] * MAX_KEY_PAIR_SIGNATURES + [genuine], Signature.MALFORMED),
        ([other], Signature.WRONG),
    ):
        assert ours(KEY_PAIR, {**headers, "webhook-signature": " ".join(listed)}, b"{}", public) is result
