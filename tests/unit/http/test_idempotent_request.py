"""Reading a proxy event: who calls, under which key, with which body."""

from __future__ import annotations

import base64
import contextlib
import tracemalloc
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from saga_runtime.errors import Invalid
from saga_runtime.http.idempotent_request import BadKey, NoIdentity, body_of, caller_of, idempotency_key_of
from saga_runtime.idempotency.identity import TooLarge
from saga_runtime.protocol import MAX_BODY_BYTES, MAX_PAYLOAD_BYTES, MAX_STATE_PAYLOAD
from tests.unit.support.samples import reservation_of


def event_of(context: Any) -> dict[str, Any]:
    """An event with a request context."""
    return {"requestContext": context}


def keyed(*values: str, name: str = "Idempotency-Key") -> dict[str, Any]:
    """An event with these values of the header."""
    return {"multiValueHeaders": {name: list(values)}, "headers": {name: values[-1]}}


IAM_USER = {"identity": {"accountId": "1", "caller": "AIDAUSER", "userArn": "arn:aws:iam::1:user/u"}}
IAM_ROLE = {"identity": {"accountId": "1", "caller": "AROAROLE:session", "accessKey": "ASIA"}}
IDENTITY_POOL = {
    "identity": {"accountId": "1", "caller": "AROAROLE:CognitoIdentityCredentials", "cognitoIdentityId": "eu:alice"}
}
JWT = {"authorizer": {"claims": {"iss": "https://issuer.example", "sub": "subject"}}}
NESTED_JWT = {"authorizer": {"jwt": {"claims": {"iss": "https://issuer.example", "sub": "subject"}}}}


@pytest.mark.parametrize(
    ("context", "source", "caller"),
    [
        (IAM_USER, "iam", ("iam", "1", "AIDAUSER")),
        (IAM_ROLE, "iam", ("iam", "1", "AROAROLE")),
        ({"identity": {"accountId": "1", "caller": "1"}}, "iam", ("iam", "1", "1")),
        ({"identity": {**IAM_ROLE["identity"], "cognitoIdentityId": None}}, "iam", ("iam", "1", "AROAROLE")),
        ({"identity": {**IAM_ROLE["identity"], "cognitoIdentityId": ""}}, "iam", ("iam", "1", "AROAROLE")),
        (IDENTITY_POOL, "iam", ("iam", "1", "cognito", "eu:alice")),
        (JWT, "jwt", ("jwt", "https://issuer.example", "subject")),
        (NESTED_JWT, "jwt", ("jwt", "https://issuer.example", "subject")),
        ({"authorizer": {"tenant": "acme"}}, "context:tenant", ("context", "tenant", "acme")),
        ({"authorizer": {"a:b": "acme"}}, "context:a:b", ("context", "a:b", "acme")),
    ],
)
def test_the_caller_is_the_authorizers_principal(context: Any, source: str, caller: tuple[str, ...]) -> None:
    assert caller_of(event_of(context), source) == caller


@pytest.mark.parametrize(
    ("context", "source"),
    [
        (None, "iam"),
        ({}, "iam"),
        ({"identity": None}, "iam"),
        ({"identity": {"accountId": "1", "caller": None}}, "iam"),
        ({"identity": {"accountId": "1", "caller": ":session"}}, "iam"),
        ({"identity": {"accountId": "1", "caller": "1:federated"}}, "iam"),
        ({"identity": {"accountId": " ", "caller": "AIDA"}}, "iam"),
        ({"identity": {"userArn": "arn:aws:iam::1:user/u", "accountId": "1"}}, "iam"),
        ({"identity": {**IDENTITY_POOL["identity"], "cognitoIdentityId": " "}}, "iam"),
        ({"identity": {"accountId": "1", "cognitoIdentityId": "eu:alice"}}, "iam"),
        (JWT, "iam"),
        (IAM_USER, "jwt"),
        ({"authorizer": {"claims": {"iss": "i"}}}, "jwt"),
        ({"authorizer": {"claims": {"sub": "s", "iss": " "}}}, "jwt"),
        ({"authorizer": {}}, "context:tenant"),
        ({"authorizer": {"tenant": " "}}, "context:tenant"),
        ({"authorizer": {"tenant": 7}}, "context:tenant"),
        ({"authorizer": None}, "context:tenant"),
    ],
)
def test_a_missing_principal_is_refused(context: Any, source: str) -> None:
    with pytest.raises(NoIdentity):
        caller_of(event_of(context), source)


@pytest.mark.parametrize("source", ["", "IAM", "context", "context:", "context: ", "header:x"])
def test_an_unknown_source_of_identity_is_a_programmers_error(source: str) -> None:
    with pytest.raises(ValueError, match="identity source"):
        caller_of(event_of(IAM_USER), source)


@pytest.mark.parametrize(
    ("value", "key"),
    [
        ("key-1", "key-1"),
        ('"key-1"', "key-1"),
        ('  "key-1" ', "key-1"),
        ('"with \\"quotes\\" and \\\\"', 'with "quotes" and \\'),
        ("inner space", "inner space"),
        ('" a "', " a "),
        ('a"b', 'a"b'),
        ("x" * 255, "x" * 255),
        ("8e03978e-40d5-43e8-bc93-6894a57f9324", "8e03978e-40d5-43e8-bc93-6894a57f9324"),
    ],
)
def test_a_key_may_be_quoted_or_bare(value: str, key: str) -> None:
    assert idempotency_key_of(keyed(value)) == key


@pytest.mark.parametrize(
    "value",
    ["", " ", '""', '"  "', '"', '"open', '"a"b"', '"a\\b"', "\u00e4", "a\tb", "a\nb", "\x7f", "x" * 256, '"a";p=1'],
)
def test_an_invalid_key_is_refused(value: str) -> None:
    with pytest.raises(BadKey):
        idempotency_key_of(keyed(value))


def test_a_key_that_was_sent_twice_is_refused_even_when_it_is_the_same() -> None:
    with pytest.raises(BadKey, match="once, got it 2 times"):
        idempotency_key_of(keyed("a", "a"))
    with pytest.raises(BadKey):
        idempotency_key_of({"multiValueHeaders": {"idempotency-key": ["a"], "Idempotency-Key": ["b"]}})


@pytest.mark.parametrize("name", ["Idempotency-Key", "idempotency-key", "IDEMPOTENCY-KEY"])
def test_the_headers_case_does_not_matter(name: str) -> None:
    assert idempotency_key_of(keyed("a", name=name)) == "a"
    assert idempotency_key_of({"headers": {name: "a"}}) == "a"


@pytest.mark.parametrize(
    "event",
    [{}, {"headers": None, "multiValueHeaders": None}, {"headers": {"Idempotency-Key": None}}, keyed("a", name="X")],
)
def test_a_missing_header_is_a_missing_key(event: dict[str, Any]) -> None:
    assert idempotency_key_of(event) is None


@given(st.text(st.characters(min_codepoint=0x20, max_codepoint=0x7E), min_size=1, max_size=255))
def test_any_printable_key_can_be_sent_quoted(key: str) -> None:
    escaped = key.replace("\\", "\\\\").replace('"', '\\"')
    if key.strip():
        assert idempotency_key_of(keyed(f'"{escaped}"')) == key


@given(st.binary(max_size=40), st.booleans())
def test_any_bytes_are_a_body_or_an_error_of_ours(raw: bytes, encoded: bool) -> None:
    body = base64.b64encode(raw).decode() if encoded else raw.decode("latin-1")
    with contextlib.suppress(Invalid, TooLarge):
        body_of({"body": body, "isBase64Encoded": encoded}, 30)


def test_a_body_may_be_in_base64() -> None:
    body = base64.b64encode('{"a": "\u00e4"}'.encode()).decode()

    assert body_of({"body": body, "isBase64Encoded": True}, 100).canonical == '{"a":"\u00e4"}'


@pytest.mark.parametrize(
    "event",
    [
        {},
        {"body": None},
        {"body": ""},
        {"body": "nonsense"},
        {"body": '"\\ud800"'},
        {"body": '"\ud800"'},
        {"body": "!!", "isBase64Encoded": True},
        {"body": "\u00e4", "isBase64Encoded": True},
        {"body": base64.b64encode(b"\xff").decode(), "isBase64Encoded": True},
    ],
)
def test_a_body_that_is_not_utf_8_json_is_invalid(event: dict[str, Any]) -> None:
    with pytest.raises(Invalid):
        body_of(event, 1_000)


@pytest.mark.parametrize(("size", "fits"), [(100, True), (101, False)])
def test_a_body_has_its_limit_in_bytes_to_the_byte(size: int, fits: bool) -> None:
    event = {"body": '"' + "x" * (size - 2) + '"'}

    if fits:
        assert len(body_of(event, 100).canonical) == 100
    else:
        with pytest.raises(TooLarge, match="got 101"):
            body_of(event, 100)


def test_a_body_that_grows_when_it_is_written_out_is_too_large() -> None:
    with pytest.raises(TooLarge):
        body_of({"body": "[1e200,1e200]"}, 100)


@pytest.mark.parametrize(
    "text",
    [
        pytest.param("[" + ",".join(["1e300"] * 499_999) + "]", id="numbers that grow"),
        pytest.param("[" + ",".join(["-1E-300"] * 370_000) + "]", id="fractions that grow"),
        pytest.param("[" + "9,1e300," * 350_000 + "1]", id="integers among them"),
    ],
)
def test_body_that_grows_beyond_its_limit_is_refused_in_little_memory(text: str) -> None:
    assert len(text) <= MAX_PAYLOAD_BYTES
    tracemalloc.start()
    try:
        with pytest.raises(TooLarge):
            body_of({"body": text}, MAX_PAYLOAD_BYTES)
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()

    assert peak < 50_000_000


def test_body_of_many_small_parts_is_written_out_in_little_memory() -> None:
    text = "[" + ",".join(["12"] * 200_000) + "]"
    tracemalloc.start()
    try:
        body = body_of({"body": text}, MAX_PAYLOAD_BYTES)
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()

    assert body.canonical == text
    assert peak < 10_000_000


@pytest.mark.parametrize("worst", ['"', "\\", "\x01", "\u00e4", "\U0001f600"])
def test_the_largest_body_fits_into_a_state_machines_input(worst: str) -> None:
    escaped = {'"': '\\"', "\\": "\\\\", "\x01": "\\u0001"}.get(worst, worst)
    count = (MAX_BODY_BYTES - 2) // len(escaped.encode())
    body = body_of({"body": '"' + escaped * count + '"'}, MAX_BODY_BYTES)

    reservation = reservation_of(body=body.canonical)

    assert len(reservation.start_input.encode()) <= MAX_STATE_PAYLOAD
