"""Log lines without personal data and secrets."""

from __future__ import annotations

import io
import json
import time
from typing import Any

import pytest
from aws_lambda_powertools import Logger
from hypothesis import given
from hypothesis import strategies as st

from saga_runtime import masked_logger
from saga_runtime.protocol import MAX_WEBHOOK_BYTES
from saga_runtime.shared.masking import MASK, masked

TASK_TOKEN = "AQC" + "Ab3/" * 60


@pytest.mark.parametrize(
    ("text", "logged"),
    [
        ("write to aki.sato+news@mail.example.co.jp today", f"write to {MASK} today"),
        ("call +81 90-1234-5678 or +4917612345678", f"call {MASK} or {MASK}"),
        ("call (030) 1234567, 0171 2345678 or 09012345678", f"call {MASK}, {MASK} or {MASK}"),
        ("card 4242 4242 4242 4242, or 4000056655665556", f"card {MASK}, or {MASK}"),
        ("PIN 1234, pin: 98765, the PIN is 4711", f"PIN {MASK}, pin: {MASK}, the PIN is {MASK}"),
        ("Authorization: Bearer abc.def-ghi_jkl", f"Authorization: Bearer {MASK}"),
        ("eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiIxIn0.c2lnbmF0dXJl", MASK),
        ("key sk_live_51Habcdefgh, AKIAIOSFODNN7EXAMPLE", f"key {MASK}, {MASK}"),
        (f"sent {TASK_TOKEN}", f"sent {MASK}"),
    ],
)
def test_personal_data_and_secrets_are_masked_in_texts(text: str, logged: str) -> None:
    assert masked(text) == logged


@pytest.mark.parametrize(
    "text",
    [
        "3f2c9a52-8b1e-4a7e-9d55-0d3c2b1a4f60",
        "aaaaaaaaaaaaaaaaaaaaaaaaaa-mdwqr4j1#Pick",
        "2026-11-23T04:16:16.123Z",
        "moved 12900 EUR in 0.123 s at 1795400000000",
        "arn:aws:states:eu-west-1:111111111111:stateMachine:Transfer",
        "10.0.0.1 answered 200",
        "1-67891233-abcdef012345678912345678",
        "pinned the mapping of 12 shipments",
    ],
)
def test_what_an_operator_needs_is_not_masked(text: str) -> None:
    assert masked(text) == text


@pytest.mark.parametrize(
    ("value", "logged"),
    [
        ({"email": "aki@example.org", "amount": 3}, {"email": MASK, "amount": 3}),
        ({"pin": 1234, "cardToken": "x", "PASSWORD": "y"}, {"pin": MASK, "cardToken": MASK, "PASSWORD": MASK}),
        ({"of": [{"client_secret": "z", "phone": "1"}]}, {"of": [{"client_secret": MASK, "phone": MASK}]}),
        ({"token": None, "email_sent": True}, {"token": None, "email_sent": True}),
        ({"shipping": "express", "mapping": "a"}, {"shipping": "express", "mapping": "a"}),
        ({"job_id": "4242424242424242"}, {"job_id": "4242424242424242"}),
        ({"customer_id": "aki@example.org"}, {"customer_id": MASK}),
        ({"secret_key": "x", "aws_secret_access_key": "y"}, {"secret_key": MASK, "aws_secret_access_key": MASK}),
        ({"api_key": "x", "apiKey": "y", "privateKey": "z"}, {"api_key": MASK, "apiKey": MASK, "privateKey": MASK}),
        ({"secret_arn": "a", "step_key": "b", "token_id": "c"}, {"secret_arn": "a", "step_key": "b", "token_id": "c"}),
        ({"card": 4242424242424242, "of": [4000056655665556]}, {"card": MASK, "of": [MASK]}),
        ({"amount": 4242424242424241, "at": 1795400000000}, {"amount": 4242424242424241, "at": 1795400000000}),
        ({"job_id": 4242424242424242, "n": 10**5000}, {"job_id": 4242424242424242, "n": 10**5000}),
    ],
)  # fmt: skip
def test_values_are_masked_by_their_key(value: Any, logged: Any) -> None:
    assert masked(value) == logged


def test_further_fields_are_masked_at_every_depth() -> None:
    assert masked({"name": "Aki", "of": [{"name": "Sato"}]}, ["name"]) == {"name": MASK, "of": [{"name": MASK}]}


@pytest.mark.parametrize("hostile", ["a", "a.b", "eyJ-", "eyJaaaaaaaaa", "sk_", "+1 ", "4 ", "pin ", "(0", "a@b."])
def test_no_text_takes_long(hostile: str) -> None:
    text = hostile * (MAX_WEBHOOK_BYTES // len(hostile))
    begun = time.process_time()

    masked(text)

    assert time.process_time() - begun < 2


@given(
    st.recursive(
        st.none() | st.booleans() | st.integers() | st.text(),
        lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
    )
)
def test_masking_twice_is_masking_once_and_any_value_can_be(value: Any) -> None:
    once = masked(value)

    assert masked(once) == once
    json.dumps(once)


@pytest.fixture
def printed() -> tuple[Logger, io.StringIO]:
    logger = masked_logger(service="masked-test", fields=["holder"])
    stream = io.StringIO()
    logger.registered_handler.stream = stream  # type: ignore[attr-defined]  # Powertools' handler is a stream's
    return logger, stream


def test_every_part_of_a_line_is_masked(printed: tuple[Logger, io.StringIO]) -> None:
    logger, stream = printed
    logger.append_keys(order="o-1", contact="aki@example.org")
    try:
        raise ValueError("no account of aki@example.org, +81 90-1234-5678")
    except ValueError:
        logger.exception({"note": "PIN 1234"}, extra={"holder": "Aki Sato", "pin": "1234"})

    line = json.loads(stream.getvalue())
    assert line["service"] == "masked-test"
    assert line["order"] == "o-1"
    assert line["level"] == "ERROR"
    assert line["message"] == {"note": f"PIN {MASK}"}
    for secret in ("aki@example.org", "+81 90-1234-5678", "1234", "Aki Sato"):
        assert secret not in stream.getvalue()


def test_loggers_of_the_service_that_were_made_before_are_masked_too() -> None:
    before = Logger(service="masked-before")
    stream = io.StringIO()
    before.registered_handler.stream = stream  # type: ignore[attr-defined]  # as above
    masked_logger(service="masked-before")

    before.info("mail to aki@example.org")

    assert "aki@example.org" not in stream.getvalue()


def test_fields_of_each_logger_of_a_service_are_masked() -> None:
    printed = io.StringIO()
    first = masked_logger(service="masked-twice", stream=printed, fields=["holder"])
    second = masked_logger(service="masked-twice", fields=["owner"])

    for logger in (first, second):
        logger.info("moved", extra={"holder": "Aki Sato", "owner": "Bo Sato"})

    assert "Sato" not in printed.getvalue()
    assert printed.getvalue().count("moved") == 2
