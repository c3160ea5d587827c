"""Answers as API Gateway wants them, and bodies against a schema."""

from __future__ import annotations

import contextlib
import json
import re
import time
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest
from fastjsonschema.draft07 import CodeGeneratorDraft07
from hypothesis import example, given
from hypothesis import strategies as st

from saga_runtime.errors import Invalid
from saga_runtime.http.response import HttpAnswer, Problem, answer, problem, stored
from saga_runtime.http.schema import compile_validator, load_validator
from saga_runtime.idempotency.identity import parse_json
from saga_runtime.protocol import MAX_BODY_BYTES


@pytest.mark.parametrize("kind", Problem)
def test_every_problem_is_a_problem_document_with_its_status(kind: Problem) -> None:
    proxy = problem(kind, "because", headers={"Retry-After": "2"}, saga_id="s").to_proxy()
    document = json.loads(proxy["body"])

    assert document["type"] == f"urn:cdk-sagas:problem:{kind}"
    assert document["status"] == proxy["statusCode"]
    assert 400 <= proxy["statusCode"] < 600
    assert (document["detail"], document["saga_id"]) == ("because", "s")
    assert proxy["headers"]["Content-Type"] == "application/problem+json"
    assert proxy["headers"]["Retry-After"] == "2"


def test_no_response_is_cached() -> None:
    for made in (answer(200, {}), problem(Problem.NOT_FOUND, "x"), stored(200, "{}", {})):
        assert made.to_proxy()["headers"]["Cache-Control"] == "no-store"


@pytest.mark.parametrize(("status", "kind"), [(200, "application/json"), (422, "application/problem+json")])
def test_a_stored_response_keeps_its_bytes(status: int, kind: str) -> None:
    made = stored(status, '{"b": 1.10}', {"X": "y"})

    assert made == HttpAnswer(status=status, body='{"b": 1.10}', content_type=kind, headers={"X": "y"})


@pytest.mark.parametrize(
    ("schema", "body", "fits"),
    [
        ({"type": "integer", "minimum": 1}, "5", True),
        ({"type": "integer", "minimum": 1}, "0", False),
        ({"type": "integer"}, "1.0", True),
        ({"type": "integer"}, "1.5", False),
        ({"type": "integer"}, "true", False),
        ({"type": "integer"}, '"1"', False),
        ({"type": "number", "multipleOf": 0.01}, "1.25", True),
        ({"type": "number", "multipleOf": 0.01}, "1.255", False),
        ({"type": "number", "maximum": 100}, "100.0000000000000000000000000001", False),
        ({"multipleOf": 7}, "1" * 400, False),
        ({"enum": [0.1, "x"]}, "0.10", True),
        ({"type": "object", "required": ["a"], "properties": {"a": {}}}, "{}", False),
        ({"properties": {"a": {}}, "additionalProperties": False}, '{"a":1,"b":2}', False),
        ({"items": {"type": "string", "pattern": "^[a-z]+$"}}, '["ab","A"]', False),
        ({"format": "date-time"}, '"2024-01-01T00:00:00Z"', True),
        ({"format": "date-time"}, '"yesterday"', False),
    ],
)
def test_a_body_fits_its_schema_or_is_invalid(schema: Any, body: str, fits: bool) -> None:
    check = compile_validator(schema)

    if fits:
        check(parse_json(body))
    else:
        with pytest.raises(Invalid):
            check(parse_json(body))


def test_checking_changes_nothing() -> None:
    body = {"amount": Decimal("1.5"), "list": [Decimal("0.1")]}

    compile_validator({"properties": {"amount": {"default": 1}, "other": {"default": 2}}})(body)

    assert body == {"amount": Decimal("1.5"), "list": [Decimal("0.1")]}


def test_a_value_that_a_schema_follows_too_deep_is_invalid() -> None:
    endless: list[Any] = []
    endless.append(endless)

    with pytest.raises(Invalid, match="too deep"):
        compile_validator({"type": "array"})(endless)


@given(
    st.text("a.@\u00e4-", max_size=12) | st.text("a.@", max_size=5).map(lambda text: f"a@{text}"),
    st.sampled_from(["email", "idn-email"]),
)
@example("a@b.c", "email")
@example("a..b@c.d", "email")
@example("a..b@c.d", "idn-email")
def test_a_format_of_ours_accepts_what_the_one_it_replaces_accepts(text: str, name: str) -> None:
    theirs = re.compile(CodeGeneratorDraft07.FORMAT_REGEXS[name])

    try:
        compile_validator({"type": "string", "format": name})(text)
        fits = True
    except Invalid:
        fits = False

    assert fits == (theirs.match(text) is not None)


@pytest.mark.parametrize("name", sorted(CodeGeneratorDraft07.FORMAT_REGEXS))
@pytest.mark.parametrize(
    ("start", "repeated", "end"),
    [
        ("x", "..", ""),
        ("a@", "b.", "@"),
        ("a@", ".", "@"),
        ("", "a.", "!"),
        ("", "a-", "!"),
        ("1:", "9", ""),
        ("a:", "/", " "),
        ("/", "~0", "~"),
        ("0", "/", "~"),
        ("", "a", "{"),
        ("", "%20", "{"),
        ("", ":", "\\"),
    ],
)
def test_no_format_takes_long_for_a_hostile_text(name: str, start: str, repeated: str, end: str) -> None:
    validate = compile_validator({"type": "string", "format": name})
    text = f"{start}{repeated * (MAX_BODY_BYTES // len(repeated))}{end}"
    begun = time.process_time()

    with contextlib.suppress(Invalid):
        validate(text)

    assert time.process_time() - begun < 0.5


def test_an_invalid_schema_is_a_programmers_error() -> None:
    with pytest.raises(ValueError, match="not a JSON schema"):
        compile_validator({"type": "nonsense"})


def test_a_schema_file_is_optional(tmp_path: Path) -> None:
    file = tmp_path / "request_schema.json"
    assert load_validator(file) is None

    file.write_text('{"type": "object"}')
    check = load_validator(file)

    assert check is not None
    with pytest.raises(Invalid):
        check([])
