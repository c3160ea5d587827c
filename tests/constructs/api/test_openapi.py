"""The OpenAPI document of an API: valid, complete, and the same from the assembly as from the construct."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest
from aws_cdk import App, Duration, Stack
from aws_cdk import aws_apigateway as apigateway
from aws_cdk import aws_apigatewayv2 as apigatewayv2
from aws_cdk.assertions import Template
from openapi_spec_validator import validate

from constructs_lib import (
    DirectFunction,
    DirectOperation,
    HttpTransactionApi,
    IdempotencyTable,
    InProgressResponse,
    KeyPolicy,
    KeySource,
    Operation,
    RefusalPolicy,
    TransactionApi,
)
from constructs_lib.api.openapi import documents_in
from constructs_lib.cli.main import main
from saga_runtime.http.idempotent_request import BadKey, idempotency_key_of
from saga_runtime.http.response import Problem
from saga_runtime.protocol import PREFERENCE_APPLIED_HEADER
from tests.constructs.support.sagas import FUNCTIONS, saga

SCHEMA = {"type": "object", "required": ["amount"], "properties": {"amount": {"type": "integer", "minimum": 1}}}
WEBHOOKS = {
    Problem.NO_SIGNATURE,
    Problem.MALFORMED_SIGNATURE,
    Problem.SIGNATURE_MISMATCH,
    Problem.STALE_SIGNATURE,
}


def _api(stack: Stack, **settings: Any) -> TransactionApi:
    fn = DirectFunction(stack, "Pay", code=FUNCTIONS, handler="direct.handler", schema=SCHEMA)
    operations: dict[str, Operation | DirectOperation] = {
        "transfers": Operation(saga=saga(stack), schema=SCHEMA, max_wait=Duration.seconds(5)),
        "pay-now": DirectOperation(
            fn=fn,
            previous=None,
            requests=IdempotencyTable(stack, "Direct"),
            http_status_by_error={"InsufficientFunds": 402},
        ),
    }
    return TransactionApi(stack, "Api", operations=operations, **settings)


def _codes(document: Any, path: str, method: str) -> set[str]:
    responses = document["paths"][path][method]["responses"].values()
    return {code for response in responses for code in response.get("x-problems", ())}


def test_it_is_valid_and_has_every_operation(stack: Stack) -> None:
    document = _api(stack).openapi

    validate(document)
    assert set(document["paths"]) == {"/transfers", "/transfers/{saga_id}", "/pay-now", "/pay-now/{saga_id}"}


def test_it_has_every_problem_of_requests_and_reads(stack: Stack) -> None:
    document = _api(stack).openapi

    post, get = _codes(document, "/transfers", "post"), _codes(document, "/transfers/{saga_id}", "get")
    assert post | get >= set(Problem) - WEBHOOKS
    assert {"saga-refused", "saga-failed"} <= post
    assert "saga-not-started" not in _codes(document, "/pay-now", "post")


def test_a_response_names_the_statuses_of_refusals(stack: Stack) -> None:
    document = _api(stack).openapi

    assert "402" in document["paths"]["/pay-now"]["post"]["responses"]
    assert "402" not in document["paths"]["/transfers"]["post"]["responses"]


@pytest.mark.parametrize("below", [False, True])
def test_methods_declare_the_responses_of_the_document_if_asked(stack: Stack, below: bool) -> None:
    settings: dict[str, Any] = {"allowed_origins": ["https://shop.example"], "docs_url": "https://shop.example/"}
    if below:
        own = apigateway.RestApi(stack, "Own")
        settings["resource"] = own.root.add_resource("v2")
    api = _api(stack, declared_responses=True, **settings)

    documented = {
        (method.upper(), path, status): {
            f"method.response.header.{name}": header.get("required", False)
            for name, header in response.get("headers", {}).items()
        }
        for path, methods in api.openapi["paths"].items()
        for method, operation in methods.items()
        for status, response in operation["responses"].items()
        if not status.endswith("XX")
    }
    root = "/v2" if below else ""
    assert {("POST", f"{root}/transfers", "202"), ("GET", f"{root}/pay-now/{{saga_id}}", "404")} < documented.keys()
    assert _declared(stack) == documented


def test_methods_declare_no_responses_by_default(stack: Stack) -> None:
    _api(stack)
    assert _declared(stack) == {}


def _declared(stack: Stack) -> dict[tuple[str, str, str], dict[str, bool]]:
    """Headers of the responses that methods declare, by method, path and status; without preflights."""
    resources = Template.from_stack(stack).to_json()["Resources"]
    found: dict[tuple[str, str, str], dict[str, bool]] = {}
    for resource in resources.values():
        if resource["Type"] != "AWS::ApiGateway::Method" or resource["Properties"]["HttpMethod"] == "OPTIONS":
            continue
        path, at = "", resource["Properties"]["ResourceId"]
        while "Ref" in at:
            there = resources[at["Ref"]]["Properties"]
            path, at = f"/{there['PathPart']}{path}", there["ParentId"]
        for response in resource["Properties"].get("MethodResponses", ()):
            key = (resource["Properties"]["HttpMethod"], path, response["StatusCode"])
            found[key] = response.get("ResponseParameters", {})
    return found


@pytest.mark.parametrize(
    ("settings", "required"),
    [
        ({}, True),
        ({"key_policy": KeyPolicy.OPTIONAL}, False),
        ({"key_source": KeySource.composite("/amount")}, True),
        ({"key_source": KeySource.natural("/amount")}, None),
    ],
)
def test_the_key_is_a_header_where_it_is_one(stack: Stack, settings: dict[str, Any], required: bool | None) -> None:
    operation = Operation(saga=saga(stack), schema=SCHEMA, **settings)
    document = TransactionApi(stack, "Api", operations={"transfers": operation}).openapi

    parameters = document["paths"]["/transfers"]["post"]["parameters"]
    assert [one["required"] for one in parameters] == ([] if required is None else [required])


@pytest.mark.parametrize(
    ("answer", "accepts"), [(InProgressResponse.CONFLICT, False), (InProgressResponse.ACCEPTED, True)]
)
def test_a_direct_operation_accepts_where_a_saga_of_its_keys_may_run(
    stack: Stack, answer: InProgressResponse, accepts: bool
) -> None:
    fn = DirectFunction(stack, "Pay", code=FUNCTIONS, handler="direct.handler")
    operation = DirectOperation(
        fn=fn, previous=None, requests=IdempotencyTable(stack, "Direct"), in_progress_response=answer
    )
    document = TransactionApi(stack, "Api", operations={"pay": operation}).openapi

    assert ("202" in document["paths"]["/pay"]["post"]["responses"]) is accepts


def test_statuses_allow_the_types_of_their_problems_and_no_others(stack: Stack) -> None:
    document = _api(stack, docs_url="https://shop.example/problems#", waf=True).openapi

    responses = document["paths"]["/transfers"]["post"]["responses"]
    schema = responses["409"]["content"]["application/problem+json"]["schema"]
    assert schema["properties"]["type"]["enum"] == ["https://shop.example/problems#request-in-progress"]
    assert "Link" in responses["409"]["headers"]
    assert set(responses["429"]["content"]) == {"application/problem+json", "application/json"}  # the web ACL's


def test_a_request_states_how_long_it_may_be_repeated(stack: Stack) -> None:
    requests = IdempotencyTable(stack, "Short", replay_for=Duration.minutes(5), remember_for=Duration.days(30))
    fn = DirectFunction(stack, "Pay", code=FUNCTIONS, handler="direct.handler")
    pay = DirectOperation(fn=fn, requests=requests, previous=None)
    described = TransactionApi(stack, "Api", operations={"pay": pay}).openapi["paths"]["/pay"]["post"]["description"]

    assert "replayed for 5 minutes" in described
    assert "until 30 days after" in described


def test_a_recorded_request_links_to_its_status_and_its_duplicate(stack: Stack) -> None:
    responses = _api(stack).openapi["paths"]["/transfers"]["post"]["responses"]

    linked = {status for status, response in responses.items() if "links" in response}
    assert linked == {"200", "202", "409", "410"}
    assert "again" not in responses["410"]["links"]
    assert responses["202"]["headers"]["Location"]["required"]
    assert responses["202"]["links"]["again"]["parameters"] == {
        "header.Idempotency-Key": "$request.header.Idempotency-Key"
    }


@pytest.mark.parametrize("policy", list(RefusalPolicy))
def test_a_refusal_that_is_not_recorded_leads_to_no_status(stack: Stack, policy: RefusalPolicy) -> None:
    operation = DirectOperation(
        fn=DirectFunction(stack, "Pay", code=FUNCTIONS, handler="direct.handler"),
        previous=None,
        requests=IdempotencyTable(stack, "Direct"),
        http_status_by_error={"InsufficientFunds": 402},
        refusal_policy=policy,
    )
    responses = TransactionApi(stack, "Api", operations={"pay": operation}).openapi["paths"]["/pay"]["post"][
        "responses"
    ]

    recorded = policy is RefusalPolicy.FINAL
    assert responses["402"]["headers"]["Location"].get("required", False) is recorded
    assert ("links" in responses["402"]) is recorded


def test_each_stored_response_of_an_operation_that_waits_may_apply_the_preference(stack: Stack) -> None:
    document = _api(stack).openapi

    applied = {
        path: {
            status for status, one in item["post"]["responses"].items() if PREFERENCE_APPLIED_HEADER in one["headers"]
        }
        for path, item in document["paths"].items()
        if "post" in item
    }
    assert applied == {"/transfers": {"200", "422", "500"}, "/pay-now": set()}


def test_a_request_without_a_key_has_no_duplicate_to_link_to(stack: Stack) -> None:
    operation = Operation(saga=saga(stack), schema=SCHEMA, key_policy=KeyPolicy.OPTIONAL)
    document = TransactionApi(stack, "Api", operations={"transfers": operation}).openapi

    assert set(document["paths"]["/transfers"]["post"]["responses"]["202"]["links"]) == {"status"}


@pytest.mark.parametrize(
    ("key", "allowed"),
    [
        ("7f3a", True),
        ("a b", True),
        ('"a \\"b\\", c"', True),
        ("x" * 255, True),
        ("x" * 256, False),
        ('"' + "x" * 255 + '"', True),
        ('"' + "x" * 256 + '"', False),
        ('"', False),
        ('"unfinished', False),
        ('"  "', False),
        (" ", False),
        ("sch\u00f6n", False),
    ],
)
def test_the_key_has_the_form_that_the_gatekeeper_accepts(stack: Stack, key: str, allowed: bool) -> None:
    (header,) = _api(stack).openapi["paths"]["/pay-now"]["post"]["parameters"]

    assert (re.search(header["schema"]["pattern"], key) is not None) is allowed
    assert _is_key(key) is allowed


def _is_key(text: str) -> bool:
    try:
        return idempotency_key_of({"headers": {"Idempotency-Key": text}}) is not None
    except BadKey:
        return False


def test_a_bare_key_of_an_http_api_has_no_comma(stack: Stack) -> None:
    transfers = {"transfers": Operation(saga=saga(stack), schema=SCHEMA)}
    document = HttpTransactionApi(stack, "Http", api=apigatewayv2.HttpApi(stack, "Api"), operations=transfers).openapi

    validate(document)
    (header,) = document["paths"]["/transfers"]["post"]["parameters"]
    assert [bool(re.search(header["schema"]["pattern"], key)) for key in ("a,b", '"a,b"', "a;b")] == [False, True, True]
    assert document["servers"][0]["url"] == "https://{host}"
    assert set(document["paths"]["/transfers"]["post"]["responses"]["4XX"]["content"]) == {"application/json"}


def test_operations_below_a_resource_have_its_path_and_stage(stack: Stack) -> None:
    rest = apigateway.RestApi(stack, "Rest", deploy_options=apigateway.StageOptions(stage_name="live"))
    document = TransactionApi(
        stack, "Api", resource=rest.root.add_resource("pay"), operations={"transfers": saga(stack)}
    ).openapi

    validate(document)
    assert set(document["paths"]) == {"/pay/transfers", "/pay/transfers/{saga_id}"}
    assert document["servers"][0]["url"] == "https://{host}/live"
    refused = document["paths"]["/pay/transfers"]["post"]["responses"]["403"]
    assert set(refused["content"]) == {"application/problem+json", "application/json"}  # the latter is the gateway's


def test_a_schema_keeps_its_references_and_has_the_members_of_the_key(stack: Stack) -> None:
    schema = {
        "properties": {"order": {"$ref": "#/definitions/order"}, "kind": {"const": {"$ref": "#"}}},
        "definitions": {"order": {"type": "object"}},
    }
    operation = Operation(saga=saga(stack), schema=schema, key_source=KeySource.natural("/order/id"))
    document = TransactionApi(stack, "Api", operations={"transfers": operation}).openapi

    validate(document)
    body = document["components"]["schemas"]["transfers"]
    assert body["properties"] == {
        "order": {"$ref": "#/components/schemas/transfers/definitions/order"},
        "kind": {"const": {"$ref": "#"}},
    }
    (member,) = body["allOf"]
    assert (member["required"], member["properties"]["order"]["required"]) == (["order"], ["id"])


def test_the_command_prints_what_the_construct_has(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    app = App(outdir=str(tmp_path))
    stack = Stack(app, "Shop")
    wanted = _api(stack).openapi
    app.synth()

    assert documents_in(tmp_path) == {"Shop/Api": wanted}
    assert main(["openapi", str(tmp_path), "--api", "Api", "--url", "https://shop/v1/"]) == 0
    printed = json.loads(capsys.readouterr().out)
    assert printed == {**wanted, "servers": [{"url": "https://shop/v1"}]}

    assert main(["openapi", str(tmp_path), "--api", "Other"]) == 1
    assert "there are: Shop/Api" in capsys.readouterr().err
    assert main(["openapi", str(tmp_path / "none")]) == 1
