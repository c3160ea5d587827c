"""Adyen's payment notifications: its own package is the oracle; items, replays, fields that are not signed."""

from __future__ import annotations

import base64
import binascii
import hmac
import json
from typing import Any, Final

import pytest
from Adyen.util import generate_notification_sig, is_valid_hmac_notification
from hypothesis import given
from hypothesis import strategies as st

from saga_runtime import Callback, Invalid, Succeeded, WebhookEvent, webhook
from saga_runtime.protocol import Metric, SchemeKind
from saga_runtime.webhooks.signatures import AdyenScheme, Signature, check_signature
from tests.unit.support.receiving import JOB_ID, Reception, open_reception, rest_event, sign_by
from tests.unit.support.world import World

KEY: Final = "44782DEF547AAA06C910C43932B1EB0C71FC68D9D0C057550C48EC2ACF6BA056"
OTHER: Final = "11" * 32
SCHEME: Final = AdyenScheme(secrets=("arn:aws:secretsmanager:eu-central-1:111122223333:secret:hook",))
ITEM: Final[dict[str, Any]] = {
    "pspReference": "7914073381342284",
    "originalReference": "",
    "merchantAccountCode": "TestMerchant",
    "merchantReference": JOB_ID,
    "amount": {"value": 1130, "currency": "EUR"},
    "eventCode": "AUTHORISATION",
    "success": "true",
    "eventDate": "2026-11-23T10:00:00+01:00",
    "reason": "1234:7777:12/2030",
}


def signed(item: dict[str, Any] = ITEM, *, key: str = KEY, **changes: Any) -> dict[str, Any]:
    """An item as Adyen signs it."""
    item = {**item, **changes}
    return {**item, "additionalData": {"hmacSignature": generate_notification_sig(item, key).decode()}}


def notification(*items: dict[str, Any]) -> bytes:
    """A notification's body."""
    listed = [{"NotificationRequestItem": item} for item in items]
    return json.dumps({"live": "false", "notificationItems": listed}).encode()


def found(body: bytes, *, keys: tuple[str, ...] = (KEY,)) -> Signature:
    """Result of the check."""
    return check_signature(SCHEME, headers={}, body=body, keys=[SCHEME.key_of(key) for key in keys], now_ms=0)


def test_a_published_vector_is_genuine() -> None:
    """From Adyen's documentation of signatures."""
    item = {
        "pspReference": "7914073381342284",
        "merchantAccountCode": "TestMerchant",
        "merchantReference": "TestPayment-1407325143704",
        "amount": {"value": 1130, "currency": "EUR"},
        "eventCode": "AUTHORISATION",
        "success": "true",
        "additionalData": {"hmacSignature": "coqCmt/IZ4E3CzPvMY8zTjQVL5hYJUiBRg8UU+iCWo0="},
    }
    assert found(notification(item)) is Signature.GENUINE


words: Final = st.text(st.characters(exclude_characters=":", exclude_categories=["Cs"]), max_size=12)
items: Final = st.fixed_dictionaries(
    {
        "merchantAccountCode": words,
        "merchantReference": st.text(st.characters(exclude_categories=["Cs"]), max_size=12),
        "amount": st.fixed_dictionaries(
            {"value": st.integers(-(10**12), 10**12) | st.integers(0, 9999).map(str), "currency": words}
        ),
        "eventCode": words,
        "success": st.sampled_from(["true", "false"]),
    },
    optional={"pspReference": words, "originalReference": words, "reason": words},
)


@given(items, st.sampled_from([KEY, KEY.lower(), f"{KEY}\n", OTHER]), st.sampled_from(["", "value", "cut", "other"]))
def test_only_what_adyens_package_accepts_is_valid(item: dict[str, Any], key: str, change: str) -> None:
    sent = signed(item)
    match change:
        case "value":
            sent = {**sent, "amount": {**sent["amount"], "value": 7_777_777}}
        case "cut":
            sent["additionalData"]["hmacSignature"] = sent["additionalData"]["hmacSignature"][:-4]
        case "other":
            sent["merchantReference"] += "x"

    accepted = is_valid_hmac_notification(sent, key.strip())

    assert (found(notification(sent), keys=(key,)) is Signature.GENUINE) == accepted


@given(st.lists(items, min_size=1, max_size=4), st.data())
def test_one_item_with_a_wrong_signature_refuses_the_notification(
    several: list[dict[str, Any]], data: st.DataObject
) -> None:
    sent = [signed(item) for item in several]
    assert found(notification(*sent)) is Signature.GENUINE
    wrong = data.draw(st.integers(0, len(sent) - 1))
    sent[wrong] = signed(several[wrong], key=OTHER)
    assert found(notification(*sent)) is Signature.WRONG
    assert found(notification(*sent), keys=(OTHER, KEY)) is Signature.GENUINE


@pytest.mark.parametrize(
    ("body", "result"),
    [
        (b"", Signature.MALFORMED),
        (b"{}", Signature.MALFORMED),
        (b"[]", Signature.MALFORMED),
        (b"\xff", Signature.MALFORMED),
        (b'{"notificationItems":[]}', Signature.MALFORMED),
        (b'{"notificationItems":[7]}', Signature.MALFORMED),
        (b'{"notificationItems":{"a":7}}', Signature.MALFORMED),
        (notification({}), Signature.MALFORMED),
        (notification({**signed(), "amount": {"value": 1.5, "currency": "EUR"}}), Signature.MALFORMED),
        (notification({**signed(), "amount": {"value": True, "currency": "EUR"}}), Signature.MALFORMED),
        (notification({**signed(), "success": True}), Signature.MALFORMED),
        (notification({**signed(), "pspReference": ["x"]}), Signature.MALFORMED),
        (notification({**signed(), "additionalData": {"hmacSignature": "%"}}), Signature.MALFORMED),
        (notification({**signed(), "additionalData": {"hmacSignature": ["x"]}}), Signature.MALFORMED),
        (notification({**signed(), "additionalData": {}}), Signature.UNSIGNED),
        (notification({**signed(), "additionalData": {"hmacSignature": ""}}), Signature.UNSIGNED),
        (notification(signed(), {**signed(), "additionalData": {}}), Signature.UNSIGNED),
        (notification(signed(key=OTHER)), Signature.WRONG),
    ],
)
def test_what_is_not_signed_right_is_refused(body: bytes, result: Signature) -> None:
    assert found(body) is result


def test_fields_cannot_be_shifted_across_a_colon() -> None:
    """The signed text has no ends of fields: only ``merchantReference`` may have a colon, so it reads in one way."""
    genuine = signed(merchantReference="order:1130")
    assert found(notification(genuine)) is Signature.GENUINE
    shifted = {**genuine, "merchantAccountCode": "TestMerchant:order", "merchantReference": "1130"}
    assert is_valid_hmac_notification(shifted, KEY), "the package reads it in both ways"
    assert found(notification(shifted)) is Signature.MALFORMED


@pytest.mark.parametrize("secret", ["", "xyz", "ab" * 7, "0x" + "ab" * 16])
def test_a_key_that_is_not_hexadecimal_signs_nothing(secret: str) -> None:
    assert len(SCHEME.key_of(secret)) < 16


@given(
    st.binary(max_size=200)
    | st.recursive(st.none() | st.text(max_size=5), st.lists).map(lambda v: json.dumps(v).encode())
)
def test_no_body_is_an_exception_and_none_is_genuine(body: bytes) -> None:
    assert found(body) is not Signature.GENUINE


seen: list[Any] = []


@webhook
def from_adyen(event: WebhookEvent) -> Callback:
    """Reads a payment's notification."""
    seen.append(event.json)
    return Callback(
        job_id=event.json["merchantReference"], event_id=None, outcome=Succeeded({"psp": event.json["pspReference"]})
    )


@pytest.fixture
def reception(world: World, monkeypatch: pytest.MonkeyPatch) -> Reception:
    """A webhook that expects Adyen's signatures."""
    made = open_reception(world, monkeypatch)
    sign_by(monkeypatch, SchemeKind.ADYEN, made.put_secret("hook", KEY))
    seen.clear()
    return made


def test_a_notification_is_accepted_as_adyen_expects_it(reception: Reception) -> None:
    reception.wait()

    answer = from_adyen(rest_event(notification(signed()), {}), None)

    assert (answer["statusCode"], answer["body"]) == (200, "[accepted]")
    assert answer["headers"]["Content-Type"] == "text/plain"
    assert reception.outcome == {"psp": "7914073381342284"}


def test_a_function_receives_each_item_and_only_what_is_signed(reception: Reception) -> None:
    body = notification(signed(), signed(pspReference="other", merchantReference="second"))

    assert from_adyen(rest_event(body, {}), None)["statusCode"] == 200

    unsigned = ("eventDate", "reason", "additionalData")
    assert [each["pspReference"] for each in seen] == ["7914073381342284", "other"]
    assert seen[0] == {name: value for name, value in ITEM.items() if name not in unsigned}


def test_an_item_with_other_unsigned_fields_is_the_same_event(reception: Reception) -> None:
    """Otherwise a captured notification could be made a new event."""
    from_adyen(rest_event(notification(signed()), {}), None)
    before = reception.written()
    again = {
        **signed(),
        "eventDate": "2027-01-01T00:00:00+01:00",
        "reason": "forged",
        "amount": {"currency": "EUR", "value": "1130"},
    }

    assert from_adyen(rest_event(notification(again), {}), None)["body"] == "[accepted]"

    assert reception.written() == before


def test_a_notification_that_is_not_signed_right_leaves_no_trace(reception: Reception) -> None:
    reception.wait()

    answer = from_adyen(rest_event(notification(signed(), signed(key=OTHER)), {}), None)

    assert answer["statusCode"] == 401
    assert (seen, reception.written()) == ([], [])
    assert reception.world.telemetry.counts[Metric.SIGNATURE_REFUSED] == 1


@pytest.mark.parametrize("broken_first", [False, True])
def test_a_failure_at_one_item_brings_the_notification_again(reception: Reception, *, broken_first: bool) -> None:
    """The other items are received, before it or behind it, and recognized when they come again."""
    reception.wait()
    broken = signed(merchantReference="not a job id \u00e9")
    items = (broken, signed()) if broken_first else (signed(), broken)

    first, again = (from_adyen(rest_event(notification(*items), {}), None) for _ in range(2))

    assert first["statusCode"] == again["statusCode"] == 400
    assert reception.outcome == {"psp": "7914073381342284"}


@pytest.mark.usefixtures("reception")
def test_a_notification_comes_again_if_any_of_its_items_may_pass() -> None:
    """Whatever is wrong with another one: a provider may take a 400 for the end."""

    @webhook
    def failing(event: WebhookEvent) -> None:
        raise Invalid("never") if event.json["pspReference"] == "never" else RuntimeError

    body = notification(signed(pspReference="never"), signed(), signed(pspReference="never"))
    assert failing(rest_event(body, {}), None)["statusCode"] == 503


def test_the_oracle_signs_as_documented() -> None:
    text = f"7914073381342284::TestMerchant:{JOB_ID}:1130:EUR:AUTHORISATION:true"
    digest = hmac.digest(binascii.a2b_hex(KEY), text.encode(), "sha256")
    assert signed()["additionalData"]["hmacSignature"] == base64.b64encode(digest).decode()
