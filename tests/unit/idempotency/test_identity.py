"""Names and digests: the same for everybody who derives them, different for everything that differs."""

from __future__ import annotations

import json
import string
from collections.abc import Callable
from decimal import Context, Decimal
from enum import Enum
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from saga_runtime.errors import Invalid
from saga_runtime.idempotency.identity import (
    TooLarge,
    canonical_json,
    fingerprint_of,
    is_saga_id,
    parse_json,
    provider_key_of,
    request_id_from,
    request_id_of,
    saga_id_of,
    scope_of,
    step_key_of,
)
from saga_runtime.protocol import MAX_EXECUTION_NAME, MAX_JSON_DEPTH, MAX_SAGA_ID
from tests.unit.support.samples import REQUEST_ID, SAGA_ID

texts = st.text('ab "\\#:\n\u00e4\u20ac\U0001f600', max_size=5)
words = st.builds("{}x{}".format, texts, texts)
decimals = st.decimals(allow_nan=False, allow_infinity=False, min_value=Decimal("-1e40"), max_value=Decimal("1e40"))
values: st.SearchStrategy[Any] = st.recursive(
    st.none() | st.booleans() | st.integers() | decimals | texts,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(texts, inner, max_size=4),
    max_leaves=12,
)


@given(one=st.lists(words, min_size=3, max_size=4), other=st.lists(words, min_size=3, max_size=4))
def test_two_callers_share_a_scope_only_if_they_are_one(one: list[str], other: list[str]) -> None:
    same = scope_of(one[0], tuple(one[1:])) == scope_of(other[0], tuple(other[1:]))

    assert same is (one == other)


def test_moving_a_letter_between_parts_changes_the_scope() -> None:
    assert scope_of("op", ("iam", "ab", "c")) != scope_of("op", ("iam", "a", "bc"))
    assert request_id_of("ab", "c") != request_id_of("a", "bc")
    assert fingerprint_of("ab", "c") != fingerprint_of("a", "bc")


@pytest.mark.parametrize("blank", ["", " ", "\t", "\u00a0", "\n"])
def test_blank_names_are_refused_everywhere(blank: str) -> None:
    makers: list[Callable[[], str]] = [
        lambda: scope_of(blank, ("iam", "1", "a")),
        lambda: scope_of("op", ("iam", "1", blank)),
        lambda: request_id_of(blank, "key"),
        lambda: request_id_of("scope", blank),
        lambda: provider_key_of(blank),
        lambda: step_key_of(SAGA_ID, blank),
        lambda: step_key_of(blank, "Transfer"),
        lambda: step_key_of(SAGA_ID, "Transfer", item_key=blank),
        lambda: saga_id_of(blank, 1, "requests"),
    ]
    for make in makers:
        with pytest.raises(ValueError, match=r"."):
            make()


def test_a_scope_needs_more_than_the_kind_of_a_caller() -> None:
    with pytest.raises(ValueError, match="a scope needs"):
        scope_of("op", ("iam",))


@given(scope=words, key=words)
def test_a_request_id_is_26_characters_that_any_key_and_name_may_hold(scope: str, key: str) -> None:
    request_id = request_id_of(scope, key)

    assert len(request_id) == 26
    assert set(request_id) <= set(string.ascii_lowercase + "234567")


@given(now_ms=st.integers(min_value=1, max_value=36**9 - 1))
def test_a_saga_id_leads_back_to_its_request_and_fits_as_an_execution_name(now_ms: int) -> None:
    saga_id = saga_id_of(REQUEST_ID, now_ms, "requests")

    assert is_saga_id(saga_id)
    assert request_id_from(saga_id) == REQUEST_ID
    assert len(saga_id) <= MAX_SAGA_ID
    assert len(f"{saga_id}-r1000") <= MAX_EXECUTION_NAME
    assert int(saga_id.partition("-")[2][:-4], 36) == now_ms


def test_requests_of_two_tables_under_one_key_at_one_moment_are_two_sagas() -> None:
    """Both stacks of an event receive it at once: at a provider that they share, each needs a key of its own."""
    ids = {saga_id_of(REQUEST_ID, 1, f"requests-{number}") for number in range(100)}

    assert len(ids) == 100


def test_table_of_a_saga_id_has_a_name() -> None:
    with pytest.raises(ValueError, match="needs the name of a request table that is not blank"):
        saga_id_of(REQUEST_ID, 1, " ")


@pytest.mark.parametrize("now_ms", [0, -1])
def test_a_reservation_has_a_time(now_ms: int) -> None:
    with pytest.raises(ValueError, match="must be positive"):
        saga_id_of(REQUEST_ID, now_ms, "requests")


@pytest.mark.parametrize(
    "text",
    ["", "x", REQUEST_ID, f"{REQUEST_ID}-", f"{SAGA_ID}\n", f" {SAGA_ID}", f"{SAGA_ID}-r1", SAGA_ID.upper(), "a#b"],
)
def test_an_invalid_saga_id_is_refused(text: str) -> None:
    assert not is_saga_id(text)
    with pytest.raises(ValueError, match="not a saga id"):
        request_id_from(text)


@pytest.mark.parametrize("step", ["transfer", "Trans fer", "T#undo", "Transfer\n", "T" * 41, "1T"])
def test_a_step_key_takes_only_step_names(step: str) -> None:
    with pytest.raises(ValueError, match="name must match"):
        step_key_of(SAGA_ID, step)


def test_a_provider_key_is_a_uuid_that_differs_for_the_compensation() -> None:
    keys = {provider_key_of(step_key_of(SAGA_ID, "Charge", undo=undo)) for undo in (True, False)}

    assert len(keys) == 2
    assert all(len(key) == 36 for key in keys)


@given(values)
def test_canonical_json_is_json_and_a_fixed_point(value: Any) -> None:
    text = canonical_json(value)

    json.loads(text)
    assert canonical_json(parse_json(text)) == text


@given(values)
def test_canonical_json_loses_nothing(value: Any) -> None:
    assert parse_json(canonical_json(value)) == json.loads(json.dumps(value, default=_marked), object_hook=_unmarked)


def _marked(value: Decimal) -> Any:
    return {"\0decimal": str(value)}


def _unmarked(value: dict[str, Any]) -> Any:
    return Decimal(value["\0decimal"]) if set(value) == {"\0decimal"} else value


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ('{"a":1,"b":2}', '{ "b": 2, "a": 1 }'),
        ("[1.0, 1.50, 1e2, -0, 0.000]", "[1,1.5,100,0,0]"),
        ('"\\u00e4\\/"', '"\u00e4/"'),
        ("1E+2", "100"),
        ("0e5", "0"),
    ],
)
def test_two_spellings_of_one_value_have_one_text(one: str, other: str) -> None:
    assert canonical_json(parse_json(one)) == canonical_json(parse_json(other))


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("0.1234567890123456789012345678901", "0.1234567890123456789012345678902"),
        ("10000000000000000000000000000000000000001.0", "10000000000000000000000000000000000000002.0"),
        ("9007199254740993", "9007199254740992"),
        ("1", '"1"'),
        ("1", "true"),
        ("0", "false"),
        ("null", '"null"'),
        ("[]", "{}"),
        ('"\u00e4"', '"a\u0308"'),
    ],
)
def test_two_values_have_two_fingerprints(one: str, other: str) -> None:
    fingerprints = {fingerprint_of("op", canonical_json(parse_json(text))) for text in (one, other)}

    assert len(fingerprints) == 2


@pytest.mark.parametrize(
    "text",
    [
        "",
        " ",
        "{",
        "nonsense",
        "NaN",
        "Infinity",
        "-Infinity",
        "1e400",
        "1e-400",
        "1e999999999999999999999",
        "0e999999",
        "1" * 302,
        "-" + "1" * 302,
        "1" * 5_000,
        '{"a":1,"a":1}',
        '{"a":{"b":1,"b":2}}',
        "\ufeff{}",
        "[" * 100_000,
        "01",
        "'a'",
        '"\x01"',
    ],
)
def test_invalid_json_is_refused(text: str) -> None:
    with pytest.raises(Invalid):
        parse_json(text)


def test_integers_and_fractions_have_the_same_bounds() -> None:
    assert parse_json("9" * 301) == 10**301 - 1
    assert canonical_json(parse_json("1e300")) == canonical_json(10**300)


@pytest.mark.parametrize("value", [10**301, -(10**301), Decimal("1e301"), Decimal("1e-301"), Decimal("1e999999")])
def test_number_out_of_range_is_refused_before_it_is_written(value: Any) -> None:
    with pytest.raises(Invalid, match="out of range"):
        canonical_json({"value": value})


def test_integer_that_python_cannot_write_is_refused() -> None:
    with pytest.raises(Invalid, match="out of range"):
        canonical_json(10**5_000)


def test_value_above_its_limit_is_refused_at_the_byte() -> None:
    value = ["\u00e4", {"a": Decimal("1e3")}]
    size = len(canonical_json(value).encode("utf-8"))

    assert canonical_json(value, max_bytes=size) == canonical_json(value)
    with pytest.raises(TooLarge):
        canonical_json(value, max_bytes=size - 1)


@pytest.mark.parametrize(
    "value", [1.5, 1.0, float("nan"), Decimal("NaN"), Decimal("Infinity"), {1: 2}, {"a": {3}}, b"x", "\ud800", object()]
)
def test_a_value_without_an_exact_json_form_is_invalid(value: Any) -> None:
    with pytest.raises(Invalid):
        canonical_json({"value": value} if not isinstance(value, dict) else value)


def test_numbers_of_other_classes_are_written_as_numbers() -> None:
    class Level(int, Enum):
        LOW = 1

    class Cents(int):
        def __str__(self) -> str:
            return "5 cents"

    class Rate(Decimal):
        def __format__(self, spec: str, context: Context | None = None) -> str:
            return "half"

    assert canonical_json([Level.LOW, Cents(5), Rate("0.5")]) == "[1,5,0.5]"


def test_a_value_that_nests_too_deep_is_invalid() -> None:
    as_deep_as_allowed = "[" * MAX_JSON_DEPTH + "]" * MAX_JSON_DEPTH

    assert canonical_json(parse_json(as_deep_as_allowed)) == as_deep_as_allowed
    with pytest.raises(Invalid, match="too deep"):
        canonical_json(parse_json(f"[{as_deep_as_allowed}]"))
