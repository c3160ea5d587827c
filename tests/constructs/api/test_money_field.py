"""MoneyField: pointers that cannot work are found at synth; all others reach the gatekeeper."""

from __future__ import annotations

import json
import re
from typing import Any

import pytest
from aws_cdk import Stack
from aws_cdk.assertions import Annotations, Match

from constructs_lib import (
    EventIntake,
    MoneyField,
    Operation,
    Step,
    StepFunction,
    TimeoutReconciler,
    TransactionApi,
    Unit,
)
from constructs_lib.api.schema_paths import may_lead_to
from saga_runtime.idempotency.amounts import MoneyPath, StatedMoney, tokens_of
from saga_runtime.protocol import Env
from tests.constructs.support.cloud import Cloud
from tests.constructs.support.integrations import own, saga_of
from tests.constructs.support.sagas import FUNCTIONS, saga

CLOSED: dict[str, Any] = {
    "type": "object",
    "additionalProperties": False,
    "properties": {
        "amount": {"type": "integer"},
        "text": {"type": ["string", "null"]},
        "flag": {"type": "boolean"},
        "lines": {"type": "array", "maxItems": 2, "items": {"$ref": "#/definitions/line"}},
        "pair": {"type": "array", "items": [{"type": "string"}], "additionalItems": False},
        "anything": {},
        "nothing": False,
        "open": {"type": "object"},
        "patterned": {"patternProperties": {"^x-": {"type": "integer"}}, "additionalProperties": False},
        "either": {"anyOf": [{"type": "boolean"}, {"properties": {"sum": {"type": "integer"}}, "type": "object"}]},
        "both": {"allOf": [{"type": "object"}, {"additionalProperties": False}]},
        "elsewhere": {"$ref": "https://example.com/schema.json"},
        "itself": {"$ref": "#/definitions/itself"},
    },
    "definitions": {
        "line": {"type": "object", "properties": {"a/b": {"type": "number"}}, "additionalProperties": False},
        "itself": {"allOf": [{"$ref": "#/definitions/itself"}, {"$ref": "#/definitions/itself"}]},
    },
}


@pytest.mark.parametrize(
    "pointer",
    [
        "/amount",
        "/text",
        "/lines/0/a~1b",
        "/lines/1/a~1b",
        "/pair/0",
        "/anything",
        "/anything/0/x",
        "/open/x",
        "/patterned/x-sum",
        "/either/sum",
        "/elsewhere/x",
        "/itself/x",
    ],
)
def test_a_pointer_to_an_undeclared_member_is_accepted(pointer: str) -> None:
    assert may_lead_to(CLOSED, tokens_of(pointer), ["integer", "number", "string"])


@pytest.mark.parametrize(
    "pointer",
    [
        "/amout",
        "/flag",
        "/amount/x",
        "/lines/2/a~1b",
        "/lines/-/a~1b",
        "/lines/00/a~1b",
        "/lines/0/b",
        "/lines/x",
        "/pair/1",
        "/nothing",
        "/open",
        "/patterned/sum",
        "/both/x",
    ],
)
def test_a_pointer_to_where_the_schema_allows_no_such_value_is_not(pointer: str) -> None:
    assert may_lead_to(CLOSED, tokens_of(pointer), ["integer", "number", "string"]) is False


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"amount": ""}, r"money's amount must be a JSON pointer into the body \(RFC 6901\), got ''; begin"),
        (
            {"amount": "amount"},
            r"money's amount must be .* got 'amount'; begin with a slash: \"/amount\"",
        ),
        ({"amount": "/a~2"}, r"money's amount must be a JSON pointer .* got '/a~2'"),
        ({"currency": "EUR"}, r"money's currency must be a JSON pointer .* got 'EUR'"),
        ({"currency": None}, r"money needs either currency or currency_code, got neither; use currency="),
        ({"currency_code": "EUR"}, r"money needs either currency or currency_code, got both"),
        (
            {"currency": None, "currency_code": "eur"},
            r"currency_code must be an ISO 4217 code or a Unit, got 'eur'",
        ),
        ({"currency": None, "currency_code": "EUR\n"}, r"currency_code must be an ISO 4217 code"),
        ({"currency": None, "currency_code": "POINT"}, r"currency_code must be an ISO 4217 code"),
        (
            {"currency": None, "currency_code": "EUR", "units": [Unit("POINT", 0)]},
            r"units of money must be given with currency, got currency_code; leave them out",
        ),
    ],
)
def test_a_wrong_field_is_named_with_the_remedy(options: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        MoneyField(**{"amount": "/amount", "currency": "/currency", **options})


def test_a_pointer_that_leads_nowhere_in_the_schema_is_named(stack: Stack) -> None:
    saga = saga_of(stack, Step.atomic("Move", fn=own(stack, "Move")))
    schema = {"type": "object", "properties": {"flag": {"type": "boolean"}, "amount": {"type": "integer"}}}

    def api(id: str, money: MoneyField, schema: dict[str, Any] | None) -> None:
        TransactionApi(stack, id, operations={"moves": Operation(saga=saga, schema=schema, money=money)})

    with pytest.raises(ValueError, match=r"money's amount must point to integer or number or string .* got '/flag'"):
        api("Flag", MoneyField(amount="/flag", currency_code="EUR"), schema)
    with pytest.raises(ValueError, match=r"money's currency must point to string .* got '/amount'; correct"):
        api("Amount", MoneyField(amount="/amount", currency="/amount"), schema)
    api("Open", MoneyField(amount="/flag", currency="/amount"), None)


def test_the_gatekeeper_receives_the_money_field(stack: Stack) -> None:
    saga = saga_of(stack, Step.atomic("Move", fn=own(stack, "Move")))
    TransactionApi(
        stack,
        "Api",
        operations={
            "told": Operation(saga=saga, money=MoneyField(amount="/a~1b/0", currency="/currency")),
            "fixed": Operation(saga=saga, money=MoneyField(amount="/amount", currency_code="JPY")),
            "silent": Operation(saga=saga),
        },
    )
    cloud = Cloud(stack)

    def told(name: str) -> str | None:
        variables = cloud.one(f"Api/Gatekeeper/{name}/Function").properties["Environment"]["Variables"]
        found: str | None = variables.get(Env.MONEY)
        return found

    told_text, fixed_text = told("told"), told("fixed")
    assert told_text is not None
    assert fixed_text is not None
    assert json.loads(fixed_text) == {"amount": "/amount", "code": "JPY"}
    body = {"a/b": [5], "amount": 7, "currency": "EUR"}
    assert MoneyPath.from_json(told_text).read(body) == StatedMoney(amount=5, currency="EUR")
    assert MoneyPath.from_json(fixed_text).read(body) == StatedMoney(amount=7, currency="JPY")
    assert told("silent") is None


POINT = Unit("POINT", 0)
FIELDS: dict[str, MoneyField | None] = {
    "none": None,
    "one currency": MoneyField(amount="/amount", currency_code="EUR"),
    "any": MoneyField(amount="/amount", currency="/currency"),
    "units": MoneyField(amount="/amount", currency="/currency", units=[POINT]),
    "one unit": MoneyField(amount="/amount", currency_code=POINT),
}


@pytest.mark.parametrize(
    ("field", "limited", "silent"),
    [
        ("none", {"EUR": 1}, ["EUR"]),
        ("one currency", {"EUR": 1, "USD": 1}, ["USD"]),
        ("any", {"EUR": 1, "USD": 1, POINT: 1}, ["POINT"]),
        ("units", {"EUR": 1, POINT: 1}, []),
        ("one unit", {"EUR": 1, POINT: 1}, ["EUR"]),
        ("none", {}, []),
    ],
)
@pytest.mark.parametrize("by_events", [False, True])
def test_alarm_for_money_that_no_request_states_is_a_warning(
    stack: Stack, field: str, limited: dict[str | Unit, int], silent: list[str], *, by_events: bool
) -> None:
    made, money = saga(stack), FIELDS[field]
    TimeoutReconciler(stack, "Reconciler", sagas=[made], max_money_in_flight=limited)
    if by_events:
        fn = StepFunction(stack, "Intake", code=FUNCTIONS, handler="intake_saga.handler")
        EventIntake(stack, "Events", operation="moved", fn=fn, saga=made, money=money)
    else:
        TransactionApi(stack, "Api", operations={"moves": Operation(saga=made, money=money)})

    found = Annotations.from_stack(stack).find_warning("/Test/Reconciler", Match.string_like_regexp("max_money"))

    told = [
        re.match(r"max_money_in_flight\['(\w+)'\] of Test/Reconciler must be of a c", str(one.entry.data))
        for one in found
    ]
    assert [one and one[1] for one in told] == silent
