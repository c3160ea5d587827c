"""Answers of the gateway itself: problem documents, valid JSON whatever is filled in."""

from __future__ import annotations

import json
from typing import Any

import pytest
from aws_cdk import Stack
from openapi_spec_validator import validate

from constructs_lib import TransactionApi
from saga_runtime.http.response import PROBLEM
from saga_runtime.protocol import Env
from tests.constructs.support.cloud import Cloud, Resource
from tests.constructs.support.sagas import saga

DOCS = "https://docs.example/problems#"
RESPONSE = "AWS::ApiGateway::GatewayResponse"
MESSAGES = ["Forbidden", 'Forbidden by "rule"', "back\\slash", "two\nlines", ""]


def _filled(template: str, message: str) -> str:
    """A template as the gateway fills it: ``messageString`` includes its quotes, other variables do not."""
    return (
        template.replace("$context.error.messageString", json.dumps(message))
        # Filled in without quotes of its own; its quotes come escaped.
        .replace("$context.error.validationErrorString", json.dumps(message)[1:-1])
        .replace("$context.error.responseType", "SOME_TYPE")
        .replace("$context.requestId", "0d3e2f8a-1111-2222-3333-444455556666")
    )


def _responses(cloud: Cloud) -> list[Resource]:
    return cloud.of_type(RESPONSE)


def test_every_refusal_of_the_gateway_has_our_problem_document(reference: Cloud) -> None:
    answered = {response.properties["ResponseType"] for response in _responses(reference)}
    assert {
        "DEFAULT_4XX",
        "DEFAULT_5XX",
        "ACCESS_DENIED",
        "REQUEST_TOO_LARGE",
        "THROTTLED",
        "INTEGRATION_TIMEOUT",
        "INTEGRATION_FAILURE",
        "BAD_REQUEST_BODY",
        "MISSING_AUTHENTICATION_TOKEN",
        "INVALID_SIGNATURE",
        "WAF_FILTERED",
    } <= answered
    assert len(answered) == len(_responses(reference))


def test_every_response_is_offered_as_json_and_as_a_problem_document(reference: Cloud) -> None:
    for response in _responses(reference):
        templates = response.properties["ResponseTemplates"]
        assert set(templates) == {"application/json", PROBLEM}
        assert len(set(templates.values())) == 1


@pytest.mark.parametrize("message", MESSAGES)
def test_every_response_is_valid_json_with_any_message(reference: Cloud, message: str) -> None:
    for response in _responses(reference):
        for template in response.properties["ResponseTemplates"].values():
            filled = _filled(template, message)
            assert "$context" not in filled, response.path
            document = json.loads(filled)
            assert document["detail"] == message
            assert document["type"].startswith("urn:cdk-sagas:problem:")
            assert document["title"].strip()
            assert document["request_id"]


def test_the_status_in_the_document_is_the_responses(reference: Cloud) -> None:
    for response in _responses(reference):
        (template, *_) = response.properties["ResponseTemplates"].values()
        document = json.loads(_filled(template, "m"))
        assert document.get("status") == _status(response)


def _status(response: Resource) -> int | None:
    code: Any = response.properties.get("StatusCode")
    return int(code) if code is not None else None


def test_no_response_of_the_gateway_is_cached(reference: Cloud) -> None:
    for response in _responses(reference):
        assert response.properties["ResponseParameters"]["gatewayresponse.header.Cache-Control"] == "'no-store'"


@pytest.mark.parametrize(
    ("kind", "status"), [("THROTTLED", 429), ("INTEGRATION_TIMEOUT", 504), ("QUOTA_EXCEEDED", 429)]
)
def test_retryable_problems_have_a_retry_after(reference: Cloud, kind: str, status: int) -> None:
    (response,) = (r for r in _responses(reference) if r.properties["ResponseType"] == kind)
    assert _status(response) == status
    assert response.properties["ResponseParameters"]["gatewayresponse.header.Retry-After"] == "'2'"


def test_literal_header_values_are_quoted_as_the_gateway_wants_them(reference: Cloud) -> None:
    for response in _responses(reference):
        for value in response.properties["ResponseParameters"].values():
            assert value.startswith("'"), response.path
            assert value.endswith("'"), response.path


def test_no_response_denies_an_effect_that_is_in_doubt(reference: Cloud) -> None:
    for response in _responses(reference):
        if response.properties["ResponseType"] in {"INTEGRATION_TIMEOUT", "INTEGRATION_FAILURE", "DEFAULT_5XX"}:
            assert "may or may not have been accepted" in response.properties["ResponseTemplates"][PROBLEM]


def test_problem_codes_of_the_gateway_are_distinct(reference: Cloud) -> None:
    kinds = [
        json.loads(_filled(r.properties["ResponseTemplates"][PROBLEM], "m"))["type"] for r in _responses(reference)
    ]
    assert len(kinds) == len(set(kinds))


def test_every_api_has_them(stack: Stack) -> None:
    TransactionApi(stack, "Api", operations={"orders": saga(stack)})
    assert len(_responses(Cloud(stack))) > 15


def test_documented_problems_of_gateway_and_web_acl_link_to_their_pages(stack: Stack) -> None:
    api = TransactionApi(stack, "Api", operations={"orders": saga(stack)}, docs_url=DOCS, waf=True)

    cloud = Cloud(stack)
    for response in _responses(cloud):
        document = json.loads(_filled(response.properties["ResponseTemplates"][PROBLEM], "m"))
        assert document["type"].startswith(DOCS)
        link = response.properties["ResponseParameters"]["gatewayresponse.header.Link"]
        assert link == f"'<{document['type']}>; rel=\"describedby\"'"
    acl = cloud.one("Api/WebAcl/Acl").properties
    assert json.loads(acl["CustomResponseBodies"]["TooManyRequests"]["Content"])["type"] == f"{DOCS}throttled"
    headers = acl["Rules"][2]["Action"]["Block"]["CustomResponse"]["ResponseHeaders"]
    assert {"Name": "Link", "Value": f'<{DOCS}throttled>; rel="describedby"'} in headers
    variables = cloud.one("Api/Gatekeeper/orders/Function").properties["Environment"]["Variables"]
    assert variables[Env.DOCS_URL] == DOCS
    responses = api.openapi["paths"]["/orders"]["post"]["responses"]
    assert all(("Link" in one["headers"]) == ("x-problems" in one) for one in responses.values())
    validate(api.openapi)


@pytest.mark.parametrize(
    "docs_url",
    ["", "docs.example/", "https://docs.example", "https://a/'x'#", "https://a/$context#", "ftp://a/", "https://a/ b#"],
)
def test_an_address_that_no_code_can_follow_is_refused(stack: Stack, docs_url: str) -> None:
    with pytest.raises(ValueError, match=r"^docs_url must match .*; write an address that ends with /, # or ="):
        TransactionApi(stack, "Api", operations={"orders": saga(stack)}, docs_url=docs_url)
